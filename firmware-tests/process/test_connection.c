/* Connections of UCX's tcp, without UCX: what passes before both ends have proven themselves, and after that,
 * encrypted or not. This program's own send() and recv() stand for the wire. */
#include "firmware-tests/support/suite.h"
#include "drivers/ucx/connection_record.h"
#include "firmware-tests/support/key_file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HELLO_BYTES 76u
#define ANSWER_BYTES 64u
/* This file defines both, so the linker leads no call of them from here elsewhere. */
#define ucx_send __wrap_send
#define ucx_recv __wrap_recv

/* ---- the wire ---- */

static const char secret_text[] = "a gradient that nobody else may read";
static unsigned char wire[1 << 20]; /* all that was sent */
static size_t wire_bytes;
static int64_t flip_in; /* bytes that are received before one is changed; -1: none */

static void wire_see(const void *data, ssize_t bytes)
{
    size_t room = sizeof wire - wire_bytes, take = (bytes < 0) ? 0 : (size_t)bytes;
    if (take > room) take = room;
    memcpy(wire + wire_bytes, data, take);
    wire_bytes += take;
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    ssize_t sent = syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
    wire_see(data, sent);
    return sent;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t sent = syscall(SYS_sendmsg, fd, message, flags);
    assert_int_equal(message->msg_iovlen, 1);
    wire_see(message->msg_iov[0].iov_base, sent);
    return sent;
}

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    ssize_t got = syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
    if ((got <= 0) || (flip_in < 0)) return got;
    if (flip_in < got) ((unsigned char *)data)[flip_in] ^= 0x10;
    if ((flags & MSG_PEEK) == 0) flip_in = (flip_in < got) ? -1 : flip_in - got;
    return got;
}

/* ---- two ends ---- */

struct end {
    struct gf_proofs proofs;
    void *memory;
    int fd;
};
static struct end caller, listener;
static int listen_fd;
static struct sockaddr_in at;

static void end_open(struct end *end, uint32_t rank, const char *key, bool encryption)
{
    const struct gf_link_setup setup = {.rank = rank, .world = 3, .key_file = key, .encryption = encryption,
                                        .authentication = &gf_module_authentication};
    struct gf_fault fault = {.code = GF_OK};
    size_t bytes = (gf_proofs_bytes(&setup) + 63) / 64 * 64;
    end->fd = -1;
    end->memory = aligned_alloc(64, bytes);
    assert_non_null(end->memory);
    memset(end->memory, 0, bytes);
    assert_int_equal(gf_proofs_open(&end->proofs, &setup, end->memory, &fault), GF_OK);
    assert_int_equal((uintptr_t)end->proofs.records % _Alignof(struct gf_record), 0);
    gf_proofs_begin(&end->proofs);
}

static void pair_open(const char *key, bool encryption)
{
    socklen_t bytes = sizeof at;
    wire_bytes = 0;
    flip_in = -1;
    end_open(&listener, 1, key, encryption);
    listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(listen_fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(listen_fd, (struct sockaddr *)&at, &bytes), 0);
    assert_int_equal(listen(listen_fd, 8), 0);
    gf_proofs_begun(&listener.proofs);
    assert_int_equal(listener.proofs.own.listener_count, 1);
    end_open(&caller, 0, key, encryption);
    gf_proofs_begun(&caller.proofs);
    gf_proofs_peer(&caller.proofs, 1, &listener.proofs.own);
}

static void pair_close(void)
{
    struct end *ends[] = {&caller, &listener};
    (void)close(listen_fd);
    for (int i = 0; i < 2; i++) {
        if (ends[i]->fd >= 0) (void)close(ends[i]->fd);
        gf_proofs_end(&ends[i]->proofs);
        gf_proofs_ended(&ends[i]->proofs);
        gf_proofs_close(&ends[i]->proofs);
        assert_false(gf_proofs_busy(&ends[i]->proofs));
        for (uint32_t c = 0; c < ends[i]->proofs.conn_count; c++)
            assert_int_equal(ends[i]->proofs.conns[c].state, GF_CONN_FREE);
        free(ends[i]->memory);
    }
}

static void ms_pass(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }

static void call(void)
{
    const int on = 1;
    caller.fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(setsockopt(caller.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    assert_int_equal(connect(caller.fd, (struct sockaddr *)&at, sizeof at), 0);
}

/* GF_OK, or the first failure that the caller's link is told of. */
static gf_status caller_waits(struct gf_fault *fault_out)
{
    gf_status status = GF_OK;
    for (int ms = 0; (ms < 2000) && gf_proofs_busy(&caller.proofs) && (status == GF_OK); ms++) {
        status = gf_proofs_progress(&caller.proofs, (uint64_t)ms * 10000000, fault_out);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        if (listener.fd < 0) listener.fd = accept(listen_fd, NULL, NULL);
    }
    return status;
}

static bool all_sent(int fd, const unsigned char *data, size_t bytes, int other, unsigned char *in, size_t *in_bytes)
{
    size_t sent = 0;
    for (int turns = 0; (turns < 100000) && ((sent < bytes) || (*in_bytes < bytes)); turns++) {
        size_t piece = (turns % 3 == 0) ? bytes - sent : (bytes - sent + 1) / 2;
        ssize_t n = (sent < bytes) ? ucx_send(fd, data + sent, piece, 0) : 0;
        if ((n < 0) && (errno != EAGAIN)) return false;
        if (n > 0) sent += (size_t)n;
        n = ucx_recv(other, in + *in_bytes, (turns % 5 == 0) ? 7 : bytes - *in_bytes, MSG_DONTWAIT);
        if (n > 0) *in_bytes += (size_t)n;
    }
    return (sent == bytes) && (*in_bytes == bytes);
}

static void both_talk(void)
{
    static unsigned char out[300000], in[300000];
    size_t sizes[] = {16385, 1, sizeof secret_text, 16384, sizeof out};
    for (size_t s = 0; s < LENGTH(sizes); s++) {
        for (size_t i = 0; i < sizeof out; i++) out[i] = (unsigned char)(secret_text[i % sizeof secret_text] + (int)s);
        for (int back = 0; back < 2; back++) {
            size_t got = 0;
            memset(in, 0, sizeof in);
            int from = back ? listener.fd : caller.fd, to = back ? caller.fd : listener.fd;
            assert_true(all_sent(from, out, sizes[s], to, in, &got));
            assert_memory_equal(in, out, sizes[s]);
        }
    }
}

static bool on_the_wire(const char *text) { return memmem(wire, wire_bytes, text, strlen(text)) != NULL; }

TEST(both_prove_themselves_and_then_talk)
{
    for (int kind = 0; kind < 3; kind++) { /* without a key, with one, encrypted */
        struct gf_fault fault = {.code = GF_OK};
        pair_open((kind > 0) ? key_path : "", kind == 2);
        call();
        assert_int_equal(ucx_send(caller.fd, "UCX's", 5, 0), 5); /* held */
        assert_int_equal(caller_waits(&fault), GF_OK);
        assert_true(listener.fd >= 0);
        char word[8] = "";
        for (int ms = 0; (ms < 1000) && (ucx_recv(listener.fd, word, sizeof word, MSG_DONTWAIT) < 0); ms++) ms_pass();
        assert_string_equal(word, "UCX's");
        both_talk();
        assert_int_equal(on_the_wire("a gradient that nobody"), kind < 2);
        assert_int_equal(on_the_wire("UCX's"), kind < 2);
        pair_close();
    }
}

/* Somebody has the port of a rank: he reads the hello, and says what he likes. */
TEST(nothing_leaves_for_a_listener_that_proves_nothing)
{
    for (int says = 0; says < 3; says++) { /* noise, the hello itself, the end */
        unsigned char heard[512];
        struct gf_fault fault = {.code = GF_OK};
        pair_open(key_path, says == 1);
        call();
        assert_int_equal(ucx_send(caller.fd, secret_text, sizeof secret_text, 0), sizeof secret_text);
        (void)gf_proofs_progress(&caller.proofs, 0, &fault);
        int taken = __real_accept(listen_fd, NULL, NULL);
        for (int ms = 0; (taken < 0) && (ms < 1000); ms++) {
            (void)gf_proofs_progress(&caller.proofs, 0, &fault);
            ms_pass();
            taken = __real_accept(listen_fd, NULL, NULL);
        }
        assert_int_equal(ucx_recv(taken, heard, sizeof heard, 0), HELLO_BYTES);
        if (says < 2) assert_int_equal(ucx_send(taken, (says == 0) ? wire : heard, ANSWER_BYTES, 0), ANSWER_BYTES);
        else assert_int_equal(shutdown(taken, SHUT_RDWR), 0);
        listener.fd = taken;
        assert_int_equal(caller_waits(&fault), GF_ERR_LINK);
        assert_int_equal(fault.peer, 1);
        assert_non_null(strstr(fault.text, (says < 2) ? "did not prove that it is of this job" : "ended"));
        assert_false(on_the_wire(secret_text));
        /* UCX sees a silent connection. */
        assert_int_equal(ucx_send(caller.fd, secret_text, sizeof secret_text, 0), sizeof secret_text);
        assert_int_equal(ucx_recv(caller.fd, heard, sizeof heard, 0), -1);
        assert_int_equal(errno, EAGAIN);
        pair_close();
    }
}

/* From the same port as before, with all that the caller said then. */
TEST(a_conversation_cannot_be_repeated)
{
    for (int encryption = 0; encryption < 2; encryption++) {
        struct gf_fault fault = {.code = GF_OK};
        unsigned char said[256], heard[64];
        const struct linger at_once = {.l_onoff = 1};
        struct sockaddr_in from;
        socklen_t bytes = sizeof from;
        const int on = 1;
        size_t said_bytes = 0;
        pair_open(key_path, encryption != 0);
        call();
        assert_int_equal(ucx_send(caller.fd, "UCX's", 5, 0), 5);
        assert_int_equal(getsockname(caller.fd, (struct sockaddr *)&from, &bytes), 0);
        assert_int_equal(caller_waits(&fault), GF_OK);
        memcpy(said, wire, HELLO_BYTES); /* then came the answer, which is the listener's */
        said_bytes = wire_bytes - ANSWER_BYTES;
        memcpy(said + HELLO_BYTES, wire + HELLO_BYTES + ANSWER_BYTES, said_bytes - HELLO_BYTES);
        for (int ms = 0; (ms < 1000) && (ucx_recv(listener.fd, heard, 5, MSG_DONTWAIT) != 5); ms++) ms_pass();
        assert_int_equal(setsockopt(listener.fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
        assert_int_equal(close(listener.fd), 0);
        assert_int_equal(close(caller.fd), 0);
        caller.fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(setsockopt(caller.fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
        assert_int_equal(bind(caller.fd, (struct sockaddr *)&from, sizeof from), 0);
        assert_int_equal(__real_connect(caller.fd, (struct sockaddr *)&at, sizeof at), 0);
        assert_int_equal(__real_send(caller.fd, said, HELLO_BYTES, 0), HELLO_BYTES);
        for (int ms = 0; ((listener.fd = accept(listen_fd, NULL, NULL)) < 0) && (ms < 1000); ms++)
            ms_pass();
        assert_true(listener.fd >= 0); /* so far it fits */
        assert_int_equal(__real_recv(caller.fd, heard, sizeof heard, 0), ANSWER_BYTES);
        (void)__real_send(caller.fd, said + HELLO_BYTES, said_bytes - HELLO_BYTES, MSG_NOSIGNAL);
        ssize_t got = -1;
        for (int ms = 0; (got < 0) && (ms < 1000); ms++) {
            got = ucx_recv(listener.fd, heard, sizeof heard, MSG_DONTWAIT);
            ms_pass();
        }
        assert_int_equal(got, 0); /* it has ended, and UCX has seen nothing */
        assert_int_equal(gf_proofs_progress(&listener.proofs, 0, &fault), GF_ERR_LINK);
        assert_non_null(strstr(fault.text, "second proof"));
        pair_close();
    }
}

TEST(a_flipped_byte_ends_an_encrypted_connection)
{
    static unsigned char in[40000], out[40000];
    const int64_t places[] = {0, 3, 4, 100, 16387, 16388, 16403, 16404, 16408, 39999};
    for (size_t p = 0; p < LENGTH(places); p++) {
        struct gf_fault fault = {.code = GF_OK};
        size_t got = 0;
        pair_open(key_path, true);
        call();
        assert_int_equal(caller_waits(&fault), GF_OK);
        (void)ucx_recv(listener.fd, in, sizeof in, MSG_DONTWAIT); /* its second proof */
        memset(out, 0x5a, sizeof out);
        memset(in, 0x5a, sizeof in);
        assert_int_equal(listener.proofs.conns[0].state, GF_CONN_OPEN);
        flip_in = places[p];
        (void)all_sent(caller.fd, out, sizeof out, listener.fd, in, &got);
        assert_true(got < sizeof out);
        for (size_t i = 0; i < got; i++) assert_int_equal(in[i], 0x5a);
        assert_int_equal(gf_proofs_progress(&listener.proofs, 0, &fault), GF_ERR_LINK);
        assert_non_null(strstr(fault.text, "changed on its way"));
        pair_close();
    }
}

/* What UCX would hear of its connection now; 0: nothing. */
static uint32_t heard_of(int set, void *ep)
{
    struct epoll_event event = {0};
    int count = __wrap_epoll_wait(set, &event, 1, 0);
    if (count > 0) assert_ptr_equal(event.data.ptr, ep);
    return (count > 0) ? event.events : 0;
}

TEST(of_a_connection_that_has_ended_there_is_nothing_to_read)
{
    struct gf_fault fault = {.code = GF_OK};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = &caller};
    char byte;
    pair_open(key_path, false);
    call();
    assert_int_equal(caller_waits(&fault), GF_OK);
    int set = epoll_create1(0);
    assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, caller.fd, &event), 0);
    assert_int_equal(heard_of(set, &caller), 0);
    (void)ucx_recv(listener.fd, &byte, 1, MSG_DONTWAIT); /* the second proof */
    assert_int_equal(ucx_send(listener.fd, "x", 1, 0), 1);
    assert_int_equal(heard_of(set, &caller), EPOLLIN);
    assert_int_equal(ucx_recv(caller.fd, &byte, 1, 0), 1);
    assert_int_equal(close(listener.fd), 0);
    listener.fd = -1;
    assert_true((heard_of(set, &caller) & EPOLLIN) != 0); /* its end is read once .. */
    assert_int_equal(ucx_recv(caller.fd, &byte, 1, 0), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(heard_of(set, &caller), 0); /* .. and what waits to be sent may go on */
    event.events = EPOLLIN | EPOLLOUT;
    assert_int_equal(epoll_ctl(set, EPOLL_CTL_MOD, caller.fd, &event), 0);
    assert_int_equal(heard_of(set, &caller), EPOLLOUT);
    assert_int_equal(close(set), 0);
    pair_close();
}

static uint32_t complaints;

static void hear(void *user, gf_log_level level, const char *text)
{
    (void)user;
    complaints += (level == GF_LOG_ERROR) && (strcmp(text, "link: accept: no file descriptor left") == 0);
}

/* UCX hears of none of it, and the caller waits. */
TEST(a_lack_of_descriptors_is_said_and_passes)
{
    struct gf_fault fault = {.code = GF_OK};
    struct rlimit had, none;
    pair_open("", false);
    listener.proofs.log.fn = hear;
    complaints = 0;
    call();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &had), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = had.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int ms = 0; (ms < 2000) && (complaints == 0); ms++) {
        (void)gf_proofs_progress(&caller.proofs, 0, &fault);
        assert_int_equal(accept(listen_fd, NULL, NULL), -1);
        ms_pass();
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &had), 0);
    assert_int_not_equal(complaints, 0);
    assert_int_equal(caller_waits(&fault), GF_OK);
    assert_true(listener.fd >= 0);
    pair_close();
}

TEST_AROUND(key_file_make, key_file_remove)
