/* Slots: places where a collective runs. Which algorithm, what goes into the trace and the statistics, and how its
 * failure becomes the context's. */
#include <sched.h>

#include "lib/context.h"

/* A look at the control channel is a system call: not at each poll of one that spins, but soon for one that polls only
 * between layers. */
#define MEMBERS_EVERY 64u
#define MEMBERS_EVERY_NS UINT64_C(1000000)
/* The same for the link while no message is awaited: one look takes as long as a small operation through memory. */
#define PROGRESS_EVERY_NS UINT64_C(200000)

/* Up to here direct takes one barrier: where ranks share cores, a barrier costs each a turn on its core. */
#define SMALL_BYTES 128u
#define SMALL_CROWDED_BYTES 4096u

void gf_exchange_unsettle(gf_context *gf)
{
    gf_algorithm asked = gf->config.exchange.algorithm;
    bool late = (asked == GF_ALGORITHM_DIRECT) || (asked == GF_ALGORITHM_HIERARCHY);
    gf->algorithm = late ? GF_ALGORITHM_AUTO : asked;
    gf->by_nodes = false;
}

/* Checksums cover messages only: auto does not give them up. */
void gf_exchange_settle(gf_context *gf, bool shares)
{
    gf_algorithm asked = gf->config.exchange.algorithm;
    bool wanted = (asked == GF_ALGORITHM_DIRECT) || ((asked == GF_ALGORITHM_AUTO) && !gf->config.link.integrity);
    if (asked == GF_ALGORITHM_HIERARCHY) gf->algorithm = asked;
    if (wanted && shares && (gf->world > 1)) gf->algorithm = GF_ALGORITHM_DIRECT;
}

/* Folded vectors have no other way. */
static uint32_t small_bytes(const gf_context *gf, const struct gf_coll *coll)
{
    if (coll->fold != NULL) return GF_DIRECT_SMALL_BYTES;
    return gf->crowded ? SMALL_CROWDED_BYTES : SMALL_BYTES;
}

/* The algorithm that serves `op` for this many bytes on the wire. Sums follow the configuration; what an algorithm does
 * not offer (a barrier has no ring) takes the plainest that does. */
gf_algorithm gf_exchange_choose(const gf_context *gf, gf_coll_op op, uint64_t bytes)
{
    gf_algorithm wanted = gf->algorithm;
    static const gf_algorithm fallbacks[] = {GF_ALGORITHM_RING, GF_ALGORITHM_TREE, GF_ALGORITHM_DOUBLING,
                                             GF_ALGORITHM_HALVING};
    if ((op == GF_COLL_ALLREDUCE) && (wanted == GF_ALGORITHM_AUTO)) {
        if (bytes <= gf->config.exchange.doubling_max_bytes) return GF_ALGORITHM_DOUBLING;
        if (gf->by_nodes) return GF_ALGORITHM_HIERARCHY;
        if ((bytes <= gf->config.exchange.halving_max_bytes) || gf->config.exchange.deterministic)
            return GF_ALGORITHM_HALVING;
        return GF_ALGORITHM_RING;
    }
    if ((wanted != GF_ALGORITHM_AUTO) && gf_coll_kind_of(wanted)->supports(op)) return wanted;
    for (size_t i = 0; i < sizeof fallbacks / sizeof fallbacks[0]; i++)
        if (gf_coll_kind_of(fallbacks[i])->supports(op)) return fallbacks[i];
    GF_ASSERT(false); /* every operation is served by one of them */
    return GF_ALGORITHM_AUTO;
}

gf_algorithm gf_exchange_choose_folded(const gf_context *gf, uint64_t bytes)
{
    bool direct = (gf->algorithm == GF_ALGORITHM_DIRECT) && (bytes <= GF_DIRECT_SMALL_BYTES);
    return direct ? GF_ALGORITHM_DIRECT : GF_ALGORITHM_DOUBLING;
}

/* Fewer after a shrink, which the memory has room for. */
static uint32_t lanes(const gf_context *gf)
{
    uint32_t most = gf_direct_lanes_of(&gf->config);
    return (gf->world < most) ? gf->world : most;
}

struct gf_slot *gf_slot_take(gf_context *gf)
{
    uint64_t apart = gf->by_nodes ? GF_DIRECT_LANES / 2 : GF_DIRECT_LANES; /* hierarchy takes two lanes an operation */
    for (uint32_t s = 0; s < gf->slot_count; s++) /* the oldest under way keeps its lane of flags to itself */
        if ((gf->slots[s].state != GF_SLOT_FREE) && (gf->tickets - gf->slots[s].ticket >= apart)) return NULL;
    for (uint32_t s = 0; s < gf->slot_count; s++) {
        struct gf_slot *slot = &gf->slots[s];
        if (slot->state != GF_SLOT_FREE) continue;
        slot->check = slot->sources = (struct gf_check){.bad_count = 0, .bad_first = UINT64_MAX};
        slot->coll.fold = NULL;
        slot->coll.fold_elem_bytes = 0;
        slot->coll.check = slot->coll.sources = NULL;
        slot->done_elems = 0;
        slot->ticket = gf->tickets++;
        slot->state = GF_SLOT_PACK;
        return slot;
    }
    return NULL;
}

void gf_slot_release(gf_context *gf, struct gf_slot *slot)
{
    GF_ASSERT((slot >= gf->slots) && (slot < gf->slots + gf->slot_count));
    slot->state = GF_SLOT_FREE;
}

/* Its first tensor, for those who ask what is under way. */
static uint32_t slot_tensor(const gf_context *gf, const struct gf_slot *slot)
{
    return (slot->operation == GF_OPERATION_STEP) ? gf->buffers[slot->buffer].first_tensor : GF_TENSOR_NONE;
}

/* Data of a device: the link takes it from there, or all devices reach each other's. */
static void device_take(gf_context *gf, struct gf_slot *slot)
{
    struct gf_coll *coll = &slot->coll;
    GF_ASSERT((coll->op == GF_COLL_ALLREDUCE) && gf_sums_late(gf));
    coll->queue = &gf->queue;
    coll->ops = gf->ops;
    coll->is_late = true;
    coll->event = (uint32_t)(slot - gf->slots);
    coll->staging = slot->device_staging;
    if (!gf->ipc.agreed) return;
    GF_ASSERT(coll->kind == &gf_coll_direct);
    coll->kind = &gf_coll_direct_device;
    coll->direct.exported = gf->ipc.bases;
    coll->direct.region_bytes = gf->device_bytes;
    coll->direct.small_bytes = 0;
}

/* In the others the quickest message of a rank may have waited for all others' too. */
static bool timed(const struct gf_slot *slot, gf_algorithm algorithm)
{
    return (slot->operation == GF_OPERATION_STEP) && ((algorithm == GF_ALGORITHM_RING) ||
                                                      (algorithm == GF_ALGORITHM_HALVING) ||
                                                      (algorithm == GF_ALGORITHM_HIERARCHY));
}

void gf_slot_start(gf_context *gf, struct gf_slot *slot, gf_algorithm algorithm, gf_coll_op op, uint32_t root,
                   gf_type type, gf_mem data, uint64_t elem_count, uint64_t tag, uint64_t now_ns)
{
    struct gf_coll *coll = &slot->coll;
    struct gf_position *position = gf_members_position(gf->members);
    coll->kind = gf_coll_kind_of(algorithm);
    coll->link = gf->link;
    coll->queue = &gf->wire_queue;
    coll->ops = gf->wire_ops;
    coll->op = op;
    coll->root = root;
    coll->members = gf->seats;
    coll->size = gf->world;
    coll->index = gf->rank;
    coll->type = type;
    coll->data = data;
    coll->staging = slot->staging;
    coll->is_late = false;
    coll->elem_count = elem_count;
    coll->tag = tag;
    coll->timeout_ns = gf->config.exchange.timeout_ns;
    coll->slice_bytes = gf->config.exchange.slice_bytes;
    coll->window = gf->config.link.window;
    coll->nodes = &gf->nodes;
    coll->timing = timed(slot, algorithm) ? &gf->timing : NULL;
    coll->direct = (struct gf_coll_shared){.ticket = slot->ticket, .region_bytes = gf->region_bytes,
                                           .lane_ranks = lanes(gf),
                                           .core = gf->link->driver->simulated ? 0 : (uint32_t)sched_getcpu() + 1,
                                           .small_bytes = small_bytes(gf, coll)};
    if ((elem_count > 0) && gf_device_holds(gf, data)) device_take(gf, slot);
    slot->algorithm = algorithm;
    slot->begin_ns = now_ns;
    slot->wait_peer = slot->waited_for = GF_RANK_NONE;
    slot->waited_ns = 0;
    slot->state = GF_SLOT_RUN;
    gf->sequence++;
    position->sequence = gf->sequence;
    position->step = gf->step.number;
    position->operation = (uint32_t)slot->operation;
    position->buffer = slot->buffer;
    position->tensor = slot_tensor(gf, slot);
    (void)gf_coll_start(coll, now_ns);
    gf->moved_ns = now_ns;
}

static void slot_trace(gf_context *gf, const struct gf_slot *slot, gf_status status, uint64_t now_ns)
{
    bool in_step = (slot->operation == GF_OPERATION_STEP);
    const struct gf_buffer *buffer = in_step ? &gf->buffers[slot->buffer] : NULL;
    uint64_t pack_ns = in_step ? slot->begin_ns - slot->pack_ns : 0;
    struct gf_trace_record record = {.begin_ns = slot->begin_ns,
                                     .end_ns = now_ns,
                                     .step = gf->step.number,
                                     .bytes = slot->coll.elem_count * gf_coll_elem_bytes(&slot->coll),
                                     .operation = (uint32_t)slot->operation,
                                     .algorithm = (uint32_t)slot->algorithm,
                                     .buffer = slot->buffer,
                                     .first_tensor = in_step ? buffer->first_tensor : GF_TENSOR_NONE,
                                     .tensor_count = in_step ? buffer->tensor_count : 0,
                                     .status = (int32_t)status,
                                     .waited_for = slot->waited_for,
                                     .pack_ns = (pack_ns < UINT32_MAX) ? (uint32_t)pack_ns : UINT32_MAX};
    gf_trace_write(gf, &record);
    gf->stats.operations++;
}

/* The slot waits for another rank than before, or for nobody. */
static void slot_wait(gf_context *gf, struct gf_slot *slot, uint32_t peer, uint64_t now_ns)
{
    uint64_t span_ns = now_ns - slot->wait_ns;
    if (peer == slot->wait_peer) return;
    if (slot->wait_peer != GF_RANK_NONE) gf->peers[slot->wait_peer].wait_ns += span_ns;
    if ((slot->wait_peer != GF_RANK_NONE) && (span_ns > slot->waited_ns)) {
        slot->waited_ns = span_ns;
        slot->waited_for = slot->wait_peer;
    }
    slot->wait_peer = peer;
    slot->wait_ns = now_ns;
}

static uint32_t slots_busy(const gf_context *gf)
{
    uint32_t busy = 0;
    for (uint32_t s = 0; s < gf->slot_count; s++) busy += gf->slots[s].state != GF_SLOT_FREE;
    return busy;
}

gf_status gf_slot_poll(gf_context *gf, struct gf_slot *slot, uint64_t now_ns)
{
    struct gf_position *position = gf_members_position(gf->members);
    struct gf_coll *coll = &slot->coll;
    gf_status status;
    coll->spins = slots_busy(gf) == 1 ? gf->spins : 0; /* others would wait for it */
    coll->direct.near = false;
    status = gf_coll_poll(coll, now_ns);
    gf->awaits_core = coll->direct.near;
    if (coll->moved_ns > gf->moved_ns) gf->moved_ns = coll->moved_ns;
    if ((status == GF_AGAIN) && (coll->state != GF_COLL_DRAIN)) {
        uint32_t waits_for = gf_rank_of(gf, coll->waits_for);
        slot_wait(gf, slot, waits_for, now_ns);
        position->waits_for = waits_for;
        return GF_AGAIN;
    }
    slot_wait(gf, slot, GF_RANK_NONE, now_ns);
    gf->moved_ns = now_ns;
    gf->stats.mapped_bytes += coll->bytes_mapped;
    coll->bytes_mapped = 0;
    if (status == GF_OK) { /* from here on this rank computes, unless another slot says something else */
        position->operation = (gf->phase == GF_PHASE_STEP) ? GF_OPERATION_STEP : GF_OPERATION_NONE;
        position->tensor = GF_TENSOR_NONE;
        position->waits_for = GF_RANK_NONE;
        slot_trace(gf, slot, GF_OK, now_ns);
        return GF_OK;
    }
    if (gf->error.code == GF_OK) { /* the collective failed: it drains on under the context's failure */
        slot_trace(gf, slot, coll->error, now_ns);
        if ((coll->error == GF_ERR_DEVICE) && (gf->gpu->fault.code != GF_OK)) return gf_device_failed(gf, slot->operation);
        if (gf->link->fault.code != GF_OK) return gf_fail_fault(gf, &gf->link->fault, slot->operation);
        return gf_fail(gf, coll->error, slot->operation, gf_rank_of(gf, coll->waits_for), slot_tensor(gf, slot),
                       "%s in step %llu, operation %s: %s after %.1f s without progress, waiting for rank %d",
                       gf_status_name(coll->error), (unsigned long long)gf->step.number,
                       gf_operation_name(slot->operation), coll->kind->name,
                       (double)(now_ns - coll->moved_ns) * 1e-9, (int)gf_rank_of(gf, coll->waits_for));
    }
    return gf->error.code;
}

static bool messages_awaited(const gf_context *gf)
{
    for (uint32_t s = 0; s < gf->slot_count; s++)
        if ((gf->slots[s].state == GF_SLOT_RUN) && (gf->slots[s].algorithm != GF_ALGORITHM_DIRECT)) return true;
    return false;
}

gf_status gf_progress(gf_context *gf, uint64_t now_ns)
{
    gf_status status;
    if (gf_aborted(gf) && ((status = gf_enter(gf)) < 0)) return status; /* also in the middle of a wait */
    if ((gf->algorithm == GF_ALGORITHM_DIRECT) && (now_ns - gf->progress_ns < PROGRESS_EVERY_NS) &&
        !messages_awaited(gf))
        return GF_OK;
    gf->progress_ns = now_ns;
    for (unsigned i = 0; i < 4; i++) {
        status = gf->link->driver->progress(gf->link);
        if (status < 0) return gf_fail_fault(gf, &gf->link->fault, gf_doing(gf));
        if (status == GF_AGAIN) break;
        gf->moved_ns = now_ns;
    }
    if ((gf->members_skip > 0) && (now_ns - gf->members_ns < MEMBERS_EVERY_NS)) {
        gf->members_skip--;
        return GF_OK;
    }
    gf->members_skip = MEMBERS_EVERY;
    gf->members_ns = now_ns;
    status = gf_members_poll(gf->members, now_ns);
    return (status < 0) ? gf_fail_from(gf, gf_members_error(gf->members)) : GF_OK;
}
