/* Gradients in the memory of a GPU. The core calls these functions only in a context whose
 * gradients lie there. */
#ifndef GF_DEVICE_H
#define GF_DEVICE_H

#include <string.h>

#include "lib/context.h"

struct gf_layout;
struct gf_pool_parts;

/* ---- device.c ---- */
bool gf_device_may_reach(const struct gf_layout *layout); /* layout->may_reach_device */
uint64_t gf_device_bytes(const struct gf_layout *layout); /* of the device's arena */
/* Sets the addresses of the pools in the arena of the device; returns those of optimizer and sparse
 * communication. */
struct gf_pool_parts gf_device_lay(gf_context *gf, const struct gf_layout *layout);
/* Sets what depends on where data lies, for an operation whose data is in device memory (op.c does
 * it for the host). */
void gf_device_op_set(gf_context *gf, struct gf_op *op);
/* To a pool, or from there, from and to any memory of this process. May block until the device has
 * copied, up to exchange.timeout. No request on device memory runs. */
gf_status gf_device_copy(gf_context *gf, gf_mem pool, gf_mem host, uint64_t bytes, bool writes);

/* At most GF_SQUARES_READ squares of tensors. Requests may be under way: no other host memory is
 * used. May block as gf_device_copy() may. */
gf_status gf_device_squares_read(gf_context *gf, double *squares_out, gf_mem from, uint32_t count);

/* ---- work.c: an error's text is in the driver's fault ---- */
/* the exchange region; counters (finite.h) are at none */
gf_status gf_device_region_open(gf_context *gf);
gf_status gf_device_region_close(gf_context *gf);
gf_status gf_device_finished(gf_context *gf); /* GF_OK: nothing is queued or running; GF_AGAIN */
/* GF_OK: the tensor is computed, as its event says; GF_AGAIN. */
gf_status gf_device_computed(gf_context *gf, uint32_t tensor);
/* GF_OK: so are all that a fused buffer needs; an operation begins to unpack; all that it packs or
 * unpacks is queued; GF_OK: the device has done it. Or GF_AGAIN. */
gf_status gf_device_ready(gf_context *gf, const struct gf_op *op, uint64_t now_ns);
gf_status gf_device_move_begin(gf_context *gf, struct gf_op *op);
gf_status gf_device_move_end(gf_context *gf, struct gf_op *op);
gf_status gf_device_event_poll(gf_context *gf, const struct gf_op *op, uint64_t now_ns);
/* After all element ops that count there: queues the copy of the counters to the host, and records
 * event `index` after it. The counters that were copied last have been read, and are at none for
 * the next operation. */
gf_status gf_device_counters_fetch(gf_context *gf, struct gf_queue *queue, uint32_t index);
gf_status gf_device_counters_take(gf_context *gf, uint32_t index);

/* ---- uuid.c: where all ranks have a device, at the end of the warm-up ---- */
void gf_uuid_begin(gf_context *gf);  /* posts a request; then, once that has ended, */
void gf_uuid_commit(gf_context *gf); /* warns of those that have the same one */

/* The bytes of host memory that copies to and from a device pass through: all elements of a pool,
 * and at least a canary (ipc.c). */
static inline uint64_t gf_device_pack_host_bytes(const struct gf_pool_sizes *pool)
{
    return pool->elem_count * sizeof(float) + sizeof(uint64_t);
}

/* Copies from or to a pool in device or host memory. */
static inline gf_status gf_pool_read(gf_context *gf, void *to, gf_mem from, uint64_t bytes)
{
    if (gf->on_device) return gf_device_copy(gf, from, (gf_mem)(uintptr_t)to, bytes, false);
    if (bytes > 0) memcpy(to, (const void *)(uintptr_t)from, bytes);
    return GF_OK;
}
static inline gf_status gf_pool_write(gf_context *gf, gf_mem to, const void *from, uint64_t bytes)
{
    if (gf->on_device) return gf_device_copy(gf, to, (gf_mem)(uintptr_t)from, bytes, true);
    if (bytes > 0) memcpy((void *)(uintptr_t)to, from, bytes);
    return GF_OK;
}

#endif
