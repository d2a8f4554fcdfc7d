/* The fused buffers of a sparse step: chunks of h' on their way to the wire. */
#include "lib/sparse/sparse_passes.h"

#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"
#include "ops/ops.h"

/* To the first element of the chunk in `slot` of the selection. */
static void pack_goto(const struct gf_sparse *sparse, struct gf_sparse_pass *pack, uint32_t slot)
{
    pack->slot = slot;
    if (slot >= sparse->selected_count) return;
    pack->chunk = sparse->selection[slot];
    pack->elem = gf_chunk_first(sparse, pack->chunk);
}

/* The next segment of the chunks that are sent. */
static struct gf_sparse_batch segment_sent(const gf_context *gf, struct gf_sparse_pass *pack)
{
    const struct gf_sparse_batch segment = {.first = pack->elem,
                                            .elems = gf_segment_end(gf, pack) - pack->elem};
    pack->elem += segment.elems;
    if (pack->elem == gf_chunk_end(&gf->sparse, pack->chunk))
        pack_goto(&gf->sparse, pack, pack->slot + 1);
    return segment;
}

/* h' of some chunks, cast into the pack buffer. */
static gf_status batch_pack(gf_context *gf, struct gf_op *op, struct gf_sparse_pass *pack,
                            const struct gf_sparse_batch *some)
{
    gf_type wire = gf->config.exchange.wire;
    gf_mem to = op->plan.packed + op->done_elems * gf_type_bytes(wire);
    float scale = gf->loss_scale.value * gf->config.exchange.pre_scale;
    gf_status status =
        gf_sparse_accumulate(gf, op->pack_queue, some, &pack->tensor, GF_ACCUMULATE_SCRATCH);
    if (status < 0) return status;
    if (gf->ops->cast(op->pack_queue, to, wire, gf->sparse.scratch, GF_TYPE_F32, some->elems, scale,
                      op->done_elems, gf_finite_counter(gf, op->index, GF_COUNT_PACKED)) < 0)
        return gf_device_failed(gf, GF_OPERATION_STEP);
    op->done_elems += some->elems;
    return GF_OK;
}

/* On the host about a slice. In lists all of the buffer, because what is queued holds no poll
 * up. */
static gf_status sparse_pack(gf_context *gf, struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    struct gf_sparse *sparse = &gf->sparse;
    struct gf_sparse_pass *pack = &sparse->pack[op->index];
    uint64_t spent = 0;
    if (op->done_elems == 0) {
        pack_goto(sparse, pack, buffer->chunk_first);
        pack->tensor = buffer->first_tensor;
    }
    while ((op->done_elems < buffer->elem_count) && (spent < gf_slice_elems(gf))) {
        const struct gf_sparse_batch some =
            sparse->in_lists ? gf_sparse_lists_sent(sparse, buffer, pack) : segment_sent(gf, pack);
        gf_status status = batch_pack(gf, op, pack, &some);
        if (status < 0) return status;
        if (!sparse->in_lists) spent += some.elems + GF_SEGMENT_COST_ELEMS;
    }
    return GF_OK;
}

/* The sums stay in the pack buffer until the commit, because the step may be skipped. The vote only
 * has to know whether gradients can hold them: where they can, nothing is done here. */
static gf_status sparse_unpack(gf_context *gf, struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    gf_type type = (gf_type)buffer->type;
    gf_type wire = gf->config.exchange.wire;
    float factor = gf_keeps_scale(gf, type) ? 1.0f : gf_buffer_factor(gf);
    bool fits = (factor <= 1.0f) && ((type == GF_TYPE_F32) || (type == wire));
    uint64_t done = op->done_elems;
    uint64_t left = buffer->elem_count - done;
    uint64_t count = gf_poll_elems(gf, left);
    gf_mem from = op->plan.packed + done * gf_type_bytes(wire);
    gf_status status;
    if (fits) {
        op->done_elems += left;
        return GF_OK;
    }
    if (count > gf->sparse.scratch_elems) count = gf->sparse.scratch_elems;
    /* Nothing reads what this cast writes: it counts what is not finite. The scratch is the pack
     * queue's before and after. */
    status = gf_queue_after(gf, &gf->pack_queue, &gf->queue);
    if (status >= 0)
        status = gf->ops->cast(&gf->queue, gf->sparse.scratch, type, from, wire, count, factor,
                               done, gf_finite_counter(gf, op->index, GF_COUNT_SUMMED));
    if (status >= 0) status = gf_queue_after(gf, &gf->queue, &gf->pack_queue);
    if (status < 0) return gf_device_failed(gf, GF_OPERATION_STEP);
    op->done_elems += count;
    return GF_OK;
}

const struct gf_op_kind gf_sparse_buffer = {
    .counts = true,
    .pack = sparse_pack,
    .packed = gf_buffer_packed,
    .unpack = sparse_unpack,
    .done = gf_buffer_done,
};
