/* Collectives: one posted operation over a group of ranks, moved by polling. Each algorithm has a
 * file. No poll blocks, and none does more work than about one slice. */
#ifndef GF_COLL_H
#define GF_COLL_H

#include "drivers/link.h"
#include "ops/ops.h"

/* A new one, or a new algorithm: ops/README.md, "Adding". */
typedef enum gf_collective {
    GF_COLL_ALLREDUCE,
    GF_COLL_REDUCE_SCATTER, /* up to here they add */
    GF_COLL_ALLGATHER,
    GF_COLL_BROADCAST,
    GF_COLL_BARRIER
} gf_collective;

typedef enum gf_coll_state {
    GF_COLL_IDLE = 0, /* never started */
    GF_COLL_RUN,
    GF_COLL_DRAIN, /* failed; its requests are being ended */
    GF_COLL_DONE,
    GF_COLL_FAILED
} gf_coll_state;

#define GF_COLL_REQS_MAX 64u /* slots of one collective, half of them a direction */

#define GF_COLL_WINDOW_MAX (GF_COLL_REQS_MAX / 2)
#define GF_COLL_ELEM_BYTES_MAX 16u /* reduce_elem_bytes, at most */

struct gf_coll;
struct gf_coll_kind;
struct gf_flow; /* ops/coll/flow.h */
struct gf_round;
struct gf_direct;    /* ops/node/direct.h */
struct gf_hierarchy; /* ops/node/hierarchy.h */

/* A message of a collective that is under way. */
struct gf_coll_msg {
    struct gf_req *req;
    uint32_t peer; /* the link's rank */
    bool active;   /* posted and not yet ended */
};

/* The rank of the link for this index of the group; `ranks` as in struct gf_coll. */
static inline uint32_t gf_rank_at(const uint32_t *ranks, uint32_t index)
{
    return (ranks == NULL) ? index : ranks[index];
}

/* What is to be done. */
struct gf_coll_plan {
    gf_collective collective;
    uint32_t root; /* group index; broadcast */
    gf_type type;
    gf_mem data; /* [elem_count], in place; memory of the queue's, as staging is */
    uint64_t elem_count;
    uint64_t tag;  /* gf_tag(..), numbers of messages are added */
    uint64_t base; /* what check and sources call element 0 of data */
    /* How values are combined; NULL: ops->sum. Must be commutative; dst = reduce(dst, src). */
    gf_status (*reduce)(void *arg, gf_mem dst, gf_mem src, uint64_t elem_count);
    void *reduce_arg;
    size_t reduce_elem_bytes; /* size of an element where reduce is set; else 0 */
    uint32_t reduce_number;   /* which reduction: direct refuses ranks that differ in it */
};

/* All but the last part is set by the owner before gf_coll_start(). */
struct gf_coll {
    const struct gf_coll_kind *kind;
    struct gf_link *link;
    struct gf_queue *queue;
    const struct gf_element_ops *ops;
    struct gf_coll_plan plan;
    /* [size] the link's ranks of the group in order; NULL: all of them, in theirs */
    const uint32_t *ranks;
    uint32_t size;  /* ranks in the group */
    uint32_t index; /* this rank in the group */
    /* NULL, or gf_flow_async: element ops run asynchronously, and `event` of the queue's device
     * comes after them. Data and staging are then device memory that the link reaches. Work on data
     * that was queued before start is done; if the collective fails, the owner waits for what is
     * still queued. Valid for kinds made of rounds (flow.h) without reduce, and for
     * gf_coll_direct_device. */
    gf_status (*async)(struct gf_coll *coll, uint64_t now_ns);
    uint32_t event;
    uint64_t timeout_ns; /* without any progress */
    uint32_t slice_bytes;
    uint32_t window; /* messages under way in each direction, at most */
    /* progress() looks for an awaited flag as many times more before it returns */
    uint32_t spins;
    /* the core on which this rank runs is of use to others: ranks of a node write it to each
     * other */
    bool publishes_core;
    /* The kind's own struct, which its header declares: memory of the owner, who sets in it what
     * the header says. */
    union {
        struct gf_flow *flow; /* kinds made of rounds: nothing to set */
        struct gf_direct *direct;
        struct gf_hierarchy *hierarchy;
    } own;
    struct gf_check *check; /* NULL, or what sums met; indices count from plan.base */
    /* NULL, or what direct's sums met before adding, as sum_n() tells: sources are indices, of
     * hierarchy in the node */
    struct gf_check *sources;
    /* memory, as kind->need() said for these limits or larger ones */
    gf_mem staging; /* its content means nothing between collectives */
    size_t staging_bytes;
    struct gf_coll_msg *msgs; /* [msg_count], each with its req */
    uint32_t msg_count;

    /* -- the collective's own from here -- */
    gf_coll_state state;
    gf_status error;
    /* world rank whose message is awaited, for fault attribution; GF_RANK_NONE */
    uint32_t waits_for;
    bool awaits_device;    /* queued reductions are waited for, too */
    bool start_progressed; /* start() was its first progress(): another at once is of no use */
    /* a rank that is awaited last ran on this rank's core, so it needs that core */
    bool awaits_core;
    uint64_t moved_ns;     /* last progress */
    uint64_t bytes;        /* of data */
    uint64_t bytes_done;   /* payload posted to the link */
    uint64_t bytes_mapped; /* read from and written to peers' regions */
};

struct gf_coll_limits {
    uint32_t size;      /* ranks in the group */
    uint64_t bytes_max; /* largest data */
    uint32_t slice_bytes;
    uint32_t window;
};

struct gf_coll_need {
    uint32_t msg_count;
    size_t staging_bytes;
};

struct gf_coll_kind {
    const char *name;
    bool in_memory;       /* through memory that ranks share: no messages */
    uint32_t collectives; /* that it offers: bits 1 << gf_collective */
    /* Of kinds made of rounds (flow.h): how many an operation has, the elements of the longest one;
     * what they are. */
    uint32_t (*shape)(gf_collective collective, uint32_t size, uint64_t elem_count,
                      uint64_t *longest_out);
    void (*round)(const struct gf_coll *coll, uint32_t number, struct gf_round *round_out);
    void (*need)(const struct gf_coll_kind *kind, const struct gf_coll_limits *limits,
                 struct gf_coll_need *need_out);
    /* Sets up its part; posts no message. GF_OK, with start_progressed, or an error. */
    gf_status (*start)(struct gf_coll *coll);
    /* As far as it goes, at most about a slice: GF_AGAIN, GF_OK when whole, or an error. Sets
     * moved_ns when something moved, and waits_for. */
    gf_status (*progress)(struct gf_coll *coll, uint64_t now_ns);
};

static inline bool gf_coll_offers(const struct gf_coll_kind *kind, gf_collective collective)
{
    return ((kind->collectives >> collective) & 1) != 0;
}

/* Is halving quicker than a ring? It has fewer rounds (with three ranks as many), and the same
 * bytes where size is a power of two, otherwise up to twice as many. max_bytes UINT64_MAX: yes in
 * any case. */
static inline bool gf_halving_pays(uint32_t size, uint64_t bytes, uint64_t max_bytes)
{
    bool is_power = (size & (size - 1)) == 0;
    if (!is_power && (max_bytes != UINT64_MAX)) max_bytes = (size == 3) ? 0 : max_bytes / 32;
    return bytes <= max_bytes;
}

extern const struct gf_coll_kind gf_coll_ring, gf_coll_halving, gf_coll_doubling, gf_coll_tree,
    gf_coll_server, gf_coll_direct, gf_coll_hierarchy;
/* NULL for auto, which is none */
extern const struct gf_coll_kind *const gf_coll_kinds[GF_ALGORITHM_COUNT];
/* Direct, where data and element ops are a device's: allreduce and its halves. */
extern const struct gf_coll_kind gf_coll_direct_device;

/* coll.c: what all algorithms share. A group of one is done at once. Wrong arguments are errors of
 * the owner and are asserted. GF_OK: poll it, at once unless start_progressed; pass an error to
 * gf_coll_fail(). */
gf_status gf_coll_start(struct gf_coll *coll, uint64_t now_ns);
/* GF_AGAIN; GF_OK; or the error, once every request has ended (DRAIN first). The caller calls the
 * link's progress() before. If moved_ns is now_ns afterwards, there may be more to do at once,
 * because progress() stops after about a slice. After GF_ERR_TIMEOUT, GF_ERR_LINK or
 * GF_ERR_MISMATCH, waits_for is the culprit. */
gf_status gf_coll_poll(struct gf_coll *coll, uint64_t now_ns);
/* Goes to DRAIN with `error`: asks for cancel of every request. gf_coll_poll() then drains, as long
 * as it takes: what cannot be cancelled is ended by the link's drop() or reset(). Does nothing
 * unless the collective runs. */
void gf_coll_fail(struct gf_coll *coll, gf_status error);

/* Helpers for the algorithms. Post a message in slot `msg`; GF_OK, GF_AGAIN (no room) or an error.
 * Size 0 is valid and sends nothing: the slot counts as ended. peer is a group index. */
gf_status gf_coll_post(struct gf_coll *coll, uint32_t msg, uint32_t peer, uint64_t number,
                       gf_mem data, size_t bytes, bool is_send);
/* GF_OK once the slot's message has ended (or none was posted), GF_AGAIN, or an error. */
gf_status gf_coll_test(struct gf_coll *coll, uint32_t msg);
static inline size_t gf_coll_elem_bytes(const struct gf_coll *coll)
{
    if (coll->plan.collective == GF_COLL_BARRIER) return sizeof(uint64_t); /* its token */
    if (coll->plan.reduce != NULL) return coll->plan.reduce_elem_bytes;
    return gf_type_bytes(coll->plan.type);
}
/* data[first..] = reduce(data, staging), with the check. */
gf_status gf_coll_reduce(struct gf_coll *coll, uint64_t first_elem, gf_mem src,
                         uint64_t elem_count);
/* Block `index` of elem_count over size: ceil division, the last short or empty. */
void gf_coll_block(uint64_t elem_count, uint32_t size, uint32_t index, uint64_t *first_out,
                   uint64_t *count_out);
/* The same where all blocks but the last ones have block_elems, which is not 0. */
void gf_coll_block_of(uint64_t elem_count, uint64_t block_elems, uint32_t index,
                      uint64_t *first_out, uint64_t *count_out);

#endif
