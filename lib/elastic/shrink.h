/* From a failed epoch to the next one: shrink.c, and rejoin.c for a rank that comes back. */
#ifndef GF_SHRINK_H
#define GF_SHRINK_H

#include "lib/membership/members.h"

/*     DRAIN -> AGREE -> JOIN -> SYNC -> (ready)      a failure on the way -> DRAIN, until the deadline */
typedef enum gf_shrink_state {
    GF_SHRINK_NONE = 0,
    GF_SHRINK_DRAIN, /* what was under way in the epoch that failed */
    GF_SHRINK_AGREE, /* members agree on the next epoch (lib/elastic/view.c) */
    GF_SHRINK_JOIN,  /* link and region are new: join and warm-up as at open */
    GF_SHRINK_SYNC   /* the common state to those that are behind */
} gf_shrink_state;

struct gf_shrinking {
    gf_shrink_state state;
    bool final;             /* the failure under way is the end */
    bool in_step;           /* the failure came inside of a step */
    bool posted;            /* SYNC: the words */
    bool pools_posted;      /* and what they describe */
    uint32_t extra_next;    /* and config.state_extra before this one */
    uint64_t deadline_ns;
    struct gf_members_plan plan;
    struct gf_members_standing own;
    uint32_t words[8];      /* SYNC: what is small */
    struct gf_request requests[GF_REQUESTS_MAX];
    uint32_t count;         /* epochs begun after the first */
    int ended_fd;           /* where the launcher says which ranks have ended; -1: nowhere */
    uint32_t joiners;       /* restarted ranks that wait, as the last vote said */
};

struct gf_members_standing gf_standing(const gf_context *gf); /* how far this rank is */
gf_status gf_shrink_progress(gf_context *gf, void *arg); /* GF_OK: the new epoch has begun */
void gf_rejoin_begin(gf_context *gf); /* the rest of gf_open() of a rank that comes back */

#endif
