/* Ranks that ask for patience with gf_heartbeat(): how long the others wait for them. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;

TEST(who_asks_for_patience_is_awaited)
{
    struct gf_coordinator_status status;
    control_world_open(&world, 4, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    for (uint32_t id = 0; id < 4; id++) world.procs[id].hangs = true;
    world.procs[2].computes = true;
    for (uint32_t i = 0; i < 25; i++) {
        gf_member_heartbeat(world.procs[2].member, world.procs[2].now_ns, 10 * SECOND);
        control_world_quiet(&world, 100 * CONTROL_MS);
    }
    gf_coordinator_status(world.coordinator, &status);
    assert_int_not_equal(status.error.peer, 2); /* nobody is known to be at fault */
    assert_int_equal(status.world, 4);
    control_world_close(&world);
}

/* It works in the step before a planned regroup, and asks for more and more time. */
TEST(who_asks_for_patience_is_awaited_in_a_regroup)
{
    struct control_ready ready = {.planned = true, .progress = {.applied = 1}};
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t id = 0; id < 3; id++) world.procs[id].hangs = true;
    ready.progress.steps = world.procs[0].steps;
    gf_member_ready(world.procs[0].member, &ready);
    gf_member_ready(world.procs[2].member, &ready);
    for (uint32_t i = 0; i < 40; i++) { /* join_timeout / 4 is 2 s */
        world.procs[1].stuck_ns = world.procs[1].now_ns;
        gf_member_heartbeat(world.procs[1].member, world.procs[1].now_ns, 10 * SECOND);
        control_world_quiet(&world, 100 * CONTROL_MS);
    }
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_READY);
    gf_member_ready(world.procs[1].member, &ready);
    for (uint32_t id = 0; id < 3; id++) world.procs[id].hangs = false;
    control_world_quiet(&world, SECOND);
    control_all_work(&world, 3);
    assert_int_equal(world.procs[1].number, 2);
    control_world_close(&world);
}

TEST(patience_that_was_asked_for_ends)
{
    struct gf_coordinator_status status;
    control_world_open(&world, 4, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    for (uint32_t id = 0; id < 4; id++) world.procs[id].hangs = true;
    world.procs[2].computes = true;
    gf_member_heartbeat(world.procs[2].member, world.procs[2].now_ns, SECOND);
    control_world_quiet(&world, 2800 * CONTROL_MS);
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.error.peer, 2);
    control_world_close(&world);
}

TEST(a_heartbeat_gives_the_others_patience)
{
    uint64_t from;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    for (uint32_t id = 0; id < 3; id++) world.procs[id].hangs = true;
    control_world_quiet(&world, 10 * CONTROL_MS);
    gf_member_heartbeat(world.procs[2].member, world.procs[2].now_ns, 500 * SECOND);
    control_world_quiet(&world, 120 * CONTROL_MS);
    for (uint32_t id = 0; id < 3; id++) {
        struct control_proc *proc = &world.procs[id];
        uint64_t left_ns = gf_member_patience(proc->member, proc->now_ns, &from);
        assert_in_range(left_ns, 1800 * CONTROL_MS, 2000 * CONTROL_MS); /* exchange.timeout */
        assert_int_equal(from, 42);
    }
    control_world_quiet(&world, 2 * SECOND);
    assert_int_equal(gf_member_patience(world.procs[0].member, world.procs[0].now_ns, &from), 0);
    control_world_close(&world);
}

TEST(a_heartbeat_is_told_at_once)
{
    uint64_t from;
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    for (uint32_t id = 0; id < 2; id++) world.procs[id].hangs = true;
    control_world_quiet(&world, 200 * CONTROL_MS);
    world.procs[1].stopped = true; /* it computes, and is polled no more */
    gf_member_heartbeat(world.procs[1].member, world.procs[1].now_ns + 150 * CONTROL_MS, SECOND);
    control_world_quiet(&world, 20 * CONTROL_MS);
    assert_true(gf_member_patience(world.procs[0].member, world.procs[0].now_ns, &from) > 0);
    control_world_close(&world);
}

/* Who is followed asks from operation 10 on, until 1000. The timeout is 800, of which a half is 400
 * and an eighth is 100. */
static const struct take_row {
    const char *name;
    uint64_t now_ns, patience_ns, from, until_ns, from_then;
    bool is_told;
} take_rows[] = {
    {"the_same_for_longer", 500, 600, 10, 1100, 10, true},
    {"less_than_an_eighth_more", 500, 599, 10, 1099, 10, false},
    {"no_longer", 500, 500, 10, 1000, 10, false},
    {"nothing", 2000, 0, 10, 1000, 10, false},
    {"the_timeout_at_most", 500, 5000, 10, 1300, 10, true},
    {"one_that_has_begun_less", 500, 600, 9, 1100, 9, true},
    {"one_that_has_begun_more", 700, 700, 11, 1000, 10, false},
    {"one_that_has_begun_more_after_half_of_the_timeout", 701, 700, 11, 1401, 11, true},
};

TEST(of_those_that_ask_the_one_that_has_begun_least_is_followed)
{
    for (uint32_t i = 0; i < LENGTH(take_rows); i++) {
        const struct take_row *row = &take_rows[i];
        struct control_patience patience = {.until_ns = 1000, .announced_ns = 1000, .from = 10};
        bool is_told = gf_patience_take(&patience, row->now_ns, 800, row->patience_ns, row->from);
        if ((is_told != row->is_told) || (patience.until_ns != row->until_ns) ||
            (patience.from != row->from_then))
            fail_msg("%s: until %u from %u", row->name, (unsigned)patience.until_ns,
                     (unsigned)patience.from);
        assert_int_equal(patience.announced_ns, is_told ? row->until_ns : 1000);
    }
}
