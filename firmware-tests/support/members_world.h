/* Ranks of the membership tests, all in one thread: over a control channel in memory, or over TCP
 * on loopback, with a clock that the test moves. */
#ifndef MEMBERS_WORLD_H
#define MEMBERS_WORLD_H

#include "lib/membership/members.h"
#include "firmware-tests/support/tcp_world.h"

#define MS UINT64_C(1000000)
#define SECOND UINT64_C(1000000000)
#define ENDPOINT_MAX 6000u /* more than one frame */

/* ---- a control channel in memory: nothing is lost, and the test decides who is connected ---- */

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
    uint32_t frames[32]; /* by what they are: each that was sent */
    struct fake_end ends[FAKE_RANKS_MAX];
};

bool fake_push(struct fake_end *end, struct gf_rendezvous_event event); /* False: it has no room */
void fake_world_init(struct fake_world *world, uint32_t size, uint32_t room_every);
void fake_connect(struct fake_world *world, uint32_t rank);              /* with rank 0 */
void fake_cut(struct fake_world *world, uint32_t rank, const char *how); /* both sides hear of it */

/* ---- ranks ---- */

struct rank {
    struct gf_members *members;
    void *state;
    struct gf_waits waits; /* what it answers to an inquiry */
    bool stopped;          /* does not poll */
};

struct world {
    uint32_t size;
    uint32_t first_world; /* what who is opened next was told; 0: size */
    bool over_tcp;
    uint64_t now_ns;
    uint32_t epoch; /* 0: none that could be shrunk */
    struct rank ranks[FAKE_RANKS_MAX];
};

extern struct fake_world fake;
extern struct tcp_world tcp;
extern struct world world;

struct gf_offer offer_of(uint32_t size);
/* begin, and then each rank by hand; or open: all of them, connected. */
void members_world_begin(uint32_t size, bool over_tcp, uint32_t room_every);
void rank_open(uint32_t rank, const struct gf_offer *offer);
void members_world_open(uint32_t size, bool over_tcp, uint32_t room_every);
void members_world_open_epoch(uint32_t size, uint32_t epoch); /* in memory */
void members_world_end(void); /* also where it has ended: TEST_EACH(NULL, members_world_end) */

/* Everybody who runs polls once; 1 ms passes. True if all of them gave `expect`. */
bool members_world_progress(gf_status expect);
void members_world_until(gf_status expect);

const struct gf_error *error_of(uint32_t rank);
/* All ranks that are open and run failed alike. */
void assert_all_failed(gf_status code, uint32_t peer, const char *text);
void assert_endpoints_are_everywhere(void);
void place(uint32_t rank, uint64_t step, uint64_t sequence, gf_operation operation,
           uint32_t waits_for);

#endif
