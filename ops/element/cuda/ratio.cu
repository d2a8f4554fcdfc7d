/* Trust ratios of LARS: a thread each. Square root and division are rounded correctly by nvcc's
 * defaults. */
#include "ops/element/cuda/device.cuh"

GF_KERNEL(ratio)
{
    uint32_t i = threadIdx.x;
    if (i >= args.count) return;
    double weight_norm = sqrt(*(const double *)args.of[i].weight_square_f64);
    double gradient_norm =
        sqrt(*(const double *)args.of[i].gradient_square_f64) * (double)args.of[i].gradient_scale;
    float result = 1.0f;
    if ((weight_norm > 0.0) && (gradient_norm > 0.0))
        result = (float)((double)args.of[i].eta * weight_norm /
                         (gradient_norm + (double)args.of[i].decay * weight_norm +
                          (double)args.of[i].epsilon));
    *(float *)args.of[i].ratio_f32 = result;
}
