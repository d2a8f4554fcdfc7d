/* Trust ratios of LARS: a thread each. Square root and division are rounded correctly by nvcc's
 * defaults. */
#include "ops/element/cuda/device.cuh"

GF_KERNEL(ratio)
{
    uint32_t i = threadIdx.x;
    if (i >= args.count) return;
    float weight_norm = sqrtf(*(const float *)args.of[i].weight_square_f32);
    float gradient_norm =
        sqrtf(*(const float *)args.of[i].gradient_square_f32) * args.of[i].gradient_scale;
    float result = 1.0f;
    if ((weight_norm > 0.0f) && (gradient_norm > 0.0f))
        result = args.of[i].eta * weight_norm /
                 (gradient_norm + args.of[i].decay * weight_norm + args.of[i].epsilon);
    *(float *)args.of[i].ratio_f32 = result;
}
