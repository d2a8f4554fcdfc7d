/* Whole contexts whose ranks share memory, over the simulated network: who is served by it, sums that do not depend on
 * how they were cut. Deaths, stops and aborts while flags are awaited, and survivors that go on: the soak's jobs. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "ops/node/direct.h"

#define TIMEOUT_NS UINT64_C(200000000)
#define DETECT_NS UINT64_C(5000000)

static const struct gf_tensor tensors[] = {
    {.name = "a", .elem_count = 3000}, {.name = "b", .elem_count = 10}, {.name = "c", .elem_count = 2001},
    {.name = "d", .elem_count = 1}, {.name = "e", .elem_count = 777}};

static struct world_setup setup_of(uint32_t world)
{
    struct world_setup setup = {.world = world, .tensors = tensors, .tensor_count = LENGTH(tensors),
                                .sim = {.seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .node_latency_ns = 300,
                                        .ranks_per_node = world, .bind_receives = true, .detect_ns = DETECT_NS}};
    setup.config.exchange.timeout_ns = TIMEOUT_NS;
    setup.config.exchange.fuse_bytes = 8192;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.link.window = 2;
    setup.config.trace_records = 64;
    return setup;
}

static uint32_t records_with(struct world *w, uint32_t rank, gf_algorithm algorithm, uint32_t *all_out)
{
    struct gf_trace_record records[64];
    uint32_t found = 0, count = gf_trace_read(w->ranks[rank].gf, records, 64);
    for (uint32_t i = 0; i < count; i++) found += records[i].algorithm == (uint32_t)algorithm;
    *all_out = count;
    return found;
}

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
        uint32_t all, direct = records_with(&w, rank, GF_ALGORITHM_DIRECT, &all);
        assert_true(all > 1);
        assert_int_equal(direct, by_memory ? all : 0);
        assert_int_equal(world_stats(&w, rank).mapped_bytes > 0, by_memory);
    }
}

TEST(auto_takes_it_where_all_share_memory)
{
    for (uint32_t world = 2; world <= 9; world++) {
        struct world_setup setup = setup_of(world);
        expect_served(&setup, true);
        setup.config.exchange.algorithm = GF_ALGORITHM_DIRECT;
        expect_served(&setup, true);
        setup.config.exchange.algorithm = GF_ALGORITHM_RING;
        expect_served(&setup, false);
    }
}

TEST(auto_keeps_to_messages_where_some_do_not_share)
{
    for (uint32_t per_node = 1; per_node < 5; per_node++) {
        if (per_node == 3) continue; /* two nodes: hierarchy (test_hierarchy_world) */
        struct world_setup setup = setup_of(5);
        setup.sim.ranks_per_node = per_node;
        expect_served(&setup, false);
    }
}

/* Checksums cover messages: who asked for them keeps them. */
TEST(auto_keeps_to_messages_where_integrity_is_asked_for)
{
    struct world_setup setup = setup_of(3);
    setup.config.link.integrity = true;
    expect_served(&setup, false);
}

/* ---- failures ---- */

static gf_status survivors_progress(struct world *w, uint32_t rank, void *arg)
{
    return gf_sim_runs(w->sim, rank) ? world_step_progress(w, rank, arg) : GF_AGAIN;
}

static void act_kill_two(struct world *w, uint32_t rank)
{
    gf_sim_kill(w->sim, rank);
    gf_sim_kill(w->sim, rank - 1);
}

/* Flags were laid out for none: a world that shrinks to as many as they could serve has no memory for them. */
TEST(survivors_of_a_world_too_large_keep_to_messages)
{
    enum { WORLD = GF_DIRECT_RANKS_MAX + 2 };
    struct world_setup setup = setup_of(WORLD);
    struct world_step step = {.order = WORLD_FORWARD};
    setup.config.rendezvous.join_timeout_ns = UINT64_C(8000000000);
    WORLD(w);
    (void)world_interrupted_run(&w, &setup, WORLD - 1, 3, act_kill_two);
    world_run(&w, world_shrink_progress, NULL);
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
