/* Ranks that die, stop, are cut off, give up or lag in the middle of a step: every rank that lives ends with an error
 * that names who it was, within its deadline, and nothing is left under way. */
#include "world.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define TIMEOUT_NS UINT64_C(200000000)
#define DETECT_NS UINT64_C(50000000)
#define ANSWER_NS UINT64_C(1000000000) /* an inquiry ends within this, */
#define DRAIN_NS UINT64_C(500000000)   /* and what is under way within that */
#define HEALTHY_NS UINT64_C(50000000) /* such a job without a fault ends within this */
#define POSTS_MAX 400u

static const struct gf_sim_setup network = {.seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .bytes_per_ns = 1.0,
                                            .message_ns = 100, .bind_receives = true, .detect_ns = DETECT_NS};
static const struct gf_tensor tensors[] = {
    {.name = "a", .elem_count = 3000}, {.name = "b", .elem_count = 10}, {.name = "c", .elem_count = 2000}};

static struct world_setup setup_of(uint32_t world)
{
    struct world_setup setup = {.world = world, .tensors = tensors, .tensor_count = LENGTH(tensors), .sim = network};
    setup.config.exchange.timeout_ns = TIMEOUT_NS;
    setup.config.exchange.fuse_bytes = 8192;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.link.window = 2;
    return setup;
}

/* What holds for a rank that has failed: the record is whole and the log has it, every call answers the same. */
static void expect_failed(struct world *w, uint32_t rank, gf_status code)
{
    gf_context *gf = w->ranks[rank].gf;
    const struct gf_error *error = gf_error_last(gf);
    struct gf_request request = {{0}};
    struct gf_stats stats = {.size_bytes = sizeof stats};
    float value = 0;
    assert_int_equal(error->code, code);
    assert_int_equal(error->rank, rank);
    assert_true(error->operation < GF_OPERATION_COUNT);
    assert_true((error->tensor == GF_TENSOR_NONE) || (error->tensor < LENGTH(tensors)));
    assert_true(strlen(error->text) > 10);
    world_expect_log(w, rank, error->text);
    assert_int_equal(gf_step_begin(gf), code);
    assert_int_equal(gf_step_samples(gf, 1), code);
    assert_int_equal(gf_tensor_ready(gf, 0, 0), code);
    assert_int_equal(gf_tensor_skip(gf, 0), code);
    assert_int_equal(gf_step_poll(gf), code);
    assert_int_equal(gf_step_wait(gf), code);
    assert_int_equal(gf_update(gf, 0.1f), code);
    assert_int_equal(gf_open_poll(gf), code);
    assert_int_equal(gf_open_wait(gf), code);
    assert_int_equal(gf_heartbeat(gf), code);
    assert_int_equal(gf_barrier(gf, &request), code);
    assert_int_equal(gf_allreduce(gf, (gf_mem)(uintptr_t)&value, 1, GF_TYPE_F32, &request), code);
    assert_int_equal(gf_request_poll(gf, &request), code);
    assert_int_equal(gf_exchange_take(gf, 8), 0);
    assert_int_equal(gf_stats(gf, &stats), GF_OK);
    assert_int_equal(gf_error_last(gf)->code, code);
}

struct fault_case {
    const char *name;
    gf_sim_fault_kind kind;
    uint64_t within_ns; /* of the fault the survivors have failed */
    bool named;         /* and say who it was */
};

static const struct fault_case kill_case = {"kill", GF_SIM_FAULT_KILL, DETECT_NS + DRAIN_NS + TIMEOUT_NS, true};
static const struct fault_case stop_case = {"stop", GF_SIM_FAULT_STOP, TIMEOUT_NS + ANSWER_NS + DRAIN_NS, true};
static const struct fault_case drop_case = {"drop", GF_SIM_FAULT_DROP, TIMEOUT_NS + ANSWER_NS + DRAIN_NS, false};
static const struct fault_case error_case = {"error", GF_SIM_FAULT_ERROR, ANSWER_NS + DRAIN_NS, false};
static const struct fault_case short_case = {"short", GF_SIM_FAULT_SHORT, TIMEOUT_NS + ANSWER_NS + DRAIN_NS, false};

/* Joins, makes STEPS steps, and shows signs of life until all that live are as far. */
#define STEPS 2u
struct journey {
    struct world_step step;
    uint32_t stage[8];
    bool ended[8];
};

static gf_status journey_turn(struct world *w, uint32_t rank, void *arg)
{
    struct journey *journey = arg;
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    bool all = true;
    if (journey->stage[rank] > STEPS) {
        if ((status = gf_heartbeat(gf)) != GF_OK) return status;
        for (uint32_t r = 0; r < w->world; r++) all = all && (journey->ended[r] || !gf_sim_runs(w->sim, r));
        return all ? GF_OK : GF_AGAIN;
    }
    status = (journey->stage[rank] == 0) ? gf_open_poll(gf) : world_step_turn(w, rank, &journey->step);
    if (status == GF_OK) {
        journey->stage[rank]++;
        w->ranks[rank].next = 0;
    }
    journey->ended[rank] = (status < 0) || (journey->stage[rank] > STEPS);
    return (status == GF_OK) ? GF_AGAIN : status;
}

/* Two steps with a fault at the at-th post of `rank`; false: it was not met. */
static bool run_with_fault(const struct fault_case *c, uint32_t world, uint32_t rank, uint64_t at, uint32_t seed)
{
    struct world_setup setup = setup_of(world);
    struct journey journey = {.step.order = WORLD_ROTATED};
    struct world w;
    uint64_t begin_ns;
    bool met;
    setup.sim.seed = seed;
    setup.sim.faults[0] = (struct gf_sim_fault){.kind = c->kind, .rank = rank, .at = at, .delay_ns = UINT64_C(100000000000)};
    setup.sim.fault_count = 1;
    world_create(&w, &setup);
    begin_ns = gf_sim_now_ns(w.sim);
    world_run(&w, journey_turn, &journey);
    met = gf_sim_fault_met(w.sim);
    for (uint32_t r = 0; r < world; r++) {
        gf_status status = w.ranks[r].status;
        bool runs = gf_sim_runs(w.sim, r);
        if (!runs) continue;
        /* A dropped send may be one that nobody waits for any more, and a rank may be done before another fails. */
        if (!met || (status == GF_OK)) {
            if (status != GF_OK) fail_msg("%s at %u, rank %u: %s", c->name, (unsigned)at, r, w.ranks[r].log);
            continue;
        }
        expect_failed(&w, r, status);
        if (c->named && (gf_error_last(w.ranks[r].gf)->peer != rank))
            fail_msg("%s of rank %u at post %u: rank %u blames %d: %s", c->name, rank, (unsigned)at, r,
                     (int)gf_error_last(w.ranks[r].gf)->peer, w.ranks[r].log);
    }
    if (met) assert_true(gf_sim_now_ns(w.sim) - begin_ns <= c->within_ns + HEALTHY_NS);
    world_close(&w);
    return met;
}

static void every_post(const struct fault_case *c, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        uint32_t at = 1;
        while ((at < POSTS_MAX) && run_with_fault(c, world, rank, at, at + rank)) at++;
        assert_true((at > 1) && (at < POSTS_MAX)); /* met at least once, and at last no more */
    }
}

static void a_rank_that_dies_at_any_post_is_named_by_all(void **state)
{
    (void)state;
    for (uint32_t world = 2; world <= 5; world++) every_post(&kill_case, world);
}

static void a_rank_that_stops_at_any_post_is_named_by_all(void **state)
{
    (void)state;
    for (uint32_t world = 2; world <= 5; world++) every_post(&stop_case, world);
}

static void a_lost_message_ends_the_step_on_all_ranks(void **state)
{
    (void)state;
    for (uint32_t world = 2; world <= 4; world++) every_post(&drop_case, world);
}

static void a_link_that_fails_ends_the_step_on_all_ranks(void **state)
{
    (void)state;
    for (uint32_t world = 2; world <= 4; world++) {
        every_post(&error_case, world);
        every_post(&short_case, world);
    }
}

static void what_a_link_may_do_changes_nothing(void **state)
{
    static const gf_sim_fault_kind kinds[] = {GF_SIM_FAULT_AGAIN, GF_SIM_FAULT_DUPLICATE, GF_SIM_FAULT_DELAY};
    (void)state;
    for (size_t k = 0; k < LENGTH(kinds); k++) {
        uint64_t at = 1;
        bool met = true;
        for (; met && (at < POSTS_MAX); at++) {
            struct world_setup setup = setup_of(3);
            struct journey journey = {.step.order = WORLD_ROTATED};
            struct world w;
            setup.sim.faults[0] = (struct gf_sim_fault){.kind = kinds[k], .rank = 1, .at = at, .delay_ns = 10000000};
            setup.sim.fault_count = 1;
            world_create(&w, &setup);
            world_run(&w, journey_turn, &journey);
            world_expect(&w, GF_OK);
            world_expect_equal(&w);
            for (uint64_t e = 0; e < tensors[0].elem_count; e++)
                assert_true(world_get(GF_TYPE_F32, world_gradient(&w, 2, 0), e) ==
                            world_value(0, 0, e) + world_value(1, 0, e) + world_value(2, 0, e));
            met = gf_sim_fault_met(w.sim);
            world_close(&w);
        }
        assert_true((at > 2) && !met);
    }
}

static const struct gf_tensor other_names[] = {
    {.name = "a", .elem_count = 3000}, {.name = "x", .elem_count = 10}, {.name = "c", .elem_count = 2000}};

static void vary_wire(uint32_t rank, struct gf_config *config, const struct gf_tensor **table, uint32_t *count)
{
    (void)table;
    (void)count;
    if (rank == 2) config->exchange.wire = GF_TYPE_BF16;
}

static void vary_names(uint32_t rank, struct gf_config *config, const struct gf_tensor **table, uint32_t *count)
{
    (void)config;
    (void)count;
    if (rank == 2) *table = other_names;
}

static void vary_count(uint32_t rank, struct gf_config *config, const struct gf_tensor **table, uint32_t *count)
{
    (void)config;
    (void)table;
    if (rank == 2) *count = 2;
}

static void ranks_that_were_given_different_things_do_not_open(void **state)
{
    static const struct vary_case {
        void (*vary)(uint32_t rank, struct gf_config *config, const struct gf_tensor **table, uint32_t *count);
        const char *texts[2]; /* both values */
    } cases[] = {{vary_wire, {"wire=fp32", "wire=bf16"}},
                 {vary_names, {"tensor tables differ", "rank 2"}},
                 {vary_count, {"3 ", "2 "}}};
    (void)state;
    for (size_t row = 0; row < LENGTH(cases); row++) {
        struct world_setup setup = setup_of(3);
        struct world w;
        setup.vary = cases[row].vary;
        world_create(&w, &setup);
        world_join(&w);
        world_expect(&w, GF_ERR_MISMATCH);
        for (uint32_t rank = 0; rank < 3; rank++) {
            const struct gf_error *error = gf_error_last(w.ranks[rank].gf);
            expect_failed(&w, rank, GF_ERR_MISMATCH);
            assert_int_equal(error->operation, GF_OPERATION_JOIN);
            for (uint32_t i = 0; i < 2; i++)
                if (strstr(error->text, cases[row].texts[i]) == NULL) fail_msg("row %zu: %s", row, error->text);
        }
        world_close(&w);
    }
}

/* ---- by hand ---- */

struct interrupt {
    uint32_t rank, after_tensors;
    void (*act)(struct world *w, uint32_t rank);
    bool done;
    struct world_step step;
};

static gf_status interrupted_turn(struct world *w, uint32_t rank, void *arg)
{
    struct interrupt *interrupt = arg;
    gf_status status = world_step_turn(w, rank, &interrupt->step);
    if (!interrupt->done && (rank == interrupt->rank) && (w->ranks[rank].next == interrupt->after_tensors)) {
        interrupt->done = true;
        interrupt->act(w, rank);
    }
    return status;
}

static void act_abort(struct world *w, uint32_t rank)
{
    gf_abort(w->ranks[rank].gf);
}

static gf_context *signalled;

static void on_signal(int number)
{
    (void)number;
    gf_abort(signalled);
}

static void act_signal(struct world *w, uint32_t rank)
{
    struct sigaction action = {.sa_handler = on_signal}, before;
    signalled = w->ranks[rank].gf;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(sigaction(SIGUSR1, &before, NULL), 0);
}

static void act_cut(struct world *w, uint32_t rank)
{
    for (uint32_t other = 0; other < w->world; other++)
        if (other != rank) gf_sim_partition(w->sim, rank, other, true);
}

static void act_cut_peer(struct world *w, uint32_t rank)
{
    gf_sim_partition(w->sim, rank, (rank + 1) % w->world, true);
}

static void act_close(struct world *w, uint32_t rank)
{
    assert_int_equal(gf_close(w->ranks[rank].gf), GF_OK);
    w->ranks[rank].gf = NULL;
    w->ranks[rank].status = GF_OK;
}

static gf_status closing_turn(struct world *w, uint32_t rank, void *arg)
{
    return (w->ranks[rank].gf == NULL) ? GF_OK : interrupted_turn(w, rank, arg);
}

static void an_abort_ends_all_ranks_and_says_whose_it_was(void **state)
{
    static void (*const acts[])(struct world *w, uint32_t rank) = {act_abort, act_signal};
    (void)state;
    for (uint32_t row = 0; row < 2 * 3 * 3; row++) {
        struct world_setup setup = setup_of(3);
        struct interrupt interrupt = {.rank = row % 3, .after_tensors = 1 + row / 3 % 3, .act = acts[row / 9]};
        struct world w;
        uint64_t begin_ns;
        world_open(&w, &setup);
        begin_ns = gf_sim_now_ns(w.sim);
        world_run(&w, interrupted_turn, &interrupt);
        assert_true(interrupt.done);
        assert_true(gf_sim_now_ns(w.sim) - begin_ns < DRAIN_NS + 20000000); /* no deadline was waited for */
        for (uint32_t rank = 0; rank < 3; rank++) {
            expect_failed(&w, rank, (rank == interrupt.rank) ? GF_ERR_ABORTED : GF_ERR_PEER);
            assert_int_equal(gf_error_last(w.ranks[rank].gf)->peer, interrupt.rank);
            if (rank != interrupt.rank) world_expect_log(&w, rank, "gave up: aborted by its appliance");
        }
        world_close(&w);
    }
}

/* The signal comes while the call blocks. */
static void an_abort_ends_a_wait_at_once(void **state)
{
    struct world_setup setup = setup_of(2);
    struct world w;
    uint64_t begin_ns;
    (void)state;
    setup.config.link.idle = GF_IDLE_SPIN;
    world_open(&w, &setup);
    assert_int_equal(gf_step_begin(w.ranks[0].gf), GF_OK);
    for (uint32_t tensor = 0; tensor < LENGTH(tensors); tensor++) assert_int_equal(gf_tensor_skip(w.ranks[0].gf, tensor), GF_OK);
    begin_ns = gf_sim_now_ns(w.sim);
    struct interrupt interrupt = {.rank = 1, .after_tensors = 2, .act = act_abort, .step.pause_ns = 20000000};
    world_block(&w, 0, interrupted_turn, &interrupt);
    assert_int_equal(gf_step_wait(w.ranks[0].gf), GF_ERR_PEER);
    world_unblock(&w);
    assert_int_equal(gf_error_last(w.ranks[0].gf)->peer, 1);
    assert_true(gf_sim_now_ns(w.sim) - begin_ns < TIMEOUT_NS);
    world_close(&w);
}

static gf_status abort_first_turn(struct world *w, uint32_t rank, void *arg)
{
    (void)arg;
    (void)rank;
    gf_abort(w->ranks[0].gf);
    return GF_OK;
}

static void an_abort_of_the_waiting_rank_itself_ends_its_wait(void **state)
{
    struct world_setup setup = setup_of(2);
    struct world w;
    uint64_t begin_ns;
    (void)state;
    setup.config.link.idle = GF_IDLE_SPIN;
    world_open(&w, &setup);
    assert_int_equal(gf_step_begin(w.ranks[0].gf), GF_OK);
    for (uint32_t tensor = 0; tensor < LENGTH(tensors); tensor++) assert_int_equal(gf_tensor_skip(w.ranks[0].gf, tensor), GF_OK);
    begin_ns = gf_sim_now_ns(w.sim);
    world_block(&w, 0, abort_first_turn, NULL);
    assert_int_equal(gf_step_wait(w.ranks[0].gf), GF_ERR_ABORTED);
    world_unblock(&w);
    assert_true(gf_sim_now_ns(w.sim) - begin_ns < TIMEOUT_NS);
    world_close(&w);
}

static void closing_in_the_middle_of_a_step_is_told_to_the_others(void **state)
{
    (void)state;
    for (uint32_t guilty = 0; guilty < 3; guilty++) {
        struct world_setup setup = setup_of(3);
        struct interrupt interrupt = {.rank = guilty, .after_tensors = 2, .act = act_close};
        struct world w;
        world_open(&w, &setup);
        world_run(&w, closing_turn, &interrupt);
        for (uint32_t rank = 0; rank < 3; rank++) {
            if (rank == guilty) continue;
            expect_failed(&w, rank, GF_ERR_PEER);
            assert_int_equal(gf_error_last(w.ranks[rank].gf)->peer, guilty);
            world_expect_log(&w, rank, "closed its context while step was under way");
        }
        world_close(&w);
    }
}

static void a_rank_that_is_cut_off_is_named_and_everybody_ends(void **state)
{
    (void)state;
    for (uint32_t guilty = 0; guilty < 4; guilty++) {
        struct world_setup setup = setup_of(4);
        struct interrupt interrupt = {.rank = guilty, .after_tensors = 2, .act = act_cut};
        struct world w;
        uint64_t begin_ns;
        world_open(&w, &setup);
        begin_ns = gf_sim_now_ns(w.sim);
        world_run(&w, interrupted_turn, &interrupt);
        assert_true(gf_sim_now_ns(w.sim) - begin_ns < TIMEOUT_NS + ANSWER_NS + DRAIN_NS + 50000000);
        for (uint32_t rank = 0; rank < 4; rank++) {
            uint32_t peer = gf_error_last(w.ranks[rank].gf)->peer;
            expect_failed(&w, rank, GF_ERR_TIMEOUT);
            if (rank != guilty) assert_int_equal(peer, guilty);
            else assert_int_equal(peer, (guilty == 0) ? 1 : 0); /* from where it stands, the others are gone */
        }
        world_close(&w);
    }
}

static void two_ranks_that_cannot_reach_each_other_end_everybody(void **state)
{
    struct world_setup setup = setup_of(4);
    struct interrupt interrupt = {.rank = 1, .after_tensors = 2, .act = act_cut_peer};
    struct world w;
    (void)state;
    setup.config.exchange.algorithm = GF_ALGORITHM_RING;
    world_open(&w, &setup);
    world_run(&w, interrupted_turn, &interrupt);
    for (uint32_t rank = 0; rank < 4; rank++) {
        expect_failed(&w, rank, GF_ERR_TIMEOUT);
        assert_string_equal(gf_error_last(w.ranks[rank].gf)->text, gf_error_last(w.ranks[0].gf)->text);
    }
    world_close(&w);
}

/* ---- late, not dead ---- */

static gf_status lagging_turn(struct world *w, uint32_t rank, void *arg)
{
    struct interrupt *interrupt = arg;
    if ((rank != interrupt->rank) || (w->ranks[rank].next < interrupt->after_tensors))
        return world_step_turn(w, rank, &interrupt->step);
    (void)gf_heartbeat(w->ranks[rank].gf);
    return (gf_error_last(w->ranks[rank].gf)->code == GF_OK) ? GF_AGAIN : gf_error_last(w->ranks[rank].gf)->code;
}

static void a_rank_that_never_declares_is_named_with_its_step(void **state)
{
    (void)state;
    for (uint32_t guilty = 0; guilty < 3; guilty++) {
        struct world_setup setup = setup_of(3);
        struct world_step step = {.order = WORLD_FORWARD};
        struct interrupt interrupt = {.rank = guilty, .after_tensors = 1};
        struct world w;
        world_open(&w, &setup);
        world_step_run(&w, &step);
        world_expect(&w, GF_OK);
        world_run(&w, lagging_turn, &interrupt);
        for (uint32_t rank = 0; rank < 3; rank++) {
            expect_failed(&w, rank, GF_ERR_TIMEOUT);
            assert_int_equal(gf_error_last(w.ranks[rank].gf)->peer, guilty);
            assert_int_equal(gf_error_last(w.ranks[rank].gf)->step, 2);
            assert_non_null(strstr(gf_error_last(w.ranks[rank].gf)->text, "computing"));
        }
        world_close(&w);
    }
}

static void a_rank_that_comes_within_the_deadline_is_waited_for(void **state)
{
    struct world_setup setup = setup_of(3);
    struct world_step step = {.order = WORLD_FORWARD};
    struct world w;
    (void)state;
    setup.sim.faults[0] = (struct gf_sim_fault){.kind = GF_SIM_FAULT_STOP, .rank = 1, .at = 20,
                                                .delay_ns = TIMEOUT_NS - TIMEOUT_NS / 10};
    setup.sim.fault_count = 1;
    world_open(&w, &setup);
    for (uint32_t i = 0; i < 3; i++) {
        world_step_run(&w, &step);
        world_expect(&w, GF_OK);
        world_expect_equal(&w);
    }
    assert_true(gf_sim_fault_met(w.sim));
    world_close(&w);
}

/* ---- the process ---- */

static int child_says(gf_context *gf, gf_status expect)
{
    struct gf_request request = {{0}};
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        bool good = (gf_step_begin(gf) == expect) && (gf_step_poll(gf) == expect) && (gf_step_wait(gf) == expect) &&
                    (gf_tensor_ready(gf, 0, 0) == expect) && (gf_barrier(gf, &request) == expect) &&
                    (gf_heartbeat(gf) == expect) && (gf_update(gf, 1.0f) == expect) &&
                    (gf_close_poll(gf) == expect) && (gf_close(gf) == expect) && (gf_close(gf) == expect);
        _exit(good ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void a_forked_child_is_refused_and_the_parent_goes_on(void **state)
{
    struct world_setup setup = setup_of(2);
    struct world_step step = {.order = WORLD_FORWARD};
    struct world w;
    (void)state;
    world_open(&w, &setup);
    assert_int_equal(child_says(w.ranks[1].gf, GF_ERR_STATE), 0);
    world_step_run(&w, &step);
    world_expect(&w, GF_OK);
    gf_abort(w.ranks[1].gf);
    world_step_run(&w, &step);
    assert_int_equal(child_says(w.ranks[1].gf, GF_ERR_STATE), 0); /* of a failed context too: nothing of it is the child's */
    world_close(&w);
}

static void closing_is_lawful_at_any_time_and_once(void **state)
{
    struct world_setup setup = setup_of(3);
    struct world w;
    unsigned char *memory;
    (void)state;
    assert_int_equal(gf_close(NULL), GF_OK);
    setup.config.rendezvous.join_timeout_ns = 1000000000;
    world_create(&w, &setup);
    assert_int_equal(gf_close(w.ranks[2].gf), GF_OK); /* before anybody is there */
    memory = (unsigned char *)w.ranks[2].gf;
    w.ranks[2].gf = NULL;
    world_join(&w);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_true(w.ranks[rank].status < 0);
        assert_true(strlen(gf_error_last(w.ranks[rank].gf)->text) > 10);
    }
    assert_int_equal(gf_close((gf_context *)(void *)memory), GF_ERR_PARAM);
    world_close(&w);
}

static gf_status close_turn(struct world *w, uint32_t rank, void *arg)
{
    (void)arg;
    return gf_close_poll(w->ranks[rank].gf);
}

static void closing_waits_for_those_who_are_late_but_not_for_ever(void **state)
{
    struct world_setup setup = setup_of(3);
    struct world w;
    uint64_t begin_ns;
    (void)state;
    world_open(&w, &setup);
    begin_ns = gf_sim_now_ns(w.sim);
    gf_sim_stop(w.sim, 1, true);
    world_run(&w, close_turn, NULL);
    assert_true(gf_sim_now_ns(w.sim) - begin_ns < TIMEOUT_NS + 20000000);
    assert_int_equal(w.ranks[0].status, GF_ERR_TIMEOUT);
    assert_int_equal(w.ranks[2].status, GF_ERR_TIMEOUT);
    assert_int_equal(gf_step_begin(w.ranks[2].gf), GF_ERR_STATE);
    for (uint32_t rank = 0; rank < 3; rank += 2) {
        assert_int_equal(gf_close(w.ranks[rank].gf), GF_ERR_TIMEOUT);
        w.ranks[rank].gf = NULL;
    }
    gf_sim_stop(w.sim, 1, false);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_that_dies_at_any_post_is_named_by_all),
        cmocka_unit_test(a_rank_that_stops_at_any_post_is_named_by_all),
        cmocka_unit_test(a_lost_message_ends_the_step_on_all_ranks),
        cmocka_unit_test(a_link_that_fails_ends_the_step_on_all_ranks),
        cmocka_unit_test(what_a_link_may_do_changes_nothing),
        cmocka_unit_test(ranks_that_were_given_different_things_do_not_open),
        cmocka_unit_test(an_abort_ends_all_ranks_and_says_whose_it_was),
        cmocka_unit_test(an_abort_ends_a_wait_at_once),
        cmocka_unit_test(an_abort_of_the_waiting_rank_itself_ends_its_wait),
        cmocka_unit_test(closing_in_the_middle_of_a_step_is_told_to_the_others),
        cmocka_unit_test(a_rank_that_is_cut_off_is_named_and_everybody_ends),
        cmocka_unit_test(two_ranks_that_cannot_reach_each_other_end_everybody),
        cmocka_unit_test(a_rank_that_never_declares_is_named_with_its_step),
        cmocka_unit_test(a_rank_that_comes_within_the_deadline_is_waited_for),
        cmocka_unit_test(a_forked_child_is_refused_and_the_parent_goes_on),
        cmocka_unit_test(closing_is_lawful_at_any_time_and_once),
        cmocka_unit_test(closing_waits_for_those_who_are_late_but_not_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
