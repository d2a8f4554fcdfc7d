/* Whole contexts with exchange.algorithm = hierarchy over the simulator's nodes. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "lib/context.h"

static const struct gf_tensor tensors[] = {
    {.name = "a", .elem_count = 3000}, {.name = "b", .elem_count = 10}, {.name = "c", .elem_count = 2001},
    {.name = "d", .elem_count = 1}, {.name = "e", .elem_count = 777}};
static const uint32_t shapes[][8] = {{1, 3}, {2, 2}, {3, 2, 1}, {2, 2, 2, 2}, {4}, {1, 1, 1}};

static struct world_setup setup_of(const uint32_t *shape)
{
    struct world_setup setup = {.tensors = tensors, .tensor_count = LENGTH(tensors),
                                .sim = {.seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .node_latency_ns = 300,
                                        .bind_receives = true, .detect_ns = 5000000}};
    memcpy(setup.sim.node_ranks, shape, sizeof setup.sim.node_ranks);
    for (uint32_t n = 0; n < 8; n++) setup.world += shape[n];
    setup.config.exchange.algorithm = GF_ALGORITHM_HIERARCHY;
    setup.config.exchange.fuse_bytes = 8192;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.link.window = 2;
    setup.config.trace_records = 64;
    return setup;
}

TEST(steps_are_summed_over_nodes_of_any_size)
{
    for (size_t s = 0; s < LENGTH(shapes); s++) {
        struct world_setup setup = setup_of(shapes[s]);
        struct world_step step = {.order = WORLD_ROTATED};
        struct gf_trace_record records[64];
        uint32_t found = 0, count;
        WORLD_OPEN(w, &setup);
        for (uint32_t repeat = 0; repeat < 3; repeat++) {
            world_step_ok(&w, &step);
            world_expect_sums(&w, 1.0f);
            world_expect_equal(&w);
        }
        count = gf_trace_read(w.ranks[0].gf, records, 64);
        for (uint32_t i = 0; i < count; i++) found += records[i].algorithm == GF_ALGORITHM_HIERARCHY;
        assert_true(found >= 3);
    }
}

/* Element 5 of tensor c: `low` on rank 1, `high` on rank 0; on all others 0. */
struct pair { float high, low; };

static void fill_pair(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct pair *pair = arg;
    world_fill(w, rank, tensor, gradient, NULL);
    if (tensor == 2) ((float *)gradient)[5] = (rank == 0) ? pair->high : (rank == 1) ? pair->low : 0.0f;
}

/* What leaves a node is rounded to the wire's type, what stays is not. */
TEST(a_16_bit_wire_rounds_between_nodes_alone)
{
    static const struct wire_case {
        const uint32_t *shape;
        struct pair pair;
        float sum; /* 0: the step is skipped, as the wire cannot hold it */
    } cases[] = {{shapes[1], {70000.0f, -68000.0f}, 2000.0f}, /* no rank's value fits, the node's sum does */
                 {shapes[1], {4097.0f, 1.5f}, 4100.0f},       /* 4098.5 to a multiple of 4 */
                 {shapes[1], {65504.0f, 65504.0f}, 0},
                 {shapes[2], {70000.0f, -68000.0f}, 2000.0f},
                 {shapes[4], {70000.0f, 68000.5f}, 138000.5f}, /* one node */
                 {shapes[5], {4097.0f, 1.5f}, 4096.0f}};       /* two nodes: 4096 + 1.5 to a multiple of 4 */
    for (size_t i = 0; i < LENGTH(cases); i++) {
        uint64_t wire_bytes[2] = {0};
        for (uint32_t wire = 0; wire < 2; wire++) {
            struct world_setup setup = setup_of(cases[i].shape);
            struct pair pair = cases[i].pair;
            struct world_step step = {.fill = fill_pair, .arg = &pair};
            bool skipped = (wire == GF_TYPE_F16) && (cases[i].sum == 0);
            setup.config.exchange.wire = (gf_type)wire;
            setup.config.exchange.fuse_bytes = 1u << 20; /* the same operations with both */
            setup.config.exchange.doubling_max_bytes = 0;
            WORLD_OPEN(w, &setup);
            world_step_ok(&w, &step);
            assert_int_equal(gf_step_skipped(w.ranks[0].gf), skipped);
            if (wire == 0) assert_true(world_get(GF_TYPE_F32, world_gradient(&w, 1, 2), 5) == pair.high + pair.low);
            else if (!skipped) assert_true(world_get(GF_TYPE_F32, world_gradient(&w, 1, 2), 5) == cases[i].sum);
            if (skipped) world_expect_log(&w, 0, "every local gradient was finite");
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
                 {{4}, {{0, 3}, {1, 2}}, 1, 0, "hierarchy: ranks 0 and 1 share memory with different ranks"}};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct world_setup setup = setup_of(cases[i].shape);
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

/* ---- auto ---- */

static uint32_t traced(gf_context *gf, gf_algorithm algorithm)
{
    struct gf_trace_record records[64];
    uint32_t found = 0, count = gf_trace_read(gf, records, 64);
    for (uint32_t i = 0; i < count; i++)
        found += (records[i].operation == GF_OPERATION_STEP) && (records[i].algorithm == (uint32_t)algorithm);
    return found;
}

TEST(auto_takes_it_on_two_whole_nodes_or_where_each_rank_has_a_network_device)
{
    static const struct auto_case {
        uint32_t shape[8];
        bool integrity, deterministic;
        uint32_t cards; /* a node; 0: not known */
        uint32_t blind[2][2];
        gf_algorithm taken; /* by what is larger than exchange.doubling_max_bytes */
    } cases[] = {
        {.shape = {2, 2}, .taken = GF_ALGORITHM_HIERARCHY},
        {.shape = {5, 3}, .taken = GF_ALGORITHM_HIERARCHY},
        {.shape = {2, 2, 2}, .taken = GF_ALGORITHM_RING},
        {.shape = {2, 2, 2}, .cards = 2, .taken = GF_ALGORITHM_HIERARCHY},
        {.shape = {2, 2, 2}, .cards = 1, .taken = GF_ALGORITHM_RING},
        {.shape = {3, 3, 3}, .cards = 2, .taken = GF_ALGORITHM_RING}, /* two ranks of three share one */
        {.shape = {3, 1}, .taken = GF_ALGORITHM_RING},
        {.shape = {1, 1}, .taken = GF_ALGORITHM_RING},
        {.shape = {4}, .taken = GF_ALGORITHM_DIRECT},
        {.shape = {2, 2}, .integrity = true, .taken = GF_ALGORITHM_RING},
        {.shape = {2, 2}, .deterministic = true, .taken = GF_ALGORITHM_HALVING},
        {.shape = {2, 3}, .blind = {{2, 4}}, .taken = GF_ALGORITHM_RING}, /* and it is no error */
        {.shape = {2, 2}, .blind = {{2, 3}}, .taken = GF_ALGORITHM_RING},
    };
    for (size_t row = 0; row < LENGTH(cases); row++) {
        const struct auto_case *c = &cases[row];
        struct world_setup setup = setup_of(c->shape);
        struct world_step step = {.order = WORLD_ROTATED};
        memcpy(setup.sim.blind, c->blind, sizeof c->blind);
        setup.sim.node_port = c->cards > 0;
        setup.sim.node_cards = c->cards;
        if (c->cards > 0) setup.sim.ranks_per_node = c->shape[0];
        setup.config.exchange.algorithm = GF_ALGORITHM_AUTO;
        setup.config.exchange.doubling_max_bytes = 8;
        setup.config.exchange.halving_max_bytes = 16;
        setup.config.exchange.deterministic = c->deterministic;
        setup.config.link.integrity = c->integrity;
        WORLD_OPEN(w, &setup);
        for (uint32_t repeat = 0; repeat < 3; repeat++) {
            world_step_ok(&w, &step);
            world_expect_sums(&w, 1.0f);
        }
        for (uint32_t rank = 0; rank < w.world; rank++)
            if (traced(w.ranks[rank].gf, c->taken) < 3)
                fail_msg("row %zu, rank %u: %s was not taken", row, rank, gf_algorithm_name(c->taken));
    }
}
