/* Stands in for what nvcc builds in, when the host's compiler compiles a kernel as C. Kernels are
 * compiled with -fsanitize=thread and without its runtime: each access calls into simt_access.c.
 * Kept to what the kernels use. */
#ifndef GF_SIMT_DEVICE_H
#define GF_SIMT_DEVICE_H

#include <math.h>
#include <stdbool.h>

#include "ops/element/host/half.h"
#include "firmware-tests/cuda/simt.h"

#define GF_INLINE static inline __attribute__((always_inline, unused))
#define GF_UNROLL
#define GF_ROLLED
#define gf_likely(what) (what)
#define GF_MAIN_LOOP simt_loop(__LINE__)
void simt_loop(uint32_t line);
/* The kernel, and its entry in the table by name. */
#define GF_KERNEL_BOUNDS(kernel_name, kind, threads, blocks)                                 \
    static void simt_body_##kernel_name(const struct gf_##kind##_args args);                 \
    static void simt_run_##kernel_name(const void *args)                                     \
    {                                                                                        \
        simt_body_##kernel_name(*(const struct gf_##kind##_args *)args);                     \
    }                                                                                        \
    extern const struct gf_simt_kernel gf_simt_kernel_##kernel_name;                         \
    const struct gf_simt_kernel gf_simt_kernel_##kernel_name = {                             \
        "gf_kernel_" #kernel_name, sizeof(struct gf_##kind##_args), simt_run_##kernel_name}; \
    static void simt_body_##kernel_name(const struct gf_##kind##_args args)

struct simt_dim {
    uint32_t x, y, z;
};
struct simt_dim simt_thread(void), simt_block(void), simt_block_size(void), simt_grid_size(void);
#define threadIdx simt_thread()
#define blockIdx simt_block()
#define blockDim simt_block_size()
#define gridDim simt_grid_size()

/* One section, so that its bounds are known: blocks take turns in it, and each finds rubbish. */
#define __shared__ static __attribute__((section("gf_simt_shared")))

void simt_barrier(void);
uint32_t simt_shuffle_down(uint32_t mask, uint32_t value, uint32_t delta, uint32_t width);
uint32_t simt_shuffle(uint32_t mask, uint32_t value, uint32_t lane, uint32_t width);
unsigned long long simt_atomic_add(unsigned long long *at, unsigned long long value);
unsigned long long simt_atomic_min(unsigned long long *at, unsigned long long value);
#define __syncthreads() simt_barrier()
#define __shfl_down_sync(mask, value, delta, width) \
    gf_f32_of_bits(simt_shuffle_down((mask), gf_f32_bits(value), (delta), (uint32_t)(width)))
#define __shfl_sync(mask, value, lane, width) \
    gf_f32_of_bits(simt_shuffle((mask), gf_f32_bits(value), (lane), (uint32_t)(width)))
#define atomicAdd(at, value) simt_atomic_add((at), (value))
GF_INLINE void gf_global_add(uint64_t at, unsigned long long value)
{
    (void)simt_atomic_add((unsigned long long *)at, value);
}
GF_INLINE void gf_global_min(uint64_t at, unsigned long long value)
{
    (void)simt_atomic_min((unsigned long long *)at, value);
}

typedef struct {
    uint32_t word[4];
} __attribute__((aligned(16))) gf_line;
typedef struct {
    uint32_t word[2];
} __attribute__((aligned(8))) gf_half_line;
GF_INLINE void gf_line_load(uint32_t words[4], uint64_t at)
{
    *(gf_line *)words = *(const gf_line *)at;
}
GF_INLINE void gf_half_line_load(uint32_t words[2], uint64_t at)
{
    *(gf_half_line *)words = *(const gf_half_line *)at;
}
GF_INLINE double gf_f64_load(uint64_t at)
{
    return *(const double *)at;
}
GF_INLINE void gf_line_store(uint64_t at, const uint32_t words[4])
{
    *(gf_line *)at = *(const gf_line *)words;
}
GF_INLINE void gf_half_line_store(uint64_t at, const uint32_t words[2])
{
    *(gf_half_line *)at = *(const gf_half_line *)words;
}

GF_INLINE uint32_t gf_bits(float value)
{
    return gf_f32_bits(value);
}
GF_INLINE float gf_of_bits(uint32_t bits)
{
    return gf_f32_of_bits(bits);
}

/* Two words, as on a GPU. */
GF_INLINE double gf_f64_shuffle_down(uint32_t mask, double value, int delta, int width)
{
    uint32_t words[2];
    memcpy(words, &value, sizeof words);
    for (uint32_t w = 0; w < 2; w++)
        words[w] = simt_shuffle_down(mask, words[w], (uint32_t)delta, (uint32_t)width);
    memcpy(&value, words, sizeof value);
    return value;
}

/* A GPU's conversions turn each NaN into one and the same. */
GF_INLINE uint32_t gf_f16x2(float low, float high)
{
    uint32_t first = (low == low) ? gf_f16_of_f32(low) : 0x7fffu;
    return first | (uint32_t)((high == high) ? gf_f16_of_f32(high) : 0x7fffu) << 16;
}
GF_INLINE uint32_t gf_bf16x2(float low, float high)
{
    uint32_t first = (low == low) ? gf_bf16_of_f32(low) : 0x7fffu;
    return first | (uint32_t)((high == high) ? gf_bf16_of_f32(high) : 0x7fffu) << 16;
}
GF_INLINE float gf_of_f16(uint32_t half)
{
    float value = gf_f32_of_f16((uint16_t)half);
    return (value == value) ? value : gf_f32_of_bits(0x7fffffffu);
}

#endif
