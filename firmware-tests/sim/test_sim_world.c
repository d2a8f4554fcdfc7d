/* The simulator's world: death, cancelling, a drop, and that a seed is a run. Stops, cuts, shared
 * memory, time and what a reset ends are the suites' of whole contexts. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/sim_links.h"

#include <sys/mman.h>

#define LATENCY_NS 1000u

static const struct gf_sim_setup plain = {.world = 3, .latency_ns = LATENCY_NS, .bytes_per_ns = 1};

TEST(a_killed_rank_says_so_and_its_messages_are_lost)
{
    uint64_t from_dead = 1;
    uint64_t to_dead = 2;
    uint64_t target = 0;
    uint64_t unused = 0;
    uint32_t woken;
    SIM_LINKS_OPEN(w, &plain);
    assert_int_equal(sim_links_recv(&w, 1, 0, 1, &target, 8, 0), GF_OK);
    assert_int_equal(sim_links_send(&w, 0, 1, 1, &from_dead, 8, 0), GF_OK);
    assert_int_equal(sim_links_send(&w, 1, 0, 2, &to_dead, 8, 1), GF_OK);
    assert_int_equal(sim_links_recv(&w, 0, 1, 2, &unused, 8, 1), GF_OK);
    /* never tested: close() ends it */
    assert_int_equal(sim_links_recv(&w, 0, 2, 3, &unused, 8, 2), GF_OK);
    /* both have left their ports */
    gf_sim_advance_to(w.sim, LATENCY_NS / 2);
    gf_sim_kill(w.sim, 0);
    sim_links_run(&w);
    assert_false(gf_sim_runs(w.sim, 0));
    assert_true(gf_sim_runs(w.sim, 1));
    while ((woken = gf_sim_woken_next(w.sim)) != GF_RANK_NONE) assert_int_not_equal(woken, 0);
    assert_false(w.driver->progress(w.links[0]));
    assert_int_equal(w.links[0]->failed, GF_ERR_ABORTED);
    assert_int_equal(sim_links_send(&w, 0, 1, 4, NULL, 0, 3), GF_ERR_ABORTED);
    assert_int_equal(sim_links_recv(&w, 0, 1, 4, NULL, 0, 3), GF_ERR_ABORTED);
    assert_int_equal(sim_links_test(&w, 0, 1), GF_ERR_ABORTED);
    assert_int_equal(w.links[0]->fault.code, GF_ERR_ABORTED);
    assert_int_equal(sim_links_test(&w, 1, 1), GF_OK);    /* a send does not care */
    assert_int_equal(sim_links_test(&w, 1, 0), GF_AGAIN); /* the message was lost */
    assert_int_equal(target, 0);
    assert_int_equal(sim_links_send(&w, 1, 0, 5, &to_dead, 8, 1), GF_OK);
    sim_links_run(&w);
    assert_int_equal(sim_links_test(&w, 1, 1), GF_OK);
}

TEST(a_cancelled_receive_ends_once_and_is_not_written_to)
{
    uint64_t source = 5;
    uint64_t target = 0;
    SIM_LINKS_OPEN(w, &plain);
    assert_int_equal(sim_links_recv(&w, 1, 0, 1, &target, 8, 0), GF_OK);
    assert_int_equal(sim_links_send(&w, 0, 1, 1, &source, 8, 0), GF_OK);
    w.driver->cancel(w.links[0], sim_links_req(&w, 0, 0)); /* a send goes on */
    assert_int_equal(sim_links_test(&w, 0, 0), GF_AGAIN);
    w.driver->cancel(w.links[1], sim_links_req(&w, 1, 0));
    assert_int_equal(sim_links_test(&w, 1, 0), GF_ERR_ABORTED);
    w.driver->cancel(w.links[1], sim_links_req(&w, 1, 0));
    sim_links_run(&w);
    assert_int_equal(sim_links_test(&w, 0, 0), GF_OK);
    assert_int_equal(sim_links_test(&w, 1, 0), GF_ERR_ABORTED);
    assert_int_equal(target, 0);
    assert_int_equal(sim_links_recv(&w, 1, 0, 1, &target, 8, 0), GF_OK); /* it waited, unexpected */
    w.driver->cancel(w.links[1], sim_links_req(&w, 1, 0));
    assert_int_equal(sim_links_test(&w, 1, 0), GF_OK);
    assert_int_equal(target, 5);
}

/* Many in a bucket: each receive finds its sender's, its tag's, and the first of those. */
TEST(thousands_of_unexpected_messages_are_matched)
{
    static uint64_t values[2][4096];
    for (uint32_t count = 8; count <= LENGTH(values[0]); count *= 2) {
        uint32_t tags = (count < 1024) ? count : 1024;
        SIM_LINKS_OPEN(w, &plain);
        for (uint32_t i = 0; i < count; i++) {
            values[0][i] = i;
            values[1][i] = ~(uint64_t)i;
            assert_int_equal(
                sim_links_send(&w, 0, 1, i % tags, &values[0][i], 8, i % SIM_LINKS_REQS), GF_OK);
            assert_int_equal(
                sim_links_send(&w, 2, 1, i % tags, &values[1][i], 8, i % SIM_LINKS_REQS), GF_OK);
            if (((i + 1) % SIM_LINKS_REQS == 0) || (i + 1 == count)) sim_links_run(&w);
        }
        for (uint32_t i = 0; i < count; i++) {
            uint64_t tag = tags - 1 - i % tags;
            uint64_t of_first = 0;
            uint64_t of_last = 0;
            assert_int_equal(sim_links_recv(&w, 1, 2, tag, &of_last, 8, 0), GF_OK);
            assert_int_equal(sim_links_recv(&w, 1, 0, tag, &of_first, 8, 1), GF_OK);
            assert_int_equal(sim_links_test(&w, 1, 0), GF_OK);
            assert_int_equal(sim_links_test(&w, 1, 1), GF_OK);
            assert_true((of_first == i / tags * tags + tag) && (of_last == ~of_first));
        }
        assert_int_equal(sim_links_recv(&w, 1, 0, 0, NULL, 0, 0), GF_OK);
        assert_int_equal(sim_links_test(&w, 1, 0), GF_AGAIN); /* none is left */
    }
    struct gf_sim_setup many = plain; /* one tag of many senders */
    many.world = 64;
    SIM_LINKS_OPEN(w, &many);
    for (uint32_t from = 1; from < many.world; from++)
        assert_int_equal(sim_links_send(&w, from, 0, 5, &values[0][from], 8, 0), GF_OK);
    sim_links_run(&w);
    for (uint32_t from = many.world - 1; from > 0; from--) {
        uint64_t value = 0;
        assert_int_equal(sim_links_recv(&w, 0, from, 5, &value, 8, 0), GF_OK);
        assert_int_equal(sim_links_test(&w, 0, 0), GF_OK);
        assert_true(value == from);
    }
}

TEST(a_bound_receive_ends_by_its_message_or_by_reset)
{
    for (uint32_t kills = 0; kills < 2; kills++) {
        struct gf_sim_setup setup = plain;
        unsigned char source[500];
        unsigned char target[500] = {0};
        setup.world = 4;
        setup.bind_receives = true;
        SIM_LINKS_OPEN(w, &setup);
        memset(source, 9, sizeof source);
        assert_int_equal(sim_links_recv(&w, 1, 0, 1, target, sizeof target, 0), GF_OK);
        assert_int_equal(sim_links_recv(&w, 1, 0, 2, target, sizeof target, 1), GF_OK);
        assert_int_equal(sim_links_send(&w, 0, 1, 1, source, sizeof source, 0), GF_OK);
        gf_sim_advance_to(w.sim, LATENCY_NS + 250); /* half of its bytes are there */
        w.driver->cancel(w.links[1], sim_links_req(&w, 1, 0));
        w.driver->cancel(w.links[1], sim_links_req(&w, 1, 1));
        assert_int_equal(sim_links_test(&w, 1, 0), GF_AGAIN);
        assert_int_equal(sim_links_test(&w, 1, 1), GF_ERR_ABORTED);
        if (kills == 1) gf_sim_kill(w.sim, 0);
        sim_links_run(&w);
        w.driver->cancel(w.links[1], sim_links_req(&w, 1, 0));
        assert_int_equal(sim_links_test(&w, 1, 0), (kills == 1) ? GF_AGAIN : GF_OK);
        assert_int_equal(target[499], (kills == 1) ? 0 : 9);
        assert_int_equal(sim_links_recv(&w, 3, 2, 1, NULL, 0, 0), GF_OK);
        assert_int_equal(sim_links_send(&w, 2, 3, 1, NULL, 0, 0), GF_OK);
        assert_int_equal(w.driver->reset(w.links[1], 2, 1, w.world), GF_OK);
        assert_int_equal(sim_links_test(&w, 1, 0), (kills == 1) ? GF_ERR_ABORTED : GF_OK);
        sim_links_run(&w);
        assert_int_equal(sim_links_test(&w, 3, 0), GF_OK); /* another's message is left alone */
    }
}

TEST(a_drop_ends_all_and_keeps_the_region)
{
    static unsigned char source[1000];
    static unsigned char target[1000];
    unsigned char *region;
    SIM_LINKS_OPEN(w, &plain);
    region = w.links[1]->region;
    region[0] = 1;
    assert_int_equal(sim_links_recv(&w, 1, 0, 0, target, sizeof target, 0), GF_OK);
    assert_int_equal(sim_links_send(&w, 0, 1, 0, source, sizeof source, 0), GF_OK);
    w.driver->drop(w.links[1]);
    assert_int_equal(sim_links_test(&w, 1, 0), GF_ERR_ABORTED);
    assert_int_equal(sim_links_send(&w, 1, 0, 1, source, 1, 1), GF_ERR_STATE);
    assert_true((w.links[1]->region == region) && (region[0] == 1));
    sim_links_run(&w);
}

TEST(what_a_reset_finds_in_its_port_is_lost)
{
    for (uint32_t i = 0; i < 2; i++) {
        unsigned char source[500] = {0};
        unsigned char target[500];
        SIM_LINKS_OPEN(w, &plain);
        assert_int_equal(sim_links_recv(&w, 1, 0, 1, target, sizeof target, 0), GF_OK);
        assert_int_equal(sim_links_send(&w, 0, 1, 1, source, sizeof source, 0), GF_OK);
        gf_sim_advance_to(w.sim, (i == 0) ? 499 : 500);
        assert_int_equal(w.driver->reset(w.links[0], 2, 0, w.world), GF_OK);
        assert_int_equal(sim_links_test(&w, 0, 0), (i == 0) ? GF_ERR_ABORTED : GF_OK);
        sim_links_run(&w);
        assert_int_equal(sim_links_test(&w, 1, 0), (i == 0) ? GF_AGAIN : GF_OK);
    }
}

TEST(more_requests_than_were_asked_for_wait)
{
    static struct sim_links_req more;
    SIM_LINKS_OPEN(w, &plain);
    for (uint32_t i = 0; i < SIM_LINKS_REQS; i++)
        assert_int_equal(sim_links_recv(&w, 1, 0, i, NULL, 0, i), GF_OK);
    assert_int_equal(w.driver->recv_post(w.links[1], 0, 99, 0, 0, (struct gf_req *)&more), GF_FULL);
    w.driver->cancel(w.links[1], sim_links_req(&w, 1, 7));
    assert_int_equal(w.driver->recv_post(w.links[1], 0, 99, 0, 0, (struct gf_req *)&more), GF_OK);
}

/* Every rank passes a message round the ring; returns a hash of who was woken when and how each
 * request ended. */
static uint64_t ring_hash(const struct gf_sim_setup *setup, uint64_t moves)
{
    struct sim_links w;
    uint64_t hash = setup->world;
    uint32_t left = setup->world;
    uint64_t *moved = calloc(setup->world, sizeof *moved);
    bool *posted = calloc(setup->world, sizeof *posted);
    assert_non_null(moved);
    assert_non_null(posted);
    sim_links_open(&w, setup);
    while (left > 0) {
        uint32_t rank;
        while ((rank = gf_sim_woken_next(w.sim)) != GF_RANK_NONE) {
            hash = (hash ^ rank ^ (gf_sim_now_ns(w.sim) << 10)) * 0x9e3779b97f4a7c15u;
            while (moved[rank] < moves) {
                if (!posted[rank]) {
                    uint32_t to = (rank + 1) % w.world;
                    uint32_t from = (rank + w.world - 1) % w.world;
                    assert_int_equal(sim_links_recv(&w, rank, from, moved[rank], NULL, 0, 0),
                                     GF_OK);
                    assert_int_equal(sim_links_send(&w, rank, to, moved[rank], NULL, 0, 1), GF_OK);
                    posted[rank] = true;
                }
                if ((sim_links_test(&w, rank, 0) == GF_AGAIN) ||
                    (sim_links_test(&w, rank, 1) == GF_AGAIN))
                    break;
                posted[rank] = false;
                left -= (++moved[rank] == moves);
            }
        }
        if ((left > 0) && !gf_sim_advance(w.sim)) break;
    }
    assert_int_equal(left, 0);
    assert_int_equal(gf_sim_counts(w.sim)->messages_sent, moves * setup->world);
    sim_links_close(&w);
    free(moved);
    free(posted);
    return hash;
}

TEST(the_same_seed_is_the_same_run)
{
    struct gf_sim_setup setup = {.world = 7, .seed = 1, .latency_ns = LATENCY_NS, .jitter_ns = 333};
    uint64_t first = ring_hash(&setup, 100);
    assert_true(ring_hash(&setup, 100) == first);
    setup.seed = 2;
    assert_true(ring_hash(&setup, 100) != first);
    setup.jitter_ns = 0;
    first = ring_hash(&setup, 100);
    setup.seed = 3;
    assert_true(ring_hash(&setup, 100) == first); /* nothing is left to chance */
}

TEST(half_a_million_messages_among_512_ranks_complete)
{
    struct gf_sim_setup setup = {.world = 512,
                                 .latency_ns = 5000,
                                 .jitter_ns = 1000,
                                 .message_ns = 300,
                                 .bytes_per_ns = 7,
                                 .no_data = true};
    (void)ring_hash(&setup, 1022);
}
