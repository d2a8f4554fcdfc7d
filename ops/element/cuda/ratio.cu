/* Trust ratio of LARS: one thread. Square root and division are rounded correctly by nvcc's defaults. */
#include "ops/element/cuda/device.cuh"

GF_KERNEL(ratio)
{
    float weight_norm = sqrtf(*(const float *)args.weight_square);
    float gradient_norm = sqrtf(*(const float *)args.gradient_square) * args.gradient_scale;
    float result = 1.0f;
    if ((weight_norm > 0.0f) && (gradient_norm > 0.0f))
        result = args.eta * weight_norm / (gradient_norm + args.decay * weight_norm + args.epsilon);
    *(float *)args.ratio = result;
}
