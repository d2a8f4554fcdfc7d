/* The collective over nodes of ranks that share memory, over the simulator's nodes: sums bit by
 * bit, nodes of any size, the traffic, and every post that meets a fault.
 * link: wrap gf_node_host_id_set */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/real_links.h"
#include "firmware-tests/support/coll_fault.h"

static const uint32_t shapes[][8] = {{1, 3}, {3, 1},       {2, 2},    {3, 2, 1},       {2, 2, 2, 2},
                                     {5},    {1, 1, 1, 1}, {4, 4, 4}, {2, 3, 2, 4, 2}, {9, 3}};

static struct coll_case case_of(const uint32_t *shape, uint64_t elem_count, gf_type type)
{
    struct coll_case c = {.kind = &gf_coll_hierarchy,
                          .collective = GF_COLL_ALLREDUCE,
                          .elem_count = elem_count,
                          .type = type,
                          .slice_bytes = 64,
                          .window = 2};
    memcpy(c.node_ranks, shape, sizeof c.node_ranks);
    for (uint32_t n = 0; n < 8; n++) c.size += shape[n];
    return c;
}

static struct gf_sim_setup network_of(void)
{
    struct gf_sim_setup sim = world_network;
    sim.node_latency_ns = 700;
    return sim;
}

TEST(every_shape_count_and_type_ends_with_the_right_bits)
{
    static const uint64_t counts[] = {0, 1, 33, 65, 701};
    static const uint64_t limits[] = {0, 200, UINT64_MAX}; /* ring; either by the block; halving */
    struct gf_sim_setup sim = network_of();
    for (size_t row = 0; row < LENGTH(shapes) * LENGTH(counts) * LENGTH(limits) * GF_TYPE_COUNT;
         row++) {
        size_t rest = row / GF_TYPE_COUNT;
        struct coll_case c =
            case_of(shapes[rest % LENGTH(shapes)], 0, (gf_type)(row % GF_TYPE_COUNT));
        rest /= LENGTH(shapes);
        c.elem_count = counts[rest % LENGTH(counts)];
        c.halving_max_bytes = limits[rest / LENGTH(counts)];
        c.window = 1 + (uint32_t)row % 3;
        coll_group_run_once(&c, &sim, false);
        c.staged = UINT32_MAX; /* nobody's data lies in the region */
        coll_group_run_once(&c, &sim, false);
        c.staged = 0x5a; /* some ranks' */
        coll_group_run_once(&c, NULL, false);
    }
}

/* Stages overlap in a node whose data lies in the region, not in one whose data does not. Messages
 * are as large. */
TEST(nodes_whose_stages_overlap_meet_nodes_whose_do_not)
{
    static const uint32_t staged[] = {0, 0x3, 0x8, UINT32_MAX};
    for (size_t i = 0; i < LENGTH(staged); i++) {
        struct coll_case c = case_of(shapes[2], 262144, GF_TYPE_F32);
        c.slice_bytes = 262144;
        c.staged = staged[i];
        coll_group_run_once(&c, NULL, false);
    }
}

/* With halving the very bits of an element are those of the vector alone. */
TEST(sums_by_halving_do_not_depend_on_the_position)
{
    SIM_ONLY;
    for (size_t s = 0; s < LENGTH(shapes); s++) {
        for (int type = 0; type < GF_TYPE_COUNT; type++) {
            struct coll_case c = case_of(shapes[s], 100, (gf_type)type);
            c.halving_max_bytes = UINT64_MAX;
            assert_true(coll_group_same_inside(&c, NULL, 0));
        }
    }
}

/* Between 2 nodes of 2 each owner sends its half's ring: 2 blocks of a quarter. */
TEST(only_blocks_cross_between_nodes)
{
    struct coll_case c = case_of(shapes[2], 1024, GF_TYPE_F32);
    struct coll_case one_node = case_of(shapes[5], 1024, GF_TYPE_F32);
    COLL_GROUP_OPEN(world, &c, NULL);
    coll_group_go(&world, 0);
    for (uint32_t i = 0; i < c.size; i++) {
        assert_int_equal(world.nodes[i].coll.bytes_done, 2048);
        assert_true(world.nodes[i].coll.bytes_mapped > 0);
    }
    COLL_GROUP_OPEN(alone, &one_node, NULL);
    coll_group_go(&alone, 0);
    assert_int_equal(gf_sim_counts(alone.sim)->messages_sent, 0);
}

/* Infinite in one node, and only as a sum of both nodes. */
TEST(sums_that_are_not_finite_are_found_by_their_index)
{
    for (uint32_t way = 0; way < 4; way++) {
        struct coll_case c = case_of(shapes[3], 1000, GF_TYPE_F16);
        uint64_t count;
        uint64_t first;
        c.halving_max_bytes = (way & 1) ? UINT64_MAX : 0;
        COLL_GROUP_OPEN(world, &c, NULL);
        memset(coll_group_data(&world, 4), 0, coll_group_data_bytes(&world));
        /* 57344: the second makes it too large */
        ((uint16_t *)coll_group_data(&world, 0))[641] = 0x7b00;
        ((uint16_t *)coll_group_data(&world, (way & 2) ? 1 : 4))[641] = 0x7b00;
        coll_group_bad(&world, &count, &first);
        assert_true(count >= 1);
        assert_int_equal(first, 641);
    }
}

/* More operations than L, a rank ahead of the others in turn. */
TEST(operations_follow_each_other_in_the_same_rows)
{
    struct gf_sim_setup sim = network_of();
    for (size_t s = 0; s < 5; s++) {
        struct coll_case c = case_of(shapes[s], 200, GF_TYPE_F32);
        COLL_GROUP_OPEN(world, &c, &sim);
        for (uint64_t op = 0; op < 3 * GF_DIRECT_OPS_MAX; op++) {
            c.staged = (op % 3 == 0) ? UINT32_MAX : 0;
            coll_group_fill(&world, false);
            for (uint32_t i = 0; i < c.size; i++) {
                coll_group_start(&world, (uint32_t)(op + i) % c.size, op);
                coll_group_poll(&world, (uint32_t)(op + i) % c.size);
            }
            coll_group_run(&world);
            coll_group_expect(&world, GF_OK);
            coll_group_check(&world);
        }
    }
}

/* A network that takes longer than the deadline altogether: ranks without a block see nothing of it
 * but signs. */
TEST(a_slow_network_is_no_silence_to_ranks_without_a_block)
{
    SIM_ONLY;
    struct gf_sim_setup slow = {.latency_ns = COLL_TIMEOUT_NS * 3ull / 4};
    struct coll_case c = case_of(shapes[0], 400, GF_TYPE_F32);
    COLL_GROUP_OPEN(world, &c, &slow);
    coll_group_fill(&world, false);
    for (uint32_t i = 0; i < c.size; i++) {
        coll_group_start(&world, i, 3);
        for (uint64_t quarter = 1; quarter < 200; quarter++)
            gf_sim_wake_at(world.sim, i, quarter * COLL_TIMEOUT_NS / 4);
    }
    coll_group_run(&world);
    coll_group_expect(&world, GF_OK);
    assert_true(gf_sim_now_ns(world.sim) > 2ull * COLL_TIMEOUT_NS);
    coll_group_check(&world);
}

/* A rank that never comes: whoever of its node waits for it names it. */
TEST(a_silent_rank_is_named)
{
    SIM_ONLY;
    for (uint32_t silent = 0; silent < 4; silent++) {
        struct coll_case c = case_of(shapes[2], 400, GF_TYPE_F32);
        COLL_GROUP_OPEN(world, &c, NULL);
        for (uint32_t i = 0; i < 4; i++)
            if (i != silent) coll_group_start(&world, i, 0);
        coll_group_run(&world);
        for (uint32_t i = 0; i < 4; i++) {
            /* else its equal of the other node */
            uint32_t waits_for = (i / 2 == silent / 2) ? silent : (i + 2) % 4;
            if (i == silent) continue;
            assert_int_equal(world.nodes[i].status, GF_ERR_TIMEOUT);
            assert_int_equal(world.nodes[i].coll.waits_for, waits_for);
        }
    }
}

/* ---- faults ---- */

TEST(every_post_meets_every_fault)
{
    SIM_ONLY;
    struct gf_sim_setup sim = network_of();
    for (size_t s = 0; s < 5; s++) {
        for (uint32_t halving = 0; halving < 2; halving++) {
            struct coll_case c = case_of(shapes[s], 70, GF_TYPE_F32);
            c.halving_max_bytes = halving ? UINT64_MAX : 0;
            c.window = 1 + (uint32_t)s % 3;
            coll_fault_each(&c, &sim);
        }
    }
}
