/* One connection of the control channel: bytes to send, one frame being received, how it ends. */
#include "drivers/tcp/channel_state.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static unsigned char *out_of(const struct channel *channel, const struct conn *conn)
{
    return conn_in(channel, conn) + CONN_IN_BYTES;
}

/* ---- which are free ---- */

static void free_add(struct channel *channel, struct conn *conn)
{
    conn->fd = -1;
    conn->state = CONN_FREE;
    conn->next = channel->free_first;
    channel->free_first = conn_index(channel, conn);
}

void gf_conns_init(struct channel *channel)
{
    channel->free_first = channel->leaving_first = CONN_NONE;
    for (uint32_t i = channel->conn_count; i-- > 0;) free_add(channel, &channel->conns[i]);
}

static void leaving_remove(struct channel *channel, const struct conn *conn)
{
    uint32_t index = conn_index(channel, conn);
    uint32_t *at = &channel->leaving_first;
    while ((*at != CONN_NONE) && (*at != index)) at = &channel->conns[*at].next;
    if (*at != CONN_NONE) *at = conn->next;
}

/* The last of those that leave is the oldest. */
static void leaving_end_oldest(struct channel *channel)
{
    uint32_t at = channel->leaving_first;
    while (channel->conns[at].next != CONN_NONE) at = channel->conns[at].next;
    gf_conn_close(channel, &channel->conns[at]);
}

/* Ends the oldest connection that has sent no frame, so that it does not keep others out. */
static void silent_end_oldest(struct channel *channel)
{
    struct conn *found = NULL;
    for (uint32_t i = 0; i < channel->conn_count; i++) {
        struct conn *conn = &channel->conns[i];
        if ((conn->state == CONN_UP) && !conn->has_spoken &&
            ((found == NULL) || (conn->number < found->number)))
            found = conn;
    }
    if (found != NULL) gf_conn_leave(channel, found, GF_FRAME_GIVEN_UP);
}

struct conn *gf_conn_up(struct channel *channel, int fd, const struct gf_auth_mac *mac_in,
                        const struct gf_auth_mac *mac_out)
{
    if ((channel->free_first == CONN_NONE) && (channel->leaving_first == CONN_NONE))
        silent_end_oldest(channel);
    if ((channel->free_first == CONN_NONE) && (channel->leaving_first != CONN_NONE))
        leaving_end_oldest(channel);
    uint32_t index = channel->free_first;
    if (index == CONN_NONE) {
        gf_log_line(&channel->setup.log, GF_LOG_ERROR,
                    "control channel at %s: %u connections are open, and no more are taken",
                    channel->handshake.address_text, channel->conn_count);
        gf_socket_close(&fd);
        return NULL;
    }
    gf_socket_watch(fd, channel->setup.keepalive_ns);
    if (gf_handshake_epoll_set(&channel->handshake, EPOLL_CTL_ADD, fd, index, EPOLLIN) != GF_OK) {
        gf_socket_reset(&fd);
        return NULL;
    }
    struct conn *conn = &channel->conns[index];
    channel->free_first = conn->next;
    *conn = (struct conn){.fd = fd,
                          .state = CONN_UP,
                          .next = CONN_NONE,
                          .authenticated = channel->auth.on,
                          .number = channel->connected++,
                          .mac_in = *mac_in,
                          .mac_out = *mac_out};
    return conn;
}

void gf_conn_close(struct channel *channel, struct conn *conn)
{
    char sink[512];
    if (conn->fd < 0) return;
    if (conn->state == CONN_LEAVING) leaving_remove(channel, conn);
    if (conn->out_bytes > 0) channel->unsent--;
    /* Closing with unread bytes would make the kernel send a reset and drop what is still to be
     * sent. */
    (void)shutdown(conn->fd, SHUT_WR);
    for (int i = 0; (i < 64) && (recv(conn->fd, sink, sizeof sink, MSG_DONTWAIT) > 0); i++) {
    }
    gf_socket_close(&conn->fd);
    conn->out_bytes = 0;
    gf_auth_forget(&conn->mac_in, sizeof conn->mac_in);
    gf_auth_forget(&conn->mac_out, sizeof conn->mac_out);
    free_add(channel, conn);
}

/* ---- what goes out ---- */

static void out_copy(const struct channel *channel, struct conn *conn, const void *data,
                     uint32_t bytes)
{
    if (bytes > 0) memcpy(out_of(channel, conn) + conn->out_bytes, data, bytes);
    conn->out_bytes += bytes;
}

/* Has the kernel no room now, or, at a unix socket, the host no memory? Then it is tried again:
 * epoll reports that there is room, which there is at once where memory was lacking. */
static bool is_for_now(int error)
{
    return (error == EAGAIN) || (error == EWOULDBLOCK) || (error == ENOBUFS) || (error == ENOMEM);
}

static void flush(struct channel *channel, struct conn *conn)
{
    unsigned char *out = out_of(channel, conn);
    uint32_t sent = 0;
    while ((sent < conn->out_bytes) && (conn->broken == 0)) {
        ssize_t part =
            send(conn->fd, out + sent, conn->out_bytes - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (part > 0) {
            sent += (uint32_t)part;
        } else if (is_for_now(errno)) {
            break;
        } else if (errno != EINTR) {
            /* The reading side reports the end, after the last frame that arrived, which may have
             * the reason. The kernel returns an error only once. */
            conn->broken = errno;
        }
    }
    conn->out_bytes -= (conn->broken != 0) ? conn->out_bytes : sent;
    memmove(out, out + sent, conn->out_bytes);
    bool waits = (conn->out_bytes > 0);
    if (waits == conn->waits_to_send) return;
    conn->waits_to_send = waits;
    (void)gf_handshake_epoll_set(&channel->handshake, EPOLL_CTL_MOD, conn->fd,
                                 conn_index(channel, conn),
                                 EPOLLIN | (waits ? (uint32_t)EPOLLOUT : 0u));
}

static void flush_counted(struct channel *channel, struct conn *conn, bool before)
{
    flush(channel, conn);
    channel->unsent += (conn->out_bytes > 0);
    channel->unsent -= before;
}

/* spare: this much room must be left in the buffer afterwards */
static bool put(struct channel *channel, struct conn *conn, uint32_t kind, const void *payload,
                uint32_t bytes, uint32_t spare)
{
    unsigned char header[GF_FRAME_HEADER_BYTES];
    unsigned char mac[GF_AUTH_MAC_BYTES];
    struct gf_put at = {header, sizeof header};
    uint32_t mac_bytes = conn->authenticated ? GF_AUTH_MAC_BYTES : 0;
    bool unsent = (conn->out_bytes > 0);
    if (CONN_OUT_BYTES - conn->out_bytes < GF_FRAME_HEADER_BYTES + bytes + mac_bytes + spare)
        return false;
    gf_frame_header_put(&at, kind, bytes, channel->setup.job_id, channel->handshake.from);
    out_copy(channel, conn, header, sizeof header);
    out_copy(channel, conn, payload, bytes);
    if (conn->authenticated)
        gf_auth_mac_put(&conn->mac_out, header, sizeof header, payload, bytes, mac);
    out_copy(channel, conn, mac, mac_bytes);
    flush_counted(channel, conn, unsent);
    return true;
}

bool gf_conn_put(struct channel *channel, struct conn *conn, uint32_t kind, const void *payload,
                 uint32_t bytes)
{
    return put(channel, conn, kind, payload, bytes, HANDSHAKE_ANSWER_BYTES_MAX);
}

/* ---- this end ends it ---- */

static void shut_when_sent(struct conn *conn)
{
    if ((conn->out_bytes > 0) || conn->is_shut) return;
    conn->is_shut = true;
    (void)shutdown(conn->fd, SHUT_WR);
}

void gf_conn_leave(struct channel *channel, struct conn *conn, uint32_t word)
{
    if (conn->state != CONN_UP) return;
    if (conn->broken == 0) GF_ASSERT(put(channel, conn, word, NULL, 0, 0));
    if (conn->broken != 0) {
        gf_conn_close(channel, conn);
        return;
    }
    conn->state = CONN_LEAVING;
    conn->since_ns = channel->now_ns;
    conn->next = channel->leaving_first;
    channel->leaving_first = conn_index(channel, conn);
    shut_when_sent(conn);
}

static void leaving_take(struct channel *channel, struct conn *conn)
{
    char sink[512];
    ssize_t got = 1;
    if (conn->waits_to_send) flush_counted(channel, conn, conn->out_bytes > 0);
    shut_when_sent(conn);
    for (int i = 0; (i < 64) && (got > 0); i++)
        got = recv(conn->fd, sink, sizeof sink, MSG_DONTWAIT);
    bool waits = (got > 0) || ((got < 0) && ((errno == EAGAIN) || (errno == EINTR)));
    if (!waits || (conn->broken != 0)) gf_conn_close(channel, conn);
}

void gf_conns_leaving_progress(struct channel *channel)
{
    uint32_t at = channel->leaving_first;
    while (at != CONN_NONE) {
        struct conn *conn = &channel->conns[at];
        uint64_t age_ns = channel->now_ns - conn->since_ns;
        at = conn->next;
        if (age_ns >= (conn->is_shut ? CHANNEL_LEAVE_NS : CHANNEL_LEAVE_UNSENT_NS))
            gf_conn_close(channel, conn);
    }
}

/* Does this host's kernel hold bytes that the other host has not acknowledged? */
static bool is_unacknowledged(const struct conn *conn)
{
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (conn->out_bytes > 0) return true;
    return (conn->fd >= 0) && (getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0) &&
           (info.tcpi_unacked > 0);
}

/* Bytes that arrive at a closed connection reset it. That would drop the last frame too, if it was
 * lost the first time and is to be retransmitted. */
void gf_conns_last_words(struct channel *channel)
{
    bool waits = true;
    for (uint32_t i = 0; i < channel->conn_count; i++)
        gf_conn_leave(channel, &channel->conns[i], GF_FRAME_LEFT);
    for (uint32_t ms = 0; waits && (ms < CHANNEL_LAST_WORDS_MS); ms++) {
        uint32_t at = channel->leaving_first;
        waits = false;
        while (at != CONN_NONE) {
            struct conn *conn = &channel->conns[at];
            at = conn->next;
            leaving_take(channel, conn);
            waits = waits || is_unacknowledged(conn);
        }
        if (waits) (void)poll(NULL, 0, 1);
    }
}

/* ---- receiving ---- */

__attribute__((format(printf, 5, 6))) static outcome ended(struct channel *channel,
                                                           const struct conn *conn,
                                                           gf_channel_end end,
                                                           struct gf_channel_event *event_out,
                                                           const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(channel->text, sizeof channel->text, format, arguments);
    va_end(arguments);
    *event_out = (struct gf_channel_event){.kind = GF_CHANNEL_ENDED,
                                           .connection = conn_index(channel, conn),
                                           .end = end,
                                           .text = channel->text};
    return OUTCOME_EVENT;
}

/* Both of these give the connection up. The process at the other end may still run. */
static outcome malformed(struct channel *channel, struct conn *conn,
                         const struct gf_frame_header *header, struct gf_channel_event *event_out)
{
    gf_conn_leave(channel, conn, GF_FRAME_GIVEN_UP);
    return ended(channel, conn, GF_CHANNEL_BROKE, event_out,
                 "sent a malformed frame (magic %08x, protocol %u, header %u, payload %u bytes)",
                 header->magic, header->protocol, header->header_bytes, header->payload_bytes);
}
static outcome forged(struct channel *channel, struct conn *conn,
                      struct gf_channel_event *event_out)
{
    gf_conn_leave(channel, conn, GF_FRAME_GIVEN_UP);
    return ended(channel, conn, GF_CHANNEL_BROKE, event_out,
                 "sent a frame whose MAC does not fit: it was changed, repeated or put in on the "
                 "way");
}

/* How a connection ended by `error` (0: it was closed). Silence is no proof of a death. A kernel
 * resets a connection whose process ended with unread bytes, and also one that it had given up for
 * silence, once another packet arrives. This end cannot tell the two apart, because packets may
 * arrive all that time where only one direction is lost. At a unix socket there is no such
 * silence. */
static gf_channel_end conn_end_of(const struct channel *channel, int error)
{
    if ((error == 0) || (error == EPIPE)) return GF_CHANNEL_DIED;
    if (error != ECONNRESET) return GF_CHANNEL_BROKE;
    return channel->by_name ? GF_CHANNEL_DIED : GF_CHANNEL_RESET;
}

static outcome lost(struct channel *channel, struct conn *conn, int read_error,
                    struct gf_channel_event *event_out)
{
    int error = ((read_error == 0) && (conn->broken != EPIPE)) ? conn->broken : read_error;
    gf_channel_end end = conn_end_of(channel, error);
    bool in_frame = (conn->in_bytes > 0);
    gf_conn_close(channel, conn);
    if (error != 0)
        return ended(channel, conn, end, event_out, "connection lost: %s (errno %d)",
                     strerror(error), error);
    return ended(channel, conn, end, event_out, "connection closed by peer%s",
                 in_frame ? " in the middle of a frame" : "");
}

static bool header_is_good(const struct channel *channel, const struct gf_frame_header *header)
{
    return (header->magic == GF_FRAME_MAGIC) && (header->protocol == GF_FRAME_PROTOCOL) &&
           (header->header_bytes == GF_FRAME_HEADER_BYTES) &&
           (header->payload_bytes <= GF_CHANNEL_PAYLOAD_MAX) &&
           (header->job_id == channel->setup.job_id);
}

static outcome frame_take(struct channel *channel, struct conn *conn,
                          const struct gf_frame_header *header, struct gf_channel_event *event_out)
{
    conn->in_bytes = 0; /* the bytes stay until the next read */
    conn->has_spoken = true;
    if ((header->kind == GF_FRAME_LEFT) || (header->kind == GF_FRAME_GIVEN_UP)) {
        bool left = (header->kind == GF_FRAME_LEFT);
        gf_conn_close(channel, conn);
        return ended(channel, conn, left ? GF_CHANNEL_CLOSED : GF_CHANNEL_BROKE, event_out, "%s",
                     left ? "closed on purpose by the other end"
                          : "given up by the other end, to which it was broken");
    }
    if (header->kind >= GF_FRAME_DRIVER) return OUTCOME_NOTHING; /* one of a later protocol */
    *event_out =
        (struct gf_channel_event){.kind = GF_CHANNEL_FRAME,
                                  .connection = conn_index(channel, conn),
                                  .frame_kind = header->kind,
                                  .size_bytes = header->payload_bytes,
                                  .payload = conn_in(channel, conn) + GF_FRAME_HEADER_BYTES};
    return OUTCOME_EVENT;
}

static outcome not_whole(struct channel *channel, struct conn *conn, gf_status status,
                         struct gf_channel_event *event_out)
{
    return (status == GF_AGAIN) ? OUTCOME_NOTHING : lost(channel, conn, errno, event_out);
}

/* Reads the header, and then no more than the rest of its frame: what follows stays in the kernel,
 * so that the descriptor stays readable for as long as there is something to do. */
static outcome frame_read(struct channel *channel, struct conn *conn,
                          struct gf_channel_event *event_out)
{
    unsigned char *in = conn_in(channel, conn);
    uint32_t mac_bytes = conn->authenticated ? GF_AUTH_MAC_BYTES : 0;
    gf_status status = gf_socket_read(conn->fd, in, &conn->in_bytes, GF_FRAME_HEADER_BYTES);
    if (status != GF_OK) return not_whole(channel, conn, status, event_out);
    struct gf_frame_header header = gf_frame_header_get(in);
    if (!header_is_good(channel, &header)) return malformed(channel, conn, &header, event_out);
    uint32_t frame_bytes = GF_FRAME_HEADER_BYTES + header.payload_bytes;
    status = gf_socket_read(conn->fd, in, &conn->in_bytes, frame_bytes + mac_bytes);
    if (status != GF_OK) return not_whole(channel, conn, status, event_out);
    if (conn->authenticated && !gf_auth_mac_fits(&conn->mac_in, in, frame_bytes, in + frame_bytes))
        return forged(channel, conn, event_out);
    return frame_take(channel, conn, &header, event_out);
}

outcome gf_conn_take(struct channel *channel, struct conn *conn, struct gf_channel_event *event_out)
{
    switch (conn->state) {
    case CONN_LEAVING: leaving_take(channel, conn); break;
    case CONN_UP:
        if (conn->waits_to_send) flush_counted(channel, conn, conn->out_bytes > 0);
        return frame_read(channel, conn, event_out);
    case CONN_FREE: break;
    }
    return OUTCOME_NOTHING;
}
