/* Processes of one id, and ids that are new to a job that runs. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;

TEST(an_id_that_is_in_use_is_refused_until_its_process_ends)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    uint32_t second = control_world_start(&world, 1, false);
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, second), GF_MEMBER_JOINING);
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 2);
    assert_int_equal(world.procs[second].number, world.procs[0].number);
    control_world_close(&world);
}

TEST(a_launcher_that_has_reaped_a_process_replaces_it_at_once)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    world.procs[1].stopped = true; /* its host is gone: no kernel says anything */
    uint32_t second = control_world_start(&world, 1, true);
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, second), GF_MEMBER_WORKS);
    assert_int_equal(world.procs[second].number, world.procs[0].number);
    control_world_close(&world);
}

TEST(a_second_process_of_an_id_ends_once_it_has_waited_for_long)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    uint32_t second = control_world_start(&world, 1, false);
    control_world_quiet(&world, 9 * SECOND);
    assert_int_equal(control_world_state(&world, second), GF_MEMBER_ENDED);
    assert_non_null(strstr(gf_member_error(world.procs[second].member)->text, "in use"));
    control_world_close(&world);
}

/* It is no cause of what comes after it: neither once the process was taken, nor where the
 * coordinator has ended since. */
TEST(a_refusal_is_told_while_it_is_the_last_word)
{
    static const struct {
        bool is_taken;
        gf_status code;
    } rows[] = {{true, GF_ERR_PEER}, {false, GF_ERR_TIMEOUT}};
    for (uint32_t i = 0; i < LENGTH(rows); i++) {
        control_world_open(&world, 2, 1);
        control_world_quiet(&world, SECOND);
        uint32_t second = control_world_start(&world, 1, false);
        control_world_quiet(&world, SECOND);
        assert_int_equal(control_world_state(&world, second), GF_MEMBER_JOINING);
        if (rows[i].is_taken) control_world_kill(&world, 1);
        control_world_quiet(&world, SECOND);
        assert_int_equal(world.procs[second].number, rows[i].is_taken ? world.procs[0].number : 0);
        control_world_coordinator_end(&world);
        control_world_quiet(&world, 9 * SECOND);
        const struct gf_error *error = gf_member_error(world.procs[second].member);
        assert_int_equal(error->code, rows[i].code);
        if (strstr(error->text, "cannot be reached") == NULL) fail_msg("%s", error->text);
        control_world_close(&world);
    }
}

TEST(two_processes_that_both_say_the_other_was_reaped_do_not_take_turns)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 1);
    uint32_t second = control_world_start(&world, 1, true);
    control_world_quiet(&world, SECOND);
    uint32_t third = control_world_start(&world, 1, true);
    control_world_quiet(&world, 12 * SECOND);
    assert_int_equal(control_world_state(&world, second), GF_MEMBER_ENDED);
    assert_int_equal(control_world_state(&world, third), GF_MEMBER_WORKS);
    assert_true(world.procs[0].number <= 4);
    control_world_close(&world);
}

/* No step has ended, so it is as far as the others, and has no weights all the same. */
TEST(a_rank_that_comes_in_before_the_first_step_is_given_the_common_state)
{
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    for (uint32_t i = 0; i < 2; i++) world.procs[i].hangs = world.procs[i].unapplied = true;
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(world.procs[0].number, 1);
    (void)control_world_start(&world, 2, false);
    control_world_quiet(&world, 100 * CONTROL_MS);
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND);
    assert_int_equal(world.procs[0].steps, 0);
    assert_int_equal(gf_member_generation(world.procs[0].member)->world, 2);
    assert_true(gf_member_generation(world.procs[0].member)->lags);
    control_world_close(&world);
}

TEST(an_id_that_is_new_comes_in)
{
    control_world_open_growing(&world, 2, 1, 4, GF_RANK_NONE);
    (void)control_world_start(&world, 3, false); /* before the job begins */
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 3);
    assert_int_equal(world.procs[0].number, 2);
    (void)control_world_start(&world, 2, false);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 4);
    control_world_close(&world);
}

TEST(a_process_that_is_dropped_while_it_waits_is_not_counted)
{
    unsigned char nonsense = 1;
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    world.procs[0].hangs = world.procs[1].hangs = true;
    uint32_t third = control_world_start(&world, 2, false);
    control_world_quiet(&world, 200 * CONTROL_MS);
    (void)world.procs[third].channel.driver->send(&world.procs[third].channel, 0,
                                                  CONTROL_OFFER + 40, &nonsense, 1);
    world.procs[third].stopped = true;
    control_world_coordinate(&world);
    control_world_kill(&world, third);
    world.procs[0].hangs = world.procs[1].hangs = false;
    control_world_quiet(&world, 2 * SECOND);
    control_all_work(&world, 2);
    assert_true(world.procs[0].number <= 2);
    control_world_close(&world);
}
