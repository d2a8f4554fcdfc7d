/* A coordinator that stays away, or that was stopped. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;

/* ---- it stays away ---- */

TEST(the_rank_that_hosts_the_coordinator_is_named_when_it_dies)
{
    control_world_open_hosted(&world, 3, 1, 0);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 0);
    control_world_coordinator_end(&world);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_ENDED);
        assert_int_equal(gf_member_error(world.procs[i].member)->peer, 0);
        assert_non_null(strstr(gf_member_error(world.procs[i].member)->text, "separate"));
    }
    control_world_close(&world);
}

/* They may not hear that it has ended, and dial the process in its place. */
TEST(the_rank_that_hosts_the_coordinator_is_named_when_it_is_begun_anew)
{
    control_world_open_hosted(&world, 3, 1, 0);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 1; i < 3; i++) control_world_cut(&world, i);
    control_world_kill(&world, 0);
    control_world_coordinator_end(&world);
    control_world_coordinator_begin(&world);
    (void)control_world_start(&world, 0, true);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 1; i < 3; i++) {
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_ENDED);
        assert_int_equal(gf_member_error(world.procs[i].member)->peer, 0);
        assert_non_null(strstr(gf_member_error(world.procs[i].member)->text, "begun anew"));
    }
    control_world_close(&world);
}

TEST(members_end_and_name_the_coordinator_that_stays_away)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    control_world_coordinator_end(&world);
    control_world_quiet(&world, 7 * SECOND);
    control_all_work(&world, 2);
    control_world_quiet(&world, 2 * SECOND);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_ENDED);
        assert_non_null(strstr(gf_member_error(world.procs[i].member)->text, "cannot be reached"));
        assert_int_equal(gf_member_error(world.procs[i].member)->code, GF_ERR_PEER);
    }
    control_world_close(&world);
}

/* .. for join_timeout, whatever they wait for: silence counts while a member is connected. */
TEST(who_waits_for_a_coordinator_that_is_away_is_patient)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[1].stopped = true;
    control_world_kill(&world, 2);
    control_wait_for(&world, 0, GF_MEMBER_READY);
    control_world_coordinator_end(&world);
    control_world_quiet(&world, 6 * SECOND);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_READY);
    control_world_quiet(&world, 3 * SECOND);
    assert_non_null(strstr(gf_member_error(world.procs[0].member)->text, "cannot be reached"));
    control_world_close(&world);
}

TEST(a_coordinator_that_says_nothing_while_ranks_join_is_named)
{
    control_world_open(&world, 2, 1);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 500 * CONTROL_MS);
    world.is_stopped = true;
    control_world_quiet(&world, 4500 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_ENDED);
    assert_non_null(strstr(gf_member_error(world.procs[0].member)->text, "says nothing"));
    world.is_stopped = false;
    control_world_close(&world);
}

TEST(a_coordinator_that_never_comes_is_a_deadline_of_the_join)
{
    control_world_open(&world, 2, 1);
    control_world_coordinator_end(&world);
    control_world_quiet(&world, 9 * SECOND);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(gf_member_error(world.procs[i].member)->code, GF_ERR_TIMEOUT);
        assert_non_null(strstr(gf_member_error(world.procs[i].member)->text, "cannot be reached"));
    }
    control_world_close(&world);
}

/* .. and one that came too late, and takes nobody, is not said to be away. */
TEST(a_coordinator_that_takes_connections_and_says_nothing_is_said_to)
{
    control_world_open(&world, 1, 1);
    control_world_coordinator_end(&world);
    control_world_quiet(&world, SECOND);
    control_world_coordinator_begin(&world);
    world.is_stopped = true;
    control_world_quiet(&world, 13 * SECOND);
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    if (strstr(error->text, " s: it takes connections, and says nothing") == NULL)
        fail_msg("%s", error->text);
    world.is_stopped = false;
    control_world_close(&world);
}

/* ---- it was stopped ---- */

TEST(a_coordinator_that_was_stopped_cuts_nobody_on_waking)
{
    for (uint32_t stands_still = 0; stands_still < 2; stands_still++) {
        control_world_open(&world, 3, 1);
        control_world_quiet(&world, SECOND);
        if (stands_still) {
            for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
            gf_member_fault(world.procs[0].member, &control_stuck, false);
            control_world_quiet(&world, 10 * CONTROL_MS);
        }
        uint64_t for_ns = (stands_still ? 3 : 30) * SECOND;
        for (uint64_t spent_ns = 0; spent_ns < for_ns; spent_ns += 5 * CONTROL_MS)
            for (uint32_t i = 0; i < 3; i++) control_world_turn(&world, i);
        world.now_ns += for_ns;
        for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
        control_world_quiet(&world, 5 * SECOND);
        control_all_work(&world, 3);
        assert_int_equal(world.procs[0].number, 1 + stands_still);
        control_world_close(&world);
    }
}

/* .. nor one that is not READY yet: the whole host was stopped, and rank 1 with it. */
TEST(a_coordinator_that_was_stopped_in_a_regroup_leaves_nobody_out_on_waking)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[1].stopped = true;
    control_world_kill(&world, 2);
    control_wait_for(&world, 0, GF_MEMBER_READY);
    for (uint32_t i = 0; i < 600; i++) control_world_turn(&world, 0);
    world.now_ns += 3 * SECOND;
    control_world_coordinate(&world);
    control_wake(&world, 1);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 2);
    assert_int_equal(world.procs[0].number, 2);
    control_world_close(&world);
}

/* Who waits for it ends after 4 s without a word. A host may leave the time out of the clock that
 * it gives. */
TEST(a_coordinator_that_was_stopped_says_at_once_that_it_is_there)
{
    for (uint32_t away_ms = 0; away_ms < 4000; away_ms += 3050) {
        control_world_open(&world, 2, 1);
        control_world_kill(&world, 1);
        control_world_quiet(&world, 1200 * CONTROL_MS);
        world.is_stopped = true;
        control_world_quiet(&world, 3300 * CONTROL_MS);
        gf_coordinator_away(world.coordinator, away_ms * CONTROL_MS);
        for (uint32_t i = 0; i < 200; i++) {
            control_world_turn(&world, 0);
            world.now_ns = world.procs[0].now_ns;
            (void)gf_coordinator_poll(world.coordinator, world.now_ns - away_ms * CONTROL_MS);
        }
        assert_int_equal(control_world_state(&world, 0), GF_MEMBER_JOINING);
        world.is_stopped = false;
        control_world_close(&world);
    }
}
