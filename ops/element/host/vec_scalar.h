/* A vector of one float: what the element ops are, without any tricks. */
#ifndef VEC_ELEMS
#define VEC_ELEMS 1u

#include <math.h>

#include "ops/element/host/half.h"
#include "ops/element/host/ops_host.h"

#define VEC_FN static
#define VEC_INLINE static inline __attribute__((always_inline, unused))

typedef float vec;

VEC_INLINE vec vec_set(float value)
{
    return value;
}
VEC_INLINE vec vec_sqrt(vec a)
{
    return sqrtf(a);
}
VEC_INLINE vec vec_abs(vec a)
{
    return gf_f32_of_bits(gf_f32_bits(a) & 0x7fffffffu);
}
VEC_INLINE uint32_t vec_bad(vec a, float limit)
{
    return vec_abs(a) < limit ? 0 : 1;
}

VEC_INLINE vec vec_load_whole(gf_type type, const uint8_t *src)
{
    uint32_t bits;
    uint16_t half;
    if (type == GF_TYPE_F32) {
        memcpy(&bits, src, sizeof bits);
        return gf_f32_of_bits(bits);
    }
    memcpy(&half, src, sizeof half);
    return (type == GF_TYPE_F16) ? gf_f32_of_f16(half) : gf_f32_of_bf16(half);
}

VEC_INLINE void vec_store_whole(gf_type type, uint8_t *dst, vec a)
{
    if (type == GF_TYPE_F32) {
        memcpy(dst, &a, sizeof a);
        return;
    }
    uint16_t half = (type == GF_TYPE_F16) ? gf_f16_of_f32(a) : gf_bf16_of_f32(a);
    memcpy(dst, &half, sizeof half);
}

VEC_INLINE void vec_stream_whole(gf_type type, uint8_t *dst, vec a)
{
    vec_store_whole(type, dst, a);
}
VEC_INLINE void vec_stream_end(void)
{
}

/* As many doubles as the vector has floats, for sums of squares. */
typedef double vec_f64;
VEC_INLINE vec_f64 vec_f64_zero(void)
{
    return 0;
}
VEC_INLINE vec_f64 vec_square_add(vec_f64 sum, vec a)
{
    return sum + (double)a * (double)a;
}
VEC_INLINE void vec_f64_store(double *dst, vec_f64 a)
{
    *dst = a;
}

#include "ops/element/host/vec.h"
#endif
