/* Trust ratio of LARS: a number each, the same at every width. */
#ifndef GF_RATIO_HOST_H
#define GF_RATIO_HOST_H
#include <math.h>

#include "ops/element/host/vec.h"

VEC_FN gf_status ratio(struct gf_queue *queue, const struct gf_ratio *ratios, uint32_t count)
{
    (void)queue;
    for (const struct gf_ratio *ratio = ratios; ratio < ratios + count; ratio++) {
        float weight_square;
        float gradient_square;
        float weight_norm;
        float gradient_norm;
        float result = 1.0f;
        memcpy(&weight_square, gf_host_at(ratio->weight_square_f32), sizeof weight_square);
        memcpy(&gradient_square, gf_host_at(ratio->gradient_square_f32), sizeof gradient_square);
        weight_norm = sqrtf(weight_square);
        gradient_norm = sqrtf(gradient_square) * ratio->gradient_scale;
        if ((weight_norm > 0.0f) && (gradient_norm > 0.0f))
            result = ratio->eta * weight_norm /
                     (gradient_norm + ratio->decay * weight_norm + ratio->epsilon);
        memcpy(gf_host_at(ratio->ratio_f32), &result, sizeof result);
    }
    return GF_OK;
}

#endif
