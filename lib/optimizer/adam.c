/* Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2;
 * PyTorch's).
 *
 *     m = b1*m + (1-b1)*g
 *     v = b2*v + (1-b2)*g^2
 *     w = w - rate * ((m / (1-b1^t)) / (sqrt(v / (1-b2^t)) + epsilon) + decay*w)
 *
 * t counts the updates, this one included. */
#include <math.h>

#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/optimizer/kinds.h"

gf_status gf_adam_run(gf_context *gf, uint32_t first, uint32_t last, float rate)
{
    uint32_t tensor = gf_tensor_at(gf, first);
    const struct gf_pool_tensor *placed = &gf->tensors[tensor];
    uint64_t elem = placed->first_elem;
    double beta1 = (double)gf->config.optimizer.adam_beta1;
    double beta2 = (double)gf->config.optimizer.adam_beta2;
    const struct gf_adam adam = {
        .weight_f32 = gf->optimizer.weight + elem * sizeof(float),
        .moment1_f32 = gf->optimizer.momentum + elem * sizeof(float),
        .moment2_f32 = gf->optimizer.moment2 + elem * sizeof(float),
        .half = gf_half_at(gf, elem),
        .half_type = gf->config.optimizer.half_weights,
        .gradient = gf_gradient_at(gf, placed, elem),
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
    return gf_update_status(gf, gf->ops->adam(&gf->queue, &adam, gf_slots_elems(gf, first, last)));
}
