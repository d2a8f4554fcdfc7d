/* See gpu_program.h. */
#include "firmware-tests/cuda/gpu_program.h"

#include <stdio.h>
#include <stdlib.h>

#include "ops/element/cuda/kernels.h"

extern const struct gf_gpu_driver gf_gpu_cuda;
#if GF_WITH_NVCC
extern const char gf_sweep_fatbin[];
static const void *const image = gf_sweep_fatbin;
#else
static const void *const image = NULL;
#endif

static struct gf_gpu *gpu;
static void *state;

void gpu_sweep_open(void)
{
    static const char *const kernels[] = {"gf_kernel_sweep"};
    struct gf_gpu_setup setup = {.library =
                                     (gpu_program.library != NULL) ? gpu_program.library : "",
                                 .log = {gpu_log, NULL},
                                 .kernels = {.image = image, .names = kernels, .count = 1}};
    struct gf_fault fault = {.peer = GF_RANK_NONE};
    state = calloc(1, gf_gpu_cuda.state_bytes(&setup));
    if (state == NULL) exit(1);
    if (gf_gpu_cuda.open(&setup, state, &gpu, &fault) == GF_OK) return;
    fprintf(stderr, "gpu: the sweep: %s\n", fault.text);
    exit(1);
}

gf_status gpu_sweep(gf_queue_handle stream, const struct gf_sweep_args *args)
{
    struct gf_queue queue = {.gpu = gpu, .stream = stream};
    void *list[] = {(void *)(uintptr_t)args};
    uint64_t wanted = args->word_count / 4 / GF_KERNEL_THREADS + 1;
    uint64_t most = gpu->blocks[0];
    return gf_gpu_cuda.launch(&queue, 0, (uint32_t)((wanted < most) ? wanted : most),
                              GF_KERNEL_THREADS, list);
}

void gpu_sweep_close(void)
{
    gf_gpu_cuda.close(gpu);
    free(state);
}
