/* The simulator's faults that no suite of collectives would miss, and how often those by chance
 * come. What the others do to a message test_coll_failures says, by the status of each rank. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/sim_links.h"

#define LATENCY_NS 1000u

/* Whole collectives end well under both, met or not. */
TEST(again_posts_nothing_and_a_stop_puts_off)
{
    struct gf_sim_setup setup = {
        .world = 2,
        .latency_ns = LATENCY_NS,
        .fault_count = 2,
        .faults = {{.kind = GF_SIM_FAULT_FULL, .rank = 0, .at = 1},
                   {.kind = GF_SIM_FAULT_STOP, .rank = 1, .at = 1, .delay_ns = 5000}}};
    uint32_t source = 4711;
    uint32_t target = 0;
    SIM_LINKS_OPEN(w, &setup);
    assert_int_equal(sim_links_send(&w, 0, 1, 5, &source, 4, 0), GF_FULL);
    assert_int_equal(sim_links_recv(&w, 1, 0, 5, &target, 4, 0), GF_OK);
    assert_int_equal(sim_links_send(&w, 0, 1, 5, &source, 4, 0), GF_OK);
    gf_sim_advance_to(w.sim, 2 * LATENCY_NS);
    assert_int_equal(sim_links_test(&w, 1, 0), GF_AGAIN);
    sim_links_run(&w);
    assert_int_equal(sim_links_test(&w, 1, 0), GF_OK);
    assert_int_equal(gf_sim_now_ns(w.sim), 5000);
    assert_int_equal(target, 4711);
}

/* A tag that is used again meets the copy: the simulator is to find that out. A reset forgets
 * it. */
TEST(a_duplicate_waits_for_whoever_reuses_its_tag)
{
    for (uint32_t resets = 0; resets < 2; resets++) {
        struct gf_sim_setup setup = {.world = 2, .latency_ns = LATENCY_NS, .duplicate_rate = 1.0};
        uint32_t source = 4711;
        uint32_t target = 0;
        SIM_LINKS_OPEN(w, &setup);
        assert_int_equal(sim_links_recv(&w, 1, 0, 5, &target, 4, 0), GF_OK);
        assert_int_equal(sim_links_send(&w, 0, 1, 5, &source, 4, 0), GF_OK);
        sim_links_run(&w);
        assert_int_equal(target, 4711);
        if (resets == 1) {
            for (uint32_t rank = 0; rank < 2; rank++)
                assert_int_equal(w.driver->reset(w.links[rank], 2, rank, w.world), GF_OK);
            sim_links_connect(&w);
        }
        target = 0;
        assert_int_equal(sim_links_recv(&w, 1, 0, 5, &target, 4, 0), GF_OK);
        sim_links_run(&w);
        assert_int_equal(sim_links_test(&w, 1, 0), (resets == 1) ? GF_AGAIN : GF_OK);
        assert_int_equal(target, (resets == 1) ? 0 : 4711);
    }
}

TEST(old_duplicates_are_dropped)
{
    struct gf_sim_setup setup = {.world = 2,
                                 .fault_count = 1,
                                 .faults = {{.kind = GF_SIM_FAULT_DUPLICATE, .rank = 0, .at = 1}}};
    SIM_LINKS_OPEN(w, &setup);
    for (uint64_t i = 0; i < 3000; i++) {
        assert_int_equal(sim_links_recv(&w, 1, 0, i, NULL, 0, 0), GF_OK);
        assert_int_equal(sim_links_send(&w, 0, 1, i, NULL, 0, 0), GF_OK);
        sim_links_run(&w);
        assert_int_equal(sim_links_test(&w, 1, 0), GF_OK);
    }
    assert_int_equal(sim_links_recv(&w, 1, 0, 0, NULL, 0, 0), GF_OK);
    sim_links_run(&w);
    assert_int_equal(sim_links_test(&w, 1, 0), GF_AGAIN);
}

TEST(random_loss_has_its_rate)
{
    struct gf_sim_setup setup = {.world = 2, .seed = 3, .drop_rate = 0.25};
    uint32_t arrived = 0;
    SIM_LINKS_OPEN(w, &setup);
    for (uint64_t i = 0; i < 4000; i++) {
        assert_int_equal(sim_links_recv(&w, 1, 0, i, NULL, 0, 0), GF_OK);
        assert_int_equal(sim_links_send(&w, 0, 1, i, NULL, 0, 0), GF_OK);
        sim_links_run(&w);
        arrived += (sim_links_test(&w, 1, 0) == GF_OK);
        w.driver->cancel(w.links[1], sim_links_req(&w, 1, 0));
    }
    assert_in_range(arrived, 2900, 3100);
}
