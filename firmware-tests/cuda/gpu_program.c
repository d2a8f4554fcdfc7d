/* See gpu_program.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firmware-tests/cuda/gpu_program.h"
#include "ops/element/cuda/ops_cuda.h"

extern const struct gf_gpu_driver gf_gpu_cuda;
struct gpu_program gpu_program;

void gpu_log(void *user, gf_log_level level, const char *text)
{
    if (level <= GF_LOG_WARN) fprintf(stderr, "%s\n", text);
}

void gpu_must(gf_status status)
{
    if (status == GF_OK) return;
    fprintf(stderr, "gpu: status %d: %s %s\n", (int)status, gpu_program.gpu->fault.foreign_call,
            gpu_program.gpu->fault.text);
    exit(1);
}

void gpu_drain(void)
{
    gf_status status;
    while ((status = gf_gpu_cuda.finished(&gpu_program.queue)) == GF_AGAIN) {
    }
    gpu_must(status);
}

static uint64_t part_of(uint64_t left)
{
    return (left < gpu_program.staging_bytes) ? left : gpu_program.staging_bytes;
}

void gpu_upload(gf_mem dst, const void *src, uint64_t size_bytes)
{
    gpu_drain(); /* nothing reads the staging any more */
    for (uint64_t done = 0, part; done < size_bytes; done += part) {
        part = part_of(size_bytes - done);
        memcpy(gpu_program.staging, (const char *)src + done, part);
        gpu_must(gf_gpu_cuda.copy(&gpu_program.queue, dst + done,
                                  (gf_mem)(uintptr_t)gpu_program.staging, part));
        gpu_drain();
    }
}

void gpu_download(void *dst, gf_mem src, uint64_t size_bytes)
{
    for (uint64_t done = 0, part; done < size_bytes; done += part) {
        part = part_of(size_bytes - done);
        gpu_must(gf_gpu_cuda.copy(&gpu_program.queue, (gf_mem)(uintptr_t)gpu_program.staging,
                                  src + done, part));
        gpu_drain();
        memcpy((char *)dst + done, gpu_program.staging, part);
    }
}

void gpu_open(uint64_t device_bytes, uint64_t staging_bytes)
{
    struct gf_gpu_setup setup = {.library =
                                     (gpu_program.library != NULL) ? gpu_program.library : "",
                                 .device_bytes = device_bytes,
                                 .events_max = 2,
                                 .kernels = gf_gpu_cuda_kernels,
                                 .log = {gpu_log, NULL}};
    struct gf_fault fault = {.peer = GF_RANK_NONE};
    gpu_program.state = calloc(1, gf_gpu_cuda.state_bytes(&setup));
    gpu_program.staging_bytes = (staging_bytes + 4095) / 4096 * 4096;
    gpu_program.staging = aligned_alloc(4096, gpu_program.staging_bytes);
    if ((gpu_program.state == NULL) || (gpu_program.staging == NULL)) exit(1);
    if (gf_gpu_cuda.open(&setup, gpu_program.state, &gpu_program.gpu, &fault) != GF_OK) {
        fprintf(stderr, "gpu: %s\n", fault.text);
        exit(1);
    }
    gpu_program.queue = (struct gf_queue){.gpu = gpu_program.gpu};
    gpu_program.queue.stream = gpu_program.gpu->streams[GF_STREAM_MAIN];
    gpu_must(
        gf_gpu_cuda.host_register(gpu_program.gpu, gpu_program.staging, gpu_program.staging_bytes));
}

void gpu_json_device(void)
{
    gpu_json_row("\"device\":\"%s\",\"multiprocessors\":%u", gpu_program.gpu->name,
                 gpu_program.gpu->multiprocessors);
}

void gpu_close(void)
{
    gf_gpu_cuda.host_unregister(gpu_program.gpu, gpu_program.staging);
    gf_gpu_cuda.close(gpu_program.gpu);
    free(gpu_program.staging);
    free(gpu_program.state);
}
