/* The one reference from the library to the real drivers. A program that defines gf_drivers_builtin itself, or a build
 * with UCX=0, is linked without UCX; likewise the CUDA driver, which is left out where there is no cuda.h. */
#include "drivers/drivers.h"
#include "ops/element/cuda/ops_cuda.h"

#if GF_WITH_CUDA
static const struct gf_gpu_kernels cuda_kernels = {&gf_cuda_image, gf_cuda_kernels, &gf_cuda_kernel_count, &gf_ops_cuda};
#endif

const struct gf_drivers gf_drivers_builtin = {
#if GF_WITH_UCX
    .link = &gf_link_ucx,
#endif
    .rendezvous = &gf_rendezvous_tcp,
    .gpu = &gf_gpu_host,
    .clock = &gf_clock_monotonic,
#if GF_WITH_CUDA
    .gpu_others = {{&gf_gpu_cuda, &cuda_kernels}},
#endif
};
