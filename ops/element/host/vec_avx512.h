/* A vector of 16 floats: AVX-512. Its own conversion to bf16 takes subnormals for zero, so it is
 * not used. */
#ifndef VEC_ELEMS
#define VEC_ELEMS 16u

#include <immintrin.h>
#include <string.h>

#include "ops/element/host/ops_host.h"

#define VEC_TARGET target("avx512f,avx512bw,avx512dq,avx512vl")
#define VEC_FN static __attribute__((VEC_TARGET))
#define VEC_INLINE static inline __attribute__((always_inline, unused, VEC_TARGET))

typedef __m512 vec;

VEC_INLINE vec vec_set(float value)
{
    return _mm512_set1_ps(value);
}
VEC_INLINE vec vec_sqrt(vec a)
{
    return _mm512_sqrt_ps(a);
}
VEC_INLINE vec vec_abs(vec a)
{
    return _mm512_abs_ps(a);
}

VEC_INLINE uint32_t vec_bad(vec a, float limit)
{
    return _mm512_cmp_ps_mask(vec_abs(a), vec_set(limit), _CMP_NLT_UQ);
}

VEC_INLINE vec vec_load_whole(gf_type type, const uint8_t *src)
{
    if (type == GF_TYPE_F32) return _mm512_loadu_ps(src);
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)src);
    if (type == GF_TYPE_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

/* These three as in vec_avx2.h. */
VEC_INLINE __m512i vec_bf16(vec a)
{
    __m512i bits = _mm512_castps_si512(a);
    __m512i even_odd = _mm512_set1_epi64(0x800000007fff);
    __m512 add = _mm512_permutevar_ps(_mm512_castsi512_ps(even_odd), _mm512_srli_epi32(bits, 16));
    return _mm512_add_epi32(bits, _mm512_castps_si512(add));
}

VEC_INLINE __m256i vec_round(gf_type type, vec a)
{
    if (type == GF_TYPE_F16)
        return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(vec_bf16(a), 16));
}

VEC_INLINE void vec_store_whole(gf_type type, uint8_t *dst, vec a)
{
    if (type == GF_TYPE_F32) {
        _mm512_storeu_ps(dst, a);
    } else {
        _mm256_storeu_si256((__m256i *)(void *)dst, vec_round(type, a));
    }
}

/* The first lanes, others zero; and those alone to memory. */
#define VEC_HAS_PART
VEC_INLINE vec vec_load_part(gf_type type, const uint8_t *src, uint32_t count)
{
    __mmask16 some = (__mmask16)((1u << count) - 1);
    if (type == GF_TYPE_F32) return _mm512_maskz_loadu_ps(some, src);
    __m256i half = _mm256_maskz_loadu_epi16(some, src);
    if (type == GF_TYPE_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

VEC_INLINE void vec_store_part(gf_type type, uint8_t *dst, uint32_t count, vec a)
{
    __mmask16 some = (__mmask16)((1u << count) - 1);
    if (type == GF_TYPE_F32)
        _mm512_mask_storeu_ps(dst, some, a);
    else
        _mm256_mask_storeu_epi16(dst, some, vec_round(type, a));
}

/* Past the cache; dst is aligned to the vector's bytes in type. */
VEC_INLINE void vec_stream_whole(gf_type type, uint8_t *dst, vec a)
{
    if (type == GF_TYPE_F32) {
        _mm512_stream_ps((void *)dst, a);
    } else {
        _mm256_stream_si256((__m256i *)(void *)dst, vec_round(type, a));
    }
}
VEC_INLINE void vec_stream_end(void)
{
    _mm_sfence();
}

/* As many doubles as the vector has floats, for sums of squares. */
typedef struct {
    __m512d low, high;
} vec_f64;
VEC_INLINE vec_f64 vec_f64_zero(void)
{
    return (vec_f64){_mm512_setzero_pd(), _mm512_setzero_pd()};
}
VEC_INLINE vec_f64 vec_square_add(vec_f64 sum, vec a)
{
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(a));
    __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
    return (vec_f64){_mm512_add_pd(sum.low, _mm512_mul_pd(low, low)),
                     _mm512_add_pd(sum.high, _mm512_mul_pd(high, high))};
}
VEC_INLINE void vec_f64_store(double *dst, vec_f64 a)
{
    _mm512_storeu_pd(dst, a.low);
    _mm512_storeu_pd(dst + 8, a.high);
}

#include "ops/element/host/vec.h"
#endif
