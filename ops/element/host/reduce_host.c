/* See reduce_host.h. Types and reductions are constants where the loop is compiled. */
#include "ops/element/host/reduce_host.h"

#include <math.h>

#include "drivers/base/fault.h"
#include "ops/element/host/half.h"

#define NAN_BITS 0x7fc00000u

static inline float combined(gf_reduction reduction, float a, float b)
{
    bool below = (a < b) || ((a == b) && signbit(a));
    if ((a != a) || (b != b)) return gf_f32_of_bits(NAN_BITS);
    return (below == (reduction == GF_REDUCTION_MIN)) ? a : b;
}

static inline __attribute__((always_inline)) void reduce(gf_reduction reduction, gf_mem to,
                                                         gf_mem from, gf_type type,
                                                         uint64_t elem_count)
{
    float *dst = (float *)(uintptr_t)to;
    const float *src = (const float *)(uintptr_t)from;
    uint16_t *dst_16 = (uint16_t *)(uintptr_t)to;
    const uint16_t *src_16 = (const uint16_t *)(uintptr_t)from;
    for (uint64_t i = 0; i < elem_count; i++) {
        if (type == GF_TYPE_F32)
            dst[i] = combined(reduction, dst[i], src[i]);
        else if (type == GF_TYPE_F16)
            dst_16[i] = gf_f16_of_f32(
                combined(reduction, gf_f32_of_f16(dst_16[i]), gf_f32_of_f16(src_16[i])));
        else
            dst_16[i] = gf_bf16_of_f32(
                combined(reduction, gf_f32_of_bf16(dst_16[i]), gf_f32_of_bf16(src_16[i])));
    }
}

static inline __attribute__((always_inline)) void reduce_type(gf_reduction reduction, gf_mem dst,
                                                              gf_mem src, gf_type type,
                                                              uint64_t elem_count)
{
    if (type == GF_TYPE_F32)
        reduce(reduction, dst, src, GF_TYPE_F32, elem_count);
    else if (type == GF_TYPE_F16)
        reduce(reduction, dst, src, GF_TYPE_F16, elem_count);
    else
        reduce(reduction, dst, src, GF_TYPE_BF16, elem_count);
}

void gf_reduce_host(gf_reduction reduction, gf_mem dst, gf_mem src, gf_type type,
                    uint64_t elem_count)
{
    GF_ASSERT((type < GF_TYPE_COUNT) && (reduction > GF_REDUCTION_SUM) &&
              (reduction < GF_REDUCTION_COUNT));
    if (reduction == GF_REDUCTION_MIN)
        reduce_type(GF_REDUCTION_MIN, dst, src, type, elem_count);
    else
        reduce_type(GF_REDUCTION_MAX, dst, src, type, elem_count);
}
