/* The coordinator and members of lib/control/, in one thread: what a job does when processes die,
 * are cut off, come again, and when the coordinator itself ends. */
#include "firmware-tests/support/suite.h"
#include "gradientflow.h"
#include "drivers/link.h"
#include "firmware-tests/support/control_world.h"
#include "lib/control/coordinator_state.h"

static struct control_world world;
#define SECOND (1000 * CONTROL_MS)

static void all_work(uint32_t count)
{
    uint32_t works = 0;
    uint32_t number = 0;
    assert_null(world.broken);
    for (uint32_t i = 0; i < world.proc_count; i++) {
        if (!world.procs[i].alive) continue;
        if (control_world_state(&world, i) != GF_MEMBER_WORKS) {
            print_message("process %u of id %u is in state %d: %s\n", i, world.procs[i].id,
                          control_world_state(&world, i),
                          gf_member_error(world.procs[i].member)->text);
            fail();
        }
        if (works++ == 0) number = world.procs[i].number;
        assert_int_equal(world.procs[i].number, number);
    }
    assert_int_equal(works, count);
}

static void wait_for(uint32_t proc, gf_member_state state)
{
    for (uint32_t i = 0; (i < 4000) && (control_world_state(&world, proc) != state); i++)
        control_world_quiet(&world, 5 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, proc), state);
}

TEST(a_job_begins_and_goes_on)
{
    control_world_open(&world, 4, 1);
    control_world_quiet(&world, SECOND);
    all_work(4);
    assert_int_equal(world.procs[0].number, 1);
    assert_true(world.procs[0].steps > 10);
    control_world_close(&world);
}

TEST(one_survivor_is_enough_whoever_dies)
{
    for (uint32_t last = 0; last < 4; last++) {
        control_world_open(&world, 4, 1);
        control_world_quiet(&world, SECOND);
        for (uint32_t id = 0; id < 4; id++)
            if (id != last) control_world_kill(&world, id);
        control_world_quiet(&world, 100 * CONTROL_MS);
        all_work(1);
        for (uint32_t id = 0; id < 4; id++)
            if (id != last) (void)control_world_start(&world, id, true);
        control_world_quiet(&world, SECOND);
        all_work(4);
        control_world_close(&world);
    }
}

TEST(a_connection_that_breaks_costs_nothing)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 20; i++) {
        control_world_cut(&world, i % 3);
        control_world_quiet(&world, 200 * CONTROL_MS);
    }
    all_work(3);
    assert_int_equal(world.procs[0].number, 1);
    control_world_close(&world);
}

/* A reset is of a process that has ended with words unread, or of one that lives. */
TEST(a_connection_that_is_reset_costs_nothing_where_its_process_lives)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 20; i++) {
        control_world_reset(&world, i % 3);
        control_world_quiet(&world, 3 * SECOND);
    }
    all_work(3);
    assert_int_equal(world.procs[0].number, 1);
    control_world_close(&world);
}

TEST(who_ends_with_words_unread_is_found_as_it_does_not_dial_again)
{
    struct gf_coordinator_status status = {.world = 3};
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true; /* nobody says FAULT */
    uint64_t since_ns = world.now_ns;
    control_world_kill_unread(&world, 2);
    while ((status.error.code == GF_OK) && (world.now_ns - since_ns < 4 * SECOND)) {
        control_world_quiet(&world, 10 * CONTROL_MS);
        gf_coordinator_status(world.coordinator, &status);
    }
    assert_int_equal(status.error.peer, 2);
    assert_non_null(strstr(status.error.text, "rank 2 died, or is cut off"));
    assert_true(world.now_ns - since_ns < 2 * SECOND + 100 * CONTROL_MS);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_world_quiet(&world, SECOND);
    all_work(2);
    control_world_close(&world);
}

/* .. and is told once, with how many others have ended at the same time. */
TEST(ranks_that_end_at_once_are_told_once)
{
    static char said[8192];
    for (uint32_t unread = 0; unread < 2; unread++) {
        said[0] = '\0';
        control_world_open(&world, 5, 1);
        control_world_quiet(&world, SECOND);
        world.said = said;
        world.said_bytes = sizeof said;
        world.procs[0].stopped = true; /* the regroup waits for it */
        for (uint32_t id = 2; id < 5; id++) {
            if (unread)
                control_world_kill_unread(&world, id);
            else
                control_world_kill(&world, id);
        }
        control_world_quiet(&world, unread ? 3 * SECOND : SECOND);
        const char *first = strstr(said, ", and 2 more ranks");
        if ((first == NULL) || (strstr(first + 1, ", and ") != NULL)) fail_msg("%s", said);
        world.said = NULL;
        control_world_close(&world);
    }
}

/* .. and if it lives after all, it comes in again. */
TEST(who_was_reset_and_dials_too_late_comes_in_again)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_reset(&world, 2);
    control_world_turn(&world, 2);
    world.procs[2].stopped = true;
    control_world_quiet(&world, 3 * SECOND);
    assert_null(world.broken);
    assert_int_equal(world.procs[0].number, 2);
    world.procs[2].stopped = false;
    world.procs[2].now_ns = world.now_ns;
    control_world_quiet(&world, 2 * SECOND);
    all_work(3);
    assert_int_equal(world.procs[2].number, 3);
    control_world_close(&world);
}

/* No step ends, and nobody says FAULT. */
static void all_compute(uint64_t for_ns)
{
    for (uint64_t spent_ns = 0; spent_ns < for_ns; spent_ns += 100 * CONTROL_MS) {
        for (uint32_t i = 0; i < world.proc_count; i++) {
            world.procs[i].hangs = true;
            world.procs[i].stuck_ns = world.procs[i].now_ns;
        }
        control_world_quiet(&world, 100 * CONTROL_MS);
    }
}

/* Its kernel gave the connection up while it computed, and it dials once it polls. */
TEST(who_computes_and_is_reset_behind_a_long_outage_is_awaited)
{
    struct gf_coordinator_status status;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.coordinator->terms.exchange_timeout_ns = 6 * SECOND;
    world.procs[2].stopped = true;
    all_compute(1500 * CONTROL_MS); /* longer than keepalive */
    control_world_reset(&world, 2);
    all_compute(3 * SECOND);
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.error.code, GF_OK);
    assert_int_equal(status.here, 2);
    world.procs[2].stopped = false;
    all_compute(SECOND);
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.error.code, GF_OK);
    assert_int_equal(status.here, 3);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_WORKS);
    control_world_close(&world);
}

/* Only a port that refuses says that rank 0 has ended, in whose process the coordinator ran. */
TEST(a_reset_of_the_coordinators_connection_is_dialled_again)
{
    control_world_open_hosted(&world, 3, 1, 0);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) control_world_reset(&world, i);
    control_world_quiet(&world, SECOND);
    all_work(3);
    control_world_close(&world);
}

TEST(a_coordinator_begun_anew_takes_over)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_coordinator_end(&world);
    uint64_t steps = world.procs[0].steps;
    control_world_quiet(&world, SECOND);
    assert_true(world.procs[0].steps > steps + 10); /* no step needs it */
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, SECOND);
    all_work(3);
    assert_int_equal(world.procs[0].number, 1);
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND);
    all_work(2);
    assert_int_equal(world.procs[0].number, 2);
    control_world_close(&world);
}

TEST(a_process_that_was_stopped_comes_in_again)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[1].stopped = true;
    control_world_quiet(&world, 8 * SECOND);
    assert_null(world.broken);
    assert_int_equal(world.procs[0].number, 2);
    world.procs[1].stopped = false;
    world.procs[1].now_ns = world.now_ns;
    control_world_quiet(&world, 2 * SECOND);
    all_work(3);
    assert_int_equal(world.procs[1].number, 3);
    control_world_close(&world);
}

/* ---- whose fault ---- */

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
    control_world_open(&world, 4, 1);
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
    all_work(3);
    assert_int_equal(world.procs[1].number, 2);
    control_world_close(&world);
}

/* ---- who comes in, and who does not ---- */

TEST(an_id_that_is_in_use_is_refused_until_its_process_ends)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    uint32_t second = control_world_start(&world, 1, false);
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, second), GF_MEMBER_JOINING);
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND);
    all_work(2);
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

TEST(ranks_that_were_given_different_things_all_hear_of_it)
{
    control_world_open(&world, 3, 1);
    control_world_kill(&world, 2);
    world.tensors_hash = 1;
    (void)control_world_start(&world, 2, false);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 4; i++) {
        if (i == 2) continue;
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_ENDED);
        assert_int_equal(gf_member_error(world.procs[i].member)->code, GF_ERR_MISMATCH);
        assert_int_equal(gf_member_error(world.procs[i].member)->peer, 2);
    }
    control_world_close(&world);
}

/* .. also who comes when the join has failed already: where rank 0 hosts the coordinator it would
 * find nobody. Who does not come is not awaited for long. */
TEST(a_rank_that_is_late_for_a_join_that_has_failed_hears_why)
{
    for (uint32_t comes = 0; comes < 2; comes++) {
        control_world_open_hosted(&world, 3, 1, 0);
        control_world_kill(&world, 1);
        world.procs[2].stopped = true;
        world.tensors_hash = 1;
        (void)control_world_start(&world, 1, false);
        control_world_quiet(&world, 3 * SECOND);
        assert_int_equal(gf_member_error(world.procs[0].member)->code, GF_ERR_MISMATCH);
        assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_AGAIN);
        world.procs[2].stopped = (comes == 0);
        world.procs[2].now_ns = world.now_ns;
        control_world_quiet(&world, comes ? SECOND / 10 : SECOND + SECOND / 10);
        gf_status code = gf_member_error(world.procs[2].member)->code;
        assert_int_equal(code, comes ? GF_ERR_MISMATCH : GF_OK);
        if (comes) assert_int_equal(gf_member_error(world.procs[2].member)->peer, 1);
        assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_ERR_MISMATCH);
        control_world_close(&world);
    }
}

static const struct offer_row {
    const char *name;
    struct control_offer first, second;
    const char *text; /* NULL: nothing differs */
} offer_rows[] = {
    {"nothing", {.id = 0}, {.id = 2}, NULL},
    {"version",
     {.values.version = 0x0009},
     {.id = 2, .values.version = 0x1000a},
     "library versions differ: 0.9 at rank 0, 1.10 at rank 2"},
    {"world",
     {.first_world = 3},
     {.id = 2, .first_world = 4},
     "world sizes differ: 3 at rank 0, 4 at rank 2"},
    {"a_key",
     {.id = 1, .values = {.config_hash = 1, .summary = "exchange.fuse_bytes=8KiB a=1"}},
     {.id = 2, .values = {.config_hash = 2, .summary = "exchange.fuse_bytes=4MiB a=1"}},
     "configurations differ: exchange.fuse_bytes is 8KiB at rank 1, 4MiB at rank 2"},
    {"a_key_that_one_does_not_name",
     {.values.config_hash = 1},
     {.id = 2, .values = {.config_hash = 2, .summary = "b=4"}},
     "configurations differ: b is nothing at rank 0, 4 at rank 2"},
    {"no_key_is_known",
     {.values.config_hash = 1},
     {.id = 2, .values.config_hash = 2},
     "configurations differ: hash 0000000000000001 at rank 0, 0000000000000002 at rank 2"},
    {"elastic",
     {.terms.elastic = true},
     {.id = 2},
     "configurations differ: job.elastic is true at rank 0, false at rank 2"},
    {"a_time",
     {.terms.keepalive_ns = SECOND},
     {.id = 2, .terms.keepalive_ns = 2 * SECOND},
     "configurations differ: rendezvous.keepalive is 1.000 s at rank 0, 2.000 s at rank 2"},
    {"tensor_count",
     {.values.tensor_count = 1},
     {.id = 2, .values.tensor_count = 2},
     "tensor tables differ: 1 tensors at rank 0, 2 at rank 2"},
    {"elem_count",
     {.values.elem_count = 1},
     {.id = 2, .values.elem_count = 2},
     "tensor tables differ: 1 elements at rank 0, 2 at rank 2"},
    {"tensors_hash",
     {.values.tensors_hash = 1},
     {.id = 2, .values.tensors_hash = 2},
     "tensor tables differ in names, sizes, flags, types or order, with 0 tensors of 0 elements in "
     "both: hash 0000000000000001 at rank 0, 0000000000000002 at rank 2"},
    {"a_fabric",
     {.values.network = GF_NETWORK_FABRIC},
     {.id = 2},
     "the nodes of this job are joined by a fabric, which rank 2 cannot use; its log says why"},
};

TEST(what_must_be_equal_is_named_where_it_is_not)
{
    for (uint32_t i = 0; i < LENGTH(offer_rows); i++) {
        const struct offer_row *row = &offer_rows[i];
        char text[256] = "";
        bool differs = gf_offer_difference(&row->first, &row->second, text, sizeof text);
        if ((differs != (row->text != NULL)) || (differs && (strcmp(text, row->text) != 0)))
            fail_msg("%s: %s", row->name, text);
    }
}

TEST(a_rank_that_dies_before_the_job_begins_is_named)
{
    for (uint32_t elastic = 0; elastic < 2; elastic++) {
        control_world_open_fixed(&world, 3, 1, elastic == 0);
        world.procs[2].stopped = true;
        control_world_quiet(&world, 50 * CONTROL_MS);
        world.procs[2].stopped = false;
        control_world_kill(&world, 1);
        control_world_quiet(&world, elastic ? 9 * SECOND : SECOND);
        const struct gf_error *error = gf_member_error(world.procs[0].member);
        assert_int_equal(error->peer, 1);
        assert_int_equal(error->code, elastic ? GF_ERR_TIMEOUT : GF_ERR_PEER);
        assert_non_null(strstr(error->text, "while ranks were joining"));
        control_world_close(&world);
    }
}

TEST(a_rank_that_never_comes_is_named)
{
    control_world_open(&world, 3, 1);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 9 * SECOND);
    for (uint32_t i = 0; i < 3; i += 2) {
        assert_int_equal(control_world_state(&world, i), GF_MEMBER_ENDED);
        assert_int_equal(gf_member_error(world.procs[i].member)->code, GF_ERR_TIMEOUT);
        assert_int_equal(gf_member_error(world.procs[i].member)->peer, 1);
    }
    control_world_close(&world);
}

/* All are on the first list; then a host is gone, and no kernel says so. */
TEST(a_rank_that_vanishes_behind_the_first_list_is_named)
{
    for (uint32_t told = 0; told < 2; told++) { /* its endpoint */
        control_world_open(&world, 3, 1);
        wait_for(2, GF_MEMBER_LISTED);
        world.procs[0].stopped = true; /* else the generation begins */
        if (told) control_world_quiet(&world, 10 * CONTROL_MS);
        control_world_cut(&world, 2);
        world.procs[2].stopped = true;
        control_world_quiet(&world, 10 * CONTROL_MS);
        world.procs[0].stopped = false;
        control_world_quiet(&world, 9 * SECOND);
        for (uint32_t i = 0; i < 2; i++) {
            const struct gf_error *error = gf_member_error(world.procs[i].member);
            assert_int_equal(error->code, GF_ERR_TIMEOUT);
            assert_int_equal(error->peer, 2);
            assert_non_null(strstr(error->text, "rank 2 of 3 did not join within 8.0 s"));
        }
        control_world_close(&world);
    }
}

/* The first list was given up, and one of it is away for a moment: it is awaited. */
TEST(a_first_list_is_of_all_ranks)
{
    control_world_open(&world, 3, 1);
    wait_for(2, GF_MEMBER_LISTED);
    control_world_cut(&world, 2);
    world.procs[2].stopped = true;
    control_world_kill(&world, 1);
    control_world_quiet(&world, 50 * CONTROL_MS);
    (void)control_world_start(&world, 1, true);
    control_world_quiet(&world, 4 * SECOND);
    assert_int_equal(world.procs[0].number, 0);
    world.procs[2].stopped = false;
    world.procs[2].now_ns = world.now_ns;
    control_world_quiet(&world, 2 * SECOND);
    all_work(3);
    assert_int_equal(world.procs[0].number, 2); /* a number for each list */
    control_world_close(&world);
}

/* .. and for as long as before, however late it was given up. */
TEST(a_first_list_that_is_given_up_late_is_awaited_once_more)
{
    control_world_open(&world, 3, 1);
    world.procs[2].stopped = true;
    control_world_quiet(&world, 7 * SECOND);
    world.procs[2].stopped = false;
    world.procs[2].now_ns = world.now_ns;
    wait_for(2, GF_MEMBER_LISTED);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 4 * SECOND);
    (void)control_world_start(&world, 1, true);
    control_world_quiet(&world, SECOND);
    all_work(3);
    control_world_close(&world);
}

/* .. but once: who ends on each list keeps nobody waiting for ever, and is named. */
TEST(a_rank_that_ends_on_each_first_list_is_named)
{
    control_world_open(&world, 3, 1);
    uint32_t last = 2;
    for (uint32_t i = 0; (i < 10) && (control_world_state(&world, 0) != GF_MEMBER_ENDED); i++) {
        if (i > 0) last = control_world_start(&world, 2, true);
        wait_for(last, GF_MEMBER_LISTED);
        control_world_kill(&world, last);
        control_world_quiet(&world, SECOND);
    }
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    assert_int_equal(error->code, GF_ERR_TIMEOUT);
    assert_int_equal(error->peer, 2);
    control_world_close(&world);
}

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

TEST(members_end_and_name_the_coordinator_that_stays_away)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    control_world_coordinator_end(&world);
    control_world_quiet(&world, 7 * SECOND);
    all_work(2);
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
    wait_for(0, GF_MEMBER_READY);
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

/* Of three ranks: what the list says that they need. */
static const struct network_row {
    const char *name;
    struct gf_offer offers[2]; /* of ranks 0 and 1, and of rank 2 */
    gf_network network;
} network_rows[] = {
    {"one_node", {{.node = 7}, {.node = 7}}, GF_NETWORK_NONE},
    {"two_nodes", {{.node = 7}, {.node = 8}}, GF_NETWORK_LINK},
    {"a_fabric",
     {{.node = 7, .fabric = GF_FABRIC_FOUND}, {.node = 8, .fabric = GF_FABRIC_FOUND}},
     GF_NETWORK_FABRIC},
    {"a_fabric_that_one_has_not",
     {{.node = 7, .fabric = GF_FABRIC_FOUND}, {.node = 8}},
     GF_NETWORK_LINK},
};

TEST(a_list_says_which_network_its_ranks_need)
{
    for (uint32_t i = 0; i < LENGTH(network_rows); i++) {
        const struct network_row *row = &network_rows[i];
        control_world_open(&world, 3, 1);
        for (uint32_t id = 0; id < 3; id++) {
            world.offer = row->offers[id == 2];
            control_world_kill(&world, id);
            (void)control_world_start(&world, id, false);
        }
        control_world_quiet(&world, SECOND);
        all_work(3);
        uint32_t network = gf_member_generation(world.procs[3].member)->network;
        if (network != (uint32_t)row->network) fail_msg("%s: %u", row->name, network);
        control_world_close(&world);
    }
}

/* Endpoints of several frames, through a channel with room for one or for many. */
TEST(endpoints_that_take_several_frames_arrive_whole)
{
    for (uint32_t room = 0; room < 2; room++) {
        control_world_open_large(&world, 3, 10001);
        world.room = room;
        control_world_quiet(&world, SECOND);
        all_work(3);
        control_world_kill(&world, 0);
        control_world_quiet(&world, SECOND);
        all_work(2);
        control_world_close(&world);
    }
}

/* ---- frames that are wrong ---- */

/* Shorter than any frame that would be taken. */
static void nonsense_send(struct gf_channel *channel, uint32_t connection, uint32_t number)
{
    unsigned char payload[36];
    for (uint32_t i = 0; i < sizeof payload; i++)
        payload[i] = (unsigned char)control_world_draw(&world, 256);
    memcpy(payload, &number, sizeof number);
    (void)channel->driver->send(channel, connection, 1 + control_world_draw(&world, 20), payload,
                                control_world_draw(&world, sizeof payload));
}

TEST(malformed_frames_cost_their_sender_a_connection)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 2000; i++) {
        nonsense_send(&world.procs[1].channel, 0, i % 3);
        control_world_quiet(&world, 10 * CONTROL_MS);
        if (control_world_state(&world, 1) != GF_MEMBER_WORKS) break; /* it said BYE */
    }
    assert_null(world.broken);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_WORKS);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_WORKS);
    control_world_close(&world);
}

TEST(a_malformed_frame_of_the_coordinator_ends_one_member)
{
    for (uint32_t i = 0; i < 200; i++) {
        control_world_open(&world, 3, 1 + i);
        control_world_quiet(&world, 100 * CONTROL_MS);
        for (uint32_t n = 0; n < 20; n++) nonsense_send(&world.channel, 1, 1);
        control_world_quiet(&world, 100 * CONTROL_MS);
        assert_null(world.broken);
        control_world_close(&world);
    }
}

/* Pieces of GO for a list of three, endpoints of 16 bytes at most; the second one where `first` is
 * right. */
static const struct piece_row {
    const char *name;
    struct control_piece first, second;
    bool is_good;
    uint32_t lead;
} piece_rows[] = {
    {"whole", {0, 8, 0, 8}, {1, 8, 0, 8}, true, 0},
    {"in_two", {0, 8, 0, 3}, {0, 8, 3, 5}, true, 0},
    {"of_none", {0, 0, 0, 0}, {1, 16, 0, 16}, true, 0},
    {"of_another_rank", {1, 8, 0, 8}, {0}, false, 0},
    {"of_a_rank_that_is_not_next", {0, 8, 0, 8}, {2, 8, 0, 8}, false, 0},
    {"larger_than_any", {0, 17, 0, 8}, {0}, false, 0},
    {"not_from_its_begin", {0, 8, 1, 7}, {0}, false, 0},
    {"with_a_gap", {0, 8, 0, 3}, {0, 8, 4, 4}, false, 0},
    {"behind_its_end", {0, 8, 0, 9}, {0}, false, 0},
    {"second_behind_its_end", {0, 8, 0, 3}, {0, 8, 3, 6}, false, 0},
    {"that_grows_meanwhile", {0, 8, 0, 3}, {0, 16, 3, 13}, false, 0},
    {"that_shrinks_meanwhile", {0, 8, 0, 3}, {0, 2, 3, 0}, false, 0},
    {"led_by_the_last", {0, 8, 0, 8}, {1, 8, 0, 8}, true, 2},
    {"led_by_a_rank_beyond_it", {0, 8, 0, 8}, {1, 8, 0, 8}, false, 3},
};

static void go_send(const struct piece_row *row, uint32_t number)
{
    static const unsigned char bytes[16];
    unsigned char payload[128];
    struct gf_put put = {payload, sizeof payload};
    struct control_go go = {.number = number, .lead = row->lead};
    struct control_piece pieces[2] = {row->first, row->second};
    gf_control_go_walk(&(struct gf_walk){.put = &put}, &go);
    for (uint32_t i = 0; i < 2; i++) {
        gf_control_piece_walk(&(struct gf_walk){.put = &put}, &pieces[i]);
        gf_put_bytes(&put, bytes, pieces[i].bytes);
    }
    uint32_t connection = 0;
    while (world.conns[connection].proc != 1) connection++;
    (void)world.channel.driver->send(&world.channel, connection, CONTROL_GO, payload,
                                     (uint32_t)(sizeof payload - put.left));
}

TEST(a_piece_of_an_endpoint_that_lies_beyond_it_is_refused)
{
    for (uint32_t i = 0; i < LENGTH(piece_rows); i++) {
        control_world_open(&world, 3, 1);
        wait_for(1, GF_MEMBER_LISTED);
        go_send(&piece_rows[i], 1);
        gf_member_state state = control_world_state(&world, 1);
        const char *text = gf_member_error(world.procs[1].member)->text;
        bool is_refused = (state == GF_MEMBER_ENDED) && (strstr(text, "malformed (kind") != NULL);
        if (is_refused == piece_rows[i].is_good)
            fail_msg("%s: state %d: %s", piece_rows[i].name, state, text);
        control_world_close(&world);
    }
}

TEST(a_list_of_a_network_that_there_is_not_is_refused)
{
    for (uint32_t network = 0; network < GF_NETWORKS + 1; network++) {
        unsigned char payload[128];
        struct gf_put put = {payload, sizeof payload};
        struct control_list list = {.number = 1, .rank = 1, .world = 3, .network = network};
        uint32_t connection = 0;
        control_world_open(&world, 3, 1);
        wait_for(1, GF_MEMBER_LISTED);
        while (world.conns[connection].proc != 1) connection++;
        gf_control_list_walk(&(struct gf_walk){.put = &put}, &list);
        (void)world.channel.driver->send(&world.channel, connection, CONTROL_LIST, payload,
                                         (uint32_t)(sizeof payload - put.left));
        control_world_turn(&world, 1);
        bool is_refused = (control_world_state(&world, 1) == GF_MEMBER_ENDED);
        assert_int_equal(is_refused, network == GF_NETWORKS);
        control_world_close(&world);
    }
}

/* Where a process says that it stands, and what it says it was given. */
static const struct standing_row {
    const char *name;
    struct control_standing standing;
    bool is_good;
    uint64_t time_ns;  /* its keepalive */
    uint32_t is_short; /* a piece is missing */
} standing_rows[] = {
    {"of_a_generation", {.generation = 1, .rank = 1, .world = 3, .listed = 1}, true, 0, 0},
    {"of_the_last_list", {.listed = CONTROL_NUMBER_MAX}, true, 0, 0},
    {"of_the_last_generation", {.generation = CONTROL_NUMBER_MAX, .world = 3}, true, 0, 0},
    {"of_a_list_beyond_it", {.listed = CONTROL_NUMBER_MAX + 1}, false, 0, 0},
    {"of_a_generation_beyond_it", {.generation = CONTROL_NUMBER_MAX + 1, .world = 3}, false, 0, 0},
    {"of_a_world_that_is_too_large", {.generation = 1, .rank = 1, .world = 4}, false, 0, 0},
    {"of_a_rank_that_its_world_has_not", {.generation = 1, .rank = 3, .world = 3}, false, 0, 0},
    {"of_a_world_of_none", {.generation = 1}, false, 0, 0},
    {"with_a_time_that_is_long", {.generation = 0}, true, CONTROL_TIME_NS_MAX, 0},
    {"with_a_time_beyond_any_clock", {.generation = 0}, false, UINT64_MAX, 0},
    {"cut_short", {.generation = 0}, false, 0, 9},
};

/* .. and hears so: one that was only dropped would try again until its join's deadline. */
TEST(a_process_that_stands_where_nobody_can_is_refused)
{
    for (uint32_t i = 0; i < LENGTH(standing_rows); i++) {
        struct gf_channel_event event;
        unsigned char payload[1024];
        struct gf_put put = {payload, sizeof payload};
        control_world_open(&world, 3, 1);
        for (uint32_t id = 0; id < 3; id++) control_world_kill(&world, id);
        struct control_offer offer = {
            .id = 1,
            .id_count = 3,
            .first_world = 3,
            .process = 77,
            .standing = standing_rows[i].standing,
            .terms = {.join_timeout_ns = 8 * SECOND, .keepalive_ns = standing_rows[i].time_ns}};
        gf_control_offer_walk(&(struct gf_walk){.put = &put}, &offer);
        struct gf_channel *channel = control_world_stranger(&world);
        channel->driver->dial(channel, 0);
        assert_true(channel->driver->poll(channel, 0, &event));
        uint32_t bytes = (uint32_t)(sizeof payload - put.left) - standing_rows[i].is_short;
        assert_int_equal(channel->driver->send(channel, 0, CONTROL_OFFER, payload, bytes), GF_OK);
        control_world_coordinate(&world);
        assert_true(channel->driver->poll(channel, 0, &event));
        bool is_refused = (event.kind == GF_CHANNEL_FRAME) && (event.frame_kind == CONTROL_REFUSED);
        if (is_refused == standing_rows[i].is_good)
            fail_msg("%s: event %d, frame %u", standing_rows[i].name, event.kind, event.frame_kind);
        control_world_close(&world);
    }
}

static const struct gf_error stands = {
    .code = GF_ERR_TIMEOUT, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE, .text = "it stands"};

/* ---- who leaves ---- */

/* It is not polled for a while, and its connection has broken meanwhile. */
static void away(uint32_t proc, uint64_t for_ns)
{
    world.procs[proc].stopped = true;
    control_world_cut(&world, proc);
    control_world_quiet(&world, for_ns);
    world.procs[proc].stopped = false;
    world.procs[proc].now_ns = world.now_ns;
}

TEST(a_member_leaves_at_a_regroup)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[1].leaves = true;
    wait_for(1, GF_MEMBER_GONE);
    control_world_kill(&world, 1);
    control_world_quiet(&world, SECOND);
    all_work(2);
    assert_int_equal(world.procs[0].number, 2);
    control_world_close(&world);
}

TEST(a_leaver_that_was_away_as_the_list_was_made_has_left)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    world.procs[1].leaves = true;
    wait_for(1, GF_MEMBER_READY);
    away(1, 6 * SECOND);
    wait_for(1, GF_MEMBER_GONE);
    control_world_close(&world);
}

TEST(the_last_member_leaves_and_the_job_has_ended_well)
{
    control_world_open(&world, 1, 1);
    control_world_quiet(&world, SECOND);
    world.procs[0].leaves = true;
    wait_for(0, GF_MEMBER_GONE);
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
    wait_for(0, GF_MEMBER_GONE);
    control_world_kill(&world, 0);
    control_world_quiet(&world, SECOND);
    all_work(1);
    assert_true(world.procs[second].has_state);
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
    all_work(2);
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

TEST(who_has_closed_is_blamed_in_its_own_generation_only)
{
    struct gf_coordinator_status status;
    struct gf_error seen = stands;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    gf_member_bye(world.procs[1].member);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 1);
    all_work(2);
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

TEST(who_waits_and_closes_costs_nobody_a_deadline)
{
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    uint32_t third = control_world_start(&world, 2, false);
    wait_for(third, GF_MEMBER_LISTED);
    gf_member_bye(world.procs[third].member);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, third), GF_MEMBER_GONE);
    control_world_kill(&world, third);
    all_work(2);
    control_world_close(&world);
}

TEST(who_closes_in_a_regroup_has_left)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 2);
    wait_for(1, GF_MEMBER_LISTED);
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
    world.procs[2].stopped = false;
    world.procs[2].now_ns = world.now_ns;
    control_world_quiet(&world, SECOND);
    all_work(3);
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
    gf_member_fault(world.procs[0].member, &stands, false);
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
    gf_member_fault(world.procs[1].member, &stands, false);
    control_world_quiet(&world, 20 * CONTROL_MS); /* it has answered */
    world.procs[2].stopped = true;
    control_world_cut(&world, 2);
    world.procs[0].stopped = false;
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    away(2, 6 * SECOND);
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
    gf_member_fault(world.procs[0].member, &stands, false);
    away(2, 1200 * CONTROL_MS);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_world_quiet(&world, 6 * SECOND);
    all_work(3);
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
    gf_member_fault(world.procs[0].member, &stands, false);
    for (uint32_t i = 0; i < 60; i++) { /* exchange.timeout, keepalive and 2 s are 5 s */
        control_world_quiet(&world, 100 * CONTROL_MS);
        world.coordinator->rows[2].back_ns = world.coordinator->now_ns; /* it has offered itself */
    }
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.error.peer, 2);
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
    gf_member_fault(world.procs[2].member, &stands, false);
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
    gf_member_fault(world.procs[3].member, &stands, false);
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
    gf_member_fault(world.procs[2].member, &stands, false);
    control_world_quiet(&world, 2 * SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_world_quiet(&world, SECOND);
    assert_int_equal(control_world_state(&world, 1), GF_MEMBER_ENDED);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_WORKS);
    assert_int_equal(control_world_state(&world, 2), GF_MEMBER_WORKS);
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

/* ---- calls ---- */

static void calls_post(uint32_t id, uint32_t count, uint32_t other, uint32_t root)
{
    for (uint32_t number = 1; number <= count; number++)
        gf_member_call(world.procs[id].member,
                       (number == other) ? GF_OPERATION_BROADCAST : GF_OPERATION_ALLREDUCE,
                       (number == other) ? GF_TYPE_F16 : GF_TYPE_F32,
                       (number == other) ? root : GF_REDUCTION_SUM, 64);
}

/* Requests of three ranks; number `other` of rank 1 is another one. */
static const struct call_row {
    const char *name;
    uint32_t counts[3];
    uint32_t other;
    bool at_inquiry, at_bye;
    const char *text; /* NULL: nothing differs */
} call_rows[] = {
    {"the_last_one",
     {5, 5, 5},
     5,
     false,
     false,
     "calls differ: request 5 is allreduce of 64 fp32 at rank 0, broadcast of 64 fp16 from "
     "rank 2 at rank 1"},
    {"whoever_is_ahead", {4, 6, 5}, 4, false, false, "calls differ: request 4 is allreduce"},
    {"one_that_is_remembered_no_more",
     {40, 40, 40},
     3,
     false,
     false,
     "calls differ between ranks 0 and 1: one of the requests 1 to 32 (the next one is allreduce"},
    {"ranks_that_are_far_apart",
     {6200, 7100, 5000},
     3000,
     false,
     false,
     "calls differ between ranks 0 and 1: one of the requests "},
    {"at_an_inquiry", {5, 5, 5}, 2, true, false, "calls differ: request 2 is"},
    {"as_a_rank_closes", {5, 5, 5}, 5, false, true, "calls differ: request 5 is"},
    {"nothing_differs", {9000, 5, 70}, 0, true, false, NULL},
};

TEST(calls_that_differ_are_found)
{
    for (uint32_t i = 0; i < LENGTH(call_rows); i++) {
        const struct call_row *row = &call_rows[i];
        struct gf_coordinator_status status;
        control_world_open(&world, 3, 1);
        control_world_quiet(&world, SECOND);
        for (uint32_t id = 0; id < 3; id++) {
            world.procs[id].hangs = true;
            calls_post(id, row->counts[id], (id == 1) ? row->other : 0, 2);
            if (row->at_bye) gf_member_bye(world.procs[id].member);
        }
        if (row->at_inquiry) gf_member_fault(world.procs[0].member, &stands, false);
        control_world_quiet(&world, row->at_bye ? 100 * CONTROL_MS : SECOND);
        gf_coordinator_status(world.coordinator, &status);
        if (row->text == NULL) {
            assert_int_not_equal(status.error.code, GF_ERR_MISMATCH);
        } else if ((status.error.code != GF_ERR_MISMATCH) || (status.error.peer != 1) ||
                   (strstr(status.error.text, row->text) == NULL)) {
            fail_msg("%s: code %d, rank %u: %s", row->name, status.error.code, status.error.peer,
                     status.error.text);
        }
        for (uint32_t id = 0; (row->text != NULL) && !row->at_bye && (id < 3); id++)
            assert_int_equal(gf_member_error(world.procs[id].member)->code, GF_ERR_MISMATCH);
        control_world_close(&world);
    }
}

/* ---- patience ---- */

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

TEST(heartbeats_of_a_rank_that_stands_still_count_no_more)
{
    uint64_t from;
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    for (uint32_t id = 0; id < 2; id++) world.procs[id].hangs = true;
    for (uint32_t i = 0; i < 32; i++) {
        for (uint32_t id = 0; id < 2; id++) world.procs[id].stuck_ns = world.procs[id].now_ns;
        control_world_quiet(&world, 100 * CONTROL_MS);
    }
    gf_member_heartbeat(world.procs[1].member, world.procs[1].now_ns, SECOND);
    control_world_quiet(&world, 120 * CONTROL_MS);
    assert_int_equal(gf_member_patience(world.procs[0].member, world.procs[0].now_ns, &from), 0);
    gf_member_report(world.procs[1].member)->sequence++;
    gf_member_heartbeat(world.procs[1].member, world.procs[1].now_ns, SECOND);
    control_world_quiet(&world, 120 * CONTROL_MS);
    assert_true(gf_member_patience(world.procs[0].member, world.procs[0].now_ns, &from) > 0);
    control_world_close(&world);
}

/* ---- what texts say ---- */

static void report_set(uint32_t id, uint64_t step, gf_operation operation, uint32_t tensor)
{
    struct control_report *report = gf_member_report(world.procs[id].member);
    world.procs[id].hangs = true;
    report->step = step;
    report->operation = operation;
    report->tensor = tensor;
    report->buffer = 3;
}

TEST(a_death_says_where_that_rank_was)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t id = 0; id < 3; id++) report_set(id, 500, GF_OPERATION_ALLREDUCE, 12);
    control_world_quiet(&world, 400 * CONTROL_MS);
    control_world_kill(&world, 1);
    for (uint32_t id = 0; id < 3; id += 2) {
        for (uint32_t i = 0; (i < 20) && !gf_member_is_found(world.procs[id].member); i++)
            control_world_quiet(&world, 5 * CONTROL_MS);
    }
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    assert_int_equal(error->peer, 1);
    assert_int_equal(error->step, 500);
    assert_int_equal(error->operation, GF_OPERATION_ALLREDUCE);
    assert_int_equal(error->tensor, 12);
    assert_non_null(strstr(error->text, "rank 1 died: ended in step 500, operation allreduce, "
                                        "buffer 3, tensor 12 \"conv1.weight\" (as of 0."));
    control_world_close(&world);
}

/* .. or where another was, which it had voted for. */
TEST(a_death_says_where_the_furthest_rank_was)
{
    control_world_open(&world, 4, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t id = 0; id < 4; id++) world.procs[id].hangs = true;
    report_set(0, 499, GF_OPERATION_ALLREDUCE, 12);
    report_set(3, 500, GF_OPERATION_VOTE, GF_TENSOR_NONE);
    control_world_quiet(&world, 400 * CONTROL_MS);
    control_world_kill(&world, 1);
    for (uint32_t i = 0; (i < 20) && !gf_member_is_found(world.procs[0].member); i++)
        control_world_quiet(&world, 5 * CONTROL_MS);
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    assert_int_equal(error->step, 500);
    assert_int_equal(error->operation, GF_OPERATION_VOTE);
    if (strstr(error->text, "rank 1 died: ended; rank 3 was in step 500, operation vote") == NULL)
        fail_msg("%s", error->text);
    control_world_close(&world);
}

TEST(a_death_in_a_step_that_was_not_told_yet_is_in_that_of_the_others)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    report_set(0, 500, GF_OPERATION_VOTE, GF_TENSOR_NONE);
    world.procs[1].hangs = true;
    control_world_kill(&world, 1);
    for (uint32_t i = 0; (i < 20) && !gf_member_is_found(world.procs[0].member); i++)
        control_world_quiet(&world, 5 * CONTROL_MS);
    assert_int_equal(gf_member_error(world.procs[0].member)->step, 500);
    assert_int_equal(gf_member_error(world.procs[0].member)->operation, GF_OPERATION_VOTE);
    control_world_close(&world);
}

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
        gf_member_fault(world.procs[0].member, &stands, false);
        for (uint32_t n = 0; (n < 400) && !gf_member_is_found(world.procs[0].member); n++)
            control_world_quiet(&world, 5 * CONTROL_MS);
        const struct gf_error *error = gf_member_error(world.procs[0].member);
        if ((error->code != row->code) || (error->peer != row->culprit) ||
            (strstr(error->text, row->text) == NULL) || (error->foreign_code != 113))
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

TEST(who_has_closed_hears_for_whom_it_waits)
{
    uint32_t rank;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    report_set(1, 500, GF_OPERATION_BARRIER, GF_TENSOR_NONE);
    report_set(2, 500, GF_OPERATION_BARRIER, GF_TENSOR_NONE);
    report_set(0, 500, GF_OPERATION_NONE, GF_TENSOR_NONE);
    assert_string_equal(gf_member_waits_for(world.procs[0].member, &rank), "");
    control_world_quiet(&world, 400 * CONTROL_MS);
    gf_member_bye(world.procs[0].member);
    control_world_quiet(&world, 1200 * CONTROL_MS);
    assert_string_equal(gf_member_waits_for(world.procs[0].member, &rank),
                        "step 500, operation barrier");
    assert_int_equal(rank, 1);
    control_world_close(&world);
}

/* ---- what the coordinator says, a line an event ---- */

static void expect_said(const char *text)
{
    if (strstr(world.said, text) == NULL) fail_msg("\"%s\" was not said:\n%s", text, world.said);
    world.said[0] = '\0';
}

TEST(a_line_says_what_happens)
{
    static char said[8192];
    said[0] = '\0';
    control_world_open_growing(&world, 3, 1, 4, GF_RANK_NONE);
    world.said = said;
    world.said_bytes = sizeof said;
    control_world_quiet(&world, SECOND);
    expect_said("rank 0 is here\nrank 1 is here\nrank 2 is here\n"
                "generation 1 has begun with 3 ranks\n");
    control_world_cut(&world, 1);
    control_world_quiet(&world, 200 * CONTROL_MS);
    expect_said("the connection of rank 1 broke: ended\nrank 1 is connected again\n");
    (void)control_world_start(&world, 3, false);
    control_world_quiet(&world, 500 * CONTROL_MS);
    expect_said("rank 3 waits to come in\na regroup begins: ranks wait to come in, or leave\n");
    control_world_kill(&world, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    expect_said("rank 1 has ended: ended\n");
    world.procs[0].leaves = true;
    control_world_quiet(&world, 200 * CONTROL_MS);
    expect_said("rank 0 leaves\n");
    control_world_kill(&world, 0);
    control_world_quiet(&world, 100 * CONTROL_MS);
    if (strstr(said, "rank 0 has ended") != NULL) fail(); /* it has left */
    for (uint32_t i = 2; i < 4; i++) {
        world.procs[i].hangs = true;
        gf_member_bye(world.procs[i].member);
    }
    control_world_quiet(&world, 100 * CONTROL_MS);
    expect_said("rank 2 has closed after ");
    control_world_close(&world);
}

/* Another job.world, as another key or version: who waits for all ranks hears it at once. */
TEST(a_process_that_is_refused_is_told_to_those_that_wait)
{
    static const char why[] = "rank 2 has job.world 4, the coordinator of this job has 3";
    static char said[8192];
    unsigned char payload[1024];
    struct gf_put put = {payload, sizeof payload};
    struct control_offer offer = {.id = 2, .id_count = 3, .first_world = 4, .process = 77};
    said[0] = '\0';
    control_world_open(&world, 3, 1);
    world.said = said;
    world.said_bytes = sizeof said;
    control_world_kill(&world, 2);
    control_world_quiet(&world, 100 * CONTROL_MS);
    gf_control_offer_walk(&(struct gf_walk){.put = &put}, &offer);
    struct gf_channel *channel = control_world_stranger(&world);
    for (uint32_t i = 0; i < 2; i++) { /* it tries again */
        channel->driver->dial(channel, 0);
        (void)channel->driver->send(channel, 0, CONTROL_OFFER, payload,
                                    (uint32_t)(sizeof payload - put.left));
        control_world_quiet(&world, 20 * CONTROL_MS);
    }
    for (uint32_t id = 0; id < 2; id++) {
        char line[160];
        (void)snprintf(line, sizeof line,
                       "rank %u waits for all ranks to join, and the coordinator at memory has "
                       "refused one: %s\n",
                       id, why);
        const char *at = strstr(said, line);
        if ((at == NULL) || (strstr(at + 1, line) != NULL)) fail_msg("not once: %s", said);
    }
    control_world_quiet(&world, 9 * SECOND);
    const char *text = gf_member_error(world.procs[0].member)->text;
    assert_non_null(strstr(text, "rank 2 of 3 did not join within 8.0 s; a process was refused: "));
    assert_non_null(strstr(text, why));
    control_world_close(&world);
}

TEST(a_job_of_one_goes_on_after_a_failure)
{
    control_world_open(&world, 1, 1);
    control_world_quiet(&world, SECOND);
    gf_member_fault(world.procs[0].member, &stands, false);
    control_world_quiet(&world, 4 * SECOND);
    all_work(1);
    assert_int_equal(world.procs[0].number, 2);
    control_world_close(&world);
}

TEST(who_gives_up_before_the_job_begins_is_named)
{
    control_world_open(&world, 3, 1);
    world.procs[2].stopped = true;
    control_world_quiet(&world, 100 * CONTROL_MS);
    gf_member_fault(world.procs[1].member, &stands, true);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_ENDED);
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    assert_int_equal(error->code, GF_ERR_PEER);
    assert_int_equal(error->peer, 1);
    assert_string_equal(error->text, "rank 1 gave up: it stands");
    control_world_close(&world);
}

/* ---- room ---- */

TEST(a_channel_that_takes_one_frame_at_a_time_loses_nothing)
{
    control_world_open(&world, 4, 1);
    world.room = 1;
    control_world_quiet(&world, SECOND);
    all_work(4);
    control_world_kill(&world, 3);
    control_world_quiet(&world, SECOND);
    all_work(3);
    (void)control_world_start(&world, 3, true);
    control_world_cut(&world, 1);
    control_world_quiet(&world, SECOND);
    all_work(4);
    for (uint32_t i = 0; i < world.proc_count; i++)
        if (world.procs[i].alive) gf_member_bye(world.procs[i].member);
    control_world_quiet(&world, SECOND);
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_OK);
    control_world_close(&world);
}

/* ---- who asks what is going on ---- */

TEST(what_is_shown_has_no_more_ids_than_there_can_be)
{
    for (uint32_t over = 0; over < 2; over++) {
        unsigned char payload[1024];
        struct gf_put put = {payload, sizeof payload};
        struct control_shown shown = {.id_count = 8};
        gf_control_shown_walk(&(struct gf_walk){.put = &put}, &shown);
        const uint32_t wrong = GF_WORLD_MAX + 1;
        if (over) memcpy(payload + 24, &wrong, sizeof wrong);
        struct gf_get get = {.at = payload, .left = sizeof payload - put.left};
        gf_control_shown_walk(&(struct gf_walk){.get = &get}, &shown);
        assert_int_equal(get.bad, over);
    }
}

TEST(a_connection_that_is_no_members_is_shown_the_job_once)
{
    struct control_shown shown = {0};
    struct gf_channel_event event;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    struct gf_channel *channel = control_world_stranger(&world);
    channel->driver->dial(channel, 0);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(event.kind, GF_CHANNEL_CONNECTED);
    assert_int_equal(channel->driver->send(channel, 0, CONTROL_LOOK, "", 0), GF_OK);
    control_world_coordinate(&world);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(event.frame_kind, CONTROL_SHOWN);
    struct gf_get get = {.at = event.payload, .left = event.size_bytes};
    gf_control_shown_walk(&(struct gf_walk){.get = &get}, &shown);
    assert_false(get.bad);
    assert_int_equal(shown.state, GF_COORDINATOR_RUN);
    assert_int_equal(shown.generation, 2);
    assert_int_equal(shown.world, 2);
    assert_int_equal(shown.here, 2);
    assert_int_equal(shown.present[0], 1 + 4);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(event.kind, GF_CHANNEL_ENDED);
    control_world_quiet(&world, 100 * CONTROL_MS);
    all_work(2);
    control_world_close(&world);
}

/* What a stranger at that connection is told of the job. */
static void look(struct gf_channel *channel, struct control_shown *shown_out)
{
    struct gf_channel_event event;
    channel->driver->dial(channel, 0);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(event.kind, GF_CHANNEL_CONNECTED);
    assert_int_equal(channel->driver->send(channel, 0, CONTROL_LOOK, "", 0), GF_OK);
    control_world_coordinate(&world);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(event.frame_kind, CONTROL_SHOWN);
    struct gf_get get = {.at = event.payload, .left = event.size_bytes};
    gf_control_shown_walk(&(struct gf_walk){.get = &get}, shown_out);
    assert_false(get.bad);
    assert_int_equal(get.left, 0);
}

TEST(who_was_refused_is_shown)
{
    struct control_shown shown = {0};
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 1);
    control_world_quiet(&world, 100 * CONTROL_MS);
    look(control_world_stranger(&world), &shown);
    assert_int_equal(shown.refused_count, 0);
    world.tensors_hash = 99;
    uint32_t other = control_world_start(&world, 1, true);
    control_world_quiet(&world, 100 * CONTROL_MS);
    assert_int_equal(control_world_state(&world, other), GF_MEMBER_ENDED);
    look(control_world_stranger(&world), &shown);
    assert_int_equal(shown.refused_count, 1);
    assert_non_null(strstr(shown.refused_text, "tensor tables differ"));
    assert_int_equal(shown.present[0], 1 + 4);
    control_world_close(&world);
    world.tensors_hash = 0;
}

/* Its channel refused one of another key or version: who waits for that one hears so. */
TEST(a_rank_that_was_refused_and_is_missed_is_told_of)
{
    control_world_open(&world, 3, 1);
    control_world_kill(&world, 1);
    world.channel.refused_count = 1;
    (void)snprintf(world.channel.refused_text, sizeof world.channel.refused_text,
                   "library version 0.10 at the coordinator, 0.9 at this process");
    control_world_quiet(&world, 9 * SECOND);
    const struct gf_error *error = gf_member_error(world.procs[0].member);
    assert_int_equal(error->code, GF_ERR_TIMEOUT);
    assert_non_null(strstr(error->text, "did not join"));
    assert_non_null(strstr(error->text, "; a process was refused: library version 0.10 at"));
    control_world_close(&world);
}

/* A frame of whoever has not said who it is. */
TEST(a_connection_that_begins_with_another_word_is_closed)
{
    struct gf_channel_event event;
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    struct gf_channel *channel = control_world_stranger(&world);
    channel->driver->dial(channel, 0);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(channel->driver->send(channel, 0, CONTROL_STATUS, "", 0), GF_OK);
    control_world_coordinate(&world);
    assert_true(channel->driver->poll(channel, 0, &event));
    assert_int_equal(event.kind, GF_CHANNEL_ENDED);
    control_world_close(&world);
}

/* After all that has come there is always one more frame of process 0. */
static const struct gf_channel_driver *driver_plain;
static bool poll_flooded(struct gf_channel *channel, uint64_t now_ns,
                         struct gf_channel_event *event_out)
{
    if (driver_plain->poll(channel, now_ns, event_out)) return true;
    *event_out = (struct gf_channel_event){.kind = GF_CHANNEL_FRAME,
                                           .connection = world.coordinator->rows[0].connection,
                                           .frame_kind = CONTROL_LOOK,
                                           .payload = ""};
    return true;
}

TEST(a_member_that_sends_without_end_holds_nobody_up)
{
    static struct gf_channel_driver flooded;
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    driver_plain = world.channel.driver;
    flooded = *driver_plain;
    flooded.poll = poll_flooded;
    world.channel.driver = &flooded;
    control_world_kill(&world, 1);
    control_world_quiet(&world, 4 * SECOND);
    all_work(2);
    world.channel.driver = driver_plain;
    control_world_close(&world);
}

/* ---- the end ---- */

/* `heard`: a finding of an older generation, which it has heard, is another one. */
static void again_as_it_ends(bool heard)
{
    control_world_open(&world, heard ? 4 : 3, 1);
    control_world_quiet(&world, SECOND);
    if (heard) control_world_kill(&world, 3);
    control_world_quiet(&world, SECOND);
    all_work(3);
    for (uint32_t id = 0; id < 3; id++) world.procs[id].hangs = true;
    control_world_cut(&world, 2);
    control_world_coordinate(&world);
    calls_post(0, 1, 0, 0);
    calls_post(1, 1, 1, 0);
    while (gf_member_error(world.procs[1].member)->code == GF_OK) {
        control_world_coordinate(&world);
        for (uint32_t id = 0; id < 2; id++) control_world_turn(&world, id);
    }
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_AGAIN);
    control_world_quiet(&world, 200 * CONTROL_MS);
    assert_int_equal(gf_member_error(world.procs[2].member)->code, GF_ERR_MISMATCH);
    assert_int_equal(gf_coordinator_poll(world.coordinator, world.now_ns), GF_ERR_MISMATCH);
    uint32_t late = control_world_start(&world, 2, true); /* of a join it would be that error */
    control_world_quiet(&world, 100 * CONTROL_MS);
    const struct gf_error *error = gf_member_error(world.procs[late].member);
    assert_int_equal(error->code, GF_ERR_STATE);
    assert_non_null(strstr(error->text, "the job has ended: calls differ"));
    control_world_close(&world);
}

TEST(who_dials_again_as_the_job_ends_hears_why)
{
    for (uint32_t heard = 0; heard < 2; heard++) again_as_it_ends(heard == 1);
}

/* ---- who cannot go on ---- */

TEST(who_gives_up_in_a_regroup_ends_at_once)
{
    for (uint32_t listed = 0; listed < 2; listed++) {
        control_world_open(&world, 4, 1);
        control_world_quiet(&world, SECOND);
        world.procs[2].stopped = (listed == 0); /* it is awaited */
        control_world_kill(&world, 3);
        wait_for(1, listed ? GF_MEMBER_LISTED : GF_MEMBER_READY);
        gf_member_fault(world.procs[1].member, &stands, true);
        control_world_quiet(&world, 50 * CONTROL_MS);
        assert_int_equal(control_world_state(&world, 1), GF_MEMBER_ENDED);
        assert_null(strstr(gf_member_error(world.procs[1].member)->text, "says nothing"));
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
    wait_for(0, GF_MEMBER_LISTED);
    gf_member_fault(world.procs[2].member, &stands, false);
    control_world_quiet(&world, 100 * CONTROL_MS);
    struct gf_coordinator_status status;
    gf_coordinator_status(world.coordinator, &status);
    assert_int_equal(status.state, GF_COORDINATOR_GATHER); /* the list stands */
    world.procs[1].stopped = false;
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
    control_world_quiet(&world, 8 * SECOND);
    all_work(3);
    control_world_close(&world);
}

/* ---- ids ---- */

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
    all_work(3);
    assert_int_equal(world.procs[0].number, 2);
    (void)control_world_start(&world, 2, false);
    control_world_quiet(&world, SECOND);
    all_work(4);
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
    all_work(2);
    assert_true(world.procs[0].number <= 2);
    control_world_close(&world);
}

/* ---- the coordinator ---- */

/* One that was let into a later generation as the coordinator ended is no reason to name others. */
static void one_is_further_begin(uint32_t *last_out)
{
    control_world_open_growing(&world, 3, 1, 4, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    uint32_t last = control_world_start(&world, 3, false);
    *last_out = last;
    wait_for(last, GF_MEMBER_LISTED);
    for (uint32_t i = 0; i < 3; i++) {
        for (uint32_t n = 0; n < 3; n++) control_world_turn(&world, i);
        world.procs[i].stopped = true; /* it has said its endpoint, and hears nothing of GO */
    }
    wait_for(last, GF_MEMBER_WORKS);
    assert_int_equal(gf_member_generation(world.procs[last].member)->number, 2);
    for (uint32_t i = 0; i < 3; i++) control_world_cut(&world, i);
    control_world_coordinator_end(&world);
    control_world_coordinator_begin(&world);
}

TEST(a_takeover_that_is_late_names_who_is_missing_of_the_generation_that_most_are_of)
{
    for (uint32_t alone = 0; alone < 2; alone++) { /* .. or that is the first, of as many */
        uint32_t last;
        char text[64];
        one_is_further_begin(&last);
        control_world_kill(&world, 1);
        if (alone) control_world_kill(&world, 2);
        (void)snprintf(text, sizeof text, "%u of the 3 ranks of generation 1, rank 1 first",
                       1 + alone);
        for (uint32_t i = 0; i < 3; i++) world.procs[i].stopped = false;
        control_world_quiet(&world, 9 * SECOND);
        for (uint32_t i = 0; i < 3; i += 2) {
            if (!world.procs[i].alive) continue;
            const struct gf_error *error = gf_member_error(world.procs[i].member);
            assert_int_equal(error->code, GF_ERR_PEER);
            assert_int_equal(error->peer, 1);
            if (strstr(error->text, text) == NULL) fail_msg("%s", error->text);
        }
        control_world_close(&world);
    }
}

/* It came to the coordinator before that took the others' generation over: it hears at once that
 * it was left out, and comes in. */
TEST(who_was_let_into_a_later_generation_comes_in_after_a_takeover)
{
    uint32_t last;
    one_is_further_begin(&last);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].stopped = false;
    for (uint32_t i = 0; i < 3; i++) world.procs[i].now_ns = world.now_ns;
    control_world_quiet(&world, 800 * CONTROL_MS);
    all_work(4);
    assert_int_equal(world.procs[last].number, 3);
    control_world_close(&world);
}

/* ---- whole weights ---- */

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
        if (!ends) all_work(2);
        if (ends) assert_int_equal(gf_member_error(world.procs[0].member)->code, GF_ERR_DATA);
        control_world_close(&world);
    }
}

/* Ids below `world` are new processes, all at once, and the job has grown beyond them. */
static const struct anew_row {
    const char *name;
    bool is_cut;  /* it had dialled the new coordinator, and its connection has broken */
    bool rejoins; /* so the new ones say */
} anew_rows[] = {
    {"it_has_not_dialled_yet", false, false},
    {"it_has_not_dialled_yet_and_the_launcher_says_so", false, true},
    {"its_connection_has_broken", true, false},
};

static void anew_row_run(const struct anew_row *row)
{
    uint32_t fresh[2];
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    uint32_t third = control_world_start(&world, 2, false);
    control_world_quiet(&world, SECOND);
    all_work(3);
    control_world_coordinator_end(&world);
    for (uint32_t id = 0; id < 2; id++) control_world_kill(&world, id);
    control_world_turn(&world, third); /* it hears that its coordinator is gone */
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, row->is_cut ? 4 * SECOND : 0);
    if (row->is_cut) control_world_cut(&world, third);
    control_world_turn(&world, third);
    world.procs[third].stopped = true; /* it dials again in a moment */
    for (uint32_t id = 0; id < 2; id++) fresh[id] = control_world_start(&world, id, row->rejoins);
    control_world_quiet(&world, 1600 * CONTROL_MS);
    world.procs[third].stopped = false;
    world.procs[third].now_ns = world.now_ns;
    control_world_quiet(&world, 14 * SECOND);
    for (uint32_t id = 0; id < 2; id++) {
        const struct gf_error *error = gf_member_error(world.procs[fresh[id]].member);
        if ((world.procs[fresh[id]].number != 0) || (error->code != GF_ERR_PEER) ||
            (strstr(error->text, "begun anew") == NULL))
            fail_msg("%s: the job began beside generation 2: %s", row->name, error->text);
    }
    assert_int_equal(control_world_state(&world, third), GF_MEMBER_ENDED);
    control_world_close(&world);
}

TEST(a_job_does_not_begin_beside_a_process_that_is_of_a_generation)
{
    for (uint32_t i = 0; i < LENGTH(anew_rows); i++) anew_row_run(&anew_rows[i]);
}

/* .. where nobody can be of one, nobody is awaited; else as long as one that lives may dial. */
TEST(a_coordinator_that_may_not_be_the_first_awaits_who_may_live)
{
    for (uint32_t is_first = 0; is_first < 2; is_first++) {
        control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
        control_world_coordinator_end(&world);
        if (is_first) world.coordinators = 0;
        control_world_coordinator_begin(&world);
        control_world_quiet(&world, SECOND);
        assert_int_equal(world.procs[0].number, is_first);
        control_world_quiet(&world, 3 * SECOND);
        all_work(2);
        control_world_close(&world);
    }
}

TEST(who_was_listed_says_ready_again_to_a_coordinator_begun_anew)
{
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    (void)control_world_start(&world, 2, false);
    wait_for(1, GF_MEMBER_LISTED);
    assert_int_equal(control_world_state(&world, 0), GF_MEMBER_LISTED);
    control_world_coordinator_end(&world);
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 3 * SECOND);
    all_work(3);
    control_world_close(&world);
}

TEST(who_was_away_as_a_rank_closed_hears_of_it)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    control_world_cut(&world, 2);
    control_world_turn(&world, 2);
    gf_member_bye(world.procs[1].member);
    world.procs[0].stopped = true; /* so that nobody else says FAULT */
    control_world_quiet(&world, SECOND);
    assert_int_equal(gf_member_error(world.procs[2].member)->peer, 1);
    control_world_close(&world);
}

/* .. also where it closed before the coordinator had taken the generation over. */
TEST(who_closed_before_a_takeover_is_told_after_it)
{
    control_world_open(&world, 2, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 2; i++) world.procs[i].hangs = true;
    control_world_coordinator_end(&world);
    for (uint32_t i = 0; i < 2; i++) control_world_turn(&world, i);
    world.procs[0].stopped = true;
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 300 * CONTROL_MS);
    gf_member_bye(world.procs[1].member);
    control_world_quiet(&world, 100 * CONTROL_MS);
    world.procs[0].stopped = false;
    control_world_quiet(&world, 500 * CONTROL_MS);
    const struct control_closed *closed = gf_member_closed(world.procs[0].member);
    assert_true((closed != NULL) && (closed->rank == 1));
    control_world_close(&world);
}

/* What a process that is of no generation does to a job that runs, whose coordinator was begun anew
 * and has not taken it over yet. */
static const struct newcomer_row {
    const char *name;
    bool differs;  /* else it gives up */
    bool is_first; /* it comes before any member */
    gf_status code;
} newcomer_rows[] = {
    {"that_was_given_other_things", true, false, GF_ERR_MISMATCH},
    {"that_was_given_other_things_and_comes_first", true, true, GF_ERR_MISMATCH},
    {"that_gives_up", false, false, GF_ERR_TIMEOUT},
};

static void newcomer_row_run(const struct newcomer_row *row)
{
    control_world_open_growing(&world, 2, 1, 3, GF_RANK_NONE);
    control_world_quiet(&world, SECOND);
    control_world_coordinator_end(&world);
    for (uint32_t i = 0; i < 2; i++) control_world_turn(&world, i);
    world.procs[0].stopped = row->is_first;
    world.procs[1].stopped = true; /* the takeover waits for it */
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 300 * CONTROL_MS);
    world.tensors_hash = row->differs ? 1 : 0;
    uint32_t spare = control_world_start(&world, 2, false);
    control_world_quiet(&world, 300 * CONTROL_MS);
    if (!row->differs) gf_member_fault(world.procs[spare].member, &stands, true);
    world.procs[0].stopped = false;
    control_world_quiet(&world, 300 * CONTROL_MS);
    world.procs[1].stopped = false;
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 2; i++)
        if (control_world_state(&world, i) != GF_MEMBER_WORKS)
            fail_msg("%s: %s", row->name, gf_member_error(world.procs[i].member)->text);
    assert_int_equal(world.procs[0].number, 1);
    assert_int_equal(gf_member_error(world.procs[spare].member)->code, row->code);
    control_world_close(&world);
}

TEST(a_newcomer_ends_no_job_that_is_not_taken_over_yet)
{
    for (uint32_t i = 0; i < LENGTH(newcomer_rows); i++) newcomer_row_run(&newcomer_rows[i]);
}

TEST(a_failure_that_only_one_had_heard_of_is_told_after_a_takeover)
{
    struct control_ready ready = {.progress = {.applied = 1}};
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
    control_world_coordinator_end(&world);
    control_world_quiet(&world, 50 * CONTROL_MS);
    world.procs[1].stopped = true; /* the last that is awaited */
    gf_member_ready(world.procs[0].member, &ready);
    control_world_coordinator_begin(&world);
    control_world_quiet(&world, 300 * CONTROL_MS);
    world.procs[1].stopped = false;
    control_world_quiet(&world, 200 * CONTROL_MS);
    assert_true(gf_member_is_found(world.procs[2].member) || (world.procs[2].number == 2) ||
                (control_world_state(&world, 2) >= GF_MEMBER_READY) ||
                (control_world_state(&world, 2) == GF_MEMBER_LISTED));
    control_world_close(&world);
}

TEST(a_coordinator_that_was_stopped_cuts_nobody_on_waking)
{
    for (uint32_t stands_still = 0; stands_still < 2; stands_still++) {
        control_world_open(&world, 3, 1);
        control_world_quiet(&world, SECOND);
        if (stands_still) {
            for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = true;
            gf_member_fault(world.procs[0].member, &stands, false);
            control_world_quiet(&world, 10 * CONTROL_MS);
        }
        uint64_t for_ns = (stands_still ? 3 : 30) * SECOND;
        for (uint64_t spent_ns = 0; spent_ns < for_ns; spent_ns += 5 * CONTROL_MS)
            for (uint32_t i = 0; i < 3; i++) control_world_turn(&world, i);
        world.now_ns += for_ns;
        for (uint32_t i = 0; i < 3; i++) world.procs[i].hangs = false;
        control_world_quiet(&world, 5 * SECOND);
        all_work(3);
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
    wait_for(0, GF_MEMBER_READY);
    for (uint32_t i = 0; i < 600; i++) control_world_turn(&world, 0);
    world.now_ns += 3 * SECOND;
    control_world_coordinate(&world);
    world.procs[1].stopped = false;
    world.procs[1].now_ns = world.now_ns;
    control_world_quiet(&world, SECOND);
    all_work(2);
    assert_int_equal(world.procs[0].number, 2);
    control_world_close(&world);
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
    struct gf_coordinator_status status = {.state = GF_COORDINATOR_RUN};
    control_world_open_hosted(&world, 3, 1, 0);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 2);
    while (status.state != GF_COORDINATOR_GATHER) {
        for (uint32_t i = 0; i < 2; i++) control_world_turn(&world, i);
        control_world_coordinate(&world);
        gf_coordinator_status(world.coordinator, &status);
    }
    world.procs[0].stopped = true;
    control_world_quiet(&world, 4 * SECOND);
    world.procs[0].stopped = false;
    world.procs[0].now_ns = world.now_ns;
    control_world_quiet(&world, SECOND);
    all_work(2);
    assert_int_equal(world.procs[0].number, 2);
    control_world_close(&world);
}

TEST(deaths_one_after_the_other_do_not_keep_all_waiting_for_one_that_is_stopped)
{
    const uint64_t endpoint_ns = 3 * SECOND; /* so long it is awaited: keepalive and 2 s */
    struct gf_coordinator_status status = {.state = GF_COORDINATOR_RUN};
    control_world_open(&world, 6, 1);
    control_world_quiet(&world, SECOND);
    control_world_kill(&world, 5);
    while (status.state != GF_COORDINATOR_GATHER) {
        for (uint32_t i = 0; i < 5; i++) control_world_turn(&world, i);
        control_world_coordinate(&world);
        gf_coordinator_status(world.coordinator, &status);
    }
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

TEST(a_process_that_was_stopped_tries_again_before_it_ends)
{
    control_world_open(&world, 3, 1);
    control_world_quiet(&world, SECOND);
    control_world_cut(&world, 1);
    control_world_turn(&world, 1);
    world.procs[1].stopped = true;
    control_world_quiet(&world, 10 * SECOND);
    world.procs[1].stopped = false;
    world.procs[1].now_ns = world.now_ns;
    control_world_quiet(&world, 8 * SECOND);
    all_work(3);
    control_world_close(&world);
}

/* ---- an adversary ---- */

/* What the adversary has of a walk; what it has done is kept, so that the end is known exactly. */
static struct walk {
    uint64_t seed;
    bool crashes;       /* of the coordinator */
    bool is_over;       /* something has happened for which the job may end */
    uint32_t host_proc; /* CONTROL_PROCS: the coordinator has a process */
} walk;

static void proc_hurt(uint32_t proc, uint32_t how)
{
    struct control_proc *hurt = &world.procs[proc];
    if (!hurt->alive) return;
    bool is_member = (hurt->number != 0) && !hurt->stopped &&
                     (control_world_state(&world, proc) == GF_MEMBER_WORKS);
    switch (how) {
    case 0: control_world_kill(&world, proc); break;
    case 1: control_world_cut(&world, proc); break;
    case 8: control_world_kill_unread(&world, proc); break;
    case 9: control_world_reset(&world, proc); break;
    case 2: control_world_cut_half(&world, proc, control_world_draw(&world, 2)); break;
    case 3:
        hurt->stopped = !hurt->stopped;
        hurt->excused = true; /* it may be taken for one that lags */
        walk.is_over = walk.is_over || (proc == walk.host_proc);
        break;
    case 4: hurt->now_ns += 100 * CONTROL_MS; break;
    case 5: hurt->leaves = hurt->leaves || (proc != walk.host_proc); break;
    case 6:
        if (hurt->stopped || (control_world_state(&world, proc) >= GF_MEMBER_CLOSING)) break;
        gf_member_bye(hurt->member);
        hurt->excused = true;
        break;
    default:
        if (!is_member) break;
        gf_member_fault(hurt->member, &stands, true);
        hurt->excused = true;
        walk.is_over = walk.is_over || (proc == walk.host_proc);
        break;
    }
}

/* Another process of an id; where one lives either of them may have to end. */
static void id_start(uint32_t id)
{
    uint32_t first = control_world_of(&world, id);
    if (world.proc_count == CONTROL_PROCS) return;
    bool is_new = (id >= world.ids);
    if (first != CONTROL_PROCS) {
        if ((first == walk.host_proc) || (control_world_draw(&world, 4) != 0)) return;
        for (uint32_t i = 0; i < world.proc_count; i++)
            if (world.procs[i].id == id) world.procs[i].excused = true;
    }
    uint32_t second = control_world_start(&world, id, !is_new);
    if (first != CONTROL_PROCS) world.procs[second].excused = true;
}

static void coordinator_hurt(uint32_t how)
{
    if (how == 0) {
        world.is_stopped = !world.is_stopped;
    } else if (walk.crashes && world.coordinator_lives) {
        control_world_coordinator_end(&world);
        walk.is_over = true; /* where a member changes meanwhile */
    } else if (walk.crashes) {
        control_world_coordinator_begin(&world);
    }
}

static void something_happens(void)
{
    uint32_t proc = control_world_draw(&world, world.proc_count);
    uint32_t id = control_world_draw(&world, world.id_count);
    uint32_t other = control_world_draw(&world, world.id_count);
    static const uint32_t hurts[] = {0, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 9};
    switch (control_world_draw(&world, 40)) {
    case 0:
    case 1:
    case 2:
    case 3: proc_hurt(proc, hurts[control_world_draw(&world, LENGTH(hurts))]); break;
    case 4:
    case 5: id_start(id); break;
    case 6: coordinator_hurt(control_world_draw(&world, 2)); break;
    case 7: control_world_quiet(&world, control_world_draw(&world, 5) * SECOND); break;
    case 8: control_world_halves_end(&world); break;
    case 9:
        if (control_world_draw(&world, 8) == 0) control_world_quiet(&world, 12 * SECOND);
        break;
    case 10:
        control_world_edge(&world, id, other, control_world_draw(&world, 2) == 0);
        for (uint32_t i = 0; i < world.proc_count; i++) /* .. which may cost either end */
            if ((world.procs[i].id == id) || (world.procs[i].id == other))
                world.procs[i].excused = true;
        break;
    default: break;
    }
}

/* One process that has the weights is polled and stays, or the job may end. */
static void end_look(void)
{
    bool is_held = false;
    for (uint32_t i = 0; i < world.proc_count; i++) {
        const struct control_proc *proc = &world.procs[i];
        if (!proc->alive || proc->stopped || (control_world_state(&world, i) >= GF_MEMBER_GONE))
            continue;
        is_held = is_held || (proc->has_state && !proc->leaves &&
                              (!proc->excused || (i == walk.host_proc)) && (proc->number != 0));
    }
    if (!is_held || world.is_stopped) walk.is_over = true;
    if ((walk.host_proc != CONTROL_PROCS) && !world.procs[walk.host_proc].alive &&
        world.coordinator_lives) {
        control_world_coordinator_end(&world);
        walk.is_over = true;
    }
}

static void all_end_look(void)
{
    uint32_t works = 0;
    uint32_t number = 0;
    for (uint32_t i = 0; i < world.proc_count; i++) {
        const struct control_proc *proc = &world.procs[i];
        if (!proc->alive) continue;
        gf_member_state state = control_world_state(&world, i);
        const struct gf_error *error = gf_member_error(proc->member);
        bool may_end = walk.is_over || proc->excused || proc->leaves;
        if ((state >= GF_MEMBER_GONE) && may_end) continue;
        /* The host of the coordinator waits for all others. */
        if ((state == GF_MEMBER_CLOSING) && (i == walk.host_proc)) continue;
        if (state != GF_MEMBER_WORKS)
            fail_msg("seed %llu: process %u is in state %d: %s", (unsigned long long)walk.seed, i,
                     state, error->text);
        if (works++ == 0) number = proc->number;
        if (proc->number != number)
            fail_msg("seed %llu: two generations", (unsigned long long)walk.seed);
    }
}

static void random_walk(uint64_t seed, bool crashes)
{
    uint32_t ids = 2 + (uint32_t)(seed % 3);
    bool hosted = !crashes && (seed % 4 == 0);
    walk = (struct walk){.seed = seed, .crashes = crashes, .host_proc = hosted ? 0 : CONTROL_PROCS};
    control_world_open_growing(&world, ids, seed, (seed % 5 == 0) ? 4 : ids,
                               hosted ? 0 : GF_RANK_NONE);
    world.room = (uint32_t)(seed / 3 % 3); /* one or two frames, or many */
    control_world_quiet(&world, control_world_draw(&world, 100) * CONTROL_MS);
    for (uint32_t i = 0; (i < 600) && (world.broken == NULL); i++) {
        if (i % 4 == 0) something_happens();
        end_look();
        uint32_t who = control_world_draw(&world, world.proc_count + 1);
        if (who == world.proc_count)
            control_world_coordinate(&world);
        else
            control_world_turn(&world, who);
    }
    for (uint32_t i = 0; i < world.proc_count; i++) {
        world.procs[i].stopped = false;
        if (world.procs[i].now_ns < world.now_ns) world.procs[i].now_ns = world.now_ns;
    }
    control_world_halves_end(&world);
    memset(world.cut_edges, 0, sizeof world.cut_edges);
    world.is_stopped = false;
    if (!world.coordinator_lives && !hosted) control_world_coordinator_begin(&world);
    control_world_quiet(&world, 40 * SECOND);
    if (world.broken != NULL) fail_msg("seed %llu: %s", (unsigned long long)seed, world.broken);
    all_end_look();
    control_world_close(&world);
}

static void random_walks(bool crashes)
{
    const char *one = getenv("GF_TEST_SEED");
    const char *many = getenv("GF_TEST_SEEDS");
    uint64_t from = (one != NULL) ? strtoull(one, NULL, 0) : 1;
    uint64_t to = (one != NULL) ? from : ((many != NULL) ? strtoull(many, NULL, 0) : 200);
    for (uint64_t seed = from; seed <= to; seed++) random_walk(seed, crashes);
}

TEST(random_schedules)
{
    random_walks(false);
}

TEST(random_schedules_with_crashes_of_the_coordinator)
{
    random_walks(true);
}
