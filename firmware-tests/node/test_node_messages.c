/* The messages of a node, and the flags by which its ranks wake each other.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/node_ranks.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define REGION ((size_t)1 << 20)
#define REQS 32u

static struct node_rank ranks[NODE_RANKS];
static unsigned char data[NODE_RANKS][2][1u << 20]; /* outside of every region */

static const size_t sizes[] = {0, 1, 8, 32, 33, 4096, 8256, 8257, 65536, 300000, 1u << 20};
#define SIZES ((uint32_t)LENGTH(sizes))

/* Where the bytes lie: 1: in the region, at the sender; 2: at the receiver. */
static void all_sizes(uint32_t where, bool receive_first)
{
    unsigned char *from = ((where & 1) != 0) ? ranks[0].link.region : data[0][0];
    unsigned char *to = ((where & 2) != 0) ? ranks[1].link.region : data[1][1];
    for (uint32_t i = 0; i < SIZES; i++) {
        node_fill(from, sizes[i], i);
        memset(to, 0, sizes[i]);
        if (receive_first) node_recv(ranks, 1, 0, i, to, sizes[i], 1);
        if (receive_first) node_progress(ranks, 2);
        node_send(ranks, 0, 1, i, from, sizes[i], 0);
        if (!receive_first) node_progress(ranks, 2);
        if (!receive_first) node_recv(ranks, 1, 0, i, to, sizes[i], 1);
        assert_int_equal(node_ranks_end(ranks, 2, 1, 1), GF_OK);
        assert_int_equal(node_ranks_end(ranks, 2, 0, 0), GF_OK);
        assert_true(node_filled(to, sizes[i], i));
    }
}

TEST(messages_of_all_sizes_arrive)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    for (int round = 0; round < 50; round++)
        for (uint32_t where = 0; where < 4; where++) all_sizes(where, (round & 1) == 0);
    assert_int_equal(ranks[0].node->requests_under_way + ranks[1].node->requests_under_way, 0);
    node_ranks_close(ranks, 2);
}

/* All that a rank may have under way, to several, and nobody asks for it; then in reverse order. */
TEST(messages_nobody_has_asked_for_hold_up_no_other)
{
    uint32_t rounds = 20;
    node_ranks_open(ranks, 3, REGION, REQS);
    for (uint32_t round = 0; round < rounds; round++) {
        static const size_t each[] = {8, 500, 8000, 20000, 16};
        for (uint32_t i = 0; i < REQS - 1; i++) {
            node_fill(data[0][0] + i * 20000, each[i % 5], i);
            node_send(ranks, 0, 1, i, data[0][0] + i * 20000, each[i % 5], i);
        }
        node_progress(ranks, 3);
        node_fill(ranks[0].link.region, 100000, 77);
        node_send(ranks, 0, 1, 1000, ranks[0].link.region, 100000,
                  REQS - 1); /* the last one that there is a request for */
        node_recv(ranks, 1, 0, 1000, data[1][0], 100000, 0);
        assert_int_equal(node_ranks_end(ranks, 3, 1, 0), GF_OK);
        assert_true(node_filled(data[1][0], 100000, 77));
        assert_int_equal(node_ranks_end(ranks, 3, 0, REQS - 1), GF_OK);
        for (uint32_t j = REQS - 1; j > 0; j--) {
            uint32_t i = j - 1;
            node_recv(ranks, 1, 0, i, data[1][0], each[i % 5], 0);
            assert_int_equal(node_ranks_end(ranks, 3, 1, 0), GF_OK);
            assert_true(node_filled(data[1][0], each[i % 5], i));
            assert_int_equal(node_ranks_end(ranks, 3, 0, i), GF_OK);
        }
    }
    assert_int_equal(ranks[0].node->requests_under_way, 0);
    node_ranks_close(ranks, 3);
}

/* Small sends end before anybody asks; not for ever, or they would need room for ever. */
TEST(small_sends_that_nobody_takes_end_up_under_way)
{
    uint32_t ended = 0;
    node_ranks_open(ranks, 2, REGION, REQS);
    for (uint32_t i = 0; i < NODE_DETACHED_MAX; i++) {
        node_send(ranks, 0, 1, i, &i, sizeof i, 0);
        ended += (node_test(ranks, 0, 0) == GF_OK);
    }
    assert_int_equal(ended, NODE_DETACHED_MAX);
    for (uint32_t i = 0; i < REQS; i++) node_send(ranks, 0, 1, 1000 + i, &i, sizeof i, i);
    node_progress(ranks, 2);
    for (uint32_t i = 0; i < REQS; i++) assert_int_equal(node_test(ranks, 0, i), GF_AGAIN);
    assert_int_equal(gf_node_send_post(ranks[0].node, 1, 5000, data[0][0], 1, &ranks[0].reqs[REQS]),
                     GF_FULL);
    for (uint32_t i = REQS; i > 0; i--) {
        uint32_t got = 99;
        node_recv(ranks, 1, 0, 1000 + i - 1, &got, sizeof got, 0);
        assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
        assert_int_equal(got, i - 1);
        assert_int_equal(node_test(ranks, 0, i - 1), GF_OK);
    }
    for (uint32_t i = NODE_DETACHED_MAX; i > 0; i--) {
        uint32_t got = 0;
        node_recv(ranks, 1, 0, i - 1, &got, sizeof got, 0);
        assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
        assert_int_equal(got, i - 1);
    }
    node_ranks_close(ranks, 2);
}

TEST(the_bounds_of_posting_hold)
{
    node_ranks_open(ranks, 2, REGION, 3);
    for (uint32_t i = 0; i < 3; i++) node_recv(ranks, 0, 1, i, data[0][0], 8, i);
    assert_int_equal(gf_node_recv_post(ranks[0].node, 1, 9, data[0][0], 8, &ranks[0].reqs[9]),
                     GF_FULL);
    assert_int_equal(gf_node_send_post(ranks[0].node, 1, 9, data[0][0], 8, &ranks[0].reqs[9]),
                     GF_FULL);
    gf_node_cancel(ranks[0].node, &ranks[0].reqs[1]);
    assert_int_equal(node_test(ranks, 0, 1), GF_ERR_ABORTED);
    node_send(ranks, 0, 1, 9, data[0][0], 8, 9);
    gf_node_cancel(ranks[0].node, &ranks[0].reqs[9]);
    assert_int_equal(node_test(ranks, 0, 9), GF_OK);
    node_ranks_close(ranks, 2);
}

static void mismatch(size_t sent_bytes, size_t expected_bytes, bool receive_first)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    if (receive_first) node_recv(ranks, 0, 1, 4, data[0][0], expected_bytes, 0);
    node_send(ranks, 1, 0, 4, data[1][0], sent_bytes, 0);
    node_progress(ranks, 2);
    if (!receive_first) node_recv(ranks, 0, 1, 4, data[0][0], expected_bytes, 0);
    assert_int_equal(node_ranks_end(ranks, 2, 0, 0), GF_ERR_MISMATCH);
    assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
    assert_non_null(strstr(ranks[0].link.fault.text, "rank 1 sent "));
    assert_int_equal(ranks[0].link.fault.peer, 1);
    node_ranks_close(ranks, 2);
}

TEST(another_size_is_named)
{
    static const size_t cases[] = {0, 8, 16, 5000, 70000};
    for (size_t a = 0; a < LENGTH(cases); a++)
        for (size_t b = 0; b < LENGTH(cases); b++)
            if (a != b) mismatch(cases[a], cases[b], ((a + b) & 1) != 0);
}

/* The sender gives a message up and writes where it lay: the receiver must not take it for the
 * message. */
TEST(a_send_that_was_cancelled_never_was)
{
    static const size_t cases[] = {9000, 70000, 300000};
    node_ranks_open(ranks, 2, REGION, REQS);
    for (uint32_t i = 0; i < 2 * LENGTH(cases); i++) {
        size_t bytes = cases[i / 2];
        unsigned char *from = ((i & 1) != 0) ? ranks[0].link.region : data[0][0];
        node_fill(from, bytes, 3);
        node_send(ranks, 0, 1, 50, from, bytes, 0);
        node_progress(ranks, 2);
        assert_int_equal(node_test(ranks, 0, 0), GF_AGAIN);
        gf_node_cancel(ranks[0].node, &ranks[0].reqs[0]);
        assert_int_equal(node_test(ranks, 0, 0), GF_ERR_ABORTED);
        memset(from, 0, bytes);
        node_recv(ranks, 1, 0, 50, data[1][0], bytes, 0);
        node_progress(ranks, 2);
        assert_int_equal(node_test(ranks, 1, 0), GF_AGAIN);
        node_fill(from, bytes, 4);
        node_send(ranks, 0, 1, 50, from, bytes, 1); /* the same again */
        assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
        assert_true(node_filled(data[1][0], bytes, 4));
        assert_int_equal(node_ranks_end(ranks, 2, 0, 1), GF_OK);
    }
    node_ranks_close(ranks, 2);
}

/* .. of whatever size it was. */
TEST(nor_does_its_size_matter)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    node_send(ranks, 0, 1, 50, data[0][0], 70000, 0);
    node_progress(ranks, 2);
    gf_node_cancel(ranks[0].node, &ranks[0].reqs[0]);
    node_recv(ranks, 1, 0, 50, data[1][0], 20000, 0);
    node_progress(ranks, 2);
    assert_int_equal(node_test(ranks, 1, 0), GF_AGAIN);
    node_send(ranks, 0, 1, 50, data[0][0], 20000, 1);
    assert_int_equal(node_ranks_end(ranks, 2, 1, 0), GF_OK);
    assert_int_equal(ranks[1].link.fault.code, GF_OK);
    node_ranks_close(ranks, 2);
}

TEST(a_receive_is_cancelled_while_its_pieces_come)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    node_recv(ranks, 1, 0, 7, data[1][0], 1u << 20, 0);
    node_send(ranks, 0, 1, 7, data[0][0], 1u << 20, 0);
    (void)gf_node_progress(ranks[1].node);
    gf_node_cancel(ranks[1].node, &ranks[1].reqs[0]);
    assert_int_equal(node_test(ranks, 1, 0), GF_ERR_ABORTED);
    assert_int_equal(node_ranks_end(ranks, 2, 0, 0),
                     GF_OK); /* the sender hears that it is done with */
    assert_int_equal(ranks[0].node->free_cells, NODE_CELLS);
    all_sizes(0, true);
    node_ranks_close(ranks, 2);
}

TEST(what_was_sent_before_close_arrives)
{
    node_ranks_open(ranks, 2, REGION, REQS);
    node_fill(data[0][0], 5000, 9);
    node_send(ranks, 0, 1, 1, data[0][0], 5000, 0);
    assert_int_equal(node_test(ranks, 0, 0), GF_OK);
    node_rank_close(&ranks[0]);
    node_recv(ranks, 1, 0, 1, data[1][0], 5000, 0);
    for (int i = 0; i < 10; i++) (void)gf_node_progress(ranks[1].node);
    assert_int_equal(node_test(ranks, 1, 0), GF_OK);
    assert_true(node_filled(data[1][0], 5000, 9));
    node_rank_close(&ranks[1]);
}

/* Whatever lies in a peer's memory: an error, or nothing; never a byte outside. */
TEST(a_peer_that_writes_nonsense_is_an_error)
{
    uint32_t seed = 7;
    uint32_t broken = 0;
    for (uint32_t round = 0; round < 300; round++) {
        unsigned char *table;
        size_t bytes;
        node_ranks_open(ranks, 2, 65536, REQS);
        table = gf_node_map(ranks[1].node, 0);
        bytes = ranks[0].node->plan.bytes - ranks[0].node->plan.bell_at;
        table += ranks[0].node->plan.bell_at;
        for (uint32_t i = 0; i < 8; i++) {
            node_send(ranks, 0, 1, i, data[0][0], 10u << (2 * i), i);
            node_recv(ranks, 1, 0, i, data[1][0], 10u << (2 * i), i);
        }
        for (uint32_t i = 0; i < 2000; i++) {
            seed = seed * 1664525u + 1013904223u;
            table[(seed >> 4) % ((i & 1) != 0 ? bytes : 20000)] = (unsigned char)(seed >> 24);
            if ((i & 31) != 0) continue;
            (void)gf_node_progress(ranks[0].node);
            (void)gf_node_progress(ranks[1].node);
            if (ranks[1].link.failed < 0) break;
        }
        broken += (ranks[0].link.failed != GF_OK) || (ranks[1].link.failed != GF_OK);
        for (uint32_t i = 0; i < 8; i++) {
            gf_node_cancel(ranks[0].node, &ranks[0].reqs[i]);
            gf_node_cancel(ranks[1].node, &ranks[1].reqs[i]);
        }
        node_ranks_close(ranks, 2);
    }
    assert_true(broken > 30);
}

/* ---- processes ---- */

/* Both open before the fork; the child goes on as rank 1, the parent as rank 0. The child's socket
 * is closed in it. */
TEST(a_peer_that_is_killed_leaves_what_it_had_announced)
{
    for (uint32_t round = 0; round < 20; round++) {
        uint32_t *go = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t child;
        node_ranks_open(ranks, 2, REGION, REQS);
        node_fill(ranks[1].link.region, REGION, 5);
        NODE_CHILD(child)
        {
            node_fill(data[1][0], 1u << 20, 6);
            node_send(ranks, 1, 0, 1, ranks[1].link.region, 300000, 0);
            node_send(ranks, 1, 0, 2, data[1][0], 1u << 20, 1);
            node_send(ranks, 1, 0, 3, data[1][0], 8, 2);
            __atomic_store_n(go, 1, __ATOMIC_RELEASE);
            for (;;) (void)gf_node_progress(ranks[1].node);
        }
        while (__atomic_load_n(go, __ATOMIC_ACQUIRE) == 0) {
        }
        node_recv(ranks, 0, 1, 2, data[0][0], 1u << 20, 0);
        for (uint32_t i = 0; i < round * 10; i++) (void)gf_node_progress(ranks[0].node);
        (void)kill(child, SIGKILL);
        assert_int_equal(node_child_ended(child), 1000 + SIGKILL);
        node_recv(ranks, 0, 1, 1, data[0][1], 300000, 1);
        node_recv(ranks, 0, 1, 3, &data[0][1][400000], 8, 2);
        node_recv(ranks, 0, 1, 4, &data[0][1][500000], 8, 3);
        for (uint32_t i = 0; i < 1000; i++) (void)gf_node_progress(ranks[0].node);
        assert_int_equal(node_test(ranks, 0, 1), GF_OK);
        assert_true(node_filled(data[0][1], 300000, 5));
        assert_int_equal(node_test(ranks, 0, 2), GF_OK);
        assert_int_equal(node_test(ranks, 0, 3), GF_AGAIN); /* it never comes */
        gf_node_drop(ranks[0].node);
        for (uint32_t i = 0; i < 4; i++) assert_true(node_test(ranks, 0, i) != GF_AGAIN);
        assert_int_equal(ranks[0].node->requests_under_way, 0);
        node_ranks_close(ranks, 2);
        (void)munmap(go, 4096);
    }
}

/* A rank that sleeps is woken by what comes for it, and by what it waits for at the receiver. */
TEST(a_sleeper_is_woken)
{
    pid_t child;
    node_ranks_begin(ranks, 2, REGION, REQS);
    int pipes[2][2];
    assert_int_equal(pipe(pipes[0]) | pipe(pipes[1]), 0);
    fflush(NULL);
    child = fork();
    uint32_t own = (child == 0) ? 1 : 0;
    uint32_t peer = 1 - own;
    struct node_rank *one = &ranks[own];
    bool right = true;
    (void)alarm(60);
    gf_status status = node_meet(one, pipes);
    uint32_t sleeps = 0;
    uint32_t late = 0;
    for (uint32_t i = 0; (i < 2000) && right && (status == GF_OK); i++) {
        static const size_t each[] = {8, 6000, 70000, 200000};
        size_t bytes = each[i % 4];
        unsigned char *from = ((i & 4) != 0) ? one->link.region : data[own][0];
        bool sends = (i & 1) == own;
        if (sends) node_fill(from, bytes, i);
        if (sends)
            status = gf_node_send_post(one->node, peer, i, from, bytes, &one->reqs[0]);
        else
            status = gf_node_recv_post(one->node, peer, i, data[own][1], bytes, &one->reqs[0]);
        while ((status == GF_OK) && (gf_node_test(one->node, &one->reqs[0]) == GF_AGAIN)) {
            struct pollfd fd = {.fd = gf_node_wake_fd(one->node), .events = POLLIN};
            if (gf_node_progress(one->node) || !gf_node_arm(one->node)) continue;
            sleeps++;
            late += (poll(&fd, 1, 2000) != 1);
        }
        right = right && (sends || node_filled(data[own][1], bytes, i)) && (late == 0);
    }
    (void)gf_node_progress(one->node);
    if (child != 0) {
        assert_int_equal(node_child_ended(child), 0);
        assert_true(right && (status == GF_OK) && (sleeps > 100));
        node_rank_close(one);
        node_pipes_close(pipes);
        (void)alarm(0);
        return;
    }
    gf_node_close(one->node);
    _exit((right && (status == GF_OK)) ? 0 : 1);
}

/* ---- flags ---- */

#define FLAG_AT 0u
#define SLEEP_AT 64u

static bool flag_is(const struct gf_link *link, uint64_t value)
{
    return gf_flag_load(link, FLAG_AT) == value;
}

/* Rank 1 sleeps until a flag says `round`; false: a sleep ran out. */
static bool flag_sleep(struct gf_link *link, uint64_t round)
{
    while (!flag_is(link, round)) {
        uint64_t begin_ns = node_now_ns();
        gf_flag_arm(link, SLEEP_AT);
        if (!flag_is(link, round)) gf_flag_sleep(link, SLEEP_AT, UINT64_C(20000000000));
        if (node_now_ns() - begin_ns > UINT64_C(19000000000)) return false;
    }
    return true;
}

/* Rank 0 sets the flag at once, where that races with the announcement, or while rank 1 sleeps. */
TEST(a_flag_ends_a_sleep)
{
    const struct timespec pause = {.tv_nsec = 3000000};
    pid_t child;
    node_ranks_open(ranks, 2, REGION, REQS);
    NODE_CHILD(child)
    {
        bool right = true;
        for (uint64_t round = 1; right && (round <= 200); round++) {
            right = flag_sleep(&ranks[1].link, round);
            gf_node_flag_store(ranks[1].node, 0, FLAG_AT, round);
        }
        _exit(right ? 0 : 1);
    }
    (void)alarm(60);
    for (uint64_t round = 1; round <= 200; round++) {
        if (round % 10 == 0) (void)nanosleep(&pause, NULL);
        gf_node_flag_store(ranks[0].node, 1, FLAG_AT, round);
        gf_flag_wake(gf_node_map(ranks[0].node, 1), SLEEP_AT);
        while (!flag_is(&ranks[0].link, round)) (void)sched_yield();
    }
    assert_int_equal(node_child_ended(child), 0);
    (void)alarm(0);
    node_ranks_close(ranks, 2);
}

TEST(a_sleep_that_nobody_ends_times_out_and_takes_its_announcement_back)
{
    struct gf_link *link = &ranks[0].link;
    uint64_t begin_ns;
    node_ranks_open(ranks, 2, REGION, REQS);
    begin_ns = node_now_ns();
    /* not announced, or taken back by a waker: no sleep */
    gf_flag_sleep(link, SLEEP_AT, UINT64_C(20000000000));
    gf_flag_arm(link, SLEEP_AT);
    gf_flag_sleep(link, SLEEP_AT, UINT64_C(20000000)); /* nobody wakes it */
    assert_true(node_now_ns() - begin_ns >= UINT64_C(20000000));
    assert_true(node_now_ns() - begin_ns < UINT64_C(10000000000));
    assert_int_equal(gf_flag_load(link, SLEEP_AT), 0);
    node_ranks_close(ranks, 2);
}
