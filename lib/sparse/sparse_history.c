/* The history of the sparse part: h' and u' on their way to the wire, to the scores and, after
 * the vote, to memory. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"
#include "ops/ops.h"

#include <float.h>
#include <math.h>

/* a piece costs a turn at least as much: bounds the turns of tiny chunks */
#define PIECE_COST_ELEMS 64u

bool gf_sparse_is_local(const gf_context *gf)
{
    return gf->config.sparse.momentum != GF_SPARSE_MOMENTUM_REDUCED;
}

/* All sparse tensors share one type and the part begins the pool: an element's gradient is found by
 * its index alone. */
static gf_mem gradient_at(const gf_context *gf, uint64_t elem)
{
    return gf->gradient + elem * gf_type_size_bytes(gf->sparse.type);
}

/* What each rank adds of something that the average then gathers from all ranks: 1/ranks of a sum,
 * 1 of a mean. */
static float rank_share(const gf_context *gf)
{
    double ranks = (double)gf->world;
    switch (gf->config.exchange.average) {
    case GF_AVERAGE_SUM: return (float)(1.0 / ranks);
    case GF_AVERAGE_RANKS: return 1.0f;
    case GF_AVERAGE_SAMPLES: return (float)((double)gf->samples_before / ranks);
    }
    return 1.0f;
}

/* ---- passes ---- */

/* Where the piece that begins at pass->elem ends. A chunk is cut at the same places in every pass,
 * whatever turn it is: its norm must not depend on timing. */
static uint64_t piece_end(const gf_context *gf, const struct gf_sparse_pass *pass)
{
    uint64_t end = gf_chunk_end(&gf->sparse, pass->chunk);
    return (end - pass->elem < gf_slice_elems(gf)) ? end : pass->elem + gf_slice_elems(gf);
}

static bool pass_selected(const struct gf_sparse *sparse, const struct gf_sparse_pass *pass)
{
    return (pass->slot < sparse->selected_count) && (sparse->selection[pass->slot] == pass->chunk);
}

/* To `end`, where a piece ended. */
static void pass_move(const struct gf_sparse *sparse, struct gf_sparse_pass *pass, uint64_t end)
{
    pass->elem = end;
    if (end < gf_chunk_end(sparse, pass->chunk)) return;
    if (pass_selected(sparse, pass)) pass->slot++;
    pass->chunk++;
}

/* How far from `at`, at most to `end`, one rule of decay holds. A gap belongs to the tensor after
 * it. *tensor only moves on. */
static uint64_t decay_run(const gf_context *gf, uint32_t *tensor, uint64_t at, uint64_t end,
                          bool *decays_out)
{
    uint64_t to = end;
    bool known = false;
    *decays_out = false; /* after the last tensor */
    for (; *tensor < gf->tensor_count; (*tensor)++) {
        const struct gf_pool_tensor *next = &gf->tensors[*tensor];
        bool decays = (next->flags & GF_TENSOR_NO_DECAY) == 0;
        if ((next->sparse == 0) || (next->first_elem + next->elem_count <= at)) continue;
        if (known && (decays != *decays_out)) return to;
        *decays_out = decays;
        known = true;
        to = next->first_elem + next->elem_count;
        if (to >= end) return end;
    }
    return known ? to : end;
}

static bool has_u(const gf_context *gf)
{
    return gf_sparse_is_local(gf) && (gf->optimizer.momentum != 0);
}

/* Each rank's share of the weight decay; 0: there is none, or no weights. */
static float decay_share(const gf_context *gf)
{
    return (gf->optimizer.weight != 0) ? gf->config.optimizer.weight_decay * rank_share(gf) : 0.0f;
}

/* Elements from `first` on. keep: h' and u' take the place of h and u; else h' goes to
 * to_h_f32. */
static struct gf_accumulate accumulate_of(const gf_context *gf, uint64_t first, bool decays,
                                          bool keep, gf_mem to_h_f32)
{
    const struct gf_sparse *sparse = &gf->sparse;
    const uint64_t in = first * sizeof(float);
    const float momentum = gf->config.optimizer.momentum;
    /* The first local step goes on from the common momentum: of it, each rank holds its share. */
    const float share = sparse->local_begun ? 1.0f : rank_share(gf);
    struct gf_accumulate one = {.dst_h_f32 = keep ? sparse->history + in : to_h_f32,
                                .h_f32 = sparse->history + in,
                                .src = gradient_at(gf, first),
                                .src_type = sparse->type,
                                .scale = 1.0f / gf->loss_scale.value,
                                .momentum = momentum * share,
                                .ahead = momentum,
                                .decay = decay_share(gf)};
    if (has_u(gf)) one.u_f32 = gf->optimizer.momentum + in;
    if (has_u(gf) && keep) one.dst_u_f32 = gf->optimizer.momentum + in;
    if (decays) one.weight_f32 = gf->optimizer.weight + in;
    return one;
}

/* h' of a batch: to the scratch, one after the other; or, with u', to keep. A batch of neighbours
 * is cut where the rule of decay changes; one of listed chunks has one rule. */
static gf_status accumulate(gf_context *gf, struct gf_queue *queue,
                            const struct gf_sparse_batch *batch, uint32_t *tensor, bool keep)
{
    const struct gf_sparse *sparse = &gf->sparse;
    const uint64_t end = batch->first + batch->elems;
    const bool has_decay = decay_share(gf) != 0.0f;
    struct gf_sparse_batch some = *batch;
    for (uint64_t done = 0; done < batch->elems; done += some.elems) {
        bool decays = sparse->decays;
        some.first = batch->first + done;
        some.elems = batch->elems - done;
        if (has_decay && (some.list_u32 == 0))
            some.elems = decay_run(gf, tensor, some.first, end, &decays) - some.first;
        const struct gf_accumulate one = accumulate_of(gf, some.first, has_decay && decays, keep,
                                                       sparse->scratch + done * sizeof(float));
        struct gf_chunks chunks = gf_sparse_chunks(sparse, &some);
        chunks.dst_packed = !keep;
        if (gf->ops->accumulate_chunks(queue, &one, &chunks) < 0)
            return gf_device_failed(gf, GF_OPERATION_STEP);
    }
    return GF_OK;
}

/* ---- to the wire ---- */

static void pack_goto(const struct gf_sparse *sparse, struct gf_sparse_pass *pack, uint32_t slot)
{
    pack->slot = slot;
    if (slot >= sparse->selected_count) return;
    pack->chunk = sparse->selection[slot];
    pack->elem = gf_chunk_first(sparse, pack->chunk);
}

static struct gf_sparse_batch piece_sent(const gf_context *gf, struct gf_sparse_pass *pack)
{
    const struct gf_sparse_batch piece = {.first = pack->elem,
                                          .elems = piece_end(gf, pack) - pack->elem};
    pack->elem += piece.elems;
    if (pack->elem == gf_chunk_end(&gf->sparse, pack->chunk))
        pack_goto(&gf->sparse, pack, pack->slot + 1);
    return piece;
}

static gf_status sparse_pack(gf_context *gf, struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    struct gf_sparse *sparse = &gf->sparse;
    struct gf_sparse_pass *pack = &sparse->pack[op->index];
    gf_type wire = gf->config.exchange.wire;
    if (op->done_elems == 0) pack_goto(sparse, pack, buffer->chunk_first);
    if (op->done_elems == 0) pack->tensor = buffer->first_tensor;
    for (uint64_t spent = 0;
         (op->done_elems < buffer->elem_count) && (spent < gf_slice_elems(gf));) {
        const struct gf_sparse_batch some =
            sparse->in_lists ? gf_sparse_lists_sent(sparse, buffer, pack) : piece_sent(gf, pack);
        gf_status status = accumulate(gf, op->pack_queue, &some, &pack->tensor, false);
        if (status < 0) return status;
        if (gf->ops->cast(op->pack_queue,
                          op->plan.packed + op->done_elems * gf_type_size_bytes(wire), wire,
                          sparse->scratch, GF_TYPE_F32, some.elems,
                          gf->loss_scale.value * gf->config.exchange.pre_scale, op->done_elems,
                          gf_finite_counter(gf, op->index, GF_COUNT_PACKED)) < 0)
            return gf_device_failed(gf, GF_OPERATION_STEP);
        op->done_elems += some.elems;
        if (!sparse->in_lists) spent += some.elems + PIECE_COST_ELEMS;
    }
    return GF_OK;
}

/* Chunks wait for the vote, which only has to know whether they will fit. */
static gf_status sparse_unpack(gf_context *gf, struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    gf_type type = (gf_type)buffer->type;
    gf_type wire = gf->config.exchange.wire;
    float factor = gf_keeps_scale(gf, type) ? 1.0f : gf_buffer_factor(gf);
    bool fits = (factor <= 1.0f) && ((type == GF_TYPE_F32) || (type == wire));
    uint64_t done = op->done_elems;
    uint64_t left = buffer->elem_count - done;
    uint64_t count = gf_turn_elems(gf, left);
    gf_mem from = op->plan.packed + done * gf_type_size_bytes(wire);
    gf_status status;
    if (fits) {
        op->done_elems += left;
        return GF_OK;
    }
    if (count > gf->sparse.scratch_elems) count = gf->sparse.scratch_elems;
    /* The cast is only counted; the scratch that it fills is the pack queue's, before and after. */
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

/* ---- norms ---- */

/* The counter of what is scored. */
static uint32_t counter(const gf_context *gf)
{
    return gf->under_way.count;
}

static gf_status counters_fetch(gf_context *gf, struct gf_queue *queue)
{
    return gf->on_device ? gf_device_counters_fetch(gf, queue, counter(gf)) : GF_OK;
}

static gf_status event_poll(gf_context *gf, uint32_t event)
{
    return gf->on_device ? gf->gpu->driver->event_query(gf->gpu, event) : GF_OK;
}

/* On a device a tensor is ready once it is computed: what is packed of others waits for no norm. */
static gf_status ready_advance(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    for (; sparse->ready_tensor < gf->tensor_count; sparse->ready_tensor++) {
        const struct gf_pool_tensor *tensor = &gf->tensors[sparse->ready_tensor];
        gf_status status;
        if (tensor->sparse == 0) continue;
        if (tensor->ready == 0) return GF_OK;
        status = gf->on_device ? gf_device_computed(gf, sparse->ready_tensor) : GF_OK;
        if (status < 0) return gf_device_failed(gf, GF_OPERATION_STEP);
        if (status == GF_AGAIN) return GF_OK;
        sparse->ready_elems = tensor->first_elem + tensor->elem_count;
    }
    sparse->ready_elems = sparse->elem_count;
    return GF_OK;
}

/* What the norms of a batch are of, as fp32: h' in the scratch, or gradients in the pool or there.
 * Their scale is that of all ranks. */
static gf_status values_load(gf_context *gf, struct gf_queue *queue,
                             const struct gf_sparse_batch *batch, uint32_t *tensor, gf_mem *to_out)
{
    gf_mem gradient = gradient_at(gf, batch->first);
    gf_type type = gf->sparse.type;
    *to_out = ((tensor == NULL) && (type == GF_TYPE_F32)) ? gradient : gf->sparse.scratch;
    if (tensor != NULL) return accumulate(gf, queue, batch, tensor, false);
    if ((type != GF_TYPE_F32) && (gf->ops->cast(queue, *to_out, GF_TYPE_F32, gradient, type,
                                                batch->elems, 1.0f, 0, NULL) < 0))
        return gf_device_failed(gf, GF_OPERATION_STEP);
    return GF_OK;
}

gf_status gf_sparse_batch_score(gf_context *gf, struct gf_queue *queue,
                                const struct gf_sparse_batch *batch, uint32_t at, uint32_t *tensor,
                                struct gf_check *check)
{
    struct gf_sparse *sparse = &gf->sparse;
    gf_mem values;
    gf_mem score = (gf_mem)(uintptr_t)&sparse->scores[at];
    bool more = (batch->list_u32 == 0) && (batch->first != gf_chunk_first(sparse, at));
    gf_status status = values_load(gf, queue, batch, tensor, &values);
    if (status < 0) return status;
    if ((gf->ops->score(queue, more ? sparse->part : score, values, batch->elems,
                        sparse->chunk_elems, gf_slice_elems(gf)) < 0) ||
        (more && (gf->ops->sum(queue, score, sparse->part, GF_TYPE_F32, 1, 0, NULL) < 0)))
        return gf_device_failed(gf, GF_OPERATION_STEP);
    /* A norm that is not finite names its element. On a device nobody can look yet: all are
     * checked. */
    if ((check == NULL) || (!gf->on_device && isfinite(sparse->scores[at]))) return GF_OK;
    if (gf->ops->check(queue, values, GF_TYPE_F32, batch->elems,
                       (batch->list_u32 == 0) ? batch->first : gf_chunk_first(sparse, at),
                       check) < 0)
        return gf_device_failed(gf, GF_OPERATION_STEP);
    return GF_OK;
}

/* All norms are there. Values that are not finite go into the vote. Finite ones whose magnitudes
 * add up beyond fp32 are the largest there is, as after a dense step: a score chooses and is
 * applied nowhere, and sums of several such ranks, infinite, are still the first to be chosen. */
static void scores_attribute(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    const struct gf_check *check = gf_finite_seen(gf, counter(gf), GF_COUNT_PACKED);
    for (uint32_t chunk = 0; chunk < sparse->chunk_count; chunk++)
        if (!isfinite(sparse->scores[chunk]))
            sparse->scores[chunk] = (check->bad_count > 0) ? 0.0f : FLT_MAX;
    gf_finite_scored(gf, check);
}

/* The piece at pass->elem, or a whole chunk of which nothing will be left, as it is sent: that has
 * no norm. With local momentum what is sent is scored, too: its norm is that of the gradient.
 * GF_AGAIN: it is not ready. */
static gf_status piece_score(gf_context *gf, struct gf_sparse_pass *pass, uint64_t *spent)
{
    struct gf_sparse *sparse = &gf->sparse;
    const bool local = gf_sparse_is_local(gf);
    const bool leaves = !local && pass_selected(sparse, pass);
    const uint64_t end = leaves ? gf_chunk_end(sparse, pass->chunk) : piece_end(gf, pass);
    const struct gf_sparse_batch piece = {.first = pass->elem, .elems = end - pass->elem};
    gf_status status = GF_OK;
    if (end > sparse->ready_elems) return GF_AGAIN;
    if (leaves)
        sparse->scores[pass->chunk] = 0.0f;
    else
        status = gf_sparse_batch_score(gf, &gf->pack_queue, &piece, pass->chunk,
                                       local ? NULL : &pass->tensor,
                                       gf_finite_counter(gf, counter(gf), GF_COUNT_PACKED));
    if (status < 0) return status;
    *spent += (leaves ? 0 : piece.elems) + PIECE_COST_ELEMS;
    pass_move(sparse, pass, end);
    return GF_OK;
}

/* Pieces that are ready, about a slice of them. GF_OK: all are queued. */
static gf_status pieces_score(gf_context *gf, uint64_t now_ns)
{
    const struct gf_sparse *sparse = &gf->sparse;
    struct gf_sparse_pass *pass = &gf->sparse.score;
    uint64_t spent = 0;
    while ((pass->chunk < sparse->chunk_count) && (spent < gf_slice_elems(gf))) {
        gf_status status = piece_score(gf, pass, &spent);
        if (status != GF_OK) return status;
        gf->wait_state.moved_ns = now_ns;
    }
    return (pass->chunk < sparse->chunk_count) ? GF_AGAIN : GF_OK;
}

gf_status gf_sparse_score(gf_context *gf, uint64_t now_ns)
{
    struct gf_sparse *sparse = &gf->sparse;
    gf_status status;
    if (sparse->scored) return GF_OK;
    if ((status = ready_advance(gf)) < 0) return status;
    status = sparse->in_lists ? gf_sparse_lists_score(gf) : pieces_score(gf, now_ns);
    if (status != GF_OK) return status;
    if (!sparse->score_queued && (counters_fetch(gf, &gf->pack_queue) < 0))
        return gf_device_failed(gf, GF_OPERATION_STEP);
    sparse->score_queued = true;
    if ((status = event_poll(gf, counter(gf))) == GF_AGAIN) return GF_AGAIN;
    if (status < 0) return gf_device_failed(gf, GF_OPERATION_STEP);
    if (sparse->in_lists) gf_sparse_lists_scatter(gf);
    scores_attribute(gf);
    sparse->scored = true;
    if (gf->on_device) status = gf_device_counters_take(gf, counter(gf));
    return (status < 0) ? gf_device_failed(gf, GF_OPERATION_STEP) : GF_OK;
}

/* ---- commit ---- */

gf_status gf_sparse_batch_commit(gf_context *gf, const struct gf_sparse_batch *batch, bool sent,
                                 float factor)
{
    struct gf_sparse *sparse = &gf->sparse;
    const struct gf_element_ops *ops = gf->ops;
    gf_type type = sparse->type;
    gf_type wire = gf->config.exchange.wire;
    gf_mem gradient = gradient_at(gf, batch->first);
    gf_mem history = sparse->history + batch->first * sizeof(float);
    gf_mem packed = gf->pack + sparse->commit_packed * gf_type_size_bytes(wire);
    const struct gf_chunks chunks = gf_sparse_chunks(sparse, batch);
    struct gf_chunks from_pack = chunks;
    gf_status status = GF_OK;
    from_pack.src_packed = true;
    if (!sent || has_u(gf))
        status = accumulate(gf, &gf->queue, batch, &sparse->commit.tensor, true);
    if (status < 0) return status;
    if (sent) {
        status = ops->zero_chunks(&gf->queue, history, GF_TYPE_F32, &chunks);
        if (status == GF_OK)
            status = ops->cast_chunks(&gf->queue, gradient, type, packed, wire, &from_pack,
                                      gf_keeps_scale(gf, type) ? 1.0f : factor, 0, NULL);
        sparse->commit_packed += batch->elems;
    } else {
        status = ops->zero_chunks(&gf->queue, gradient, type, &chunks);
    }
    return (status < 0) ? gf_device_failed(gf, GF_OPERATION_STEP) : GF_OK;
}

/* Behind a dense step nothing waits: what was just applied says what matters, and every rank holds
 * the same bits of it. GF_OK: its norms are there. Those of sparse steps were, before the vote. */
static gf_status weighed(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    gf_status status;
    if (gf->step.sparse) return GF_OK;
    if (!sparse->score_queued && (counters_fetch(gf, &gf->queue) < 0))
        return gf_device_failed(gf, GF_OPERATION_STEP);
    sparse->score_queued = true;
    status = event_poll(gf, counter(gf));
    if (status != GF_OK) return (status < 0) ? gf_device_failed(gf, GF_OPERATION_STEP) : status;
    for (uint32_t chunk = 0; chunk < sparse->chunk_count; chunk++)
        if (!isfinite(sparse->scores[chunk])) sparse->scores[chunk] = FLT_MAX;
    return GF_OK;
}

/* The set of the next step. Nobody asks anybody: the norms are the same bits everywhere. */
static void select_next(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    uint32_t *before = sparse->sent;
    sparse->sent = sparse->selection; /* gf_update() still asks what this step sent */
    sparse->sent_count = sparse->selected_count;
    sparse->selection = before;
    sparse->selected_count = gf_sparse_kept(&gf->config, sparse->chunk_count, gf->step.number + 1);
    gf_sparse_select(sparse->scores, sparse->chunk_count, sparse->selected_count,
                     sparse->selection);
}

gf_status gf_sparse_commit(gf_context *gf, float factor)
{
    struct gf_sparse *sparse = &gf->sparse;
    struct gf_sparse_pass *pass = &sparse->commit;
    gf_status status;
    if (sparse->chunk_count == 0) return GF_OK;
    /* another dense one */
    if (!gf->step.sparse && (gf->step.number < gf->config.sparse.warmup_steps)) return GF_OK;
    if (sparse->in_lists && (pass->chunk == 0)) {
        status = gf->step.sparse ? gf_sparse_lists_commit(gf, factor) : gf_sparse_lists_weigh(gf);
        if (status < 0) return status;
        pass->chunk = sparse->chunk_count;
    }
    for (uint64_t spent = 0; pass->chunk < sparse->chunk_count;) {
        const struct gf_sparse_batch piece = {.first = pass->elem,
                                              .elems = piece_end(gf, pass) - pass->elem};
        if (spent >= gf_slice_elems(gf)) return GF_AGAIN;
        status = gf->step.sparse
                     ? gf_sparse_batch_commit(gf, &piece, pass_selected(sparse, pass), factor)
                     : gf_sparse_batch_score(gf, &gf->queue, &piece, pass->chunk, NULL, NULL);
        if (status < 0) return status;
        spent += piece.elems + PIECE_COST_ELEMS;
        pass_move(sparse, pass, pass->elem + piece.elems);
    }
    if (((status = weighed(gf)) < 0) || (status == GF_AGAIN)) return status;
    if (gf->step.sparse) {
        if (sparse->selected_count < sparse->chunk_count) sparse->history_empty = false;
        if (gf_sparse_is_local(gf)) sparse->local_begun = true;
    }
    sparse->commit = (struct gf_sparse_pass){0};
    sparse->score_queued = false;
    sparse->commit_packed = 0;
    select_next(gf);
    return GF_OK;
}
