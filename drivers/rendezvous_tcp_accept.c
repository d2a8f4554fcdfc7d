/* Rank 0 and those who knock: anybody may connect, only a rank of this job gets past its hello. */
#include "rendezvous_tcp_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

/* A flood of strangers must not become a flood of log lines: the first four, then every power of two. */
static void stranger_log(struct tcp *tcp, gf_log_level level, const char *what)
{
    tcp->strangers++;
    if ((tcp->strangers > 4) && ((tcp->strangers & (tcp->strangers - 1)) != 0)) return;
    gf_log_line(&tcp->log, level, "control channel at %s: %s (%u connections turned away so far)", tcp->address_text,
                what, tcp->strangers);
}

static void pending_drop(struct pending *pending)
{
    (void)close(pending->fd);
    pending->fd = -1;
}

void gf_tcp_pending_expire(struct tcp *tcp, uint64_t now_ns)
{
    for (uint32_t i = 0; i < TCP_PENDING_MAX; i++) {
        if ((tcp->pending[i].fd < 0) || (now_ns - tcp->pending[i].since_ns < TCP_PENDING_NS)) continue;
        pending_drop(&tcp->pending[i]);
        stranger_log(tcp, GF_LOG_WARN, "a connection did not say who it is within 5 s");
    }
}

void gf_tcp_accept(struct tcp *tcp, uint64_t now_ns)
{
    uint32_t slot = 0;
    int fd = accept4(tcp->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        if ((errno == EMFILE) || (errno == ENFILE)) stranger_log(tcp, GF_LOG_ERROR, "accept: no file descriptor left");
        return; /* anything else is a connection that has gone already */
    }
    gf_socket_options_set(fd, tcp->keepalive_ns);
    for (uint32_t i = 0; i < TCP_PENDING_MAX; i++) {
        if (tcp->pending[i].fd < 0) {
            slot = i;
            break;
        }
        if (tcp->pending[i].since_ns < tcp->pending[slot].since_ns) slot = i;
    }
    struct pending *pending = &tcp->pending[slot];
    if (pending->fd >= 0) {
        pending_drop(pending);
        stranger_log(tcp, GF_LOG_WARN, "too many connections that do not say who they are, dropped the oldest");
    }
    pending->fd = fd;
    pending->in_bytes = 0;
    pending->since_ns = now_ns;
    if (gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, fd, TCP_ABOUT_PENDING | slot, EPOLLIN) != GF_OK) pending_drop(pending);
}

static void answer_put(unsigned char *out, struct tcp *tcp, gf_status code, const char *reason)
{
    struct gf_put put = {out, GF_FRAME_HEADER_BYTES + GF_FRAME_ANSWER_BYTES};
    gf_frame_header_put(&put, GF_FRAME_ANSWER, GF_FRAME_ANSWER_BYTES, tcp->job_id, 0);
    gf_put_u32(&put, (uint32_t)code);
    gf_put_text(&put, reason, GF_FRAME_REASON_BYTES);
}

/* Why this hello cannot come in: GF_OK if it can. ours_out: it is of this job, so that the job itself is ill. */
static gf_status hello_check(struct tcp *tcp, const struct gf_frame_header *header, const struct gf_frame_hello *hello,
                             char *reason, size_t reason_bytes, bool *ours_out)
{
    *ours_out = false;
    if (header->job_id != tcp->job_id) {
        (void)snprintf(reason, reason_bytes, "job id %" PRIu64 " at rank 0, %" PRIu64 " at rank %u", tcp->job_id,
                       header->job_id, header->from);
        return GF_ERR_MISMATCH;
    }
    *ours_out = true;
    if (header->protocol != GF_FRAME_PROTOCOL) {
        (void)snprintf(reason, reason_bytes, "protocol version %u at rank 0, %u at rank %u", GF_FRAME_PROTOCOL,
                       header->protocol, header->from);
    } else if (hello->version != GF_VERSION) {
        (void)snprintf(reason, reason_bytes, "library version %u.%u at rank 0, %u.%u at rank %u", GF_VERSION_MAJOR,
                       GF_VERSION_MINOR, hello->version >> 16, hello->version & 0xffffu, hello->rank);
    } else if (hello->world != tcp->world) {
        (void)snprintf(reason, reason_bytes, "world %u at rank 0, %u at rank %u", tcp->world, hello->world,
                       hello->rank);
    } else if ((hello->rank == 0) || (hello->rank >= tcp->world)) {
        (void)snprintf(reason, reason_bytes, "rank %u: expected 1 to %u", hello->rank, tcp->world - 1);
    } else if (tcp->conns[hello->rank - 1].state != TCP_CONN_NONE) {
        bool up = (tcp->conns[hello->rank - 1].state == TCP_CONN_UP);
        (void)snprintf(reason, reason_bytes, "rank %u %s: was it started twice?", hello->rank,
                       up ? "is here already" : "was here and has gone");
        *ours_out = false; /* the first one serves the job well */
        return GF_ERR_MISMATCH;
    } else {
        return GF_OK;
    }
    return GF_ERR_MISMATCH;
}

/* The one place where a connection proves that it holds the job's key. Keys are refused at open, so there is nothing to
 * prove yet. */
static gf_status hello_authentic(const struct tcp *tcp, const struct pending *pending)
{
    (void)tcp;
    (void)pending;
    return GF_OK;
}

static void pending_refuse(struct tcp *tcp, struct pending *pending, gf_status code, const char *reason)
{
    unsigned char answer[GF_FRAME_HEADER_BYTES + GF_FRAME_ANSWER_BYTES], sink[512];
    char what[GF_FRAME_REASON_BYTES + 32];
    answer_put(answer, tcp, code, reason);
    (void)send(pending->fd, answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT); /* a new socket has room for it */
    (void)shutdown(pending->fd, SHUT_WR);
    (void)recv(pending->fd, sink, sizeof sink, MSG_DONTWAIT); /* unread bytes would turn the answer into a reset */
    pending_drop(pending);
    (void)snprintf(what, sizeof what, "refused a rank: %s", reason);
    stranger_log(tcp, GF_LOG_WARN, what);
}

static gf_status pending_promote(struct tcp *tcp, struct pending *pending, uint32_t rank)
{
    unsigned char answer[GF_FRAME_HEADER_BYTES + GF_FRAME_ANSWER_BYTES];
    struct conn *conn = &tcp->conns[rank - 1];
    answer_put(answer, tcp, GF_OK, "");
    if (gf_tcp_epoll_set(tcp, EPOLL_CTL_MOD, pending->fd, rank - 1, EPOLLIN) != GF_OK) {
        pending_drop(pending);
        return GF_AGAIN;
    }
    conn->fd = pending->fd;
    conn->peer = rank;
    conn->state = TCP_CONN_UP;
    pending->fd = -1;
    GF_ASSERT(gf_tcp_conn_frame_put(tcp, conn, GF_FRAME_ANSWER, answer + GF_FRAME_HEADER_BYTES, GF_FRAME_ANSWER_BYTES));
    return GF_OK;
}

static gf_status hello_take(struct tcp *tcp, struct pending *pending, const struct gf_frame_header *header,
                            struct gf_rendezvous_event *event_out)
{
    struct gf_get get = {.at = pending->in + GF_FRAME_HEADER_BYTES, .left = GF_FRAME_HELLO_BYTES};
    struct gf_frame_hello hello = {0};
    bool ours = false;
    hello.version = gf_get_u32(&get);
    hello.rank = gf_get_u32(&get);
    hello.world = gf_get_u32(&get);
    *event_out = (struct gf_rendezvous_event){.kind = GF_RENDEZVOUS_CONNECTED, .rank = hello.rank};
    gf_status status = hello_check(tcp, header, &hello, tcp->text, GF_FRAME_REASON_BYTES, &ours);
    if (status == GF_OK) status = hello_authentic(tcp, pending);
    if (status == GF_OK) return pending_promote(tcp, pending, hello.rank);
    pending_refuse(tcp, pending, status, tcp->text);
    if (!ours) return GF_AGAIN;
    event_out->kind = GF_RENDEZVOUS_REFUSED;
    event_out->rank = (header->protocol == GF_FRAME_PROTOCOL) ? hello.rank : header->from;
    event_out->text = tcp->text;
    return GF_OK;
}

gf_status gf_tcp_pending_read(struct tcp *tcp, uint32_t slot, struct gf_rendezvous_event *event_out)
{
    struct pending *pending = &tcp->pending[slot];
    if (pending->fd < 0) return GF_AGAIN;
    ssize_t got = recv(pending->fd, pending->in + pending->in_bytes, sizeof pending->in - pending->in_bytes,
                       MSG_DONTWAIT);
    if ((got < 0) && ((errno == EAGAIN) || (errno == EWOULDBLOCK) || (errno == EINTR))) return GF_AGAIN;
    if (got <= 0) {
        pending_drop(pending);
        stranger_log(tcp, GF_LOG_INFO, "a connection ended before it said who it is");
        return GF_AGAIN;
    }
    pending->in_bytes += (uint32_t)got;
    if (pending->in_bytes < GF_FRAME_HEADER_BYTES) return GF_AGAIN;
    struct gf_frame_header header = gf_frame_header_get(pending->in);
    /* A hello of another protocol version may have any size; its header is enough to refuse it. */
    bool foreign = (header.protocol != GF_FRAME_PROTOCOL) || (header.job_id != tcp->job_id);
    if ((header.magic != GF_FRAME_MAGIC) || (header.header_bytes < GF_FRAME_HEADER_BYTES) ||
        (!foreign && ((header.kind != GF_FRAME_HELLO) || (header.payload_bytes != GF_FRAME_HELLO_BYTES) ||
                      (header.header_bytes != GF_FRAME_HEADER_BYTES)))) {
        pending_drop(pending);
        stranger_log(tcp, GF_LOG_WARN, "a stranger's bytes are no hello");
        return GF_AGAIN;
    }
    if (!foreign && (pending->in_bytes < sizeof pending->in)) return GF_AGAIN;
    return hello_take(tcp, pending, &header, event_out);
}
