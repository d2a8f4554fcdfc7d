/* Whole contexts with sparse communication, and what was produced and applied beside them. The
 * rules of a step and of the optimizers are the soak's (soak_model.c). */
#ifndef SPARSE_MODEL_H
#define SPARSE_MODEL_H

#include "lib/context.h"
#include "firmware-tests/support/world.h"

struct sparse_model;
/* The gradient of one element, unscaled. */
typedef float (*sparse_value)(const struct sparse_model *model, uint32_t rank, uint32_t tensor,
                              uint64_t elem);

/* All arrays are indexed by pool element; those of [world][elem_count] by rank first. */
struct sparse_model {
    struct world w;
    const struct gf_config *config; /* effective */
    uint64_t elem_count;
    uint64_t number; /* of the step under way */
    sparse_value value;
    world_order order;
    double *gradient;                   /* [world][elem_count], of the newest step */
    double *applied;                    /* in this step */
    double *produced_sum, *applied_sum; /* over all steps; applied as gf_gradient() said */
};

/* Opens a world of ranks with weights as sparse_weight() says. */
void sparse_open(struct sparse_model *model, const struct world_setup *setup, sparse_value value);
void sparse_close(struct sparse_model *model);
/* One that is open until the end of its block. */
#define SPARSE_OPEN(model, setup, value)                              \
    struct sparse_model model __attribute__((cleanup(sparse_close))); \
    sparse_open(&model, setup, value)

/* A step and its gf_update() on all ranks; on all of them the same must have come of it. */
void sparse_step(struct sparse_model *model, float rate);
/* What was applied plus what is held is what was produced, exactly. */
void sparse_expect_conserved(const struct sparse_model *model);
/* The next set is that of the largest norms, of numbers that fp32 holds exactly. */
void sparse_expect_selection(const struct sparse_model *model);

float sparse_small_whole(const struct sparse_model *model, uint32_t rank, uint32_t tensor,
                         uint64_t elem);

static inline gf_context *sparse_context(const struct sparse_model *model, uint32_t rank)
{
    return model->w.ranks[rank].gf;
}
static inline const float *sparse_floats(gf_mem at)
{
    return (const float *)(uintptr_t)at;
}

#endif
