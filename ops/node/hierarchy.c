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
 * order in which the ring sends it (gf_flow_there()), and writes each slice that the ring has
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
#include "ops/node/hierarchy_parts.h"

#define BLOCK_ALIGN_BYTES 64u
#define BEATS_A_DEADLINE 16u
#define SLICE_BYTES_LEAST 65536u /* of messages that are made smaller so that phases overlap */

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
    inner->plan.collective = collective;
    inner->ranks = own->nodes->local;
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

static gf_mem wire_data(const struct gf_coll *coll)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    if (gf_hierarchy_crosses(own)) return own->host.data;
    return gf_hierarchy_casts(own) ? own->packed : coll->plan.data;
}

/* Slices of which a node has two a sub-block: one is added up while the other is sent on. As large
 * in a node whose data is staged, where phases do not overlap. Not where nodes are mixed: one of
 * devices sends a sub-block that is summed as a whole. */
static uint32_t between_slice_bytes(const struct gf_coll *coll)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    uint64_t half_sub =
        own->block_elems * gf_hierarchy_wire_bytes(coll) / own->nodes->node_count / 2;
    bool smaller = (half_sub >= SLICE_BYTES_LEAST) && (half_sub < coll->slice_bytes);
    if (!own->direct.meets || own->mixed || !smaller) return coll->slice_bytes;
    return (uint32_t)(half_sub / BLOCK_ALIGN_BYTES * BLOCK_ALIGN_BYTES);
}

static void between_nodes(struct gf_coll *coll)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    struct gf_coll *inner = &own->inner;
    size_t elem_bytes = gf_hierarchy_wire_bytes(coll);
    bool by_halving = halves(own, coll->plan.elem_count * elem_bytes);
    uint64_t first;
    uint64_t count;
    gf_hierarchy_block(coll, &first, &count);
    inner->kind = by_halving ? &gf_coll_halving : &gf_coll_ring;
    inner->own.flow = &own->flow;
    inner->slice_bytes = between_slice_bytes(coll);
    inner->ranks = own->nodes->across;
    inner->size = own->nodes->node_count;
    inner->index = own->nodes->node_index;
    inner->plan.data = wire_data(coll) + first * elem_bytes;
    inner->plan.base = coll->plan.base + first;
    inner->plan.elem_count = count;
    if (gf_hierarchy_casts(own)) inner->plan.type = own->wire;
    if (!gf_hierarchy_crosses(own)) return;
    inner->late = NULL;
    inner->queue = own->host.queue;
    inner->ops = own->host.ops;
    inner->check = own->host.check;
    inner->staging = own->host.staging;
}

/* own->phase begins. */
static gf_status phase_start(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint64_t order = 2 * own->shared.order; /* SCATTER's; GATHER has the next one */
    gf_collective last = own->overlaps ? GF_COLL_BARRIER : GF_COLL_ALLGATHER;
    gf_status status;
    /* Where phases overlap, what SCATTER had set up goes on adding while the ring runs: it is kept
     * before the ring's takes its place. */
    if (own->phase == PHASE_BETWEEN) own->node = own->inner;
    own->inner = *coll;
    own->inner.state = GF_COLL_IDLE;
    switch ((enum hierarchy_phase)own->phase) {
    case PHASE_NARROW:
    case PHASE_WIDEN:
        own->cast_elems = 0;
        own->queued = false;
        return GF_OK; /* no collective */
    case PHASE_SCATTER: in_node(own, GF_COLL_REDUCE_SCATTER, order); break;
    case PHASE_BETWEEN: between_nodes(coll); break;
    case PHASE_GATHER: in_node(own, last, order + 1); break;
    }
    status = gf_coll_start(&own->inner, now_ns);
    own->summed = (struct gf_hierarchy_at){0};
    own->gathered = (struct gf_hierarchy_at){0};
    /* the start of the ring says that all is there; but nothing is added up yet */
    if ((own->phase == PHASE_BETWEEN) && own->overlaps && (gf_hierarchy_subs(own) > 1))
        gf_flow_there(&own->flow, 0, 0);
    return status;
}

/* Every rank has SCATTER and GATHER. An owner has BETWEEN, too; and NARROW and WIDEN, if there is
 * something to cast or to copy, unless it does so slice by slice in BETWEEN. */
static bool has_phase(const struct gf_hierarchy *own, uint32_t phase)
{
    bool owns = own->nodes->local_index < own->nodes->owners;
    if ((phase == PHASE_SCATTER) || (phase == PHASE_GATHER)) return true;
    if (phase == PHASE_BETWEEN) return owns;
    return owns && !own->overlaps && (gf_hierarchy_casts(own) || gf_hierarchy_crosses(own));
}

/* Of what comes after the phase that has ended, which is not GATHER. */
static gf_status phase_next(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    if (own->phase == PHASE_SCATTER)
        own->overlaps = own->direct.meets && !own->direct.state.any_staged;
    own->phase++;
    while (!has_phase(own, own->phase)) own->phase++;
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

/* To the others of the node, where messages were posted or have ended since the last sign; at most
 * BEATS_A_DEADLINE of them a deadline, as each writes into every rank's memory. Whoever sleeps sees
 * it when it wakes by itself. */
static void beat(struct gf_coll *coll, uint64_t now_ns)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct gf_hierarchy *own = coll->own.hierarchy;
    const struct gf_coll_nodes *nodes = own->nodes;
    const struct gf_flow *flow = &own->flow;
    uint64_t sends = flow->sent.count + flow->send_done.count;
    uint64_t recvs = flow->recvd.count + flow->recv_done.count;
    uint64_t moved = sends + recvs;
    uint64_t value = (own->shared.order << 32) + moved; /* not what an earlier operation left */
    if (moved == own->beats) return;
    if (now_ns - own->beat_ns < coll->timeout_ns / BEATS_A_DEADLINE) return;
    own->beats = moved;
    own->beat_ns = now_ns;
    for (uint32_t i = 0; i < nodes->local_size; i++) {
        if (i == nodes->local_index) continue;
        if (driver->map(coll->link, nodes->local[i]) == NULL) continue;
        driver->flag_store(coll->link, nodes->local[i], beat_at(own, nodes->local_index), value);
    }
}

/* Has the awaited rank of this node given a sign since the last look? A first look at a rank only
 * notes what stands there. */
static bool heard(struct gf_coll *coll)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint32_t from = (uint32_t)own->direct.state.arrived;
    bool is_new;
    uint64_t value;
    if (from >= own->nodes->local_size) return false;
    value = gf_flag_load(coll->link, beat_at(own, from));
    is_new = (from == own->heard_from) && (value != own->heard);
    own->heard_from = from;
    own->heard = value;
    return is_new;
}

/* ---- what coll.c calls ---- */

static gf_status hierarchy_start(struct gf_coll *coll)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint32_t owners = own->nodes->owners;
    uint64_t unit =
        BLOCK_ALIGN_BYTES / (own->mixed ? gf_type_size_bytes(own->cut) : gf_coll_elem_bytes(coll));
    uint64_t share; /* of an owner; its block is as many units as hold that */
    GF_ASSERT((coll->plan.reduce == NULL) && (owners > 0) && (owners <= own->nodes->local_size));
    GF_ASSERT(own->nodes->local_size <= coll->size);
    own->phase = PHASE_SCATTER;
    own->heard_from = GF_RANK_NONE;
    own->heard = 0;
    own->beats = 0;
    own->beat_ns = coll->moved_ns;
    share = coll->plan.elem_count / owners + (coll->plan.elem_count % owners != 0);
    own->block_elems = (share + unit - 1) / unit * unit;
    if (own->block_elems == 0) own->block_elems = unit;
    return phase_start(coll, coll->moved_ns);
}

/* A turn of the part under way. */
gf_status gf_hierarchy_inner_progress(struct gf_coll *coll, uint64_t now_ns)
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
    inner->bytes_done = 0;
    inner->bytes_mapped = 0;
    if (status == GF_OK) inner->state = GF_COLL_DONE;
    return status;
}

/* A turn of the phase under way. */
static gf_status phase_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    if ((own->phase == PHASE_NARROW) || (own->phase == PHASE_WIDEN))
        return gf_hierarchy_block_progress(coll, now_ns);
    if ((own->phase == PHASE_BETWEEN) && own->overlaps)
        return gf_hierarchy_overlapped_progress(coll, now_ns);
    return gf_hierarchy_inner_progress(coll, now_ns);
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
        status = phase_next(coll, now_ns);
        if (status < 0) return status;
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
