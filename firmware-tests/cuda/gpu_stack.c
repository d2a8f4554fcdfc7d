/* See gpu_program.h. In a thread with a painted stack, as the first that this process asks of CUDA,
 * so that what cuInit() and the first launch of a kernel need is in it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "firmware-tests/cuda/gpu_program.h"
#include "gradientflow.h"
#include "ops/element/cuda/ops_cuda.h"

#define STACK_BYTES ((size_t)4 << 20)
#define WORK_BYTES (UINT64_C(1) << 20)
#define PAINT 0x5a

static void *work(void *nothing)
{
    gpu_open(WORK_BYTES, WORK_BYTES);
    const gf_mem at = gpu_program.gpu->arena;
    memset(gpu_program.staging, 0, WORK_BYTES);
    gpu_upload(at, gpu_program.staging, WORK_BYTES / 2);
    gpu_must(gf_element_ops_cuda.cast(&gpu_program.queue, at, GF_TYPE_F32, at, GF_TYPE_F32,
                                      WORK_BYTES / 8, 1.0f, 0, NULL));
    gpu_download(gpu_program.staging, at, WORK_BYTES / 2);
    gpu_close();
    return nothing;
}

void gpu_stack_measure(void)
{
    uint8_t *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    size_t untouched = 0;
    if (stack == MAP_FAILED) exit(1);
    memset(stack, PAINT, STACK_BYTES);
    if ((pthread_attr_init(&attributes) != 0) ||
        (pthread_attr_setstack(&attributes, stack, STACK_BYTES) != 0) ||
        (pthread_create(&thread, &attributes, work, NULL) != 0) ||
        (pthread_join(thread, NULL) != 0)) {
        fprintf(stderr, "gpu-probe: a thread with a stack of its own cannot be started\n");
        exit(1);
    }
    (void)pthread_attr_destroy(&attributes);
    while ((untouched < STACK_BYTES) && (stack[untouched] == PAINT)) untouched++;
    const size_t used = STACK_BYTES - untouched;
    printf("  stack of a thread that opens, copies and launches, libcuda's part in it: %zu bytes; "
           "the library asks for %u\n",
           used, GF_STACK_BYTES);
    gpu_json_row("\"op\":\"stack\",\"bytes\":%zu,\"promised\":%u", used, GF_STACK_BYTES);
    (void)munmap(stack, STACK_BYTES);
}
