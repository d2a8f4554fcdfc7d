/* Whole contexts over the simulated network whose ranks share memory, all of them or those of a
 * node: who is served by it and how, sums over nodes of any size. Deaths, stops and aborts while
 * flags are awaited, and survivors that go on: the soak's jobs. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "lib/context.h"
#include "ops/node/direct.h"

static const struct gf_tensor tensors[] = {{.name = "a", .elem_count = 3000},
                                           {.name = "b", .elem_count = 10},
                                           {.name = "c", .elem_count = 2001},
                                           {.name = "d", .elem_count = 1},
                                           {.name = "e", .elem_count = 777}};
static const uint32_t shapes[][8] = {{1, 3}, {2, 2}, {3, 2, 1}, {2, 2, 2, 2}, {4}, {1, 1, 1}};

static struct world_setup setup_of(const uint32_t *shape, gf_algorithm algorithm)
{
    struct world_setup setup = {.tensors = tensors,
                                .tensor_count = LENGTH(tensors),
                                .sim = {.seed = 1,
                                        .latency_ns = 5000,
                                        .jitter_ns = 20000,
                                        .node_latency_ns = 300,
                                        .bind_receives = true,
                                        .detect_ns = 5000000}};
    memcpy(setup.sim.node_ranks, shape, sizeof setup.sim.node_ranks);
    for (uint32_t n = 0; n < 8; n++) setup.world += shape[n];
    setup.config.exchange.algorithm = algorithm;
    setup.config.exchange.timeout_ns = 200000000;
    setup.config.exchange.fuse_bytes = 8192;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.link.window = 2;
    setup.config.trace_records = 64;
    return setup;
}

/* Records since they were read last: those of this algorithm, of steps and votes or of steps alone;
 * and all. */
static uint32_t traced(struct world *w, uint32_t rank, gf_algorithm algorithm, bool votes,
                       uint32_t *all_out)
{
    struct gf_trace_record records[64];
    uint32_t found = 0;
    *all_out = gf_trace_read(w->ranks[rank].gf, records, 64);
    for (uint32_t i = 0; i < *all_out; i++) {
        bool counts = votes || (records[i].operation == GF_OPERATION_STEP);
        found += counts && (records[i].algorithm == (uint32_t)algorithm);
    }
    return found;
}

/* ---- one node ---- */

/* A step, of which every operation, the vote too, must (not) have gone through memory. */
static void expect_served(struct world_setup *setup, bool by_memory)
{
    struct world_step step = {.order = WORLD_FORWARD};
    uint64_t messages;
    WORLD_OPEN(w, setup);
    messages = gf_sim_counts(w.sim)->messages_sent;
    world_step_ok(&w, &step);
    world_expect_sums(&w, 1.0f);
    assert_int_equal(gf_sim_counts(w.sim)->messages_sent == messages, by_memory);
    for (uint32_t rank = 0; rank < w.world; rank++) {
        uint32_t all;
        uint32_t direct = traced(&w, rank, GF_ALGORITHM_DIRECT, true, &all);
        assert_true(all > 1);
        assert_int_equal(direct, by_memory ? all : 0);
        assert_int_equal(world_stats(&w, rank).mapped_bytes > 0, by_memory);
    }
}

TEST(auto_takes_memory_where_all_share_it)
{
    for (uint32_t world = 2; world <= 9; world++) {
        struct world_setup setup = setup_of((const uint32_t[8]){world}, GF_ALGORITHM_AUTO);
        expect_served(&setup, true);
        setup.config.exchange.algorithm = GF_ALGORITHM_DIRECT;
        expect_served(&setup, true);
        setup.config.exchange.algorithm = GF_ALGORITHM_RING;
        expect_served(&setup, false);
    }
}

/* Two nodes: hierarchy, below. */
TEST(auto_keeps_to_messages_where_some_do_not_share)
{
    static const uint32_t rows[][8] = {{1, 1, 1, 1, 1}, {2, 2, 1}, {4, 1}};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct world_setup setup = setup_of(rows[i], GF_ALGORITHM_AUTO);
        expect_served(&setup, false);
    }
}

static gf_status survivors_progress(struct world *w, uint32_t rank, void *arg)
{
    return gf_sim_runs(w->sim, rank) ? world_step_progress(w, rank, arg) : GF_AGAIN;
}

static void act_kill_two(struct world *w, uint32_t rank)
{
    gf_sim_kill(w->sim, rank);
    gf_sim_kill(w->sim, rank - 1);
}

/* Flags were laid out for none: a world that shrinks to as many as they could serve has no memory
 * for them. */
TEST(survivors_of_a_world_too_large_keep_to_messages)
{
    enum { WORLD = GF_DIRECT_RANKS_MAX + 2 };
    struct world_setup setup = setup_of((const uint32_t[8]){WORLD}, GF_ALGORITHM_AUTO);
    struct world_step step = {.order = WORLD_FORWARD};
    setup.config.rendezvous.join_timeout_ns = UINT64_C(8000000000);
    setup.config.job.elastic = true;
    WORLD(w);
    (void)world_interrupted_run(&w, &setup, WORLD - 1, 3, act_kill_two);
    world_run(&w, world_regroup_progress, NULL);
    world_run(&w, survivors_progress, &step);
    for (uint32_t rank = 0; rank < WORLD - 2; rank++) {
        assert_int_equal(w.ranks[rank].status, GF_OK);
        assert_int_equal(gf_world(w.ranks[rank].gf), WORLD - 2);
        for (uint32_t t = 0; t < LENGTH(tensors); t++) {
            const float *gradient = world_gradient(&w, rank, t);
            for (uint64_t e = 0; e < tensors[t].elem_count; e++)
                assert_true(gradient[e] == world_sum(WORLD - 2, t, e));
        }
    }
}

/* ---- several nodes ---- */

TEST(steps_are_summed_over_nodes_of_any_size)
{
    for (size_t s = 0; s < LENGTH(shapes); s++) {
        struct world_setup setup = setup_of(shapes[s], GF_ALGORITHM_HIERARCHY);
        struct world_step step = {.order = WORLD_ROTATED};
        uint32_t all;
        WORLD_OPEN(w, &setup);
        for (uint32_t repeat = 0; repeat < 3; repeat++) {
            world_step_ok(&w, &step);
            world_expect_sums(&w, 1.0f);
            world_expect_equal(&w);
        }
        assert_true(traced(&w, 0, GF_ALGORITHM_HIERARCHY, true, &all) >= 3);
    }
}

/* Element 5 of tensor c: `low` on rank 1, `high` on rank 0; on all others 0. */
struct pair {
    float high, low;
};

static void fill_pair(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct pair *pair = arg;
    world_fill(w, rank, tensor, gradient, NULL);
    if (tensor == 2)
        ((float *)gradient)[5] = (rank == 0) ? pair->high : (rank == 1) ? pair->low : 0.0f;
}

#define AT_5 ", tensor 2 \"c\", element 5"
#define FIRST_ON "1 values are not finite, first on rank "
#define SUM_LEFT AT_5 "; every local gradient was finite"

/* What leaves a node is rounded to the wire's type, what stays is not. */
TEST(a_16_bit_wire_rounds_between_nodes_alone)
{
    static const struct wire_case {
        const uint32_t *shape;
        struct pair pair;
        float sum;       /* 0: the step is skipped, as the wire cannot hold it, */
        const char *log; /* and why */
    } cases[] = {
        /* no rank's value fits, the node's sum does */
        {shapes[1], {70000.0f, -68000.0f}, 2000.0f, NULL},
        {shapes[1], {4097.0f, 1.5f}, 4100.0f, NULL}, /* 4098.5 to a multiple of 4 */
        {shapes[1], {65504.0f, 65504.0f}, 0, SUM_LEFT},
        {shapes[2], {70000.0f, -68000.0f}, 2000.0f, NULL},
        {shapes[0], {1.5f, 70000.0f}, 0, SUM_LEFT}, /* rank 1 is one of three in its node, */
        {shapes[0], {70000.0f, 1.5f}, 0, FIRST_ON "0" AT_5}, /* rank 0 alone */
        {shapes[4], {70000.0f, 68000.5f}, 138000.5f, NULL},  /* one node */
        /* two nodes: 4096 + 1.5 to a multiple of 4 */
        {shapes[5], {4097.0f, 1.5f}, 4096.0f, NULL}};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        uint64_t wire_bytes[2] = {0};
        for (uint32_t wire = 0; wire < 2; wire++) {
            struct world_setup setup = setup_of(cases[i].shape, GF_ALGORITHM_HIERARCHY);
            struct pair pair = cases[i].pair;
            struct world_step step = {.fill = fill_pair, .arg = &pair};
            bool skipped = (wire == GF_TYPE_F16) && (cases[i].sum == 0);
            setup.config.exchange.wire = (gf_type)wire;
            setup.config.exchange.fuse_bytes = 1u << 20; /* the same operations with both */
            setup.config.exchange.doubling_max_bytes = 0;
            WORLD_OPEN(w, &setup);
            world_step_ok(&w, &step);
            assert_int_equal(gf_step_skipped(w.ranks[0].gf), skipped);
            if (wire == 0)
                assert_true(world_get(GF_TYPE_F32, world_gradient(&w, 1, 2), 5) ==
                            pair.high + pair.low);
            else if (!skipped)
                assert_true(world_get(GF_TYPE_F32, world_gradient(&w, 1, 2), 5) == cases[i].sum);
            for (uint32_t rank = 0; skipped && (rank < w.world); rank++)
                world_expect_log(&w, rank, cases[i].log);
            wire_bytes[wire] = world_stats(&w, 0).last_wire_bytes;
        }
        if (cases[i].shape != shapes[4]) assert_true(wire_bytes[1] * 10 < wire_bytes[0] * 6);
    }
}

TEST(nodes_that_are_not_whole_are_refused_by_name)
{
    static const struct odd_case {
        uint32_t shape[8], blind[2][2], odd, lowest;
        const char *said;
    } cases[] = {{{1, 3}, {{2, 3}}, 2, 1, "hierarchy: rank 2 shares memory with 2 ranks"},
                 {{4},
                  {{0, 3}, {1, 2}},
                  1,
                  0,
                  "hierarchy: ranks 0 and 1 share memory with different ranks"}};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct world_setup setup = setup_of(cases[i].shape, GF_ALGORITHM_HIERARCHY);
        memcpy(setup.sim.blind, cases[i].blind, sizeof cases[i].blind);
        WORLD_CREATE(w, &setup);
        world_join(&w);
        for (uint32_t rank = 0; rank < w.world; rank++) {
            assert_int_equal(w.ranks[rank].status, GF_ERR_CONFIG);
            uint32_t culprit = (rank == cases[i].odd) ? cases[i].lowest : cases[i].odd;
            assert_int_equal(gf_error_last(w.ranks[rank].gf)->peer, culprit);
            world_expect_log(&w, rank, cases[i].said);
        }
    }
}

TEST(auto_takes_it_on_whole_nodes_of_several_ranks)
{
    static const struct auto_case {
        uint32_t shape[8];
        bool deterministic;
        uint32_t cards; /* a node; 0: not known */
        uint32_t ports; /* devices that its owners leave by; 0: it is not taken */
        uint32_t blind[2][2];
        gf_algorithm taken; /* by what is larger than exchange.doubling_max_bytes */
    } cases[] = {
        {.shape = {2, 2}, .ports = 1, .taken = GF_ALGORITHM_HIERARCHY},
        {.shape = {5, 3}, .ports = 1, .taken = GF_ALGORITHM_HIERARCHY},
        {.shape = {2, 2, 2}, .ports = 1, .taken = GF_ALGORITHM_HIERARCHY},
        {.shape = {2, 2, 2}, .cards = 2, .ports = 2, .taken = GF_ALGORITHM_HIERARCHY},
        {.shape = {2, 2, 2}, .cards = 1, .ports = 1, .taken = GF_ALGORITHM_HIERARCHY},
        /* two of three share one */
        {.shape = {3, 3, 3}, .cards = 2, .ports = 1, .taken = GF_ALGORITHM_HIERARCHY},
        {.shape = {3, 1}, .taken = GF_ALGORITHM_RING},
        {.shape = {1, 1}, .taken = GF_ALGORITHM_RING},
        {.shape = {4}, .taken = GF_ALGORITHM_DIRECT},
        {.shape = {2, 2}, .deterministic = true, .taken = GF_ALGORITHM_HALVING},
        {.shape = {2, 3}, .blind = {{2, 4}}, .taken = GF_ALGORITHM_RING}, /* and it is no error */
        {.shape = {2, 2}, .blind = {{2, 3}}, .taken = GF_ALGORITHM_RING},
    };
    for (size_t row = 0; row < LENGTH(cases); row++) {
        const struct auto_case *c = &cases[row];
        struct world_setup setup = setup_of(c->shape, GF_ALGORITHM_AUTO);
        struct world_step step = {.order = WORLD_ROTATED};
        memcpy(setup.sim.blind, c->blind, sizeof c->blind);
        setup.sim.node_port = c->cards > 0;
        setup.sim.node_cards = c->cards;
        if (c->cards > 0) setup.sim.ranks_per_node = c->shape[0];
        setup.config.exchange.doubling_max_bytes = 8;
        setup.config.exchange.halving_max_bytes = 16;
        setup.config.exchange.deterministic = c->deterministic;
        WORLD_OPEN(w, &setup);
        for (uint32_t repeat = 0; repeat < 3; repeat++) {
            world_step_ok(&w, &step);
            world_expect_sums(&w, 1.0f);
        }
        for (uint32_t rank = 0; (c->ports > 0) && (rank < w.world); rank++)
            assert_int_equal(w.ranks[rank].gf->nodes.of.halving_max_bytes, 16 * c->ports);
        for (uint32_t rank = 0, all; rank < w.world; rank++)
            if (traced(&w, rank, c->taken, false, &all) < 3)
                fail_msg("row %zu, rank %u: %s was not taken", row, rank,
                         gf_algorithm_name(c->taken));
    }
}
