/* Where the fatbin is: linked in by the Makefile where nvcc was found. */
#include "ops/element/cuda/ops_cuda.h"

#ifndef GF_NVCC_VERSION
#define GF_NVCC_VERSION 0
#endif
const uint32_t gf_cuda_image_version = GF_NVCC_VERSION;

#if GF_WITH_NVCC
extern const char gf_kernels_fatbin[];
const void *const gf_cuda_image = gf_kernels_fatbin;
#else
const void *const gf_cuda_image = NULL;
#endif
