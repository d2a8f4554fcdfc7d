/* From one epoch to the next, whatever the reason: epoch.c; common_state.c brings the ranks
 * together. */
#ifndef GF_EPOCH_H
#define GF_EPOCH_H

#include "lib/membership/members.h"

typedef enum gf_change_state {
    GF_CHANGE_NONE = 0,
    GF_CHANGE_DRAIN, /* what was under way in the epoch that failed */
    GF_CHANGE_AGREE, /* members agree on the next epoch (lib/elastic/view.c) */
    GF_CHANGE_JOIN,  /* link and region are new: join and warm-up as at open */
    GF_CHANGE_SYNC   /* the common state to those that lag */
} gf_change_state;

struct gf_change {
    gf_change_state state;
    bool final;        /* the failure under way is the end */
    bool leaves, left; /* gf_leave() */
    bool left_out;     /* the epoch under way took it in again */
    /* SYNC: 0: the words are posted next, 1: the pools, 2: config.state_extra as far as it goes
     * from where it lies, 3: its rests */
    uint32_t sync_next;
    uint32_t extra_next;  /* SYNC: the first region that is not posted */
    uint32_t extra_first; /* and the first one whose rest is in the stage */
    uint64_t deadline_ns;
    struct gf_members_plan plan;
    struct gf_members_progress own;
    uint32_t words[8]; /* SYNC: what is small */
    struct gf_request requests[GF_REQUESTS_MAX];
    uint32_t count;   /* epochs begun after the first */
    int ended_fd;     /* where the launcher says which ranks have ended; -1: nowhere */
    uint32_t joiners; /* ranks that wait to come in, as the last vote said */
    uint32_t leavers; /* and that want to leave */
};

/* One turn on the way into another epoch. GF_OK: it has begun, or this rank has left. */
gf_status gf_change_progress(gf_context *gf, void *arg);
void gf_rejoin_begin(gf_context *gf); /* the rest of gf_open() where rendezvous.rejoin is set */
/* GF_OK: every rank holds the common state */
gf_status gf_common_state_progress(gf_context *gf);

#endif
