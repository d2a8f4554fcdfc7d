/* Hierarchy: allreduce over ranks of which those of a node share memory. Three collectives:
 *     SCATTER   in the node, direct reduce-scatter: its first `owners` ranks get a block each, the
 *               node's sum
 *     NARROW    an owner casts its block to the wire's type, copies it from the device, or both;
 *               neither: no WIDEN
 *     BETWEEN   the owners of the same block, one a node: ring, or halving for small blocks, in
 *               place
 *     WIDEN     and back
 *     GATHER    in the node, direct allgather of the blocks
 * Where ops are the host's and all data of the node lies in the exchange region, the three overlap:
 * SCATTER ends behind its first barrier; then an owner adds up its block a slice at a time, in the
 * order in which the ring sends it (gf_flow.there_round), and writes each slice that the ring has
 * done with to the others; GATHER is a barrier.
 *
 * Nodes may differ in size: `owners` is the smallest, so every block has an owner in every node;
 * further ranks of a node take part in SCATTER and GATHER alone. Of an operation's two places in
 * direct's order SCATTER has the even one.
 *
 * The inner collective runs on the memory and the messages of the outer one, which watches the
 * deadline and drains what a failure leaves behind. While an owner is in BETWEEN the others of its
 * node see no flag of it, so it gives them a sign whenever something moves: their deadline is for a
 * rank that does nothing, not for a slow network.
 *
 * An element is added in rank order in its node, then as ring or halving does over nodes: with
 * halving the order does not depend on the position. 16-bit data is rounded once in the node, then
 * once a hop; what a 16-bit wire carries of fp32 data is rounded as it leaves the node.
 *
 * In device memory SCATTER and GATHER are gf_coll_direct_device, and BETWEEN adds late where the
 * link reads that memory, else on the host. Each phase ends with an event that the CPU waits for,
 * as it moves the network in any case. */
#include "ops/node/hierarchy.h"

#define BLOCK_ALIGN_BYTES 64u
#define BEATS_A_DEADLINE 16u
#define SLICE_BYTES_LEAST 65536u /* of messages that are made smaller so that phases overlap */

enum hierarchy_phase {
    PHASE_SCATTER,
    PHASE_NARROW,
    PHASE_BETWEEN,
    PHASE_WIDEN,
    PHASE_GATHER,
    PHASE_COUNT
};

/* This rank's block; empty where it owns none. */
static void own_block(const struct gf_coll *coll, uint64_t *first_out, uint64_t *count_out)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    gf_coll_block_of(coll->elem_count, own->block_elems, own->nodes->local_index, first_out,
                     count_out);
}

/* Does the wire have another type than data, or other memory? Where there is one node, nothing
 * leaves it. */
static bool casts(const struct gf_hierarchy *own)
{
    return (own->packed != 0) && (own->nodes->node_count > 1);
}
static bool crosses(const struct gf_hierarchy *own)
{
    return (own->host.data != 0) && (own->nodes->node_count > 1);
}

/* ---- phases ---- */

static void in_node(struct gf_hierarchy *own, gf_collective collective, uint64_t order)
{
    struct gf_coll *inner = &own->inner;
    own->direct = own->shared;
    /* a rank alone in its node does not start it */
    own->direct.state = (struct gf_direct_state){0};
    own->direct.order = order;
    own->direct.meets = (collective == GF_COLL_REDUCE_SCATTER) && (inner->late == NULL);
    own->direct.small_bytes = 0;
    own->direct.block_elems = own->block_elems;
    inner->kind = (own->in_node != NULL) ? own->in_node : &gf_coll_direct;
    inner->own.direct = &own->direct;
    inner->collective = collective;
    inner->members = own->nodes->local;
    inner->size = own->nodes->local_size;
    inner->index = own->nodes->local_index;
}

/* Of two nodes a ring has no round more, and phases overlap. */
static bool halves(const struct gf_hierarchy *own, uint64_t bytes)
{
    const struct gf_coll_nodes *nodes = own->nodes;
    if ((nodes->node_count == 2) && (nodes->halving_max_bytes != UINT64_MAX)) return false;
    return gf_halving_pays(nodes->node_count, bytes, nodes->halving_max_bytes);
}

static void between_nodes(struct gf_coll *coll)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    struct gf_coll *inner = &own->inner;
    size_t elem_bytes = casts(own) ? gf_type_size_bytes(own->wire) : gf_coll_elem_bytes(coll);
    uint64_t first;
    uint64_t count;
    uint64_t slice = own->block_elems * elem_bytes / own->nodes->node_count / 2;
    own_block(coll, &first, &count);
    inner->kind = halves(own, coll->elem_count * elem_bytes) ? &gf_coll_halving : &gf_coll_ring;
    /* One is added or sent on. As large in a node whose data is staged, where phases do not
     * overlap. */
    if (own->direct.meets && (slice >= SLICE_BYTES_LEAST) && (slice < inner->slice_bytes))
        inner->slice_bytes = (uint32_t)(slice / BLOCK_ALIGN_BYTES * BLOCK_ALIGN_BYTES);
    inner->own.flow = &own->flow;
    inner->members = own->nodes->across;
    inner->size = own->nodes->node_count;
    inner->index = own->nodes->node_index;
    inner->data = (crosses(own) ? own->host.data
                   : casts(own) ? own->packed
                                : coll->data) +
                  first * elem_bytes;
    if (crosses(own)) {
        inner->late = NULL;
        inner->queue = own->host.queue;
        inner->ops = own->host.ops;
        inner->check = own->host.check;
        inner->staging = own->host.staging;
    }
    if (casts(own)) inner->type = own->wire;
    inner->base = coll->base + first;
    inner->elem_count = count;
}

/* A ring between nodes goes over sub-blocks of a block, one a node; anything else over the block as
 * one. */
static uint32_t subs_of(const struct gf_hierarchy *own)
{
    return (own->inner.kind == &gf_coll_ring) ? own->inner.size : 1;
}

static gf_status phase_start(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    gf_collective last = own->overlaps ? GF_COLL_BARRIER : GF_COLL_ALLGATHER;
    gf_status status;
    if (own->phase == PHASE_BETWEEN) own->node = own->inner; /* of use where phases overlap */
    own->inner = *coll;
    own->inner.state = GF_COLL_IDLE;
    switch ((enum hierarchy_phase)own->phase) {
    case PHASE_SCATTER: in_node(own, GF_COLL_REDUCE_SCATTER, 2 * own->shared.order); break;
    case PHASE_BETWEEN: between_nodes(coll); break;
    case PHASE_GATHER: in_node(own, last, 2 * own->shared.order + 1); break;
    case PHASE_NARROW:
    case PHASE_WIDEN: own->cast_elems = 0, own->queued = false; return GF_OK;
    case PHASE_COUNT: GF_ASSERT(false); break;
    }
    status = gf_coll_start(&own->inner, now_ns);
    own->summed = own->gathered = (struct gf_hierarchy_at){0};
    if ((own->phase == PHASE_BETWEEN) && own->overlaps && (subs_of(own) > 1))
        own->flow.there_round = 0;
    return status;
}

/* GF_OK: there is another one. */
static gf_status phase_next(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    bool owns = own->nodes->local_index < own->nodes->owners, moves = casts(own) || crosses(own);
    if (own->phase == PHASE_SCATTER)
        own->overlaps = own->direct.meets && !own->direct.state.any_staged;
    do own->phase++;
    while ((own->phase != PHASE_GATHER) &&
           (!owns || ((own->phase != PHASE_BETWEEN) && (own->overlaps || !moves))));
    coll->moved_ns = now_ns;
    coll->waits_for = GF_RANK_NONE;
    return phase_start(coll, now_ns);
}

/* ---- signs of life ---- */

static size_t beat_at(const struct gf_hierarchy *own, uint32_t writer)
{
    return gf_direct_slots_at(&own->shared, 2 * own->shared.order + 1) +
           writer * sizeof(struct gf_direct_slot) + offsetof(struct gf_direct_slot, beat);
}

/* At most one in BEATS_A_DEADLINE of it: each wakes the whole node. */
static void beat(struct gf_coll *coll, uint64_t now_ns)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct gf_hierarchy *own = coll->own.hierarchy;
    const struct gf_coll_nodes *nodes = own->nodes;
    const struct gf_flow *flow = &own->flow;
    uint64_t moved =
        flow->sent.count + flow->send_done.count + flow->recvd.count + flow->recv_done.count;
    uint64_t value = (own->shared.order << 32) + moved; /* not what an earlier operation left */
    if ((moved == own->beats) || (now_ns - own->beat_ns < coll->timeout_ns / BEATS_A_DEADLINE))
        return;
    own->beats = moved;
    own->beat_ns = now_ns;
    for (uint32_t i = 0; i < nodes->local_size; i++) {
        if ((i == nodes->local_index) || (driver->map(coll->link, nodes->local[i]) == NULL))
            continue;
        driver->flag_store(coll->link, nodes->local[i], beat_at(own, nodes->local_index), value);
    }
}

/* Has the awaited rank of this node given a sign since the last look? */
static bool heard(struct gf_coll *coll)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint32_t from = (uint32_t)own->direct.state.arrived;
    bool is_new = from != own->heard_from;
    uint64_t value;
    if (from >= own->nodes->local_size) return false;
    value = gf_flag_load(coll->link, beat_at(own, from));
    is_new = !is_new && (value != own->heard);
    own->heard_from = from;
    own->heard = value;
    return is_new;
}

/* ---- what coll.c calls ---- */

static gf_status hierarchy_start(struct gf_coll *coll)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint32_t owners = own->nodes->owners;
    uint64_t unit = BLOCK_ALIGN_BYTES / gf_coll_elem_bytes(coll);
    GF_ASSERT((coll->fold == NULL) && (owners > 0) && (owners <= own->nodes->local_size));
    GF_ASSERT(own->nodes->local_size <= coll->size);
    own->phase = PHASE_SCATTER;
    own->heard_from = GF_RANK_NONE;
    own->heard = own->beats = 0;
    own->beat_ns = coll->moved_ns;
    own->block_elems =
        (coll->elem_count / owners + (coll->elem_count % owners != 0) + unit - 1) / unit * unit;
    if (own->block_elems == 0) own->block_elems = unit;
    return phase_start(coll, coll->moved_ns);
}

/* Some of this rank's block, to the wire's type or back; what the new type cannot hold is counted:
 * as the rank's own where it is alone in its node, else as a sum. */
static gf_status block_cast(struct gf_coll *coll, bool narrow, uint64_t at, uint64_t count)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    bool alone = narrow && (own->nodes->local_size == 1) && (coll->sources != NULL);
    gf_mem data = coll->data + at * gf_coll_elem_bytes(coll);
    gf_mem packed = own->packed + at * gf_type_size_bytes(own->wire);
    struct gf_check *check = alone ? coll->sources : coll->check;
    return coll->ops->cast(coll->queue, narrow ? packed : data, narrow ? own->wire : coll->type,
                           narrow ? data : packed, narrow ? coll->type : own->wire, count, 1.0f,
                           coll->base + at, check);
}

/* All of the block, and the event after it. */
static gf_status block_queue(struct gf_coll *coll, bool narrow, uint64_t first, uint64_t count)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    const struct gf_gpu_driver *driver = coll->queue->gpu->driver;
    size_t elem_bytes = casts(own) ? gf_type_size_bytes(own->wire) : gf_coll_elem_bytes(coll);
    gf_mem here = (casts(own) ? own->packed : coll->data) + first * elem_bytes;
    gf_mem host = own->host.data + first * elem_bytes;
    struct gf_queue *last = (narrow && crosses(own)) ? own->host.out : coll->queue;
    gf_status status = GF_OK;
    if (!narrow && crosses(own)) {
        status = driver->copy(own->host.in, here, host, count * elem_bytes);
        if (status >= 0) status = driver->lead(own->host.in, coll->queue->stream);
    }
    if ((status >= 0) && casts(own)) status = block_cast(coll, narrow, first, count);
    if ((status >= 0) && (last != coll->queue)) {
        status = driver->lead(coll->queue, last->stream);
        if (status >= 0) status = driver->copy(last, host, here, count * elem_bytes);
    }
    return (status >= 0) ? driver->mark(last, coll->event) : status;
}

/* A turn of NARROW or WIDEN: a slice on the host, on a device all at once. GF_OK: the block is
 * done. */
static gf_status block_progress(struct gf_coll *coll, bool narrow, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint64_t first;
    uint64_t count;
    uint64_t most = coll->slice_bytes / sizeof(float);
    gf_status status = GF_OK;
    own_block(coll, &first, &count);
    if ((coll->late != NULL) && (count > 0)) {
        if (!own->queued) status = block_queue(coll, narrow, first, count);
        if (!own->queued) coll->moved_ns = now_ns;
        own->queued = true;
        if (status >= 0) status = coll->queue->gpu->driver->reached(coll->queue->gpu, coll->event);
        coll->awaits_device = (status == GF_AGAIN);
        return status;
    }
    if (count - own->cast_elems < most) most = count - own->cast_elems;
    if (most > 0) status = block_cast(coll, narrow, first + own->cast_elems, most);
    if (status < 0) return status;
    own->cast_elems += most;
    coll->moved_ns = now_ns;
    return (own->cast_elems < count) ? GF_AGAIN : GF_OK;
}

/* ---- phases that overlap ---- */

/* The rest of sub-block `at`, in elements of the operation: what the ring sends in round at->sub,
 * or, summed over all nodes, holds after its round subs - 2 + at->sub. False: there is none, nor
 * one after it. */
static bool sub_rest(const struct gf_coll *coll, struct gf_hierarchy_at *at, bool gathers,
                     uint64_t *first_out, uint64_t *count_out)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    uint32_t subs = subs_of(own);
    uint32_t from = own->nodes->node_index + 2 * subs - (gathers ? 0 : 1);
    uint64_t first;
    uint64_t count;
    uint64_t sub_first;
    uint64_t sub_count;
    own_block(coll, &first, &count);
    for (; at->sub < subs; at->sub++, at->elems = 0) {
        gf_coll_block(count, subs, (from - at->sub) % subs, &sub_first, &sub_count);
        *first_out = first + sub_first + at->elems;
        *count_out = sub_count - at->elems;
        if (*count_out > 0) return true;
    }
    return false;
}

/* Of sub-block `at`: how many elements from its begin on are summed over all nodes. */
static uint64_t sub_ready(const struct gf_hierarchy *own, const struct gf_hierarchy_at *at)
{
    const struct gf_flow_at *done = &own->flow.recv_done;
    uint32_t round = subs_of(own) - 2 + at->sub;
    if (own->inner.state == GF_COLL_DONE) return UINT64_MAX;
    if ((subs_of(own) > 1) && (done->round == round)) return done->slice * own->flow.slice_elems;
    return ((subs_of(own) > 1) && (done->round > round)) ? UINT64_MAX : 0;
}

/* The next slice of this rank's block: the node's sum, or all nodes' sum to the others. GF_AGAIN:
 * there is none now. */
static gf_status sub_progress(struct gf_coll *coll, struct gf_hierarchy_at *at, bool gathers,
                              uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint64_t first;
    uint64_t count;
    uint64_t ready;
    uint64_t most = own->inner.slice_bytes / gf_coll_elem_bytes(coll);
    gf_status status = GF_OK;
    if (!sub_rest(coll, at, gathers, &first, &count)) return GF_AGAIN;
    ready = gathers ? sub_ready(own, at) : UINT64_MAX;
    if (ready <= at->elems) return GF_AGAIN;
    if (count > ready - at->elems) count = ready - at->elems;
    if (count > most) count = most;
    own->node.collective = gathers ? GF_COLL_ALLGATHER : GF_COLL_REDUCE_SCATTER;
    if (gathers && casts(own) && ((status = block_cast(coll, false, first, count)) < 0))
        return status;
    if (own->node.size > 1) status = gf_direct_combine(&own->node, 0, first, 0, count);
    if (status < 0)
        coll->waits_for = own->node.waits_for;
    else if (!gathers && casts(own))
        status = block_cast(coll, true, first, count);
    if (status < 0) return status;
    at->elems += count;
    coll->bytes_mapped += own->node.bytes_mapped;
    own->node.bytes_mapped = 0;
    coll->moved_ns = now_ns;
    return GF_OK;
}

/* A turn of the part under way. */
static gf_status inner_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_coll *inner = &coll->own.hierarchy->inner;
    gf_status status;
    if (inner->state == GF_COLL_DONE) return GF_OK; /* as a group of one is from the start */
    inner->spins = coll->spins;
    inner->awaits_core = false;
    status = inner->kind->turn(inner, now_ns);
    coll->awaits_core = inner->awaits_core;
    coll->awaits_device = inner->awaits_device;
    coll->waits_for = inner->waits_for;
    if (inner->moved_ns > coll->moved_ns) coll->moved_ns = inner->moved_ns;
    coll->bytes_done += inner->bytes_done;
    coll->bytes_mapped += inner->bytes_mapped;
    inner->bytes_done = inner->bytes_mapped = 0;
    if (status == GF_OK) inner->state = GF_COLL_DONE;
    return status;
}

/* A turn of SCATTER's work, BETWEEN and GATHER's at once: the ring is fed first. */
static gf_status overlapped_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint32_t subs = subs_of(own);
    gf_status summed = sub_progress(coll, &own->summed, false, now_ns);
    gf_status status = GF_OK;
    if (summed < 0) return summed;
    if (subs > 1) own->flow.there_round = own->summed.sub;
    own->flow.there_elems = own->summed.elems;
    if ((subs > 1) || (summed == GF_AGAIN)) status = inner_progress(coll, now_ns);
    if ((status < 0) || (summed == GF_OK)) return (status < 0) ? status : GF_AGAIN;
    status = sub_progress(coll, &own->gathered, true, now_ns);
    if (status < 0) return status;
    /* sends, too */
    return ((own->gathered.sub == subs) && (own->inner.state == GF_COLL_DONE)) ? GF_OK : GF_AGAIN;
}

/* A turn of the phase under way. */
static gf_status phase_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    switch ((enum hierarchy_phase)own->phase) {
    case PHASE_NARROW:
    case PHASE_WIDEN: return block_progress(coll, own->phase == PHASE_NARROW, now_ns);
    case PHASE_BETWEEN:
        return own->overlaps ? overlapped_progress(coll, now_ns) : inner_progress(coll, now_ns);
    default: return inner_progress(coll, now_ns);
    }
}

/* A phase begins in the turn in which the one before it ends, unless that turn has worked on a
 * slice: nobody may wake this rank for what it can do by itself. */
static gf_status hierarchy_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    for (;;) {
        uint64_t mapped = coll->bytes_mapped;
        gf_status status = phase_progress(coll, now_ns);
        if (status < 0) return status;
        if (status == GF_AGAIN) {
            if (own->phase == PHASE_BETWEEN) beat(coll, now_ns);
            if ((own->phase == PHASE_GATHER) && heard(coll)) coll->moved_ns = now_ns;
            return GF_AGAIN;
        }
        if (own->phase == PHASE_GATHER) return GF_OK;
        if ((status = phase_next(coll, now_ns)) < 0) return status;
        if (coll->bytes_mapped != mapped) return GF_AGAIN;
    }
}

/* For whatever nodes these ranks may lie on: not less than any part asks for. */
static void hierarchy_need(const struct gf_coll_kind *kind, const struct gf_coll_limits *limits,
                           struct gf_coll_need *need_out)
{
    struct gf_coll_limits node = *limits;
    struct gf_coll_need direct = {0};
    (void)kind;
    if (node.size > GF_DIRECT_RANKS_MAX) node.size = GF_DIRECT_RANKS_MAX;
    gf_coll_direct.need(&gf_coll_direct, &node, &direct);
    gf_flow_slots(limits, UINT32_MAX, limits->bytes_max + GF_COLL_ELEM_BYTES_MAX, need_out);
    if (direct.staging_bytes > need_out->staging_bytes)
        need_out->staging_bytes = direct.staging_bytes;
}

const struct gf_coll_kind gf_coll_hierarchy = {
    .name = "hierarchy",
    .collectives = 1u << GF_COLL_ALLREDUCE,
    .need = hierarchy_need,
    .start = hierarchy_start,
    .turn = hierarchy_progress,
};
