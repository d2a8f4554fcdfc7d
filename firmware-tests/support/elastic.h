/* An elastic appliance on every rank of a world over the simulated network: it steps, regroups
 * where a call fails or somebody wants in or out, and ends once nobody is on its way. What befalls
 * the ranks is a script, or done by hooks of a suite. */
#ifndef ELASTIC_H
#define ELASTIC_H

#include "firmware-tests/support/world.h"

#define ELASTIC_RANKS_MAX 12u
#define ELASTIC_TENSORS 3u
#define ELASTIC_ELEMS (301u + 64u + 2001u)
#define RATE 0.0625f /* a power of two: weights of whole numbers stay exact */
#define SECOND UINT64_C(1000000000)
#define END         \
    {               \
        .at_us = -1 \
    } /* of a script */

extern const struct gf_tensor elastic_tensors[ELASTIC_TENSORS];

struct elastic_event {
    int32_t at_us; /* after all had joined */
    uint32_t rank; /* of what cuts the coordinator off: ranks, a bit each */
    enum {
        KILL,
        START,
        START_NEW, /* knows nothing of the process before it */
        LEAVE,
        STOP,
        GO_ON,
        COORDINATOR_KILL, /* of its own */
        COORDINATOR_START,
        COORDINATOR_STOP,
        COORDINATOR_GO_ON,
        COORDINATOR_CUT,
        COORDINATOR_HEAL
    } what;
};

struct elastic_rank {
    enum { IDLE, OPENS, STEPS, CHANGES, GONE } state;
    uint32_t tensor;                     /* next to be declared */
    uint32_t failures, changes;          /* steps that failed; regroups that came to their end */
    uint64_t change_began_ns, change_ns; /* of the last regroup: when it began, what it took */
    bool wants_to_leave, leaves;
};

/* Zeroes but for what a suite sets before elastic_run(), which puts it back to zeroes. */
struct elastic_hooks {
    void (*turn)(struct world *w, uint32_t rank); /* before each turn of each rank */
    void (*start)(uint32_t rank);                 /* before a process is started */
    /* before each step; GF_AGAIN: call again */
    gf_status (*before)(struct world *w, uint32_t rank);
    /* instead of gf_update(); GF_AGAIN: call again */
    gf_status (*apply)(struct world *w, uint32_t rank);
    void (*applied)(struct world *w, uint32_t rank); /* a step */
    uint64_t work_ns;                                /* that each rank computes in each step */
    bool awaits;                                     /* steps go on while somebody regroups */
    bool blind;                                      /* nobody regroups because somebody waits */
};

extern struct elastic {
    struct elastic_rank ranks[ELASTIC_RANKS_MAX];
    struct elastic_hooks hooks;
    struct elastic_event script[12];
    uint32_t script_next;
    uint64_t goal;                 /* steps; grows while somebody is on its way */
    uint64_t begin_ns, longest_ns; /* of the run; of regroups since the program began */
    uint32_t on_the_way; /* likewise: ranks that were killed while they opened or changed */
    bool started;        /* somebody was, by the script */
} elastic;

struct world_setup elastic_setup(uint32_t world);
/* A script of at most 12 events, in their order, up to END; NULL: none. `least_ns`: nobody ends
 * before. */
void elastic_run(struct world *w, const struct elastic_event *script, uint64_t least_ns);
/* world_open() and that. */
void elastic_play(struct world *w, const struct world_setup *setup,
                  const struct elastic_event *script);
/* The members whose bits are set have ended well, as one world after step `goal` with the same
 * weights. */
void elastic_expect(struct world *w, uint32_t members, const char *what);

#endif
