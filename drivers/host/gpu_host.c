/* No GPU: gradients live in ordinary memory, every queue is synchronous, so nothing is ever outstanding. */
#include <string.h>

#include "drivers/gpu.h"

static size_t host_state_bytes(const struct gf_gpu_setup *setup)
{
    (void)setup;
    return sizeof(struct gf_gpu);
}

static gf_status host_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                           struct gf_fault *fault_out)
{
    struct gf_gpu *gpu = state;
    if (setup->device_bytes != 0) {
        return gf_fault_set(fault_out, GF_ERR_PARAM, GF_RANK_NONE, "", 0,
                            "device: the host has no device memory, but %zu bytes of it were asked for (must be 0)",
                            setup->device_bytes);
    }
    *gpu = (struct gf_gpu){.driver = &gf_gpu_host, .ops = setup->ops, .fault.peer = GF_RANK_NONE};
    *gpu_out = gpu;
    return GF_OK;
}

static void host_close(struct gf_gpu *gpu)
{
    (void)gpu;
}

static gf_mem host_arena(struct gf_gpu *gpu)
{
    (void)gpu;
    return 0;
}

static gf_status host_register(struct gf_gpu *gpu, void *base, size_t size_bytes)
{
    (void)gpu;
    (void)base;
    (void)size_bytes;
    return GF_OK;
}

static gf_status host_unregister(struct gf_gpu *gpu, void *base)
{
    (void)gpu;
    (void)base;
    return GF_OK;
}

static gf_status host_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, size_t size_bytes)
{
    (void)queue;
    if ((size_bytes > 0) && (dst != src)) memcpy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, size_bytes);
    return GF_OK;
}

static gf_status host_zero(struct gf_queue *queue, gf_mem dst, size_t size_bytes)
{
    (void)queue;
    if (size_bytes > 0) memset((void *)(uintptr_t)dst, 0, size_bytes);
    return GF_OK;
}

static gf_queue_handle host_stream(struct gf_gpu *gpu, gf_stream which)
{
    (void)gpu;
    (void)which;
    return 0;
}

static gf_status host_launch(struct gf_queue *queue, uint32_t kernel, uint32_t blocks, uint32_t threads, void **args)
{
    (void)blocks;
    (void)threads;
    (void)args;
    return gf_fault_set(&queue->gpu->fault, GF_ERR_STATE, GF_RANK_NONE, "", 0, "device: the host has no kernel %u", kernel);
}

/* Nothing is ever outstanding, on a stream that does not exist. */
static gf_status host_lead(struct gf_queue *queue, gf_queue_handle other)
{
    if (other == 0) return GF_OK;
    return gf_fault_set(&queue->gpu->fault, GF_ERR_PARAM, GF_RANK_NONE, "", 0,
                        "device: the host has no streams, but queue handle 0x%llx was given (must be 0)",
                        (unsigned long long)other);
}

static gf_status host_mark(struct gf_queue *queue, uint32_t event)
{
    (void)event;
    return host_lead(queue, queue->stream);
}

static gf_status host_follow(struct gf_queue *queue, uint32_t event)
{
    (void)queue;
    (void)event;
    return GF_OK;
}

static gf_status host_reached(struct gf_gpu *gpu, uint32_t event)
{
    (void)gpu;
    (void)event;
    return GF_OK;
}

static gf_status host_finished(struct gf_queue *queue)
{
    (void)queue;
    return GF_OK;
}

const struct gf_gpu_driver gf_gpu_host = {
    .name = "host",
    .is_host = true,
    .state_bytes = host_state_bytes,
    .open = host_open,
    .close = host_close,
    .arena = host_arena,
    .host_register = host_register,
    .host_unregister = host_unregister,
    .stream = host_stream,
    .copy = host_copy,
    .zero = host_zero,
    .launch = host_launch,
    .lead = host_lead,
    .mark = host_mark,
    .reached = host_reached,
    .follow = host_follow,
    .finished = host_finished,
};
