/* The optimizer over flat pools: neighbouring tensors with the same rules are one flat loop.
 *
 *     SGD     v = m*v + (g + decay*w)
 *             w = w - rate*v
 *     LARS    v = m*v + rate*ratio*(g + decay*w)
 *             w = w - v
 *             ratio = eta*|w| / (|g| + decay*|w| + epsilon), or 1 where a norm is 0
 *
 * SGD is PyTorch's: the rate stands outside of the momentum. LARS is as published (arXiv
 * 1708.03888, algorithm 1): momentum keeps the rate and the ratio of the step that made it. Tensors
 * with GF_TENSOR_NO_DECAY have ratio 1 and no decay. */
#include <math.h>

#include "lib/core/accessors.h"
#include "lib/core/layout.h"
#include "lib/core/device_work.h"
#include "lib/optimizer/kinds.h"
#include "lib/settings/settings.h"
#include "drivers/base/arithmetic.h"

uint32_t gf_tensor_at(const gf_context *gf, uint32_t slot)
{
    return gf->tensors[slot].at_slot;
}

static const struct gf_pool_tensor *at_slot(const gf_context *gf, uint32_t slot)
{
    return &gf->tensors[gf_tensor_at(gf, slot)];
}

uint64_t gf_slots_elems(const gf_context *gf, uint32_t first, uint32_t last)
{
    const struct gf_pool_tensor *to = at_slot(gf, last);
    return to->first_elem + to->elem_count - at_slot(gf, first)->first_elem;
}

/* What the rules of an update depend on. */
static bool same_rules(const gf_context *gf, const struct gf_pool_tensor *a,
                       const struct gf_pool_tensor *b)
{
    if ((a->type != b->type) || (a->sparse != b->sparse)) return false;
    /* update_parts() knows the parts of single tensors */
    if (gf->config.optimizer.kind != GF_OPTIMIZER_ADAMW) return true;
    return (a->flags & GF_TENSOR_NO_DECAY) == (b->flags & GF_TENSOR_NO_DECAY);
}

gf_mem gf_gradient_at(const gf_context *gf, const struct gf_pool_tensor *tensor, uint64_t elem)
{
    return gf->gradient + tensor->gradient_offset +
           (elem - tensor->first_elem) * gf_type_size_bytes((gf_type)tensor->type);
}

/* The history of a sparse step holds the decay already. */
float gf_decay_of(const gf_context *gf, const struct gf_pool_tensor *tensor)
{
    if (gf->step.sparse && (tensor->sparse != 0)) return 0.0f;
    return ((tensor->flags & GF_TENSOR_NO_DECAY) == 0) ? gf->config.optimizer.weight_decay : 0.0f;
}

float gf_gradient_factor(const gf_context *gf, const struct gf_pool_tensor *tensor)
{
    float scale = gf_keeps_scale(gf, (gf_type)tensor->type) ? gf->step.gradient_scale : 1.0f;
    return gf->step.norm_known ? scale * gf->step.clip_factor : scale;
}

static bool is_lars(const gf_context *gf)
{
    return gf->config.optimizer.kind == GF_OPTIMIZER_LARS;
}

static bool has_ratio(const gf_context *gf, uint32_t tensor)
{
    return is_lars(gf) && ((gf->tensors[tensor].flags & GF_TENSOR_NO_DECAY) == 0);
}

static gf_mem norm_at(const gf_context *gf, uint64_t slot)
{
    return gf->optimizer.norms + slot * GF_NORM_BYTES;
}
static gf_mem weight_square(const gf_context *gf, uint32_t tensor)
{
    return norm_at(gf, tensor);
}
gf_mem gf_gradient_square(const gf_context *gf, uint32_t tensor)
{
    return norm_at(gf, (uint64_t)gf->tensor_count + tensor);
}
static gf_mem ratio_at(const gf_context *gf, uint32_t tensor)
{
    return norm_at(gf, UINT64_C(2) * gf->tensor_count + tensor);
}
gf_mem gf_norm_scratch(const gf_context *gf)
{
    return norm_at(gf, UINT64_C(3) * gf->tensor_count);
}

gf_status gf_update_status(gf_context *gf, gf_status status)
{
    return (status < 0) ? gf_device_failed(gf, GF_OPERATION_UPDATE) : GF_OK;
}

/* ---- SGD and LARS ---- */

/* Elements first..end-1 of a tensor, for norm(): [0] the weights, [1] the gradients. */
static void norms_set(const gf_context *gf, uint32_t tensor, uint64_t first, uint64_t end,
                      struct gf_norm norms[2])
{
    norms[0] = (struct gf_norm){weight_square(gf, tensor),
                                gf->optimizer.weight + first * sizeof(float), end - first};
    norms[1] = (struct gf_norm){gf_gradient_square(gf, tensor),
                                gf_gradient_at(gf, &gf->tensors[tensor], first), end - first};
}

static struct gf_ratio ratio_of(const gf_context *gf, uint32_t tensor)
{
    const struct gf_pool_tensor *placed = &gf->tensors[tensor];
    return (struct gf_ratio){.ratio_f32 = ratio_at(gf, tensor),
                             .weight_square_f64 = weight_square(gf, tensor),
                             .gradient_square_f64 = gf_gradient_square(gf, tensor),
                             .gradient_scale = gf_gradient_factor(gf, placed),
                             .eta = gf->config.optimizer.lars_eta,
                             .decay = gf_decay_of(gf, placed),
                             .epsilon = gf->config.optimizer.lars_epsilon};
}

/* count weights, then as many gradients of the type. */
static gf_status norms_add(gf_context *gf, gf_type type, const struct gf_norm *norms,
                           uint32_t count)
{
    const struct gf_element_ops *ops = gf->ops;
    gf_mem scratch = gf_norm_scratch(gf);
    gf_status status;
    if (type == GF_TYPE_F32) return ops->norm(&gf->queue, scratch, GF_TYPE_F32, norms, 2 * count);
    status = ops->norm(&gf->queue, scratch, GF_TYPE_F32, norms, count);
    return (status < 0) ? status : ops->norm(&gf->queue, scratch, type, norms + count, count);
}

gf_status gf_lars_add(gf_context *gf, uint32_t tensor, uint64_t first, uint64_t end)
{
    struct gf_norm norms[2];
    if (!has_ratio(gf, tensor)) return GF_OK;
    norms_set(gf, tensor, first, end, norms);
    return gf_update_status(gf, norms_add(gf, (gf_type)gf->tensors[tensor].type, norms, 1));
}

gf_status gf_lars_end(gf_context *gf, uint32_t tensor)
{
    struct gf_ratio ratio = ratio_of(gf, tensor);
    if (!has_ratio(gf, tensor)) return GF_OK;
    return gf_update_status(gf, gf->ops->ratio(&gf->queue, &ratio, 1));
}

/* Of the tensor's elements from `first` on, which may lie before it where its rules hold there
 * too. */
static struct gf_update update_of(const gf_context *gf, uint32_t tensor, uint64_t first, float rate)
{
    const struct gf_pool_tensor *placed = &gf->tensors[tensor];
    /* momentum is in the history already */
    bool applied_before = gf->step.sparse && (placed->sparse != 0) &&
                          (gf->config.sparse.momentum != GF_SPARSE_MOMENTUM_REDUCED);
    bool has_momentum = (gf->optimizer.momentum != 0) && !applied_before;
    return (struct gf_update){.weight_f32 = gf->optimizer.weight + first * sizeof(float),
                              .momentum_f32 =
                                  has_momentum ? gf->optimizer.momentum + first * sizeof(float) : 0,
                              .half = gf_half_at(gf, first),
                              .half_type = gf->config.optimizer.half_weights,
                              .gradient = gf_gradient_at(gf, placed, first),
                              .gradient_type = (gf_type)placed->type,
                              .gradient_scale = gf_gradient_factor(gf, placed),
                              /* momentum of LARS is made of steps, not of gradients */
                              .rate_in = is_lars(gf) ? rate : 1.0f,
                              .rate_out = is_lars(gf) ? 1.0f : rate,
                              .ratio_f32 = has_ratio(gf, tensor) ? ratio_at(gf, tensor) : 0,
                              .momentum = gf->config.optimizer.momentum,
                              .decay = gf_decay_of(gf, placed),
                              .nesterov = gf->config.optimizer.nesterov};
}

gf_status gf_update_chunks(gf_context *gf, uint32_t tensor, const struct gf_chunks *chunks,
                           float rate)
{
    const struct gf_update update = update_of(gf, tensor, 0, rate);
    return gf_update_status(gf, gf->ops->update_chunks(&gf->queue, &update, chunks));
}

gf_status gf_update_range(gf_context *gf, uint32_t tensor, uint64_t first, uint64_t end, float rate)
{
    const struct gf_update update = update_of(gf, tensor, first, rate);
    return gf_update_status(gf, gf->ops->update(&gf->queue, &update, end - first));
}

/* The last slot of the part that begins at `slot`: a tensor with a ratio is a part by itself. */
static uint32_t part_end(const gf_context *gf, uint32_t slot, uint32_t last)
{
    const float decay = gf_decay_of(gf, at_slot(gf, slot));
    uint32_t to = slot;
    if (has_ratio(gf, gf_tensor_at(gf, slot))) return slot;
    while ((to < last) && !has_ratio(gf, gf_tensor_at(gf, to + 1)) &&
           (gf_decay_of(gf, at_slot(gf, to + 1)) == decay))
        to++;
    return to;
}

/* Neighbours with the same rules and no ratio are one part, with the gaps between them: zeroes,
 * which stay so. */
static gf_status parts_update(gf_context *gf, uint32_t first, uint32_t last, float rate)
{
    uint64_t base = at_slot(gf, first)->first_elem;
    const struct gf_update update = update_of(gf, gf_tensor_at(gf, first), base, rate);
    struct gf_update_part *parts = (struct gf_update_part *)(void *)gf->optimizer.list;
    struct gf_update_part *part = parts;
    for (uint32_t slot = first, to; slot <= last; slot = to + 1) {
        uint32_t tensor = gf_tensor_at(gf, slot);
        gf_mem ratio = has_ratio(gf, tensor) ? ratio_at(gf, tensor) : 0;
        to = part_end(gf, slot, last);
        *part++ = (struct gf_update_part){at_slot(gf, slot)->first_elem - base,
                                          gf_slots_elems(gf, slot, to), ratio,
                                          gf_decay_of(gf, at_slot(gf, slot)), 0};
    }
    return gf_update_status(
        gf, gf->ops->update_parts(&gf->queue, &update, parts, (uint32_t)(part - parts)));
}

/* Squares of all tensors with a ratio, then their ratios. */
static gf_status ratios_make(gf_context *gf, uint32_t first, uint32_t last)
{
    struct gf_norm *norms = (struct gf_norm *)(void *)gf->optimizer.list;
    struct gf_ratio *ratios = (struct gf_ratio *)(void *)gf->optimizer.list;
    uint32_t count = 0;
    uint32_t added = 0;
    gf_status status;
    for (uint32_t slot = first; slot <= last; slot++)
        count += has_ratio(gf, gf_tensor_at(gf, slot));
    for (uint32_t slot = first; slot <= last; slot++) {
        uint32_t tensor = gf_tensor_at(gf, slot);
        struct gf_norm both[2];
        uint64_t begin = gf->tensors[tensor].first_elem;
        if (!has_ratio(gf, tensor)) continue;
        norms_set(gf, tensor, begin, begin + gf->tensors[tensor].elem_count, both);
        norms[added] = both[0];
        norms[count + added++] = both[1];
    }
    status = norms_add(gf, (gf_type)at_slot(gf, first)->type, norms, count);
    for (uint32_t slot = first, at = 0; slot <= last; slot++)
        if (has_ratio(gf, gf_tensor_at(gf, slot)))
            ratios[at++] = ratio_of(gf, gf_tensor_at(gf, slot));
    if (status >= 0) status = gf->ops->ratio(&gf->queue, ratios, count);
    return gf_update_status(gf, status);
}

/* The last slot of the run of tensors from `first` on that share all rules. */
static uint32_t rules_end(const gf_context *gf, uint32_t first)
{
    uint32_t last = first;
    while ((last + 1 < gf->tensor_count) &&
           same_rules(gf, at_slot(gf, last), at_slot(gf, last + 1)))
        last++;
    return last;
}

/* Tensors in slots first..last, which share all rules. */
static gf_status slots_update(gf_context *gf, uint32_t first, uint32_t last, float rate)
{
    gf_status status;
    if (gf->config.optimizer.kind == GF_OPTIMIZER_ADAMW) return gf_adam_run(gf, first, last, rate);
    if (is_lars(gf) && ((status = ratios_make(gf, first, last)) < 0)) return status;
    return parts_update(gf, first, last, rate);
}

static gf_status update_run(gf_context *gf, float learning_rate)
{
    gf_status status;
    if (!gf->step.skipped && (gf->config.optimizer.clip_norm > 0.0f) &&
        ((status = gf_gradient_norm(gf, NULL, NULL)) < 0))
        return status;
    gf->step.state = GF_STEP_UPDATED;
    if (gf->step.skipped) return GF_OK;
    gf->optimizer.updates++;
    if (is_lars(gf) && (gf->ops->zero(&gf->queue, weight_square(gf, 0),
                                      UINT64_C(2) * gf->tensor_count * GF_NORM_BYTES) < 0))
        return gf_device_failed(gf, GF_OPERATION_UPDATE);
    for (uint32_t first = 0, last; first < gf->tensor_count; first = last + 1) {
        last = rules_end(gf, first);
        if (gf->step.sparse && (at_slot(gf, first)->sparse != 0)) continue; /* by chunks, below */
        if ((status = slots_update(gf, first, last, learning_rate)) < 0) return status;
    }
    return gf->step.sparse ? gf_sparse_update(gf, learning_rate) : GF_OK;
}

gf_status gf_update(gf_context *gf, float learning_rate)
{
    GF_COMPUTES();
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if (gf->config.optimizer.kind == GF_OPTIMIZER_NONE)
        return gf_refuse(gf, GF_ERR_STATE, "gf_update: optimizer.kind is none");
    if ((gf->phase != GF_PHASE_READY) || (gf->step.state != GF_STEP_WHOLE))
        return gf_refuse(gf, GF_ERR_STATE, "gf_update: %s",
                         (gf->step.state == GF_STEP_UPDATED) ? "this step was applied before"
                                                             : "no step is whole");
    if (!isfinite(learning_rate) || (learning_rate < 0.0f))
        return gf_refuse(gf, GF_ERR_PARAM, "gf_update: learning rate %g", (double)learning_rate);
    gf_device_calls_begin(gf);
    status = update_run(gf, learning_rate);
    gf_device_calls_end(gf, GF_OPERATION_UPDATE);
    return ((status >= 0) && (gf->error.code != GF_OK)) ? gf->error.code : status;
}
