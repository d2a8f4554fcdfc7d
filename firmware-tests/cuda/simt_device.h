/* Stands in for what nvcc builds in, when the host's compiler compiles a kernel as C. Kernels are compiled with
 * -fsanitize=thread and without its runtime: each access calls into simt_access.c. Kept to what the kernels use. */
#ifndef GF_SIMT_DEVICE_H
#define GF_SIMT_DEVICE_H

#include <math.h>
#include <stdbool.h>

#include "ops/element/host/half.h"
#include "firmware-tests/cuda/simt.h"

#define GF_INLINE static inline __attribute__((always_inline, unused))
#define GF_UNROLL
/* The kernel, and its entry in the table by name. */
#define GF_KERNEL(kernel_name)                                                                              \
    static void simt_body_##kernel_name(const struct gf_##kernel_name##_args args);                         \
    static void simt_run_##kernel_name(const void *args)                                                    \
    {                                                                                                       \
        simt_body_##kernel_name(*(const struct gf_##kernel_name##_args *)args);                             \
    }                                                                                                       \
    extern const struct gf_simt_kernel gf_simt_kernel_##kernel_name;                                        \
    const struct gf_simt_kernel gf_simt_kernel_##kernel_name = {                                            \
        "gf_kernel_" #kernel_name, sizeof(struct gf_##kernel_name##_args), simt_run_##kernel_name};         \
    static void simt_body_##kernel_name(const struct gf_##kernel_name##_args args)

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
unsigned long long simt_atomic_add(unsigned long long *at, unsigned long long value);
unsigned long long simt_atomic_min(unsigned long long *at, unsigned long long value);
#define __syncthreads() simt_barrier()
#define __shfl_down_sync(mask, value, delta, width) \
    gf_f32_of_bits(simt_shuffle_down((mask), gf_f32_bits(value), (delta), (uint32_t)(width)))
#define atomicAdd(at, value) simt_atomic_add((at), (value))
#define atomicMin(at, value) simt_atomic_min((at), (value))

typedef struct { uint32_t x, y, z, w; } __attribute__((aligned(16))) gf_line16;
typedef struct { uint32_t x, y; } __attribute__((aligned(8))) gf_line8;

GF_INLINE uint32_t gf_bits(float value) { return gf_f32_bits(value); }
GF_INLINE float gf_of_bits(uint32_t bits) { return gf_f32_of_bits(bits); }

/* Whatever a GPU computes that is not a number is this one. */
GF_INLINE float gf_raw(float value) { return (value == value) ? value : gf_f32_of_bits(0x7fffffffu); }
GF_INLINE uint32_t gf_f16_raw(float value) { return (value == value) ? gf_f16_of_f32(value) : 0x7fffu; }
GF_INLINE float gf_of_f16_raw(uint32_t half) { return gf_raw(gf_f32_of_f16((uint16_t)half)); }

#endif
