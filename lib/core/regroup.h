/* From one generation to the next, whatever the reason: regroup.c. common_state.c then gives all
 * ranks the same state. */
#ifndef GF_REGROUP_H
#define GF_REGROUP_H

#include "gradientflow.h"
#include "lib/control/control.h"

typedef enum gf_change_state {
    GF_CHANGE_NONE = 0,
    GF_CHANGE_DRAIN, /* what was under way in the generation that failed */
    GF_CHANGE_AWAIT, /* the coordinator makes the next list, and collects its endpoints */
    GF_CHANGE_JOIN,  /* the generation has begun: connections and warm-up as at open */
    GF_CHANGE_SYNC   /* the common state to those that lag */
} gf_change_state;

/* SYNC: what is posted next. Each begins once all ranks have what was posted before. */
typedef enum gf_sync {
    GF_SYNC_WORDS = 0, /* what is small */
    GF_SYNC_POOLS,
    GF_SYNC_EXTRA, /* config.state_extra as far as it goes from where it lies */
    GF_SYNC_RESTS  /* its rests, a message at a time */
} gf_sync;

struct gf_change {
    gf_change_state state;
    bool final;        /* the failure under way is the end */
    bool leaves, left; /* gf_leave() */
    bool was_admitted; /* this process was let into a job that had begun */
    bool left_out;     /* the generation under way took it in again */
    bool comes_in;     /* on its way into one, the generations that failed meanwhile included */
    gf_sync sync_next;
    uint32_t extra_next;  /* SYNC: the first region that is not posted */
    uint32_t extra_first; /* and the first one whose rest is in the stage */
    uint64_t deadline_ns;
    struct gf_generation plan; /* what has begun, or is to begin */
    struct gf_control_progress own;
    uint32_t words[8]; /* SYNC: what is small */
    struct gf_request requests[GF_REQUESTS_MAX];
    uint32_t count;   /* generations begun after the first that this process was of */
    uint32_t joiners; /* processes that wait to come in, as the last vote said */
    uint32_t leavers; /* and ranks that want to leave */
};

/* One poll on the way into another generation. GF_OK: it has begun, or this rank has left. */
gf_status gf_change_progress(gf_context *gf, void *arg);
void gf_come_in_begin(gf_context *gf); /* the rest of gf_open() where a job may be under way */
/* The link is made anew for this generation, and its endpoint is handed in. A failure is the
 * context's: it is in *fault_out. */
gf_status gf_generation_enter(gf_context *gf, const struct gf_generation *to,
                              struct gf_fault *fault_out);
/* GF_OK: every rank holds the common state */
gf_status gf_common_state_progress(gf_context *gf);

#endif
