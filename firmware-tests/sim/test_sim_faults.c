/* The simulator's faults: what each does to a message at either end, and how often those by chance come. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/sim_world.h"

#define LATENCY_NS 1000u
/* Longer in its port than on its way. */
#define TRANSFER_NS 2000u
#define LANDING_NS (LATENCY_NS + TRANSFER_NS)

/* Post 1 is a receive of rank 1, post 2 the send of rank 0; the fault meets either. */
static const struct fault_case {
    const char *name;
    gf_sim_fault_kind kind;
    uint64_t at;
    gf_status recv_post, send_post, recv_end, send_end;
    uint64_t recv_ns; /* 0: never */
} fault_cases[] = {
    {"none", GF_SIM_FAULT_NONE, 1, GF_OK, GF_OK, GF_OK, GF_OK, LANDING_NS},
    {"a post that comes never", GF_SIM_FAULT_ERROR, 3, GF_OK, GF_OK, GF_OK, GF_OK, LANDING_NS},
    {"receive again", GF_SIM_FAULT_AGAIN, 1, GF_AGAIN, GF_OK, GF_AGAIN, GF_OK, 0},
    {"send again", GF_SIM_FAULT_AGAIN, 2, GF_OK, GF_AGAIN, GF_AGAIN, GF_AGAIN, 0},
    {"receive error", GF_SIM_FAULT_ERROR, 1, GF_ERR_LINK, GF_OK, GF_AGAIN, GF_OK, 0},
    {"send error", GF_SIM_FAULT_ERROR, 2, GF_OK, GF_ERR_LINK, GF_AGAIN, GF_AGAIN, 0},
    {"drop at receive", GF_SIM_FAULT_DROP, 1, GF_OK, GF_OK, GF_AGAIN, GF_OK, 0},
    {"drop at send", GF_SIM_FAULT_DROP, 2, GF_OK, GF_OK, GF_AGAIN, GF_OK, 0},
    {"duplicate at receive", GF_SIM_FAULT_DUPLICATE, 1, GF_OK, GF_OK, GF_OK, GF_OK, LANDING_NS},
    {"duplicate at send", GF_SIM_FAULT_DUPLICATE, 2, GF_OK, GF_OK, GF_OK, GF_OK, LANDING_NS},
    {"delay at receive", GF_SIM_FAULT_DELAY, 1, GF_OK, GF_OK, GF_OK, GF_OK, LANDING_NS + 555},
    {"delay at send", GF_SIM_FAULT_DELAY, 2, GF_OK, GF_OK, GF_OK, GF_OK, LANDING_NS + 555},
    {"corrupt at receive", GF_SIM_FAULT_CORRUPT, 1, GF_OK, GF_OK, GF_OK, GF_OK, LANDING_NS},
    {"corrupt at send", GF_SIM_FAULT_CORRUPT, 2, GF_OK, GF_OK, GF_OK, GF_OK, LANDING_NS},
    {"short at receive", GF_SIM_FAULT_SHORT, 1, GF_OK, GF_OK, GF_ERR_MISMATCH, GF_OK, LANDING_NS},
    {"short at send", GF_SIM_FAULT_SHORT, 2, GF_OK, GF_OK, GF_ERR_MISMATCH, GF_OK, LANDING_NS},
    {"receiver killed", GF_SIM_FAULT_KILL, 1, GF_ERR_ABORTED, GF_OK, GF_AGAIN, GF_OK, 0},
    {"sender killed", GF_SIM_FAULT_KILL, 2, GF_OK, GF_ERR_ABORTED, GF_AGAIN, GF_AGAIN, 0},
    {"receiver stopped", GF_SIM_FAULT_STOP, 1, GF_OK, GF_OK, GF_OK, GF_OK, 5000},
    {"sender stopped", GF_SIM_FAULT_STOP, 2, GF_OK, GF_OK, GF_OK, GF_OK, LANDING_NS},
};

TEST(each_fault_does_what_it_says_at_either_end)
{
    for (size_t c = 0; c < LENGTH(fault_cases); c++) {
        const struct fault_case *row = &fault_cases[c];
        for (uint32_t binds = 0; binds < 2; binds++) {
            unsigned char source[64], target[64] = {0};
            uint32_t flips = 0;
            uint64_t received_ns = 0;
            struct gf_sim_setup setup = {.world = 2, .latency_ns = LATENCY_NS, .bind_receives = (binds == 1),
                                         .bytes_per_ns = (double)sizeof source / TRANSFER_NS,
                                         .faults = {{.kind = row->kind, .rank = GF_RANK_NONE, .at = row->at,
                                                     .delay_ns = (row->kind == GF_SIM_FAULT_STOP) ? 5000 : 555}},
                                         .fault_count = 1};
            SIM_WORLD_OPEN(w, &setup);
            for (uint32_t i = 0; i < sizeof source; i++) source[i] = (unsigned char)(i * 37 + 3);
            gf_status recv_post = sim_world_recv(&w, 1, 0, 9, target, sizeof target, 1);
            gf_status send_post = sim_world_send(&w, 0, 1, 9, source, sizeof source, 0);
            while (gf_sim_advance(w.sim)) {
                if ((received_ns == 0) && (recv_post == GF_OK) && (sim_world_test(&w, 1, 1) != GF_AGAIN)) {
                    received_ns = gf_sim_now_ns(w.sim);
                }
            }
            gf_status recv_end = (recv_post == GF_OK) ? sim_world_test(&w, 1, 1) : GF_AGAIN;
            gf_status send_end = (send_post == GF_OK) ? sim_world_test(&w, 0, 0) : GF_AGAIN;
            if ((recv_post != row->recv_post) || (send_post != row->send_post) || (recv_end != row->recv_end) ||
                (send_end != row->send_end) || (received_ns != row->recv_ns)) {
                fail_msg("%s: posts %d %d, ends %d %d at %llu", row->name, recv_post, send_post, recv_end, send_end,
                         (unsigned long long)received_ns);
            }
            for (uint32_t i = 0; i < sizeof source; i++) {
                flips += (uint32_t)__builtin_popcount((unsigned)(source[i] ^ target[i]));
            }
            if (recv_end == GF_OK) assert_int_equal(flips, row->kind == GF_SIM_FAULT_CORRUPT);
            if (recv_end == GF_ERR_MISMATCH) {
                assert_int_equal(w.links[1]->fault.peer, 0);
                assert_non_null(strstr(w.links[1]->fault.text, "sent 63 bytes"));
                assert_non_null(strstr(w.links[1]->fault.text, "wants 64"));
            }
            assert_int_equal(gf_sim_counts(w.sim)->fault_met, (row->kind != GF_SIM_FAULT_NONE) && (row->at < 3));
        }
    }
}

TEST(a_receives_fault_meets_a_message_that_came_before_it)
{
    static const struct {
        gf_sim_fault_kind kind;
        gf_status at_once, later;
    } rows[] = {
        {GF_SIM_FAULT_NONE, GF_OK, GF_OK},           {GF_SIM_FAULT_DROP, GF_AGAIN, GF_AGAIN},
        {GF_SIM_FAULT_DELAY, GF_AGAIN, GF_OK},       {GF_SIM_FAULT_SHORT, GF_ERR_MISMATCH, GF_ERR_MISMATCH},
        {GF_SIM_FAULT_DUPLICATE, GF_OK, GF_OK},
    };
    for (size_t c = 0; c < LENGTH(rows); c++) {
        struct gf_sim_setup setup = {.world = 2, .fault_count = 1,
                                     .faults = {{.kind = rows[c].kind, .rank = 1, .at = 1, .delay_ns = 555}}};
        uint32_t source = 4711, target = 0;
        SIM_WORLD_OPEN(w, &setup);
        assert_int_equal(sim_world_send(&w, 0, 1, 5, &source, 4, 0), GF_OK);
        sim_world_run(&w);
        assert_int_equal(sim_world_recv(&w, 1, 0, 5, &target, 4, 0), GF_OK);
        assert_int_equal(sim_world_test(&w, 1, 0), rows[c].at_once);
        sim_world_run(&w);
        assert_int_equal(sim_world_test(&w, 1, 0), rows[c].later);
        assert_int_equal(target, (rows[c].later == GF_OK) ? 4711 : 0);
        assert_int_equal(gf_sim_now_ns(w.sim), (rows[c].kind == GF_SIM_FAULT_DELAY) ? 555 : 0);
    }
}

/* A tag that is used again meets the copy: the simulator is to find that out. A reset forgets it. */
TEST(a_duplicate_waits_for_whoever_reuses_its_tag)
{
    for (uint32_t resets = 0; resets < 2; resets++) {
        struct gf_sim_setup setup = {.world = 2, .latency_ns = LATENCY_NS, .duplicate_rate = 1.0};
        uint32_t source = 4711, target = 0;
        SIM_WORLD_OPEN(w, &setup);
        assert_int_equal(sim_world_recv(&w, 1, 0, 5, &target, 4, 0), GF_OK);
        assert_int_equal(sim_world_send(&w, 0, 1, 5, &source, 4, 0), GF_OK);
        sim_world_run(&w);
        assert_int_equal(target, 4711);
        if (resets == 1) {
            for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(w.driver->reset(w.links[rank], 2), GF_OK);
            sim_world_connect(&w);
        }
        target = 0;
        assert_int_equal(sim_world_recv(&w, 1, 0, 5, &target, 4, 0), GF_OK);
        sim_world_run(&w);
        assert_int_equal(sim_world_test(&w, 1, 0), (resets == 1) ? GF_AGAIN : GF_OK);
        assert_int_equal(target, (resets == 1) ? 0 : 4711);
    }
}

TEST(old_duplicates_are_dropped)
{
    struct gf_sim_setup setup = {.world = 2, .fault_count = 1,
                                 .faults = {{.kind = GF_SIM_FAULT_DUPLICATE, .rank = 0, .at = 1}}};
    SIM_WORLD_OPEN(w, &setup);
    for (uint64_t i = 0; i < 3000; i++) {
        assert_int_equal(sim_world_recv(&w, 1, 0, i, NULL, 0, 0), GF_OK);
        assert_int_equal(sim_world_send(&w, 0, 1, i, NULL, 0, 0), GF_OK);
        sim_world_run(&w);
        assert_int_equal(sim_world_test(&w, 1, 0), GF_OK);
    }
    assert_int_equal(sim_world_recv(&w, 1, 0, 0, NULL, 0, 0), GF_OK);
    sim_world_run(&w);
    assert_int_equal(sim_world_test(&w, 1, 0), GF_AGAIN);
}

TEST(random_loss_has_its_rate)
{
    struct gf_sim_setup setup = {.world = 2, .seed = 3, .drop_rate = 0.25};
    uint32_t arrived = 0;
    SIM_WORLD_OPEN(w, &setup);
    for (uint64_t i = 0; i < 4000; i++) {
        assert_int_equal(sim_world_recv(&w, 1, 0, i, NULL, 0, 0), GF_OK);
        assert_int_equal(sim_world_send(&w, 0, 1, i, NULL, 0, 0), GF_OK);
        sim_world_run(&w);
        arrived += (sim_world_test(&w, 1, 0) == GF_OK);
        w.driver->cancel(w.links[1], sim_world_req(&w, 1, 0));
    }
    assert_in_range(arrived, 2900, 3100);
}
