/* Where the fatbin is: linked in by the Makefile where nvcc was found. */
#include "ops/element/cuda/ops_cuda.h"

#if GF_WITH_NVCC
extern const char gf_kernels_fatbin[];
const void *const gf_cuda_image = gf_kernels_fatbin;
#else
const void *const gf_cuda_image = NULL;
#endif
