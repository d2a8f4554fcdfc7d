/* The CUDA backend of the element ops; what its driver loads for it is gf_gpu_cuda_kernels. */
#ifndef GF_OPS_CUDA_H
#define GF_OPS_CUDA_H

#include "ops/ops.h"

/* Queues whose driver launches those kernels. Each address is a multiple of its element's size.
 * sum_n: at most GF_DIRECT_RANKS_MAX of each. A check lies in device memory, or in host memory that
 * was registered. */
extern const struct gf_element_ops gf_element_ops_cuda;

#endif
