/* An operation's data on its way to the wire and back: packed, copied out, copied in, unpacked. On the host at
 * once; on a device on streams of their own, so that none of it waits for what the appliance has not computed. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"

/* Between device and wire, all of it; nothing where both are the same memory. */
static gf_status op_copy(gf_context *gf, const struct gf_op *op, struct gf_queue *queue, gf_mem to, gf_mem from)
{
    uint64_t bytes = op->coll.elem_count * gf_coll_elem_bytes(&op->coll);
    if ((to == from) || (bytes == 0)) return GF_OK;
    return gf->gpu->driver->copy(queue, to, from, bytes);
}

/* Before anything is packed: the tensors that a fused buffer needs are computed, and no other is waited for. */
static gf_status op_follow(gf_context *gf, const struct gf_op *op)
{
    gf_status status = GF_OK;
    if (!gf->on_device || (op->operation != GF_OPERATION_STEP)) return GF_OK;
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    uint32_t followed = GF_TENSOR_NONE;
    for (uint32_t i = buffer->first_tensor; (i <= buffer->last_tensor) && (status >= 0); i++) {
        const struct gf_pool_tensor *tensor = &gf->tensors[i];
        bool is_in = (op->number >= tensor->buffer_first) && (op->number - tensor->buffer_first < tensor->buffer_count);
        if (!is_in || (tensor->declared_with == followed)) continue;
        followed = tensor->declared_with;
        status = gf->gpu->driver->follow(op->pack_queue, gf_tensor_event(gf, followed));
    }
    return status;
}

/* Out: after all that was packed, and this op's event after it. */
static gf_status op_send(gf_context *gf, struct gf_op *op)
{
    struct gf_queue *queue = (op->packed != op->coll.data) ? &gf->out_queue : op->pack_queue;
    gf_status status = gf_queue_after(gf, op->pack_queue, queue);
    if (status >= 0) status = op_copy(gf, op, queue, op->coll.data, op->packed);
    return (status < 0) ? status : gf_finite_mark(gf, queue, op->index);
}

/* In: before anything is unpacked. */
static gf_status op_receive(gf_context *gf, struct gf_op *op)
{
    gf_status status;
    if (op->packed == op->coll.data) return GF_OK;
    status = op_copy(gf, op, &gf->in_queue, op->packed, op->coll.data);
    return (status < 0) ? status : gf_queue_after(gf, &gf->in_queue, &gf->queue);
}

/* A turn of packing or of unpacking. GF_OK: all of it is queued, its event after it. */
gf_status gf_op_move(gf_context *gf, struct gf_op *op, uint64_t now_ns)
{
    bool packs = (op->state == GF_OP_PACK);
    gf_status (*move)(gf_context *, struct gf_op *) = packs ? op->kind->pack : op->kind->unpack;
    gf_status status = GF_OK;
    gf->waiting.moved_ns = now_ns;
    if (op->done_elems == 0) {
        if (packs) gf_finite_begin(gf, op->index);
        status = packs ? op_follow(gf, op) : op_receive(gf, op);
        if (status < 0) return gf_device_failed(gf, op->operation);
    }
    if ((move != NULL) && (op->done_elems < op->coll.elem_count)) {
        uint64_t before = op->done_elems;
        if ((status = move(gf, op)) < 0) return status;
        if ((op->operation == GF_OPERATION_STEP) && (op->packed != op->of.buffer.gradient))
            gf->observed.stats.copied_bytes += (op->done_elems - before) * gf_type_size_bytes(op->coll.type);
        if (op->done_elems < op->coll.elem_count) return GF_AGAIN;
    }
    status = packs ? op_send(gf, op) : gf_finite_end(gf, &gf->queue, op->index);
    op->wait_ns = now_ns;
    return (status < 0) ? gf_device_failed(gf, op->operation) : GF_OK;
}

/* GF_OK: the device has done what was queued; all of it: its counters are here. */
gf_status gf_op_reached(gf_context *gf, const struct gf_op *op, uint64_t now_ns)
{
    gf_status status = gf_finite_reached(gf, op->index);
    if (status < 0) return gf_device_failed(gf, op->operation);
    if ((status != GF_AGAIN) || (now_ns - op->wait_ns <= gf->config.exchange.timeout_ns)) return status;
    return gf_fail(gf, GF_ERR_TIMEOUT, op->operation, gf->rank, op->first_tensor,
                   "the device of rank %u has not ended in %.1f s what was queued before and with operation %s",
                   gf->rank,
                   (double)(now_ns - op->wait_ns) * 1e-9, gf_operation_name(op->operation));
}
