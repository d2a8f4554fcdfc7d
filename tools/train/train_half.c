/* See train_half.h. */
#include "tools/train/train_half.h"

#include "ops/element/host/half.h"

void half_put(gf_type type, uint16_t *to, const float *from, uint64_t count)
{
    if (type == GF_TYPE_F16)
        for (uint64_t i = 0; i < count; i++) to[i] = gf_f16_of_f32(from[i]);
    else
        for (uint64_t i = 0; i < count; i++) to[i] = gf_bf16_of_f32(from[i]);
}

void half_get(gf_type type, float *to, const uint16_t *from, uint64_t count)
{
    if (type == GF_TYPE_F16)
        for (uint64_t i = 0; i < count; i++) to[i] = gf_f32_of_f16(from[i]);
    else
        for (uint64_t i = 0; i < count; i++) to[i] = gf_f32_of_bf16(from[i]);
}

void half_round(gf_type type, float *data, uint64_t count)
{
    if (type == GF_TYPE_F16)
        for (uint64_t i = 0; i < count; i++) data[i] = gf_f32_of_f16(gf_f16_of_f32(data[i]));
    if (type == GF_TYPE_BF16)
        for (uint64_t i = 0; i < count; i++) data[i] = gf_f32_of_bf16(gf_bf16_of_f32(data[i]));
}
