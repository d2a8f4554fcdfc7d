/* All collectives over the simulated network where nothing fails: any count and world, sums bit by
 * bit in their stated order, the memory asked for, the traffic.
 * link: wrap gf_node_host_id_set */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/real_links.h"
#include "firmware-tests/support/coll_group.h"
#include "lib/settings/settings.h"

/* direct and hierarchy have suites of their own in node/. */
TEST(every_algorithm_over_messages_is_tried_with_all_that_it_offers)
{
    for (uint32_t pair = 0; pair < GF_ALGORITHM_COUNT * (GF_COLL_BARRIER + 1u); pair++) {
        const gf_collective collective = (gf_collective)(pair % (GF_COLL_BARRIER + 1u));
        const struct gf_coll_kind *kind = gf_coll_kinds[pair / (GF_COLL_BARRIER + 1u)];
        bool is_tried = (kind == NULL) || !gf_coll_offers(kind, collective) ||
                        (kind == &gf_coll_direct) || (kind == &gf_coll_hierarchy);
        for (size_t p = 0; p < COLL_PAIRS; p++)
            is_tried |= (coll_pairs[p].kind == kind) && (coll_pairs[p].collective == collective);
        if (!is_tried) fail_msg("coll_pairs lacks %s, collective %d", kind->name, (int)collective);
    }
}

/* Slices of 64 bytes: 16 or 32 elements. */
TEST(any_count_on_any_world)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33};
    static const uint64_t counts[] = {0, 1, 3, 15, 16, 17, 37, 64, 65, 144, 145, 1000};
    static const uint32_t windows[] = {1, 2, 8};
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        for (size_t row = 0; row < LENGTH(sizes) * LENGTH(counts) * LENGTH(windows) * GF_TYPE_COUNT;
             row++) {
            size_t rest = row;
            struct coll_case c = {.kind = coll_pairs[p].kind,
                                  .collective = coll_pairs[p].collective,
                                  .slice_bytes = 64};
            c.type = (gf_type)(rest % GF_TYPE_COUNT);
            rest /= GF_TYPE_COUNT;
            c.window = windows[rest % LENGTH(windows)];
            rest /= LENGTH(windows);
            c.elem_count = counts[rest % LENGTH(counts)];
            c.size = sizes[rest / LENGTH(counts)];
            c.root = (c.collective == GF_COLL_BROADCAST) ? (uint32_t)row % c.size : 0;
            coll_group_run_once(&c, &world_network, row % 2 == 0);
        }
    }
}

/* 12-byte elements in slices of 64 bytes: slices of 5, the rest of each stays unused. */
TEST(values_are_combined_by_the_callers_fold)
{
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        for (uint32_t size = 1; size <= 9; size++) {
            struct coll_case c = {.kind = coll_pairs[p].kind,
                                  .collective = coll_pairs[p].collective,
                                  .size = size,
                                  .elem_count = 53,
                                  .slice_bytes = 64,
                                  .window = 3,
                                  .reduce_elem_bytes = 12};
            coll_group_run_once(&c, &world_network, true);
        }
    }
}

TEST(a_group_is_part_of_the_world_in_any_order)
{
    static const uint32_t ranks[] = {9, 2, 7, 0, 5};
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        struct coll_case c = {.kind = coll_pairs[p].kind,
                              .collective = coll_pairs[p].collective,
                              .size = LENGTH(ranks),
                              .elem_count = 301,
                              .slice_bytes = 128,
                              .window = 4,
                              .ranks = ranks};
        coll_group_run_once(&c, &world_network, false);
    }
}

TEST(hundreds_of_ranks)
{
    SIM_ONLY;
    struct coll_case ring = {.kind = &gf_coll_ring,
                             .collective = GF_COLL_ALLREDUCE,
                             .size = 512,
                             .elem_count = 600,
                             .type = GF_TYPE_BF16,
                             .slice_bytes = 64,
                             .window = 8};
    struct coll_case halving = ring;
    struct coll_case server = ring;
    halving.kind = &gf_coll_halving;
    halving.elem_count = 5000;
    server.kind = &gf_coll_server;
    coll_group_run_once(&ring, NULL, false);
    coll_group_run_once(&halving, &world_network, false);
    coll_group_run_once(&server, NULL, false);
}

TEST(deterministic_sums_do_not_depend_on_the_position)
{
    SIM_ONLY;
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        for (uint32_t size = 5; size <= 9; size++) {
            struct coll_case c = {.kind = coll_pairs[p].kind,
                                  .collective = coll_pairs[p].collective,
                                  .size = size,
                                  .elem_count = 100,
                                  .slice_bytes = 64,
                                  .window = 4};
            if (c.collective != GF_COLL_ALLREDUCE) continue;
            assert_int_equal(c.kind != &gf_coll_ring,
                             coll_group_same_inside(&c, &world_network, 0));
        }
    }
}

TEST(all_of_the_memory_asked_for_is_needed)
{
    SIM_ONLY;
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        /* one slice; many */
        for (uint64_t elem_count = 100; elem_count < 10000; elem_count *= 50) {
            struct coll_case c = {.kind = coll_pairs[p].kind,
                                  .collective = coll_pairs[p].collective,
                                  .size = 9,
                                  .elem_count = elem_count,
                                  .slice_bytes = 400,
                                  .window = 3};
            bool is_touched = false;
            if (c.collective != GF_COLL_ALLREDUCE) continue;
            COLL_GROUP_OPEN(group, &c, NULL);
            coll_group_fill(&group, true);
            coll_group_go(&group, 0);
            for (uint32_t i = 0; i < c.size; i++) {
                const struct gf_coll *coll = &group.nodes[i].coll;
                size_t slot_bytes = 2 * coll->staging_bytes / coll->msg_count;
                uint32_t fresh;
                memset(&fresh, 0xa5, sizeof fresh);
                is_touched =
                    is_touched ||
                    memcmp((void *)(uintptr_t)(coll->staging + coll->staging_bytes - slot_bytes),
                           &fresh, sizeof fresh) != 0;
            }
            /* A ring's short block may be of larger elements than these. */
            assert_true(is_touched || ((c.kind == &gf_coll_ring) && (elem_count == 100)));
        }
    }
}

TEST(memory_for_the_longest_vector_serves_shorter_ones)
{
    SIM_ONLY;
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        for (uint64_t longest = 10; longest < 300; longest *= 5) {
            struct coll_case c = {.kind = coll_pairs[p].kind,
                                  .collective = coll_pairs[p].collective,
                                  .size = 5,
                                  .elem_count = longest,
                                  .slice_bytes = 64,
                                  .window = 7};
            COLL_GROUP_OPEN(group, &c, NULL);
            for (uint64_t elem_count = 0; elem_count <= longest; elem_count++) {
                for (uint32_t i = 0; i < c.size; i++) {
                    group.nodes[i].coll.plan.elem_count = elem_count;
                    coll_group_start(&group, i, elem_count);
                }
                coll_group_run(&group);
                coll_group_expect(&group, GF_OK);
            }
        }
    }
}

/* Bytes and messages that all ranks send, for vectors of one slice and of one element a rank. */
TEST(traffic_is_what_the_formula_says)
{
    SIM_ONLY;
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        for (uint32_t n = 1; n <= 17; n++) {
            struct coll_case c = {.kind = coll_pairs[p].kind,
                                  .collective = coll_pairs[p].collective,
                                  .size = n,
                                  .elem_count = 64 * n,
                                  .slice_bytes = 1 << 20,
                                  .window = 4};
            uint64_t levels = 0;
            uint64_t vectors = 0;
            uint64_t messages = 0;
            uint64_t power = 1;
            while (2 * power <= n) power *= 2, levels++;
            if ((c.kind == &gf_coll_ring) && (c.collective == GF_COLL_ALLREDUCE)) {
                vectors = 2 * (n - 1); /* of 1/n each, from each of n */
                messages = 2 * (n - 1) * n;
            } else if (c.kind == &gf_coll_ring) {
                vectors = n - 1;
                messages = (n - 1) * n;
            } else if (c.kind == &gf_coll_halving) {
                vectors = 2 * (power - 1) + 2 * (n - power);
                messages = 2 * levels * power + 2 * (n - power);
            } else if (c.kind == &gf_coll_doubling) {
                vectors = messages = levels * power + 2 * (n - power);
            } else {
                vectors = messages = ((c.collective == GF_COLL_BROADCAST) ? 1 : 2) * (n - 1);
            }
            COLL_GROUP_OPEN(group, &c, NULL);
            coll_group_go(&group, 0);
            assert_int_equal(
                gf_sim_counts(group.sim)->bytes_sent,
                vectors * ((c.collective == GF_COLL_BARRIER) ? 8 : coll_group_data_bytes(&group)));
            assert_int_equal(gf_sim_counts(group.sim)->messages_sent, messages);
        }
    }
}

TEST(sums_that_are_not_finite_are_found_by_their_index)
{
    for (size_t p = 0; p < COLL_PAIRS; p++) {
        struct coll_case c = {.kind = coll_pairs[p].kind,
                              .collective = coll_pairs[p].collective,
                              .size = 6,
                              .elem_count = 100,
                              .slice_bytes = 64,
                              .window = 4};
        uint64_t count;
        uint64_t first;
        if ((c.collective != GF_COLL_ALLREDUCE) && (c.collective != GF_COLL_REDUCE_SCATTER))
            continue;
        COLL_GROUP_OPEN(group, &c, NULL);
        coll_group_fill(&group, true);
        ((float *)coll_group_data(&group, 2))[41] = 1.0f / 0.0f;
        coll_group_bad(&group, &count, &first);
        assert_int_equal(first, 41);
    }
}

TEST(a_barrier_opens_when_the_last_has_come)
{
    SIM_ONLY;
    for (uint32_t size = 2; size <= 9; size++) {
        for (uint32_t late = 0; late < size; late++) {
            struct coll_case c = {.kind = &gf_coll_doubling,
                                  .collective = GF_COLL_BARRIER,
                                  .size = size,
                                  .slice_bytes = 64,
                                  .window = 2};
            COLL_GROUP_OPEN(group, &c, &world_network);
            for (uint32_t i = 0; i < size; i++) {
                if (i != late) coll_group_start(&group, i, 0);
            }
            do {
                for (uint32_t i = 0; i < size; i++) coll_group_poll(&group, i);
            } while (gf_sim_advance(group.sim));
            for (uint32_t i = 0; i < size; i++) {
                if (i != late) assert_int_equal(group.nodes[i].status, GF_AGAIN);
            }
            coll_group_start(&group, late, 0);
            coll_group_poll(&group, late);
            coll_group_run(&group);
            coll_group_expect(&group, GF_OK);
        }
    }
}

TEST(a_poll_folds_about_one_slice)
{
    SIM_ONLY;
    struct coll_case c = {.kind = &gf_coll_server,
                          .collective = GF_COLL_ALLREDUCE,
                          .size = 9,
                          .elem_count = 203,
                          .slice_bytes = 64,
                          .window = 8,
                          .reduce_elem_bytes = 12};
    struct coll_node *server;
    uint64_t most = 0;
    COLL_GROUP_OPEN(group, &c, NULL);
    coll_group_fill(&group, true);
    for (uint32_t i = 0; i < c.size; i++) coll_group_start(&group, i, 1);
    server = &group.nodes[0];
    while (server->status == GF_AGAIN) {
        uint64_t before = server->reduced_elems;
        server->status = gf_coll_poll(&server->coll, gf_sim_now_ns(group.sim));
        if (server->reduced_elems - before > most) most = server->reduced_elems - before;
        for (uint32_t i = 1; i < c.size; i++) coll_group_poll(&group, i);
        /* all that can arrive has arrived before the next poll */
        while (gf_sim_advance(group.sim)) {
        }
    }
    coll_group_run(&group);
    coll_group_check(&group);
    assert_in_range(most, 5, 9);
}
