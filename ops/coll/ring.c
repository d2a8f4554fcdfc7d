/* Ring: every rank sends to its right and receives from its left, a block a round, 2(n-1) rounds of
 * 1/n of the data.
 *     round m: send block (index - m - 1), receive block (index - m - 2), modulo n
 * In the first n-1 rounds (reduce-scatter) an arrival is added to ours and travels on in the next
 * round; the last one added is block `index`, so reduce-scatter leaves each rank its own block, and
 * allgather is just the other n-1 rounds. Which rank begins the sum of an element depends on its
 * block: not deterministic under a shift of the data. */
#include "ops/coll/flow.h"

static uint32_t ring_block(const struct gf_coll *coll, uint32_t back)
{
    return (coll->index + 2 * coll->size - back % coll->size) % coll->size;
}

static void ring_round(const struct gf_coll *coll, uint32_t number, struct gf_round *round_out)
{
    uint32_t first = (coll->plan.collective == GF_COLL_ALLGATHER) ? coll->size - 1 : 0;
    uint32_t round = first + number;
    round_out->send.peer = (coll->index + 1) % coll->size;
    round_out->recv.peer = (coll->index + coll->size - 1) % coll->size;
    gf_coll_block(coll->plan.elem_count, coll->size, ring_block(coll, round + 1),
                  &round_out->send.first, &round_out->send.count);
    gf_coll_block(coll->plan.elem_count, coll->size, ring_block(coll, round + 2),
                  &round_out->recv.first, &round_out->recv.count);
    round_out->reduce = round < coll->size - 1;
    if (number > 0) round_out->send.after = number - 1;
    /* Allgather overwrites what reduce-scatter sent n-1 rounds before. */
    if (!round_out->reduce && (first == 0)) round_out->recv.after = round + 1 - coll->size;
}

static uint32_t ring_shape(gf_collective collective, uint32_t size, uint64_t elem_count,
                           uint64_t *longest_out)
{
    *longest_out = elem_count / size + (elem_count % size != 0);
    return (size - 1) * ((collective == GF_COLL_ALLREDUCE) ? 2 : 1);
}

const struct gf_coll_kind gf_coll_ring = {
    .name = "ring",
    .collectives = 1u << GF_COLL_ALLREDUCE | 1u << GF_COLL_REDUCE_SCATTER | 1u << GF_COLL_ALLGATHER,
    .shape = ring_shape,
    .round = ring_round,
    .need = gf_flow_need,
    .start = gf_flow_start,
    .progress = gf_flow_progress,
};
