/* Pools in device memory. Element ops on them are queued and done late, so nothing that they write may be looked at
 * before an event after them is reached (core/device_work.c); the network works on the wire pool in host memory, which
 * the device was told of. */
#include "lib/device/device.h"

#include <string.h>

#include "lib/core/layout.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"

static gf_mem mem(const void *address) { return (gf_mem)(uintptr_t)address; }

static struct gf_pool_parts device_lay(gf_context *gf, const struct gf_layout *layout)
{
    struct gf_arena device = {.base = (char *)(uintptr_t)gf->gpu->arena, .size_bytes = layout->footprint.device_bytes};
    struct gf_device_parts parts;
    gf->device.base = mem(device.base);
    gf->device.bytes = device.size_bytes;
    parts = gf_layout_device(layout, &device);
    gf->gradient = mem(parts.gradient);
    gf->pack = mem(parts.pack);
    gf->finite.counters = mem(parts.counters);
    gf->device.canary = mem(parts.canary);
    gf->sparse.device_lists = mem(parts.lists);
    for (uint32_t s = 0; layout->may_reach_device && (s < gf->under_way.count); s++)
        gf->under_way.ops[s].device_staging = mem(parts.staging) + s * layout->op_need.staging_bytes;
    return parts.pools;
}

/* Until what was queued is done; a device that does not end within the deadline of an exchange has failed. */
static gf_status finished_wait(gf_context *gf)
{
    uint64_t end_ns;
    gf_status status;
    (void)gf_poll_begin(gf);
    end_ns = gf_awake(gf) + gf->config.exchange.timeout_ns;
    while ((status = gf_device_finished(gf)) == GF_AGAIN)
        if ((gf_poll_begin(gf) > 0) && (gf_awake(gf) > end_ns))
            return gf_fail(gf, GF_ERR_TIMEOUT, GF_OPERATION_STATE, GF_RANK_NONE, GF_TENSOR_NONE,
                           "the device did not end a copy within exchange.timeout");
    return (status < 0) ? gf_device_failed(gf, GF_OPERATION_STATE) : GF_OK;
}

/* By way of the wire pool. */
static gf_status device_copy(gf_context *gf, gf_mem pool, gf_mem host, uint64_t bytes, bool writes)
{
    uint64_t most = gf->pool.elem_count * sizeof(float);
    void *wire = (void *)(uintptr_t)gf->wire;
    gf_status status;
    GF_ASSERT((most > 0) || (bytes == 0));
    for (uint64_t done = 0, count; done < bytes; done += count) {
        count = (bytes - done < most) ? bytes - done : most;
        if (writes) memcpy(wire, (const void *)(uintptr_t)(host + done), count);
        gf_mem dst = writes ? pool + done : gf->wire, src = writes ? gf->wire : pool + done;
        if (gf->gpu->driver->copy(&gf->queue, dst, src, count) < 0) return gf_device_failed(gf, GF_OPERATION_STATE);
        if ((status = finished_wait(gf)) < 0) return status;
        if (!writes) memcpy((void *)(uintptr_t)(host + done), wire, count);
    }
    return GF_OK;
}

const struct gf_device_module gf_module_device = {
#if GF_WITH_CUDA
    .driver = &gf_gpu_cuda,
    .kernels = &gf_gpu_cuda_kernels,
#endif
    .direct = &gf_coll_direct_device,
    .stream = &gf_coll_direct_stream,
    .lay = device_lay,
    .copy = device_copy,
    .uuid_begin = gf_uuid_begin,
    .uuid_commit = gf_uuid_commit,
    .ipc_bytes = gf_ipc_bytes,
    .ipc_lay = gf_ipc_lay,
    .ipc_begin = gf_ipc_begin,
    .ipc_next = gf_ipc_next,
    .ipc_close = gf_ipc_close,
    .flags_close = gf_flags_close,
};
