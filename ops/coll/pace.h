/* How fast messages of other ranks come: for each the quickest of a step, by time for its bytes, of those that their
 * sender could send without waiting for others (paced rounds of flow.h). In the others' time a slow link shows all
 * around. */
#ifndef GF_PACE_H
#define GF_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define GF_PACE_PEERS_MAX 24u /* who sends to a rank in ring and halving; more are not looked at */
#define GF_PACE_BYTES_MIN 1024u /* less tells of latency */

struct gf_pace_peer {
    uint32_t peer;    /* world rank */
    uint64_t last_ns; /* its last message arrived */
    uint64_t all_bytes; /* that have arrived in this step */
    uint64_t took_ns; /* of the quickest, from when it was awaited (posted, the one before it there) to its arrival */
    uint64_t bytes;   /* that travelled in that time; 0: none was measured */
    bool is_behind;   /* it was awaited before the one before it had come: what it took does not depend on who was late.
                       * Only where none was so, one that was not counts */
};

struct gf_pace {
    uint64_t from_ns; /* only what was awaited from here on counts: before, the rank computes and does not look */
    uint32_t count;
    struct gf_pace_peer peers[GF_PACE_PEERS_MAX];
};

void gf_pace_begin(struct gf_pace *pace); /* a step; nothing counts before from_ns is set */
/* A message that was awaited from posted_ns on, in a round that was paced as flow.h says. */
void gf_pace_arrived(struct gf_pace *pace, uint32_t peer, uint64_t bytes, uint32_t paced, uint64_t posted_ns,
                     uint64_t now_ns);
uint64_t gf_pace_ns_per_kib(const struct gf_pace_peer *peer);
/* The peer whose quickest message was slowest, and the one where it was quickest; NULL: nothing was measured. */
const struct gf_pace_peer *gf_pace_slowest(const struct gf_pace *pace);
const struct gf_pace_peer *gf_pace_quickest(const struct gf_pace *pace);

#endif
