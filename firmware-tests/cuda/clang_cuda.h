/* What clang's CUDA front end needs in place of NVIDIA's headers, which fit a few of its versions
 * only: put in front of the kernels, so that a second compiler reads them (test_kernels.sh). Kept
 * to what the kernels use. */
#ifndef GF_CLANG_CUDA_H
#define GF_CLANG_CUDA_H

#include <stdint.h>

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __grid_constant__
#define __CUDACC__ 1

struct clang_dim {
    unsigned x;
};
#define threadIdx (clang_dim{(unsigned)__nvvm_read_ptx_sreg_tid_x()})
#define blockIdx (clang_dim{(unsigned)__nvvm_read_ptx_sreg_ctaid_x()})
#define blockDim (clang_dim{(unsigned)__nvvm_read_ptx_sreg_ntid_x()})
#define gridDim (clang_dim{(unsigned)__nvvm_read_ptx_sreg_nctaid_x()})
#define __float_as_uint(value) __builtin_bit_cast(unsigned, (float)(value))
#define __uint_as_float(bits) __builtin_bit_cast(float, (unsigned)(bits))
#define fabsf(value) __builtin_fabsf(value)
#define sqrtf(value) __nvvm_sqrt_rn_f(value)
#define sqrt(value) __nvvm_sqrt_rn_d(value)
#ifdef __cplusplus /* which CUDA is: one name of two */
static __device__ __forceinline__ float __shfl_down_sync(unsigned mask, float value, unsigned delta,
                                                         int width)
{
    return __nvvm_shfl_sync_down_f32(mask, value, delta, ((32 - width) << 8) | 0x1f);
}
static __device__ __forceinline__ double __shfl_down_sync(unsigned mask, double value,
                                                          unsigned delta, int width)
{
    union {
        double whole;
        float word[2];
    } of = {value};
    for (int w = 0; w < 2; w++) of.word[w] = __shfl_down_sync(mask, of.word[w], delta, width);
    return of.whole;
}
#endif
#define __shfl_sync(mask, value, lane, width) \
    __nvvm_shfl_sync_idx_f32((mask), (value), (lane), ((32 - (width)) << 8) | 0x1f)

#endif
