/* See gpu_program.h. The library's own events have no times, so the driver is asked for two that
 * have. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firmware-tests/cuda/gpu_program.h"

#define CUDA_12_0 12000

typedef int (*find_call)(const char *name, void **found_out, int version, uint64_t flags,
                         int *why_out);
static struct {
    int (*create)(void **event_out, unsigned flags);
    int (*destroy)(void *event);
    int (*record)(void *event, void *stream);
    int (*elapsed)(float *ms_out, void *begin, void *end);
} calls;
static void *events[2];

static void must(int result, const char *call)
{
    if (result == 0) return;
    fprintf(stderr, "gpu: %s fails with CUresult %d\n", call, result);
    exit(1);
}

bool gpu_driver_call(const char *name, void *member_out)
{
    void *library = dlopen((gpu_program.library != NULL) ? gpu_program.library : "libcuda.so.1",
                           RTLD_NOW | RTLD_LOCAL);
    void *symbol = (library != NULL) ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    void *found = NULL;
    find_call call;
    int why = 0;
    if (symbol == NULL) must(-1, "cuGetProcAddress_v2");
    memcpy(&call, &symbol, sizeof call);
    if ((call(name, &found, CUDA_12_0, 0, &why) != 0) || (found == NULL)) return false;
    memcpy(member_out, &found, sizeof found);
    return true;
}

static void find(const char *name, void *member_out)
{
    if (!gpu_driver_call(name, member_out)) must(-1, name);
}

static void entered(bool enters)
{
    const struct gf_gpu_driver *driver = gpu_program.gpu->driver;
    gpu_must(enters ? driver->enter(gpu_program.gpu) : driver->leave(gpu_program.gpu));
}

void gpu_timer_open(void)
{
    find("cuEventCreate", &calls.create);
    find("cuEventDestroy", &calls.destroy);
    find("cuEventRecord", &calls.record);
    find("cuEventElapsedTime", &calls.elapsed);
    entered(true);
    for (int i = 0; i < 2; i++) must(calls.create(&events[i], 0), "cuEventCreate");
    entered(false);
}

static void mark(int which)
{
    entered(true);
    must(calls.record(events[which], (void *)(uintptr_t)gpu_program.queue.stream), "cuEventRecord");
    entered(false);
}

void gpu_timer_begin(void)
{
    mark(0);
}

double gpu_timer_end(void)
{
    float ms = 0;
    mark(1);
    gpu_drain();
    entered(true);
    must(calls.elapsed(&ms, events[0], events[1]), "cuEventElapsedTime");
    entered(false);
    return (double)ms * 1e3;
}

void gpu_timer_close(void)
{
    entered(true);
    for (int i = 0; i < 2; i++) must(calls.destroy(events[i]), "cuEventDestroy");
    entered(false);
}
