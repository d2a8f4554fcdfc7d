/* What is queued on a device before and after the packing and unpacking of operations. It has
 * streams of its own, so that it does not wait for what the appliance has not computed. Here are
 * also the counters of values that are not finite (core/finite.h). */
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"

static gf_mem mem(const struct gf_check *check)
{
    return (gf_mem)(uintptr_t)check;
}

/* Writes counters on the device. No work that counts there is under way; later work of both queues
 * comes after the copy. */
static gf_status counters_send(gf_context *gf, uint32_t index, const struct gf_check *from,
                               uint32_t count)
{
    gf_status status = gf->gpu->driver->copy(&gf->queue, mem(gf_finite_counter(gf, index, 0)),
                                             mem(from), count * GF_COUNTS * sizeof *from);
    return (status < 0) ? status : gf_queue_after(gf, &gf->queue, &gf->pack_queue);
}

gf_status gf_device_counters_fetch(gf_context *gf, struct gf_queue *queue, uint32_t index)
{
    gf_status status = gf->gpu->driver->copy(queue, mem(gf_finite_seen(gf, index, 0)),
                                             mem(gf_finite_counter(gf, index, 0)),
                                             GF_COUNTS * sizeof(struct gf_check));
    return (status < 0) ? status : gf->gpu->driver->event_record(queue, index);
}

gf_status gf_device_counters_take(gf_context *gf, uint32_t index)
{
    uint64_t met = 0;
    for (gf_count which = 0; which < GF_COUNTS; which++)
        met += gf_finite_seen(gf, index, which)->bad_count;
    return (met == 0) ? GF_OK
                      : counters_send(gf, index, gf_finite_seen(gf, gf->under_way.count + 1, 0), 1);
}

static gf_status region_unregister(gf_context *gf)
{
    gf_status status =
        gf->gpu->driver->host_unregister(gf->gpu, gf->region.registered ? gf->region.base : NULL);
    /* where the link is not made anew, closing comes here again */
    if (status == GF_OK) gf->region.registered = false;
    return status;
}

gf_status gf_device_region_open(gf_context *gf)
{
    uint32_t count = gf->under_way.count + 1;
    gf_status status = gf->gpu->driver->host_register(gf->gpu, gf->region.base, gf->region.bytes);
    gf->region.registered = status == GF_OK;
    /* nothing has failed */
    if (status == GF_ERR_STATE)
        gf->gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE};
    else if (status < 0)
        return status;
    for (uint32_t i = 0; i < (count + 1) * GF_COUNTS; i++)
        gf->finite.seen[i] = (struct gf_check){.bad_first = UINT64_MAX};
    if ((status = counters_send(gf, 0, gf->finite.seen, count)) >= 0) return status;
    struct gf_fault fault = gf->gpu->fault; /* what giving back may meet is not it */
    (void)region_unregister(gf);
    gf->gpu->fault = fault;
    return status;
}

gf_status gf_device_region_close(gf_context *gf)
{
    return (gf->region.base == NULL) ? GF_OK : region_unregister(gf);
}

gf_status gf_device_finished(gf_context *gf)
{
    struct gf_queue *const queues[] = {&gf->queue, &gf->pack_queue, &gf->out_queue, &gf->in_queue};
    gf_status status = GF_OK;
    for (uint32_t i = 0; (i < GF_STREAM_COUNT) && (status == GF_OK); i++)
        status = gf->gpu->driver->finished(queues[i]);
    return status;
}

/* ---- operations ---- */

/* Between device and wire, all of it; nothing where both are the same memory. */
static gf_status op_copy(gf_context *gf, const struct gf_op *op, struct gf_queue *queue, gf_mem to,
                         gf_mem from)
{
    uint64_t bytes = op->coll.plan.elem_count * gf_coll_elem_bytes(&op->coll);
    if ((to == from) || (bytes == 0)) return GF_OK;
    return gf->gpu->driver->copy(queue, to, from, bytes);
}

gf_status gf_device_computed(gf_context *gf, uint32_t tensor)
{
    const struct gf_pool_tensor *of = &gf->tensors[tensor];
    const struct gf_gpu_driver *driver = gf->gpu->driver;
    if (of->event != 0) return driver->their_event_query(gf->gpu, of->event);
    return driver->event_query(gf->gpu, gf_tensor_event(gf, of->declared_with));
}

static gf_status tensors_computed(gf_context *gf, const struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    gf_status status = GF_OK;
    uint32_t seen = GF_TENSOR_NONE;
    for (uint32_t i = buffer->first_tensor; (i <= buffer->last_tensor) && (status == GF_OK); i++) {
        const struct gf_pool_tensor *tensor = &gf->tensors[i];
        bool is_in = (op->plan.number >= tensor->buffer_first) &&
                     (op->plan.number - tensor->buffer_first < tensor->buffer_count);
        if (!is_in || (tensor->declared_with == seen)) continue;
        seen = tensor->declared_with;
        status = gf_device_computed(gf, i);
    }
    return status;
}

/* Before anything is unpacked: what came in is copied. */
gf_status gf_device_move_begin(gf_context *gf, struct gf_op *op)
{
    gf_status status;
    if ((op->state == GF_OP_PACK) || (op->plan.packed == op->coll.plan.data)) return GF_OK;
    status = op_copy(gf, op, &gf->in_queue, op->plan.packed, op->coll.plan.data);
    return (status < 0) ? status : gf_queue_after(gf, &gf->in_queue, &gf->queue);
}

/* After all that was packed it is copied out, and this op's event after it. */
gf_status gf_device_move_end(gf_context *gf, struct gf_op *op)
{
    struct gf_queue *queue =
        (op->plan.packed != op->coll.plan.data) ? &gf->out_queue : op->pack_queue;
    if (op->state != GF_OP_PACK) return gf_device_counters_fetch(gf, &gf->queue, op->index);
    gf_status status = gf_queue_after(gf, op->pack_queue, queue);
    if (status >= 0) status = op_copy(gf, op, queue, op->coll.plan.data, op->plan.packed);
    return (status < 0) ? status : gf->gpu->driver->event_record(queue, op->index);
}

/* What an operation awaits of the device, by its deadline. */
static gf_status answer(gf_context *gf, const struct gf_op *op, gf_status status, uint64_t now_ns)
{
    if (status < 0) return gf_device_failed(gf, op->plan.operation);
    if ((status != GF_AGAIN) || (now_ns - op->wait_ns <= gf->config.exchange.timeout_ns))
        return status;
    return gf_fail(gf, GF_ERR_TIMEOUT, op->plan.operation, gf->rank, op->first_tensor,
                   "the device of rank %u has not ended in %.1f s what was queued before and with "
                   "operation %s",
                   gf->rank, (double)(now_ns - op->wait_ns) * 1e-9,
                   gf_operation_name(op->plan.operation));
}

/* The CPU waits for the event before it packs. If a stream waited in a hardware work queue instead,
 * other streams in that queue would wait, too. */
gf_status gf_device_ready(gf_context *gf, const struct gf_op *op, uint64_t now_ns)
{
    if (op->plan.operation != GF_OPERATION_STEP) return GF_OK;
    return answer(gf, op, tensors_computed(gf, op), now_ns);
}

gf_status gf_device_event_poll(gf_context *gf, const struct gf_op *op, uint64_t now_ns)
{
    return answer(gf, op, gf->gpu->driver->event_query(gf->gpu, op->index), now_ns);
}
