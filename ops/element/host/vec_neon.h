/* A vector of 4 floats: Advanced SIMD (NEON), which every 64-bit ARM has, with its conversions of
 * binary16. */
#if !defined(VEC_ELEMS) && defined(__aarch64__)
#define VEC_ELEMS 4u

#include <arm_neon.h>
#include <string.h>

#include "ops/element/host/ops_host.h"

#define VEC_FN static
#define VEC_INLINE static inline __attribute__((always_inline, unused))

typedef float32x4_t vec;

VEC_INLINE vec vec_set(float value)
{
    return vdupq_n_f32(value);
}
VEC_INLINE vec vec_sqrt(vec a)
{
    return vsqrtq_f32(a);
}
VEC_INLINE vec vec_abs(vec a)
{
    return vabsq_f32(a);
}

VEC_INLINE uint32_t vec_bad(vec a, float limit)
{
    static const uint32_t lane_bits[VEC_ELEMS] = {1, 2, 4, 8};
    return vaddvq_u32(vbicq_u32(vld1q_u32(lane_bits), vcltq_f32(vec_abs(a), vec_set(limit))));
}

VEC_INLINE vec vec_load_whole(gf_type type, const uint8_t *src)
{
    uint16x4_t half;
    if (type == GF_TYPE_F32) return vreinterpretq_f32_u8(vld1q_u8(src));
    half = vreinterpret_u16_u8(vld1_u8(src));
    if (type == GF_TYPE_F16) return vcvt_f32_f16(vreinterpret_f16_u16(half));
    return vreinterpretq_f32_u32(vshll_n_u16(half, 16));
}

/* bf16 as gf_bf16_of_f32(): only a NaN that vec_quiet() did not see carries into the sign. */
VEC_INLINE uint16x4_t vec_round(gf_type type, vec a)
{
    uint32x4_t bits = vreinterpretq_u32_f32(a);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    if (type == GF_TYPE_F16) return vreinterpret_u16_f16(vcvt_f16_f32(a));
    return vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
}

VEC_INLINE void vec_store_whole(gf_type type, uint8_t *dst, vec a)
{
    if (type == GF_TYPE_F32)
        vst1q_u8(dst, vreinterpretq_u8_f32(a));
    else
        vst1_u8(dst, vreinterpret_u8_u16(vec_round(type, a)));
}

/* No compiler for C offers a store past the cache here. */
VEC_INLINE void vec_stream_whole(gf_type type, uint8_t *dst, vec a)
{
    vec_store_whole(type, dst, a);
}
VEC_INLINE void vec_stream_end(void)
{
}

/* As many doubles as the vector has floats, for sums of squares. */
typedef struct {
    float64x2_t low, high;
} vec_f64;
VEC_INLINE vec_f64 vec_f64_zero(void)
{
    return (vec_f64){vdupq_n_f64(0), vdupq_n_f64(0)};
}
VEC_INLINE vec_f64 vec_square_add(vec_f64 sum, vec a)
{
    float64x2_t low = vcvt_f64_f32(vget_low_f32(a));
    float64x2_t high = vcvt_high_f64_f32(a);
    return (vec_f64){vaddq_f64(sum.low, vmulq_f64(low, low)),
                     vaddq_f64(sum.high, vmulq_f64(high, high))};
}
VEC_INLINE void vec_f64_store(double *dst, vec_f64 a)
{
    vst1q_f64(dst, a.low);
    vst1q_f64(dst + 2, a.high);
}

#include "ops/element/host/vec.h"
#endif
