/* All drivers of this build. */
#include "drivers/drivers.h"

const struct gf_drivers gf_drivers_all = {
    .link = &gf_link_tcp,
#if GF_WITH_UCX
    .fabric = &gf_link_ucx,
#endif
    .channel = &gf_channel_tcp,
#if GF_WITH_CUDA
    .gpu = &gf_gpu_cuda,
    .gpu_kernels = &gf_gpu_cuda_kernels,
#endif
    .clock = &gf_clock_monotonic,
};
