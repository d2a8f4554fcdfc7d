/* An operation (op): one collective under way, from where its data lies to the network and back.
 * Fused buffers (buffer.c, dense ones; lib/sparse), public requests (request.c) and the vote
 * (vote.c) are kinds of it.
 *
 *     wait -> PACK -> PACKED -> RUN -> UNPACK -> UNPACKED -> done
 *
 * wait: in its owner's queue, until an op is free. PACK and UNPACK move about a slice a poll;
 * PACKED and UNPACKED wait until the device has done what was queued, which on the host it has. A
 * kind that moves nothing goes from PACK to RUN, and from RUN to done, in one poll. */
#ifndef GF_OP_H
#define GF_OP_H

#include "lib/settings/settings.h"
#include "ops/node/hierarchy.h"

struct gf_op;

struct gf_op_kind {
    bool counts; /* values that are not finite: finite.h */
    /* The next slice, from op->done_elems on, which it raises. NULL: data lies where the collective
     * takes it. */
    gf_status (*pack)(gf_context *gf, struct gf_op *op);
    gf_status (*unpack)(gf_context *gf, struct gf_op *op);
    /* before the collective starts; NULL: nothing */
    void (*packed)(gf_context *gf, struct gf_op *op, uint64_t now_ns);
    /* before the op is free again */
    void (*done)(gf_context *gf, struct gf_op *op, uint64_t now_ns);
};

typedef enum gf_op_state {
    GF_OP_FREE = 0,
    GF_OP_PACK,
    GF_OP_PACKED,
    GF_OP_RUN,
    GF_OP_UNPACK,
    GF_OP_UNPACKED
} gf_op_state;

/* What the owner of an operation sets in addition to the plan of its collective. 0 means "none". */
struct gf_op_plan {
    const struct gf_op_kind *kind;
    gf_operation operation; /* for errors and the trace */
    uint32_t number;        /* of the fused buffer, or of the request */
    gf_algorithm algorithm;
    /* where the kind packs to and unpacks from; coll.plan.data is where the collective takes it */
    gf_mem packed;
    /* of a fused buffer */
    const struct gf_buffer *buffer;
    gf_mem gradient; /* where the appliance wrote it */
    /* where hierarchy casts: [elem_count] of exchange.wire for what leaves the node; else 0 */
    gf_mem between;
    /* [elem_count] of it in host memory, for what leaves the node out of a device */
    gf_mem host;
    /* the rank that adds counts values that are not finite before it adds them */
    bool adder_checks;
    /* of a public request */
    struct gf_pending *request;
};

struct gf_op {
    gf_op_state state;
    uint32_t index;         /* in the table: its counter (finite.h), and its event of the device */
    struct gf_check summed; /* values that are not finite, as the host met them in sums */
    struct gf_op_plan plan;
    uint32_t first_tensor; /* of a fused buffer; else GF_TENSOR_NONE */
    uint32_t tensor_count;
    uint64_t order; /* its number in the order in which all ranks take ops */
    /* on which it packs: the main queue, or for fused buffers the one that follows the appliance */
    struct gf_queue *pack_queue;
    bool moves;                  /* there is something to pack or to unpack */
    uint64_t done_elems;         /* of packing or unpacking */
    uint64_t taken_ns, begin_ns; /* begin: of the collective */
    /* false: it began in gf_ops_begin(), and its times are to be those of the next poll */
    bool timed;
    uint32_t wait_peer;  /* the rank waited for now, since wait_ns; GF_RANK_NONE */
    uint64_t wait_ns;    /* packed, unpacked: for the device */
    uint32_t waited_for; /* the one waited for longest so far, and how long */
    uint64_t waited_ns;
    gf_mem staging;        /* of coll, in the exchange region */
    gf_mem device_staging; /* the same in device memory, where the link may take that; else 0 */
    struct gf_coll coll;
    union {
        struct gf_flow flow;
        struct gf_direct direct;
        struct gf_hierarchy hierarchy;
    } own; /* coll.own */
    /* with plan.adder_checks: what sum_n() found in the values of each source */
    struct gf_check sources;
};

struct gf_op_table {
    struct gf_op ops[GF_OPS_MAX];
    uint32_t count;
    uint32_t busy;     /* bit i: ops[i] is not free */
    uint64_t taken;    /* in this generation */
    uint64_t sequence; /* collectives begun; equal on all ranks at the same point */
    uint64_t ended_ns; /* when the last one ended, or the generation began */
};

static inline struct gf_direct *gf_op_direct(struct gf_op *op)
{
    return (op->plan.algorithm == GF_ALGORITHM_DIRECT) ? &op->own.direct
                                                       : &op->own.hierarchy.shared;
}
static inline bool gf_op_is_alone(const struct gf_op_table *table)
{
    return (table->busy & (table->busy - 1)) == 0;
}
/* Walks over the operations under way: for (left = table->busy; left != 0; left &= left - 1) { ..
 * gf_op_first(table, left) .. } */
static inline struct gf_op *gf_op_first(struct gf_op_table *table, uint32_t left)
{
    return &table->ops[__builtin_ctz(left)];
}

/* A free op; NULL: there is none. Its owner sets both plans where they lie, plan and coll.plan (to
 * copy them costs 5 % of a small request: a load that is wider than the stores before it waits for
 * them), then takes it, in state PACK. All ranks take ops for the same operations in the same
 * order, though not the same entries of the table. gf_op_take() sets every other member of an
 * operation but those that gf_ops_reset() sets for a generation. */
struct gf_op *gf_op_seek(gf_context *gf);
void gf_op_take(gf_context *gf, struct gf_op *op);

/* Whether this poll read the clock. A poll that did not has the time of the poll before it. */
typedef enum gf_poll_clock { GF_CLOCK_READ, GF_CLOCK_UNREAD } gf_poll_clock;

/* Moves all operations as far as they go, each by about a slice of work. Negative: the context has
 * failed. Called by gf_step_progress(), gf_request_progress() and gf_heartbeat(). */
gf_status gf_ops_progress(gf_context *gf, uint64_t now_ns);
/* The same for ops that were all taken in this call, but it does not read the clock: that takes as
 * long as a cache line takes to a peer. The next gf_ops_progress() returns what failed. Only the
 * posting of a request calls it. */
void gf_ops_begin(gf_context *gf);

/* The context has failed: cancels every collective. Then gf_ops_drained() moves what is left; true:
 * nothing is under way any more. gf_ops_reset() frees all ops for the generation that begins, whose
 * rank and world they take. */
void gf_ops_cancel(gf_context *gf, gf_status error);
bool gf_ops_drained(gf_context *gf, uint64_t now_ns);
void gf_ops_forgive(gf_context *gf, uint64_t span_ns); /* all deadlines are that much later */
/* Operations from number `from` on count as moved at since_ns, unless they moved later. */
void gf_ops_patient(gf_context *gf, uint64_t from, uint64_t since_ns);
void gf_ops_reset(gf_context *gf);

bool gf_ops_have_messages(const gf_context *gf); /* an op that sends messages is under way */

/* What can wake a rank that sleeps while operations are under way. */
typedef enum gf_wake_source {
    GF_WAKE_DESCRIPTORS, /* descriptors of the link and of the control channel */
    GF_WAKE_FLAGS,       /* flags in its exchange region */
    GF_WAKE_POLL         /* both, or a device, which wakes nobody: it has to poll */
} gf_wake_source;
gf_wake_source gf_ops_wake_source(const gf_context *gf);

#endif
