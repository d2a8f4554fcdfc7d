/* Binomial trees (FireCaffe's reduction tree): sums go up to the root, log2(n) rounds, then the
 * result goes down. Whole vectors in slices, so a rank passes a slice on while the next ones
 * arrive. Ranks are counted from the root; on level l of the way up, ranks whose lowest set bit is
 * bit l give their vector to their parent, the rank without that bit. */
#include "ops/coll/flow.h"

static void tree_round(const struct gf_coll *coll, uint32_t number, struct gf_round *round_out)
{
    uint32_t root = (coll->plan.collective == GF_COLL_BROADCAST) ? coll->plan.root : 0;
    uint32_t rank = (coll->index + coll->size - root) % coll->size;
    uint32_t levels = gf_log2_floor(2 * coll->size - 1);
    uint32_t ups = (coll->plan.collective == GF_COLL_BROADCAST) ? 0 : levels;
    bool is_up = number < ups;
    uint32_t level = is_up ? number : levels - 1 - (number - ups);
    uint32_t distance = 1u << level;
    uint32_t low_bits = rank & (2 * distance - 1);
    bool has_parent = low_bits == distance;
    bool has_child = (low_bits == 0) && (rank + distance < coll->size);
    uint32_t parent = (rank - distance + root) % coll->size;
    uint32_t child = (rank + distance + root) % coll->size;

    round_out->send.peer = is_up ? parent : child;
    round_out->send.count = (is_up ? has_parent : has_child) ? coll->plan.elem_count : 0;
    round_out->recv.peer = is_up ? child : parent;
    round_out->recv.count = (is_up ? has_child : has_parent) ? coll->plan.elem_count : 0;
    round_out->reduce = is_up;
    if (is_up || (rank == 0)) {
        if ((number > 0) && (ups > 0)) round_out->send.after = (is_up ? number : ups) - 1;
    } else {
        /* when the parent's came */
        round_out->send.after = ups + levels - 1 - (uint32_t)__builtin_ctz(rank);
    }
    if (!is_up && (ups > 0)) round_out->recv.after = level; /* when ours went up */
}

static uint32_t tree_shape(gf_collective collective, uint32_t size, uint64_t elem_count,
                           uint64_t *longest_out)
{
    *longest_out = elem_count;
    return gf_log2_floor(2 * size - 1) * ((collective == GF_COLL_BROADCAST) ? 1 : 2);
}

const struct gf_coll_kind gf_coll_tree = {
    .name = "tree",
    .collectives = 1u << GF_COLL_ALLREDUCE | 1u << GF_COLL_BROADCAST,
    .shape = tree_shape,
    .round = tree_round,
    .need = gf_flow_need,
    .start = gf_flow_start,
    .progress = gf_flow_progress,
};
