/* A vector of 8 floats: AVX2 and F16C. */
#ifndef VEC_ELEMS
#define VEC_ELEMS 8u

#include <immintrin.h>
#include <string.h>

#include "ops/element/host/ops_host.h"

#define VEC_FN static __attribute__((target("avx2,f16c")))
#define VEC_INLINE static inline __attribute__((always_inline, unused, target("avx2,f16c")))

typedef __m256 vec;

VEC_INLINE vec vec_set(float value)
{
    return _mm256_set1_ps(value);
}
VEC_INLINE vec vec_sqrt(vec a)
{
    return _mm256_sqrt_ps(a);
}
VEC_INLINE vec vec_abs(vec a)
{
    return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}

VEC_INLINE uint32_t vec_bad(vec a, float limit)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(vec_abs(a), vec_set(limit), _CMP_NLT_UQ));
}

VEC_INLINE vec vec_load_whole(gf_type type, const uint8_t *src)
{
    if (type == GF_TYPE_F32) return _mm256_loadu_ps((const float *)(const void *)src);
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)src);
    if (type == GF_TYPE_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

/* In the upper half of each, as gf_bf16_of_f32(); the lower half is anything. The lowest bit that
 * stays picks what is added, as a permutation of two values. Only a NaN that vec_quiet() did not
 * see carries into the sign. */
VEC_INLINE __m256i vec_bf16(vec a)
{
    __m256i bits = _mm256_castps_si256(a);
    __m256i even_odd = _mm256_set1_epi64x(0x800000007fff);
    __m256 add = _mm256_permutevar_ps(_mm256_castsi256_ps(even_odd), _mm256_srli_epi32(bits, 16));
    return _mm256_add_epi32(bits, _mm256_castps_si256(add));
}

VEC_INLINE __m128i vec_round(gf_type type, vec a)
{
    if (type == GF_TYPE_F16)
        return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256i upper = _mm256_srli_epi32(vec_bf16(a), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256(upper, 1));
}

VEC_INLINE void vec_store_whole(gf_type type, uint8_t *dst, vec a)
{
    if (type == GF_TYPE_F32) {
        _mm256_storeu_ps((float *)(void *)dst, a);
    } else {
        _mm_storeu_si128((__m128i *)(void *)dst, vec_round(type, a));
    }
}

/* Past the cache; dst is aligned to the vector's bytes in type. */
VEC_INLINE void vec_stream_whole(gf_type type, uint8_t *dst, vec a)
{
    if (type == GF_TYPE_F32) {
        _mm256_stream_ps((float *)(void *)dst, a);
    } else {
        _mm_stream_si128((__m128i *)(void *)dst, vec_round(type, a));
    }
}
VEC_INLINE void vec_stream_end(void)
{
    _mm_sfence();
}

/* As many doubles as the vector has floats, for sums of squares. */
typedef struct {
    __m256d low, high;
} vec_f64;
VEC_INLINE vec_f64 vec_f64_zero(void)
{
    return (vec_f64){_mm256_setzero_pd(), _mm256_setzero_pd()};
}
VEC_INLINE vec_f64 vec_square_add(vec_f64 sum, vec a)
{
    __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(a));
    __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
    return (vec_f64){_mm256_add_pd(sum.low, _mm256_mul_pd(low, low)),
                     _mm256_add_pd(sum.high, _mm256_mul_pd(high, high))};
}
VEC_INLINE void vec_f64_store(double *dst, vec_f64 a)
{
    _mm256_storeu_pd(dst, a.low);
    _mm256_storeu_pd(dst + 4, a.high);
}

#include "ops/element/host/vec.h"
#endif
