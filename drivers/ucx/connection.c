/* UCX's tcp connections, each from its first byte: the proofs of both ends, then UCX's bytes,
 * encrypted or as they are.
 *
 *     state            caller                          listener
 *     CONNECTS         -> writable: hello              accept(): hello fits, answer sent ->
 *                      AWAITS_CONFIRM
 *     AWAITS_ANSWER    -> it fits: confirm, then       -> recv(): it fits -> OPEN
 *                      what UCX has sent -> OPEN
 *     OPEN             UCX's                           UCX's
 *     ENDED            by its other end, an error, or a proof or record that does not fit. UCX goes
 *                      on with a silent
 *                      one; only where it has not heard a byte from a caller is it told.
 *
 * All but accept() is called on the thread that progresses the link. */
#include "drivers/ucx/connection_record.h"

#include "drivers/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define MAGIC "GFUCXv2\n"
struct answer {
    unsigned char nonce[GF_AUTH_NONCE_BYTES], proof[GF_AUTH_PROOF_BYTES];
};
struct hello {
    char magic[8];
    uint32_t rank;
    struct answer by;
};
_Static_assert(sizeof(struct hello) == 12 + sizeof(struct answer),
               "no padding: it travels as it is");

/* What a hash is for: in front of all that it is over. */
enum { PART_HELLO, PART_ANSWER, PART_CONFIRM, PART_KEY_OF_CALLER, PART_KEY_OF_LISTENER };

/* A peer whose connection ends has most often ended itself, and the control channel says so better;
 * or all are leaving. */
#define GONE_TELL_NS UINT64_C(1000000000)

bool gf_conn_calls_are_ours(void)
{
    return (__real_listen != NULL) && (__real_accept != NULL) && (__real_connect != NULL) &&
           (__real_send != NULL) && (__real_sendmsg != NULL) && (__real_recv != NULL) &&
           (__real_close != NULL);
}

/* ---- coming and going ---- */

static struct gf_conn **list_of(struct gf_proofs *proofs, int fd)
{
    return &proofs->by_fd[(uint32_t)fd % proofs->conn_count];
}

struct gf_conn *gf_conn_find(struct gf_proofs *proofs, int fd)
{
    struct gf_conn *conn = *list_of(proofs, fd);
    while ((conn != NULL) && (conn->fd != fd)) conn = conn->next;
    return conn;
}

struct gf_conn *gf_conn_take(struct gf_proofs *proofs, int fd)
{
    for (uint32_t i = 0; i < proofs->conn_count; i++) {
        struct gf_conn *conn = &proofs->conns[i];
        struct gf_conn **list = list_of(proofs, fd);
        if (conn->state != GF_CONN_FREE) continue;
        *conn = (struct gf_conn){.next = *list,
                                 .of = proofs,
                                 .fd = fd,
                                 .state = GF_CONN_CONNECTS,
                                 .record = (proofs->records != NULL) ? &proofs->records[i] : NULL};
        return *list = conn;
    }
    return NULL;
}

static void ahead_drop(struct gf_conn *conn)
{
    if (conn->of->ahead == conn) conn->of->ahead = NULL;
}

static void conn_give(struct gf_conn *conn)
{
    struct gf_conn **at = list_of(conn->of, conn->fd);
    ahead_drop(conn);
    if (conn->record != NULL) gf_auth_forget(conn->record, GF_RECORD_SECRET_BYTES);
    gf_proofs_lock();
    while (*at != conn) at = &(*at)->next;
    *at = conn->next;
    gf_auth_forget(conn, sizeof *conn);
    gf_proofs_unlock();
}

void gf_conns_forget(struct gf_proofs *proofs)
{
    for (uint32_t i = 0; i < proofs->conn_count; i++)
        if (proofs->conns[i].state != GF_CONN_FREE) conn_give(&proofs->conns[i]);
    proofs->busy = proofs->silent = false;
}

static void conn_end(struct gf_conn *conn, int error, const char *why)
{
    if (conn->state == GF_CONN_ENDED) return;
    ahead_drop(conn);
    conn->state = GF_CONN_ENDED;
    conn->error = error;
    conn->why = why;
    /* Silent to UCX, which may wait for it: then the link tells. */
    conn->told = !conn->calls && !conn->used && (why == NULL);
    if (!conn->told) conn->of->busy = true;
    if (conn->calls || conn->used)
        conn->of->silent = true;
    else
        conn->watched = NULL; /* UCX is to read that it has ended */
    (void)shutdown(conn->fd, SHUT_RDWR);
}

/* ---- proofs ---- */

#define SAID_BYTES (5 + GF_AUTH_NONCE_BYTES + 2 * sizeof(struct gf_place) + 2 * GF_AUTH_NONCE_BYTES)
static size_t said_put(const struct gf_conn *conn, int part, unsigned char *said_out)
{
    struct gf_put put = {said_out, SAID_BYTES};
    gf_put_u64_bytes(&put, (uint64_t)part, 1);
    gf_put_u32(&put, conn->calls ? conn->of->rank : conn->peer);
    gf_put_bytes(&put, conn->secret, sizeof conn->secret);
    gf_put_bytes(&put, &conn->listener, sizeof conn->listener);
    gf_put_bytes(&put, &conn->caller, sizeof conn->caller);
    gf_put_bytes(&put, conn->nonces,
                 (part == PART_HELLO) ? GF_AUTH_NONCE_BYTES : 2 * GF_AUTH_NONCE_BYTES);
    return SAID_BYTES - put.left;
}

static void prove(const struct gf_conn *conn, int part, unsigned char *proof_out)
{
    unsigned char said[SAID_BYTES];
    gf_auth_prove(&conn->of->auth, GF_AUTH_LINK, said, said_put(conn, part, said), proof_out);
    gf_auth_forget(said, sizeof said);
}

static bool proof_fits(const struct gf_conn *conn, int part, const unsigned char *proof)
{
    unsigned char said[SAID_BYTES];
    const struct gf_auth *auth = &conn->of->auth;
    bool fits = gf_auth_proof_fits(auth, GF_AUTH_LINK, said, said_put(conn, part, said), proof);
    gf_auth_forget(said, sizeof said);
    return fits;
}

static void keys_make(struct gf_conn *conn)
{
    struct gf_record *record = conn->record;
    if (record == NULL) return;
    gf_record_begin(record);
    prove(conn, PART_KEY_OF_CALLER, conn->calls ? record->send_key : record->recv_key);
    prove(conn, PART_KEY_OF_LISTENER, conn->calls ? record->recv_key : record->send_key);
}

static void hello_send(struct gf_conn *conn)
{
    struct hello hello = {.rank = conn->of->rank};
    if (!gf_place_of_fd(conn->fd, false, &conn->caller)) return conn_end(conn, errno, NULL);
    gf_auth_nonce(conn->nonces);
    memcpy(hello.magic, MAGIC, sizeof hello.magic);
    memcpy(hello.by.nonce, conn->nonces, sizeof hello.by.nonce);
    prove(conn, PART_HELLO, hello.by.proof);
    if (__real_send(conn->fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        return conn_end(conn, errno, NULL);
    conn->state = GF_CONN_AWAITS_ANSWER;
}

bool gf_conn_greet(struct gf_proofs *proofs, int fd)
{
    struct hello hello;
    struct answer answer;
    struct gf_conn *conn;
    struct gf_conn at = {.of = proofs, .fd = fd, .state = GF_CONN_AWAITS_CONFIRM};
    if (__real_recv(fd, &hello, sizeof hello, MSG_DONTWAIT) != (ssize_t)sizeof hello) return false;
    if (memcmp(hello.magic, MAGIC, sizeof hello.magic) != 0) return false;
    if (!gf_place_of_fd(fd, false, &at.listener) || !gf_place_of_fd(fd, true, &at.caller))
        return false;
    at.peer = hello.rank;
    memcpy(at.secret, proofs->own.secret, sizeof at.secret);
    memcpy(at.nonces, hello.by.nonce, sizeof hello.by.nonce);
    if ((at.peer >= proofs->peer_count) || !proof_fits(&at, PART_HELLO, hello.by.proof))
        return false;
    gf_auth_nonce(answer.nonce);
    memcpy(at.nonces + GF_AUTH_NONCE_BYTES, answer.nonce, sizeof answer.nonce);
    prove(&at, PART_ANSWER, answer.proof);
    if (__real_send(fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        (ssize_t)sizeof answer)
        return false;
    gf_proofs_lock();
    conn = gf_conn_take(proofs, fd);
    if (conn != NULL) {
        at.next = conn->next;
        at.record = conn->record;
        *conn = at;
        keys_make(conn);
    }
    gf_proofs_unlock();
    gf_auth_forget(&at, sizeof at);
    if (conn == NULL)
        gf_log_line(&proofs->log, GF_LOG_ERROR,
                    "link: rank %u connects once more; allowed are %u connections, %u a peer: name "
                    "fewer link.devices",
                    hello.rank, proofs->conn_count, GF_PROOF_CONNS_A_PEER);
    return conn != NULL;
}

static ssize_t open_send(struct gf_conn *conn, const struct iovec *parts, size_t count);

/* The answer fits: now UCX's first bytes may leave. */
static void answered(struct gf_conn *conn)
{
    unsigned char proof[GF_AUTH_PROOF_BYTES];
    struct iovec held = {.iov_base = conn->held, .iov_len = conn->held_bytes};
    keys_make(conn);
    prove(conn, PART_CONFIRM, proof);
    conn->state = GF_CONN_OPEN;
    if ((__real_send(conn->fd, proof, sizeof proof, MSG_NOSIGNAL) != (ssize_t)sizeof proof) ||
        ((held.iov_len > 0) && (open_send(conn, &held, 1) != (ssize_t)held.iov_len)))
        conn_end(conn, errno, NULL);
}

/* Reads what is awaited, and no byte more. */
static void awaited_read(struct gf_conn *conn)
{
    bool answer = (conn->state == GF_CONN_AWAITS_ANSWER);
    uint32_t want = answer ? sizeof(struct answer) : GF_AUTH_PROOF_BYTES;
    ssize_t got =
        __real_recv(conn->fd, conn->in + conn->in_bytes, want - conn->in_bytes, MSG_DONTWAIT);
    if ((got < 0) && ((errno == EAGAIN) || (errno == EINTR))) return;
    if (got <= 0) return conn_end(conn, (got < 0) ? errno : 0, NULL);
    conn->in_bytes += (uint32_t)got;
    if (conn->in_bytes < want) return;
    if (answer) memcpy(conn->nonces + GF_AUTH_NONCE_BYTES, conn->in, GF_AUTH_NONCE_BYTES);
    if (!proof_fits(conn, answer ? PART_ANSWER : PART_CONFIRM,
                    conn->in + want - GF_AUTH_PROOF_BYTES))
        conn_end(conn, 0,
                 answer ? "who listens there did not prove that it is of this job"
                        : "its second proof does not fit");
    else if (answer)
        answered(conn);
    else
        conn->state = GF_CONN_OPEN;
}

static void conn_progress(struct gf_conn *conn)
{
    struct pollfd ready = {.fd = conn->fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (conn->state == GF_CONN_CONNECTS) {
        if (poll(&ready, 1, 0) != 1) return;
        (void)getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
        if (error != 0)
            conn_end(conn, error, NULL);
        else
            hello_send(conn);
    }
    if (conn->state == GF_CONN_AWAITS_ANSWER) awaited_read(conn);
}

gf_status gf_proofs_progress(struct gf_proofs *proofs, uint64_t now_ns, struct gf_fault *fault_out)
{
    bool busy = false;
    for (uint32_t i = 0; i < proofs->conn_count; i++) {
        struct gf_conn *conn = &proofs->conns[i];
        if (conn->calls) conn_progress(conn);
        busy = busy || (conn->state == GF_CONN_CONNECTS) || (conn->state == GF_CONN_AWAITS_ANSWER);
        if ((conn->state != GF_CONN_ENDED) || conn->told) continue;
        if (conn->ended_ns == 0) conn->ended_ns = now_ns;
        busy = true;
        if ((conn->why == NULL) && (now_ns - conn->ended_ns < GONE_TELL_NS)) continue;
        conn->told = true;
        return gf_fault_set(fault_out, GF_ERR_LINK, conn->peer, conn->calls ? "connect" : "accept",
                            conn->error, "the connection %s rank %u ended: %s",
                            conn->calls ? "to" : "from", conn->peer,
                            (conn->why != NULL)  ? conn->why
                            : (conn->error != 0) ? strerror(conn->error)
                                                 : "closed there");
    }
    proofs->busy = busy;
    return GF_OK;
}

/* ---- UCX's calls ---- */

int gf_conn_connect(int fd, const struct sockaddr *address, socklen_t bytes)
{
    struct sockaddr_storage to = {0};
    struct gf_place listener;
    struct gf_conn *conn;
    bool known;
    if ((address == NULL) || (bytes > sizeof to)) return __real_connect(fd, address, bytes);
    memcpy(&to, address, bytes);
    known = gf_place_of(&to, &listener);
    conn = known ? gf_conn_to(&listener, fd, &known) : NULL;
    if (!known) return __real_connect(fd, address, bytes);
    if (conn == NULL) {
        errno = ENOBUFS;
        return -1;
    }
    conn->calls = true;
    conn->listener = listener;
    conn->of->busy = true;
    if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
        conn_end(conn, errno, NULL);
    else if (__real_connect(fd, address, bytes) == 0)
        hello_send(conn);
    else if ((errno != EINPROGRESS) && (errno != EINTR))
        conn_end(conn, errno, NULL);
    return 0;
}

/* Errors after which it is still there. */
static bool is_passing(int error)
{
    return (error == EAGAIN) || (error == EINTR) || (error == ENOBUFS);
}

static ssize_t open_send(struct gf_conn *conn, const struct iovec *parts, size_t count)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = count};
    if (conn->record != NULL) return gf_record_send(conn->record, conn->fd, parts, count);
    /* sendmsg() takes 0.25 us longer, a fortieth of a small message's time */
    if (count == 1) return __real_send(conn->fd, parts->iov_base, parts->iov_len, MSG_NOSIGNAL);
    return __real_sendmsg(conn->fd, &message, MSG_NOSIGNAL);
}

static ssize_t conn_send(struct gf_conn *conn, const struct iovec *parts, size_t count)
{
    size_t bytes = 0;
    ssize_t sent;
    for (size_t i = 0; i < count; i++) bytes += parts[i].iov_len;
    conn->sent_bytes = (bytes <= GF_PROOF_AHEAD_BYTES) ? (uint32_t)bytes : 0;
    if (conn->state == GF_CONN_OPEN) {
        if (((sent = open_send(conn, parts, count)) >= 0) || is_passing(errno)) return sent;
        conn_end(conn, errno, NULL);
    } else if ((conn->state != GF_CONN_ENDED) && (bytes > sizeof conn->held - conn->held_bytes)) {
        errno = EAGAIN;
        return -1;
    } else if (conn->state != GF_CONN_ENDED) {
        for (size_t i = 0; i < count; i++) {
            memcpy(conn->held + conn->held_bytes, parts[i].iov_base, parts[i].iov_len);
            conn->held_bytes += (uint32_t)parts[i].iov_len;
        }
    }
    return (ssize_t)bytes;
}

ssize_t gf_conn_send(int fd, const void *data, size_t bytes, int flags)
{
    struct gf_conn *conn = gf_conn_of(fd);
    const struct iovec part = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    return (conn == NULL) ? __real_send(fd, data, bytes, flags) : conn_send(conn, &part, 1);
}

ssize_t gf_conn_sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct gf_conn *conn = gf_conn_of(fd);
    return (conn == NULL) ? __real_sendmsg(fd, message, flags)
                          : conn_send(conn, message->msg_iov, message->msg_iovlen);
}

/* After a small send as much as was sent: ranks that swap messages send as many bytes as they get.
 * Of two messages that wait the second is read after this rank's next send, which acknowledges both
 * (gf_conn_epoll_wait()). */
ssize_t gf_conn_read(struct gf_conn *conn, void *data, size_t bytes, int flags)
{
    bool plain = (conn->record == NULL);
    ssize_t got;
    if (plain && (conn->sent_bytes > 0) && (conn->sent_bytes < bytes)) bytes = conn->sent_bytes;
    if (plain)
        got = __real_recv(conn->fd, data, bytes, flags);
    else
        got = gf_record_recv(conn->record, conn->fd, data, bytes);
    if (got > 0) {
        conn->used = true;
        conn->sent_bytes = 0;
        if (plain) conn->of->from[conn->peer] = conn;
    } else if ((got == 0) || !is_passing(errno)) {
        bool changed = (got < 0) && (errno == EBADMSG);
        conn_end(conn, (got < 0) ? errno : 0, changed ? "what came was changed on its way" : NULL);
    }
    return got;
}

static ssize_t ahead_recv(struct gf_proofs *link, void *data, size_t bytes)
{
    size_t left = link->ahead_end - link->ahead_at;
    if (bytes > left) bytes = left;
    memcpy(data, link->ahead_bytes + link->ahead_at, bytes);
    link->ahead_at += (uint32_t)bytes;
    if (bytes == left) link->ahead = NULL;
    return (ssize_t)bytes;
}

ssize_t gf_conn_recv(int fd, void *data, size_t bytes, int flags)
{
    struct gf_conn *conn = gf_conn_of(fd);
    ssize_t got = -1;
    if (conn == NULL) return __real_recv(fd, data, bytes, flags);
    if (conn->state == GF_CONN_AWAITS_ANSWER || conn->state == GF_CONN_AWAITS_CONFIRM)
        awaited_read(conn);
    if (conn->state == GF_CONN_OPEN) {
        got = (conn->of->ahead == conn) ? ahead_recv(conn->of, data, bytes)
                                        : gf_conn_read(conn, data, bytes, flags);
        if (conn->state == GF_CONN_OPEN) return got;
    }
    /* of no use yet: UCX forgets it */
    if ((conn->state == GF_CONN_ENDED) && !conn->calls && !conn->used) return 0;
    errno = EAGAIN;
    return -1;
}

int gf_conn_close(int fd)
{
    struct gf_conn *conn = gf_conn_of(fd);
    if (conn != NULL) conn_give(conn);
    return __real_close(fd);
}
