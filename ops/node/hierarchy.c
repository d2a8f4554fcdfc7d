/* Hierarchy: allreduce over ranks of which those of a node share memory. Each rank goes through
 * these stages; three of them are a collective:
 *
 *     SCATTER   reduce-scatter in the node (direct): its first `owners` ranks get a block each,
 *               which holds the node's sum
 *     NARROW    an owner casts its block to the wire's type, or copies it from the device, or both
 *     BETWEEN   allreduce of a block over its owners, one a node, in place: a ring, or halving for
 *               small blocks
 *     WIDEN     undoes what NARROW did
 *     GATHER    allgather of the blocks in the node (direct)
 *
 * A rank that owns no block has SCATTER and GATHER alone. There is no NARROW and no WIDEN where
 * data travels as it lies.
 *
 * Where ops are the host's and all data of the node lies in the exchange region, stages overlap.
 * SCATTER ends after its first barrier. In BETWEEN an owner adds up its block a slice at a time,
 * in the order in which the ring sends it (gf_flow_there()), and writes each slice that the ring
 * has finished to the other ranks. GATHER is a barrier.
 *
 * Nodes may differ in size. `owners` is the size of the smallest, so every block has an owner in
 * every node. An operation has two numbers in direct's order: SCATTER takes the even one.
 *
 * The collectives of the stages run on the memory and the messages of the operation, which watches
 * the deadline and drains what a failure leaves behind. While an owner is in BETWEEN the others of
 * its node see no flag of it, so it gives them a sign whenever something moves. Their deadline is
 * for a rank that does nothing, not for a slow network.
 *
 * An element is added in rank order in its node, then over nodes in the order of the ring or of
 * halving; halving's does not depend on the element's position. 16-bit data is rounded once in the
 * node, then once a hop. What a 16-bit wire carries of fp32 data is rounded as it leaves the node.
 *
 * In device memory SCATTER and GATHER are gf_coll_direct_device. BETWEEN adds on the device where
 * the link reads that memory, else on the host. Each stage ends with an event that the CPU waits
 * for, because the CPU moves the network in any case. */
#include "ops/node/hierarchy_parts.h"

#define BLOCK_ALIGN_BYTES 64u
#define BEATS_A_DEADLINE 16u
#define SLICE_BYTES_LEAST 65536u /* of messages that are made smaller so that stages overlap */

/* ---- the collectives of the stages ---- */

/* Sets up a collective of a stage, on the memory and the messages of the operation. The stage
 * decides which ranks take part, and in what. */
static struct gf_coll part_of(const struct gf_coll *coll)
{
    struct gf_coll part = *coll;
    part.state = GF_COLL_IDLE;
    return part;
}

static void node_make(struct gf_coll *coll)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    struct gf_coll *node = &own->node;
    own->direct = own->shared;
    own->direct.state = (struct gf_direct_state){0}; /* a rank alone in its node never starts it */
    own->direct.small_bytes = 0;
    own->direct.block_elems = own->block_elems;
    *node = part_of(coll);
    node->kind = (own->in_node != NULL) ? own->in_node : &gf_coll_direct;
    node->own.direct = &own->direct;
    node->ranks = own->nodes->local;
    node->size = own->nodes->local_size;
    node->index = own->nodes->local_index;
}

static gf_status node_start(struct gf_coll *coll, gf_collective collective, uint64_t order,
                            uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    struct gf_coll *node = &own->node;
    own->direct.order = order;
    own->direct.meets = (collective == GF_COLL_REDUCE_SCATTER) && (node->async == NULL);
    node->plan.collective = collective;
    node->state = GF_COLL_IDLE;
    return gf_coll_start(node, now_ns);
}

/* A ring over two nodes has no more rounds than halving, and its stages overlap. */
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

/* A sub-block has two slices: one is added up while the other one is sent. A node whose data is
 * staged, where stages do not overlap, cuts the same way. Mixed nodes do not, because one of
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

static void between_make(struct gf_coll *coll)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    struct gf_coll *between = &own->between;
    size_t elem_bytes = gf_hierarchy_wire_bytes(coll);
    bool by_halving = halves(own, coll->plan.elem_count * elem_bytes);
    uint64_t first;
    uint64_t count;
    gf_hierarchy_block(coll, &first, &count);
    *between = part_of(coll);
    between->kind = by_halving ? &gf_coll_halving : &gf_coll_ring;
    between->own.flow = &own->flow;
    between->slice_bytes = between_slice_bytes(coll);
    between->ranks = own->nodes->across;
    between->size = own->nodes->node_count;
    between->index = own->nodes->node_index;
    between->plan.data = wire_data(coll) + first * elem_bytes;
    between->plan.base = coll->plan.base + first;
    between->plan.elem_count = count;
    if (gf_hierarchy_casts(own)) between->plan.type = own->wire;
    if (!gf_hierarchy_crosses(own)) return;
    between->async = NULL;
    between->queue = own->host.queue;
    between->ops = own->host.ops;
    between->check = own->host.check;
    between->staging = own->host.staging;
}

gf_status gf_hierarchy_part_progress(struct gf_coll *coll, struct gf_coll *part, uint64_t now_ns)
{
    gf_status status;
    if (part->state == GF_COLL_DONE) return GF_OK; /* as a group of one is from the start */
    part->spins = coll->spins;
    part->awaits_core = false;
    status = part->kind->progress(part, now_ns);
    coll->awaits_core = part->awaits_core;
    coll->awaits_device = part->awaits_device;
    coll->waits_for = part->waits_for;
    if (part->moved_ns > coll->moved_ns) coll->moved_ns = part->moved_ns;
    coll->bytes_done += part->bytes_done;
    coll->bytes_mapped += part->bytes_mapped;
    part->bytes_done = 0;
    part->bytes_mapped = 0;
    if (status == GF_OK) part->state = GF_COLL_DONE;
    return status;
}

/* ---- signs of life ---- */

static size_t beat_at(const struct gf_hierarchy *own, uint32_t writer)
{
    return gf_direct_slots_at(&own->shared, 2 * own->shared.order + 1) +
           writer * sizeof(struct gf_direct_slot) + offsetof(struct gf_direct_slot, beat);
}

/* Gives the others of the node a sign where messages were posted or have ended since the last one;
 * at most BEATS_A_DEADLINE of them a deadline, because each writes into every rank's memory. A rank
 * that sleeps is not woken: it sees the sign when it wakes by itself. */
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

/* Has the awaited rank of this node given a sign since the last call? The first call for a rank
 * only notes the sign that it finds. */
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

/* ---- stages ---- */

static bool has_always(const struct gf_hierarchy *own)
{
    (void)own;
    return true;
}

static bool owns_block(const struct gf_hierarchy *own)
{
    return own->nodes->local_index < own->nodes->owners;
}

/* Where stages overlap, BETWEEN casts slice by slice. */
static bool block_changes(const struct gf_hierarchy *own)
{
    return owns_block(own) && !own->overlaps &&
           (gf_hierarchy_casts(own) || gf_hierarchy_crosses(own));
}

static gf_status scatter_start(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    node_make(coll);
    return node_start(coll, GF_COLL_REDUCE_SCATTER, 2 * own->shared.order, now_ns);
}

static gf_status scatter_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    gf_status status = gf_hierarchy_part_progress(coll, &own->node, now_ns);
    if (status == GF_OK) own->overlaps = own->direct.meets && !own->direct.state.any_staged;
    return status;
}

static gf_status between_start(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    gf_status status;
    between_make(coll);
    status = gf_coll_start(&own->between, now_ns);
    return ((status >= 0) && own->overlaps) ? gf_hierarchy_overlapped_start(coll) : status;
}

static gf_status between_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    gf_status status = own->overlaps ? gf_hierarchy_overlapped_progress(coll, now_ns)
                                     : gf_hierarchy_part_progress(coll, &own->between, now_ns);
    if (status == GF_AGAIN) beat(coll, now_ns);
    return status;
}

static gf_status gather_start(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    gf_collective collective = own->overlaps ? GF_COLL_BARRIER : GF_COLL_ALLGATHER;
    return node_start(coll, collective, 2 * own->shared.order + 1, now_ns);
}

static gf_status gather_progress(struct gf_coll *coll, uint64_t now_ns)
{
    gf_status status = gf_hierarchy_part_progress(coll, &coll->own.hierarchy->node, now_ns);
    if ((status == GF_AGAIN) && heard(coll)) coll->moved_ns = now_ns;
    return status;
}

static const struct stage {
    bool (*has)(const struct gf_hierarchy *own); /* does this rank have it in this operation? */
    gf_status (*start)(struct gf_coll *coll, uint64_t now_ns);
    gf_status (*progress)(struct gf_coll *coll, uint64_t now_ns);
} stages[] = {
    [GF_HIERARCHY_SCATTER] = {has_always, scatter_start, scatter_progress},
    [GF_HIERARCHY_NARROW] = {block_changes, gf_hierarchy_block_start, gf_hierarchy_block_progress},
    [GF_HIERARCHY_BETWEEN] = {owns_block, between_start, between_progress},
    [GF_HIERARCHY_WIDEN] = {block_changes, gf_hierarchy_block_start, gf_hierarchy_block_progress},
    [GF_HIERARCHY_GATHER] = {has_always, gather_start, gather_progress},
};

/* ---- what coll.c calls ---- */

static gf_status hierarchy_start(struct gf_coll *coll)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint32_t owners = own->nodes->owners;
    uint64_t unit =
        BLOCK_ALIGN_BYTES / (own->mixed ? gf_type_bytes(own->cut) : gf_coll_elem_bytes(coll));
    uint64_t share; /* of an owner; its block is as many units as hold that */
    GF_ASSERT((coll->plan.reduce == NULL) && (owners > 0) && (owners <= own->nodes->local_size));
    GF_ASSERT(own->nodes->local_size <= coll->size);
    own->overlaps = false;
    own->heard_from = GF_RANK_NONE;
    own->heard = 0;
    own->beats = 0;
    own->beat_ns = coll->moved_ns;
    share = coll->plan.elem_count / owners + (coll->plan.elem_count % owners != 0);
    own->block_elems = (share + unit - 1) / unit * unit;
    if (own->block_elems == 0) own->block_elems = unit;
    own->stage = GF_HIERARCHY_SCATTER;
    return stages[own->stage].start(coll, coll->moved_ns);
}

/* The stage that has ended is not the last one. */
static gf_status stage_next(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    do {
        own->stage++;
    } while (!stages[own->stage].has(own));
    coll->moved_ns = now_ns;
    coll->waits_for = GF_RANK_NONE;
    return stages[own->stage].start(coll, now_ns);
}

/* A stage begins in the poll in which the one before it ends, unless that poll has worked on a
 * slice: no other rank need wake this one for what it can do by itself. */
static gf_status hierarchy_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint64_t mapped = coll->bytes_mapped;
    for (;;) {
        gf_status status = stages[own->stage].progress(coll, now_ns);
        if ((status != GF_OK) || (own->stage == GF_HIERARCHY_GATHER)) return status;
        status = stage_next(coll, now_ns);
        if (status < 0) return status;
        if (coll->bytes_mapped != mapped) return GF_AGAIN;
    }
}

/* For all nodes that these ranks may lie on: no stage needs more than this. */
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
    .progress = hierarchy_progress,
};
