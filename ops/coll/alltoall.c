/* All-to-all: each rank sends every other one its block, folds the n-1 blocks that come for its own, and sends the
 * result to all: 2(n-1) messages of 1/n of the data, like the ring's, but each value is folded by one rank alone. So
 * what is quantized is so twice at any number of ranks (lib/quantize/).
 *     round m < n-1: block of rank index + 1 + m to it; own block from rank index - 1 - m, folded
 *     round n-1 + m: own block to the same rank; the block of rank index - 1 - m from it
 * The order of adding begins with the owner: it depends on the position in the data. */
#include "ops/coll/flow.h"

static void alltoall_round(const struct gf_coll *coll, uint32_t number, struct gf_round *round_out)
{
    uint32_t others = coll->size - 1, turn = number % others;
    bool is_back = number >= others;
    uint32_t to = (coll->index + 1 + turn) % coll->size, from = (coll->index + coll->size - 1 - turn) % coll->size;
    round_out->send_peer = to;
    round_out->recv_peer = from;
    uint32_t sent = is_back ? coll->index : to, received = is_back ? from : coll->index;
    gf_coll_block(coll->elem_count, coll->size, sent, &round_out->send_first, &round_out->send_count);
    gf_coll_block(coll->elem_count, coll->size, received, &round_out->recv_first, &round_out->recv_count);
    round_out->fold = !is_back;
    if (!is_back) return;
    round_out->send_after = others - 1;        /* the last one folded */
    round_out->recv_after = others - 1 - turn; /* in which that rank's block went to it */
}

static bool alltoall_supports(gf_collective collective)
{
    return collective == GF_COLL_ALLREDUCE;
}

static void alltoall_need(const struct gf_coll_limits *limits, struct gf_coll_need *need_out)
{
    gf_flow_need(limits, 2 * (limits->size - 1), limits->bytes_max / limits->size + GF_COLL_ELEM_BYTES_MAX, need_out);
}

static gf_status alltoall_start(struct gf_coll *coll)
{
    uint64_t first, block_elems;
    gf_coll_block(coll->elem_count, coll->size, 0, &first, &block_elems);
    gf_flow_start(coll, 2 * (coll->size - 1), block_elems, alltoall_round);
    return GF_OK;
}

const struct gf_coll_kind gf_coll_alltoall = {
    .name = "alltoall",
    .supports = alltoall_supports,
    .need = alltoall_need,
    .start = alltoall_start,
    .turn = gf_flow_progress,
};
