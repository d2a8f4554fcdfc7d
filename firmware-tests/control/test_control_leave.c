/* Members that leave at a regroup, ranks that close, and how a job ends well. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"

static struct control_world world;

TEST(all_leave_in_good_order)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) gf_member_bye(world.procs[i].member);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_GONE);
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_OK);
    uint32_t late = control_world_start(&world, 0, false);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(gf_member_error(world.procs[late].member)->code, GF_ERR_STATE);
    assert_string_equal(gf_member_error(world.procs[late].member)->text, "the job has ended");
    control_world_close(&world);
}

/* A rank that ends without a word is not awaited, and those that have closed have ended well. */
TEST(the_job_has_ended_well_once_all_that_live_have_closed)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    for (uint32_t i = 0; i < 2; i++) gf_member_bye(world.procs[i].member);
    control_world_quiet(&world, 10 * CONTROL_MS);
    control_world_kill(&world, 2);
    control_world_quiet(&world, 50 * CONTROL_MS);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_GONE);
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_OK);
    control_world_close(&world);
}

/* ---- who leaves ---- */

TEST(a_member_leaves_at_a_regroup)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[1].leaves = true;
    control_wait_for(&world, 1, GF_MEMBER_GONE);
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 2);
    assert_int_equal(world.procs[0].number, 2);
    control_world_close(&world);
}

TEST(a_leaver_that_was_away_as_the_list_was_made_has_left)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[1].leaves = true;
    control_wait_for(&world, 1, GF_MEMBER_READY);
    control_away(&world, 1, 6 * SECOND);
    control_wait_for(&world, 1, GF_MEMBER_GONE);
    control_world_close(&world);
}

TEST(the_last_member_leaves_and_the_job_has_ended_well)
{
    control_world_open(&world, 1, 1);
    control_world_quiet(&world, SECOND);
    world.procs[0].leaves = true;
    control_wait_for(&world, 0, GF_MEMBER_GONE);
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_OK);
    control_world_close(&world);
}

TEST(a_leaver_that_alone_has_weights_hands_them_over_first)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND);
    world.procs[0].leaves = true;
    uint32_t second = control_world_start(&world, 1, true);
    control_wait_for(&world, 0, GF_MEMBER_GONE);
    control_world_kill(&world, 0);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 1);
    assert_true(world.procs[second].has_state);
    control_world_close(&world);
}

/* Rank 1 alone has whole weights, and said that it leaves as its connection broke. */
static void leaver_goes_away(void)
{
    struct control_ready ready = {.planned = true, .leaves = true, .progress = {.applied = 1}};
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    ready.progress.steps = world.procs[1].steps;
    gf_member_ready(world.procs[1].member, &ready);
    control_world_quiet(&world, 50 * CONTROL_MS);
    world.procs[1].leaves = true;
    world.procs[1].stopped = true;
    control_world_cut(&world, 1);
}

TEST(a_leaver_that_alone_has_weights_and_is_away_is_awaited)
{
    leaver_goes_away();
    struct control_ready ready = {
        .planned = true, .progress = {.steps = world.procs[0].steps, .applied = 1, .partial = 1}};
    for (uint32_t i = 0; i < 3; i += 2) {
        world.procs[i].has_state = false;
        gf_member_ready(world.procs[i].member, &ready);
    }
    control_world_quiet(&world, 3500 * CONTROL_MS);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_wake(&world, 1);
    control_wait_for(&world, 1, GF_MEMBER_GONE); /* a generation later */
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 2);
    control_world_close(&world);
}

TEST(a_leaver_that_is_away_as_all_others_die_has_left)
{
    leaver_goes_away();
    control_world_kill(&world, 0);
    control_world_kill(&world, 2);
    control_world_quiet(&world, 6 * SECOND);
    control_wake(&world, 1);
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_GONE);
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_OK);
    control_world_close(&world);
}

/* .. and waits for no other leaver. */
TEST(the_last_leavers_wait_for_none_of_them)
{
    leaver_goes_away();
    struct control_ready ready = {
        .planned = true, .leaves = true, .progress = {.steps = world.procs[0].steps, .applied = 1}};
    gf_member_ready(world.procs[0].member, &ready);
    control_world_kill(&world, 2);
    control_world_quiet(&world, 4 * SECOND);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_GONE);
    control_world_kill(&world, 0);
    control_wake(&world, 1);
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_GONE);
    control_world_close(&world);
}

TEST(a_leaver_that_was_silent_stays_where_it_alone_has_weights)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[0].has_state = world.procs[2].has_state = false;
    world.procs[1].stopped = world.procs[1].leaves = true;
    gf_member_fault(world.procs[0].member, &control_stuck, false);
    control_world_quiet(&world, 1500 * CONTROL_MS);
    control_wake(&world, 1);
    control_wait_for(&world, 1, GF_MEMBER_GONE);
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 2);
    control_world_close(&world);
}

/* Rank 1, which could take the weights, is stopped until join_timeout. */
TEST(a_leaver_that_nobody_takes_over_from_has_ended_well)
{
    struct control_ready ready = {.planned = true, .leaves = true, .progress = {.applied = 1}};
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    world.procs[1].stopped = true;
    ready.progress.steps = world.procs[0].steps;
    gf_member_ready(world.procs[0].member, &ready);
    control_world_quiet(&world, 12 * SECOND);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_GONE);
    control_world_close(&world);
}

/* ---- who closes ---- */

TEST(who_closes_while_others_go_on_is_named_at_once)
{
    struct gf_coordinator_status status;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    gf_member_bye(world.procs[1].member);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_GONE);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    control_all_work(&world, 2);
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.world, 2);
    assert_int_equal(status.error.peer, 1);
    control_world_close(&world);
}

TEST(the_host_of_the_coordinator_closes_last)
{
    control_world_open_hosted(&world, 3, 1, 0);
    control_world_quiet(&world, SECOND);
    gf_member_bye(world.procs[0].member);
    control_world_quiet(&world, 10 * SECOND);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_CLOSING);
    for (uint32_t i = 1; i < 3; i++)
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_WORKS);
    for (uint32_t i = 1; i < 3; i++) gf_member_bye(world.procs[i].member);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_GONE);
    control_world_close(&world);
}

/* .. as long as one of them says anything, also in generations that begin after it has closed. */
TEST(the_host_that_has_closed_waits_for_nobody_that_is_silent)
{
    for (uint32_t regroups = 0; regroups < 3; regroups++) {
        uint32_t rank;
        control_world_open_hosted(&world, 2 + regroups, 1, 0);
        control_world_quiet(&world, SECOND);
        uint32_t last = 1 + regroups;
        for (uint32_t i = 0; i <= last; i++) {
            world.procs[i].hangs = true;
            gf_member_report(world.procs[i].member)->step = world.procs[i].steps;
        }
        gf_member_bye(world.procs[0].member);
        control_world_quiet(&world, 20 * CONTROL_MS);
        for (uint32_t i = 1; i <= regroups; i++) {
            control_world_kill(&world, i);
            control_wait_for(&world, last, GF_MEMBER_FAILED);
            control_wait_for(&world, last, GF_MEMBER_WORKS);
            assert_int_equal(gf_member_generation(world.procs[last].member)->world, last - i);
        }
        control_world_quiet(&world, 1200 * CONTROL_MS);
        assert_int_equal(control_world_state(&world, 0), GF_MEMBER_CLOSING);
        assert_int_equal(control_world_state(&world, last), GF_MEMBER_WORKS);
        (void)gf_member_waits_for(world.procs[0].member, &rank);
        assert_int_equal(rank, gf_member_generation(world.procs[last].member)->rank);
        world.procs[last].stopped = true;
        control_world_quiet(&world, 3500 * CONTROL_MS);
        assert_int_equal(control_world_state(&world, 0), GF_MEMBER_CLOSING);
        control_world_quiet(&world, SECOND);
        assert_int_equal(control_world_state(&world, 0), GF_MEMBER_GONE);
        assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_OK);
        control_world_close(&world);
    }
}

TEST(who_has_closed_is_blamed_in_its_own_generation_only)
{
    struct gf_coordinator_status status;
    struct gf_error seen = control_stuck;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    gf_member_bye(world.procs[1].member);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 1);
    control_all_work(&world, 2);
    seen.step = world.procs[0].steps;
    gf_member_fault(world.procs[0].member, &seen, false);
    control_world_quiet(&world, 10 * SECOND);
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.generation, 3);
    assert_null(strstr(status.error.text, "closed"));
    control_world_close(&world);
}

TEST(who_waits_hears_that_the_job_has_ended_well)
{
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    world.procs[0].hangs = world.procs[1].hangs = true;
    uint32_t third = control_world_start(&world, 2, false);
    control_world_quiet(&world, 100 * CONTROL_MS);
    for (uint32_t i = 0; i < 2; i++) gf_member_bye(world.procs[i].member);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_OK);
    assert_int_equal(gf_member_error(world.procs[third].member)->code, GF_ERR_STATE);
    assert_string_equal(gf_member_error(world.procs[third].member)->text, "the job has ended");
    control_world_close(&world);
}

/* Rank 0 hosts the coordinator and closes, 1 dies, and 2 goes on alone. Returns a process that
 * waits to come in. */
static uint32_t go_on_without_host(void)
{
    control_world_open_growing(&world, 3, 1, 4, 0);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) {
        world.procs[i].hangs = true;
        gf_member_report(world.procs[i].member)->step = world.procs[i].steps;
    }
    gf_member_bye(world.procs[0].member);
    control_world_quiet(&world, 20 * CONTROL_MS);
    control_world_kill(&world, 1);
    control_wait_for(&world, 2, GF_MEMBER_FAILED);
    control_wait_for(&world, 2, GF_MEMBER_WORKS);
    uint32_t waits = control_world_start(&world, 3, false);
    control_world_quiet(&world, 100 * CONTROL_MS);
    return waits;
}

static void lacks_say(void *proc, struct control_edges *edges_out)
{
    (void)proc;
    *edges_out = (struct control_edges){
        .code = GF_ERR_SYSTEM, .peer = GF_RANK_NONE, .text = "it has no descriptors"};
}

/* .. and that it has not, where the last generation has ended after its host closed. */
TEST(who_waits_hears_that_nobody_is_left)
{
    for (uint32_t is_cut = 0; is_cut < 2; is_cut++) {
        uint32_t waits = go_on_without_host();
        if (is_cut) {
            world.procs[2].edges = lacks_say;
            gf_member_fault(world.procs[2].member, &control_stuck, false);
        } else
            control_world_kill(&world, 2);
        control_world_quiet(&world, 200 * CONTROL_MS);
        assert_int_equal(control_world_state(&world, 0), GF_MEMBER_GONE);
        assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_ERR_PEER);
        const struct gf_error *error = gf_member_error(world.procs[waits].member);
        assert_int_equal(error->code, GF_ERR_PEER);
        assert_non_null(strstr(error->text, "nobody of the generation under way is left"));
        control_world_close(&world);
    }
}

TEST(who_was_reset_is_awaited_though_the_host_has_closed)
{
    (void)go_on_without_host();
    world.procs[2].stopped = true;
    control_world_reset(&world, 2);
    control_world_quiet(&world, 2500 * CONTROL_MS);
    control_wake(&world, 2);
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_CLOSING);
    for (uint32_t i = 2; i < 4; i++)
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_WORKS);
    control_world_close(&world);
}

TEST(who_waits_and_closes_costs_nobody_a_deadline)
{
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    uint32_t third = control_world_start(&world, 2, false);
    control_wait_for(&world, third, GF_MEMBER_LISTED);
    gf_member_bye(world.procs[third].member);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, third), GF_MEMBER_GONE);
    control_world_kill(&world, third);
    control_all_work(&world, 2);
    control_world_close(&world);
}

TEST(who_closes_in_a_regroup_has_left)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 2);
    control_wait_for(&world, 1, GF_MEMBER_LISTED);
    gf_member_bye(world.procs[1].member);
    control_world_quiet(&world, 200 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_GONE);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_WORKS);
    assert_int_equal(gf_member_generation(world.procs[0].member)->world, 1);
    control_world_close(&world);
}

TEST(who_closes_in_the_first_join_ends_no_other_rank_later)
{
    control_world_open(&world, 3, 1);
    world.procs[2].stopped = true;
    control_world_quiet(&world, 100 * CONTROL_MS);
    gf_member_bye(world.procs[1].member);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_GONE);
    (void)control_world_start(&world, 1, false);
    control_world_kill(&world, 1);
    control_wake(&world, 2);
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}
