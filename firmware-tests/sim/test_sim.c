/* The simulator's messages: that they arrive whole, when they should, and what each fault does to them. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/sim_world.h"

#define LATENCY_NS 1000u
#define NEVER UINT64_MAX

static void fill(unsigned char *bytes, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)((seed + i) * 2654435761u >> 13);
}

TEST(a_message_arrives_whole_whoever_posts_first)
{
    static const size_t sizes[] = {0, 1, 63, 4096, 100001};
    static unsigned char source[100001], target[100001], expected[100001];
    struct gf_sim_setup setup = {.world = 2, .latency_ns = LATENCY_NS, .bytes_per_ns = 10};
    struct sim_world w;
    sim_world_open(&w, &setup);
    for (uint32_t i = 0; i < 2 * LENGTH(sizes); i++) {
        size_t size = sizes[i / 2];
        fill(source, size, i);
        memset(target, 0, sizeof target);
        memcpy(expected, target, sizeof target);
        memcpy(expected, source, size);
        if (i % 2 == 0) assert_int_equal(sim_world_recv(&w, 1, 0, i, target, size, 1), GF_OK);
        assert_int_equal(sim_world_send(&w, 0, 1, i, source, size, 0), GF_OK);
        assert_int_equal(sim_world_test(&w, 0, 0), GF_AGAIN);
        sim_world_run(&w);
        memset(source, 0xee, size); /* the send has ended: its buffer is ours */
        if (i % 2 == 1) {
            if (size > 0) assert_memory_not_equal(target, expected, size);
            assert_int_equal(sim_world_recv(&w, 1, 0, i, target, size, 1), GF_OK);
        }
        assert_int_equal(sim_world_test(&w, 0, 0), GF_OK);
        assert_int_equal(sim_world_test(&w, 1, 1), GF_OK);
        assert_int_equal(sim_world_test(&w, 1, 1), GF_OK);
        assert_memory_equal(target, expected, sizeof target);
    }
    assert_int_equal(w.links[0]->sent_messages, 10);
    assert_int_equal(w.links[0]->sent_bytes, 2 * (1 + 63 + 4096 + 100001));
    assert_int_equal(gf_sim_messages_sent(w.sim), 10);
    assert_int_equal(gf_sim_bytes_sent(w.sim), w.links[0]->sent_bytes);
    sim_world_close(&w);
}

TEST(jitter_reorders_but_tags_find_their_receives)
{
    struct gf_sim_setup setup = {.world = 3, .seed = 7, .latency_ns = LATENCY_NS, .jitter_ns = 50000};
    struct sim_world w;
    uint32_t sent[2][32], got[2][32], overtakes = 0, last = 0;
    sim_world_open(&w, &setup);
    for (uint32_t i = 0; i < 32; i++) {
        for (uint32_t from = 0; from < 2; from++) {
            sent[from][i] = 1000 * from + i;
            got[from][i] = 0;
            assert_int_equal(sim_world_recv(&w, 2, from, i, &got[from][i], 4, 32 * from + i), GF_OK);
            assert_int_equal(sim_world_send(&w, from, 2, i, &sent[from][i], 4, i), GF_OK);
        }
    }
    while (gf_sim_advance(w.sim)) {
        for (uint32_t i = 0; i < 32; i++) {
            if (sim_world_test(&w, 2, i) != GF_OK) continue;
            if (i < last) overtakes++;
            last = i;
        }
    }
    assert_true(overtakes > 0);
    assert_memory_equal(sent, got, sizeof sent);
    sim_world_close(&w);
}

/* A transfer is posted at 0; when its send and its receive end is a formula. */
static const struct timing_case {
    const char *name;
    uint64_t message_ns;
    struct {
        uint32_t from, to;
        size_t bytes;
        uint64_t send_ns, recv_ns;
    } moves[3];
} timings[] = {
    {"a lone message takes latency and bytes once", 0, {{0, 2, 5000, 500, 1500}}},
    {"an empty one takes the latency", 0, {{0, 2, 0, 0, 1000}}},
    {"message_ns holds the sender's port, not the lone message", 70, {{0, 2, 5000, 570, 1500}}},
    {"a sender's port takes one at a time", 70,
     {{0, 2, 1000, 170, 1100}, {0, 4, 2000, 440, 1370}, {0, 2, 1000, 610, 1540}}},
    {"a receiver's port takes one at a time", 0,
     {{0, 6, 1000, 100, 1100}, {2, 6, 2000, 200, 1300}, {4, 6, 1000, 100, 1400}}},
    {"what waits for its sender does not hold the receiver's port", 0,
     {{0, 4, 9000, 900, 1900}, {0, 6, 1000, 1000, 2000}, {2, 6, 5000, 500, 1500}}},
    {"in and out are apart", 0, {{0, 2, 5000, 500, 1500}, {2, 0, 5000, 500, 1500}}},
    {"a node has its own latency, rate and ports", 0, {{0, 1, 5000, 50, 150}, {0, 2, 5000, 500, 1500}}},
};

TEST(ports_and_latency_follow_the_formula)
{
    static unsigned char bytes[10000];
    for (size_t c = 0; c < LENGTH(timings); c++) {
        struct gf_sim_setup setup = {.world = 8, .ranks_per_node = 2, .latency_ns = 1000, .bytes_per_ns = 10,
                                     .node_latency_ns = 100, .node_bytes_per_ns = 100, .no_data = true,
                                     .message_ns = timings[c].message_ns};
        uint64_t sent_ns[3] = {NEVER, NEVER, NEVER}, received_ns[3] = {NEVER, NEVER, NEVER};
        struct sim_world w;
        sim_world_open(&w, &setup);
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t from = timings[c].moves[i].from, to = timings[c].moves[i].to;
            if (from == to) continue;
            assert_int_equal(sim_world_recv(&w, to, from, i, bytes, timings[c].moves[i].bytes, 8 + i), GF_OK);
            assert_int_equal(sim_world_send(&w, from, to, i, bytes, timings[c].moves[i].bytes, i), GF_OK);
        }
        while (gf_sim_advance(w.sim)) {
            for (uint32_t i = 0; i < 3; i++) {
                uint32_t from = timings[c].moves[i].from, to = timings[c].moves[i].to;
                if (from == to) continue;
                uint64_t now_ns = gf_sim_now_ns(w.sim);
                if ((sent_ns[i] == NEVER) && (sim_world_test(&w, from, i) == GF_OK)) sent_ns[i] = now_ns;
                if ((received_ns[i] == NEVER) && (sim_world_test(&w, to, 8 + i) == GF_OK)) received_ns[i] = now_ns;
            }
        }
        for (uint32_t i = 0; i < 3; i++) {
            if (timings[c].moves[i].from == timings[c].moves[i].to) continue;
            uint64_t send_ns = timings[c].moves[i].send_ns, recv_ns = timings[c].moves[i].recv_ns;
            if ((sent_ns[i] == send_ns) && (received_ns[i] == recv_ns)) continue;
            fail_msg("%s: move %u left at %llu and landed at %llu", timings[c].name, i,
                     (unsigned long long)sent_ns[i], (unsigned long long)received_ns[i]);
        }
        sim_world_close(&w);
    }
}

/* What is sent while a rank works leaves behind the work, and the rank is woken no earlier than its end. */
TEST(work_holds_up_what_is_sent_and_the_rank)
{
    struct gf_sim_setup setup = {.world = 2, .latency_ns = 1000, .bytes_per_ns = 10, .no_data = true};
    struct sim_world w;
    static unsigned char bytes[100];
    sim_world_open(&w, &setup);
    while (gf_sim_woken_next(w.sim) != GF_RANK_NONE) {}
    gf_sim_work(w.sim, 0, 300);
    gf_sim_work(w.sim, 0, 200);
    assert_int_equal(gf_sim_free_ns(w.sim, 0), 500);
    assert_int_equal(gf_sim_free_ns(w.sim, 1), 0);
    gf_sim_wake_at(w.sim, 0, 100);
    assert_int_equal(sim_world_recv(&w, 1, 0, 7, bytes, 100, 0), GF_OK);
    assert_int_equal(sim_world_send(&w, 0, 1, 7, bytes, 100, 0), GF_OK);
    assert_int_equal(gf_sim_woken_next(w.sim), GF_RANK_NONE);
    assert_true(gf_sim_advance(w.sim));
    assert_int_equal(gf_sim_now_ns(w.sim), 500);
    assert_int_equal(gf_sim_woken_next(w.sim), 0);
    while (sim_world_test(&w, 1, 0) == GF_AGAIN) assert_true(gf_sim_advance(w.sim));
    assert_int_equal(gf_sim_now_ns(w.sim), 500 + 1000 + 10);
    sim_world_close(&w);
}

TEST(a_nodes_port_carries_one_message_at_a_time)
{
    struct gf_sim_setup setup = {.world = 4, .ranks_per_node = 2, .latency_ns = 1000, .bytes_per_ns = 10,
                                 .node_port = true, .no_data = true};
    struct sim_world w;
    static unsigned char bytes[1000];
    sim_world_open(&w, &setup);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(sim_world_recv(&w, 2 + rank, rank, 7, bytes, 1000, 0), GF_OK);
        assert_int_equal(sim_world_send(&w, rank, 2 + rank, 7, bytes, 1000, 1), GF_OK);
    }
    while (sim_world_test(&w, 2, 0) == GF_AGAIN) assert_true(gf_sim_advance(w.sim));
    assert_int_equal(gf_sim_now_ns(w.sim), 1100);
    while (sim_world_test(&w, 3, 0) == GF_AGAIN) assert_true(gf_sim_advance(w.sim));
    assert_int_equal(gf_sim_now_ns(w.sim), 1200);
    sim_world_close(&w);
}

/* Without data fused buffers leave memory alone, while vote and requests carry what they hold. */
TEST(without_data_only_fused_buffers_are_empty)
{
    struct gf_sim_setup setup = {.world = 2, .latency_ns = 10, .no_data = true};
    struct sim_world w;
    uint64_t sent = 42, fused = 1, vote = 1;
    sim_world_open(&w, &setup);
    assert_int_equal(sim_world_recv(&w, 1, 0, gf_tag(1, 3, 5), &fused, sizeof fused, 0), GF_OK);
    assert_int_equal(sim_world_recv(&w, 1, 0, gf_tag(1, 3, GF_TAG_BUFFER_OTHER), &vote, sizeof vote, 1), GF_OK);
    assert_int_equal(sim_world_send(&w, 0, 1, gf_tag(1, 3, 5), &sent, sizeof sent, 0), GF_OK);
    assert_int_equal(sim_world_send(&w, 0, 1, gf_tag(1, 3, GF_TAG_BUFFER_OTHER), &sent, sizeof sent, 1), GF_OK);
    while (gf_sim_advance(w.sim)) {}
    assert_int_equal(sim_world_test(&w, 1, 0), GF_OK);
    assert_int_equal(sim_world_test(&w, 1, 1), GF_OK);
    assert_int_equal(fused, 1);
    assert_int_equal(vote, 42);
    sim_world_close(&w);
}

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
            struct sim_world w;
            sim_world_open(&w, &setup);
            fill(source, sizeof source, 3);
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
            assert_int_equal(gf_sim_fault_met(w.sim), (row->kind != GF_SIM_FAULT_NONE) && (row->at < 3));
            sim_world_close(&w);
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
        struct sim_world w;
        sim_world_open(&w, &setup);
        assert_int_equal(sim_world_send(&w, 0, 1, 5, &source, 4, 0), GF_OK);
        sim_world_run(&w);
        assert_int_equal(sim_world_recv(&w, 1, 0, 5, &target, 4, 0), GF_OK);
        assert_int_equal(sim_world_test(&w, 1, 0), rows[c].at_once);
        sim_world_run(&w);
        assert_int_equal(sim_world_test(&w, 1, 0), rows[c].later);
        assert_int_equal(target, (rows[c].later == GF_OK) ? 4711 : 0);
        assert_int_equal(gf_sim_now_ns(w.sim), (rows[c].kind == GF_SIM_FAULT_DELAY) ? 555 : 0);
        sim_world_close(&w);
    }
}

TEST(a_fault_may_count_the_posts_of_one_rank)
{
    struct gf_sim_setup setup = {.world = 2, .fault_count = 1,
                                 .faults = {{.kind = GF_SIM_FAULT_AGAIN, .rank = 1, .at = 2}}};
    struct sim_world w;
    sim_world_open(&w, &setup);
    for (uint32_t i = 0; i < 5; i++) assert_int_equal(sim_world_send(&w, 0, 1, i, NULL, 0, i), GF_OK);
    assert_int_equal(sim_world_recv(&w, 1, 0, 0, NULL, 0, 0), GF_OK);
    assert_false(gf_sim_fault_met(w.sim));
    while (gf_sim_woken(w.sim, 1)) continue;
    assert_int_equal(sim_world_recv(&w, 1, 0, 1, NULL, 0, 1), GF_AGAIN);
    assert_true(gf_sim_fault_met(w.sim));
    assert_true(gf_sim_woken(w.sim, 1)); /* or nobody would ever try again */
    assert_int_equal(sim_world_recv(&w, 1, 0, 1, NULL, 0, 1), GF_OK);
    sim_world_close(&w);
}

/* A tag that is used again meets the copy: the simulator is to find that out. A reset forgets it. */
TEST(a_duplicate_waits_for_whoever_reuses_its_tag)
{
    for (uint32_t resets = 0; resets < 2; resets++) {
        struct gf_sim_setup setup = {.world = 2, .latency_ns = LATENCY_NS, .duplicate_rate = 1.0};
        uint32_t source = 4711, target = 0;
        struct sim_world w;
        sim_world_open(&w, &setup);
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
        sim_world_close(&w);
    }
}

TEST(old_duplicates_are_dropped)
{
    struct gf_sim_setup setup = {.world = 2, .fault_count = 1,
                                 .faults = {{.kind = GF_SIM_FAULT_DUPLICATE, .rank = 0, .at = 1}}};
    struct sim_world w;
    sim_world_open(&w, &setup);
    for (uint64_t i = 0; i < 3000; i++) {
        assert_int_equal(sim_world_recv(&w, 1, 0, i, NULL, 0, 0), GF_OK);
        assert_int_equal(sim_world_send(&w, 0, 1, i, NULL, 0, 0), GF_OK);
        sim_world_run(&w);
        assert_int_equal(sim_world_test(&w, 1, 0), GF_OK);
    }
    assert_int_equal(sim_world_recv(&w, 1, 0, 0, NULL, 0, 0), GF_OK);
    sim_world_run(&w);
    assert_int_equal(sim_world_test(&w, 1, 0), GF_AGAIN);
    sim_world_close(&w);
}

TEST(random_loss_has_its_rate)
{
    struct gf_sim_setup setup = {.world = 2, .seed = 3, .drop_rate = 0.25};
    struct sim_world w;
    uint32_t arrived = 0;
    sim_world_open(&w, &setup);
    for (uint64_t i = 0; i < 4000; i++) {
        assert_int_equal(sim_world_recv(&w, 1, 0, i, NULL, 0, 0), GF_OK);
        assert_int_equal(sim_world_send(&w, 0, 1, i, NULL, 0, 0), GF_OK);
        sim_world_run(&w);
        arrived += (sim_world_test(&w, 1, 0) == GF_OK);
        w.driver->cancel(w.links[1], sim_world_req(&w, 1, 0));
    }
    assert_in_range(arrived, 2900, 3100);
    sim_world_close(&w);
}

TEST(thousands_of_unexpected_messages_find_their_receives)
{
    enum { COUNT = 5000 };
    struct gf_sim_setup setup = {.world = 3, .seed = 5, .latency_ns = LATENCY_NS, .jitter_ns = 90000};
    struct sim_world w;
    sim_world_open(&w, &setup);
    for (uint32_t i = 0; i < COUNT; i++) {
        uint64_t value = i;
        assert_int_equal(sim_world_send(&w, i % 2, 2, i / 2, &value, sizeof value, 0), GF_OK);
        while (sim_world_test(&w, i % 2, 0) == GF_AGAIN) assert_true(gf_sim_advance(w.sim));
    }
    sim_world_run(&w);
    for (uint32_t i = COUNT; i-- > 0;) {
        uint64_t value = UINT64_MAX;
        assert_int_equal(sim_world_recv(&w, 2, i % 2, i / 2, &value, sizeof value, 0), GF_OK);
        assert_int_equal(sim_world_test(&w, 2, 0), GF_OK);
        assert_int_equal(value, i);
    }
    sim_world_close(&w);
}

TEST(many_senders_may_use_one_tag)
{
    enum { SENDERS = 60 };
    struct gf_sim_setup setup = {.world = SENDERS + 1};
    struct sim_world w;
    uint32_t sources[SENDERS], targets[SENDERS];
    sim_world_open(&w, &setup);
    for (uint32_t posts_first = 0; posts_first < 2; posts_first++) {
        memset(targets, 0, sizeof targets);
        for (uint32_t turn = 0; turn < 2; turn++) {
            for (uint32_t i = 0; i < SENDERS; i++) {
                uint32_t from = SENDERS - 1 - i;
                sources[i] = i + 1;
                if (turn == posts_first) {
                    assert_int_equal(sim_world_send(&w, i, SENDERS, 8, &sources[i], 4, 0), GF_OK);
                } else {
                    assert_int_equal(sim_world_recv(&w, SENDERS, from, 8, &targets[from], 4, i), GF_OK);
                }
            }
            sim_world_run(&w);
        }
        for (uint32_t i = 0; i < SENDERS; i++) assert_int_equal(sim_world_test(&w, SENDERS, i), GF_OK);
        assert_memory_equal(sources, targets, sizeof sources);
    }
    sim_world_close(&w);
}
