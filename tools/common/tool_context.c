/* See tool_context.h. */
#include "tools/common/tool_context.h"

#include <stdlib.h>
#include <string.h>

#include "drivers/drivers.h"
#include "drivers/identity.h"

#define PAGE_BYTES 4096u

static void *zeroed(size_t alignment, size_t size_bytes)
{
    size_t whole = (size_bytes + alignment - 1u) / alignment * alignment;
    void *memory = aligned_alloc(alignment, whole);
    if (memory != NULL) memset(memory, 0, whole);
    return memory;
}

void *tool_memory(size_t size_bytes)
{
    return zeroed(64, size_bytes);
}

gf_status tool_context_open(struct tool_context *context, const struct gf_config *config,
                            const struct gf_tensor *tensors, uint32_t tensor_count)
{
    struct gf_footprint need;
    *context = (struct tool_context){.gf = NULL};
    gf_status status = gf_measure(config, tensors, tensor_count, &need);
    if (status < 0) return status;
    context->memory = tool_memory(need.control_bytes);
    if (context->memory == NULL) return GF_ERR_ARENA;
    return gf_open(config, tensors, tensor_count, context->memory, need.control_bytes,
                   &context->gf);
}

gf_status tool_context_close(struct tool_context *context)
{
    gf_status status = gf_close(context->gf);
    free(context->memory);
    *context = (struct tool_context){.gf = NULL};
    return status;
}

gf_status tool_gpu_open(struct tool_gpu *gpu, const struct gf_config *config, uint64_t device_bytes,
                        size_t host_bytes, const struct gf_gpu_kernels *kernels)
{
    const struct gf_gpu_driver *driver = gf_drivers_all.gpu;
    struct gf_gpu_setup setup = {.library = config->device.library,
                                 .ordinal = config->device.ordinal,
                                 .local = gf_identity_local(config->job.rank),
                                 .device_bytes = device_bytes,
                                 .log = {config->log, config->log_user}};
    *gpu = (struct tool_gpu){.gpu = NULL};
    if (driver == NULL)
        return gf_fault_set(&gpu->fault, GF_ERR_CONFIG, GF_RANK_NONE, "", 0,
                            "device.driver \"%s\" is not in this build", config->device.driver);
    if (kernels != NULL) setup.kernels = *kernels;
    gpu->state = tool_memory(driver->state_bytes(&setup));
    void *host = zeroed(PAGE_BYTES, host_bytes);
    gf_status status = GF_ERR_SYSTEM;
    if ((gpu->state == NULL) || (host == NULL))
        gf_fault_set(&gpu->fault, status, GF_RANK_NONE, "", 0, "there is no memory beside the GPU");
    else
        status = driver->open(&setup, gpu->state, &gpu->gpu, &gpu->fault);
    if (status >= 0) status = driver->host_register(gpu->gpu, host, host_bytes);
    if (status < 0) {
        free(host);
        return status;
    }
    gpu->host = host;
    gpu->queue = (struct gf_queue){.gpu = gpu->gpu, .stream = gpu->gpu->streams[GF_STREAM_MAIN]};
    return GF_OK;
}

void tool_gpu_close(struct tool_gpu *gpu)
{
    bool ended = true;
    if (gpu->host != NULL) ended = gpu->gpu->driver->host_unregister(gpu->gpu, gpu->host) == GF_OK;
    if (gpu->gpu != NULL) gpu->gpu->driver->close(gpu->gpu);
    if (ended) free(gpu->host); /* else what hangs may still write there */
    free(gpu->state);
    *gpu = (struct tool_gpu){.gpu = NULL};
}

const char *tool_gpu_error(const struct tool_gpu *gpu)
{
    if (gpu->fault.code != GF_OK) return gpu->fault.text;
    return (gpu->gpu != NULL) ? gpu->gpu->fault.text : "";
}
