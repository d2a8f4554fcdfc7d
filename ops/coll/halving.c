/* Recursive halving, then doubling: in round l each rank keeps half of its range, sends the other
 * half to the rank whose number differs in bit l and adds the half it gets; the way back is the
 * same in reverse, without adding. The ring's bytes in 2 log2(n) rounds. Near ranks swap the large
 * halves. Each sum is built over the same pairs of ranks wherever the element lies, so the result
 * does not depend on its position. With p the largest power of two in n, ranks from p up first give
 * their vector to rank - p and get the result at the end. */
#include "ops/coll/flow.h"

/* The range that a rank still has after `level` halvings; low halves are the larger ones. */
static void halving_range(const struct gf_coll *coll, uint32_t rank, uint32_t level,
                          uint64_t *first_out, uint64_t *count_out)
{
    uint64_t first = 0;
    uint64_t count = coll->plan.elem_count;
    for (uint32_t l = 0; l < level; l++) {
        uint64_t low = count - count / 2;
        bool is_high = (rank >> l) & 1;
        if (is_high) first += low;
        count = is_high ? count - low : low;
    }
    *first_out = first;
    *count_out = count;
}

static void halving_round(const struct gf_coll *coll, uint32_t number, struct gf_round *round_out)
{
    uint32_t levels = gf_log2_floor(coll->size);
    uint32_t power = 1u << levels;
    uint32_t before = coll->size != power; /* rounds before the first level */
    uint32_t round = number - before;
    bool is_extra = coll->index >= power;
    bool has_extra = coll->index + power < coll->size;

    if (number > 0) round_out->send.after = number - 1;
    if (round < 2 * levels) {
        bool is_back = round >= levels;
        uint32_t level = is_back ? 2 * levels - 1 - round : round;
        uint32_t peer = coll->index ^ (1u << level);
        if (is_extra) return;
        round_out->send.peer = round_out->recv.peer = peer;
        round_out->reduce = !is_back;
        halving_range(coll, is_back ? coll->index : peer, level + 1, &round_out->send.first,
                      &round_out->send.count);
        halving_range(coll, is_back ? peer : coll->index, level + 1, &round_out->recv.first,
                      &round_out->recv.count);
        if (is_back) round_out->recv.after = before + level; /* which sent this half away */
    } else if (number == 0) {
        round_out->send.peer = coll->index - power;
        round_out->send.count = is_extra ? coll->plan.elem_count : 0;
        round_out->recv.peer = coll->index + power;
        round_out->recv.count = has_extra ? coll->plan.elem_count : 0;
        round_out->reduce = true;
    } else {
        round_out->send.peer = coll->index + power;
        round_out->send.count = has_extra ? coll->plan.elem_count : 0;
        round_out->recv.peer = coll->index - power;
        round_out->recv.count = is_extra ? coll->plan.elem_count : 0;
        round_out->recv.after = 0;
    }
}

static uint32_t halving_shape(gf_collective collective, uint32_t size, uint64_t elem_count,
                              uint64_t *longest_out)
{
    uint32_t levels = gf_log2_floor(size);
    bool has_extras = size != 1u << levels;
    (void)collective;
    *longest_out = has_extras ? elem_count : elem_count - elem_count / 2;
    return 2 * levels + (has_extras ? 2 : 0);
}

const struct gf_coll_kind gf_coll_halving = {
    .name = "halving",
    .collectives = 1u << GF_COLL_ALLREDUCE,
    .shape = halving_shape,
    .round = halving_round,
    .need = gf_flow_need,
    .start = gf_flow_start,
    .progress = gf_flow_progress,
};
