/* The same of a device, by lists of chunks: what sparse_history.c computes a piece at a time is here one launch a
 * buffer, a batch or a step, for a device is not held up by more work, but by many small ones. A list is all chunks:
 * those that the step sends, rising, then the others, rising. The values are bit for bit those of the pieces, which
 * serve where a chunk is larger than the scratch or where tensors with and without decay share the part. */
#include "lib/context.h"
#include "lib/modules/modules.h"
#include "lib/core/device_work.h"
#include "ops/module_ops.h"

static uint32_t other_count(const struct gf_sparse *sparse) { return sparse->chunk_count - sparse->selected_count; }
static const uint32_t *others(const struct gf_sparse *sparse) { return sparse->lists + sparse->selected_count; }
static gf_mem sent_list(const struct gf_sparse *sparse) { return sparse->device_lists; }
static gf_mem other_list(const struct gf_sparse *sparse)
{
    return sparse->device_lists + sparse->selected_count * sizeof(uint32_t);
}

static bool decays(const gf_context *gf, const struct gf_pool_tensor *tensor)
{
    return (gf->optimizer.weight != 0) && (gf->config.optimizer.weight_decay != 0.0f) && ((tensor->flags & GF_TENSOR_NO_DECAY) == 0);
}

void gf_sparse_lists_open(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    bool known = false;
    sparse->in_lists = gf->on_device && (sparse->chunk_count > 0) &&
                       ((sparse->chunk_elems <= sparse->scratch_elems) || (sparse->elem_count <= sparse->scratch_elems));
    for (uint32_t i = 0; i < gf->tensor_count; i++) {
        const struct gf_pool_tensor *tensor = &gf->tensors[i];
        if ((tensor->sparse == 0) || (tensor->elem_count == 0)) continue;
        if (known && (decays(gf, tensor) != sparse->decays)) sparse->in_lists = false;
        sparse->decays = decays(gf, tensor);
        known = true;
    }
}

/* The copy of the step before has long been done: that step is whole. */
gf_status gf_sparse_lists_begin(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    uint32_t sent = 0, other = sparse->selected_count;
    if (!sparse->in_lists) return GF_OK;
    for (uint32_t chunk = 0; chunk < sparse->chunk_count; chunk++) {
        bool is_sent = (sent < sparse->selected_count) && (sparse->selection[sent] == chunk);
        sparse->lists[is_sent ? sent++ : other++] = chunk;
    }
    if (gf->gpu->driver->copy(&gf->pack_queue, sparse->device_lists, (gf_mem)(uintptr_t)sparse->lists,
                              sparse->chunk_count * sizeof(uint32_t)) < 0)
        return gf_device_failed(gf, GF_OPERATION_STEP);
    return GF_OK;
}

/* ---- what is done to listed chunks ---- */

/* Chunks that the scratch holds; it holds one at least. */
static uint32_t batch_max(const struct gf_sparse *sparse)
{
    uint64_t chunks = sparse->scratch_elems / sparse->chunk_elems;
    return (chunks < 1) ? 1 : (chunks > UINT32_MAX) ? UINT32_MAX : (uint32_t)chunks;
}

/* Elements of `count` rising chunks, of which only the part's last may be short. */
static uint64_t elems_of(const struct gf_sparse *sparse, const uint32_t *chunks, uint32_t count)
{
    if (count == 0) return 0;
    return (count - 1) * sparse->chunk_elems + gf_chunk_end(sparse, chunks[count - 1]) -
           gf_chunk_first(sparse, chunks[count - 1]);
}

static struct gf_chunks chunks_of(const struct gf_sparse *sparse, gf_mem list, uint32_t count)
{
    return (struct gf_chunks){.dst_list_u32 = list, .src_list_u32 = list, .count = count,
                              .chunk_elems = sparse->chunk_elems, .dst_elems = sparse->elem_count,
                              .src_elems = sparse->elem_count};
}

/* h' (and u') of the chunks: to where they lie, or one after the other to `packed`. */
static gf_status accumulate(gf_context *gf, struct gf_queue *queue, gf_mem list, uint32_t count, gf_mem history_out,
                            gf_mem momentum_out, uint64_t packed_elems)
{
    const struct gf_sparse *sparse = &gf->sparse;
    const struct gf_sparse_rule rule = gf_sparse_rule_of(gf);
    struct gf_chunks chunks = chunks_of(sparse, list, count);
    if (packed_elems > 0) {
        chunks.dst_list_u32 = 0;
        chunks.dst_elems = packed_elems;
    }
    const struct gf_accumulate some = {
        .dst_h_f32 = history_out, .h_f32 = sparse->history, .dst_u_f32 = momentum_out,
        .u_f32 = rule.has_u ? gf->optimizer.momentum : 0, .src = gf->gradient, .src_type = sparse->type,
        .scale = 1.0f / gf->loss_scale.value, .momentum = rule.momentum, .ahead = gf->config.optimizer.momentum,
        .weight_f32 = sparse->decays ? gf->optimizer.weight : 0, .decay = rule.decay};
    return gf_sparse_ops(gf->ops)->accumulate_chunks(queue, &some, &chunks);
}

/* ---- to the wire ---- */

gf_status gf_sparse_lists_pack(gf_context *gf, struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    const struct gf_sparse *sparse = &gf->sparse;
    gf_type wire = gf->config.exchange.wire;
    for (uint32_t done = 0, count; done < buffer->chunk_count; done += count) {
        uint32_t first = buffer->chunk_first + done, left = buffer->chunk_count - done;
        uint64_t elems;
        count = (left < batch_max(sparse)) ? left : batch_max(sparse);
        elems = elems_of(sparse, sparse->selection + first, count);
        if ((accumulate(gf, op->pack_queue, sent_list(sparse) + first * sizeof(uint32_t), count, sparse->scratch, 0,
                        elems) < 0) ||
            (gf->ops->cast(op->pack_queue, op->packed + op->done_elems * gf_type_size_bytes(wire), wire, sparse->scratch,
                           GF_TYPE_F32, elems, gf->loss_scale.value * gf->config.exchange.pre_scale, op->done_elems,
                           gf_finite_counter(gf, op->index, GF_COUNT_PACKED)) < 0))
            return gf_device_failed(gf, GF_OPERATION_STEP);
        op->done_elems += elems;
    }
    return GF_OK;
}

static uint64_t placed(const struct gf_sparse *sparse, const uint32_t *chunks, uint64_t packed)
{
    return gf_chunk_first(sparse, chunks[packed / sparse->chunk_elems]) + packed % sparse->chunk_elems;
}

void gf_sparse_lists_locate(const gf_context *gf, const struct gf_buffer *buffer, struct gf_check *check)
{
    if (check->bad_count == 0) return;
    check->bad_first = placed(&gf->sparse, gf->sparse.selection + buffer->chunk_first, check->bad_first);
}

/* ---- norms ---- */

/* Norms of `count` chunks by their gradients, in their places; check: NULL, or what counts those that are not finite. */
static gf_status gradients_score(gf_context *gf, struct gf_queue *queue, uint32_t first, uint32_t count,
                                 struct gf_check *check)
{
    const struct gf_sparse *sparse = &gf->sparse;
    uint32_t batch = (sparse->type == GF_TYPE_F32) ? count : batch_max(sparse);
    for (uint32_t end = first + count, next; first < end; first = next) {
        uint64_t at = gf_chunk_first(sparse, first), elems;
        gf_mem values = gf->gradient + at * gf_type_size_bytes(sparse->type);
        next = (end - first < batch) ? end : first + batch;
        elems = gf_chunk_end(sparse, next - 1) - at;
        if ((sparse->type != GF_TYPE_F32) &&
            (gf->ops->cast(queue, sparse->scratch, GF_TYPE_F32, values, sparse->type, elems, 1.0f, 0, NULL) < 0))
            return gf_device_failed(gf, GF_OPERATION_STEP);
        if (sparse->type != GF_TYPE_F32) values = sparse->scratch;
        if ((gf_sparse_ops(gf->ops)->score(queue, (gf_mem)(uintptr_t)&sparse->scores[first], values, elems,
                                           sparse->chunk_elems, gf_slice_elems(gf)) < 0) ||
            ((check != NULL) && (gf->ops->check(queue, values, GF_TYPE_F32, elems, at, check) < 0)))
            return gf_device_failed(gf, GF_OPERATION_STEP);
    }
    return GF_OK;
}

/* Of all chunks, in batches as below. */
static gf_status local_score(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    bool all = sparse->ready_elems == sparse->elem_count;
    uint64_t ready = all ? sparse->chunk_count : sparse->ready_elems / sparse->chunk_elems;
    uint32_t count = (uint32_t)ready - sparse->listed;
    gf_status status;
    if (!all && (count < batch_max(sparse))) return GF_AGAIN;
    status = gradients_score(gf, &gf->pack_queue, sparse->listed, count,
                             gf_finite_counter(gf, gf->under_way.count, GF_COUNT_PACKED));
    sparse->listed += count;
    return ((status == GF_OK) && !all) ? GF_AGAIN : status;
}

/* Norms come one after the other, and are put in their places by gf_sparse_lists_place(). A batch is as large as the
 * scratch, unless nothing more will become ready. */
gf_status gf_sparse_lists_score(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    const uint32_t *list = others(sparse);
    if (gf_sparse_is_local(gf)) return local_score(gf);
    for (;;) {
        uint32_t first = sparse->listed, count = 0;
        uint64_t elems;
        bool all = sparse->ready_elems == sparse->elem_count;
        if (first == other_count(sparse)) return GF_OK;
        while ((first + count < other_count(sparse)) && (count < batch_max(sparse)) &&
               (gf_chunk_end(sparse, list[first + count]) <= sparse->ready_elems))
            count++;
        if ((count == 0) || ((count < batch_max(sparse)) && !all)) return GF_AGAIN;
        elems = elems_of(sparse, list + first, count);
        if ((accumulate(gf, &gf->pack_queue, other_list(sparse) + first * sizeof(uint32_t), count, sparse->scratch, 0,
                        elems) < 0) ||
            (gf_sparse_ops(gf->ops)->score(&gf->pack_queue, (gf_mem)(uintptr_t)&sparse->scores[first], sparse->scratch,
                                           elems, sparse->chunk_elems, gf_slice_elems(gf)) < 0) ||
            (gf->ops->check(&gf->pack_queue, sparse->scratch, GF_TYPE_F32, elems, first * sparse->chunk_elems,
                            gf_finite_counter(gf, gf->under_way.count, GF_COUNT_PACKED)) < 0))
            return gf_device_failed(gf, GF_OPERATION_STEP);
        sparse->listed += count;
    }
}

/* A place is never before that from which its norm comes: from the last one on, none is lost. */
void gf_sparse_lists_place(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    struct gf_check *check = gf_finite_seen(gf, gf->under_way.count, GF_COUNT_PACKED);
    const uint32_t *list = others(sparse);
    if (gf_sparse_is_local(gf)) return; /* they are */
    for (uint32_t i = other_count(sparse); i-- > 0;) sparse->scores[list[i]] = sparse->scores[i];
    for (uint32_t i = 0; i < sparse->selected_count; i++) sparse->scores[sparse->selection[i]] = 0.0f;
    if (check->bad_count > 0) check->bad_first = placed(sparse, list, check->bad_first);
}

/* ---- after the vote ---- */

gf_status gf_sparse_lists_commit(gf_context *gf, float factor)
{
    const struct gf_sparse *sparse = &gf->sparse;
    const struct gf_sparse_ops *ops = gf_sparse_ops(gf->ops);
    const struct gf_sparse_rule rule = gf_sparse_rule_of(gf);
    gf_type type = gf->sparse.type, wire = gf->config.exchange.wire;
    gf_mem momentum = rule.has_u ? gf->optimizer.momentum : 0;
    uint32_t sent_count = sparse->selected_count;
    struct gf_chunks sent = chunks_of(sparse, sent_list(sparse), sent_count), wired = sent;
    struct gf_chunks other = chunks_of(sparse, other_list(sparse), other_count(sparse));
    bool good = accumulate(gf, &gf->queue, other.dst_list_u32, other.count, sparse->history, momentum, 0) >= 0;
    wired.src_list_u32 = 0;
    wired.src_elems = elems_of(sparse, sparse->selection, sent_count);
    if (rule.has_u)
        good = good && (accumulate(gf, &gf->queue, sent.dst_list_u32, sent.count, sparse->history, momentum, 0) >= 0);
    good = good && (ops->zero_chunks(&gf->queue, sparse->history, GF_TYPE_F32, &sent) >= 0);
    good = good && (ops->cast_chunks(&gf->queue, gf->gradient, type, gf->pack, wire, &wired,
                                     (type == GF_TYPE_F32) ? factor : 1.0f, 0, NULL) >= 0);
    good = good && (ops->zero_chunks(&gf->queue, gf->gradient, type, &other) >= 0);
    return good ? GF_OK : gf_device_failed(gf, GF_OPERATION_STEP);
}

gf_status gf_sparse_lists_weigh(gf_context *gf)
{
    return gradients_score(gf, &gf->queue, 0, gf->sparse.chunk_count, NULL);
}

/* ---- the update ---- */

/* Without LARS all tensors of the part share their rules (the decay is in the history), so that what was sent is one
 * launch. Its list lies on the device until the next step begins. Gaps between tensors are zeroes and stay so. */
gf_status gf_sparse_lists_update(gf_context *gf, float learning_rate)
{
    const struct gf_sparse *sparse = &gf->sparse;
    const struct gf_chunks sent = chunks_of(sparse, sent_list(sparse), sparse->sent_count);
    uint32_t tensor = 0;
    while (gf->tensors[tensor].sparse == 0) tensor++;
    return gf->modules->optimizer->chunks(gf, tensor, &sent, learning_rate);
}
