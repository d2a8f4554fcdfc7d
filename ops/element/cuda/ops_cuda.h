/* The CUDA backend of the element ops, and what its driver loads for it. */
#ifndef GF_OPS_CUDA_H
#define GF_OPS_CUDA_H

#include "ops/module_ops.h"

/* Kernels, in the order of launch()'s numbers: gf_gpu_setup's kernels and kernel_count. */
extern const char *const gf_cuda_kernels[];
extern const uint32_t gf_cuda_kernel_count;
/* The fatbin; NULL in a build without nvcc. gf_gpu_setup's image. */
extern const void *const gf_cuda_image;
extern const uint32_t *const gf_cuda_image_cuda; /* gf_gpu_setup's */

/* Queues whose driver launches those kernels. Each address is a multiple of its element's size. sum_n: at most
 * GF_DIRECT_RANKS_MAX of each. A check lies in device memory, or in host memory that was registered. */
extern const struct gf_element_ops gf_element_ops_cuda;
extern const struct gf_node_ops gf_node_ops_cuda;
extern const struct gf_sparse_ops gf_sparse_ops_cuda;
extern const struct gf_optimizer_ops gf_optimizer_ops_cuda;
extern const struct gf_quantize_ops gf_quantize_ops_cuda;

#endif
