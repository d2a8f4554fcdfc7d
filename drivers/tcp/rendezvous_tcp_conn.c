/* One connection of the control channel: a ring of bytes to send, one frame being received. */
#include "drivers/tcp/rendezvous_tcp_state.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

void gf_frame_header_put(struct gf_put *put, uint32_t kind, uint32_t payload_bytes, uint64_t job_id, uint32_t from)
{
    GF_ASSERT(payload_bytes <= GF_FRAME_PAYLOAD_MAX);
    gf_put_u32(put, GF_FRAME_MAGIC);
    gf_put_u16(put, GF_FRAME_PROTOCOL);
    gf_put_u16(put, GF_FRAME_HEADER_BYTES);
    gf_put_u32(put, kind);
    gf_put_u32(put, payload_bytes);
    gf_put_u64(put, job_id);
    gf_put_u32(put, from);
    gf_put_u32(put, 0);
}

struct gf_frame_header gf_frame_header_get(const unsigned char *bytes)
{
    struct gf_get get = {.at = bytes, .left = GF_FRAME_HEADER_BYTES};
    struct gf_frame_header header = {0};
    header.magic = gf_get_u32(&get);
    header.protocol = gf_get_u16(&get);
    header.header_bytes = gf_get_u16(&get);
    header.kind = gf_get_u32(&get);
    header.payload_bytes = gf_get_u32(&get);
    header.job_id = gf_get_u64(&get);
    header.from = gf_get_u32(&get);
    return header;
}

static void out_copy(struct conn *conn, const void *data, uint32_t bytes)
{
    uint32_t at = (conn->out_first + conn->out_bytes) % TCP_OUT_BYTES;
    uint32_t first_part = (bytes < TCP_OUT_BYTES - at) ? bytes : TCP_OUT_BYTES - at;
    if (bytes == 0) return;
    memcpy(conn->out + at, data, first_part);
    memcpy(conn->out, (const unsigned char *)data + first_part, bytes - first_part);
    conn->out_bytes += bytes;
}

bool gf_tcp_conn_frame_put(struct tcp *tcp, struct conn *conn, uint32_t kind, const void *payload, uint32_t bytes)
{
    unsigned char header[GF_FRAME_HEADER_BYTES], MAC[GF_AUTH_MAC_BYTES];
    struct gf_put put = {header, sizeof header};
    uint32_t mac_bytes = conn->authenticated ? GF_AUTH_MAC_BYTES : 0;
    if (TCP_OUT_BYTES - conn->out_bytes < GF_FRAME_HEADER_BYTES + bytes + mac_bytes) return false;
    gf_frame_header_put(&put, kind, bytes, tcp->job_id, tcp->rank);
    out_copy(conn, header, sizeof header);
    out_copy(conn, payload, bytes);
    if (conn->authenticated) tcp->auth.module->mac_put(&conn->mac_out, header, sizeof header, payload, bytes, MAC);
    out_copy(conn, MAC, mac_bytes);
    tcp->base.sent_bytes += GF_FRAME_HEADER_BYTES + bytes + mac_bytes;
    gf_tcp_conn_flush(tcp, conn);
    return true;
}

void gf_tcp_answer_put(unsigned char *payload_out, gf_status code, const char *reason)
{
    struct gf_put put = {payload_out, GF_FRAME_ANSWER_BYTES};
    gf_put_u32(&put, (uint32_t)code);
    gf_put_text(&put, reason, GF_FRAME_REASON_BYTES);
}

bool gf_tcp_conn_answer(struct tcp *tcp, struct conn *conn, gf_status code, const char *reason)
{
    unsigned char answer[GF_FRAME_ANSWER_BYTES];
    gf_tcp_answer_put(answer, code, reason);
    return gf_tcp_conn_frame_put(tcp, conn, GF_FRAME_ANSWER, answer, sizeof answer);
}

void gf_tcp_conn_flush(struct tcp *tcp, struct conn *conn)
{
    while ((conn->out_bytes > 0) && !conn->broken) {
        uint32_t part = TCP_OUT_BYTES - conn->out_first;
        if (part > conn->out_bytes) part = conn->out_bytes;
        ssize_t sent = send(conn->fd, conn->out + conn->out_first, part, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            conn->out_first = (conn->out_first + (uint32_t)sent) % TCP_OUT_BYTES;
            conn->out_bytes -= (uint32_t)sent;
        } else if ((errno == EAGAIN) || (errno == EWOULDBLOCK)) {
            break;
        } else if (errno != EINTR) {
            /* The end is reported by the reading side, after the last frame that arrived: it may say why. */
            conn->broken = true;
        }
    }
    if (conn->broken) conn->out_bytes = 0;
    bool waits = (conn->out_bytes > 0);
    if (waits == conn->waits_to_send) return;
    conn->waits_to_send = waits;
    (void)gf_tcp_epoll_set(tcp, EPOLL_CTL_MOD, conn->fd, (uint32_t)(conn - tcp->conns),
                           EPOLLIN | (waits ? (uint32_t)EPOLLOUT : 0u));
}

static bool header_is_good(struct tcp *tcp, const struct conn *conn, const struct gf_frame_header *header)
{
    if ((header->magic == GF_FRAME_MAGIC) && (header->protocol == GF_FRAME_PROTOCOL) &&
        (header->header_bytes == GF_FRAME_HEADER_BYTES) && (header->payload_bytes <= GF_FRAME_PAYLOAD_MAX) &&
        (header->job_id == tcp->job_id) && (header->from == conn->peer)) return true;
    (void)snprintf(tcp->text, sizeof tcp->text,
                   "sent a malformed frame (magic %08x, protocol %u, header %u, payload %u bytes, rank %u)",
                   header->magic, header->protocol, header->header_bytes, header->payload_bytes, header->from);
    return false;
}

gf_status gf_tcp_conn_read(struct tcp *tcp, struct conn *conn, struct gf_frame_header *header_out)
{
    struct gf_frame_header header = {0};
    /* The header alone and then just its payload: what follows stays in the kernel, so that its file descriptor stays
     * readable for as long as there is something to do. */
    for (;;) {
        uint32_t want = GF_FRAME_HEADER_BYTES;
        if (conn->in_bytes >= GF_FRAME_HEADER_BYTES) {
            header = gf_frame_header_get(conn->in);
            if (!header_is_good(tcp, conn, &header)) {
                conn->lives = true;
                return GF_ERR_PEER;
            }
            want += header.payload_bytes + (conn->authenticated ? GF_AUTH_MAC_BYTES : 0);
            if (conn->in_bytes == want) break;
        }
        ssize_t got = recv(conn->fd, conn->in + conn->in_bytes, want - conn->in_bytes, MSG_DONTWAIT);
        if (got > 0) {
            conn->in_bytes += (uint32_t)got;
        } else if (got == 0) {
            (void)snprintf(tcp->text, sizeof tcp->text, "connection closed by peer%s",
                           (conn->in_bytes > 0) ? " in the middle of a frame" : "");
            return GF_ERR_PEER;
        } else if ((errno == EAGAIN) || (errno == EWOULDBLOCK)) {
            return GF_AGAIN;
        } else if (errno != EINTR) {
            if ((errno != ECONNRESET) && (errno != EPIPE)) conn->lives = true; /* silence is no proof */
            (void)snprintf(tcp->text, sizeof tcp->text, "connection lost: %s (errno %d)", strerror(errno), errno);
            return GF_ERR_PEER;
        }
    }
    uint32_t frame_bytes = GF_FRAME_HEADER_BYTES + header.payload_bytes;
    if (conn->authenticated &&
        !tcp->auth.module->mac_fits(&conn->mac_in, conn->in, frame_bytes, conn->in + frame_bytes)) {
        conn->lives = true;
        (void)snprintf(tcp->text, sizeof tcp->text, "sent a frame whose MAC does not fit: it was changed, repeated or "
                       "put in on the way");
        return GF_ERR_PEER;
    }
    conn->in_bytes = 0; /* the bytes stay until the next read */
    *header_out = header;
    return GF_OK;
}

void gf_tcp_conn_close(struct conn *conn)
{
    char sink[512];
    if (conn->fd < 0) return;
    /* Closing with unread bytes would make the kernel send a reset and drop what is still to be sent. */
    (void)shutdown(conn->fd, SHUT_WR);
    for (int i = 0; (i < 64) && (recv(conn->fd, sink, sizeof sink, MSG_DONTWAIT) > 0); i++) {}
    (void)close(conn->fd);
    conn->fd = -1;
    conn->out_bytes = 0;
    conn->waits_to_send = false;
    conn->broken = false;
    conn->authenticated = false;
    gf_auth_forget(&conn->mac_in, sizeof conn->mac_in);
    gf_auth_forget(&conn->mac_out, sizeof conn->mac_out);
}
