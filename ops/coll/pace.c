/* See pace.h. */
#include "ops/coll/pace.h"

#include <stddef.h>

void gf_pace_begin(struct gf_pace *pace)
{
    pace->from_ns = UINT64_MAX;
    pace->count = 0;
}

static struct gf_pace_peer *pace_peer(struct gf_pace *pace, uint32_t peer)
{
    for (uint32_t i = 0; i < pace->count; i++)
        if (pace->peers[i].peer == peer) return &pace->peers[i];
    if (pace->count == GF_PACE_PEERS_MAX) return NULL;
    pace->peers[pace->count] = (struct gf_pace_peer){.peer = peer};
    return &pace->peers[pace->count++];
}

void gf_pace_arrived(struct gf_pace *pace, uint32_t peer, uint64_t bytes, uint32_t paced, uint64_t posted_ns,
                     uint64_t now_ns)
{
    struct gf_pace_peer *of = pace_peer(pace, peer);
    uint64_t since_ns, took_ns;
    bool is_behind;
    if (of == NULL) return;
    is_behind = of->last_ns > posted_ns;
    since_ns = is_behind ? of->last_ns : posted_ns;
    of->last_ns = now_ns;
    of->all_bytes += bytes;
    bytes *= paced;
    if ((paced == 0) || (since_ns < pace->from_ns) || (now_ns < since_ns)) return;
    took_ns = now_ns - since_ns;
    if ((of->bytes != 0) && of->is_behind && !is_behind) return;
    if ((of->bytes != 0) && (of->is_behind == is_behind) &&
        ((double)took_ns * (double)of->bytes >= (double)of->took_ns * (double)bytes))
        return;
    of->took_ns = took_ns;
    of->bytes = bytes;
    of->is_behind = is_behind;
}

uint64_t gf_pace_ns_per_kib(const struct gf_pace_peer *peer)
{
    return (peer->bytes == 0) ? 0 : (uint64_t)((double)peer->took_ns * 1024.0 / (double)peer->bytes);
}

const struct gf_pace_peer *gf_pace_slowest(const struct gf_pace *pace)
{
    const struct gf_pace_peer *slowest = NULL;
    for (uint32_t i = 0; i < pace->count; i++)
        if ((pace->peers[i].bytes != 0) &&
            ((slowest == NULL) || (gf_pace_ns_per_kib(&pace->peers[i]) > gf_pace_ns_per_kib(slowest))))
            slowest = &pace->peers[i];
    return slowest;
}

const struct gf_pace_peer *gf_pace_quickest(const struct gf_pace *pace)
{
    const struct gf_pace_peer *quickest = NULL;
    for (uint32_t i = 0; i < pace->count; i++)
        if ((pace->peers[i].bytes != 0) &&
            ((quickest == NULL) || (gf_pace_ns_per_kib(&pace->peers[i]) < gf_pace_ns_per_kib(quickest))))
            quickest = &pace->peers[i];
    return quickest;
}
