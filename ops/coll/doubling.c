/* Recursive doubling: in round l each rank swaps its whole vector with the rank whose number
 * differs in bit l and adds what it got, log2(n) rounds. Both add the same two values, so all end
 * with the same bits; who adds what depends on ranks alone. With p the largest power of two in n,
 * ranks from p up first give their vector to rank - p and get the result at the end. A barrier is
 * the same with a token for a vector. */
#include "ops/coll/flow.h"

static void doubling_round(const struct gf_coll *coll, uint32_t number, struct gf_round *round_out)
{
    uint32_t levels = gf_log2_floor(coll->size);
    uint32_t power = 1u << levels;
    uint32_t level = number - (coll->size != power);
    uint64_t elem_count = gf_flow_elems(coll);
    bool is_extra = coll->index >= power;
    bool has_extra = coll->index + power < coll->size;

    if (number > 0) round_out->send.after = number - 1;
    if (level < levels) {
        if (is_extra) return;
        round_out->send.peer = round_out->recv.peer = coll->index ^ (1u << level);
        round_out->send.count = round_out->recv.count = elem_count;
        round_out->reduce = true;
        round_out->recv.after = number; /* the sum goes where the send of this round reads */
    } else if (number == 0) {
        round_out->send.peer = coll->index - power;
        round_out->send.count = is_extra ? elem_count : 0;
        round_out->recv.peer = coll->index + power;
        round_out->recv.count = has_extra ? elem_count : 0;
        round_out->reduce = true;
    } else {
        round_out->send.peer = coll->index + power;
        round_out->send.count = has_extra ? elem_count : 0;
        round_out->recv.peer = coll->index - power;
        round_out->recv.count = is_extra ? elem_count : 0;
        round_out->reduce =
            coll->plan.collective == GF_COLL_BARRIER; /* a token must not land in data */
        round_out->recv.after = 0;
    }
}

static uint32_t doubling_shape(gf_collective collective, uint32_t size, uint64_t elem_count,
                               uint64_t *longest_out)
{
    uint32_t levels = gf_log2_floor(size);
    (void)collective;
    *longest_out = elem_count;
    return levels + ((size != 1u << levels) ? 2 : 0);
}

const struct gf_coll_kind gf_coll_doubling = {
    .name = "doubling",
    .collectives = 1u << GF_COLL_ALLREDUCE | 1u << GF_COLL_BARRIER,
    .shape = doubling_shape,
    .round = doubling_round,
    .need = gf_flow_need,
    .start = gf_flow_start,
    .progress = gf_flow_progress,
};
