/* dst[i] = the lower or higher of dst[i] and src[i], on the host: for allreduce by other reductions
 * than the sum. Not a row of struct gf_element_ops: devices have none. Exact in every type and
 * commutative to the bit: the result of a NaN is one certain NaN, and -0 is below 0. One plain loop
 * for every CPU. */
#ifndef GF_REDUCE_HOST_H
#define GF_REDUCE_HOST_H

#include "gradientflow.h"

/* reduction: min or max. The ranges are the same or do not overlap. */
void gf_reduce_host(gf_reduction reduction, gf_mem dst, gf_mem src, gf_type type,
                    uint64_t elem_count);

#endif
