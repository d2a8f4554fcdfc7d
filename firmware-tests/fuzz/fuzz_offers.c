/* libFuzzer over what reaches UCX's tcp: what a peer says of where its UCX listens
 * (gf_proof_offer), and both ends of a connection from its first byte on (connection.c,
 * connection_record.c). `make fuzz T=offers`.
 *
 * An input is a byte of how, and then an offer, or pieces of a connection: a byte of length, and
 * bytes. Nothing goes over a network: this file's recv(), send() and so on are the wire. With SIGNS
 * the other end has the key: its hello, answer and confirmation get the proof that fits, and its
 * records their encryption, whatever else is in them. Without, nothing may get past the proofs. */
#include "drivers/ucx/connection_record.h"
#include "drivers/ucx/link_ucx.h"
#include "firmware-tests/fuzz/fuzz.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OFFER, LISTENER, CALLER, ROLE_COUNT };
enum { ENCRYPTED = 0x20, KEYED = 0x40, SIGNS = 0x80 };
enum { PART_HELLO, PART_ANSWER, PART_CONFIRM }; /* as in connection.c */
#define HELLO_BYTES 76u
#define ANSWER_BYTES 64u
#define NONCE GF_AUTH_NONCE_BYTES

/* ---- the wire ---- */

static int wire_fd = -1;
static unsigned char in[1 << 14], out[1 << 16];
static size_t in_at, in_end, out_bytes;
static bool in_closed;

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    if (fd != wire_fd) return syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
    size_t take = (bytes < in_end - in_at) ? bytes : in_end - in_at;
    if ((take == 0) && in_closed) return 0;
    if (take == 0) return errno = EAGAIN, -1;
    memcpy(data, in + in_at, take);
    if ((flags & MSG_PEEK) == 0) in_at += take;
    return (ssize_t)take;
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    if (fd != wire_fd) return syscall(SYS_sendto, fd, data, bytes, flags, NULL, 0);
    size_t room = sizeof out - out_bytes;
    size_t take = (bytes < room) ? bytes : room;
    if (take == 0) return errno = EAGAIN, -1;
    memcpy(out + out_bytes, data, take);
    out_bytes += take;
    return (ssize_t)take;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (fd != wire_fd) return syscall(SYS_sendmsg, fd, message, flags);
    return send(fd, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len, flags);
}

static int place_get(struct sockaddr *address, uint16_t port)
{
    memcpy(address, &(struct sockaddr_in){.sin_family = AF_INET, .sin_port = port},
           sizeof(struct sockaddr_in));
    return 0;
}
static bool calls; /* the end that is looked at is the caller */
int getsockname(int fd, struct sockaddr *restrict address, socklen_t *restrict bytes)
{
    return place_get(address, calls ? 2 : 1);
}
int getpeername(int fd, struct sockaddr *restrict address, socklen_t *restrict bytes)
{
    return place_get(address, calls ? 1 : 2);
}
int connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    return 0;
}
int close(int fd)
{
    return (fd == wire_fd) ? 0 : (int)syscall(SYS_close, fd);
}
int shutdown(int fd, int how)
{
    return (fd == wire_fd) ? 0 : (int)syscall(SYS_shutdown, fd, how);
}

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    keys_begin();
    wire_fd = (int)syscall(SYS_socket, AF_INET, SOCK_STREAM, 0);
    must(wire_fd >= 0);
    return 0;
}

/* ---- an offer ---- */

static union {
    struct gf_ucx ucx;
    unsigned char bytes[sizeof(struct gf_ucx) + 3 * sizeof(struct gf_ucx_peer)];
} link_memory;
static _Alignas(64) unsigned char memory[1 << 20];

static void proofs_open(struct gf_proofs *proofs, uint32_t rank, uint8_t how)
{
    const struct gf_link_setup setup = {.rank = rank,
                                        .world = 3,
                                        .key_file = (how & KEYED) ? key_path : "",
                                        .encryption = (how & ENCRYPTED) != 0};
    struct gf_fault fault = {.code = GF_OK};
    must(gf_proofs_bytes(&setup) <= sizeof memory);
    memset(memory, 0, gf_proofs_bytes(&setup));
    must(gf_proofs_open(proofs, &setup, memory, &fault) == GF_OK);
    gf_proofs_begin(proofs);
    gf_proofs_begun(proofs);
    /* What a signing sender ever said means nothing to a listener that he has no key for. */
    if ((how & SIGNS) == 0) memset(proofs->own.secret, 0x43, NONCE);
}

static void proofs_close(struct gf_proofs *proofs)
{
    gf_proofs_end(proofs);
    gf_proofs_ended(proofs);
    must(!gf_proofs_busy(proofs));
    for (uint32_t i = 0; i < proofs->conn_count; i++) must(proofs->conns[i].state == GF_CONN_FREE);
    gf_proofs_close(proofs);
}

static void offer_run(uint8_t how, const uint8_t *data, size_t size)
{
    struct gf_ucx *ucx = &link_memory.ucx;
    memset(&link_memory, 0, sizeof link_memory);
    ucx->setup.world = 3;
    ucx->setup.transports = (how & SIGNS) ? "rc" : "tcp";
    proofs_open(&ucx->proofs, 0, how);
    ucx->proofs.own.listener_count = (how & ENCRYPTED) ? 1 : 0;
    gf_status status = gf_ucx_guard_peer(ucx, 1, data, size);
    const struct gf_proof_offer *peer = &ucx->proofs.peers[1];
    must((status == GF_OK) || ((status < 0) && (ucx->link.fault.text[0] != '\0')));
    must(peer->listener_count <= GF_PROOF_LISTENERS_MAX);
    must((status == GF_OK) || (peer->listener_count == 0));
    for (uint32_t i = 0; i < peer->listener_count; i++) {
        bool known;
        struct gf_conn *conn = gf_conn_to(&peer->listeners[i], wire_fd, &known);
        must(known && ((conn != NULL) || (i >= ucx->proofs.conn_count)));
        must((conn == NULL) || (conn->peer == 1));
    }
    ucx->proofs.own.listener_count = 0;
    proofs_close(&ucx->proofs);
}

/* ---- a connection ---- */

static void prove(const struct gf_proofs *proofs, int part, uint32_t caller,
                  const unsigned char *nonces, size_t bytes, unsigned char *proof_out)
{
    const struct gf_place places[2] = {{.family = AF_INET, .port = 1},
                                       {.family = AF_INET, .port = 2}};
    const unsigned char *secret = calls ? proofs->peers[1].secret : proofs->own.secret;
    unsigned char said[5 + NONCE + sizeof places + 2 * NONCE] = {(unsigned char)part};
    memcpy(said + 1, &caller, sizeof caller);
    memcpy(said + 5, secret, NONCE);
    memcpy(said + 5 + NONCE, places, sizeof places);
    memcpy(said + 5 + NONCE + sizeof places, nonces, bytes);
    gf_auth_prove(&proofs->auth, GF_AUTH_LINK, said, 5 + NONCE + sizeof places + bytes, proof_out);
}

static const struct gf_conn *conn_find(const struct gf_proofs *proofs)
{
    for (uint32_t i = 0; i < proofs->conn_count; i++)
        if (proofs->conns[i].state != GF_CONN_FREE) return &proofs->conns[i];
    return NULL;
}

/* The piece as who has the key sends it next. */
static size_t piece_sign(const struct gf_proofs *proofs, unsigned char *piece, size_t bytes)
{
    const struct gf_conn *conn = conn_find(proofs);
    unsigned char nonces[2 * NONCE];
    uint32_t peer;
    if (conn == NULL) {
        memcpy(piece, "GFUCXv2\n", 8);
        memcpy(&peer, piece + 8, sizeof peer);
        prove(proofs, PART_HELLO, peer, piece + 12, NONCE, piece + 12 + NONCE);
        return HELLO_BYTES;
    }
    memcpy(nonces, conn->nonces, sizeof nonces);
    if (conn->state == GF_CONN_AWAITS_CONFIRM) {
        prove(proofs, PART_CONFIRM, conn->peer, nonces, sizeof nonces, piece);
        return GF_AUTH_PROOF_BYTES;
    }
    if (conn->state == GF_CONN_AWAITS_ANSWER) {
        memcpy(nonces + NONCE, piece, NONCE);
        prove(proofs, PART_ANSWER, proofs->rank, nonces, sizeof nonces, piece + NONCE);
        return ANSWER_BYTES;
    }
    uint32_t payload = (uint32_t)bytes;
    if ((conn->state != GF_CONN_OPEN) || (conn->record == NULL) || (bytes == 0) ||
        ((piece[0] & 7) == 0))
        return bytes;
    memmove(piece + GF_RECORD_HEAD_BYTES, piece, bytes);
    memcpy(piece, &payload, GF_RECORD_HEAD_BYTES);
    gf_auth_encrypt(conn->record->recv_key, conn->record->recv_count, piece, GF_RECORD_HEAD_BYTES,
                    piece + GF_RECORD_HEAD_BYTES, payload);
    return GF_RECORD_HEAD_BYTES + bytes + GF_AUTH_TAG_BYTES;
}

static void conn_run(uint8_t how, const uint8_t *data, size_t size)
{
    static struct gf_proofs proofs;
    struct gf_proof_offer offer = {.listener_count = 1,
                                   .listeners = {{.family = AF_INET, .port = 1}}};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = 1};
    struct gf_fault fault = {.code = GF_OK};
    unsigned char got[300];
    bool up = calls, signs = (how & SIGNS) != 0;
    uint64_t now_ns = 1;
    in_at = in_end = out_bytes = 0;
    in_closed = false;
    proofs_open(&proofs, calls ? 0 : 1, how);
    if (calls) {
        memset(offer.secret, 0x44, NONCE);
        gf_proofs_peer(&proofs, 1, &offer);
        must(__wrap_connect(wire_fd, (struct sockaddr *)&to, sizeof to) == 0);
        must((__wrap_send(wire_fd, "what UCX says first", 19, 0) == 19) &&
             (out_bytes == HELLO_BYTES));
    }
    for (size_t at = 0; at < size; now_ns += 400000000) {
        unsigned char piece[256 + GF_RECORD_HEAD_BYTES + GF_AUTH_TAG_BYTES] = {0};
        size_t bytes = data[at++];
        if (bytes > size - at) bytes = size - at;
        memcpy(piece, data + at, bytes);
        at += bytes;
        if (bytes == 0)
            in_closed = true;
        else if (signs)
            bytes = piece_sign(&proofs, piece, bytes);
        if (bytes > sizeof in - in_end) break;
        memcpy(in + in_end, piece, bytes);
        in_end += bytes;
        if (!up && !(up = gf_conn_greet(&proofs, wire_fd))) break;
        must(signs || calls);
        gf_status status = gf_proofs_progress(&proofs, now_ns, &fault);
        must((status == GF_OK) || ((status == GF_ERR_LINK) && (fault.text[0] != '\0')));
        ssize_t bytes_got = __wrap_recv(wire_fd, got, 1 + now_ns / 400000000 * 37 % sizeof got, 0);
        must((bytes_got >= -1) && (bytes_got <= (ssize_t)sizeof got));
        /* UCX has heard nobody without the key */
        must(signs || (bytes_got <= 0));
        must(signs || (out_bytes == HELLO_BYTES)); /* .. and said nothing to him */
        const struct gf_conn *conn = conn_find(&proofs);
        must((bytes_got <= 0) || (conn->state == GF_CONN_OPEN) || (conn->state == GF_CONN_ENDED));
        if ((conn != NULL) && (conn->state == GF_CONN_OPEN))
            (void)__wrap_send(wire_fd, got, 100, 0);
    }
    (void)__wrap_close(wire_fd);
    proofs_close(&proofs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1) return 0;
    int role = (data[0] & 0x1f) % ROLE_COUNT;
    calls = (role == CALLER);
    if (role == OFFER)
        offer_run(data[0], data + 1, size - 1);
    else
        conn_run(data[0], data + 1, size - 1);
    return 0;
}
