/* A regroup in which ranks die, give up, are late, or lack the weights. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;

TEST(who_gives_up_in_a_regroup_ends_at_once)
{
    for (uint32_t listed = 0; listed < 2; listed++) {
        control_world_open(&world, 4, 1);
        control_world_quiet(&world, SECOND);
        world.procs[2].stopped = (listed == 0); /* it is awaited */
        control_world_kill(&world, 3);
        control_wait_for(&world, 1, listed ? GF_MEMBER_LISTED : GF_MEMBER_READY);
        gf_member_fault(world.procs[1].member, &control_stuck, true);
        control_world_quiet(&world, 50 * CONTROL_MS);
        assert_int_equal(control_world_state(&world, 1), GF_MEMBER_ENDED);
        assert_null(strstr(gf_member_error(world.procs[1].member)->text, "says nothing"));
        control_world_close(&world);
    }
}

/* The coordinator ends with its host, so the others hear whose end it is. */
TEST(the_host_that_gives_up_in_a_regroup_ends_the_job)
{
    for (uint32_t listed = 0; listed < 2; listed++) {
        control_world_open_hosted(&world, 4, 1, 0);
        control_world_quiet(&world, SECOND);
        world.procs[2].stopped = (listed == 0); /* it is awaited */
        control_world_kill(&world, 3);
        control_wait_for(&world, 0, listed ? GF_MEMBER_LISTED : GF_MEMBER_READY);
        gf_member_fault(world.procs[0].member, &control_stuck, true);
        control_world_quiet(&world, 50 * CONTROL_MS);
        assert_int_equal(control_world_state(&world, 1), GF_MEMBER_ENDED);
        assert_int_equal(gf_member_error(world.procs[1].member)->peer, 0);
        assert_non_null(strstr(gf_member_error(world.procs[1].member)->text, "gave up: it stands"));
        control_world_close(&world);
    }
}

TEST(who_fails_while_a_list_without_it_is_out_comes_in_again)
{
    struct control_ready ready = {.planned = true, .progress = {.steps = 0, .applied = 1}};
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    ready.progress.steps = world.procs[0].steps;
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    gf_member_ready(world.procs[0].member, &ready);
    gf_member_ready(world.procs[1].member, &ready);
    control_world_quiet(&world, 1900 * CONTROL_MS);
    world.procs[1].stopped = true;
    control_wait_for(&world, 0, GF_MEMBER_LISTED);
    gf_member_fault(world.procs[2].member, &control_stuck, false);
    control_world_quiet(&world, 100 * CONTROL_MS);
    struct gf_coordinator_status status;
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.state, GF_COORDINATOR_GATHER); /* the list stands */
    world.procs[1].stopped = false;
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_world_quiet(&world, 8 * SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}

/* Nobody who is READY holds them, and rank 1, which does, is stopped: it is awaited until
 * join_timeout. */
TEST(who_alone_holds_whole_weights_is_awaited)
{
    for (uint32_t ends = 0; ends < 2; ends++) {
        control_world_open(&world, 3, 1);
        control_world_quiet(&world, SECOND);
        world.procs[0].has_state = false;
        for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
        world.procs[1].stopped = true;
        control_world_kill(&world, 2);
        control_world_quiet(&world, 5 * SECOND);
        assert_int_equal(control_world_state(&world, 0), GF_MEMBER_READY);
        if (ends) control_world_kill(&world, 1);
        for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = world.procs[i].stopped = false;
        world.procs[1].now_ns = world.now_ns;
        control_world_quiet(&world, SECOND);
        if (!ends) control_all_work(&world, 2);
        if (ends) assert_int_equal(gf_member_error(world.procs[0].member)->code, GF_ERR_DATA);
        control_world_close(&world);
    }
}

TEST(a_host_that_never_gets_ready_ends_the_job)
{
    control_world_open_hosted(&world, 3, 1, 0);
    control_world_quiet(&world, SECOND);
    world.procs[0].stopped = true; /* its coordinator is polled, the program does not come */
    control_world_kill(&world, 1);
    control_world_quiet(&world, 9 * SECOND);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_ENDED);
    assert_int_equal(gf_member_error(world.procs[2].member)->peer, 0);
    control_world_close(&world);
}

TEST(a_host_that_is_late_on_a_list_is_awaited)
{
    control_world_open_hosted(&world, 3, 1, 0);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 2);
    control_gather(&world, 2);
    world.procs[0].stopped = true;
    control_world_quiet(&world, 4 * SECOND);
    control_wake(&world, 0);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 2);
    assert_int_equal(world.procs[0].number, 2);
    control_world_close(&world);
}

TEST(deaths_one_after_the_other_do_not_keep_all_waiting_for_one_that_is_stopped)
{
    const uint64_t endpoint_ns = 3 * SECOND; /* so long it is awaited: keepalive and 2 s */
    control_world_open(&world, 6, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 5);
    control_gather(&world, 5);
    world.procs[1].stopped = true;
    for (uint32_t id = 2; id < 5; id++) {
        control_world_quiet(&world, endpoint_ns * 6 / 10);
        control_world_kill(&world, id);
    }
    control_world_quiet(&world, SECOND);
    assert_null(world.broken);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_WORKS);
    assert_true(world.procs[0].number >= 2);
    control_world_close(&world);
}

/* .. nor for one that is to end what is under way: `planned`, where it began without a failure. */
TEST(deaths_one_after_the_other_give_a_rank_that_is_stopped_no_more_time)
{
    const uint64_t part_ns = 2 * SECOND; /* so long it is awaited: join_timeout / 4 */
    for (uint32_t planned = 0; planned < 2; planned++) {
        struct control_ready ready = {.planned = true, .progress = {.applied = 1}};
        control_world_open(&world, 6, 1);
        control_world_quiet(&world, SECOND);
        ready.progress.steps = world.procs[0].steps;
        world.procs[1].stopped = true;
        if (planned) gf_member_ready(world.procs[0].member, &ready);
        control_world_quiet(&world, planned * SECOND);
        for (uint32_t id = 2; id < 6; id++) {
            control_world_kill(&world, id);
            control_world_quiet(&world, part_ns * 3 / 10);
        }
        assert_null(world.broken);
        assert_int_equal(world.procs[0].number, 2);
        assert_int_equal(gf_member_generation(world.procs[0].member)->world, 1);
        control_world_close(&world);
    }
}

/* ---- who was left out for its silence ---- */

/* Rank 1 answers no question, and is left out; then it polls, and is READY. */
static void silent_then_ready(void)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    world.procs[1].stopped = true;
    gf_member_fault(world.procs[0].member, &control_stuck, false);
    while (!world.coordinator->rows[1].out) control_world_quiet(&world, 5 * CONTROL_MS);
    world.procs[0].stopped = world.procs[2].stopped = true;
    control_wake(&world, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_READY);
}

TEST(who_was_left_out_and_is_ready_goes_on_where_all_others_die)
{
    for (uint32_t late = 0; late < 2; late++) { /* also past join_timeout */
        silent_then_ready();
        world.procs[1].hangs = false;
        if (late) world.coordinator->terms.join_timeout_ns = CONTROL_MS;
        control_world_kill(&world, 0);
        control_world_kill(&world, 2);
        control_world_quiet(&world, 2 * SECOND);
        control_all_work(&world, 1);
        control_world_close(&world);
    }
}

/* .. where the last that hold whole weights say nothing while the list with them is out. */
TEST(who_was_left_out_and_is_ready_goes_on_where_all_others_are_late)
{
    silent_then_ready();
    for (uint32_t i = 0; i < 3; i += 2) control_wake(&world, i);
    world.procs[1].stopped = true; /* it was heard: it is connected, and READY */
    control_wait_for(&world, 0, GF_MEMBER_LISTED);
    world.procs[0].stopped = world.procs[2].stopped = true;
    control_wake(&world, 1);
    world.procs[1].hangs = false;
    control_world_quiet(&world, 5 * SECOND); /* an endpoint is awaited for 3 s */
    assert_int_equal(world.procs[1].number, 3);
    assert_int_equal(gf_member_generation(world.procs[1].member)->world, 1);
    control_world_close(&world);
}

/* Two that are late in turn, each on a list without the other, are asked again until
 * join_timeout, and not for ever. */
TEST(who_is_late_on_each_list_keeps_no_job)
{
    struct gf_coordinator_status status;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 2);
    control_gather(&world, 2);
    world.procs[0].stopped = true;
    control_world_quiet(&world, 50 * CONTROL_MS); /* rank 1 has its endpoint told */
    world.procs[1].stopped = true;
    control_world_quiet(&world, 14 * SECOND);
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.state, GF_COORDINATOR_OVER);
    assert_true(world.coordinator->used < 8); /* numbers of lists */
    control_world_close(&world);
}

TEST(who_alone_holds_whole_weights_and_was_silent_hands_them_over)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[0].has_state = world.procs[2].has_state = false;
    world.procs[1].stopped = true;
    gf_member_fault(world.procs[0].member, &control_stuck, false);
    control_world_quiet(&world, 1500 * CONTROL_MS);
    control_wake(&world, 1);
    control_world_quiet(&world, 14 * SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}

TEST(an_inquiry_that_nobody_answers_costs_nobody_the_job)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    gf_member_fault(world.procs[1].member, &control_stuck, false);
    control_world_coordinate(&world);
    control_all_stop(&world, 1500 * CONTROL_MS);
    control_world_quiet(&world, 14 * SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}
