/* Hierarchy: allreduce over ranks of which those of a node share memory. Three collectives, one after the other:
 *     SCATTER   in the node, direct reduce-scatter: its first `owners` ranks get a block each, the node's sum
 *     BETWEEN   the owners of the same block, one a node: ring, or halving for small blocks, in place
 *     GATHER    in the node, direct allgather of the blocks
 * Nodes may differ in size: `owners` is the smallest, so every block has an owner in every node; further ranks of a node
 * take part in SCATTER and GATHER alone. Of an operation's two tickets in direct's lanes SCATTER has the even one.
 *
 * The inner collective runs on the memory and the messages of the outer one, which watches the deadline and drains what
 * a failure leaves behind. While an owner is in BETWEEN the others of its node see no flag of it, so it gives them a sign
 * whenever something moves: their deadline is for a rank that does nothing, not for a slow network.
 *
 * An element is added in rank order in its node, then as ring or halving does over nodes: with halving the order does
 * not depend on the position. 16-bit values are rounded once in the node, then once a hop. */
#include "ops/node/direct.h"
#include "ops/coll/flow.h"

#include <string.h>

#define BLOCK_ALIGN_BYTES 64u

enum hierarchy_phase { PHASE_SCATTER, PHASE_BETWEEN, PHASE_GATHER, PHASE_COUNT };

struct hierarchy {
    uint64_t phase;
    uint64_t block_elems;  /* of all blocks but the last ones */
    uint64_t beats;        /* messages posted and ended as of the last sign */
    uint64_t heard;        /* the last sign of the rank that GATHER waits for, .. */
    uint32_t heard_from;   /* .. which is this one of the node; GF_RANK_NONE */
    struct gf_check check; /* of BETWEEN, counted from the block's first element */
};
_Static_assert(sizeof(struct hierarchy) <= sizeof(((struct gf_coll *)NULL)->u), "fits");

static struct hierarchy *hierarchy_of(struct gf_coll *coll)
{
    return (struct hierarchy *)(void *)coll->u.words;
}

/* This rank's block; empty where it owns none. */
static void own_block(struct gf_coll *coll, uint64_t *first_out, uint64_t *count_out)
{
    uint64_t block_elems = hierarchy_of(coll)->block_elems, first = block_elems * coll->nodes->local_index;
    if (first > coll->elem_count) first = coll->elem_count;
    *first_out = first;
    *count_out = (coll->elem_count - first < block_elems) ? coll->elem_count - first : block_elems;
}

/* ---- phases ---- */

static void in_node(struct gf_coll *coll, gf_coll_op op, uint64_t ticket)
{
    struct gf_coll *inner = coll->inner;
    inner->kind = &gf_coll_direct;
    inner->op = op;
    inner->members = coll->nodes->local;
    inner->size = coll->nodes->local_size;
    inner->index = coll->nodes->local_index;
    inner->direct.ticket = ticket;
    inner->direct.small_bytes = 0;
    inner->direct.block_elems = hierarchy_of(coll)->block_elems;
}

static void between_nodes(struct gf_coll *coll)
{
    struct hierarchy *own = hierarchy_of(coll);
    struct gf_coll *inner = coll->inner;
    size_t elem_bytes = gf_coll_elem_bytes(coll);
    uint64_t first, count;
    own_block(coll, &first, &count);
    own->check = (struct gf_check){.bad_first = UINT64_MAX};
    inner->kind = (count * elem_bytes <= coll->nodes->halving_max_bytes) ? &gf_coll_halving : &gf_coll_ring;
    inner->members = coll->nodes->across;
    inner->size = coll->nodes->node_count;
    inner->index = coll->nodes->node_index;
    inner->data = coll->data + first * elem_bytes;
    inner->elem_count = count;
    inner->check = (coll->check != NULL) ? &own->check : NULL;
}

static gf_status phase_start(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_coll *inner = coll->inner;
    *inner = *coll;
    inner->inner = NULL;
    inner->state = GF_COLL_IDLE;
    switch ((enum hierarchy_phase)hierarchy_of(coll)->phase) {
    case PHASE_SCATTER: in_node(coll, GF_COLL_REDUCE_SCATTER, 2 * coll->direct.ticket); break;
    case PHASE_BETWEEN: between_nodes(coll); break;
    case PHASE_GATHER:  in_node(coll, GF_COLL_ALLGATHER, 2 * coll->direct.ticket + 1); break;
    case PHASE_COUNT:   GF_ASSERT(false); break;
    }
    return gf_coll_start(inner, now_ns);
}

static void between_ended(struct gf_coll *coll)
{
    const struct gf_check *met = &hierarchy_of(coll)->check;
    uint64_t first, count;
    if ((coll->check == NULL) || (met->bad_count == 0)) return;
    own_block(coll, &first, &count);
    coll->check->bad_count += met->bad_count;
    if (first + met->bad_first < coll->check->bad_first) coll->check->bad_first = first + met->bad_first;
}

/* GF_OK: there is another one. */
static gf_status phase_next(struct gf_coll *coll, uint64_t now_ns)
{
    struct hierarchy *own = hierarchy_of(coll);
    if (own->phase == PHASE_BETWEEN) between_ended(coll);
    own->phase++;
    if ((own->phase == PHASE_BETWEEN) && (coll->nodes->local_index >= coll->nodes->owners)) own->phase++;
    coll->moved_ns = now_ns;
    coll->waits_for = GF_RANK_NONE;
    return phase_start(coll, now_ns);
}

/* ---- signs of life ---- */

static size_t beat_at(const struct gf_coll *coll, uint32_t writer)
{
    struct gf_coll_shared shared = coll->direct;
    shared.ticket = 2 * coll->direct.ticket + 1;
    return gf_direct_beat_at(&shared, writer);
}

static void beat(struct gf_coll *coll)
{
    const struct gf_link_driver *driver = coll->link->driver;
    const struct gf_coll_nodes *nodes = coll->nodes;
    const struct gf_flow *flow = &coll->inner->u.flow;
    uint64_t moved = flow->sent.count + flow->send_done.count + flow->recvd.count + flow->recv_done.count;
    uint64_t value = (coll->direct.ticket << 32) + moved; /* not what an earlier operation left */
    if (moved == hierarchy_of(coll)->beats) return;
    hierarchy_of(coll)->beats = moved;
    for (uint32_t i = 0; i < nodes->local_size; i++) {
        if ((i == nodes->local_index) || (driver->map(coll->link, nodes->local[i]) == NULL)) continue;
        driver->flag_store(coll->link, nodes->local[i], beat_at(coll, nodes->local_index), value);
    }
}

/* Has the awaited rank of this node given a sign since the last look? */
static bool heard(struct gf_coll *coll)
{
    struct hierarchy *own = hierarchy_of(coll);
    uint32_t from = (uint32_t)gf_direct_of(coll->inner)->arrived;
    bool is_new = from != own->heard_from;
    uint64_t value;
    if (from >= coll->nodes->local_size) return false;
    value = coll->link->driver->flag_load(coll->link, beat_at(coll, from));
    is_new = !is_new && (value != own->heard);
    own->heard_from = from;
    own->heard = value;
    return is_new;
}

/* ---- what coll.c calls ---- */

static gf_status hierarchy_start(struct gf_coll *coll)
{
    struct hierarchy *own = hierarchy_of(coll);
    const struct gf_coll_nodes *nodes = coll->nodes;
    uint64_t unit = BLOCK_ALIGN_BYTES / gf_coll_elem_bytes(coll);
    GF_ASSERT((nodes != NULL) && (coll->inner != NULL) && (coll->fold == NULL));
    GF_ASSERT((nodes->owners > 0) && (nodes->owners <= nodes->local_size) && (nodes->local_size <= coll->size));
    memset(own, 0, sizeof *own);
    own->heard_from = GF_RANK_NONE;
    own->block_elems = (coll->elem_count / nodes->owners + (coll->elem_count % nodes->owners != 0) + unit - 1) / unit * unit;
    if (own->block_elems == 0) own->block_elems = unit;
    return phase_start(coll, coll->begin_ns);
}

/* A turn of the phase under way. */
static gf_status phase_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_coll *inner = coll->inner;
    gf_status status = GF_OK;
    if (inner->state != GF_COLL_DONE) { /* as a group of one is from the start */
        inner->spins = coll->spins;
        inner->direct.near = false;
        status = inner->kind->turn(inner, now_ns);
        coll->direct.near = inner->direct.near;
        coll->waits_for = inner->waits_for;
        if (inner->moved_ns > coll->moved_ns) coll->moved_ns = inner->moved_ns;
        coll->bytes_done += inner->bytes_done;
        coll->bytes_mapped += inner->bytes_mapped;
        inner->bytes_done = inner->bytes_mapped = 0;
    }
    return status;
}

/* A phase begins in the turn in which the one before it ends, unless that turn has worked on a slice: nobody may wake
 * this rank for what it can do by itself. */
static gf_status hierarchy_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct hierarchy *own = hierarchy_of(coll);
    for (;;) {
        uint64_t mapped = coll->bytes_mapped;
        gf_status status = phase_progress(coll, now_ns);
        if (status < 0) return status;
        if (status == GF_AGAIN) {
            if (own->phase == PHASE_BETWEEN) beat(coll);
            if ((own->phase == PHASE_GATHER) && heard(coll)) coll->moved_ns = now_ns;
            return GF_AGAIN;
        }
        if (own->phase == PHASE_GATHER) return GF_OK;
        if ((status = phase_next(coll, now_ns)) < 0) return status;
        if (coll->bytes_mapped != mapped) return GF_AGAIN;
    }
}

static bool hierarchy_supports(gf_coll_op op)
{
    return op == GF_COLL_ALLREDUCE;
}

/* For whatever nodes these ranks may lie on: not less than any part asks for. */
static void hierarchy_need(const struct gf_coll_limits *limits, struct gf_coll_need *need_out)
{
    struct gf_coll_limits node = *limits;
    struct gf_coll_need direct = {0};
    if (node.size > GF_DIRECT_RANKS_MAX) node.size = GF_DIRECT_RANKS_MAX;
    gf_coll_direct.need(&node, &direct);
    gf_flow_need(limits, UINT32_MAX, limits->bytes_max + GF_COLL_ELEM_BYTES_MAX, need_out);
    if (direct.staging_bytes > need_out->staging_bytes) need_out->staging_bytes = direct.staging_bytes;
}

const struct gf_coll_kind gf_coll_hierarchy = {
    .name = "hierarchy",
    .deterministic = false, /* nodes->halving_max_bytes decides */
    .supports = hierarchy_supports,
    .need = hierarchy_need,
    .start = hierarchy_start,
    .turn = hierarchy_progress,
};
