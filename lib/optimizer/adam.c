/* Adam with decoupled weight decay, and LAMB.
 *     both   m = b1*m + (1-b1)*g;   v = b2*v + (1-b2)*g^2
 *            r = (m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + epsilon) + decay*w     t updates, this one
 *                                                                              included
 *     AdamW  w -= rate*r           (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2;
 *            PyTorch's)
 *     LAMB   w -= rate*|w|/|r|*r   (You et al., arXiv 1904.00962, algorithm 2, phi(x) = x), a ratio
 *            for each tensor; 1
 *            where a norm is 0 and for tensors with GF_TENSOR_NO_DECAY, as in timm and NVIDIA's
 *                NVLAMB
 * r of LAMB is made twice, as it has no place in memory: for its norm, a piece at a time, and to be
 * applied. */
#include <math.h>
#include <string.h>

#include "lib/core/device_work.h"
#include "lib/optimizer/kinds.h"

static struct gf_adam adam_of(const gf_context *gf, uint32_t tensor, uint64_t first, float rate)
{
    const struct gf_pool_tensor *placed = &gf->tensors[tensor];
    double beta1 = (double)gf->config.optimizer.adam_beta1;
    double beta2 = (double)gf->config.optimizer.adam_beta2;
    return (struct gf_adam){
        .weight_f32 = gf->optimizer.weight + first * sizeof(float),
        .moment1_f32 = gf->optimizer.momentum + first * sizeof(float),
        .moment2_f32 = gf->optimizer.moment2 + first * sizeof(float),
        .half = (gf->optimizer.half != 0)
                    ? gf->optimizer.half + first * gf_type_size_bytes(GF_TYPE_F16)
                    : 0,
        .half_type = gf->config.optimizer.half_weights,
        .gradient = gf_gradient_at(gf, placed, first),
        .gradient_type = (gf_type)placed->type,
        .gradient_scale = gf_gradient_factor(gf, placed),
        .rate = rate,
        .decay = gf_decay_of(gf, placed),
        .epsilon = gf->config.optimizer.adam_epsilon,
        .beta1 = (float)beta1,
        .keep1 = (float)(1.0 - beta1),
        .beta2 = (float)beta2,
        .keep2 = (float)(1.0 - beta2),
        .correct1 = (float)(1.0 / (1.0 - gf_power_of(beta1, gf->optimizer.updates))),
        .correct2 = (float)(1.0 / sqrt(1.0 - gf_power_of(beta2, gf->optimizer.updates)))};
}

static gf_status adam_run(gf_context *gf, uint32_t first, uint32_t last, float rate)
{
    uint32_t tensor = gf_at_place(gf, first);
    const struct gf_adam adam = adam_of(gf, tensor, gf->tensors[tensor].first_elem, rate);
    return gf_update_status(gf, gf->ops->adam(&gf->queue, &adam, gf_places_elems(gf, first, last)));
}

static gf_status norm_add(gf_context *gf, gf_mem square, gf_mem values, uint64_t count)
{
    const struct gf_norm norm = {square, values, count};
    return gf->ops->norm(&gf->queue, gf_norm_scratch(gf), GF_TYPE_F32, &norm, 1);
}

/* Of a host: the squares of `count` elements of r, of which `done` came before. Each run's sum goes
 * to its lane. */
static gf_status runs_add(gf_context *gf, float lanes[GF_LANES], uint64_t done, uint64_t count)
{
    struct gf_norm runs[GF_DIRECTION_RUNS];
    uint32_t added = 0;
    for (uint64_t at = 0; at < count; at += GF_RUN_ELEMS)
        runs[added++] =
            (struct gf_norm){(gf_mem)(uintptr_t)&lanes[(done + at) / GF_RUN_ELEMS % GF_LANES],
                             gf->optimizer.direction + at * sizeof(float),
                             (count - at < GF_RUN_ELEMS) ? count - at : GF_RUN_ELEMS};
    return gf->ops->norm(&gf->queue, 0, GF_TYPE_F32, runs, added);
}

/* Moments, and the norms of the tensor's weights and of r. */
static gf_status lamb_norms(gf_context *gf, uint32_t tensor)
{
    const struct gf_pool_tensor *placed = &gf->tensors[tensor];
    uint64_t end = placed->first_elem + placed->elem_count;
    gf_mem square = gf_gradient_square(gf, tensor);
    float lanes[GF_LANES] = {0};
    gf_status status = GF_OK;
    for (uint64_t at = placed->first_elem, count; (status == GF_OK) && (at < end); at += count) {
        struct gf_adam adam = adam_of(gf, tensor, at, 0.0f);
        uint64_t done = at - placed->first_elem;
        count =
            (end - at < gf->optimizer.direction_elems) ? end - at : gf->optimizer.direction_elems;
        adam.direction_f32 = gf->optimizer.direction;
        status = gf->ops->adam(&gf->queue, &adam, count);
        if (status == GF_OK)
            status = gf->on_device ? norm_add(gf, square, gf->optimizer.direction, count)
                                   : runs_add(gf, lanes, done, count);
        if (gf->on_device || ((at + count < end) && ((done + count) % GF_DIRECTION_ELEMS != 0)))
            continue;
        /* a device has added so much at once */
        *(float *)(uintptr_t)square += gf_lanes_tree(lanes);
        memset(lanes, 0, sizeof lanes);
    }
    return (status < 0) ? status
                        : norm_add(gf, gf_weight_square(gf, tensor),
                                   gf->optimizer.weight + placed->first_elem * sizeof(float),
                                   placed->elem_count);
}

static gf_status lamb_run(gf_context *gf, uint32_t first, uint32_t last, float rate)
{
    uint32_t tensor = gf_at_place(gf, first);
    const struct gf_pool_tensor *placed = &gf->tensors[tensor];
    struct gf_adam adam = adam_of(gf, tensor, placed->first_elem, rate);
    struct gf_ratio ratio = {.ratio_f32 = gf_ratio_at(gf, tensor),
                             .weight_square_f32 = gf_weight_square(gf, tensor),
                             .gradient_square_f32 = gf_gradient_square(gf, tensor),
                             .gradient_scale = 1.0f,
                             .eta = 1.0f};
    gf_status status;
    if (!gf_has_ratio(gf, tensor)) return adam_run(gf, first, last, rate);
    status = lamb_norms(gf, tensor);
    if (status == GF_OK) status = gf->ops->ratio(&gf->queue, &ratio, 1);
    adam.gradient = 0;
    adam.ratio_f32 = gf_ratio_at(gf, tensor);
    if (status == GF_OK) status = gf->ops->adam(&gf->queue, &adam, placed->elem_count);
    return gf_update_status(gf, status);
}

const struct gf_optimizer_kind gf_optimizer_adamw = {.run = adam_run};
const struct gf_optimizer_kind gf_optimizer_lamb = {.has_ratio = true, .run = lamb_run};
