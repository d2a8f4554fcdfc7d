/* Small sums over all ranks, exact where that matters. All block, and all ranks call them at the
 * same point. */
#ifndef GF_TRAIN_RANKS_H
#define GF_TRAIN_RANKS_H

#include "gradientflow.h"

#define RANKS_LIMBS 8u /* a 64-bit number as bytes in fp32: sums stay exact up to 65,536 ranks */
#define RANKS_SUMS_MAX 16u

/* data[count] becomes the sum over all ranks. */
gf_status ranks_sum(gf_context *gf, float *data, uint64_t count);
/* The same for whole numbers, exactly; count <= RANKS_SUMS_MAX. */
gf_status ranks_sum_u64(gf_context *gf, uint64_t *data, uint32_t count);
/* *value becomes the largest of all ranks. */
gf_status ranks_max_u32(gf_context *gf, uint32_t *value);
/* values_out[world] = every rank's value; limbs[world][RANKS_LIMBS] is room to work in. */
gf_status ranks_gather_u64(gf_context *gf, uint64_t value, float *limbs, uint64_t *values_out);
/* The median of data[count], count > 0; sorted[count] is room to work in. */
double ranks_median(const float *data, uint64_t count, float *sorted);

/* The command lines of all ranks must say the same: ranks that do not compute the same run never
 * end well. */
struct train;
#define TRAIN_SAME_BYTES 384u

/* Called by all ranks after the join. Empty error_out: they agree. Else each says its own
 * options. */
gf_status train_same(struct train *train, char error_out[static TRAIN_SAME_BYTES]);

/* Of all that is compared, but --resume: who comes back has the same, and resumes nothing,
 * whether it says --resume or not. */
uint64_t train_same_hash(const struct train *train);

#endif
