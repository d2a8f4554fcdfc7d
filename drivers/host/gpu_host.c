/* The driver for a context without a GPU: gradients are in ordinary memory, and every queue is
 * synchronous, so no work is ever outstanding. */
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
    if (setup->device_bytes != 0)
        return gf_fault_set(
            fault_out, GF_ERR_PARAM, GF_RANK_NONE, "", 0,
            "device: the host has no device memory, but %zu bytes of it were asked for (must be 0)",
            setup->device_bytes);
    *gpu = (struct gf_gpu){
        .driver = &gf_gpu_host, .ops = setup->kernels.ops, .fault.peer = GF_RANK_NONE};
    *gpu_out = gpu;
    return GF_OK;
}

static void host_close(struct gf_gpu *gpu)
{
    (void)gpu;
}

/* No work is ever outstanding on a stream that does not exist. */
static gf_status host_stream_wait(struct gf_queue *queue, gf_queue_handle other)
{
    if (other == 0) return GF_OK;
    return gf_fault_set(
        &queue->gpu->fault, GF_ERR_PARAM, GF_RANK_NONE, "", 0,
        "device: the host has no streams, but queue handle 0x%llx was given (must be 0)",
        (unsigned long long)other);
}

static gf_status host_event_record(struct gf_queue *queue, uint32_t event)
{
    (void)event;
    return host_stream_wait(queue, queue->stream);
}

const struct gf_gpu_driver gf_gpu_host = {
    .name = "host",
    .is_host = true,
    .state_bytes = host_state_bytes,
    .open = host_open,
    .close = host_close,
    .stream_wait = host_stream_wait,
    .event_record = host_event_record,
};
