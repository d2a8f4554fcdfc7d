/* See quantize.h: what quantized fused buffers do at pack, fold and unpack. */
#include "lib/quantize/quantize.h"

#include <string.h>

#include "lib/context.h"
#include "lib/core/device_work.h"
#include "lib/core/layout.h"
#include "lib/settings/settings.h"

/* The next turn of an operation: elements first.. of its buffer, whole groups but for the last
 * one. */
static uint64_t turn_elems(const gf_context *gf, const struct gf_op *op, uint64_t *first_out)
{
    const struct gf_groups *form = &gf->quantized.form;
    uint64_t left = gf_buffer_of(gf, op)->elem_count;
    uint64_t count;
    *first_out = op->done_elems * form->elems;
    left -= *first_out;
    count = gf_turn_elems(gf, left);
    return (count < left) ? count / form->elems * form->elems : left;
}

static gf_status quantized_pack(gf_context *gf, struct gf_op *op)
{
    const struct gf_element_ops *ops = gf->ops;
    const struct gf_groups *form = &gf->quantized.form;
    uint64_t first;
    uint64_t count = turn_elems(gf, op, &first);
    uint64_t at = gf_buffer_of(gf, op)->first_elem + first;
    gf_mem values = gf->quantized.residual_next + at * sizeof(float);
    const struct gf_accumulate add = {.dst_h_f32 = values,
                                      .h_f32 = gf->sparse.history + at * sizeof(float),
                                      .src = op->of.buffer.gradient + first * sizeof(float),
                                      .scale = 1.0f / gf->loss_scale.value};
    if ((ops->accumulate(op->pack_queue, &add, count) < 0) ||
        (ops->quantize(op->pack_queue, op->packed + op->done_elems * gf_group_bytes(form), values,
                       count, form, at, gf_finite_counter(gf, op->index, GF_COUNT_PACKED)) < 0))
        return gf_device_failed(gf, GF_OPERATION_STEP);
    op->done_elems += gf_group_count(form, count);
    return GF_OK;
}

/* A sign has no zero: what was made of the gaps between tensors would be added up step by step. A
 * buffer that is cut may begin or end with one. In an order of the appliance's own there are none:
 * the next tensor may lie anywhere. */
static gf_status gaps_clear(gf_context *gf, const struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    uint64_t begin = buffer->first_elem;
    uint64_t end = begin + buffer->elem_count;
    uint32_t last = (buffer->last_tensor + 1 < gf->tensor_count) ? buffer->last_tensor + 1
                                                                 : buffer->last_tensor;
    for (uint32_t i = buffer->first_tensor; (gf->config.pool_order == NULL) && (i <= last); i++) {
        uint64_t from = (i > 0) ? gf->tensors[i - 1].first_elem + gf->tensors[i - 1].elem_count : 0;
        uint64_t to = (gf->tensors[i].first_elem < end) ? gf->tensors[i].first_elem : end;
        if (from < begin) from = begin;
        if ((to > from) &&
            (gf->ops->zero(&gf->queue, op->of.buffer.gradient + (from - begin) * sizeof(float),
                           (to - from) * sizeof(float)) < 0))
            return gf_device_failed(gf, GF_OPERATION_STEP);
    }
    return GF_OK;
}

/* The loss scale is undone already, and a pre-scale has nothing to do where each group brings its
 * scale. */
static gf_status quantized_unpack(gf_context *gf, struct gf_op *op)
{
    const struct gf_groups *form = &gf->quantized.form;
    float factor =
        (gf->config.exchange.average == GF_AVERAGE_RANKS) ? (float)(1.0 / (double)gf->world) : 1.0f;
    uint64_t first;
    uint64_t count = turn_elems(gf, op, &first);
    if (gf->ops->dequantize(&gf->queue, op->of.buffer.gradient + first * sizeof(float),
                            op->packed + op->done_elems * gf_group_bytes(form), count, form, factor,
                            false) < 0)
        return gf_device_failed(gf, GF_OPERATION_STEP);
    op->done_elems += gf_group_count(form, count);
    return (op->done_elems < op->coll.elem_count) ? GF_OK : gaps_clear(gf, op);
}

/* Groups of another rank for this one's block. They come range by range in direct, else rank by
 * rank; the first for a range finds this rank's own there, the last one leaves the result. */
static gf_status quantized_fold(void *arg, gf_mem dst, gf_mem src, uint64_t group_count)
{
    struct gf_quantized_block *block = arg;
    const gf_context *gf = block->gf;
    const struct gf_coll *coll = &block->op->coll;
    const struct gf_element_ops *ops = coll->ops;
    const struct gf_groups *form = &gf->quantized.form;
    uint64_t group = (dst - coll->data) / gf_group_bytes(form);
    uint64_t owned = (group - block->first) * form->elems;
    uint64_t first = group * form->elems;
    uint64_t count = group_count * form->elems;
    uint64_t others = coll->size - 1;
    bool by_range = block->op->algorithm == GF_ALGORITHM_DIRECT;
    uint64_t turn = by_range ? block->calls % others : block->folded / block->count;
    float *sum = gf->quantized.owner_next + block->owner_first + owned;
    gf_status status = GF_OK;
    GF_ASSERT((group >= block->first) && (group - block->first + group_count <= block->count));
    if (count > block->elem_count - first) count = block->elem_count - first;
    if (turn == 0) {
        const float *owed = gf->quantized.owner + block->owner_first + owned;
        status = coll->ops->copy(coll->queue, (gf_mem)(uintptr_t)sum, (gf_mem)(uintptr_t)owed,
                                 count * sizeof(float));
        if (status >= 0)
            status =
                ops->dequantize(coll->queue, (gf_mem)(uintptr_t)sum, dst, count, form, 1.0f, true);
    }
    if (status >= 0)
        status = ops->dequantize(coll->queue, (gf_mem)(uintptr_t)sum, src, count, form, 1.0f, true);
    if ((status >= 0) && (turn + 1 == others))
        status = ops->quantize(coll->queue, dst, (gf_mem)(uintptr_t)sum, count, form,
                               coll->base + first, coll->check);
    block->folded += group_count;
    block->calls++;
    return status;
}

static const struct gf_op_kind quantized_buffer = {
    .counts = true,
    .pack = quantized_pack,
    .packed = gf_buffer_packed,
    .unpack = quantized_unpack,
    .done = gf_buffer_done,
};

/* Its groups lie in the wire's memory, of the host; the packed ones where element ops are. */
static void quantized_start(gf_context *gf, struct gf_op *op)
{
    struct gf_quantized *quantized = &gf->quantized;
    struct gf_quantized_block *block = &quantized->of[op->index];
    uint64_t elem_count = gf_buffer_of(gf, op)->elem_count;
    uint64_t groups = gf_group_count(&quantized->form, elem_count);
    uint64_t at = quantized->groups_used * gf_group_bytes(&quantized->form);
    *block = (struct gf_quantized_block){.gf = gf, .op = op, .elem_count = elem_count};
    block->owner_first = quantized->owner_used;
    gf_coll_block(groups, gf->world, gf->rank, &block->first, &block->count);
    quantized->groups_used += groups;
    if (gf->world > 1)
        quantized->owner_used += (groups + gf->world - 1) / gf->world * quantized->form.elems;
    GF_ASSERT((quantized->owner_used <= quantized->owner_elems) || (gf->world == 1));
    op->algorithm =
        (gf->algorithm == GF_ALGORITHM_DIRECT) ? GF_ALGORITHM_DIRECT : GF_ALGORITHM_ALLTOALL;
    op->pack_queue = &gf->pack_queue;
    op->packed = gf->pack + at;
    op->between = 0;
    op->coll.sources = NULL;
    op->coll.data = gf->wire + at;
    op->coll.type = GF_TYPE_F32;
    op->coll.elem_count = groups;
    op->coll.fold = quantized_fold;
    op->coll.fold_arg = block;
    op->coll.fold_elem_bytes = gf_group_bytes(&quantized->form);
    op->coll.fold_keeps = true;
}

static gf_status quantized_begin(gf_context *gf)
{
    struct gf_quantized *quantized = &gf->quantized;
    quantized->groups_used = quantized->owner_used = 0;
    if (quantized->epoch != gf->epoch)
        memset(quantized->owner, 0, quantized->owner_elems * sizeof(float));
    quantized->epoch = gf->epoch;
    gf->step.quantized = gf->step.number > gf->config.exchange.quantize_after;
    return GF_AGAIN; /* its buffers are those of a dense step */
}

static gf_status quantized_commit(gf_context *gf, float gradient_scale)
{
    gf_mem residual = gf->sparse.history;
    float *owner = gf->quantized.owner;
    (void)gradient_scale;
    if (!gf->step.quantized) return GF_OK;
    gf->sparse.history = gf->quantized.residual_next;
    gf->quantized.residual_next = residual;
    gf->quantized.owner = gf->quantized.owner_next;
    gf->quantized.owner_next = owner;
    return GF_OK;
}

static gf_status quantized_measure(struct gf_layout *layout, const struct gf_tensor *tensors,
                                   char *error_out)
{
    const struct gf_groups form = gf_quantize_form(&layout->config);
    const struct gf_pool_sizes *pool = &layout->pool;
    layout->owner_elems = gf_quantize_owner_max(&form, pool->elem_count, pool->buffer_count);
    layout->pack_bytes =
        gf_quantize_groups_max(&form, pool->elem_count, pool->buffer_count) * gf_group_bytes(&form);
    for (uint32_t i = 0; i < layout->tensor_count; i++)
        if (tensors[i].type != GF_TYPE_F32)
            return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                    "exchange.quantize: tensor %u \"%.47s\" has 16-bit "
                                    "gradients; allowed is fp32",
                                    i, tensors[i].name ? tensors[i].name : "");
    return GF_OK;
}

const struct gf_step_module gf_module_quantize = {
    .measure = quantized_measure,
    .buffers = &quantized_buffer,
    .start = quantized_start,
    .begin = quantized_begin,
    .commit = quantized_commit,
};
