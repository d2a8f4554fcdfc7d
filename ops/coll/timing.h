/* How fast messages of other ranks come: for each the quickest of a step, by time for its bytes, of those that their
 * sender could send without waiting for others (timed rounds of flow.h). In the others' time a slow link shows all
 * around. */
#ifndef GF_TIMING_H
#define GF_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#define GF_TIMING_PEERS_MAX 24u /* who sends to a rank in ring and halving; more are not looked at */
#define GF_TIMING_BYTES_MIN 1024u /* less tells of latency */

struct gf_timing_peer {
    uint32_t peer;    /* world rank */
    uint64_t last_ns; /* its last message arrived */
    uint64_t all_bytes; /* that have arrived in this step */
    uint64_t took_ns; /* of the quickest, from when it was awaited (posted, the one before it there) to its arrival */
    uint64_t bytes;   /* that travelled in that time; 0: none was measured */
    bool is_behind;   /* it was awaited before the one before it had come: what it took does not depend on who was late.
                       * Only where none was so, one that was not counts */
};

struct gf_timing;
/* A message that was awaited from posted_ns on, in a round that was timed as flow.h says. */
typedef void (*gf_timing_arrived_fn)(struct gf_timing *timing, uint32_t peer, uint64_t bytes, uint32_t timed,
                                     uint64_t posted_ns, uint64_t now_ns);

struct gf_timing {
    gf_timing_arrived_fn arrived; /* gf_timing_arrived */
    uint64_t from_ns; /* only what was awaited from here on counts: before, the rank computes and does not look */
    uint32_t count;
    struct gf_timing_peer peers[GF_TIMING_PEERS_MAX];
};

void gf_timing_begin(struct gf_timing *timing); /* a step; nothing counts before from_ns is set */
void gf_timing_arrived(struct gf_timing *timing, uint32_t peer, uint64_t bytes, uint32_t timed, uint64_t posted_ns,
                       uint64_t now_ns);
uint64_t gf_timing_ns_per_kib(const struct gf_timing_peer *peer);
/* The peer whose quickest message was slowest, or the one where it was quickest; NULL: nothing was measured. */
const struct gf_timing_peer *gf_timing_extreme(const struct gf_timing *timing, bool slowest);

#endif
