/* The UCX link between real processes, over loopback tcp and beside the memory of a node.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/ucx_ranks.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

/* Of one run of ranks_run_each(). */
static bool is_in_node(const struct ranks_one *one)
{
    return strstr(one->arg, "node") != NULL;
}

/* ---- messages ---- */

static const size_t sizes[] = {0, 1, 8, 4096, 65536, 1u << 20};
#define SIZES (LENGTH(sizes))

static unsigned char out[RANKS_MAX][SIZES][1u << 20], in[RANKS_MAX][SIZES][1u << 20];

/* Sends and receives of all sizes with all peers at once; a peer's messages are asked for last one
 * first. */
static void all_sizes(struct ranks_one *one, bool receive_first)
{
    uint32_t sends = 0;
    uint32_t recvs = 32;
    memset(in, 0, sizeof in);
    for (int turn = 0; turn < 2; turn++) {
        bool receive = (turn == 0) == receive_first;
        for (uint32_t peer = 0; peer < one->world; peer++)
            for (uint32_t i = 0; (peer != one->rank) && (i < SIZES); i++) {
                uint32_t last = (uint32_t)SIZES - 1 - i;
                if (receive) {
                    ranks_recv(one, recvs++, peer, ranks_tag(last), in[peer][last], sizes[last]);
                } else {
                    ranks_fill(out[peer][i], sizes[i], one->rank * 100 + peer * 10 + i);
                    ranks_send(one, sends++, peer, ranks_tag(i), out[peer][i], sizes[i]);
                }
            }
        ranks_meet(one); /* with the sends first: messages arrive unexpected */
    }
    while (recvs > 32) RANK_CHECK(one, ranks_end(one, --recvs) == GF_OK);
    while (sends > 0) RANK_CHECK(one, ranks_end(one, --sends) == GF_OK);
    for (uint32_t peer = 0; peer < one->world; peer++)
        for (uint32_t i = 0; (peer != one->rank) && (i < SIZES); i++)
            RANK_CHECK(one, ranks_filled(in[peer][i], sizes[i], peer * 100 + one->rank * 10 + i));
    ranks_meet(one);
}

static void messages_body(struct ranks_one *one)
{
    uint64_t bytes = 0;
    ranks_begin(one);
    all_sizes(one, true);
    all_sizes(one, false);
    for (uint32_t i = 0; i < SIZES; i++) bytes += 2 * (one->world - 1) * sizes[i];
    RANK_CHECK(one, one->link->sent_bytes == bytes);
    RANK_CHECK(one, one->link->sent_messages == 2 * (one->world - 1) * SIZES);
}

TEST(messages_of_all_sizes_arrive)
{
    ranks_run_each(2, 0, messages_body);
    ranks_run_each(3, 0, messages_body);
}

/* Small buffers: what a peer writes into memory then comes in parts. UCX read through NULL between
 * two of them. */
RANKS_TEST(a_small_message_is_awaited_while_a_large_one_is_written, 2, 0)
{
    uint32_t peer = 1 - one->rank;
    RANK_CHECK(one,
               setenv("UCX_TCP_SNDBUF", "64k", 1) == 0 && setenv("UCX_TCP_RCVBUF", "64k", 1) == 0);
    RANK_CHECK(one, setenv("UCX_RNDV_THRESH", "8k", 1) == 0);
    ranks_begin(one);
    ranks_warm(one);
    ranks_fill(out[0][5], 1u << 20, one->rank);
    for (int round = 0; round < 10; round++) {
        ranks_recv(one, 0, peer, ranks_tag(0), in[0][2], 8);
        ranks_recv(one, 1, peer, ranks_tag(1), in[0][5], 1u << 20);
        ranks_send(one, 2, peer, ranks_tag(1), out[0][5], 1u << 20);
        for (uint32_t i = 1; i <= 2; i++) RANK_CHECK(one, ranks_end(one, i) == GF_OK);
        ranks_send(one, 3, peer, ranks_tag(0), out[0][5], 8);
        for (uint32_t i = 0; i <= 3; i += 3) RANK_CHECK(one, ranks_end(one, i) == GF_OK);
        RANK_CHECK(one, ranks_filled(in[0][5], 1u << 20, peer));
        RANK_CHECK(one, memcmp(in[0][2], in[0][5], 8) == 0);
    }
    ranks_meet(one);
}

/* What close() is given to do is still sent: the receiver asks only after the sender has closed. */
RANKS_TEST(a_message_sent_before_close_arrives, 2, 0)
{
    ranks_begin(one);
    if (one->rank == 0) {
        ranks_fill(out[0][2], 8, 5);
        ranks_send(one, 0, 1, ranks_tag(0), out[0][2], 8);
        RANK_CHECK(one, ranks_end(one, 0) == GF_OK);
        ranks_close(one);
        ranks_meet(one);
    } else {
        ranks_meet(one);
        ranks_recv(one, 0, 0, ranks_tag(0), in[0][2], 8);
        RANK_CHECK(one, ranks_end(one, 0) == GF_OK);
        RANK_CHECK(one, ranks_filled(in[0][2], 8, 5));
        ranks_close(one);
    }
}

static const struct size_case {
    const char *transports;
    size_t sent_bytes, expected_bytes;
    bool receive_first;
} size_cases[] = {
    {"tcp", 0, 8, true},
    {"tcp", 16, 8, true},
    {"tcp", 8, 16, false},
    {"tcp", 65536, 4096, false},
    {"tcp", 1u << 20, 1u << 19, false},
    {"tcp", 1u << 19, 1u << 20, true},
    {"node,tcp", 16, 8, true},
    {"node,tcp", 1u << 19, 1u << 20, false},
};

static void size_case_body(struct ranks_one *one)
{
    const struct size_case *c = one->arg;
    char want[80];
    ranks_setup(one, c->transports);
    ranks_open(one);
    if (one->rank == 1) {
        ranks_send(one, 0, 0, ranks_tag(0), out[0][5], c->sent_bytes);
        if (!c->receive_first) ranks_meet(one);
        (void)ranks_end(one, 0);
    } else {
        if (!c->receive_first) ranks_meet(one);
        ranks_recv(one, 0, 1, ranks_tag(0), in[0][5], c->expected_bytes);
        RANK_CHECK(one, ranks_end(one, 0) == GF_ERR_MISMATCH);
        RANK_CHECK(one, (one->link->fault.code == GF_ERR_MISMATCH) && (one->link->fault.peer == 1));
        (void)snprintf(want, sizeof want, "rank 1 sent %zu bytes where rank 0 expects %zu",
                       c->sent_bytes, c->expected_bytes);
        RANK_CHECK(one, strncmp(one->link->fault.text, want, strlen(want)) == 0);
    }
    ranks_meet(one);
}

TEST(another_size_is_named_with_both_sizes)
{
    for (size_t i = 0; i < LENGTH(size_cases); i++) ranks_run(2, 0, size_case_body, &size_cases[i]);
}

/* ---- rules of posting ---- */

RANKS_TEST(posting_keeps_its_bounds_and_cancel_ends_a_receive, 2, 0)
{
    struct gf_fault *fault;
    char byte = 0;
    ranks_setup(one, one->arg);
    one->setup.requests_max = 3;
    ranks_open(one);
    fault = &one->link->fault;
    for (uint32_t i = 0; i < 3; i++) ranks_recv(one, i, 1 - one->rank, ranks_tag(i), in[0][i], 1);
    RANK_CHECK(one,
               one->link->driver->recv_post(one->link, 1 - one->rank, ranks_tag(3),
                                            (gf_mem)(uintptr_t)&byte, 1, one->reqs[3]) == GF_FULL);
    RANK_CHECK(one, fault->code == GF_OK);
    one->link->driver->cancel(one->link, one->reqs[1]);
    RANK_CHECK(one, ranks_end(one, 1) == GF_ERR_ABORTED);
    RANK_CHECK(one, fault->code == GF_OK); /* a cancel is no failure */
    ranks_recv(one, 1, 1 - one->rank, ranks_tag(3), &byte, 1);
    one->link->driver->cancel(one->link, one->reqs[0]);
    one->link->driver->cancel(one->link, one->reqs[0]); /* it has ended: nothing to do */
    RANK_CHECK(one, ranks_end(one, 0) == GF_ERR_ABORTED);
    RANK_CHECK(one, one->link->driver->send_post(one->link, 1 - one->rank, ranks_tag(0),
                                                 (gf_mem)(uintptr_t)out, RANKS_MESSAGE_MAX + 1,
                                                 one->reqs[0]) == GF_ERR_PARAM);
    RANK_CHECK(one, strstr(fault->text, "1048577 bytes") != NULL);
    RANK_CHECK(one, one->link->driver->send_post(one->link, 2, ranks_tag(0), 0, 0, one->reqs[0]) ==
                        GF_ERR_PARAM);
    RANK_CHECK(one, one->link->driver->send_post(one->link, one->rank, ranks_tag(0), 0, 0,
                                                 one->reqs[0]) == GF_ERR_PARAM);
    RANK_CHECK(one, one->link->driver->recv_post(one->link, 1 - one->rank, 1ull << GF_TAG_BITS, 0,
                                                 0, one->reqs[0]) == GF_ERR_PARAM);
    ranks_meet(one);
    one->link->driver->close(one->link);
    RANK_CHECK(one, fault->code == GF_ERR_PARAM);
    RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[1]) == GF_ERR_ABORTED);
    RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[2]) == GF_ERR_ABORTED);
    one->link = NULL;
}

/* ---- shared memory ---- */

static void map_body(struct ranks_one *one)
{
    const uint32_t left = (one->rank + one->world - 1) % one->world;
    const uint32_t right = (one->rank + 1) % one->world;
    bool shared = is_in_node(one);
    uint64_t *own;
    ranks_begin(one);
    own = (void *)one->link->region;
    RANK_CHECK(one, (own != NULL) && (one->link->driver->map(one->link, one->rank) == own));
    RANK_CHECK(one, one->link->driver->map(one->link, one->world) == NULL);
    for (size_t i = 0; i < 65536 / 8; i++) RANK_CHECK(one, own[i] == 0);
    RANK_CHECK(one, (one->link->driver->map(one->link, right) != NULL) == shared);
    ranks_meet(one);
    /* Rounds of data and then a flag, each round another pattern, answered by a flag from the
     * reader. */
    for (uint64_t round = 1; shared && (round <= 200); round++) {
        unsigned char *to = one->link->driver->map(one->link, right);
        ranks_fill(to + 128, 4096, round * 7 + one->rank);
        one->link->driver->flag_store(one->link, right, 0, round);
        while (gf_flag_load(one->link, 0) != round) ranks_progress(one);
        RANK_CHECK(one, ranks_filled((unsigned char *)own + 128, 4096, round * 7 + left));
        one->link->driver->flag_store(one->link, left, 8, round);
        while (gf_flag_load(one->link, 8) != round) ranks_progress(one);
    }
    ranks_meet(one);
}

TEST(regions_are_mapped_where_memory_is_shared_and_null_elsewhere)
{
    ranks_run_each(2, 0, map_body);
    ranks_run_each(3, 0, map_body);
}

RANKS_TEST(a_rank_without_a_region_maps_to_null, 2, 0)
{
    ranks_setup(one, one->arg);
    one->setup.region_bytes = (one->rank == 0) ? 0 : 4096;
    ranks_open(one);
    RANK_CHECK(one, (one->link->region == NULL) == (one->rank == 0));
    if (one->rank == 1) RANK_CHECK(one, one->link->driver->map(one->link, 0) == NULL);
    ranks_meet(one);
}

RANKS_TEST(huge_pages_are_tried_and_the_outcome_is_logged, 1, 0)
{
    ranks_setup(one, one->arg);
    one->setup.huge_pages = true;
    one->setup.region_bytes = 5u << 20;
    ranks_open(one);
    RANK_CHECK(one, strstr(one->log,
                           "huge pages were asked for, the exchange region has pages of ") != NULL);
    RANK_CHECK(one, one->link->region != NULL);
}

/* ---- sleeping ---- */

RANKS_TEST(a_message_wakes_a_sleeper, 2, 0)
{
    char byte = 0;
    ranks_begin(one);
    for (uint32_t round = 0; round < 20; round++) {
        if (one->rank == 0) {
            struct pollfd ready = {.fd = one->link->wake_fd, .events = POLLIN};
            RANK_CHECK(one, ready.fd >= 0);
            ranks_recv(one, 0, 1, ranks_tag(round), &byte, 1);
            bool told = false;
            while (one->link->driver->test(one->link, one->reqs[0]) == GF_AGAIN) {
                bool armed = one->link->driver->arm(one->link);
                RANK_CHECK(one, one->link->failed == GF_OK);
                if (armed) {
                    if (!told) RANK_CHECK(one, write(one->to[1], "x", 1) == 1);
                    told = true;
                    RANK_CHECK(one, poll(&ready, 1, 20000) == 1);
                }
                while (one->link->driver->progress(one->link)) continue;
            }
            RANK_CHECK(one, told && (ranks_end(one, 0) == GF_OK));
        } else {
            RANK_CHECK(one, read(one->to[0], &byte, 1) == 1);
            ranks_send(one, 0, 0, ranks_tag(round), &byte, 1);
            RANK_CHECK(one, ranks_end(one, 0) == GF_OK);
            while (one->link->driver->progress(one->link)) continue;
        }
    }
    ranks_meet(one);
}

/* ---- generations ---- */

RANKS_TEST(reset_ends_all_requests_and_a_new_generation_works, 2, 0)
{
    static unsigned char old[2048];
    size_t old_bytes = 0;
    uint32_t peer = 1 - one->rank;
    ranks_begin(one);
    ranks_endpoint_swap(one, peer, old, &old_bytes);
    for (uint32_t generation = 2; generation < 5; generation++) {
        memset(one->link->region, 0xff, 65536);
        ranks_warm(one);
        for (uint32_t i = 0; i < 8; i++)
            ranks_recv(one, i, peer, ranks_tag(i), in[i % 3][5], 1u << 20);
        if (one->rank == 0) ranks_send(one, 8, peer, ranks_tag(0), out[0][5], 1u << 20);
        /* nobody receives it */
        if (one->rank == 0) ranks_send(one, 9, peer, ranks_tag(50), out[0][5], 1u << 20);
        for (int i = 0; i < 100; i++) ranks_progress(one);
        ranks_meet(one);
        RANK_CHECK(one,
                   one->link->driver->reset(one->link, generation, one->rank, one->world) == GF_OK);
        for (uint32_t i = (one->rank == 1) ? 1 : 0; i < 8; i++)
            RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[i]) == GF_ERR_ABORTED);
        if (one->rank == 1)
            RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[0]) != GF_AGAIN);
        if (one->rank == 0)
            RANK_CHECK(one, one->link->driver->test(one->link, one->reqs[9]) != GF_AGAIN);
        RANK_CHECK(one, one->link->driver->send_post(one->link, peer, ranks_tag(0), 0, 0,
                                                     one->reqs[0]) == GF_ERR_STATE);
        RANK_CHECK(one, one->link->driver->map(one->link, peer) == NULL);
        RANK_CHECK(one,
                   one->link->driver->connect(one->link, peer, old, old_bytes) == GF_ERR_MISMATCH);
        ranks_connect(one);
        RANK_CHECK(one, (one->link->driver->map(one->link, peer) != NULL) == is_in_node(one));
        for (uint32_t i = 0; i < 65536; i += 8)
            RANK_CHECK(one, *(uint64_t *)(void *)(one->link->region + i) == 0);
        ranks_recv(one, 0, peer, ranks_tag(1), in[0][3], 4096);
        ranks_fill(out[0][3], 4096, generation);
        ranks_send(one, 1, peer, ranks_tag(1), out[0][3], 4096);
        RANK_CHECK(one, (ranks_end(one, 0) == GF_OK) && (ranks_end(one, 1) == GF_OK));
        RANK_CHECK(one, ranks_filled(in[0][3], 4096, generation));
        ranks_meet(one);
    }
}

/* ---- two links in one process ---- */

RANKS_TEST(links_of_one_process_are_independent, 1, 0)
{
    static struct ranks_one other;
    static unsigned char endpoint[2048];
    struct ranks_one *both_ranks[] = {one, &other};
    size_t size_bytes = 0;
    other = (struct ranks_one){.rank = 1, .world = 2};
    one->world = 2;
    for (uint32_t i = 0; i < 2; i++) {
        ranks_setup(both_ranks[i], one->arg);
        RANK_CHECK(both_ranks[i], ranks_open_try(both_ranks[i], NULL) == GF_OK);
    }
    for (uint32_t up = 0, i = 0; up < 2; i = 1 - i) { /* in turns: each waits for the other */
        gf_status status;
        RANK_CHECK(one,
                   gf_link_front.endpoint(both_ranks[i]->link, endpoint, &size_bytes) == GF_OK);
        status = gf_link_front.connect(both_ranks[1 - i]->link, i, endpoint, size_bytes);
        RANK_CHECK(one, status >= 0);
        up = (status == GF_OK) ? up + 1 : 0;
    }
    RANK_CHECK(one, (gf_link_front.map(one->link, 1) != NULL) == is_in_node(one));
    ranks_fill(out[0][5], 1u << 20, 3);
    ranks_recv(&other, 0, 0, ranks_tag(0), in[0][5], 1u << 20);
    ranks_send(one, 0, 1, ranks_tag(0), out[0][5], 1u << 20);
    while (gf_link_front.test(other.link, other.reqs[0]) == GF_AGAIN) {
        (void)gf_link_front.progress(one->link);
        (void)gf_link_front.progress(other.link);
    }
    RANK_CHECK(one, ranks_filled(in[0][5], 1u << 20, 3));
    ranks_close(&other);
    (void)gf_link_front.progress(one->link);
}

/* Looked at before main(), where cmocka puts its own. */
static void (*handlers_at_start[4])(int);
__attribute__((constructor)) static void handlers_look(void)
{
    static const int signals[] = {SIGBUS, SIGILL, SIGFPE, SIGSEGV};
    for (size_t i = 0; i < LENGTH(signals); i++) {
        struct sigaction action;
        if (sigaction(signals[i], NULL, &action) == 0) handlers_at_start[i] = action.sa_handler;
    }
}

TEST(ucx_installs_no_signal_handlers)
{
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* the sanitizer has its own */
#endif
    for (size_t i = 0; i < 4; i++) assert_true(handlers_at_start[i] == SIG_DFL);
}
