/* The state machine of operations (op.h), their trace records and statistics, and how the failure
 * of a collective becomes the failure of the context. */
#include <stdio.h>

#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/choose.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"

/* ---- taking ---- */

/* Data up to this size takes the variant of direct with one barrier. Where ranks share cores the
 * limit is higher, because each barrier costs every rank a time slice of its core. */
#define SMALL_BYTES 1024u
#define SMALL_OVERSUBSCRIBED_BYTES 4096u

/* A plan with a reduce() of its own takes the variant with one barrier up to the largest size that
 * this has: always for the vote, and for small minima and maxima. */
static uint32_t small_bytes(const gf_context *gf, const struct gf_coll *coll)
{
    if (coll->plan.reduce != NULL) return GF_DIRECT_SMALL_BYTES;
    return gf->wait_state.oversubscribed ? SMALL_OVERSUBSCRIBED_BYTES : SMALL_BYTES;
}

/* Sets what an algorithm within a node needs, wherever data lies. */
static void in_node_set(const gf_context *gf, struct gf_op *op)
{
    const struct gf_buffer *buffer = op->plan.buffer;
    struct gf_direct *direct = gf_op_direct(op);
    struct gf_hierarchy *own = &op->own.hierarchy;
    direct->order = op->order;
    direct->flag_ranks = gf->flag_ranks;
    direct->block_elems = 0;
    direct->meets = false;
    if (op->plan.algorithm == GF_ALGORITHM_DIRECT) {
        op->coll.own.direct = direct;
        return;
    }
    op->coll.own.hierarchy = own;
    own->nodes = &gf->nodes.of;
    own->wire = gf->config.exchange.wire;
    own->packed = op->plan.between;
    own->mixed = gf->ipc.mixed && (buffer != NULL);
    own->cut =
        (own->mixed && (buffer->chunk_count == 0)) ? (gf_type)buffer->type : op->coll.plan.type;
}

/* Sets what depends on where data lies, for host memory; gf_device_op_set() does it for device
 * memory. */
static void host_set(gf_context *gf, struct gf_op *op)
{
    struct gf_coll *coll = &op->coll;
    struct gf_direct *direct = gf_op_direct(op);
    coll->kind = gf_coll_kinds[op->plan.algorithm];
    coll->queue = &gf->coll_queue;
    coll->ops = gf->coll_ops;
    coll->staging = op->staging;
    coll->async = NULL;
    coll->check = op->plan.kind->counts ? &op->summed : NULL;
    coll->sources = op->plan.adder_checks ? &op->sources : NULL;
    if (!gf_is_in_node(op->plan.algorithm)) return;
    direct->region_bytes = gf->region.bytes;
    direct->exported = NULL;
    direct->small_bytes = small_bytes(gf, coll);
    if (op->plan.algorithm != GF_ALGORITHM_HIERARCHY) return;
    op->own.hierarchy.in_node = NULL;
    op->own.hierarchy.host.data = 0;
}

static void coll_set(gf_context *gf, struct gf_op *op)
{
    const struct gf_coll_plan *plan = &op->coll.plan;
    op->coll.own.flow = &op->own.flow;
    if (gf_is_in_node(op->plan.algorithm)) in_node_set(gf, op);
    if ((plan->elem_count > 0) && gf_device_holds(gf, plan->data))
        gf_device_op_set(gf, op);
    else
        host_set(gf, op);
}

/* May an operation be taken? With L = GF_DIRECT_OPS_MAX, operation k uses a row of flags in shared
 * memory that operation k + 2L uses again (gf_direct_slots_at()). No peer may still read them then.
 * Therefore an operation waits while one that is L before it, or more, is under way. A rank that
 * takes k + 2L has ended k + L; for that each peer had begun k + L; and so each peer had ended k,
 * by the same rule. An operation of hierarchy takes two of these numbers, for a barrier in the node
 * before its messages and one after: through them its flags are those of an operation of direct,
 * whatever is sent between nodes. */
static bool flags_are_free(gf_context *gf)
{
    struct gf_op_table *table = &gf->under_way;
    uint64_t ops_max = gf->nodes.used ? GF_DIRECT_OPS_MAX / 2 : GF_DIRECT_OPS_MAX;
    for (uint32_t left = table->busy; left != 0; left &= left - 1)
        if (table->taken - gf_op_first(table, left)->order >= ops_max) return false;
    return true;
}

struct gf_op *gf_op_seek(gf_context *gf)
{
    struct gf_op_table *table = &gf->under_way;
    uint32_t index = (uint32_t)__builtin_ctz(~table->busy);
    if ((index >= table->count) || !flags_are_free(gf)) return NULL;
    table->ops[index].index = index;
    return &table->ops[index];
}

void gf_op_take(gf_context *gf, struct gf_op *op)
{
    static const struct gf_check none = {.bad_first = UINT64_MAX};
    struct gf_op_table *table = &gf->under_way;
    const struct gf_op_plan *plan = &op->plan;
    const struct gf_buffer *buffer = plan->buffer;
    table->busy |= 1u << op->index;
    op->order = table->taken++;
    op->first_tensor = (buffer != NULL) ? buffer->first_tensor : GF_TENSOR_NONE;
    op->tensor_count = (buffer != NULL) ? buffer->tensor_count : 0;
    op->pack_queue = (buffer != NULL) ? &gf->pack_queue : &gf->queue;
    op->summed = none;
    op->sources = none;
    op->moves = (plan->kind->pack != NULL) || (plan->kind->unpack != NULL) ||
                (plan->packed != op->coll.plan.data);
    op->done_elems = 0;
    op->taken_ns = op->wait_ns = gf->polled.at_ns;
    op->wait_peer = GF_RANK_NONE;
    op->waited_for = GF_RANK_NONE;
    op->waited_ns = 0;
    coll_set(gf, op);
    op->state = GF_OP_PACK;
}

/* ---- the collective ---- */

/* Sets the times of an operation, at the first reading of the clock since it was taken. */
static void op_time(struct gf_op *op, uint64_t now_ns)
{
    op->taken_ns = now_ns;
    op->begin_ns = now_ns;
    op->wait_ns = now_ns;
    op->coll.moved_ns = now_ns;
    op->timed = true;
}

/* It is packed: the collective starts. GF_AGAIN: its start was this poll's progress. */
static gf_status op_run(gf_context *gf, struct gf_op *op, uint64_t now_ns, gf_poll_clock clock)
{
    struct gf_coll *coll = &op->coll;
    struct gf_position *position = &gf->position;
    gf_status status;
    if (op->plan.kind->packed != NULL) op->plan.kind->packed(gf, op, now_ns);
    status = gf_coll_start(coll, now_ns);
    if (status < 0) gf_coll_fail(coll, status); /* the first poll returns it */
    op->timed = (clock == GF_CLOCK_READ);
    op->begin_ns = now_ns; /* this and what follows is done while the first flag travels */
    op->state = GF_OP_RUN;
    position->sequence = ++gf->under_way.sequence;
    position->operation = (uint32_t)op->plan.operation;
    position->buffer = op->plan.number;
    position->tensor = op->first_tensor;
    gf->wait_state.moved_ns = now_ns;
    return coll->start_progressed ? GF_AGAIN : GF_OK;
}

static void op_trace(gf_context *gf, const struct gf_op *op, gf_status status, uint64_t now_ns)
{
    gf_trace_op(gf, op, status, now_ns);
    gf->observed.stats.operations++;
}

/* The operation waits for `peer` now. */
static void op_wait(struct gf_op *op, uint32_t peer, uint64_t now_ns)
{
    uint64_t span_ns = now_ns - op->wait_ns;
    if (peer == op->wait_peer) return;
    if ((op->wait_peer != GF_RANK_NONE) && (span_ns > op->waited_ns)) {
        op->waited_ns = span_ns;
        op->waited_for = op->wait_peer;
    }
    op->wait_peer = peer;
    op->wait_ns = now_ns;
}

/* What a collective waited for when it failed, in words. */
static const char *op_awaited(const struct gf_coll *coll, uint32_t rank, char text[32])
{
    if (rank != GF_RANK_NONE)
        (void)snprintf(text, 32, "rank %u", rank);
    else
        (void)snprintf(text, 32, "%s", coll->awaits_device ? "its own device" : "no other rank");
    return text;
}

/* The collective failed, and the context with it. Draining goes on. */
static gf_status op_fail(gf_context *gf, struct gf_op *op, uint64_t now_ns)
{
    char awaited[32];
    const struct gf_coll *coll = &op->coll;
    uint32_t waits_for = coll->waits_for;
    if (gf->error.code != GF_OK) return gf->error.code;
    gf->position.waits_for = waits_for; /* another operation may have set it since */
    op_trace(gf, op, coll->error, now_ns);
    if ((coll->error == GF_ERR_DEVICE) && (gf->gpu->fault.code != GF_OK))
        return gf_device_failed(gf, op->plan.operation);
    if (gf->link->fault.code != GF_OK)
        return gf_fail_fault(gf, &gf->link->fault, op->plan.operation);
    return gf_fail(
        gf, coll->error, op->plan.operation, waits_for, op->first_tensor,
        "%s in step %llu, operation %s: %s after %.1f s without progress, waiting for %s",
        gf_status_name(coll->error), (unsigned long long)gf->step.number,
        gf_operation_name(op->plan.operation), coll->kind->name,
        (double)(now_ns - coll->moved_ns) * 1e-9, op_awaited(coll, waits_for, awaited));
}

static gf_status op_poll(gf_context *gf, struct gf_op *op, uint64_t now_ns, gf_poll_clock clock)
{
    struct gf_position *position = &gf->position;
    struct gf_coll *coll = &op->coll;
    gf_status status;
    if (!op->timed && (clock == GF_CLOCK_READ)) op_time(op, now_ns);
    /* where other operations are under way, they would wait while this one looks for a flag */
    coll->spins = gf_op_is_alone(&gf->under_way) ? gf->wait_state.spins : 0;
    coll->awaits_core = false;
    status = gf_coll_poll(coll, now_ns);
    if (!op->timed && (status != GF_AGAIN)) {
        /* all ranks were there: it has ended in the call that posted it */
        now_ns = gf_now(gf);
        op_time(op, now_ns);
    }
    gf->wait_state.awaits_core = coll->awaits_core;
    if (coll->moved_ns > gf->wait_state.moved_ns) gf->wait_state.moved_ns = coll->moved_ns;
    if ((status == GF_AGAIN) && (coll->state != GF_COLL_DRAIN)) {
        /* another may have ended since this one began */
        position->operation = (uint32_t)op->plan.operation;
        position->waits_for = coll->waits_for;
        op_wait(op, position->waits_for, now_ns);
        return GF_AGAIN;
    }
    op_wait(op, GF_RANK_NONE, now_ns);
    gf->wait_state.moved_ns = now_ns;
    gf->observed.stats.mapped_bytes += coll->bytes_mapped;
    coll->bytes_mapped = 0;
    if (status != GF_OK) return op_fail(gf, op, now_ns);
    /* From here on this rank computes, unless another op says something else. */
    position->operation = (gf->phase == GF_PHASE_STEP) ? GF_OPERATION_STEP : GF_OPERATION_NONE;
    position->tensor = GF_TENSOR_NONE;
    position->waits_for = GF_RANK_NONE;
    op_trace(gf, op, GF_OK, now_ns);
    op->done_elems = 0;
    op->state = GF_OP_UNPACK;
    return GF_OK;
}

/* ---- from state to state ---- */

/* Packs or unpacks the next slice: the host does so at once, a device is given it (what is needed
 * between a device and host memory is in lib/device/work.c). GF_OK: all of it is done, or queued
 * with the operation's event after it. */
static gf_status op_move(gf_context *gf, struct gf_op *op, uint64_t now_ns)
{
    bool packs = (op->state == GF_OP_PACK);
    gf_status (*move)(gf_context *, struct gf_op *) =
        packs ? op->plan.kind->pack : op->plan.kind->unpack;
    gf_status status = GF_OK;
    if (packs && gf->on_device && (op->done_elems == 0)) {
        if ((status = gf_device_ready(gf, op, now_ns)) != GF_OK) return status;
    }
    gf->wait_state.moved_ns = now_ns;
    if (op->done_elems == 0) {
        if (packs) gf_finite_begin(gf, op->index);
        if (gf->on_device) status = gf_device_move_begin(gf, op);
        if (status < 0) return gf_device_failed(gf, op->plan.operation);
    }
    if ((move != NULL) && (op->done_elems < op->coll.plan.elem_count)) {
        uint64_t before = op->done_elems;
        if ((status = move(gf, op)) < 0) return status;
        if ((op->plan.operation == GF_OPERATION_STEP) && (op->plan.packed != op->plan.gradient))
            gf->observed.stats.copied_bytes +=
                (op->done_elems - before) * gf_type_size_bytes(op->coll.plan.type);
        if (op->done_elems < op->coll.plan.elem_count) return GF_AGAIN;
    }
    op->wait_ns = now_ns;
    if (gf->on_device) status = gf_device_move_end(gf, op);
    return (status < 0) ? gf_device_failed(gf, op->plan.operation) : GF_OK;
}

/* GF_OK: what was queued is done, and its counters are in host memory. */
static gf_status op_event_poll(gf_context *gf, const struct gf_op *op, uint64_t now_ns)
{
    return (op->moves && gf->on_device) ? gf_device_event_poll(gf, op, now_ns) : GF_OK;
}

/* From one state to the next. GF_OK: that state is reached; GF_AGAIN: not in this poll. */
static gf_status op_advance(gf_context *gf, struct gf_op *op, uint64_t now_ns, gf_poll_clock clock)
{
    gf_status status = GF_OK;
    switch (op->state) {
    case GF_OP_FREE: break;
    case GF_OP_PACK:
        if (op->moves) status = op_move(gf, op, now_ns);
        if (status != GF_OK) return status;
        op->state = GF_OP_PACKED;
        return GF_OK;
    case GF_OP_PACKED:
        status = op_event_poll(gf, op, now_ns);
        return (status == GF_OK) ? op_run(gf, op, now_ns, clock) : status;
    case GF_OP_RUN: return op_poll(gf, op, now_ns, clock);
    case GF_OP_UNPACK:
        if (op->moves) status = op_move(gf, op, now_ns);
        if (status == GF_OK) op->state = GF_OP_UNPACKED;
        return status;
    case GF_OP_UNPACKED:
        status = op_event_poll(gf, op, now_ns);
        if (status != GF_OK) return status;
        op->plan.kind->done(gf, op, now_ns);
        op->state = GF_OP_FREE;
        gf->under_way.busy &= ~(1u << op->index);
        gf->under_way.ended_ns = now_ns;
        return GF_OK;
    }
    return GF_AGAIN;
}

/* From state to state, as far as it goes in this poll. */
static gf_status op_progress(gf_context *gf, struct gf_op *op, uint64_t now_ns, gf_poll_clock clock)
{
    gf_status status = GF_OK;
    while ((status == GF_OK) && (op->state != GF_OP_FREE))
        status = op_advance(gf, op, now_ns, clock);
    return status;
}

/* An operation that has ended reports that this rank computes. If another operation was polled
 * before it and waits for a rank, that wait is reported instead. */
static void waits_for_update(gf_context *gf)
{
    for (uint32_t left = gf->under_way.busy; left != 0; left &= left - 1) {
        const struct gf_op *op = &gf->under_way.ops[__builtin_ctz(left)];
        if ((op->state != GF_OP_RUN) || (op->coll.state != GF_COLL_RUN)) continue;
        if (op->coll.waits_for == GF_RANK_NONE) continue;
        gf->position.operation = (uint32_t)op->plan.operation;
        gf->position.waits_for = op->coll.waits_for;
        return;
    }
}

static inline gf_status ops_poll(gf_context *gf, uint64_t now_ns, gf_poll_clock clock)
{
    for (uint32_t left = gf->under_way.busy; left != 0; left &= left - 1) {
        gf_status status = op_progress(gf, gf_op_first(&gf->under_way, left), now_ns, clock);
        if (status < 0) return status;
    }
    if (gf->position.waits_for == GF_RANK_NONE) waits_for_update(gf);
    return GF_OK;
}

gf_status gf_ops_progress(gf_context *gf, uint64_t now_ns)
{
    return ops_poll(gf, now_ns, GF_CLOCK_READ);
}

void gf_ops_begin(gf_context *gf)
{
    (void)ops_poll(gf, gf->polled.at_ns, GF_CLOCK_UNREAD);
}

/* ---- what others ask ---- */

void gf_ops_cancel(gf_context *gf, gf_status error)
{
    for (uint32_t i = 0; i < gf->under_way.count; i++)
        if (gf->under_way.ops[i].coll.state == GF_COLL_RUN)
            gf_coll_fail(&gf->under_way.ops[i].coll, error);
}

/* Collectives are in DRAIN; each ends when its last message has. */
bool gf_ops_drained(gf_context *gf, uint64_t now_ns)
{
    bool all = true;
    for (uint32_t i = 0; i < gf->under_way.count; i++) {
        struct gf_coll *coll = &gf->under_way.ops[i].coll;
        if ((coll->state == GF_COLL_RUN) || (coll->state == GF_COLL_DRAIN))
            if (gf_coll_poll(coll, now_ns) == GF_AGAIN) all = false;
    }
    return all;
}

void gf_ops_forgive(gf_context *gf, uint64_t span_ns)
{
    for (uint32_t left = gf->under_way.busy; left != 0; left &= left - 1) {
        gf_op_first(&gf->under_way, left)->coll.moved_ns += span_ns;
        gf_op_first(&gf->under_way, left)->wait_ns += span_ns;
    }
    gf->under_way.ended_ns += span_ns;
}

void gf_ops_patient(gf_context *gf, uint64_t from, uint64_t since_ns)
{
    for (uint32_t left = gf->under_way.busy; left != 0; left &= left - 1) {
        struct gf_op *op = gf_op_first(&gf->under_way, left);
        if ((op->order >= from) && (op->coll.moved_ns < since_ns)) op->coll.moved_ns = since_ns;
    }
}

void gf_ops_reset(gf_context *gf)
{
    for (uint32_t i = 0; i < gf->under_way.count; i++) {
        struct gf_coll *coll = &gf->under_way.ops[i].coll;
        gf->under_way.ops[i].state = GF_OP_FREE;
        coll->state = GF_COLL_IDLE;
        coll->link = gf->link;
        coll->ranks = NULL;
        coll->size = gf->world;
        coll->index = gf->rank;
        coll->publishes_core = !gf->link->driver->simulated;
        coll->timeout_ns = gf->config.exchange.timeout_ns;
        coll->slice_bytes = gf->config.exchange.slice_bytes;
        coll->window = gf->config.link.window;
    }
    gf->under_way.taken = gf->under_way.sequence = 0;
    gf->under_way.busy = 0;
    gf->under_way.ended_ns = gf_now(gf);
}

bool gf_ops_have_messages(const gf_context *gf)
{
    for (uint32_t left = gf->under_way.busy; left != 0; left &= left - 1) {
        const struct gf_op *op = &gf->under_way.ops[__builtin_ctz(left)];
        if ((op->state == GF_OP_RUN) && (op->plan.algorithm != GF_ALGORITHM_DIRECT)) return true;
    }
    return false;
}

gf_wake_source gf_ops_wake_source(const gf_context *gf)
{
    bool flags = false, news = false;
    for (uint32_t left = gf->under_way.busy; left != 0; left &= left - 1) {
        const struct gf_op *op = &gf->under_way.ops[__builtin_ctz(left)];
        bool in_memory = op->plan.algorithm == GF_ALGORITHM_DIRECT;
        if ((op->state == GF_OP_RUN) ? op->coll.awaits_device : gf->on_device) return GF_WAKE_POLL;
        if (op->state != GF_OP_RUN) continue;
        /* it has failed: no more flags come for it */
        if (op->coll.state != GF_COLL_RUN)
            in_memory = false;
        else if (op->plan.algorithm == GF_ALGORITHM_HIERARCHY)
            in_memory = gf_hierarchy_in_memory(&op->own.hierarchy);
        if (in_memory)
            flags = true;
        else
            news = true;
    }
    if (flags && news) return GF_WAKE_POLL;
    return flags ? GF_WAKE_FLAGS : GF_WAKE_DESCRIPTORS;
}
