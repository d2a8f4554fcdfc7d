/* The stages NARROW and WIDEN of hierarchy: this rank's block is cast to the wire's type and back,
 * or copied from a device to the host and back, or both. */
#include "ops/node/hierarchy_parts.h"

/* Casts some of this rank's block to the wire's type or back. What the new type cannot hold is
 * counted: as a value of this rank if it is alone in its node, otherwise as a sum. */
gf_status gf_hierarchy_cast(struct gf_coll *coll, bool narrow, uint64_t at, uint64_t count)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    bool alone = narrow && (own->nodes->local_size == 1) && (coll->sources != NULL);
    gf_mem data = coll->plan.data + at * gf_coll_elem_bytes(coll);
    gf_mem packed = own->packed + at * gf_type_bytes(own->wire);
    struct gf_check *check = alone ? coll->sources : coll->check;
    return coll->ops->cast(coll->queue, narrow ? packed : data,
                           narrow ? own->wire : coll->plan.type, narrow ? data : packed,
                           narrow ? coll->plan.type : own->wire, count, 1.0f, coll->plan.base + at,
                           check);
}

/* Where the block lies on the device as the wire takes it, and on the host. */
struct block_at {
    gf_mem here, host;
    uint64_t bytes;
};
static struct block_at block_at(const struct gf_coll *coll, uint64_t first, uint64_t count)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    size_t elem_bytes = gf_hierarchy_wire_bytes(coll);
    gf_mem base = gf_hierarchy_casts(own) ? own->packed : coll->plan.data;
    return (struct block_at){base + first * elem_bytes, own->host.data + first * elem_bytes,
                             count * elem_bytes};
}

/* All of the block on a device, and the event after it. The CPU has seen that it is summed: what is
 * not cast waits for nothing, least of all for the sums of later operations on that queue.
 *     NARROW   cast, on the operation's queue; copy to the host, on host.out, which comes after it
 *     WIDEN    copy from the host, on host.in; cast, on the operation's queue, which comes after it
 * as far as there is something to cast or to copy. */
static gf_status narrow_queue(struct gf_coll *coll, uint64_t first, uint64_t count)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    const struct gf_gpu_driver *driver = coll->queue->gpu->driver;
    const struct block_at at = block_at(coll, first, count);
    gf_status status = GF_OK;
    if (gf_hierarchy_casts(own)) status = gf_hierarchy_cast(coll, true, first, count);
    if (status < 0) return status;
    if (!gf_hierarchy_crosses(own)) return driver->event_record(coll->queue, coll->event);
    if (gf_hierarchy_casts(own)) status = driver->stream_wait(coll->queue, own->host.out->stream);
    if (status >= 0) status = driver->copy(own->host.out, at.host, at.here, at.bytes);
    return (status >= 0) ? driver->event_record(own->host.out, coll->event) : status;
}

static gf_status widen_queue(struct gf_coll *coll, uint64_t first, uint64_t count)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    const struct gf_gpu_driver *driver = coll->queue->gpu->driver;
    const struct block_at at = block_at(coll, first, count);
    gf_status status = GF_OK;
    if (gf_hierarchy_crosses(own)) {
        status = driver->copy(own->host.in, at.here, at.host, at.bytes);
        if (status >= 0) status = driver->stream_wait(own->host.in, coll->queue->stream);
    }
    if ((status >= 0) && gf_hierarchy_casts(own))
        status = gf_hierarchy_cast(coll, false, first, count);
    return (status >= 0) ? driver->event_record(coll->queue, coll->event) : status;
}

/* On a device the whole block is queued at once; then the event after it is awaited. */
static gf_status device_block_progress(struct gf_coll *coll, uint64_t first, uint64_t count,
                                       uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    bool narrow = own->stage == GF_HIERARCHY_NARROW;
    gf_status status = GF_OK;
    if (!own->queued) {
        status = (narrow ? narrow_queue : widen_queue)(coll, first, count);
        own->queued = true;
        coll->moved_ns = now_ns;
    }
    if (status >= 0) status = coll->queue->gpu->driver->event_query(coll->queue->gpu, coll->event);
    coll->awaits_device = (status == GF_AGAIN);
    return status;
}

gf_status gf_hierarchy_block_start(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    (void)now_ns;
    own->cast_elems = 0;
    own->queued = false;
    return GF_OK;
}

gf_status gf_hierarchy_block_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_hierarchy *own = coll->own.hierarchy;
    uint64_t most = coll->slice_bytes / sizeof(float);
    uint64_t first;
    uint64_t count;
    uint64_t left;
    gf_status status = GF_OK;
    gf_hierarchy_block(coll, &first, &count);
    if ((coll->async != NULL) && (count > 0))
        return device_block_progress(coll, first, count, now_ns);
    left = count - own->cast_elems;
    if (left > most) left = most;
    if (left > 0)
        status = gf_hierarchy_cast(coll, own->stage == GF_HIERARCHY_NARROW, first + own->cast_elems,
                                   left);
    if (status < 0) return status;
    own->cast_elems += left;
    coll->moved_ns = now_ns;
    return (own->cast_elems < count) ? GF_AGAIN : GF_OK;
}
