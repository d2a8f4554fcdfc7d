/* Data connections: the link's, through the control channel's port, accept path and handshake.
 *
 *     who dials                                        who accepts
 *     DATA_HELLO  version, both member ids, epoch,
 *                 stream, nonce, proof of all that ->
 *                                                   <- CHALLENGE  nonce, proof over all that
 *     PROOF       proof over all of that, too      ->
 *                                                   <- ANSWER     come in, or not now
 *
 * The proofs are those of the control channel (rendezvous_tcp_auth.c) under a key of their own: a
 * hash of the job's key, where there is one, and the acceptor's secret, which is new in each epoch
 * and is told to members of that epoch alone. So whoever has only the key, or was a member of an
 * earlier epoch, proves nothing; both ends prove themselves over both nonces, so nothing that was
 * heard before is of use; and each proof covers kind, job, member ids, epoch and stream. Nothing
 * but these frames is said before the ANSWER, and nothing of the control channel after it: from
 * there on the descriptor is the link's.
 *
 * Either end may dial. While a rank dials a peer it refuses that peer's own dial if the rank has
 * the lower member id, and gives its own up if it has the higher one: one connection stays. */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ABOUT(epoch, stream) (((epoch) << 8) | (stream))

/* ---- the end that dials ---- */

static uint32_t slot_of(const struct tcp *tcp, const struct dial *dial)
{
    return (uint32_t)(dial - tcp->data.dials);
}

static void dial_close(struct dial *dial)
{
    if (dial->fd >= 0) gf_socket_reset(&dial->fd);
    dial->in_bytes = 0;
}

static void dial_free(struct dial *dial)
{
    dial_close(dial);
    gf_auth_forget(dial, sizeof *dial);
    dial->fd = -1;
}

static struct dial *dial_of(struct tcp *tcp, uint32_t peer, uint32_t stream)
{
    for (uint32_t i = 0; i < TCP_DIALS_MAX; i++) {
        struct dial *dial = &tcp->data.dials[i];
        if ((dial->state != TCP_DIAL_FREE) && (dial->peer == peer) && (dial->stream == stream))
            return dial;
    }
    return NULL;
}

/* The try has come to nothing; the next one begins after a while. */
__attribute__((format(printf, 3, 4))) static void dial_again(struct dial *dial, uint64_t now_ns,
                                                             const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(dial->text, sizeof dial->text, format, arguments);
    va_end(arguments);
    dial_close(dial);
    dial->state = TCP_DIAL_WAIT;
    dial->at_ns = now_ns + dial->retry_ns;
    if (dial->retry_ns < TCP_RETRY_MAX_NS) dial->retry_ns *= 2;
}

static void dial_begin(struct tcp *tcp, struct dial *dial, uint64_t now_ns)
{
    dial->fd = gf_socket_connect(&dial->to, &dial->from, tcp->setup.keepalive_ns);
    if (dial->fd < 0) {
        dial_again(dial, now_ns, "connect: %s (errno %d)", strerror(errno), errno);
        return;
    }
    dial->state = TCP_DIAL_CONNECTING;
    dial->at_ns = now_ns + dial->bound_ns;
    if (gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, dial->fd, TCP_ABOUT_DIAL | slot_of(tcp, dial),
                         EPOLLOUT) != GF_OK)
        dial_again(dial, now_ns, "epoll_ctl: %s (errno %d)", strerror(errno), errno);
}

static void hello_say(struct tcp *tcp, struct dial *dial, uint64_t now_ns)
{
    const ssize_t bytes = (ssize_t)TCP_HELLO_FRAME_BYTES;
    struct gf_put put = {dial->said, TCP_HELLO_FRAME_BYTES};
    int error = 0;
    socklen_t error_bytes = sizeof error;
    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0) error = errno;
    if ((error == 0) && gf_socket_met_itself(dial->fd)) error = ECONNREFUSED;
    if (error != 0) {
        dial_again(dial, now_ns, "connect: %s (errno %d)", strerror(error), error);
        return;
    }
    gf_frame_header_put(&put, GF_FRAME_DATA_HELLO, GF_FRAME_HELLO_BYTES, tcp->setup.job_id,
                        tcp->setup.rank);
    gf_put_u32(&put, GF_VERSION);
    gf_put_u32(&put, tcp->setup.rank);
    gf_put_u32(&put, dial->peer);
    gf_put_u32(&put, ABOUT(tcp->data.epoch, dial->stream));
    gf_tcp_talk_hello_prove(&dial->auth, dial->said);
    if (send(dial->fd, dial->said, TCP_HELLO_FRAME_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT) != bytes) {
        dial_again(dial, now_ns, "send: %s (errno %d)", strerror(errno), errno);
        return;
    }
    dial->state = TCP_DIAL_HELLO;
    (void)gf_tcp_epoll_set(tcp, EPOLL_CTL_MOD, dial->fd, TCP_ABOUT_DIAL | slot_of(tcp, dial),
                           EPOLLIN);
}

/* True: the frame that is awaited is whole in dial->in. Whatever else comes ends the try alone. */
static bool frame_read(struct dial *dial, uint32_t kind, uint32_t payload_bytes, uint64_t now_ns)
{
    gf_status status = gf_socket_read(dial->fd, dial->in, &dial->in_bytes, GF_FRAME_HEADER_BYTES);
    if (status == GF_OK) {
        const struct gf_frame_header header = gf_frame_header_get(dial->in);
        if ((header.magic != GF_FRAME_MAGIC) || (header.kind != kind) ||
            (header.payload_bytes != payload_bytes)) {
            dial_again(dial, now_ns, "what listens there is no rank of this job");
            return false;
        }
        status = gf_socket_read(dial->fd, dial->in, &dial->in_bytes,
                                GF_FRAME_HEADER_BYTES + payload_bytes);
    }
    if (status < 0)
        dial_again(dial, now_ns, "%s", (errno != 0) ? strerror(errno) : "closed by its other end");
    return status == GF_OK;
}

static void challenge_take(struct tcp *tcp, struct dial *dial, uint64_t now_ns)
{
    const size_t bytes = GF_FRAME_HEADER_BYTES + GF_FRAME_PROOF_BYTES;
    if (!frame_read(dial, GF_FRAME_CHALLENGE, GF_FRAME_CHALLENGE_BYTES, now_ns)) return;
    if (!gf_tcp_talk_challenge_take(tcp, &dial->auth, dial->in, dial->said)) {
        dial_again(dial, now_ns, "what listens there did not prove that it is rank %u", dial->peer);
        return;
    }
    dial->in_bytes = 0;
    if (send(dial->fd, dial->said + TCP_TALK_CHALLENGE_BYTES, bytes, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        (ssize_t)bytes) {
        dial_again(dial, now_ns, "send: %s (errno %d)", strerror(errno), errno);
        return;
    }
    dial->state = TCP_DIAL_PROOF;
}

static void answer_take(struct tcp *tcp, struct dial *dial, uint64_t now_ns)
{
    struct gf_get get = {.at = dial->in + GF_FRAME_HEADER_BYTES, .left = GF_FRAME_ANSWER_BYTES};
    const struct gf_data_taker *taker = tcp->data.taker;
    uint32_t peer = dial->peer;
    uint32_t stream = dial->stream;
    if (!frame_read(dial, GF_FRAME_ANSWER, GF_FRAME_ANSWER_BYTES, now_ns)) return;
    if ((gf_status)(int32_t)gf_get_u32(&get) != GF_OK) {
        char reason[GF_FRAME_REASON_BYTES];
        gf_get_text(&get, reason, sizeof reason);
        dial_again(dial, now_ns, "%.90s", reason);
        return;
    }
    (void)epoll_ctl(tcp->epoll_fd, EPOLL_CTL_DEL, dial->fd, NULL);
    int fd = dial->fd;
    dial->fd = -1;
    dial_free(dial);
    taker->connected(taker->user, peer, stream, fd);
}

void gf_tcp_data_event(struct tcp *tcp, uint32_t slot, uint64_t now_ns)
{
    struct dial *dial = &tcp->data.dials[slot];
    switch (dial->state) {
    case TCP_DIAL_CONNECTING: hello_say(tcp, dial, now_ns); break;
    case TCP_DIAL_HELLO: challenge_take(tcp, dial, now_ns); break;
    case TCP_DIAL_PROOF: answer_take(tcp, dial, now_ns); break;
    case TCP_DIAL_FREE:
    case TCP_DIAL_WAIT: break;
    }
}

void gf_tcp_data_poll(struct tcp *tcp, uint64_t now_ns)
{
    for (uint32_t i = 0; tcp->data.on && (i < TCP_DIALS_MAX); i++) {
        struct dial *dial = &tcp->data.dials[i];
        if ((dial->state == TCP_DIAL_FREE) || (now_ns < dial->at_ns)) continue;
        if (dial->state == TCP_DIAL_WAIT) {
            dial_begin(tcp, dial, now_ns);
            continue;
        }
        dial_again(dial, now_ns, "no answer for %u ms", (unsigned)(dial->bound_ns / 1000000u));
        if (dial->bound_ns < TCP_DIAL_BOUND_MAX_NS) dial->bound_ns *= 2;
    }
}

/* ---- the end that accepts ---- */

static struct gf_frame_data_hello data_hello_get(const unsigned char *said)
{
    const struct gf_frame_hello words = gf_tcp_hello_get(said);
    return (struct gf_frame_data_hello){words.version, words.rank, words.world, words.flags};
}

void gf_tcp_data_meet(struct tcp *tcp, struct pending *pending)
{
    const struct gf_frame_data_hello hello = data_hello_get(pending->said);
    pending->data = true;
    /* A member that is further on dials before this rank is there: it tries again. */
    if (!tcp->data.on || (hello.about >> 8) != (tcp->data.epoch & 0xffffffu)) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_INFO, "a data connection of another epoch");
        return;
    }
    if (!gf_tcp_hello_fits(tcp, pending)) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_WARN,
                             "a data connection did not prove that it is of this job");
        return;
    }
    if (!gf_tcp_challenge_send(tcp, pending)) gf_tcp_pending_drop(pending);
}

static bool answer_send(const struct tcp *tcp, int fd, gf_status code, const char *reason)
{
    unsigned char answer[GF_FRAME_HEADER_BYTES + GF_FRAME_ANSWER_BYTES];
    struct gf_put put = {answer, sizeof answer};
    gf_frame_header_put(&put, GF_FRAME_ANSWER, GF_FRAME_ANSWER_BYTES, tcp->setup.job_id,
                        tcp->setup.rank);
    gf_tcp_answer_put(put.at, code, reason);
    return send(fd, answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof answer;
}

/* NULL: the connection is wanted. */
static const char *refusal(struct tcp *tcp, const struct gf_frame_data_hello *hello)
{
    uint32_t stream = hello->about & 0xffu;
    const struct gf_data_taker *taker = tcp->data.taker;
    if (hello->version != GF_VERSION) return "another version of the library";
    if ((hello->to != tcp->setup.rank) || (hello->from == hello->to))
        return "another rank was dialled";
    if ((hello->from >= tcp->setup.world) || (stream >= GF_DATA_STREAMS_MAX))
        return "no such rank or stream";
    if (taker->has(taker->user, hello->from, stream)) return "this stream is here already";
    if ((dial_of(tcp, hello->from, stream) != NULL) && (tcp->setup.rank < hello->from))
        return "this rank dials that one itself";
    return NULL;
}

void gf_tcp_data_proven(struct tcp *tcp, struct pending *pending)
{
    const struct gf_frame_data_hello hello = data_hello_get(pending->said);
    const struct gf_data_taker *taker = tcp->data.taker;
    /* Between challenge and proof the epoch may have ended. */
    if (!tcp->data.on || ((hello.about >> 8) != (tcp->data.epoch & 0xffffffu)) ||
        !gf_tcp_proof_fits(tcp, pending)) {
        gf_tcp_stranger_drop(tcp, pending, GF_LOG_WARN,
                             "a data connection did not prove that it is of this job");
        return;
    }
    const char *why = refusal(tcp, &hello);
    if (why != NULL) {
        (void)answer_send(tcp, pending->fd, GF_ERR_STATE, why);
        (void)shutdown(pending->fd, SHUT_WR);
        gf_socket_close(&pending->fd);
        return;
    }
    if (!answer_send(tcp, pending->fd, GF_OK, "")) {
        gf_tcp_pending_drop(pending);
        return;
    }
    struct dial *own = dial_of(tcp, hello.from, hello.about & 0xffu);
    if (own != NULL) dial_free(own);
    gf_socket_options_set(pending->fd, tcp->setup.keepalive_ns);
    (void)epoll_ctl(tcp->strangers_fd, EPOLL_CTL_DEL, pending->fd, NULL); /* where it was watched */
    int fd = pending->fd;
    pending->fd = -1;
    taker->connected(taker->user, hello.from, hello.about & 0xffu, fd);
}

/* ---- an epoch's ---- */

/* This host's address on the way to the job's, or that of `bind`. A datagram socket that connects
 * sends nothing; it asks the routes. */
static bool own_place(const struct tcp *tcp, struct gf_place *own_out)
{
    struct gf_place none = {0};
    bool found = false;
    if (tcp->bind_to.family != 0) {
        *own_out = tcp->bind_to;
        return true;
    }
    int fd = gf_socket_route(&tcp->job_address, &none);
    if (fd < 0) return false;
    found = gf_place_of_fd(fd, false, own_out);
    gf_socket_close(&fd);
    return found;
}

gf_status gf_tcp_data_begin(struct gf_rendezvous *rendezvous, uint32_t epoch,
                            const struct gf_data_taker *taker, unsigned char *secret_out,
                            struct gf_place *place_out)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    struct gf_fault fault = {0};
    struct gf_place own;
    gf_tcp_data_end(rendezvous);
    memset(place_out, 0, sizeof *place_out);
    memset(secret_out, 0, GF_DATA_SECRET_BYTES);
    if (tcp->conn_count == 0) return GF_OK; /* a world of one */
    if (!own_place(tcp, &own))
        return gf_fault_set(&tcp->base.fault, GF_ERR_SYSTEM, GF_RANK_NONE, "connect", errno,
                            "this host has no route to rendezvous.address %.60s: %s (errno %d)",
                            tcp->address_text, strerror(errno), errno);
    gf_status status = gf_tcp_listen_at(tcp, &own, &fault);
    if (status == GF_OK) {
        gf_auth_nonce(secret_out);
        status = gf_auth_derive(&tcp->auth, secret_out, &tcp->data.auth, &fault);
    }
    if (status != GF_OK) {
        tcp->base.fault = fault;
        return status;
    }
    (void)gf_place_of_fd(tcp->listen_fd, false, place_out);
    tcp->data.on = true;
    tcp->data.epoch = epoch;
    tcp->data.taker = taker;
    return GF_OK;
}

gf_status gf_tcp_data_dial(struct gf_rendezvous *rendezvous, uint64_t now_ns, uint32_t peer,
                           uint32_t stream, const unsigned char *secret, const struct gf_place *to,
                           const struct gf_place *from)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    struct gf_fault fault = {0};
    GF_ASSERT(tcp->data.on && (peer < tcp->setup.world) && (peer != tcp->setup.rank));
    GF_ASSERT(stream < GF_DATA_STREAMS_MAX);
    if (dial_of(tcp, peer, stream) != NULL) return GF_OK;
    for (uint32_t i = 0; i < TCP_DIALS_MAX; i++) {
        struct dial *dial = &tcp->data.dials[i];
        if (dial->state != TCP_DIAL_FREE) continue;
        *dial = (struct dial){
            .state = TCP_DIAL_WAIT, .fd = -1, .peer = peer, .stream = stream, .to = *to};
        dial->from = *from;
        dial->from.port = 0;
        dial->retry_ns = TCP_RETRY_FIRST_NS;
        dial->bound_ns = TCP_DIAL_BOUND_FIRST_NS;
        dial->at_ns = now_ns;
        gf_status status = gf_auth_derive(&tcp->auth, secret, &dial->auth, &fault);
        if (status != GF_OK) {
            dial_free(dial);
            tcp->base.fault = fault;
            return status;
        }
        dial_begin(tcp, dial, now_ns);
        return GF_OK;
    }
    return GF_AGAIN;
}

const char *gf_tcp_data_text(struct gf_rendezvous *rendezvous, uint32_t peer)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    for (uint32_t i = 0; i < TCP_DIALS_MAX; i++) {
        const struct dial *dial = &tcp->data.dials[i];
        if ((dial->state != TCP_DIAL_FREE) && (dial->peer == peer)) return dial->text;
    }
    return "";
}

void gf_tcp_data_end(struct gf_rendezvous *rendezvous)
{
    struct tcp *tcp = (struct tcp *)rendezvous;
    for (uint32_t i = 0; i < TCP_DIALS_MAX; i++) {
        if (tcp->data.dials[i].state != TCP_DIAL_FREE) dial_free(&tcp->data.dials[i]);
    }
    for (uint32_t i = 0; i < TCP_PENDING_MAX; i++) {
        if (tcp->pending[i].data) gf_tcp_pending_drop(&tcp->pending[i]);
    }
    tcp->data.on = false;
    gf_auth_forget(&tcp->data.auth, sizeof tcp->data.auth);
}
