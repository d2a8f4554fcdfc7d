/* What ranks fill in before a collective, and what they must find after it, to the bit. */
#ifndef PERF_VALUES_H
#define PERF_VALUES_H

#include "gradientflow.h"

/* data[elem_count] of type, as rank `rank` of `world` sees it. Elements are numbered from
 * first_elem on, for data that is a part of something larger. */
struct perf_values {
    unsigned char *data;
    uint64_t elem_count, first_elem;
    gf_type type;
    gf_operation operation;
    gf_reduction reduction; /* of an allreduce */
    uint32_t world, rank, root;
};

/* Element i of data, rounded to its type. */
void perf_value_put(const struct perf_values *values, uint64_t i, float value);
void perf_values_fill(const struct perf_values *values);
/* Elements that are not what the operation must leave; 0 for a barrier. Sums are exact in all types
 * up to 512 ranks. */
uint64_t perf_values_wrong(const struct perf_values *values);

#endif
