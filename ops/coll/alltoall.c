/* All-to-all: each rank sends every other one its block, folds the n-1 blocks that come for its
 * own, and sends the result to all: 2(n-1) messages of 1/n of the data, like the ring's, but each
 * value is folded by one rank alone. So what is quantized is so twice at any number of ranks
 * (lib/quantize/).
 *     round m < n-1: block of rank index + 1 + m to it; own block from rank index - 1 - m, folded
 *     round n-1 + m: own block to the same rank; the block of rank index - 1 - m from it
 * The order of adding begins with the owner: it depends on the position in the data. */
#include "ops/coll/flow.h"

static void alltoall_round(const struct gf_coll *coll, uint32_t number, struct gf_round *round_out)
{
    uint32_t others = coll->size - 1;
    uint32_t turn = number % others;
    bool is_back = number >= others;
    uint32_t to = (coll->index + 1 + turn) % coll->size;
    uint32_t from = (coll->index + coll->size - 1 - turn) % coll->size;
    round_out->send.peer = to;
    round_out->recv.peer = from;
    uint32_t sent = is_back ? coll->index : to;
    uint32_t received = is_back ? from : coll->index;
    gf_coll_block(coll->elem_count, coll->size, sent, &round_out->send.first,
                  &round_out->send.count);
    gf_coll_block(coll->elem_count, coll->size, received, &round_out->recv.first,
                  &round_out->recv.count);
    round_out->fold = !is_back;
    if (!is_back) return;
    round_out->send.after = others - 1;        /* the last one folded */
    round_out->recv.after = others - 1 - turn; /* in which that rank's block went to it */
}

static uint32_t alltoall_shape(gf_collective collective, uint32_t size, uint64_t elem_count,
                               uint64_t *longest_out)
{
    (void)collective;
    *longest_out = elem_count / size + (elem_count % size != 0);
    return 2 * (size - 1);
}

const struct gf_coll_kind gf_coll_alltoall = {.name = "alltoall",
                                              .collectives = 1u << GF_COLL_ALLREDUCE,
                                              .shape = alltoall_shape,
                                              .round = alltoall_round,
                                              GF_FLOW};
