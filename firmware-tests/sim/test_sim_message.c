/* The simulator's messages: that they arrive whole, and when they should. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/sim_links.h"

#define LATENCY_NS 1000u
#define NEVER UINT64_MAX

static void fill(unsigned char *bytes, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) bytes[i] = (unsigned char)((seed + i) * 2654435761u >> 13);
}

TEST(a_message_arrives_whole_whoever_posts_first)
{
    static const size_t sizes[] = {0, 1, 63, 4096, 100001};
    static unsigned char source[100001];
    static unsigned char target[100001];
    static unsigned char expected[100001];
    struct gf_sim_setup setup = {.world = 2, .latency_ns = LATENCY_NS, .bytes_per_ns = 10};
    SIM_LINKS_OPEN(w, &setup);
    for (uint32_t i = 0; i < 2 * LENGTH(sizes); i++) {
        size_t size = sizes[i / 2];
        fill(source, size, i);
        memset(target, 0, sizeof target);
        memcpy(expected, target, sizeof target);
        memcpy(expected, source, size);
        if (i % 2 == 0) assert_int_equal(sim_links_recv(&w, 1, 0, i, target, size, 1), GF_OK);
        assert_int_equal(sim_links_send(&w, 0, 1, i, source, size, 0), GF_OK);
        assert_int_equal(sim_links_test(&w, 0, 0), GF_AGAIN);
        sim_links_run(&w);
        memset(source, 0xee, size); /* the send has ended: its buffer is ours */
        if (i % 2 == 1) {
            if (size > 0) assert_memory_not_equal(target, expected, size);
            assert_int_equal(sim_links_recv(&w, 1, 0, i, target, size, 1), GF_OK);
        }
        assert_int_equal(sim_links_test(&w, 0, 0), GF_OK);
        assert_int_equal(sim_links_test(&w, 1, 1), GF_OK);
        assert_int_equal(sim_links_test(&w, 1, 1), GF_OK);
        assert_memory_equal(target, expected, sizeof target);
    }
    assert_int_equal(w.links[0]->sent_messages, 10);
    assert_int_equal(w.links[0]->sent_bytes, 2 * (1 + 63 + 4096 + 100001));
    assert_int_equal(gf_sim_counts(w.sim)->messages_sent, 10);
    assert_int_equal(gf_sim_counts(w.sim)->bytes_sent, w.links[0]->sent_bytes);
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
    {"a sender's port takes one at a time",
     70,
     {{0, 2, 1000, 170, 1100}, {0, 4, 2000, 440, 1370}, {0, 2, 1000, 610, 1540}}},
    {"a receiver's port takes one at a time",
     0,
     {{0, 6, 1000, 100, 1100}, {2, 6, 2000, 200, 1300}, {4, 6, 1000, 100, 1400}}},
    {"what waits for its sender does not hold the receiver's port",
     0,
     {{0, 4, 9000, 900, 1900}, {0, 6, 1000, 1000, 2000}, {2, 6, 5000, 500, 1500}}},
    {"in and out are apart", 0, {{0, 2, 5000, 500, 1500}, {2, 0, 5000, 500, 1500}}},
    {"a node has its own latency, rate and ports",
     0,
     {{0, 1, 5000, 50, 150}, {0, 2, 5000, 500, 1500}}},
};

TEST(ports_and_latency_follow_the_formula)
{
    static unsigned char bytes[10000];
    for (size_t c = 0; c < LENGTH(timings); c++) {
        struct gf_sim_setup setup = {.world = 8,
                                     .ranks_per_node = 2,
                                     .latency_ns = 1000,
                                     .bytes_per_ns = 10,
                                     .node_latency_ns = 100,
                                     .node_bytes_per_ns = 100,
                                     .no_data = true,
                                     .message_ns = timings[c].message_ns};
        uint64_t sent_ns[3] = {NEVER, NEVER, NEVER};
        uint64_t received_ns[3] = {NEVER, NEVER, NEVER};
        SIM_LINKS_OPEN(w, &setup);
        for (uint32_t i = 0; i < 3; i++) {
            uint32_t from = timings[c].moves[i].from;
            uint32_t to = timings[c].moves[i].to;
            if (from == to) continue;
            assert_int_equal(
                sim_links_recv(&w, to, from, i, bytes, timings[c].moves[i].bytes, 8 + i), GF_OK);
            assert_int_equal(sim_links_send(&w, from, to, i, bytes, timings[c].moves[i].bytes, i),
                             GF_OK);
        }
        while (gf_sim_advance(w.sim)) {
            for (uint32_t i = 0; i < 3; i++) {
                uint32_t from = timings[c].moves[i].from;
                uint32_t to = timings[c].moves[i].to;
                if (from == to) continue;
                uint64_t now_ns = gf_sim_now_ns(w.sim);
                if ((sent_ns[i] == NEVER) && (sim_links_test(&w, from, i) == GF_OK))
                    sent_ns[i] = now_ns;
                if ((received_ns[i] == NEVER) && (sim_links_test(&w, to, 8 + i) == GF_OK))
                    received_ns[i] = now_ns;
            }
        }
        for (uint32_t i = 0; i < 3; i++) {
            if (timings[c].moves[i].from == timings[c].moves[i].to) continue;
            uint64_t send_ns = timings[c].moves[i].send_ns;
            uint64_t recv_ns = timings[c].moves[i].recv_ns;
            if ((sent_ns[i] == send_ns) && (received_ns[i] == recv_ns)) continue;
            fail_msg("%s: move %u left at %llu and landed at %llu", timings[c].name, i,
                     (unsigned long long)sent_ns[i], (unsigned long long)received_ns[i]);
        }
    }
}

/* What is sent while a rank works leaves behind the work, and the rank is woken no earlier than its
 * end. */
TEST(work_holds_up_what_is_sent_and_the_rank)
{
    struct gf_sim_setup setup = {
        .world = 2, .latency_ns = 1000, .bytes_per_ns = 10, .no_data = true};
    static unsigned char bytes[100];
    SIM_LINKS_OPEN(w, &setup);
    while (gf_sim_woken_next(w.sim) != GF_RANK_NONE) {
    }
    gf_sim_work(w.sim, 0, 300);
    gf_sim_work(w.sim, 0, 200);
    assert_int_equal(gf_sim_free_ns(w.sim, 0), 500);
    assert_int_equal(gf_sim_free_ns(w.sim, 1), 0);
    gf_sim_wake_at(w.sim, 0, 100);
    assert_int_equal(sim_links_recv(&w, 1, 0, 7, bytes, 100, 0), GF_OK);
    assert_int_equal(sim_links_send(&w, 0, 1, 7, bytes, 100, 0), GF_OK);
    assert_int_equal(gf_sim_woken_next(w.sim), GF_RANK_NONE);
    assert_true(gf_sim_advance(w.sim));
    assert_int_equal(gf_sim_now_ns(w.sim), 500);
    assert_int_equal(gf_sim_woken_next(w.sim), 0);
    while (sim_links_test(&w, 1, 0) == GF_AGAIN) assert_true(gf_sim_advance(w.sim));
    assert_int_equal(gf_sim_now_ns(w.sim), 500 + 1000 + 10);
}

TEST(a_nodes_port_carries_one_message_at_a_time)
{
    struct gf_sim_setup setup = {.world = 4,
                                 .ranks_per_node = 2,
                                 .latency_ns = 1000,
                                 .bytes_per_ns = 10,
                                 .node_port = true,
                                 .no_data = true};
    static unsigned char bytes[1000];
    SIM_LINKS_OPEN(w, &setup);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(sim_links_recv(&w, 2 + rank, rank, 7, bytes, 1000, 0), GF_OK);
        assert_int_equal(sim_links_send(&w, rank, 2 + rank, 7, bytes, 1000, 1), GF_OK);
    }
    while (sim_links_test(&w, 2, 0) == GF_AGAIN) assert_true(gf_sim_advance(w.sim));
    assert_int_equal(gf_sim_now_ns(w.sim), 1100);
    while (sim_links_test(&w, 3, 0) == GF_AGAIN) assert_true(gf_sim_advance(w.sim));
    assert_int_equal(gf_sim_now_ns(w.sim), 1200);
}

/* Without data fused buffers leave memory alone, while vote and requests carry what they hold. */
TEST(without_data_only_fused_buffers_are_empty)
{
    struct gf_sim_setup setup = {.world = 2, .latency_ns = 10, .no_data = true};
    uint64_t sent = 42;
    uint64_t fused = 1;
    uint64_t vote = 1;
    SIM_LINKS_OPEN(w, &setup);
    assert_int_equal(sim_links_recv(&w, 1, 0, gf_tag(1, 3, 5), &fused, sizeof fused, 0), GF_OK);
    assert_int_equal(
        sim_links_recv(&w, 1, 0, gf_tag(1, 3, GF_TAG_BUFFER_OTHER), &vote, sizeof vote, 1), GF_OK);
    assert_int_equal(sim_links_send(&w, 0, 1, gf_tag(1, 3, 5), &sent, sizeof sent, 0), GF_OK);
    assert_int_equal(
        sim_links_send(&w, 0, 1, gf_tag(1, 3, GF_TAG_BUFFER_OTHER), &sent, sizeof sent, 1), GF_OK);
    while (gf_sim_advance(w.sim)) {
    }
    assert_int_equal(sim_links_test(&w, 1, 0), GF_OK);
    assert_int_equal(sim_links_test(&w, 1, 1), GF_OK);
    assert_int_equal(fused, 1);
    assert_int_equal(vote, 42);
}
