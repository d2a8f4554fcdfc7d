/* Pools in device memory. Element ops on them are queued and done later, so nothing that they write
 * may be looked at before an event after them is reached (work.c); the network works on the pack
 * buffer in host memory, which the device driver has registered. */
#include "lib/device/device.h"

#include <string.h>

#include "lib/core/layout.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "ops/coll/flow.h"

static gf_mem mem(const void *address)
{
    return (gf_mem)(uintptr_t)address;
}

/* The CUDA driver exports whole pages of 2 MiB. A smaller alignment would export neighbouring
 * memory, too. */
#define DEVICE_UNIT_BYTES (UINT64_C(2) << 20)

struct device_parts {
    char *gradient, *pack, *counters, *canary, *lists, *staging;
    struct gf_pool_parts pools;
};

static struct device_parts device_walk(const struct gf_layout *layout, struct gf_arena *device)
{
    /* of weights and gradients */
    uint64_t runs = 2 * (layout->pool.elem_count / GF_RUN_ELEMS + layout->tensor_count);
    struct device_parts parts = {0};
    parts.gradient = gf_arena_take_bulk(device, layout->pool.gradient_bytes);
    parts.pack = gf_arena_take_bulk(device, layout->pack_bytes);
    parts.counters = gf_arena_take(device, (layout->config.exchange.buffers_active + UINT64_C(1)) *
                                               GF_COUNTS * sizeof(struct gf_check));
    parts.canary = gf_arena_take(device, sizeof(uint64_t));
    parts.lists = gf_arena_take(device, layout->chunk_count * sizeof(uint32_t));
    parts.staging =
        gf_arena_take_bulk(device, layout->may_reach_device ? gf_layout_staging_bytes(layout) : 0);
    parts.pools.norms =
        gf_arena_take(device, (UINT64_C(3) * layout->tensor_count + runs) * GF_NORM_BYTES);
    if (layout->has_pools) gf_pools_lay(layout, device, &parts.pools);
    return parts;
}

uint64_t gf_device_bytes(const struct gf_layout *layout)
{
    struct gf_arena device = {0};
    (void)device_walk(layout, &device);
    return gf_align_up(device.used_bytes, DEVICE_UNIT_BYTES);
}

struct gf_pool_parts gf_device_lay(gf_context *gf, const struct gf_layout *layout)
{
    struct gf_arena device = {.base = (char *)(uintptr_t)gf->gpu->arena,
                              .size_bytes = layout->footprint.device_bytes};
    struct device_parts parts;
    gf->device.base = mem(device.base);
    gf->device.bytes = device.size_bytes;
    parts = device_walk(layout, &device);
    gf->gradient = mem(parts.gradient);
    gf->pack = mem(parts.pack);
    gf->finite.counters = mem(parts.counters);
    gf->device.canary = mem(parts.canary);
    gf->sparse.device_lists = mem(parts.lists);
    for (uint32_t s = 0; layout->may_reach_device && (s < gf->under_way.count); s++)
        gf->under_way.ops[s].device_staging =
            mem(parts.staging) + s * layout->op_need.staging_bytes;
    return parts.pools;
}

/* Direct needs no link. Only the link's open() finds out whether it reaches device memory, so the
 * memory that this takes is laid out in both cases. */
bool gf_device_may_reach(const struct gf_layout *layout)
{
    const struct gf_link_driver *driver = gf_link_whole(&layout->drivers);
    const struct gf_link_setup setup = gf_layout_link(layout, &layout->config);
    gf_algorithm algorithm = layout->config.exchange.algorithm;
    if ((layout->config.job.world_max == 1) || (algorithm == GF_ALGORITHM_DIRECT)) return false;
    return (driver->may_reach_device != NULL) && driver->may_reach_device(&setup);
}

/* Until what was queued is done; a device that does not end within the deadline of an exchange has
 * failed. */
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

/* Copies pass through the pack buffer in host memory, as requests on device memory do. */
gf_status gf_device_copy(gf_context *gf, gf_mem pool, gf_mem host, uint64_t bytes, bool writes)
{
    uint64_t most = gf_device_pack_host_bytes(&gf->pool);
    void *pack = (void *)(uintptr_t)gf->pack_host;
    gf_status status;
    GF_ASSERT(!gf_requests_use_pack_host(gf));
    for (uint64_t done = 0, count; done < bytes; done += count) {
        count = (bytes - done < most) ? bytes - done : most;
        if (writes) memcpy(pack, (const void *)(uintptr_t)(host + done), count);
        gf_mem dst = writes ? pool + done : gf->pack_host;
        gf_mem src = writes ? gf->pack_host : pool + done;
        if (gf->gpu->driver->copy(&gf->queue, dst, src, count) < 0)
            return gf_device_failed(gf, GF_OPERATION_STATE);
        if ((status = finished_wait(gf)) < 0) return status;
        if (!writes) memcpy((void *)(uintptr_t)(host + done), pack, count);
    }
    return GF_OK;
}

gf_status gf_device_squares_read(gf_context *gf, double *squares_out, gf_mem from, uint32_t count)
{
    const uint64_t bytes = count * sizeof *squares_out;
    gf_status status;
    GF_ASSERT(count <= GF_SQUARES_READ);
    if (gf->gpu->driver->copy(&gf->queue, gf->device.squares, from, bytes) < 0)
        return gf_device_failed(gf, GF_OPERATION_STATE);
    if ((status = finished_wait(gf)) < 0) return status;
    memcpy(squares_out, (const void *)(uintptr_t)gf->device.squares, bytes);
    return GF_OK;
}

/* ---- operations whose data lies there ---- */

/* The devices of a node reach each other's memory. */
static void in_node_set(gf_context *gf, struct gf_op *op)
{
    const bool is_direct = op->plan.algorithm == GF_ALGORITHM_DIRECT;
    struct gf_direct *direct = gf_op_direct(op);
    struct gf_hierarchy *own = &op->own.hierarchy;
    direct->exported = gf->ipc.local;
    direct->region_bytes = gf->device.bytes;
    direct->small_bytes = 0;
    direct->sums = gf->queue;
    /* hierarchy has copies from host memory there */
    direct->gathers = is_direct ? gf->in_queue : gf->queue;
    direct->sums.blocks_max = direct->gathers.blocks_max = gf->config.device.multiprocessors;
    direct->sums.block_threads = direct->gathers.block_threads = GF_GPU_CHANNEL_THREADS;
    direct->engine_bytes = gf->config.device.engine_bytes;
    if (is_direct) return;
    own->in_node = &gf_coll_direct_device;
    own->host.data = gf->link->reaches_device ? 0 : op->plan.host;
    own->host.out = &gf->out_queue;
    own->host.in = &gf->in_queue;
    own->host.queue = &gf->coll_queue;
    own->host.ops = gf->coll_ops;
    own->host.check = op->plan.kind->counts ? &op->summed : NULL;
    own->host.staging = op->staging;
}

/* Data of a device: the link takes it from there, or all devices of a node reach each other's. */
void gf_device_op_set(gf_context *gf, struct gf_op *op)
{
    const bool in_node = gf->ipc.agreed && gf_is_in_node(op->plan.algorithm);
    const bool is_direct = in_node && (op->plan.algorithm == GF_ALGORITHM_DIRECT);
    struct gf_coll *coll = &op->coll;
    GF_ASSERT((coll->plan.collective == GF_COLL_ALLREDUCE) &&
              gf_sums_async(gf, op->plan.algorithm));
    coll->kind = is_direct ? &gf_coll_direct_device : gf_coll_kinds[op->plan.algorithm];
    coll->queue = &gf->queue;
    coll->ops = gf->ops;
    coll->staging = op->device_staging;
    coll->async = gf_flow_async;
    coll->event = op->index;
    coll->check = op->plan.kind->counts ? gf_finite_counter(gf, op->index, GF_COUNT_SUMMED) : NULL;
    coll->sources =
        op->plan.adder_checks ? gf_finite_counter(gf, op->index, GF_COUNT_SOURCES) : NULL;
    if (in_node) in_node_set(gf, op);
}
