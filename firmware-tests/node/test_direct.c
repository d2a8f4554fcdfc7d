/* The collective through shared memory, over the simulator's: results and their bits, where data
 * may lie, ranks that stop, die or differ, and operations that follow each other in the same
 * rows. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/coll_group.h"

static const gf_collective collectives[] = {GF_COLL_ALLREDUCE, GF_COLL_REDUCE_SCATTER,
                                            GF_COLL_ALLGATHER, GF_COLL_BROADCAST, GF_COLL_BARRIER};
static const struct gf_sim_setup node_delay = {.seed = 5, .node_latency_ns = 700};

static struct coll_case case_of(gf_collective collective, uint32_t size, uint64_t elem_count,
                                gf_type type)
{
    return (struct coll_case){.kind = &gf_coll_direct,
                              .collective = collective,
                              .size = size,
                              .elem_count = elem_count,
                              .type = type,
                              .slice_bytes = 256,
                              .window = 2,
                              .root = (collective == GF_COLL_BROADCAST) ? size / 2 : 0};
}

TEST(every_world_count_and_type_ends_with_the_right_bits)
{
    static const uint64_t counts[] = {0, 1, 2, 15, 64, 65, 100, 1000, 4099};
    for (size_t o = 0; o < LENGTH(collectives); o++) {
        for (uint32_t size = 1; size <= 9; size++) {
            for (size_t n = 0; n < LENGTH(counts); n++) {
                for (int type = 0; type < GF_TYPE_COUNT; type++) {
                    struct coll_case c = case_of(collectives[o], size, counts[n], (gf_type)type);
                    coll_group_run_once(&c, &node_delay, false);
                    c.staged = UINT32_MAX; /* nobody's data lies in the region */
                    coll_group_run_once(&c, &node_delay, false);
                    c.staged = 0x5a; /* some ranks' */
                    coll_group_run_once(&c, NULL, false);
                    c.small_bytes = GF_DIRECT_SMALL_BYTES; /* one barrier for those that fit */
                    coll_group_run_once(&c, &node_delay, false);
                }
            }
        }
    }
}

TEST(a_group_of_the_world_is_served)
{
    static const uint32_t ranks[] = {5, 0, 3, 4};
    for (size_t o = 0; o < LENGTH(collectives); o++) {
        struct coll_case c = case_of(collectives[o], 4, 333, GF_TYPE_BF16);
        c.ranks = ranks;
        coll_group_run_once(&c, &node_delay, false);
        c.small_bytes = GF_DIRECT_SMALL_BYTES;
        coll_group_run_once(&c, &node_delay, false);
    }
}

/* The same values, alone and inside a longer vector, in place and staged. */
TEST(sums_do_not_depend_on_position_or_place)
{
    for (uint32_t size = 2; size <= 9; size++) {
        for (uint32_t way = 0; way < 4; way++) {
            struct coll_case c = case_of(GF_COLL_ALLREDUCE, size, 100, GF_TYPE_F32);
            c.small_bytes = (way & 2) ? 100 * sizeof(float) : 0; /* one barrier against two */
            assert_true(coll_group_same_inside(&c, NULL, (way & 1) ? UINT32_MAX : 0));
        }
    }
}

TEST(no_message_goes_out_and_bytes_touched_are_counted)
{
    for (uint32_t n = 2; n <= 9; n++) {
        struct coll_case c = case_of(GF_COLL_ALLREDUCE, n, 32 * n, GF_TYPE_F32);
        COLL_GROUP_OPEN(group, &c, NULL);
        coll_group_go(&group, 0);
        assert_int_equal(gf_sim_counts(group.sim)->messages_sent, 0);
        /* a block of 128 bytes, read from and written to each of n-1 */
        for (uint32_t i = 0; i < n; i++)
            assert_int_equal(group.nodes[i].coll.bytes_mapped, 2 * 128 * (n - 1));
    }
}

static struct gf_element_ops counting;
static uint64_t copied;
static gf_status copy_count(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    copied += size_bytes;
    return gf_element_ops_best()->copy(queue, dst, src, size_bytes);
}

/* The rest of the caller's memory goes into staging, and comes back. */
TEST(a_ranks_own_block_is_not_staged)
{
    for (uint32_t n = 2; n <= 9; n++) {
        struct coll_case c = case_of(GF_COLL_ALLREDUCE, n, 320 * n, GF_TYPE_F32);
        c.staged = UINT32_MAX;
        COLL_GROUP_OPEN(group, &c, NULL);
        coll_group_fill(&group, false);
        counting = *gf_element_ops_best();
        counting.copy = copy_count;
        copied = 0;
        for (uint32_t i = 0; i < n; i++) group.nodes[i].coll.ops = &counting;
        coll_group_go(&group, 0);
        coll_group_check(&group);
        assert_int_equal(copied, (uint64_t)n * (n - 1) * 2 * 320 * sizeof(float));
    }
}

TEST(sums_that_are_not_finite_are_found_by_their_index)
{
    for (uint32_t way = 0; way < 3; way++) {
        struct coll_case c = case_of(GF_COLL_ALLREDUCE, 6, 1000, GF_TYPE_F32);
        uint64_t count;
        uint64_t first;
        c.staged = (way == 1) ? UINT32_MAX : 0;
        c.small_bytes = (way == 2) ? GF_DIRECT_SMALL_BYTES : 0;
        COLL_GROUP_OPEN(group, &c, NULL);
        coll_group_fill(&group, true);
        ((float *)coll_group_data(&group, 2))[641] = 1.0f / 0.0f;
        coll_group_bad(&group, &count, &first);
        assert_int_equal(count, 1);
        assert_int_equal(first, 641);
    }
}

/* More operations than L; each rank runs ahead of the others in turn. With one barrier too, and
 * mixed. */
static void operations_follow(uint32_t small_bytes, uint64_t elems)
{
    for (uint32_t size = 2; size <= 5; size++) {
        struct coll_case c = case_of(GF_COLL_ALLREDUCE, size, elems, GF_TYPE_F32);
        c.small_bytes = small_bytes;
        COLL_GROUP_OPEN(group, &c, NULL);
        for (uint64_t op = 0; op < 5 * GF_DIRECT_OPS_MAX; op++) {
            for (uint32_t i = 0; (i < size) && (small_bytes == 1); i++) /* both ways in one row */
                group.nodes[i].own.direct.small_bytes =
                    (op / GF_DIRECT_OPS_MAX % 2) ? GF_DIRECT_SMALL_BYTES : 0;
            coll_group_fill(&group, false);
            for (uint32_t turn = 0; turn < size; turn++) {
                uint32_t i = (uint32_t)(op + turn) % size;
                coll_group_start(&group, i, op);
                coll_group_poll(&group, i);
                /* somebody has not begun */
                if (turn + 1 < size) assert_int_equal(group.nodes[i].status, GF_AGAIN);
            }
            coll_group_run(&group);
            coll_group_expect(&group, GF_OK);
            coll_group_check(&group);
        }
    }
}

TEST(operations_that_follow_each_other_keep_apart)
{
    operations_follow(0, 200);
    operations_follow(GF_DIRECT_SMALL_BYTES, 200);
    for (uint64_t elems = 1; elems <= GF_DIRECT_INLINE_BYTES / 4 + 1; elems++)
        operations_follow(GF_DIRECT_SMALL_BYTES, elems);
    operations_follow(1, 200);
}

/* With one barrier a rank is done while others have not yet read its copy. Here rank 2 is, and has
 * put its next copy and flag out, before rank 0 looks. */
static void copies_stay(uint32_t elems)
{
    enum { OPS = 3 * 2 * GF_DIRECT_OPS_MAX };
    struct coll_case c = case_of(GF_COLL_ALLREDUCE, 3, elems, GF_TYPE_F32);
    c.small_bytes = GF_DIRECT_SMALL_BYTES;
    COLL_GROUP_OPEN(group, &c, NULL);
    for (uint64_t op = 0; op < OPS; op++) {
        for (uint32_t i = 0; i < 3; i++) {
            if ((i == 2) && (op > 0)) continue; /* it has begun */
            for (uint32_t e = 0; e < elems; e++)
                ((float *)coll_group_data(&group, i))[e] = (float)(op * 3 + i + e);
            coll_group_start(&group, i, op);
        }
        assert_int_equal(gf_coll_poll(&group.nodes[2].coll, 0), GF_OK);
        for (uint32_t e = 0; e < elems; e++)
            ((float *)coll_group_data(&group, 2))[e] = (float)((op + 1) * 3 + 2 + e);
        coll_group_start(&group, 2, op + 1);
        assert_int_equal(gf_coll_poll(&group.nodes[2].coll, 0), GF_AGAIN);
        for (uint32_t i = 0; i < 2; i++) { /* rank 0 reads only now */
            group.nodes[i].status = gf_coll_poll(&group.nodes[i].coll, 0);
            assert_int_equal(group.nodes[i].status, GF_OK);
            for (uint32_t e = 0; e < elems; e++)
                assert_true(((float *)coll_group_data(&group, i))[e] ==
                            (float)(op * 9 + 3 + 3 * e));
        }
    }
    coll_group_start(&group, 0, OPS);
    coll_group_start(&group, 1, OPS);
    coll_group_run(&group);
}

TEST(a_copy_stays_until_all_have_read_it)
{
    copies_stay(40);
    copies_stay(GF_DIRECT_INLINE_BYTES / 4); /* beside the flag */
}

static gf_status copy_fails(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    return GF_ERR_DEVICE;
}

/* Into the regions of the others (beside the flag), or into its own: nobody is told that it is
 * there. */
TEST(a_copy_that_fails_ends_its_rank)
{
    static const uint64_t counts[] = {40, GF_DIRECT_INLINE_BYTES / 4};
    struct gf_element_ops failing = *gf_element_ops_best();
    failing.copy = copy_fails;
    for (size_t n = 0; n < LENGTH(counts); n++) {
        struct coll_case c =
            case_of((n == 0) ? GF_COLL_ALLGATHER : GF_COLL_ALLREDUCE, 3, counts[n], GF_TYPE_F32);
        c.small_bytes = GF_DIRECT_SMALL_BYTES;
        COLL_GROUP_OPEN(group, &c, NULL);
        coll_group_fill(&group, false);
        group.nodes[1].coll.ops = &failing;
        coll_group_go(&group, 0);
        assert_int_equal(group.nodes[1].status, GF_ERR_DEVICE);
        assert_int_equal(group.nodes[0].status, GF_ERR_TIMEOUT);
    }
}

/* Vectors that their owner reduces: in rank order, in its own data. */
TEST(folded_vectors_take_one_barrier)
{
    for (uint32_t size = 2; size <= 9; size++) {
        struct coll_case c = case_of(GF_COLL_ALLREDUCE, size, 37, GF_TYPE_F32);
        c.reduce_elem_bytes = 8;
        c.small_bytes = GF_DIRECT_SMALL_BYTES;
        COLL_GROUP_OPEN(group, &c, &node_delay);
        coll_group_fill(&group, false);
        coll_group_go(&group, 0);
        for (uint32_t i = 0; i < size; i++) {
            assert_int_equal(group.nodes[i].status, GF_OK);
            assert_int_equal(group.nodes[i].reduced_elems, 37 * (size - 1));
            assert_memory_equal(coll_group_data(&group, i), coll_group_data(&group, 0),
                                coll_group_data_bytes(&group));
        }
        coll_group_check(&group);
    }
}

/* A rank that never comes, or stops for good behind some of its turns: the others end with a
 * timeout and its name, and those that had all its flags end well. */
TEST(a_silent_rank_is_named)
{
    for (uint32_t way = 0; way < 3; way++) {
        for (uint32_t turns = 0; turns < 12; turns++) {
            struct coll_case c = case_of(GF_COLL_ALLREDUCE, 4, 2000, GF_TYPE_F32);
            uint32_t timeouts = 0;
            bool ended;
            c.staged = (way == 1) ? UINT32_MAX : 0;
            c.small_bytes = (way == 2) ? GF_DIRECT_SMALL_BYTES : 0;
            COLL_GROUP_OPEN(group, &c, NULL);
            coll_group_fill(&group, false);
            for (uint32_t i = 0; i < 4; i++)
                if ((i != 2) || (turns > 0)) coll_group_start(&group, i, 0);
            for (uint32_t t = 1; t < turns; t++) {
                for (uint32_t i = 0; i < 4; i++) {
                    struct gf_coll *coll = &group.nodes[i].coll;
                    if (group.nodes[i].status == GF_AGAIN)
                        group.nodes[i].status = gf_coll_poll(coll, 0);
                }
            }
            ended = group.nodes[2].status == GF_OK;
            group.nodes[2].status = GF_OK; /* nobody polls it any more */
            coll_group_run(&group);
            for (uint32_t i = 0; i < 4; i++) {
                if ((i == 2) || (group.nodes[i].status == GF_OK)) continue;
                timeouts++;
                assert_int_equal(group.nodes[i].status, GF_ERR_TIMEOUT);
                assert_int_equal(group.nodes[i].coll.state, GF_COLL_FAILED);
                if (turns == 0) assert_int_equal(group.nodes[i].coll.waits_for, 2);
            }
            if (turns == 0) assert_int_equal(timeouts, 3);
            if (ended && (turns > 0)) assert_int_equal(timeouts, 0);
        }
    }
}

/* Ranks that were called with different things find out before they touch each other's data. */
TEST(ranks_that_differ_are_named)
{
    static const struct {
        uint64_t elem_count;
        gf_collective collective;
        gf_type type;
    } rows[] = {{99, GF_COLL_ALLREDUCE, GF_TYPE_F32},
                {100, GF_COLL_ALLGATHER, GF_TYPE_F32},
                {100, GF_COLL_ALLREDUCE, GF_TYPE_F16}};
    for (size_t row = 0; row < LENGTH(rows); row++) {
        struct coll_case c = case_of(GF_COLL_ALLREDUCE, 3, 100, GF_TYPE_F32);
        COLL_GROUP_OPEN(group, &c, NULL);
        group.nodes[1].coll.plan.elem_count = rows[row].elem_count;
        group.nodes[1].coll.plan.collective = rows[row].collective;
        group.nodes[1].coll.plan.type = rows[row].type;
        coll_group_go(&group, 0);
        assert_int_equal(group.nodes[0].status, GF_ERR_MISMATCH);
        assert_int_equal(group.nodes[0].coll.waits_for, 1);
        assert_int_equal(group.nodes[1].status, GF_ERR_MISMATCH);
        assert_int_equal(group.nodes[2].status, GF_ERR_MISMATCH);
        assert_int_equal(group.nodes[2].coll.waits_for, 1);
    }
}

static struct coll_group *spoiled;

static gf_status sum_and_spoil(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count,
                               const gf_mem *src, uint32_t src_count, gf_type type,
                               uint64_t elem_count, uint64_t base, struct gf_check *check,
                               struct gf_check *sources)
{
    const struct gf_coll *coll = &spoiled->nodes[0].coll;
    for (uint32_t i = 1; i < coll->size; i++)
        ((struct gf_direct_slot *)(uintptr_t)gf_direct_slot_of(coll, i))->where = UINT64_MAX / 4;
    return gf_element_ops_best()->sum_n(queue, dst, dst_count, src, src_count, type, elem_count,
                                        base, check, sources);
}

/* What a peer says of where its data lies is taken once: what it writes there later means
 * nothing. */
TEST(where_data_lies_is_not_read_again)
{
    for (uint32_t staged = 0; staged < 2; staged++) {
        struct coll_case c = case_of(GF_COLL_ALLREDUCE, 3, 3000, GF_TYPE_F32);
        c.staged = (staged != 0) ? UINT32_MAX : 0;
        COLL_GROUP_OPEN(group, &c, NULL);
        coll_group_fill(&group, false);
        counting = *gf_element_ops_best();
        counting.sum_n = sum_and_spoil;
        spoiled = &group;
        group.nodes[0].coll.ops = &counting;
        coll_group_go(&group, 0);
        coll_group_expect(&group, GF_OK);
        coll_group_check(&group);
    }
}

TEST(a_region_that_is_gone_is_a_link_failure)
{
    struct coll_case c = case_of(GF_COLL_ALLREDUCE, 2, 100, GF_TYPE_F32);
    COLL_GROUP_OPEN(group, &c, NULL);
    assert_int_equal(
        group.nodes[1].link->driver->reset(group.nodes[1].link, 2, 1, group.rank_count), GF_OK);
    coll_group_start(&group, 0, 0);
    coll_group_poll(&group, 0);
    assert_int_equal(group.nodes[0].status, GF_ERR_LINK);
    assert_int_equal(group.nodes[0].coll.waits_for, 1);
    group.nodes[1].memory[0] = group.nodes[0].memory[0]; /* its own guards went with the region */
    group.nodes[1].memory[1] = group.nodes[0].memory[1];
}
