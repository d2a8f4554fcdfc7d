/* The norm of all gradients together, and clipping by it (Pascanu et al., arXiv 1211.5063), by
 * PyTorch's rule. Every rank holds the averaged gradients, so each adds all squares up by itself,
 * in the one order that norm() has: no message, and the same bits everywhere. What clipping
 * multiplies with goes into the update's own scale.
 *
 * Squares are added in double, so the norm of finite gradients is right wherever it is finite in
 * fp32. Where it is not, and clip_norm asks for it, no factor makes a step of that gradient, and
 * all ranks drop the step here, after the vote: each has the same bits, so none has to ask. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "lib/device/device.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/optimizer/kinds.h"
#include "drivers/base/arithmetic.h"

#define CLIP_EPSILON 1e-6 /* of torch.nn.utils.clip_grad_norm_ */

static gf_status squares_add(gf_context *gf)
{
    gf_status status =
        gf->ops->zero(&gf->queue, gf_gradient_square(gf, 0), gf->tensor_count * GF_NORM_BYTES);
    struct gf_norm *norms = (struct gf_norm *)(void *)gf->optimizer.list;
    for (gf_type type = 0; (status == GF_OK) && (type < GF_TYPE_COUNT); type++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < gf->tensor_count; i++) {
            const struct gf_pool_tensor *tensor = &gf->tensors[i];
            if ((gf_type)tensor->type != type) continue;
            norms[count++] = (struct gf_norm){gf_gradient_square(gf, i),
                                              gf_gradient_at(gf, tensor, tensor->first_elem),
                                              tensor->elem_count};
        }
        status = gf->ops->norm(&gf->queue, gf_norm_scratch(gf), type, norms, count);
    }
    return gf_update_status(gf, status);
}

static gf_status squares_read(gf_context *gf, double *squares_out, uint32_t tensor, uint32_t count)
{
    gf_mem from = gf_gradient_square(gf, tensor);
    if (gf->on_device) return gf_device_squares_read(gf, squares_out, from, count);
    memcpy(squares_out, (const void *)(uintptr_t)from, count * sizeof *squares_out);
    return GF_OK;
}

/* Of all averaged gradients. */
static gf_status square_make(gf_context *gf, double *sum_out)
{
    double sum = 0.0;
    uint32_t tensors = gf->tensor_count;
    gf_status status = squares_add(gf);
    for (uint32_t i = 0, count; (status == GF_OK) && (i < tensors); i += count) {
        double squares[GF_SQUARES_READ];
        count = (tensors - i < GF_SQUARES_READ) ? tensors - i : GF_SQUARES_READ;
        status = squares_read(gf, squares, i, count);
        for (uint32_t s = 0; (status == GF_OK) && (s < count); s++) {
            bool keeps = gf_keeps_scale(gf, (gf_type)gf->tensors[i + s].type);
            double scale = keeps ? (double)gf->step.gradient_scale : 1.0;
            sum += squares[s] * scale * scale;
        }
    }
    *sum_out = sum;
    return status;
}

/* What gf_update() multiplies with, where it is not 0 anyway, as with no sample. */
static bool factor_holds(const gf_context *gf)
{
    const float scale = gf->step.gradient_scale;
    const float factor = gf->step.clip_factor;
    return (factor > 0.0f) && ((scale == 0.0f) || (factor * scale > 0.0f));
}

static gf_status norm_make(gf_context *gf)
{
    double most = (double)gf->config.optimizer.clip_norm;
    double norm;
    double sum;
    gf_status status = square_make(gf, &sum);
    if (status < 0) return status;
    norm = sqrt(sum);
    gf->step.norm = (norm <= (double)FLT_MAX) ? (float)norm : INFINITY;
    gf->step.clip_factor = 1.0f;
    if ((most > 0.0) && (most < norm + CLIP_EPSILON))
        gf->step.clip_factor = (float)(most / (norm + CLIP_EPSILON));
    gf->step.norm_known = true;
    if ((most <= 0.0) || (isfinite(gf->step.norm) && factor_holds(gf))) return GF_OK;
    gf->step.clip_factor = 0.0f;
    return gf_step_drop(gf, norm);
}

/* GF_OK: there are gradients, and their norm is known. */
static gf_status norm_enter(gf_context *gf, const char *call)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if ((gf->phase == GF_PHASE_READY) && gf_step_is_whole(gf) && gf->step.norm_known) return GF_OK;
    if ((gf->phase != GF_PHASE_READY) || !gf_step_is_whole(gf) || gf->step.skipped ||
        (gf->step.state == GF_STEP_UPDATED))
        return gf_refuse(gf, GF_ERR_STATE, "%s: %s", call,
                         gf->step.skipped ? "the step was skipped"
                                          : "no step is whole that was not applied yet");
    return norm_make(gf);
}

gf_status gf_gradient_norm(gf_context *gf, float *norm_out, float *factor_out)
{
    GF_COMPUTES();
    gf_status status = norm_enter(gf, "gf_gradient_norm");
    if (status < 0) return status;
    if (norm_out != NULL) *norm_out = gf->step.norm;
    if (factor_out != NULL) *factor_out = gf->step.clip_factor;
    return GF_OK;
}

gf_status gf_gradient_clip(gf_context *gf, float *norm_out)
{
    GF_COMPUTES();
    gf_status status = norm_enter(gf, "gf_gradient_clip");
    for (uint32_t i = 0;
         (status == GF_OK) && (gf->step.clip_factor != 1.0f) && (i < gf->tensor_count); i++) {
        const struct gf_pool_tensor *tensor = &gf->tensors[i];
        gf_mem at = gf_gradient_at(gf, tensor, tensor->first_elem);
        status = gf_update_status(gf, gf->ops->cast(&gf->queue, at, (gf_type)tensor->type, at,
                                                    (gf_type)tensor->type, tensor->elem_count,
                                                    gf->step.clip_factor, 0, NULL));
    }
    if (status < 0) return status;
    gf->step.clip_factor = 1.0f;
    if (norm_out != NULL) *norm_out = gf->step.norm;
    return GF_OK;
}
