/* The optimizer's pools, and what the core and sparse call of it. The program calls gf_update() and
 * gf_weights_written(). */
#ifndef GF_UPDATE_H
#define GF_UPDATE_H

#include "ops/ops.h"

#define GF_NORM_BYTES sizeof(double) /* of a square, a run's sum, and a ratio, a float */

/* The pools of an optimizer come first; 0: it has none of that kind. Each is laid out (pools.c),
 * saved (state.c) unless it follows from another one, and given to a rank that comes in
 * (common_state.c): these files assert how many they know. */
#define GF_OPTIMIZER_POOLS 4u
struct gf_optimizer_pools {
    gf_mem weight, momentum, half;
    gf_mem moment2; /* fp32, of adamw; momentum is its first moment */

    uint64_t updates; /* how often gf_update() was applied */
    /* [tensor_count] each, GF_NORM_BYTES apart: squares of weights, of gradients, ratios; then
     * scratch of norm() */
    gf_mem norms;
    /* [tensor_count] tables for element ops, which read them during the call */
    union gf_update_list *list;
};

_Static_assert(offsetof(struct gf_optimizer_pools, updates) == GF_OPTIMIZER_POOLS * sizeof(gf_mem),
               "GF_OPTIMIZER_POOLS counts the pools");

union gf_update_list { /* one of these, for each tensor */
    struct gf_norm norms[2];
    struct gf_ratio ratio;
    struct gf_update_part part;
};

/* clip.c, before the commit of a step. Where the exchange is sparse and gradients are clipped, the
 * norm is known afterwards, and the step is skipped if it is not finite, or if what would wait
 * could not be clipped once it is sent. Otherwise, and when called again, nothing. May block until
 * a device has added. */
gf_status gf_clip_sparse(gf_context *gf);

/* half.c: the half weights from the weights; nothing without them. */
gf_status gf_half_refresh(gf_context *gf);

/* update.c, for sparse steps. LARS (You et al., arXiv 1708.03888): eta |w| / (|g| + decay |w| +
 * epsilon) of the part of a tensor that is applied, 1 where a norm is zero; biases and
 * normalisation are excluded. Add each range, end; nothing is read back. Nothing for a tensor
 * without a ratio. */
gf_status gf_lars_add(gf_context *gf, uint32_t tensor, uint64_t first, uint64_t end);
gf_status gf_lars_end(gf_context *gf, uint32_t tensor);
/* Elements first..end-1, all of one tensor, by the rules of `tensor` and with its trust ratio. */
gf_status gf_update_range(gf_context *gf, uint32_t tensor, uint64_t first, uint64_t end,
                          float rate);
/* The same of listed chunks of the part whose rules this tensor has, in one call. */
gf_status gf_update_chunks(gf_context *gf, uint32_t tensor, const struct gf_chunks *chunks,
                           float rate);

#endif
