/* Pools in device memory. Element ops on them are queued and done late, so nothing that they write may be looked at
 * before an event behind them is reached; the network works on the wire pool in host memory, which the device was told
 * of. On the host each of these calls is done when it returns, and costs nothing. */
#include <string.h>

#include "lib/core/layout.h"

gf_status gf_device_failed(gf_context *gf, gf_operation operation)
{
    return gf_fail_fault(gf, &gf->gpu->fault, operation);
}

static gf_mem mem(const void *address) { return (gf_mem)(uintptr_t)address; }

void gf_device_lay(gf_context *gf, const struct gf_layout *layout, const struct gf_pool_parts *host)
{
    const struct gf_config *config = &gf->config;
    struct gf_arena device = {0};
    struct gf_device_parts parts = {.pools = *host};
    if (layout->on_device) {
        device.base = (char *)(uintptr_t)gf->gpu->driver->arena(gf->gpu);
        device.size_bytes = layout->footprint.device_bytes;
        gf->device = mem(device.base);
        gf->device_bytes = device.size_bytes;
        parts = gf_layout_device(layout, &device);
        gf->gradient = mem(parts.gradient);
        gf->pack = mem(parts.pack);
        gf->finite.counters = mem(parts.counters);
        gf->sparse.device_lists = mem(parts.lists);
        for (uint32_t s = 0; layout->may_reach_device && (s < gf->under_way.count); s++)
            gf->under_way.ops[s].device_staging = mem(parts.staging) + s * layout->op_need.staging_bytes;
    }
    gf->weight = (config->optimizer.kind != GF_OPTIMIZER_NONE) ? mem(parts.pools.weight) : 0;
    gf->momentum = ((gf->weight != 0) && (config->optimizer.momentum > 0.0f)) ? mem(parts.pools.momentum) : 0;
    gf->half = (config->optimizer.half_weights != GF_TYPE_F32) ? mem(parts.pools.half) : 0;
    gf->norms = mem(parts.pools.norms);
    gf->part = mem(parts.pools.part);
    gf->sparse.history = mem(parts.pools.history);
    gf->sparse.scratch = mem(parts.pools.scratch);
    gf->sparse.scratch_elems = gf_layout_scratch_elems(layout);
}

gf_status gf_device_register(gf_context *gf)
{
    if (!gf->on_device) return GF_OK;
    return gf->gpu->driver->host_register(gf->gpu, gf->region_base, gf->region_bytes);
}

void gf_device_unregister(gf_context *gf)
{
    if (gf->on_device && (gf->region_base != NULL)) gf->gpu->driver->host_unregister(gf->gpu, gf->region_base);
}

gf_status gf_device_settle(gf_context *gf)
{
    return gf->on_device ? gf->gpu->driver->finished(&gf->queue) : GF_OK;
}

/* Until what was queued is done; a device that does not end within the deadline of an exchange has failed. */
static gf_status settle_wait(gf_context *gf)
{
    uint64_t end_ns = gf_now(gf) + gf->config.exchange.timeout_ns;
    gf_status status;
    while ((status = gf_device_settle(gf)) == GF_AGAIN)
        if (gf_now(gf) > end_ns)
            return gf_fail(gf, GF_ERR_TIMEOUT, GF_OPERATION_STATE, GF_RANK_NONE, GF_TENSOR_NONE,
                           "the device did not end a copy within exchange.timeout");
    return (status < 0) ? gf_device_failed(gf, GF_OPERATION_STATE) : GF_OK;
}

static uint64_t copy_bytes(const gf_context *gf, uint64_t left)
{
    uint64_t most = gf->pool.elem_count * sizeof(float); /* of the wire pool */
    return (left < most) ? left : most;
}

gf_status gf_device_read(gf_context *gf, void *to, gf_mem from, uint64_t bytes)
{
    gf_status status;
    if (!gf->on_device) {
        if (bytes > 0) memcpy(to, (const void *)(uintptr_t)from, bytes);
        return GF_OK;
    }
    for (uint64_t done = 0, count; done < bytes; done += count) {
        count = copy_bytes(gf, bytes - done);
        if (gf->gpu->driver->copy(&gf->queue, gf->wire, from + done, count) < 0)
            return gf_device_failed(gf, GF_OPERATION_STATE);
        if ((status = settle_wait(gf)) < 0) return status;
        memcpy((char *)to + done, (const void *)(uintptr_t)gf->wire, count);
    }
    return GF_OK;
}

gf_status gf_device_write(gf_context *gf, gf_mem to, const void *from, uint64_t bytes)
{
    gf_status status;
    if (!gf->on_device) {
        if (bytes > 0) memcpy((void *)(uintptr_t)to, from, bytes);
        return GF_OK;
    }
    for (uint64_t done = 0, count; done < bytes; done += count) {
        count = copy_bytes(gf, bytes - done);
        memcpy((void *)(uintptr_t)gf->wire, (const char *)from + done, count);
        if (gf->gpu->driver->copy(&gf->queue, to + done, gf->wire, count) < 0)
            return gf_device_failed(gf, GF_OPERATION_STATE);
        if ((status = settle_wait(gf)) < 0) return status;
    }
    return GF_OK;
}

bool gf_device_holds(const gf_context *gf, gf_mem data)
{
    return gf->on_device && (data >= gf->device) && (data - gf->device < gf->device_bytes);
}

gf_status gf_queue_follow(gf_context *gf, gf_queue_handle queue)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if (gf->phase == GF_PHASE_STEP)
        return gf_refuse(gf, GF_ERR_STATE, "gf_queue_follow: step %llu is not whole",
                         (unsigned long long)gf->step.number);
    if (gf->gpu->driver->lead(&gf->queue, queue) < 0) return gf_device_failed(gf, GF_OPERATION_STEP);
    return GF_OK;
}
