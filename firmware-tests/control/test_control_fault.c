/* Fault attribution: a step stands still, and the coordinator decides by evidence who has to go. */
#include "gradientflow.h"
#include "firmware-tests/support/control_suite.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;

static uint32_t broken[CONTROL_IDS_MAX]; /* of the process with this id: bits of ranks */

static void edges_say(void *of, struct control_edges *edges_out)
{
    const struct control_proc *proc = of;
    edges_out->count = 0;
    for (uint32_t rank = 0; rank < CONTROL_IDS_MAX; rank++)
        if ((broken[proc->id] & (1u << rank)) != 0)
            edges_out->peers[edges_out->count++] = (uint16_t)rank;
}

/* A step stands still on all of four ranks; what the coordinator makes of it. */
static const struct fault_row {
    const char *name;
    uint32_t edges[CONTROL_IDS_MAX]; /* that each says, as bits */
    uint32_t computes;               /* bits of ranks that wait for nobody, and are behind */
    uint32_t stopped;                /* bits of ranks that are not polled */
    uint32_t world;                  /* that goes on */
    gf_status code;
    uint32_t culprit;
} fault_rows[] = {
    {"both_ends_say_one_edge", {0, 4, 2, 0}, 0, 0, 3, GF_ERR_LINK, 2},
    {"one_end_says_an_edge", {0, 4, 0, 0}, 0, 0, 3, GF_ERR_LINK, 2},
    {"two_edges_of_one_rank", {2, 0, 0, 2}, 0, 0, 3, GF_ERR_LINK, 1},
    {"two_edges_without_a_common_rank", {2, 0, 8, 0}, 0, 0, 2, GF_ERR_LINK, 3},
    {"all_edges_leave_one_rank", {14, 13, 11, 7}, 0, 0, 1, GF_ERR_LINK, 3},
    {"an_edge_that_both_say_counts_once", {4, 0, 1, 3}, 0, 0, 2, GF_ERR_LINK, 3},
    {"an_edge_goes_before_a_rank_that_computes", {0, 4, 2, 0}, 1, 0, 3, GF_ERR_LINK, 2},
    {"a_rank_computes", {0, 0, 0, 0}, 4, 0, 3, GF_ERR_TIMEOUT, 2},
    {"a_rank_is_stopped", {0, 0, 0, 0}, 0, 2, 3, GF_ERR_TIMEOUT, 1},
    {"two_ranks_are_stopped", {0, 0, 0, 0}, 0, 6, 2, GF_ERR_TIMEOUT, 1},
    {"nobody_is_at_fault", {0, 0, 0, 0}, 0, 0, 4, GF_ERR_TIMEOUT, GF_RANK_NONE},
};

static void fault_row_run(const struct fault_row *row)
{
    struct gf_coordinator_status status;
    control_world_open_growing(&world, 4, 1, 6, GF_RANK_NONE);
    for (uint32_t id = 0; id < 4; id++) {
        broken[id] = row->edges[id];
        world.procs[id].edges = edges_say;
    }
    control_world_quiet(&world, 100 * CONTROL_MS);
    for (uint32_t id = 0; id < 4; id++) {
        world.procs[id].hangs = true;
        world.procs[id].computes = (row->computes & (1u << id)) != 0;
        world.procs[id].stopped = (row->stopped & (1u << id)) != 0;
    }
    do {
        control_world_quiet(&world, 10 * CONTROL_MS);
        gf_coordinator_status(world.coordinator, &status);
    } while ((status.error.code == GF_OK) && (world.now_ns < 20 * SECOND));
    if ((status.error.code != row->code) || (status.error.peer != row->culprit))
        fail_msg("%s: code %d, rank %u: %s", row->name, status.error.code, status.error.peer,
                 status.error.text);
    if ((row->culprit == GF_RANK_NONE) && (strstr(status.error.text, "0 for 1, 1 for 2") == NULL))
        fail_msg("%s: %s", row->name, status.error.text);
    for (uint32_t id = 0; id < 4; id++) world.procs[id].hangs = false;
    control_world_quiet(&world, 8 * SECOND);
    gf_coordinator_status(world.coordinator, &status);
    if ((status.state != GF_COORDINATOR_RUN) || (status.world != row->world))
        fail_msg("%s: state %d, %u ranks go on", row->name, status.state, status.world);
    assert_null(world.broken);
    control_world_close(&world);
}

TEST(a_culprit_is_found_by_evidence)
{
    for (uint32_t i = 0; i < LENGTH(fault_rows); i++) fault_row_run(&fault_rows[i]);
}

/* It was stopped before it began the operation that the others wait in, and answers as it goes on:
 * it has waited for nobody, but did not run either. */
TEST(who_was_stopped_and_goes_on_in_an_inquiry_is_not_cut)
{
    struct gf_coordinator_status status = {.world = 3};
    control_world_open(&world, 3, 1);
    for (uint32_t id = 0; id < 3; id++) world.procs[id].hangs = true;
    world.procs[2].computes = true;
    control_world_quiet(&world, 100 * CONTROL_MS);
    world.procs[2].stopped = true;
    control_world_quiet(&world, 1500 * CONTROL_MS);
    gf_member_fault(world.procs[0].member, &control_stuck, false);
    control_world_quiet(&world, 200 * CONTROL_MS);
    world.procs[2].stopped = world.procs[2].computes = false;
    world.procs[2].now_ns = world.now_ns;
    for (uint32_t n = 0; (n < 800) && (status.error.code == GF_OK); n++) {
        control_world_quiet(&world, 5 * CONTROL_MS);
        gf_coordinator_status(world.coordinator, &status);
    }
    assert_int_equal(status.error.peer, GF_RANK_NONE);
    for (uint32_t id = 0; id < 3; id++) world.procs[id].hangs = false;
    control_world_quiet(&world, 2 * SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}

/* Rank 0 of six loses three others, and each edge is known half a second after the one before. */
static void lost_say(void *of, struct control_edges *edges_out)
{
    const struct control_proc *proc = of;
    edges_out->count = 0;
    for (uint32_t other = 3; other < 6; other++) {
        bool is_known = (world.now_ns >= 3 * SECOND + (5 - other) * SECOND / 2);
        bool is_end = (proc->id == 0) || (proc->id == other);
        if (is_known && is_end && (proc->number == 1))
            edges_out->peers[edges_out->count++] = (uint16_t)((proc->id == 0) ? other : 0);
    }
}

TEST(a_host_that_loses_three_others_one_at_a_time_costs_nobody_else)
{
    static const struct gf_error lost = {
        .code = GF_ERR_LINK, .peer = 5, .tensor = GF_TENSOR_NONE, .text = "rank 0 lost rank 5"};
    struct gf_coordinator_status status;
    control_world_open(&world, 6, 1);
    for (uint32_t id = 0; id < 6; id++) world.procs[id].edges = lost_say;
    control_world_quiet(&world, 2 * SECOND);
    for (uint32_t id = 0; id < 6; id++) world.procs[id].hangs = true;
    gf_member_fault(world.procs[0].member, &lost, false);
    control_world_quiet(&world, 3 * SECOND / 2);
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.error.peer, 0);
    for (uint32_t id = 0; id < 6; id++) world.procs[id].hangs = false;
    control_world_quiet(&world, 4 * SECOND);
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.world, 5);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_ENDED);
    assert_null(world.broken);
    control_world_close(&world);
}

TEST(a_job_of_one_goes_on_after_a_failure)
{
    control_world_open(&world, 1, 1);
    control_world_quiet(&world, SECOND);
    gf_member_fault(world.procs[0].member, &control_stuck, false);
    control_world_quiet(&world, 4 * SECOND);
    control_all_work(&world, 1);
    assert_int_equal(world.procs[0].number, 2);
    control_world_close(&world);
}

/* ---- who is cut, and who is not ---- */

static void edges_set(uint32_t id, uint32_t ranks)
{
    memset(broken, 0, sizeof broken);
    broken[id] = ranks;
    for (uint32_t i = 0; i < world.proc_count; i++) world.procs[i].edges = edges_say;
}

TEST(who_is_cut_although_it_is_ready_hears_so)
{
    struct control_ready ready = {.planned = true};
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    edges_set(0, 4);
    gf_member_ready(world.procs[2].member, &ready);
    control_world_quiet(&world, 20 * CONTROL_MS);
    gf_member_fault(world.procs[0].member, &control_stuck, false);
    control_world_quiet(&world, 2 * SECOND);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_ENDED);
    assert_int_equal(gf_member_error(world.procs[2].member)->code, GF_ERR_LINK);
    control_world_close(&world);
}

TEST(who_is_cut_while_it_is_away_does_not_come_in_again)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    edges_set(1, 4);
    world.procs[0].stopped = true;
    gf_member_fault(world.procs[1].member, &control_stuck, false);
    control_world_quiet(&world, 20 * CONTROL_MS); /* it has answered */
    world.procs[2].stopped = true;
    control_world_cut(&world, 2);
    world.procs[0].stopped = false;
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_away(&world, 2, 6 * SECOND);
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_ENDED);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_WORKS);
    control_world_close(&world);
}

TEST(who_is_away_for_a_moment_in_an_inquiry_is_not_cut)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    gf_member_fault(world.procs[0].member, &control_stuck, false);
    control_away(&world, 2, 1200 * CONTROL_MS);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_world_quiet(&world, 6 * SECOND);
    control_all_work(&world, 3);
    control_world_close(&world);
}

/* .. nor does one that dials again and again, and never answers, keep all others waiting. */
TEST(who_comes_back_again_and_again_keeps_no_inquiry_open)
{
    struct gf_coordinator_status status;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    world.procs[2].stopped = true;
    gf_member_fault(world.procs[0].member, &control_stuck, false);
    for (uint32_t i = 0; i < 60; i++) { /* exchange.timeout, keepalive and 2 s are 5 s */
        control_world_quiet(&world, 100 * CONTROL_MS);
        world.coordinator->rows[2].back_ns = world.coordinator->now_ns; /* it has offered itself */
    }
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.error.peer, 2);
    control_world_close(&world);
}

/* Its host is gone: all that is known of its edges is that it is silent, so the other end stays. */
TEST(an_edge_to_a_rank_that_says_nothing_costs_not_the_other_end)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    edges_set(1, 1);
    world.procs[0].stopped = true;
    control_world_quiet(&world, 8 * SECOND);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_WORKS);
    assert_int_equal(gf_member_generation(world.procs[1].member)->world, 1);
    control_world_close(&world);
}

TEST(an_edge_to_a_rank_that_has_closed_is_nobodys_fault)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    edges_set(2, 1);
    gf_member_bye(world.procs[0].member);
    control_world_quiet(&world, 20 * CONTROL_MS);
    gf_member_fault(world.procs[2].member, &control_stuck, false);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_WORKS);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_WORKS);
    control_world_close(&world);
}

TEST(the_job_ends_where_the_host_of_the_coordinator_covers_the_broken_edges)
{
    control_world_open_hosted(&world, 4, 1, 0);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 4; i++) world.procs[i].hangs = true;
    edges_set(0, 2 + 4);
    gf_member_fault(world.procs[3].member, &control_stuck, false);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_ENDED);
        assert_int_equal(gf_member_error(world.procs[i].member)->code, GF_ERR_LINK);
        assert_int_equal(gf_member_error(world.procs[i].member)->peer, 0);
    }
    control_world_close(&world);
}

TEST(an_edge_of_the_host_of_the_coordinator_costs_the_other_end)
{
    control_world_open_hosted(&world, 3, 1, 0);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    edges_set(0, 2);
    gf_member_fault(world.procs[2].member, &control_stuck, false);
    control_world_quiet(&world, 2 * SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_ENDED);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_WORKS);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_WORKS);
    control_world_close(&world);
}

/* ---- what a link says of an edge ---- */

/* What the links of three ranks say as a step stands still, and what all hear. */
static const struct said_row {
    const char *name;
    uint32_t edges[3]; /* bits of ranks */
    gf_status codes[3];
    uint32_t peers[3];
    gf_status code;
    uint32_t culprit;
    const char *text;
} said_rows[] = {
    {"an_edge_has_its_text",
     {0, 4, 0},
     {0, GF_ERR_LINK, 0},
     {0, 2, 0},
     GF_ERR_LINK,
     2,
     "rank 1 cannot connect to rank 2 at 10.0.0.2:7 by eth1: No route to host (errno 113); "
     "rank 2 is to go"},
    {"who_lacks_something_is_it_itself",
     {4, 4, 1},
     {GF_ERR_LINK, GF_ERR_SYSTEM, 0},
     {2, 2, 0},
     GF_ERR_SYSTEM,
     1,
     "rank 1 cannot connect to rank 2 at 10.0.0.2:7"},
    {"who_lacks_something_needs_no_edge",
     {0, 0, 0},
     {0, 0, GF_ERR_SYSTEM},
     {0, 0, GF_RANK_NONE},
     GF_ERR_SYSTEM,
     2,
     "rank 2 cannot connect to rank"},
};

static void said_say(void *of, struct control_edges *edges_out)
{
    const struct control_proc *proc = of;
    const struct said_row *row = proc->said;
    edges_say(of, edges_out);
    edges_out->code = row->codes[proc->id];
    edges_out->peer = row->peers[proc->id];
    edges_out->foreign_code = 113;
    if (edges_out->code == GF_OK) return;
    (void)snprintf(edges_out->text, sizeof edges_out->text,
                   "rank %u cannot connect to rank %d at 10.0.0.2:7 by eth1: No route to host "
                   "(errno 113)",
                   proc->id, (int)edges_out->peer);
}

TEST(what_a_link_says_of_an_edge_all_hear)
{
    for (uint32_t i = 0; i < LENGTH(said_rows); i++) {
        const struct said_row *row = &said_rows[i];
        control_world_open(&world, 3, 1);
        control_world_quiet(&world, SECOND);
        for (uint32_t id = 0; id < 3; id++) {
            broken[id] = row->edges[id];
            world.procs[id].hangs = true;
            world.procs[id].said = row;
            world.procs[id].edges = said_say;
        }
        gf_member_fault(world.procs[0].member, &control_stuck, false);
        for (uint32_t n = 0; (n < 400) && !gf_member_is_found(world.procs[0].member); n++)
            control_world_quiet(&world, 5 * CONTROL_MS);
        const struct gf_error *error = gf_member_error(world.procs[0].member);
        if ((error->code != row->code) || (error->peer != row->culprit) ||
            (strncmp(error->text, row->text, strlen(row->text)) != 0) ||
            (error->foreign_code != 113))
            fail_msg("%s: code %d, rank %u: %s", row->name, error->code, error->peer, error->text);
        control_world_close(&world);
    }
}

TEST(a_link_that_tells_an_edge_once_has_told_it)
{
    const struct gf_error seen = {.code = GF_ERR_LINK,
                                  .peer = 2,
                                  .tensor = GF_TENSOR_NONE,
                                  .foreign_code = 104,
                                  .text = "connection reset"};
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t id = 0; id < 3; id++) world.procs[id].hangs = true;
    gf_member_fault(world.procs[1].member, &seen, false);
    control_world_quiet(&world, 2 * SECOND);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_ENDED);
    const struct gf_error *error = gf_member_error(world.procs[2].member);
    assert_int_equal(error->code, GF_ERR_LINK);
    assert_int_equal(error->foreign_code, 104);
    assert_string_equal(error->text, "rank 1: connection reset; rank 2 is to go");
    control_world_close(&world);
}
