/* The norm of all gradients together, and clipping by it (Pascanu et al., arXiv 1211.5063), by
 * PyTorch's rule. Every rank holds the averaged gradients, so each adds all squares up by itself,
 * in the one order that norm() has: no message, and the same bits everywhere. What clipping
 * multiplies with goes into the update's own scale.
 *
 * Squares are added in double, so the norm of finite gradients is right wherever it is finite in
 * fp32. Where it is not, and clip_norm asks for it, no factor makes a step of that gradient, and
 * all ranks drop the step here, after the vote: each has the same bits, so none has to ask.
 *
 * With sparse exchange and clip_norm that is known before the commit, so that histories hold
 * nothing of a step that is dropped: sums of chunks are added up where they were received. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "lib/device/device.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/optimizer/kinds.h"
#include "drivers/base/arithmetic.h"

#define CLIP_EPSILON 1e-6 /* of torch.nn.utils.clip_grad_norm_ */

/* Does the tensor's gradient still hold what this rank computed? Its sums are in the pack
 * buffer. */
static bool is_packed(const gf_context *gf, uint32_t tensor)
{
    return gf->step.sparse && (gf->step.state == GF_STEP_AGREED) &&
           (gf->tensors[tensor].sparse != 0);
}

/* All sums of chunks count as the first sparse tensor's. */
static gf_status packed_add(gf_context *gf)
{
    const struct gf_sparse *sparse = &gf->sparse;
    struct gf_norm packed = {
        .src = gf->pack,
        .elem_count = gf_chunks_elems(sparse, sparse->selection, sparse->selected_count)};
    uint32_t first = 0;
    while ((first < gf->tensor_count) && !is_packed(gf, first)) first++;
    if (first == gf->tensor_count) return GF_OK;
    packed.square_f64 = gf_gradient_square(gf, first);
    return gf->ops->norm(&gf->queue, gf_norm_scratch(gf), gf->config.exchange.wire, &packed, 1);
}

static gf_status squares_add(gf_context *gf)
{
    gf_status status =
        gf->ops->zero(&gf->queue, gf_gradient_square(gf, 0), gf->tensor_count * GF_NORM_BYTES);
    struct gf_norm *norms = (struct gf_norm *)(void *)gf->optimizer.list;
    for (gf_type type = 0; (status == GF_OK) && (type < GF_TYPE_COUNT); type++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < gf->tensor_count; i++) {
            const struct gf_pool_tensor *tensor = &gf->tensors[i];
            if (((gf_type)tensor->type != type) || is_packed(gf, i)) continue;
            norms[count++] = (struct gf_norm){gf_gradient_square(gf, i),
                                              gf_gradient_at(gf, tensor, tensor->first_elem),
                                              tensor->elem_count};
        }
        status = gf->ops->norm(&gf->queue, gf_norm_scratch(gf), type, norms, count);
    }
    if (status == GF_OK) status = packed_add(gf);
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
            bool keeps =
                is_packed(gf, i + s) || gf_keeps_scale(gf, (gf_type)gf->tensors[i + s].type);
            double scale = keeps ? (double)gf->step.gradient_scale : 1.0;
            sum += squares[s] * scale * scale;
        }
    }
    *sum_out = sum;
    return status;
}

static float factor_of(const gf_context *gf, double norm)
{
    const double most = (double)gf->config.optimizer.clip_norm;
    if ((most <= 0.0) || (most >= norm + CLIP_EPSILON)) return 1.0f;
    return (float)(most / (norm + CLIP_EPSILON));
}

/* Does clipping make a step of gradients with this norm? It does not where what gf_update()
 * multiplies with would be 0, unless that is 0 anyway, as with no sample. */
static bool may_clip(const gf_context *gf, double norm)
{
    const float scale = gf->step.gradient_scale;
    const float factor = factor_of(gf, norm);
    return (norm <= (double)FLT_MAX) && (factor > 0.0f) &&
           ((scale == 0.0f) || (factor * scale > 0.0f));
}

static gf_status norm_make(gf_context *gf)
{
    double norm;
    double sum;
    gf_status status = square_make(gf, &sum);
    if (status < 0) return status;
    norm = sqrt(sum);
    gf->step.norm = (norm <= (double)FLT_MAX) ? (float)norm : INFINITY;
    gf->step.clip_factor = factor_of(gf, norm);
    gf->step.norm_known = true;
    if ((gf->config.optimizer.clip_norm <= 0.0f) || may_clip(gf, norm)) return GF_OK;
    gf->step.clip_factor = 0.0f;
    return gf_step_drop(gf, "their norm", norm);
}

/* What waits after the step, or with local momentum what its gradients add to that in the end: all
 * ranks' magnitudes, and so no less than the norm with which it may be sent. */
static double waiting_sum(const gf_context *gf)
{
    double sum = 0.0;
    for (uint32_t chunk = 0; chunk < gf->sparse.chunk_count; chunk++)
        sum += (double)gf->sparse.scores[chunk];
    return gf_sparse_is_local(gf) ? sum / (1.0 - (double)gf->config.optimizer.momentum) : sum;
}

gf_status gf_clip_sparse(gf_context *gf)
{
    gf_status status;
    double waits;
    if ((gf->sparse.chunk_count == 0) || (gf->config.optimizer.clip_norm <= 0.0f) ||
        gf->step.norm_known)
        return GF_OK;
    status = norm_make(gf);
    if ((status < 0) || gf->step.skipped || !gf->step.sparse) return status;
    waits = waiting_sum(gf);
    if (may_clip(gf, waits)) return GF_OK;
    gf->step.clip_factor = 0.0f;
    return gf_step_drop(gf, "the sum of magnitudes that would wait", waits);
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
