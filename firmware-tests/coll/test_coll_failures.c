/* All collectives where something fails: each ends with the right status on every rank, and nothing
 * is under way. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/coll_fault.h"

TEST(every_post_meets_every_fault)
{
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        for (uint32_t size = 2; size <= 6; size++) {
            struct coll_case c = {.kind = coll_pairs[p].kind,
                                  .collective = coll_pairs[p].collective,
                                  .size = size,
                                  .elem_count = 37,
                                  .slice_bytes = 64,
                                  .window = 1 + size % 3,
                                  .root = (coll_pairs[p].collective == GF_COLL_BROADCAST)};
            coll_fault_each(&c, &world_network);
        }
    }
}

TEST(what_cannot_be_cancelled_is_ended_by_a_reset)
{
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        struct coll_case c = {.kind = coll_pairs[p].kind,
                              .collective = coll_pairs[p].collective,
                              .size = 4,
                              .elem_count = 37,
                              .slice_bytes = 64,
                              .window = 2};
        coll_fault_kill(&c, &world_network);
    }
}

/* Who of four waits for whom when rank 2 never comes. */
TEST(a_silent_rank_is_named)
{
    static const struct {
        const struct gf_coll_kind *kind;
        uint32_t waits_for[4];
    } rows[] = {
        {&gf_coll_ring, {3, 0, GF_RANK_NONE, 2}},     {&gf_coll_halving, {2, 3, GF_RANK_NONE, 2}},
        {&gf_coll_doubling, {2, 3, GF_RANK_NONE, 2}}, {&gf_coll_tree, {2, 0, GF_RANK_NONE, 2}},
        {&gf_coll_server, {2, 0, GF_RANK_NONE, 0}},
    };
    for (size_t row = 0; row < LENGTH(rows); row++) {
        struct coll_case c = {.kind = rows[row].kind,
                              .collective = GF_COLL_ALLREDUCE,
                              .size = 4,
                              .elem_count = 40,
                              .slice_bytes = 64,
                              .window = 2};
        COLL_GROUP_OPEN(group, &c, NULL);
        for (uint32_t i = 0; i < 4; i++) {
            if (i != 2) coll_group_start(&group, i, 0);
        }
        coll_group_run(&group);
        for (uint32_t i = 0; i < 4; i++) {
            if (i == 2) continue;
            assert_int_equal(group.nodes[i].status, GF_ERR_TIMEOUT);
            assert_int_equal(group.nodes[i].coll.waits_for, rows[row].waits_for[i]);
        }
    }
}

TEST(progress_puts_the_deadline_off)
{
    struct gf_sim_setup slow = {.latency_ns = COLL_TIMEOUT_NS * 3ull / 4};
    struct coll_case c = {.kind = &gf_coll_ring,
                          .collective = GF_COLL_ALLREDUCE,
                          .size = 6,
                          .elem_count = 40,
                          .slice_bytes = 64,
                          .window = 2};
    coll_group_run_once(&c, &slow, false);
}

/* Failed by its owner in the middle: the error stays, nothing is under way, and the same memory
 * serves again. */
TEST(a_failed_collective_drains_and_starts_anew)
{
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        struct coll_case c = {.kind = coll_pairs[p].kind,
                              .collective = coll_pairs[p].collective,
                              .size = 5,
                              .elem_count = 400,
                              .slice_bytes = 64,
                              .window = 4};
        COLL_GROUP_OPEN(group, &c, &world_network);
        assert_int_equal(gf_coll_poll(&group.nodes[0].coll, 0), GF_ERR_STATE);
        for (uint32_t i = 0; i < c.size; i++) coll_group_start(&group, i, 1);
        for (uint32_t i = 0; i < c.size; i++) coll_group_poll(&group, i);
        (void)gf_sim_advance(group.sim);
        for (uint32_t i = 0; i < c.size; i++) {
            gf_coll_fail(&group.nodes[i].coll, GF_ERR_ABORTED);
            gf_coll_fail(&group.nodes[i].coll, GF_ERR_LINK);
        }
        coll_group_run(&group);
        coll_group_expect(&group, GF_ERR_ABORTED);
        coll_group_fill(&group, false);
        coll_group_go(&group, 2);
        coll_group_expect(&group, GF_OK);
        coll_group_check(&group);
    }
}
