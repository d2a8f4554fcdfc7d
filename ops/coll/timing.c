/* See timing.h. */
#include "ops/coll/timing.h"

#include <stddef.h>

void gf_timing_begin(struct gf_timing *timing)
{
    timing->from_ns = UINT64_MAX;
    timing->count = 0;
}

static struct gf_timing_peer *timing_peer(struct gf_timing *timing, uint32_t peer)
{
    for (uint32_t i = 0; i < timing->count; i++)
        if (timing->peers[i].peer == peer) return &timing->peers[i];
    if (timing->count == GF_TIMING_PEERS_MAX) return NULL;
    timing->peers[timing->count] = (struct gf_timing_peer){.peer = peer};
    return &timing->peers[timing->count++];
}

void gf_timing_arrived(struct gf_timing *timing, uint32_t peer, uint64_t bytes, uint32_t timed, uint64_t posted_ns,
                     uint64_t now_ns)
{
    struct gf_timing_peer *of = timing_peer(timing, peer);
    uint64_t since_ns, took_ns;
    bool is_behind;
    if (of == NULL) return;
    is_behind = of->last_ns > posted_ns;
    since_ns = is_behind ? of->last_ns : posted_ns;
    of->last_ns = now_ns;
    of->all_bytes += bytes;
    bytes *= timed;
    if ((timed == 0) || (since_ns < timing->from_ns) || (now_ns < since_ns)) return;
    took_ns = now_ns - since_ns;
    if ((of->bytes != 0) && of->is_behind && !is_behind) return;
    if ((of->bytes != 0) && (of->is_behind == is_behind) &&
        ((double)took_ns * (double)of->bytes >= (double)of->took_ns * (double)bytes))
        return;
    of->took_ns = took_ns;
    of->bytes = bytes;
    of->is_behind = is_behind;
}

uint64_t gf_timing_ns_per_kib(const struct gf_timing_peer *peer)
{
    return (peer->bytes == 0) ? 0 : (uint64_t)((double)peer->took_ns * 1024.0 / (double)peer->bytes);
}

const struct gf_timing_peer *gf_timing_extreme(const struct gf_timing *timing, bool slowest)
{
    const struct gf_timing_peer *found = NULL;
    for (const struct gf_timing_peer *peer = timing->peers; peer < timing->peers + timing->count; peer++) {
        uint64_t ns = gf_timing_ns_per_kib(peer), best = (found != NULL) ? gf_timing_ns_per_kib(found) : 0;
        if (peer->bytes == 0) continue;
        if ((found == NULL) || (slowest ? (ns > best) : (ns < best))) found = peer;
    }
    return found;
}
