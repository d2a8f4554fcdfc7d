/* The context and what the files of lib/ share. Nothing outside lib/ sees it. layout.h: what its memory is made of. */
#ifndef GF_CONTEXT_H
#define GF_CONTEXT_H

#include <stdatomic.h>

#include "drivers/drivers.h"
#include "lib/core/arena.h"
#include "lib/core/buffer.h"
#include "lib/core/choose.h"
#include "lib/core/finite.h"
#include "lib/core/idle.h"
#include "lib/core/op.h"
#include "lib/core/pool.h"
#include "lib/core/progress.h"
#include "lib/core/request.h"
#include "lib/core/step.h"
#include "lib/core/vote.h"
#include "lib/device/ipc.h"
#include "lib/membership/members.h"
#include "lib/observe/link_times.h"
#include "lib/sparse/sparse.h"

struct gf_layout;
struct gf_modules;
struct gf_pool_parts;

/*     JOIN -> WARM -> READY <-> STEP -> READY .. -> LEAVE -> CLOSED       any failure -> FAILING -> FAILED
 * FAILING: the error is known, its blame is being settled and what is under way is being ended; polls give GF_AGAIN,
 * because buffers may still be written to. FAILED: nothing is under way, every call answers with the error. */
typedef enum gf_phase {
    GF_PHASE_JOIN = 1,
    GF_PHASE_WARM,
    GF_PHASE_READY,
    GF_PHASE_AGREE, /* on the way into another epoch without a failure */
    GF_PHASE_STEP,
    GF_PHASE_LEAVE, /* waits until the others leave too */
    GF_PHASE_FAILING,
    GF_PHASE_FAILED,
    GF_PHASE_CLOSED
} gf_phase;

#define GF_ANSWER_NS UINT64_C(1000000000)    /* a live rank answers an inquiry within this */
#define GF_FLUSH_NS UINT64_C(200000000)      /* for last words on the control channel at close */

/* A state that was saved by more ranks than there are now: whose histories this rank has still to be given. */
struct gf_inherit {
    uint64_t common_hash; /* of that save */
    uint32_t world;       /* then */
    uint32_t next;        /* old rank; `world`: none is missing */
};

struct gf_trace {
    struct gf_trace_record *records;
    uint32_t record_max;
    uint64_t written, read;
};

/* Whose memory each rank reaches, as they tell each other, and what follows for this one. */
#define GF_REACH_WORDS 3u
struct gf_node_words {
    float *reach;             /* [world][GF_REACH_WORDS]: the lowest rank that it reaches, how many, a hash of which */
    uint32_t *local, *across; /* [world] each: struct gf_coll_nodes */
};

/* How far opening has come. */
enum { GF_MET_PAIRS, /* ranks whose memory it reaches */ GF_MET_OVERSUBSCRIBED, /* 1: it is */
       GF_MET_DEVICE, /* 1: gradients on a device */ GF_MET_WIRE, /* 1: from where its link takes them */ GF_MET_COUNT };

typedef enum gf_warm_state {
    GF_WARM_BEGIN = 0,
    GF_WARM_MEET,  /* a barrier that counts who shares what */
    GF_WARM_NODES, /* who shares memory with whom */
    GF_WARM_TOUCH, /* peers' pages, which fault at the first look */
    GF_WARM_EXPORT,  /* device memory: each tells the others how it is reached (ipc.c) */
    GF_WARM_IMPORT /* and whether it reaches theirs */
} gf_warm_state;

/*     DRAIN -> AGREE -> JOIN -> SYNC -> (ready)      a failure on the way -> DRAIN, until the deadline */
typedef enum gf_shrink_state {
    GF_SHRINK_NONE = 0,
    GF_SHRINK_DRAIN, /* what was under way in the epoch that failed */
    GF_SHRINK_AGREE, /* survivors find each other (members_shrink.c) */
    GF_SHRINK_JOIN,  /* link and region are new: join and warm-up as at open */
    GF_SHRINK_SYNC   /* the common state to those that are behind */
} gf_shrink_state;

struct gf_shrinking {
    gf_shrink_state state;
    bool final;             /* the failure under way is the end */
    bool in_step;           /* the failure came inside of a step */
    bool posted;            /* SYNC: the words */
    bool pools_posted;      /* and what they describe */
    uint64_t deadline_ns;
    struct gf_members_plan plan;
    struct gf_members_standing own;
    uint32_t words[8];      /* SYNC: what is small */
    struct gf_request requests[GF_REQUESTS_MAX];
    uint32_t count;         /* epochs begun after the first */
};

struct gf_context {
    uint64_t magic;
    _Atomic uint32_t aborted; /* set by gf_abort() from anywhere */
    int32_t owner_pid;
    char *fork_page;          /* of the control region, whole */
    const uint64_t *fork_mark; /* NULL: the process number tells */
    gf_phase phase;
    struct gf_config config;  /* effective */
    struct gf_log log;
    uint32_t rank, world, epoch;
    const uint32_t *seats;    /* [world] ranks of the first epoch, which links and rendezvous know; NULL: the same */
    struct gf_shrinking shrink;
    char *region_base;        /* of the exchange region that addresses point into, registered with a device */
    size_t region_bytes;

    const struct gf_modules *modules;
    struct gf_drivers drivers;
    struct gf_link *link;
    struct gf_rendezvous *rendezvous;
    struct gf_gpu *gpu;
    struct gf_queue queue;      /* of element ops on the pools, in order */
    const struct gf_ops *ops;
    struct gf_ipc ipc;        /* where all ranks reach each other's device memory */
    bool on_device;             /* the pools lie in device memory: ops work late, the wire has its own in host memory */
    struct gf_queue wire_queue; /* collectives work on host memory, at once */
    const struct gf_ops *wire_ops;
    struct gf_members *members;
    uint32_t members_skip;     /* polls until the control channel is looked at again */
    uint64_t members_ns;       /* when it was last */
    uint64_t progress_ns;      /* when the link was last looked at */

    struct gf_pool_tensor *tensors;
    uint32_t tensor_count;
    uint64_t tensors_hash;
    struct gf_pool_sizes pool;
    struct gf_buffer *buffers;  /* of the current step: one of the next two */
    struct gf_buffer *dense_buffers;
    struct gf_buffer *sparse_buffers;
    gf_type sparse_type;        /* of the gradients of the sparse part */
    struct gf_sparse sparse;
    uint64_t samples_before;    /* of all ranks in the last step that had any */
    uint32_t *buffer_pending;   /* tensors that each waits for */
    uint32_t *buffer_order;     /* the order in which they start, by last_tensor */
    uint32_t dense_buffer_count;
    gf_mem gradient, weight, momentum, half;
    gf_mem device;              /* the arena; 0 on the host */
    uint64_t device_bytes;
    gf_mem wire;                /* pool of wire type; 0 where every buffer travels in place. On a device: fp32, host memory */
    gf_mem pack;                /* the pack buffer, where ops reach it: wire itself on the host */
    gf_mem part;                /* fp32 [1]: norm of a piece of a chunk */
    gf_mem user;                /* exchange.user_bytes */
    uint64_t user_used;
    gf_mem norms;               /* fp32 for LARS: squares [2 * tensor_count], ratios [tensor_count], scratch of norm() */

    struct gf_op_table under_way;
    struct gf_finite finite;
    const struct gf_step_module *step_module;
    bool wired;                 /* it failed behind the warm-up: all connections are made */
    gf_algorithm algorithm;     /* what is asked for, settled when the warm-up ends (gf_exchange_settle) */
    float met[GF_MET_COUNT];    /* of this rank, then summed over all (warm.c) */
    struct gf_node_words node_words; /* of hierarchy, or auto where it may choose that; else NULL (nodes.c) */
    struct gf_coll_nodes nodes;
    bool by_nodes;              /* they are whole, and hierarchy is what sums; settled with algorithm */
    struct gf_step step;
    uint64_t *vote;             /* in the exchange region: [GF_VOTE_WORDS], then the chunk norms */

    struct gf_pending requests[GF_REQUESTS_MAX];
    uint64_t request_sequence;  /* of the newest */
    uint64_t request_started;   /* of the newest that runs */

    float scale;                /* loss scale */
    uint32_t scale_good, scale_bad;
    struct gf_inherit inherit;
    uint32_t joiners;         /* restarted ranks that wait, as the last verdict said */

    struct gf_trace trace;
    struct gf_stats stats;
    uint64_t wire_base, message_base; /* link counters when opening ended */
    struct gf_peer_stats *peers; /* [world] */
    uint64_t epoch_steps;       /* whole ones that they count */
    bool skipped_last;          /* the last whole step was skipped: nothing of any history was applied */

    gf_warm_state warm;
    uint32_t touched_rank;
    uint64_t touched_bytes;     /* of its region */
    struct gf_request warm_requests[GF_REQUESTS_MAX];
    uint32_t connected;         /* peers, so far */
    uint64_t foreign_before;

    struct gf_error error;
    uint64_t leave_ns;          /* LEAVE: nobody is waited for beyond this */
    bool left_late;             /* LEAVE: that is over */
    bool blame;                 /* FAILING: the guilty rank is still being asked for */
    uint64_t fail_ns;
    uint64_t moved_ns;          /* something last moved: for idling */
    uint64_t step_polled_ns;    /* the step was last polled */
    uint64_t together_ns;       /* the last verdict, or the warm-up, ended */
    struct gf_timing timing;        /* of this step */
    uint64_t still_ns;          /* this rank's longest time without a poll while all others may have waited for it */
    bool oversubscribed;        /* more ranks than cores on this machine; behind the warm-up, on some rank's */
    struct gf_idling idling;
    bool armed;                 /* inside of gf_wait(): it is announced that this rank sleeps until a flag comes */
    bool awaits_core;           /* what is awaited needs this core: give it away at once */
    uint32_t spins;             /* inside of gf_wait(): how often a turn may look for a flag before it returns */
};

/* Of rank `rank`, to the link; and back, GF_RANK_NONE where it is of this epoch no longer. */
static inline uint32_t gf_seat_of(const gf_context *gf, uint32_t rank)
{
    return (gf->seats == NULL) ? rank : gf->seats[rank];
}
static inline uint32_t gf_rank_of(const gf_context *gf, uint32_t seat)
{
    if ((gf->seats == NULL) || (seat == GF_RANK_NONE)) return seat;
    for (uint32_t rank = 0; rank < gf->world; rank++)
        if (gf->seats[rank] == seat) return rank;
    return GF_RANK_NONE;
}

/* ---- fork.c ---- */
void gf_fork_guard(gf_context *gf);
void gf_fork_unguard(gf_context *gf);
bool gf_forked(const gf_context *gf); /* a child that fork() made of the context's process */

/* ---- error.c ---- */
void gf_context_mark(gf_context *gf);            /* valid, and this process's */
gf_operation gf_doing(const gf_context *gf);     /* for errors: what is under way */
gf_status gf_own(const gf_context *gf); /* GF_OK; GF_ERR_PARAM: no open context; GF_ERR_STATE: a forked child */
bool gf_aborted(const gf_context *gf);           /* gf_abort() was called */
/* Looks at abort, fork and failure: GF_OK, or what the call must answer. */
gf_status gf_enter(gf_context *gf);
/* The same for calls that poll: GF_OK while failing goes on, because they are what makes it end. */
gf_status gf_enter_poll(gf_context *gf);
/* First failure: records it, begins to end what is under way, returns code. peer or tensor may be GF_.._NONE. */
__attribute__((format(printf, 6, 7))) gf_status gf_fail(gf_context *gf, gf_status code, gf_operation operation,
                                                        uint32_t peer, uint32_t tensor, const char *format, ...);
/* The same from a driver's fault. */
gf_status gf_fail_fault(gf_context *gf, const struct gf_fault *fault, gf_operation operation);
gf_status gf_fail_from(gf_context *gf, const struct gf_error *error); /* what the members have agreed on */
/* A refused call that leaves the context as it is: logged, not sticky. */
__attribute__((format(printf, 3, 4))) gf_status gf_refuse(gf_context *gf, gf_status code, const char *format, ...);
/* One turn of FAILING. */
gf_status gf_failing_poll(gf_context *gf, uint64_t now_ns);

/* nodes.c: for hierarchy. What this rank says of itself; then, once that is summed over all ranks, who makes up which
 * node. Where memory is not shared by whole nodes, an error that names who if hierarchy was asked for by name; auto goes on
 * without it. */
bool gf_nodes_wanted(const struct gf_config *config);
void gf_nodes_look(gf_context *gf);
gf_status gf_nodes_settle(gf_context *gf);
/* ---- late.c: a device that works late; on the host all of it is done when the call returns ---- */
gf_status gf_device_register(gf_context *gf); /* the exchange region */
void gf_device_unregister(gf_context *gf);
bool gf_device_holds(const gf_context *gf, gf_mem data);
gf_status gf_device_settle(gf_context *gf); /* GF_OK: nothing is queued or running; GF_AGAIN */
gf_status gf_device_failed(gf_context *gf, gf_operation operation); /* the context fails with the driver's fault */

/* ---- update.c ---- */
/* LARS (You et al., arXiv 1708.03888): eta |w| / (|g| + decay |w| + epsilon) of the part of a tensor that is applied, 1
 * where a norm is zero; biases and normalisation are excluded. Begin, add each range, end; nothing is read back. */
gf_status gf_lars_begin(gf_context *gf, uint32_t tensor);
gf_status gf_lars_add(gf_context *gf, uint32_t tensor, uint64_t first, uint64_t end);
gf_status gf_lars_end(gf_context *gf, uint32_t tensor);
gf_status gf_half_refresh(gf_context *gf); /* the half weights from the weights; nothing without them */
/* Elements first..end-1, all of one tensor, by the rules of `tensor` and with its trust ratio. */
gf_status gf_update_range(gf_context *gf, uint32_t tensor, uint64_t first, uint64_t end, float rate);
/* The same of listed chunks of the part whose rules this tensor has, in one call. */
gf_status gf_update_chunks(gf_context *gf, uint32_t tensor, const struct gf_chunks *chunks, float rate);

/* ---- wait.c ---- */
/* Polls until poll() gives anything but GF_AGAIN, idling as the configuration says. */
gf_status gf_wait(gf_context *gf, gf_status (*poll)(gf_context *gf, void *arg), void *arg);

/* ---- open.c ---- */
/* One turn of join and warm-up: GF_OK once the context could be used. A failure is the context's. */
gf_status gf_join_progress(gf_context *gf, uint64_t now_ns);

/* ---- shrink.c ---- */
struct gf_members_standing gf_standing(const gf_context *gf); /* how far this rank is */
gf_status gf_shrink_progress(gf_context *gf, void *arg); /* GF_OK: the new epoch has begun */

/* ---- rejoin.c ---- */
void gf_rejoin_begin(gf_context *gf); /* the rest of gf_open() of a rank that comes back */

/* ---- warm.c ---- */
gf_status gf_warm_poll(gf_context *gf, uint64_t now_ns);

/* ---- accessors.c ---- */
gf_path gf_path_of(const gf_context *gf);
/* Buffers are added up by the device, where it has put them. */
static inline bool gf_sums_late(const gf_context *gf)
{
    return gf->on_device && (gf_path_of(gf) != GF_PATH_STAGED);
}
void gf_trace_write(gf_context *gf, const struct gf_trace_record *record); /* nowhere without the observe module */

/* ---- loss_scale.c ---- */
#define GF_SCALE_MAX 16777216.0f /* 2^24: fp32 gradients keep room above it */
gf_status gf_scale_step(gf_context *gf, bool skipped);

static inline uint64_t gf_now(const gf_context *gf) { return gf->drivers.clock->now_ns(gf->drivers.clock); }

#endif
