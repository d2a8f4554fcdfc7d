/* The device module: gradients in the memory of a GPU. The core calls it only in a context whose gradients lie there. */
#ifndef GF_DEVICE_H
#define GF_DEVICE_H

#include <string.h>

#include "lib/context.h"
#include "lib/modules/modules.h"

struct gf_layout;
struct gf_pool_parts;

struct gf_device_module {
    const struct gf_gpu_driver *driver;   /* what device.driver may name; NULL: this build has none (no cuda.h) */
    const struct gf_gpu_kernels *kernels; /* its element ops */
    const struct gf_coll_kind *direct;    /* direct where data and element ops are a device's, */
    const struct gf_coll_kind *stream;    /* and where streams store its flags */
    const struct gf_device_work *work;    /* core/device_work.h */
    bool (*may_reach)(const struct gf_layout *layout); /* layout->may_reach_device */
    uint64_t (*bytes)(const struct gf_layout *layout); /* of the device's arena */
    /* The pools in it; returns those that optimizer and sparse use. */
    struct gf_pool_parts (*lay)(gf_context *gf, const struct gf_layout *layout);
    /* Of an operation whose data lies there, before it starts; at each poll, where streams store flags;
     * and whether it is between streams. */
    void (*op_take)(gf_context *gf, struct gf_op *op);
    void (*op_order)(gf_context *gf, struct gf_op *op);
    bool (*on_streams)(const gf_context *gf, const struct gf_op *op);
    /* To a pool, or from there, from and to any memory of this process. May block until the device has copied, up to
     * exchange.timeout. */
    gf_status (*copy)(gf_context *gf, gf_mem pool, gf_mem host, uint64_t bytes, bool writes);
    /* uuid.c: where all ranks have a device, at the end of the warm-up: posts a request; then, once that has ended,
     * warns of those that have the same one. */
    void (*uuid_begin)(gf_context *gf);
    void (*uuid_commit)(gf_context *gf);
    /* ipc.h */
    size_t (*ipc_bytes)(uint32_t world);
    void (*ipc_lay)(struct gf_ipc *exported, char *memory, uint32_t world);
    gf_status (*ipc_begin)(gf_context *gf);
    gf_status (*ipc_next)(gf_context *gf);
    void (*ipc_close)(gf_context *gf);
    void (*flags_close)(gf_context *gf);
};

/* Of host memory that copies there and back pass through: all elements of a pool, and at least a canary (ipc.c). */
static inline uint64_t gf_device_wire_bytes(const struct gf_pool_sizes *pool)
{
    return pool->elem_count * sizeof(float) + sizeof(uint64_t);
}

/* Of a pool, wherever it lies. */
static inline gf_status gf_pool_read(gf_context *gf, void *to, gf_mem from, uint64_t bytes)
{
    if (gf->on_device) return gf->modules->device->copy(gf, from, (gf_mem)(uintptr_t)to, bytes, false);
    if (bytes > 0) memcpy(to, (const void *)(uintptr_t)from, bytes);
    return GF_OK;
}
static inline gf_status gf_pool_write(gf_context *gf, gf_mem to, const void *from, uint64_t bytes)
{
    if (gf->on_device) return gf->modules->device->copy(gf, to, (gf_mem)(uintptr_t)from, bytes, true);
    if (bytes > 0) memcpy((void *)(uintptr_t)to, from, bytes);
    return GF_OK;
}

extern const struct gf_device_work gf_device_work; /* work.c */
void gf_uuid_begin(gf_context *gf);
void gf_uuid_commit(gf_context *gf);

#endif
