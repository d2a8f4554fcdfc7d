/* A control channel in memory: every rank in one thread, nothing lost, and the test decides who is connected. */
#ifndef FAKE_RENDEZVOUS_H
#define FAKE_RENDEZVOUS_H

#include "drivers/rendezvous.h"

#define FAKE_RANKS_MAX 16u
#define FAKE_QUEUE_MAX 64u

struct fake_event {
    struct gf_rendezvous_event event;
    unsigned char payload[GF_FRAME_PAYLOAD_MAX];
};

struct fake_end {
    struct gf_rendezvous base;
    struct fake_world *world;
    uint32_t rank;
    uint32_t head, count;
    struct fake_event queue[FAKE_QUEUE_MAX];
};

struct fake_world {
    uint32_t world;
    uint32_t room_every; /* only each so many-th send finds room; 0: all do */
    uint32_t sends;
    struct fake_end ends[FAKE_RANKS_MAX];
};

bool fake_push(struct fake_end *end, struct gf_rendezvous_event event); /* False: it has no room */
void fake_world_init(struct fake_world *world, uint32_t size, uint32_t room_every);
void fake_connect(struct fake_world *world, uint32_t rank);              /* with rank 0 */
void fake_cut(struct fake_world *world, uint32_t rank, const char *how); /* both sides hear of it */

#endif
