/* What UCX hears of its tcp connections, and when (gf_conn_epoll_wait()). */
#include "firmware-tests/process/connection_pair.h"

#include <sys/eventfd.h>

/* What UCX would hear of its connection now; 0: nothing. ASKED: epoll was asked, for it knows of
 * something else. */
#define ASKED UINT32_MAX
static char else_heard;
static uint32_t heard_of(int set, void *ep)
{
    struct epoll_event event = {0};
    int count = __wrap_epoll_wait(set, &event, 1, 0);
    if (count == 0) return 0;
    if (event.data.ptr == &else_heard) return ASKED;
    assert_ptr_equal(event.data.ptr, ep);
    return event.events;
}

static void watch(int set, int op, int fd, uint32_t events, void *ep)
{
    struct epoll_event event = {.events = events, .data.ptr = ep};
    assert_int_equal(epoll_ctl(set, op, fd, &event), 0);
}

/* A pair that UCX has used, the caller's end in the set, which awaits rank 1. */
static int pair_in_set(bool encryption)
{
    struct gf_fault fault = {.code = GF_OK};
    const int on = 1;
    char byte;
    int set = epoll_create1(0);
    pair_open(key_path, encryption);
    call();
    assert_int_equal(caller_waits(&fault), GF_OK);
    assert_int_equal(setsockopt(listener.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    watch(set, EPOLL_CTL_ADD, caller.fd, EPOLLIN, &caller);
    (void)ucx_recv(listener.fd, &byte, 1, MSG_DONTWAIT); /* the second proof */
    caller.proofs.awaits = 1;
    /* by which connection its bytes come nobody knows yet */
    assert_int_equal(heard_of(set, &caller), 0);
    assert_int_equal(ucx_send(listener.fd, "x", 1, 0), 1);
    assert_int_equal(heard_of(set, &caller), EPOLLIN);
    assert_int_equal(ucx_recv(caller.fd, &byte, 1, 0), 1);
    return set;
}

TEST(of_a_connection_that_has_ended_there_is_nothing_to_read)
{
    char byte;
    int set = pair_in_set(false);
    caller.proofs.awaits = GF_RANK_NONE;
    assert_int_equal(close(listener.fd), 0);
    listener.fd = -1;
    assert_true((heard_of(set, &caller) & EPOLLIN) != 0); /* its end is read once .. */
    assert_int_equal(ucx_recv(caller.fd, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(heard_of(set, &caller), 0); /* .. and what waits to be sent may go on */
    watch(set, EPOLL_CTL_MOD, caller.fd, EPOLLIN | EPOLLOUT, &caller);
    assert_int_equal(heard_of(set, &caller), EPOLLOUT);
    assert_int_equal(close(set), 0);
    pair_close();
}

/* UCX hears of it when it has come, never before. */
TEST(what_is_awaited_is_read_without_asking_epoll)
{
    for (int encryption = 0; encryption < 2; encryption++) {
        int set = pair_in_set(encryption != 0);
        int other = epoll_create1(0);
        int always = eventfd(1, 0);
        char in[16];
        watch(set, EPOLL_CTL_ADD, always, EPOLLIN, &else_heard);
        for (uint32_t i = 0; i < 3 * (GF_PROOF_UNASKED_MAX + 1); i++)
            assert_int_equal(heard_of(set, &caller), (encryption || (i % 33 == 32)) ? ASKED : 0);
        if (encryption == 0) {
            assert_int_equal(heard_of(other, &caller), 0);
            assert_int_equal(ucx_send(listener.fd, "abc", 3, 0), 3);
            for (int i = 0; i < 5; i++) assert_int_equal(heard_of(set, &caller), EPOLLIN);
            /* it has been read */
            assert_int_equal(__real_recv(caller.fd, in, 1, MSG_DONTWAIT), -1);
            assert_true(gf_proofs_ahead(&caller.proofs));
            assert_int_equal(ucx_recv(caller.fd, in, 2, 0), 2);
            assert_int_equal(heard_of(set, &caller), EPOLLIN);
            watch(set, EPOLL_CTL_DEL, caller.fd, 0, NULL); /* UCX moves it to another endpoint */
            assert_int_equal(heard_of(set, &caller), ASKED);
            assert_false(gf_proofs_ahead(&caller.proofs));
            watch(set, EPOLL_CTL_ADD, caller.fd, EPOLLOUT, &listener);
            assert_false(gf_proofs_ahead(&caller.proofs));
            watch(set, EPOLL_CTL_MOD, caller.fd, EPOLLIN, &listener);
            assert_int_equal(heard_of(set, &listener), EPOLLIN);
            assert_int_equal(ucx_recv(caller.fd, in + 2, 14, 0), 1);
            assert_memory_equal(in, "abc", 3);
            assert_false(gf_proofs_ahead(&caller.proofs));
        }
        caller.proofs.awaits = 2;
        assert_int_equal(heard_of(set, &caller), ASKED);
        caller.proofs.awaits = GF_RANK_NONE;
        assert_int_equal(heard_of(set, &caller), ASKED);
        for (int *fd = (int[]){set, other, always, -1}; *fd >= 0; fd++)
            assert_int_equal(close(*fd), 0);
        pair_close();
    }
}

TEST(after_a_small_send_as_much_is_read_as_was_sent)
{
    static char in[2 * GF_PROOF_AHEAD_BYTES];
    int set = pair_in_set(false);
    for (int ahead = 0; ahead < 2; ahead++) {
        for (int i = 0; i < 3; i++) assert_int_equal(ucx_send(listener.fd, "answer", 6, 0), 6);
        assert_int_equal(ucx_send(caller.fd, "sender", 6, 0), 6);
        if (ahead) assert_int_equal(heard_of(set, &caller), EPOLLIN);
        assert_int_equal(ucx_recv(caller.fd, in, sizeof in, 0), 6);
        /* nothing was sent since: all there is */
        assert_int_equal(ucx_recv(caller.fd, in, sizeof in, 0), 12);
        assert_int_equal(ucx_send(caller.fd, "sender", 6, 0), 6);
        /* no answer yet .. */
        assert_int_equal(ucx_recv(caller.fd, in, sizeof in, MSG_DONTWAIT), -1);
        assert_int_equal(ucx_send(listener.fd, "answeranswer", 12, 0), 12);
        assert_int_equal(ucx_recv(caller.fd, in, sizeof in, 0), 6); /* .. and still as much */
        assert_int_equal(ucx_recv(caller.fd, in, 6, 0), 6);
    }
    assert_int_equal(ucx_send(listener.fd, in, sizeof in, 0), sizeof in);
    assert_int_equal(heard_of(set, &caller), EPOLLIN);
    assert_int_equal(ucx_recv(caller.fd, in, sizeof in, 0), sizeof in / 2);
    /* epoll says so: what is large is read in one piece */
    assert_int_equal(heard_of(set, &caller), EPOLLIN);
    assert_false(gf_proofs_ahead(&caller.proofs));
    assert_int_equal(ucx_recv(caller.fd, in, sizeof in, 0), sizeof in / 2);
    assert_int_equal(close(set), 0);
    pair_close();
}

/* Bytes first, then the end, whose reason is what it is without them; what cannot be read any more
 * is forgotten. */
TEST(an_end_behind_bytes_that_were_read_is_told_as_any)
{
    const struct linger at_once = {.l_onoff = 1};
    for (int how = 0; how < 8; how++) {
        bool reset = how % 2 != 0, ahead = how / 2 % 2 != 0, sends = how / 4 != 0;
        struct gf_fault fault = {.code = GF_OK};
        char in[16];
        int set = pair_in_set(false);
        caller.proofs.awaits = ahead ? 1 : GF_RANK_NONE;
        assert_int_equal(ucx_send(listener.fd, "xy", 2, 0), 2);
        assert_int_equal(heard_of(set, &caller), EPOLLIN);
        if (reset) (void)setsockopt(listener.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        assert_int_equal(close(listener.fd), 0);
        listener.fd = -1;
        for (int i = 0; sends && (i < 2); i++)
            assert_int_equal(ucx_send(caller.fd, "sender", 6, 0), 6);
        if (!sends) assert_int_equal(ucx_recv(caller.fd, in, sizeof in, 0), 2);
        if (!sends) assert_int_equal((heard_of(set, &caller) & EPOLLIN) != 0, !ahead);
        assert_int_equal(ucx_recv(caller.fd, in, sizeof in, 0), -1);
        assert_int_equal(errno, EAGAIN);
        assert_int_equal(heard_of(set, &caller), 0);
        assert_false(gf_proofs_ahead(&caller.proofs));
        (void)gf_proofs_progress(&caller.proofs, 1, &fault);
        assert_int_equal(gf_proofs_progress(&caller.proofs, 2000000000, &fault), GF_ERR_LINK);
        if (!sends)
            assert_non_null(strstr(fault.text, reset ? strerror(ECONNRESET) : "closed there"));
        assert_int_equal(close(set), 0);
        pair_close();
    }
}

TEST(a_connection_begins_without_bytes_of_the_one_before)
{
    struct gf_fault fault = {.code = GF_OK};
    char in[16] = "";
    int set = pair_in_set(false);
    int other = epoll_create1(0);
    int before = caller.fd;
    watch(other, EPOLL_CTL_ADD, listener.fd, EPOLLIN, &listener);
    listener.proofs.awaits = 0;
    for (int i = 0; i < 2; i++)
        assert_int_equal(ucx_send((i == 0) ? caller.fd : listener.fd, "stale", 5, 0), 5);
    assert_int_equal(heard_of(other, &listener), EPOLLIN);
    assert_int_equal(ucx_recv(listener.fd, in, 1, 0), 1);
    assert_int_equal(heard_of(other, &listener), EPOLLIN);
    assert_int_equal(heard_of(set, &caller), EPOLLIN);
    assert_true(gf_proofs_ahead(&caller.proofs) && gf_proofs_ahead(&listener.proofs));
    assert_int_equal(close(caller.fd) + close(listener.fd), 0);
    assert_false(gf_proofs_ahead(&caller.proofs) || gf_proofs_ahead(&listener.proofs));
    listener.fd = -1;
    call();
    assert_int_equal(caller.fd, before);
    assert_int_equal(ucx_send(caller.fd, "fresh", 5, 0), 5);
    assert_int_equal(caller_waits(&fault), GF_OK);
    watch(set, EPOLL_CTL_ADD, caller.fd, EPOLLIN, &caller);
    watch(other, EPOLL_CTL_ADD, listener.fd, EPOLLIN, &listener);
    assert_int_equal(heard_of(set, &caller), 0);
    assert_int_equal(ucx_recv(caller.fd, in, sizeof in, MSG_DONTWAIT), -1);
    /* it is a proof that has come, which UCX does not see */
    assert_int_equal(heard_of(other, &listener), EPOLLIN);
    assert_int_equal(ucx_recv(listener.fd, in, sizeof in, MSG_DONTWAIT), 5);
    assert_string_equal(in, "fresh");
    assert_int_equal(close(set) + close(other), 0);
    pair_close();
}

TEST_AROUND(key_file_make, key_file_remove)
