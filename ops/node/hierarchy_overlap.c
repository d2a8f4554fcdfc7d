/* The stage BETWEEN of hierarchy where it does the work of SCATTER and GATHER, too: ops are the
 * host's, and all data of the node lies in the exchange region.
 *
 * An owner's block is cut into a sub-block a node. Slice by slice it goes through three steps:
 *
 *     summed      this rank adds up the node's ranks; then the ring may send it (gf_flow_there())
 *     the ring    sends sub-block after sub-block
 *     gathered    what is summed over all nodes (flow.recv_done) goes to the node's ranks
 *
 * at->sub counts sub-blocks in the order of the ring: sub-block k of `summed` is the one sent in
 * round k; sub-block k of `gathered` is the one that is whole after round subs - 2 + k. Which ones
 * these are, of 3 nodes, in node 0:
 *
 *     k           0   1   2
 *     summed      2   1   0
 *     gathered    0   2   1
 *
 * Halving has one sub-block: all is summed, then it runs, then all is gathered. */
#include "ops/node/hierarchy_parts.h"

struct sub_slice {
    uint64_t first; /* elements of the operation */
    uint64_t count;
};

/* The rest of sub-block `at`, or of the next one that has a rest. False: there is none. */
static bool sub_rest(const struct gf_coll *coll, struct gf_hierarchy_at *at, bool gathers,
                     struct sub_slice *rest_out)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    uint32_t subs = gf_hierarchy_subs(own);
    uint32_t from = own->nodes->node_index + 2 * subs - (gathers ? 0 : 1);
    uint64_t first;
    uint64_t count;
    gf_hierarchy_block(coll, &first, &count);
    for (; at->sub < subs; at->sub++) {
        uint64_t sub_first;
        uint64_t sub_count;
        gf_coll_block(count, subs, (from - at->sub) % subs, &sub_first, &sub_count);
        rest_out->first = first + sub_first + at->elems;
        rest_out->count = sub_count - at->elems;
        if (rest_out->count > 0) return true;
        at->elems = 0;
    }
    return false;
}

/* How many elements of sub-block at->sub of `gathered`, from its begin on, are summed over all
 * nodes. */
static uint64_t sub_ready(const struct gf_hierarchy *own, const struct gf_hierarchy_at *at)
{
    const struct gf_flow_at *done = &own->flow.recv_done;
    uint32_t last_round = gf_hierarchy_subs(own) - 2 + at->sub;
    if (own->between.state == GF_COLL_DONE) return UINT64_MAX;
    if (gf_hierarchy_subs(own) == 1) return 0;
    if (done->round > last_round) return UINT64_MAX;
    return (done->round == last_round) ? done->slice * own->flow.slice_elems : 0;
}

/* The next slice that can be added up, or given to the others. False: there is none now. */
static bool slice_next(struct gf_coll *coll, struct gf_hierarchy_at *at, bool gathers,
                       struct sub_slice *slice_out)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    uint64_t most = own->between.slice_bytes / gf_coll_elem_bytes(coll);
    uint64_t ready = UINT64_MAX;
    if (!sub_rest(coll, at, gathers, slice_out)) return false;
    if (gathers) ready = sub_ready(own, at);
    if (ready <= at->elems) return false;
    if (slice_out->count > ready - at->elems) slice_out->count = ready - at->elems;
    if (slice_out->count > most) slice_out->count = most;
    return true;
}

/* Combines one slice in the node: adds it up, or gathers it. */
static gf_status slice_combine(struct gf_coll *coll, gf_collective collective,
                               const struct sub_slice *slice)
{
    struct gf_coll *node = &coll->own.hierarchy->node;
    gf_status status = GF_OK;
    node->plan.collective = collective;
    if (node->size > 1) status = gf_direct_combine(node, 0, slice->first, 0, slice->count);
    if (status < 0) coll->waits_for = node->waits_for;
    return status;
}

static void slice_done(struct gf_coll *coll, struct gf_hierarchy_at *at, uint64_t count,
                       uint64_t now_ns)
{
    struct gf_coll *node = &coll->own.hierarchy->node;
    at->elems += count;
    coll->bytes_mapped += node->bytes_mapped;
    node->bytes_mapped = 0;
    coll->moved_ns = now_ns;
}

/* Adds up one slice in the node, and casts it to what the ring takes. */
static gf_status slice_sum(struct gf_coll *coll, const struct sub_slice *slice, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    gf_status status = slice_combine(coll, GF_COLL_REDUCE_SCATTER, slice);
    if ((status >= 0) && gf_hierarchy_casts(own))
        status = gf_hierarchy_cast(coll, true, slice->first, slice->count);
    if (status < 0) return status;
    slice_done(coll, &own->summed, slice->count, now_ns);
    return GF_OK;
}

/* Casts the sum of all nodes back, and gives it to the other ranks of the node. */
static gf_status slice_gather(struct gf_coll *coll, const struct sub_slice *slice, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    gf_status status = GF_OK;
    if (gf_hierarchy_casts(own))
        status = gf_hierarchy_cast(coll, false, slice->first, slice->count);
    if (status >= 0) status = slice_combine(coll, GF_COLL_ALLGATHER, slice);
    if (status < 0) return status;
    slice_done(coll, &own->gathered, slice->count, now_ns);
    return GF_OK;
}

gf_status gf_hierarchy_overlapped_start(struct gf_coll *coll)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    own->summed = (struct gf_hierarchy_at){0};
    own->gathered = (struct gf_hierarchy_at){0};
    /* A ring that starts takes all of its data to be there; but nothing is added up yet. */
    if (gf_hierarchy_subs(own) > 1) gf_flow_there(&own->flow, 0, 0);
    return GF_OK;
}

/* The ring is fed first: a slice is gathered only in a poll that has none to sum. */
gf_status gf_hierarchy_overlapped_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    struct gf_coll *between = &own->between;
    uint32_t subs = gf_hierarchy_subs(own);
    struct sub_slice slice;
    gf_status status = GF_OK;
    bool sums = slice_next(coll, &own->summed, false, &slice);
    if (sums) status = slice_sum(coll, &slice, now_ns);
    if (status < 0) return status;
    /* sub-block k is sent in round k */
    if (subs > 1) gf_flow_there(&own->flow, own->summed.sub, own->summed.elems);
    if ((subs > 1) || !sums) status = gf_hierarchy_part_progress(coll, between, now_ns);
    if (status < 0) return status;
    if (sums) return GF_AGAIN;
    if (slice_next(coll, &own->gathered, true, &slice)) status = slice_gather(coll, &slice, now_ns);
    if (status < 0) return status;
    /* its sends have ended, too */
    return ((own->gathered.sub == subs) && (between->state == GF_COLL_DONE)) ? GF_OK : GF_AGAIN;
}
