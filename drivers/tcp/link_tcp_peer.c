/* The connections of a peer: how they are adopted, and how they end. They end together.
 *
 * A connection that its other end gives up before this rank has heard the peer's HELLO is none yet:
 * the peer has replaced the attempt while its ANSWER was on the way, and dials again. Such a one is
 * forgotten, and another may be adopted in its place.
 *
 * A connection mostly ends because the peer's process has ended, or has left on purpose. The
 * control channel reports that better: it knows which process it was, and what follows. So the
 * requests of a peer fail a second after its connection has ended. Until then what has arrived is
 * read, and receives that are posted for it still find it. Bytes that break a rule fail the
 * requests at once. */
#include "drivers/tcp/link_tcp_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drivers/base/address.h"
#include "drivers/base/clock.h"

#define READS_MAX 64 /* of a peer that goes on sending on one stream when another has ended */

static void stream_init(struct gf_tcp_peer *peer, uint32_t index)
{
    struct gf_tcp_stream *stream = &peer->streams[index];
    /* First, because a child that another thread forks closes the descriptor that it finds here. */
    stream->fd = -1;
    memset(stream, 0, offsetof(struct gf_tcp_stream, fd));
    memset(&stream->index, 0,
           offsetof(struct gf_tcp_stream, out) - offsetof(struct gf_tcp_stream, index));
    stream->peer = peer;
    stream->index = index;
}

void gf_tcp_peer_init(struct gf_tcp_peer *peer)
{
    struct gf_tcp_link *tcp = peer->link;
    const struct gf_tcp_peer fresh = {.link = tcp,
                                      .id = peer->id,
                                      .streams = peer->streams,
                                      .early = peer->early,
                                      .unexpected = peer->unexpected,
                                      .chain = peer->chain,
                                      .blocks = peer->blocks};
    *peer = fresh;
    for (uint32_t s = 0; s < tcp->setup.streams; s++) stream_init(peer, s);
}

/* ---- adopting ---- */

static gf_status adopt_refuse(struct gf_tcp_link *tcp, uint32_t peer, const char *call, int error,
                              const char *why)
{
    /* with an errno the fault is this rank's */
    uint32_t whose = (error != 0) ? tcp->setup.rank : peer;
    return gf_fault_set(&tcp->link.fault, (error != 0) ? GF_ERR_SYSTEM : GF_ERR_PARAM, whose, call,
                        error, "rank %u cannot take a connection to rank %u: %s", tcp->setup.rank,
                        peer, why);
}

gf_status gf_link_tcp_adopt(struct gf_link *link, uint32_t id, uint32_t stream_index, int fd)
{
    struct gf_tcp_link *tcp = (struct gf_tcp_link *)link;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    struct gf_tcp_peer *peer;
    struct gf_tcp_stream *stream;
    int no_delay = 1;
    if ((id >= tcp->setup.world) || (id == tcp->setup.rank))
        return adopt_refuse(tcp, GF_RANK_NONE, "adopt", 0, "there is no such peer");
    if ((stream_index >= tcp->setup.streams) || (fd < 0))
        return adopt_refuse(tcp, id, "adopt", 0, "there is no such stream");
    peer = &tcp->peers[id];
    stream = &peer->streams[stream_index];
    if (peer->ended || (stream->fd >= 0))
        return adopt_refuse(tcp, id, "adopt", 0, "that stream was there already");
    event.data.ptr = stream;
    if (peer->open_count == 0) gf_tcp_unexpected_init(peer);
    if (epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
        return adopt_refuse(tcp, id, "epoll_ctl", errno, strerror(errno));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &no_delay,
                     sizeof no_delay); /* a socket pair has no such option */
    stream->fd = fd;
    (void)gf_addr_of_fd(fd, true, &stream->there);
    stream->readable = true;
    stream->writable = true;
    if (stream_index == 0) peer->greets = true;
    peer->open_count++;
    tcp->streams_open++;
    gf_tcp_stream_list(stream);
    gf_tcp_stream_list(&peer->streams[0]); /* its HELLO waits for all */
    return GF_OK;
}

/* ---- ending ---- */

static void stream_close(struct gf_tcp_stream *stream)
{
    int fd = stream->fd;
    if (fd < 0) return;
    stream->fd = -1; /* first, because a child that is forked meanwhile closes what it finds here */
    /* epoll watches the connection, not this descriptor, and a child of the program may hold the
     * connection too. */
    (void)epoll_ctl(stream->peer->link->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    (void)close(fd);
}

void gf_tcp_peer_close(struct gf_tcp_peer *peer)
{
    for (uint32_t s = 0; s < peer->link->setup.streams; s++) stream_close(&peer->streams[s]);
}

static void addr_text(const struct gf_addr *addr, char *text_out, size_t bytes)
{
    char ip[INET6_ADDRSTRLEN] = "";
    text_out[0] = 0;
    if (addr->family == 0) return;
    (void)inet_ntop(addr->family, addr->ip, ip, sizeof ip);
    (void)snprintf(text_out, bytes, (addr->family == AF_INET) ? " (%s:%u)" : " ([%s]:%u)", ip,
                   ntohs(addr->port));
}

void gf_tcp_ends_text(const struct gf_tcp_stream *stream, char *own_out, char *other_out,
                      size_t bytes)
{
    struct gf_addr own = {.family = 0};
    if (stream->fd >= 0) (void)gf_addr_of_fd(stream->fd, false, &own);
    addr_text(&own, own_out, bytes);
    addr_text(&stream->there, other_out, bytes);
}

/* Describes how the connection ended, with what the kernel measured while the socket is open. */
static void peer_text(const struct gf_tcp_stream *stream, const char *why)
{
    struct gf_tcp_peer *peer = stream->peer;
    int fd = stream->fd;
    char own[64];
    char other[64];
    char measured[64] = "";
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    gf_tcp_ends_text(stream, own, other, sizeof own);
    if ((fd >= 0) && (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0))
        (void)snprintf(measured, sizeof measured, "; %u retransmits, rtt %u us",
                       info.tcpi_total_retrans, info.tcpi_rtt);
    (void)snprintf(peer->text, sizeof peer->text,
                   "the connection of rank %u%s and rank %u%s ended: %s%s", peer->link->setup.rank,
                   own, peer->id, other, why, measured);
}

static void peer_ends(struct gf_tcp_peer *peer, int error)
{
    if (peer->ended) return;
    peer->ended = true;
    peer->ended_error = error;
    peer->ended_ns = gf_clock_monotonic.now_ns(&gf_clock_monotonic);
    peer->link->gone_count++;
    for (uint32_t s = 0; s < peer->link->setup.streams; s++) {
        peer->streams[s].readable = true; /* what has arrived is read to its end */
        gf_tcp_stream_list(&peer->streams[s]);
    }
}

/* Is it none yet? Until the peer has greeted, no request names it. A connection that never stands
 * is told in the end. */
static bool is_forgotten(const struct gf_tcp_peer *peer, bool there)
{
    const struct gf_tcp_link *tcp = peer->link;
    return there && !tcp->setup.adopts && !peer->greeted && !peer->ended &&
           (tcp->requests_under_way == 0) && (peer->again_count < TCP_AGAIN_MAX);
}

static void stream_forget(struct gf_tcp_stream *stream)
{
    struct gf_tcp_peer *peer = stream->peer;
    struct gf_tcp_stream *next_ready = stream->next_ready;
    bool listed = stream->listed;
    stream_close(stream);
    stream_init(peer, stream->index);
    stream->next_ready = next_ready; /* link.ready may lead over it */
    stream->listed = listed;
    peer->again_count++;
    peer->open_count--;
    peer->link->streams_open--;
}

void gf_tcp_stream_ended(struct gf_tcp_stream *stream, int error)
{
    struct gf_tcp_peer *peer = stream->peer;
    bool reads =
        (error == EPIPE) || (error == ECONNRESET); /* what arrived before may still be unread */
    if (is_forgotten(peer, reads || (error == 0))) {
        stream_forget(stream);
        return;
    }
    if (!peer->ended) peer_text(stream, (error == 0) ? "closed there" : strerror(error));
    peer_ends(peer, error);
    if (!reads || !stream->readable) stream_close(stream);
}

/* Ends all requests of the peer with the text of its fault. */
static bool peer_report(struct gf_tcp_peer *peer)
{
    struct gf_tcp_link *tcp = peer->link;
    struct gf_req *req = tcp->oldest;
    bool moved = false;
    gf_tcp_peer_close(peer);
    peer->notified = true;
    tcp->gone_count--;
    peer->notices = NULL;
    peer->notices_last = NULL;
    for (uint32_t s = 0; s < tcp->setup.streams; s++)
        peer->streams[s].sent_at = peer->streams[s].sent_count;
    while (req != NULL) {
        struct gf_req *newer = req->newer;
        if (req->peer == peer->id) {
            if (!moved)
                (void)gf_fault_set(&tcp->link.fault, GF_ERR_LINK, peer->id, "", 0, "%s",
                                   peer->text);
            gf_tcp_req_end(req, GF_ERR_LINK);
            moved = true;
        }
        req = newer;
    }
    peer->queued = peer->waiting = peer->sending = peer->receives =
        (struct gf_tcp_list){NULL, NULL};
    if (peer->open_count > 0) gf_tcp_unexpected_keep_whole(peer);
    return moved;
}

void gf_tcp_violated(struct gf_tcp_stream *stream, const char *format, ...)
{
    struct gf_tcp_peer *peer = stream->peer;
    struct gf_tcp_link *tcp = peer->link;
    char why[120];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (peer->notified) return;
    peer_text(stream, why);
    peer_ends(peer, 0);
    (void)gf_fault_set(&tcp->link.fault, GF_ERR_LINK, peer->id, "recv", 0, "%s", peer->text);
    (void)peer_report(peer);
    tcp->link.failed = GF_ERR_LINK;
}

bool gf_tcp_gone_report(struct gf_tcp_link *tcp, uint64_t now_ns)
{
    bool moved = false;
    for (uint32_t id = 0; id < tcp->setup.world; id++) {
        struct gf_tcp_peer *peer = &tcp->peers[id];
        if (!peer->ended || peer->notified || (now_ns - peer->ended_ns < tcp->gone_ns)) continue;
        for (uint32_t s = 0; s < tcp->setup.streams; s++) { /* what has arrived and was not read */
            for (int i = 0; (i < READS_MAX) && gf_tcp_stream_read(&peer->streams[s]); i++)
                moved = true;
        }
        if (!peer->notified) moved = peer_report(peer) || moved;
    }
    return moved;
}

gf_status gf_tcp_peer_refuse(struct gf_tcp_peer *peer)
{
    return gf_fault_set(&peer->link->link.fault, GF_ERR_LINK, peer->id, "", 0, "%s", peer->text);
}
