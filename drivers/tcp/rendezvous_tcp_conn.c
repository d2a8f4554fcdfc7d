/* One connection of the control channel: bytes to send, one frame being received. */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

void gf_tcp_conn_init(struct conn *conn, conn_state state)
{
    const size_t from = offsetof(struct conn, state);
    conn->fd = -1; /* at no time 0: another thread may fork */
    memset((char *)conn + from, 0, offsetof(struct conn, in) - from); /* the buffers are large */
    conn->state = state;
}

bool gf_tcp_conn_up(struct tcp *tcp, uint32_t rank, int fd, const struct gf_auth_mac *mac_in,
                    const struct gf_auth_mac *mac_out)
{
    struct conn *conn = &tcp->conns[rank];
    gf_socket_options_set(fd, tcp->setup.keepalive_ns);
    if (gf_tcp_epoll_set(tcp, EPOLL_CTL_ADD, fd, rank, EPOLLIN) != GF_OK) {
        gf_socket_reset(&fd);
        return false;
    }
    gf_tcp_conn_close(conn);
    gf_tcp_conn_init(conn, TCP_CONN_UP);
    conn->fd = fd;
    conn->authenticated = tcp->auth.on;
    conn->mac_in = *mac_in;
    conn->mac_out = *mac_out;
    return true;
}

static void header_walk(struct gf_walk *walk, struct gf_frame_header *header)
{
    static const struct gf_field fields[] = {
        GF_FIELD(gf_frame_header, magic),         GF_FIELD(gf_frame_header, protocol),
        GF_FIELD(gf_frame_header, header_bytes),  GF_FIELD(gf_frame_header, kind),
        GF_FIELD(gf_frame_header, payload_bytes), GF_FIELD(gf_frame_header, job_id),
        GF_FIELD(gf_frame_header, from),          GF_FIELD(gf_frame_header, unused)};
    gf_walk_fields(walk, header, fields, sizeof fields / sizeof fields[0]);
}

void gf_frame_header_put(struct gf_put *put, uint32_t kind, uint32_t payload_bytes, uint64_t job_id,
                         uint32_t from)
{
    struct gf_frame_header header = {GF_FRAME_MAGIC,
                                     GF_FRAME_PROTOCOL,
                                     GF_FRAME_HEADER_BYTES,
                                     kind,
                                     payload_bytes,
                                     job_id,
                                     from,
                                     0};
    GF_ASSERT(payload_bytes <= GF_FRAME_PAYLOAD_MAX);
    header_walk(&(struct gf_walk){.put = put}, &header);
}

struct gf_frame_header gf_frame_header_get(const unsigned char *bytes)
{
    struct gf_get get = {.at = bytes, .left = GF_FRAME_HEADER_BYTES};
    struct gf_frame_header header = {0};
    header_walk(&(struct gf_walk){.get = &get}, &header);
    return header;
}

gf_status gf_tcp_because(struct tcp *tcp, gf_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(tcp->text, sizeof tcp->text, format, arguments);
    va_end(arguments);
    return status;
}

gf_status gf_tcp_failed(struct tcp *tcp, gf_status status)
{
    return gf_fault_set(&tcp->base.fault, status, 0, "", 0, "%s", tcp->text);
}

static void out_copy(struct conn *conn, const void *data, uint32_t bytes)
{
    if (bytes > 0) memcpy(conn->out + conn->out_bytes, data, bytes);
    conn->out_bytes += bytes;
}

bool gf_tcp_conn_frame_put(struct tcp *tcp, struct conn *conn, uint32_t kind, const void *payload,
                           uint32_t bytes)
{
    unsigned char header[GF_FRAME_HEADER_BYTES];
    unsigned char MAC[GF_AUTH_MAC_BYTES];
    struct gf_put put = {header, sizeof header};
    uint32_t mac_bytes = conn->authenticated ? GF_AUTH_MAC_BYTES : 0;
    if (TCP_OUT_BYTES - conn->out_bytes < GF_FRAME_HEADER_BYTES + bytes + mac_bytes) return false;
    gf_frame_header_put(&put, kind, bytes, tcp->setup.job_id, tcp->setup.rank);
    out_copy(conn, header, sizeof header);
    out_copy(conn, payload, bytes);
    if (conn->authenticated)
        gf_auth_mac_put(&conn->mac_out, header, sizeof header, payload, bytes, MAC);
    out_copy(conn, MAC, mac_bytes);
    tcp->base.sent_bytes += GF_FRAME_HEADER_BYTES + bytes + mac_bytes;
    gf_tcp_conn_flush(tcp, conn);
    return true;
}

void gf_tcp_conn_flush(struct tcp *tcp, struct conn *conn)
{
    uint32_t sent = 0;
    while ((sent < conn->out_bytes) && (conn->broken == 0)) {
        ssize_t part =
            send(conn->fd, conn->out + sent, conn->out_bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (part > 0) {
            sent += (uint32_t)part;
        } else if ((errno == EAGAIN) || (errno == EWOULDBLOCK)) {
            break;
        } else if (errno != EINTR) {
            /* The end is reported by the reading side, after the last frame that arrived: it may
             * say why. The kernel tells an error once. */
            conn->broken = errno;
        }
    }
    conn->out_bytes -= (conn->broken != 0) ? conn->out_bytes : sent;
    memmove(conn->out, conn->out + sent, conn->out_bytes);
    bool waits = (conn->out_bytes > 0);
    if (waits == conn->waits_to_send) return;
    conn->waits_to_send = waits;
    (void)gf_tcp_epoll_set(tcp, EPOLL_CTL_MOD, conn->fd, tcp_rank_of(tcp, conn),
                           EPOLLIN | (waits ? (uint32_t)EPOLLOUT : 0u));
}

static bool header_is_good(struct tcp *tcp, const struct conn *conn,
                           const struct gf_frame_header *header)
{
    if ((header->magic == GF_FRAME_MAGIC) && (header->protocol == GF_FRAME_PROTOCOL) &&
        (header->header_bytes == GF_FRAME_HEADER_BYTES) &&
        (header->payload_bytes <= GF_FRAME_PAYLOAD_MAX) && (header->job_id == tcp->setup.job_id) &&
        (header->from == tcp_rank_of(tcp, conn)))
        return true;
    (void)gf_tcp_because(
        tcp, GF_ERR_PEER,
        "sent a malformed frame (magic %08x, protocol %u, header %u, payload %u bytes, rank %u)",
        header->magic, header->protocol, header->header_bytes, header->payload_bytes, header->from);
    return false;
}

/* Of a connection that ended by `error`, 0: it was closed. Silence is no proof; and a kernel that has
 * given a connection up for silence resets it at the next word. At a unix socket there is none. */
static gf_rendezvous_end end_of(const struct tcp *tcp, int error)
{
    if ((error == 0) || (error == EPIPE)) return GF_END_GONE;
    if (error == ECONNRESET) return tcp->by_name ? GF_END_GONE : GF_END_RESET;
    return GF_END_CUT;
}

/* The header alone and then just its payload: what follows stays in the kernel, so that its file
 * descriptor stays readable for as long as there is something to do. */
gf_status gf_tcp_conn_read(struct tcp *tcp, struct conn *conn, struct gf_frame_header *header_out)
{
    struct gf_frame_header header;
    gf_status status = gf_socket_read(conn->fd, conn->in, &conn->in_bytes, GF_FRAME_HEADER_BYTES);
    if (status == GF_OK) {
        header = gf_frame_header_get(conn->in);
        if (!header_is_good(tcp, conn, &header)) {
            conn->end = GF_END_LEFT;
            return GF_ERR_PEER;
        }
        uint32_t mac_bytes = conn->authenticated ? GF_AUTH_MAC_BYTES : 0;
        status = gf_socket_read(conn->fd, conn->in, &conn->in_bytes,
                                GF_FRAME_HEADER_BYTES + header.payload_bytes + mac_bytes);
    }
    if (status == GF_AGAIN) return GF_AGAIN;
    if (status < 0) {
        int error = ((errno == 0) && (conn->broken != EPIPE)) ? conn->broken : errno;
        if (conn->end == GF_END_GONE) conn->end = end_of(tcp, error);
        if (error != 0)
            return gf_tcp_because(tcp, GF_ERR_PEER, "connection lost: %s (errno %d)",
                                  strerror(error), error);
        return gf_tcp_because(tcp, GF_ERR_PEER, "connection closed by peer%s",
                              (conn->in_bytes > 0) ? " in the middle of a frame" : "");
    }
    uint32_t frame_bytes = GF_FRAME_HEADER_BYTES + header.payload_bytes;
    if (conn->authenticated &&
        !gf_auth_mac_fits(&conn->mac_in, conn->in, frame_bytes, conn->in + frame_bytes)) {
        conn->end = GF_END_LEFT;
        return gf_tcp_because(
            tcp, GF_ERR_PEER,
            "sent a frame whose MAC does not fit: it was changed, repeated or put "
            "in on the way");
    }
    conn->in_bytes = 0; /* the bytes stay until the next read */
    *header_out = header;
    return GF_OK;
}

void gf_tcp_conn_close(struct conn *conn)
{
    char sink[512];
    if (conn->fd < 0) return;
    /* Closing with unread bytes would make the kernel send a reset and drop what is still to be
     * sent. */
    (void)shutdown(conn->fd, SHUT_WR);
    for (int i = 0; (i < 64) && (recv(conn->fd, sink, sizeof sink, MSG_DONTWAIT) > 0); i++) {
    }
    gf_socket_close(&conn->fd);
    conn->out_bytes = 0;
    conn->waits_to_send = false;
    conn->broken = 0;
    conn->authenticated = false;
    gf_auth_forget(&conn->mac_in, sizeof conn->mac_in);
    gf_auth_forget(&conn->mac_out, sizeof conn->mac_out);
}
