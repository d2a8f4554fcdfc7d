/* Counts values that are not finite. Element ops count what they meet while an operation packs,
 * adds and unpacks, and while chunks are scored, each in a counter of its own. This file adds the
 * counters up for the vote of the step.
 *
 * A device counts asynchronously, in its own memory, in counters that begin at "none". When an
 * operation ends, one copy brings its counters to the host, and if any counted something they are
 * set to "none" again. On the host both are the same memory, and every call is done when it
 * returns. */
#ifndef GF_FINITE_H
#define GF_FINITE_H

#include "ops/ops.h"

struct gf_op;

struct gf_finite {
    /* struct gf_check [operations + 1][GF_COUNTS], of element ops; the last: of chunk norms */
    gf_mem counters;
    /* the same in the exchange region; after them GF_COUNTS that stay at none */
    struct gf_check *seen;
    /* of the step under way */
    /* values of this rank, or found by it in another rank's, before they were added */
    uint64_t local_count;
    uint64_t first_key; /* the first of them (gf_finite_key); UINT64_MAX: none */
    /* the same of sums that this rank added or rounded: in the wire type, or back from it */
    uint64_t first_sum;
};

/* Counters of what an operation packs, or of chunks that are scored; of sums; and of all ranks'
 * values that a device met where a sum was not finite, as sum_n() counts them. */
typedef enum gf_count { GF_COUNT_PACKED, GF_COUNT_SUMMED, GF_COUNT_SOURCES, GF_COUNTS } gf_count;

/* Sets the counters of operation `index` to none, before its element ops; on a device they are at
 * none. */
void gf_finite_begin(gf_context *gf, uint32_t index);
/* the counter that element ops count in */
struct gf_check *gf_finite_counter(const gf_context *gf, uint32_t index, gf_count which);
/* On the host the same; on a device what came back (gf_device_counters_fetch(),
 * lib/device/device.h). */
struct gf_check *gf_finite_seen(const gf_context *gf, uint32_t index, gf_count which);

void gf_finite_step(gf_context *gf); /* a step begins: none so far */
/* A fused buffer has been added: what its operation met goes into the step's. */
void gf_finite_buffer(gf_context *gf, const struct gf_op *op);
/* Likewise of chunks that were scored; indices are elements of the pool. */
void gf_finite_scored(gf_context *gf, const struct gf_check *check);

/* Which value it was, so that a lower key is an earlier one: rank, tensor, element of the
 * tensor. */
#define GF_KEY_ELEM_BITS 37u /* no more elements are allowed: pool.c */
#define GF_KEY_TENSOR_BITS 14u
#define GF_KEY_NONE UINT64_MAX
struct gf_finite_location {
    uint32_t rank, tensor;
    uint64_t elem;
};
static inline struct gf_finite_location gf_finite_location_of(uint64_t key)
{
    return (struct gf_finite_location){
        .rank = (uint32_t)(key >> (GF_KEY_TENSOR_BITS + GF_KEY_ELEM_BITS)),
        .tensor = (uint32_t)(key >> GF_KEY_ELEM_BITS) & ((1u << GF_KEY_TENSOR_BITS) - 1),
        .elem = key & ((UINT64_C(1) << GF_KEY_ELEM_BITS) - 1)};
}

#endif
