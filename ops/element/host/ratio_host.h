/* Trust ratio of LARS: a number each, the same at every width. */
#ifndef GF_RATIO_HOST_H
#define GF_RATIO_HOST_H
#include <math.h>

#include "ops/element/host/vec.h"

VEC_FN gf_status ratio(struct gf_queue *queue, const struct gf_ratio *ratios, uint32_t count)
{
    (void)queue;
    for (const struct gf_ratio *ratio = ratios; ratio < ratios + count; ratio++) {
        double weight_square;
        double gradient_square;
        double weight_norm;
        double gradient_norm;
        float result = 1.0f;
        memcpy(&weight_square, gf_host_at(ratio->weight_square_f64), sizeof weight_square);
        memcpy(&gradient_square, gf_host_at(ratio->gradient_square_f64), sizeof gradient_square);
        weight_norm = sqrt(weight_square);
        gradient_norm = sqrt(gradient_square) * (double)ratio->gradient_scale;
        if ((weight_norm > 0.0) && (gradient_norm > 0.0))
            result = (float)((double)ratio->eta * weight_norm /
                             (gradient_norm + (double)ratio->decay * weight_norm +
                              (double)ratio->epsilon));
        memcpy(gf_host_at(ratio->ratio_f32), &result, sizeof result);
    }
    return GF_OK;
}

#endif
