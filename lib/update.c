/* The optimizer: momentum SGD with weight decay, or LARS, over flat pools. Neighbouring tensors with the same rules are
 * one flat loop. */
#include <math.h>

#include "context.h"

/* What the rules of an update depend on. */
static bool same_rules(const gf_context *gf, const struct gf_pool_tensor *a, const struct gf_pool_tensor *b)
{
    if (gf->config.optimizer.kind == GF_OPTIMIZER_LARS) return false; /* a ratio of its own each */
    return (a->type == b->type) && (a->sparse == b->sparse) &&
           ((a->flags & GF_TENSOR_NO_DECAY) == (b->flags & GF_TENSOR_NO_DECAY));
}

/* LARS: eta |w| / (|g| + decay |w| + epsilon), 1 where a norm is zero; biases and normalisation are excluded
 * (facts of You et al., arXiv 1708.03888). */
static gf_status lars_ratio(gf_context *gf, uint32_t tensor, gf_mem gradient, float gradient_scale, float *ratio_out)
{
    const struct gf_pool_tensor *placed = &gf->tensors[tensor];
    gf_mem squares = (gf_mem)(uintptr_t)(gf->norms + 2 * tensor);
    float weight_norm, gradient_norm, decay = gf->config.optimizer.weight_decay;
    *ratio_out = 1.0f;
    if ((gf->config.optimizer.kind != GF_OPTIMIZER_LARS) || ((placed->flags & GF_TENSOR_NO_DECAY) != 0)) return GF_OK;
    if ((gf->ops->norm(&gf->queue, squares, gf->weight + placed->first_elem * sizeof(float), GF_TYPE_F32,
                       placed->elem_count) < 0) ||
        (gf->ops->norm(&gf->queue, squares + sizeof(float), gradient, (gf_type)placed->type, placed->elem_count) < 0))
        return gf_fail_fault(gf, &gf->gpu->fault, GF_OPERATION_UPDATE);
    weight_norm = sqrtf(gf->norms[2 * tensor]);
    gradient_norm = sqrtf(gf->norms[2 * tensor + 1]) * gradient_scale;
    if ((weight_norm > 0.0f) && (gradient_norm > 0.0f))
        *ratio_out = gf->config.optimizer.lars_eta * weight_norm /
                     (gradient_norm + decay * weight_norm + gf->config.optimizer.lars_epsilon);
    return GF_OK;
}

/* Tensors first..last-1 lie behind each other and share their rules. */
static gf_status run_update(gf_context *gf, uint32_t first, uint32_t last, float learning_rate)
{
    const struct gf_pool_tensor *from = &gf->tensors[first], *to = &gf->tensors[last - 1];
    uint64_t elem_count = to->first_elem + to->elem_count - from->first_elem;
    size_t half_bytes = gf_type_size_bytes(GF_TYPE_F16);
    struct gf_update update = {.weight_f32 = gf->weight + from->first_elem * sizeof(float),
                               .momentum_f32 = (gf->momentum != 0) ? gf->momentum + from->first_elem * sizeof(float) : 0,
                               .half = (gf->half != 0) ? gf->half + from->first_elem * half_bytes : 0,
                               .half_type = gf->config.optimizer.half_weights,
                               .gradient = gf->gradient + from->gradient_offset,
                               .gradient_type = (gf_type)from->type,
                               .gradient_scale = (from->type == GF_TYPE_F32) ? 1.0f : gf->step.gradient_scale,
                               .momentum = gf->config.optimizer.momentum,
                               .decay = gf->config.optimizer.weight_decay,
                               .nesterov = gf->config.optimizer.nesterov};
    float ratio;
    gf_status status = lars_ratio(gf, first, update.gradient, update.gradient_scale, &ratio);
    if (status < 0) return status;
    update.rate = learning_rate * ratio;
    if ((from->flags & GF_TENSOR_NO_DECAY) != 0) update.decay = 0.0f;
    if (gf->ops->update(&gf->queue, &update, elem_count) < 0)
        return gf_fail_fault(gf, &gf->gpu->fault, GF_OPERATION_UPDATE);
    return GF_OK;
}

gf_status gf_update(gf_context *gf, float learning_rate)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if (gf->config.optimizer.kind == GF_OPTIMIZER_NONE)
        return gf_refuse(gf, GF_ERR_STATE, "gf_update: optimizer.kind is none");
    if ((gf->phase != GF_PHASE_READY) || !gf->step.whole || gf->step.updated)
        return gf_refuse(gf, GF_ERR_STATE, "gf_update: %s",
                         gf->step.updated ? "this step was applied before" : "no step is whole");
    if (!isfinite(learning_rate) || (learning_rate < 0.0f))
        return gf_refuse(gf, GF_ERR_PARAM, "gf_update: learning rate %g", (double)learning_rate);
    gf->step.updated = true;
    if (gf->step.skipped) return GF_OK;
    for (uint32_t first = 0, last; first < gf->tensor_count; first = last) {
        last = first + 1;
        while ((last < gf->tensor_count) && same_rules(gf, &gf->tensors[first], &gf->tensors[last])) last++;
        if ((status = run_update(gf, first, last, learning_rate)) < 0) return status;
    }
    return GF_OK;
}
