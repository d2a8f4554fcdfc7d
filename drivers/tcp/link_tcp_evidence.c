/* Is the network to a peer broken? Only the kernel's evidence counts, so a peer that computes, does
 * not read, or has a slow network card is never reported as cut off.
 *
 *     no connection       it was dialled and not accepted: the error that the kernel gave
 *     one that has ended  reported a second later (link_tcp_peer.c). If the peer's process has
 *                         ended, or left on purpose, the control channel reports that before
 *     an open one         what was sent is not acknowledged. A peer's kernel acknowledges without
 *                         its process
 *
 * Of an open connection, `tcpi_retransmits` counts the retransmission timeouts since anything
 * was acknowledged: the kernel sets it to 0 with each byte that is. The timeout doubles each time.
 * So after n of them nothing was acknowledged for at least (2^n - 1) times the first timeout, and
 * no earlier time need be kept. `tcpi_probes` counts probes while bytes wait that may not be sent:
 * a window of zero, a device without a carrier. Any answer sets it to 0, so a peer that does not
 * read has at most one. Probes of keepalive do not count, because no bytes wait then.
 * `tcpi_last_ack_recv` is of no use: a peer that does not read lets it grow to 13 s, and where one
 * direction is lost the other one's traffic keeps it small.
 *
 * Where one direction is lost, both ends lack acknowledgements. They name one edge, and neither can
 * know which direction it is. */
#include "drivers/tcp/link_tcp_state.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "drivers/base/clock.h"

#define RESENT_MIN 2u
#define PROBES_MIN 3u /* two in a row are lost now and then where a packet of twenty is */
/* A connection is broken if nothing was acknowledged for three eighths of exchange.timeout, and for
 * at least a second. Where one packet in twenty is lost, two timeouts in a row occur once in a
 * minute of full load, and four hardly ever; a card's queue may hold a packet for a second. A
 * larger share would be met only after exchange.timeout itself: the timeouts after 3.0 s end at 6.2
 * s. */
#define SILENT_MIN_NS UINT64_C(1000000000)
static uint64_t silent_ns_of(const struct gf_tcp_link *tcp)
{
    uint64_t part_ns = tcp->setup.timeout_ns / 8 * 3;
    return (part_ns > SILENT_MIN_NS) ? part_ns : SILENT_MIN_NS;
}

/* What the kernel measured of a stream. */
struct measured {
    struct tcp_info info;
    uint32_t waiting; /* bytes that were written and not acknowledged */
};

/* False: it is not open, or not a TCP socket. */
static bool measure(const struct gf_tcp_stream *stream, struct measured *out)
{
    socklen_t bytes = sizeof out->info;
    int waiting = 0;
    memset(out, 0, sizeof *out);
    if ((stream->fd < 0) ||
        (getsockopt(stream->fd, IPPROTO_TCP, TCP_INFO, &out->info, &bytes) != 0))
        return false;
    if ((ioctl(stream->fd, SIOCOUTQ, &waiting) == 0) && (waiting > 0))
        out->waiting = (uint32_t)waiting;
    return true;
}

/* For how long nothing was acknowledged, at least. While packets are retransmitted tcpi_rto is the
 * timeout that runs now; while probes are sent it is the first one. */
static uint64_t unacknowledged_ns(const struct tcp_info *info)
{
    uint64_t rto_ns = (uint64_t)info->tcpi_rto * 1000;
    uint32_t doubled = (info->tcpi_backoff < 16) ? info->tcpi_backoff : 16;
    uint32_t probes = (info->tcpi_probes < doubled) ? info->tcpi_probes : doubled;
    if (info->tcpi_retransmits > 0) return rto_ns - (rto_ns >> doubled);
    return (probes > 0) ? (rto_ns << doubled) - (rto_ns << (doubled - probes + 1)) : 0;
}

static bool is_broken(const struct gf_tcp_link *tcp, const struct measured *at)
{
    bool resent = at->info.tcpi_retransmits >= RESENT_MIN;
    bool probed = at->info.tcpi_probes >= PROBES_MIN;
    return (at->waiting > 0) && (resent || probed) &&
           (unacknowledged_ns(&at->info) >= silent_ns_of(tcp));
}

/* ---- large packets that are lost ---- */

/* All that was acknowledged left before the first packet of this size, and since then the kernel
 * retransmits, or its own device takes no such packet (probes). A path that was cut at that moment
 * looks the same, so the fault's text puts it as a question. */
static bool is_large_lost(const struct gf_tcp_stream *stream, const struct measured *at)
{
    if ((stream->largest <= TCP_PACKET_BYTES) || (at->waiting == 0)) return false;
    if (stream->written - at->waiting > stream->large_at) return false;
    if ((at->info.tcpi_retransmits < RESENT_MIN) && (at->info.tcpi_probes < RESENT_MIN))
        return false;
    return at->info.tcpi_pmtu > TCP_PACKET_BYTES;
}

/* ---- in words ---- */

/* "nothing is acknowledged of 96 bytes that rank 2 (10.0.0.3:4000) sent to rank 3 (10.0.0.4:7118)
 * for 3.0 s (4 retransmits)" */
static void unacknowledged_fault_set(const struct gf_tcp_peer *peer,
                                     const struct gf_tcp_stream *stream, const struct measured *at,
                                     struct gf_fault *fault_out)
{
    char own[64];
    char other[64];
    char since[48];
    char large[72] = "";
    uint32_t resent = at->info.tcpi_retransmits;
    gf_tcp_ends_text(stream, own, other, sizeof own);
    (void)snprintf(since, sizeof since, "for %.1f s, %u %s",
                   (double)unacknowledged_ns(&at->info) / 1e9,
                   (resent > 0) ? resent : at->info.tcpi_probes,
                   (resent > 0) ? "retransmits" : "probes without an answer");
    if (is_large_lost(stream, at))
        (void)snprintf(large, sizeof large,
                       " (small messages pass, packets of %u bytes do not: MTU?)",
                       at->info.tcpi_pmtu);
    (void)gf_fault_set(fault_out, GF_ERR_LINK, peer->id, "", 0,
                       "what rank %u%s sends to rank %u%s is not acknowledged: %u bytes, %s%s",
                       peer->link->setup.rank, own, peer->id, other, at->waiting, since, large);
}

/* ---- all together ---- */

/* Of several streams the fault names the one that has waited longest. */
static bool unacknowledged_check(const struct gf_tcp_peer *peer, struct gf_fault *fault_out)
{
    const struct gf_tcp_link *tcp = peer->link;
    const struct gf_tcp_stream *worst = NULL;
    struct measured at;
    struct measured of_worst = {.waiting = 0};
    for (uint32_t s = 0; s < tcp->setup.streams; s++) {
        const struct gf_tcp_stream *stream = &peer->streams[s];
        if (!measure(stream, &at) || !is_broken(tcp, &at)) continue;
        if ((worst != NULL) && (unacknowledged_ns(&at.info) <= unacknowledged_ns(&of_worst.info)))
            continue;
        worst = stream;
        of_worst = at;
    }
    if (worst == NULL) return false;
    unacknowledged_fault_set(peer, worst, &of_worst, fault_out);
    return true;
}

/* An end that the peer may have made on purpose becomes a fault only after a second. */
static bool ended_check(const struct gf_tcp_peer *peer, struct gf_fault *fault_out)
{
    int error = peer->ended_error;
    uint64_t now_ns = gf_clock_monotonic.now_ns(&gf_clock_monotonic);
    bool there = (error == 0) || (error == EPIPE) || (error == ECONNRESET);
    if (there && !peer->notified && (now_ns - peer->ended_ns < peer->link->gone_ns)) return false;
    (void)gf_fault_set(fault_out, GF_ERR_LINK, peer->id, "", error, "%s", peer->text);
    return true;
}

/* connect() was called for the peer, and some connection to it is still missing. */
static bool is_awaited(const struct gf_tcp_peer *peer)
{
    return (peer->met_ns != 0) && (peer->open_count < peer->link->setup.streams);
}

bool gf_tcp_edge_is_broken(struct gf_link *link, uint32_t id, struct gf_fault *fault_out)
{
    struct gf_tcp_link *tcp = (struct gf_tcp_link *)link;
    struct gf_tcp_peer *peer = &tcp->peers[id];
    fault_out->code = GF_OK;
    if (!tcp->is_open || (id >= tcp->setup.world) || (id == tcp->setup.rank)) return false;
    if (peer->ended && ended_check(peer, fault_out)) return true;
    if (!peer->ended && unacknowledged_check(peer, fault_out)) return true;
    return is_awaited(peer) && gf_tcp_reach_failed(peer, fault_out);
}
