/* Where the fatbin is: linked in by the Makefile where nvcc was found. */
#include "ops/element/cuda/ops_cuda.h"

#if GF_WITH_NVCC
extern const char gf_kernels_fatbin[];
extern const uint32_t gf_kernels_fatbin_cuda[];
const void *const gf_cuda_image = gf_kernels_fatbin;
const uint32_t *const gf_cuda_image_cuda = gf_kernels_fatbin_cuda;
#else
const void *const gf_cuda_image = NULL;
const uint32_t *const gf_cuda_image_cuda = NULL;
#endif
