/* Fused buffers as operations. A buffer can lie in three kinds of memory, with an address in each:
 *     op->plan.gradient    in the gradient pool, where the appliance wrote it
 *     op->plan.packed      as it travels, where element ops reach it: in the pack buffer, or the
 *                          gradient itself where nothing is cast
 *     op->coll.plan.data   as it travels, where the collective works on it: packed itself, or the
 *                          pack buffer in host memory where packed is in device memory that the
 *                          link does not reach */
#ifndef GF_BUFFER_H
#define GF_BUFFER_H

#include "lib/core/op.h"
#include "lib/core/pool.h"

struct gf_buffers {
    struct gf_buffer *now; /* of the current step: one of the next two */
    struct gf_buffer *dense;
    struct gf_buffer *sparse;
    uint32_t *pending; /* tensors that each waits for */
    uint32_t *order;   /* in which they start, by last_tensor */
    uint32_t dense_count;
};

extern const struct gf_op_kind gf_buffer_dense;

/* Takes an op for fused buffer `number` of this step; false: none is free. */
bool gf_buffer_start(gf_context *gf, uint32_t number);
const struct gf_buffer *gf_buffer_of(const gf_context *gf, const struct gf_op *op);

/* What kinds of fused buffers share: op->plan.kind->packed and done. */
void gf_buffer_packed(gf_context *gf, struct gf_op *op, uint64_t now_ns);
void gf_buffer_done(gf_context *gf, struct gf_op *op, uint64_t now_ns);

/* What reduced values are multiplied with so that they are the average: undoes loss scale and
 * pre-scale. */
float gf_buffer_factor(const gf_context *gf);
/* The factor that unpacking applies to gradients of this type: gf_buffer_factor(), or 1. */
float gf_unpack_factor(const gf_context *gf, gf_type type);

/* How many elements one poll packs, unpacks or commits. On the host it is a slice of fp32, so that
 * none of these takes longer than a slice. On a device it is all: the work is only queued. */
uint64_t gf_slice_elems(const gf_context *gf); /* in a slice */
uint64_t gf_poll_elems(const gf_context *gf, uint64_t left);

#endif
