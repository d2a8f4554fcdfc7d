/* What suites of a connection of UCX's tcp share: its two ends in one process, without UCX. This
 * program's own send() and recv() stand for the wire. */
#ifndef CONNECTION_PAIR_H
#define CONNECTION_PAIR_H

#include "firmware-tests/support/suite.h"
#include "drivers/ucx/connection_record.h"
#include "firmware-tests/support/key_file.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A suite defines both, so the linker leads no call of them from here elsewhere. */
#define ucx_send __wrap_send
#define ucx_recv __wrap_recv

/* ---- the wire ---- */

static unsigned char wire[1 << 20]; /* all that was sent */
static size_t wire_bytes;
static int64_t flip_in; /* bytes that are received before one is changed; -1: none */

static void wire_see(const void *data, ssize_t bytes)
{
    size_t room = sizeof wire - wire_bytes;
    size_t take = (bytes < 0) ? 0 : (size_t)bytes;
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
    const struct gf_link_setup setup = {
        .rank = rank, .world = 3, .key_file = key, .encryption = encryption};
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

#endif
