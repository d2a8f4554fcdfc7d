/* What the files of this folder share. Other folders use update.h alone. */
#ifndef GF_OPTIMIZER_KINDS_H
#define GF_OPTIMIZER_KINDS_H

#include "lib/context.h"

/* adam.c: applies the tensors in slots first..last of the pools, which are of one type and share
 * all rules. */
gf_status gf_adam_run(gf_context *gf, uint32_t first, uint32_t last, float rate);

/* schedule.c; libm's pow() differs from machine to machine */
double gf_power_of(double base, uint64_t power);

/* ---- update.c: of elements, all of one tensor ---- */
gf_mem gf_gradient_square(const gf_context *gf, uint32_t tensor);
gf_mem gf_norm_scratch(const gf_context *gf);
uint32_t gf_tensor_at(const gf_context *gf, uint32_t slot); /* the tensor there */
/* with the gaps between them */
uint64_t gf_slots_elems(const gf_context *gf, uint32_t first, uint32_t last);
gf_mem gf_gradient_at(const gf_context *gf, const struct gf_pool_tensor *tensor, uint64_t elem);
/* scale and clipping */
float gf_gradient_factor(const gf_context *gf, const struct gf_pool_tensor *tensor);
float gf_decay_of(const gf_context *gf, const struct gf_pool_tensor *tensor);
/* an element op's, or the failure that it is */
gf_status gf_update_status(gf_context *gf, gf_status status);

#endif
