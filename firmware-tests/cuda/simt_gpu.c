/* A GPU driver of four functions over the SIMT emulator. */
#include "firmware-tests/cuda/simt_gpu.h"

#include <stdio.h>
#include <string.h>

#include "ops/element/cuda/ops_cuda.h"
#include "firmware-tests/cuda/simt.h"

uint64_t simt_gpu_launches;

static gf_status simt_launch(struct gf_queue *queue, uint32_t kernel, uint32_t blocks,
                             uint32_t threads, void **args)
{
    GF_ASSERT(kernel < gf_gpu_cuda_kernels.count);
    simt_gpu_launches++;
    if (gf_simt_launch(gf_gpu_cuda_kernels.names[kernel], blocks, threads, 0, args) == 0)
        return GF_OK;
    fprintf(stderr, "%s\n", gf_simt_error());
    return GF_ERR_DEVICE;
}

static gf_status simt_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, size_t size_bytes)
{
    memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, size_bytes);
    return GF_OK;
}

static gf_status simt_zero(struct gf_queue *queue, gf_mem dst, size_t size_bytes)
{
    memset((void *)(uintptr_t)dst, 0, size_bytes);
    return GF_OK;
}

struct gf_queue *simt_gpu_queue(uint32_t blocks_max)
{
    static const struct gf_gpu_driver driver = {
        .name = "simt", .launch = simt_launch, .copy = simt_copy, .zero = simt_zero};
    static struct gf_gpu gpu;
    static struct gf_queue queue;
    static uint32_t blocks[128];
    GF_ASSERT(gf_gpu_cuda_kernels.count <= sizeof blocks / sizeof *blocks);
    for (uint32_t k = 0; k < gf_gpu_cuda_kernels.count; k++) blocks[k] = blocks_max;
    gpu.blocks = blocks;
    gpu.driver = &driver;
    gpu.ops = &gf_element_ops_cuda;
    queue = (struct gf_queue){.gpu = &gpu};
    return &queue;
}
