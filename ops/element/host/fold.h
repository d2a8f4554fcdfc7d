/* dst[i] = round(dst[i] by src[i]) on the host: for allreduce by other reductions than the sum. Not a row of struct
 * gf_element_ops: devices have none. Commutative to the bit: the result of a NaN is one certain NaN, and -0 is below
 * 0. One plain loop for every CPU; minima and maxima are exact in every type, products are made in fp32 and rounded
 * once. */
#ifndef GF_FOLD_H
#define GF_FOLD_H

#include "gradientflow.h"

/* reduction: min, max or prod. The ranges are the same or do not overlap. */
void gf_fold_host(gf_reduction reduction, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count);

#endif
