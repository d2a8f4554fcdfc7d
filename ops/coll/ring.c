/* Ring: every rank sends to its right and receives from its left, a block a round, 2(n-1) rounds of 1/n of the data.
 *     round m: send block (index - m - 1), receive block (index - m - 2), modulo n
 * In the first n-1 rounds (reduce-scatter) an arrival is added to ours and travels on in the next round; the last one
 * added is block `index`, so reduce-scatter leaves each rank its own block, and allgather is just the other n-1 rounds.
 * Which rank begins the sum of an element depends on its block: not deterministic under a shift of the data. */
#include "ops/coll/flow.h"

static uint32_t ring_block(const struct gf_coll *coll, uint32_t back)
{
    return (coll->index + 2 * coll->size - back % coll->size) % coll->size;
}

static void ring_round(const struct gf_coll *coll, uint32_t number, struct gf_round *round_out)
{
    uint32_t first = (coll->collective == GF_COLL_ALLGATHER) ? coll->size - 1 : 0;
    uint32_t move = first + number;
    round_out->send_peer = (coll->index + 1) % coll->size;
    round_out->recv_peer = (coll->index + coll->size - 1) % coll->size;
    gf_coll_block(coll->elem_count, coll->size, ring_block(coll, move + 1), &round_out->send_first,
                  &round_out->send_count);
    gf_coll_block(coll->elem_count, coll->size, ring_block(coll, move + 2), &round_out->recv_first,
                  &round_out->recv_count);
    round_out->fold = move < coll->size - 1;
    if (number > 0) round_out->send_after = number - 1;
    round_out->timed = (number == 0) ? 1 : 0;
    /* Allgather overwrites what reduce-scatter sent n-1 rounds before. */
    if (!round_out->fold && (first == 0)) round_out->recv_after = move + 1 - coll->size;
}

static bool ring_supports(gf_collective collective)
{
    return (collective == GF_COLL_ALLREDUCE) || (collective == GF_COLL_REDUCE_SCATTER) ||
           (collective == GF_COLL_ALLGATHER);
}

static void ring_need(const struct gf_coll_limits *limits, struct gf_coll_need *need_out)
{
    /* A block, rounded up to an element of any size. */
    gf_flow_need(limits, 2 * (limits->size - 1), limits->bytes_max / limits->size + GF_COLL_ELEM_BYTES_MAX, need_out);
}

static gf_status ring_start(struct gf_coll *coll)
{
    uint64_t first, block_elems;
    gf_coll_block(coll->elem_count, coll->size, 0, &first, &block_elems);
    gf_flow_start(coll, (coll->size - 1) * ((coll->collective == GF_COLL_ALLREDUCE) ? 2 : 1), block_elems, ring_round);
    return GF_OK;
}

const struct gf_coll_kind gf_coll_ring = {
    .name = "ring",
    .supports = ring_supports,
    .need = ring_need,
    .start = ring_start,
    .turn = gf_flow_progress,
};
