/* A sparse step: its buffers, and what is computed on the way to the wire, to the norms, and at the commit. */
#include "context.h"

#include <float.h>
#include <math.h>

static uint64_t chunk_first(const struct gf_sparse *sparse, uint32_t chunk) { return chunk * sparse->chunk_elems; }

static uint64_t chunk_end(const struct gf_sparse *sparse, uint32_t chunk)
{
    uint64_t end = (chunk + UINT64_C(1)) * sparse->chunk_elems;
    return (end < sparse->elem_count) ? end : sparse->elem_count;
}

static bool is_local(const gf_context *gf)
{
    return gf->config.sparse.momentum != GF_SPARSE_MOMENTUM_REDUCED;
}

/* All sparse tensors share one type and the part begins the pool: an element's gradient is found by its index alone. */
static gf_mem gradient_at(const gf_context *gf, uint64_t elem)
{
    return gf->gradient + elem * gf_type_size_bytes(gf->sparse_type);
}

/* What each rank adds of something that the average then gathers from all ranks: 1/ranks of a sum, 1 of a mean. */
static float local_share(const gf_context *gf)
{
    double ranks = (double)gf->world;
    switch (gf->config.exchange.average) {
    case GF_AVERAGE_SUM:     return (float)(1.0 / ranks);
    case GF_AVERAGE_RANKS:   return 1.0f;
    case GF_AVERAGE_SAMPLES: return (float)((double)gf->samples_before / ranks);
    }
    return 1.0f;
}

/* ---- buffers ---- */

bool gf_sparse_step_is_dense(const gf_context *gf)
{
    const struct gf_sparse *sparse = &gf->sparse;
    if ((sparse->chunk_count == 0) || (gf->step.number <= gf->config.sparse.warmup_steps) || !sparse->known) return true;
    /* Everything is sent and nothing waits: that is a dense step, bit for bit where momentum follows the reduction. */
    return !is_local(gf) && sparse->history_empty && (sparse->selected_count == sparse->chunk_count);
}

/* Selected chunks, packed behind each other, in runs of at least fuse_bytes. */
static uint32_t sparse_group(gf_context *gf)
{
    const struct gf_sparse *sparse = &gf->sparse;
    size_t wire_bytes = gf_type_size_bytes(gf->config.exchange.wire);
    struct gf_buffer *open = NULL;
    uint64_t packed = 0;
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < sparse->selected_count; slot++) {
        uint64_t elems = chunk_end(sparse, sparse->selection[slot]) - chunk_first(sparse, sparse->selection[slot]);
        if (open == NULL) {
            open = &gf->buffers[count++];
            *open = (struct gf_buffer){.first_elem = packed,
                                       .first_tensor = GF_TENSOR_NONE,
                                       .chunk_first = slot,
                                       .type = (uint8_t)gf->sparse_type,
                                       .sparse = 1};
        }
        open->elem_count += elems;
        open->chunk_count++;
        packed += elems;
        if (open->elem_count * wire_bytes >= gf->config.exchange.fuse_bytes) open = NULL;
    }
    return count;
}

/* Which buffers wait for which tensors: chunks, buffers and tensors all rise, so one walk pairs them. */
static void sparse_wire_up(gf_context *gf, uint32_t buffer_count)
{
    const struct gf_sparse *sparse = &gf->sparse;
    uint32_t slot = 0, first = 0;
    for (uint32_t b = 0; b < buffer_count; b++) gf->buffer_pending[b] = 0;
    for (uint32_t i = 0; i < gf->tensor_count; i++) {
        struct gf_pool_tensor *tensor = &gf->tensors[i];
        uint64_t end = tensor->first_elem + tensor->elem_count;
        uint32_t last_slot;
        if (tensor->sparse == 0) continue;
        tensor->buffer_count = 0;
        while ((slot < sparse->selected_count) && (chunk_end(sparse, sparse->selection[slot]) <= tensor->first_elem)) slot++;
        for (last_slot = slot; (last_slot < sparse->selected_count) && (chunk_first(sparse, sparse->selection[last_slot]) < end);)
            last_slot++;
        if ((last_slot == slot) || (tensor->elem_count == 0)) continue; /* nothing of it is sent */
        while (gf->buffers[first].chunk_first + gf->buffers[first].chunk_count <= slot) first++;
        tensor->buffer_first = first;
        for (uint32_t b = first; (b < buffer_count) && (gf->buffers[b].chunk_first < last_slot); b++) {
            struct gf_buffer *buffer = &gf->buffers[b];
            if (buffer->first_tensor == GF_TENSOR_NONE) buffer->first_tensor = i;
            buffer->last_tensor = i;
            buffer->tensor_count++;
            gf->buffer_pending[b]++;
            tensor->buffer_count++;
        }
        slot = last_slot - 1; /* the next tensor may share this one's last chunk */
    }
    for (uint32_t b = 0; b < buffer_count; b++) /* chunks that lie in a gap between tensors */
        if (gf->buffers[b].first_tensor == GF_TENSOR_NONE) gf->buffers[b].first_tensor = gf->buffers[b].last_tensor = 0;
}

void gf_sparse_begin(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    struct gf_config *config = &gf->config;
    uint32_t count;
    gf->step.sparse = true;
    gf->buffers = gf->sparse_buffers;
    count = sparse_group(gf);
    sparse_wire_up(gf, count);
    gf->step.buffer_count =
        gf_pool_group(gf->tensors, gf->tensor_count, false, config->exchange.wire, config->exchange.fuse_bytes, gf->buffers, count);
    for (uint32_t b = count; b < gf->step.buffer_count; b++) gf->buffer_pending[b] = gf->buffers[b].tensor_count;
    gf_buffers_order(gf);
    sparse->ready_tensor = 0;
    sparse->ready_elems = 0;
    sparse->scored = sparse->score_slot = 0;
    sparse->committed = sparse->commit_slot = 0;
    if (is_local(gf) && !sparse->local_begun) {
        /* Each rank goes on from its share of the common momentum. */
        (void)gf->ops->cast(&gf->queue, gf->momentum, GF_TYPE_F32, gf->momentum, GF_TYPE_F32,
                            (gf->momentum != 0) ? sparse->elem_count : 0, local_share(gf), 0, NULL);
        sparse->local_begun = true;
    }
}

/* ---- h' and u' ---- */

/* From element `at`: how far, at most to `end`, one rule of decay holds. A gap belongs to the tensor behind it. *tensor
 * is a cursor that only moves on. */
static uint64_t decay_run(const gf_context *gf, uint32_t *tensor, uint64_t at, uint64_t end, bool *decays_out)
{
    uint64_t to = end;
    bool known = false;
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
    if (!known) *decays_out = false; /* behind the last tensor */
    return known ? to : end;
}

/* history_out[] = h' and, where it is given, momentum_out[] = u', for elements first..end-1. */
static gf_status accumulate(gf_context *gf, uint64_t first, uint64_t end, gf_mem history_out, gf_mem momentum_out)
{
    bool has_u = is_local(gf) && (gf->momentum != 0);
    float decay = is_local(gf) ? gf->config.optimizer.weight_decay * local_share(gf) : 0.0f;
    uint32_t tensor = 0;
    for (uint64_t at = first, to; at < end; at = to) {
        uint64_t out = (at - first) * sizeof(float), in = at * sizeof(float);
        bool decays = false;
        to = (decay != 0.0f) ? decay_run(gf, &tensor, at, end, &decays) : end;
        if (gf->ops->accumulate(&gf->queue, history_out + out, gf->sparse.history + in,
                                (momentum_out != 0) ? momentum_out + out : 0, has_u ? gf->momentum + in : 0,
                                gradient_at(gf, at), gf->sparse_type, 1.0f / gf->scale, gf->config.optimizer.momentum,
                                decays ? gf->weight + in : 0, decay, to - at) < 0)
            return gf_fail_fault(gf, &gf->gpu->fault, GF_OPERATION_STEP);
    }
    return GF_OK;
}

gf_status gf_sparse_pack(gf_context *gf, struct gf_slot *slot, gf_mem wire)
{
    const struct gf_buffer *buffer = &gf->buffers[slot->buffer];
    struct gf_sparse *sparse = &gf->sparse;
    gf_type wire_type = gf->config.exchange.wire;
    uint32_t chunk = sparse->selection[buffer->chunk_first + slot->done_chunks];
    uint64_t first = chunk_first(sparse, chunk), count = chunk_end(sparse, chunk) - first;
    struct gf_check check = {.bad_count = 0, .bad_first = UINT64_MAX};
    gf_status status = accumulate(gf, first, first + count, sparse->scratch, 0);
    if (status < 0) return status;
    if (gf->ops->cast(&gf->queue, wire + slot->done_elems * gf_type_size_bytes(wire_type), wire_type, sparse->scratch,
                      GF_TYPE_F32, count, gf->scale * gf->config.exchange.pre_scale, first, &check) < 0)
        return gf_fail_fault(gf, &gf->gpu->fault, GF_OPERATION_STEP);
    gf_verdict_local(gf, buffer, &check);
    slot->done_chunks++;
    slot->done_elems += count;
    return GF_OK;
}

/* ---- norms ---- */

static void ready_advance(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    while ((sparse->ready_tensor < gf->tensor_count) && ((gf->tensors[sparse->ready_tensor].sparse == 0) ||
                                                         (gf->tensors[sparse->ready_tensor].ready != 0))) {
        const struct gf_pool_tensor *tensor = &gf->tensors[sparse->ready_tensor++];
        if (tensor->sparse != 0) sparse->ready_elems = tensor->first_elem + tensor->elem_count;
    }
    if (sparse->ready_tensor == gf->tensor_count) sparse->ready_elems = sparse->elem_count;
}

static gf_status chunk_score(gf_context *gf, uint32_t chunk)
{
    struct gf_sparse *sparse = &gf->sparse;
    uint64_t first = chunk_first(sparse, chunk), count = chunk_end(sparse, chunk) - first;
    struct gf_check check = {.bad_count = 0, .bad_first = UINT64_MAX};
    gf_status status = accumulate(gf, first, first + count, sparse->scratch, 0);
    if (status < 0) return status;
    if (gf->ops->score(&gf->queue, (gf_mem)(uintptr_t)&sparse->scores[chunk], sparse->scratch, count, count) < 0)
        return gf_fail_fault(gf, &gf->gpu->fault, GF_OPERATION_STEP);
    if (isfinite(sparse->scores[chunk])) return GF_OK;
    (void)gf->ops->check(&gf->queue, sparse->scratch, GF_TYPE_F32, count, first, &check);
    if (check.bad_count == 0) check = (struct gf_check){.bad_count = 1, .bad_first = first}; /* the norm itself overflowed */
    sparse->scores[chunk] = 0.0f;
    gf_verdict_local_at(gf, gf_pool_find(gf->tensors, 0, gf->tensor_count - 1, true, check.bad_first), &check);
    return GF_OK;
}

gf_status gf_sparse_score(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    uint64_t elems = 0, most = gf->config.exchange.slice_bytes / sizeof(float);
    ready_advance(gf);
    while ((sparse->scored < sparse->chunk_count) && (elems < most)) {
        uint32_t chunk = sparse->scored;
        gf_status status;
        if (chunk_end(sparse, chunk) > sparse->ready_elems) return GF_AGAIN;
        if ((sparse->score_slot < sparse->selected_count) && (sparse->selection[sparse->score_slot] == chunk)) {
            sparse->scores[chunk] = 0.0f; /* all of it is sent */
            sparse->score_slot++;
        } else {
            if ((status = chunk_score(gf, chunk)) < 0) return status;
            elems += chunk_end(sparse, chunk) - chunk_first(sparse, chunk);
        }
        sparse->scored++;
    }
    return (sparse->scored < sparse->chunk_count) ? GF_AGAIN : GF_OK;
}

/* Behind a dense step nothing waits: what was just applied says what matters. Every rank holds the same bits of it. */
static gf_status dense_scores(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    for (uint32_t chunk = 0; chunk < sparse->chunk_count; chunk++) {
        uint64_t first = chunk_first(sparse, chunk), count = chunk_end(sparse, chunk) - first;
        if ((gf->ops->cast(&gf->queue, sparse->scratch, GF_TYPE_F32, gradient_at(gf, first), gf->sparse_type, count, 1.0f,
                           0, NULL) < 0) ||
            (gf->ops->score(&gf->queue, (gf_mem)(uintptr_t)&sparse->scores[chunk], sparse->scratch, count, count) < 0))
            return gf_fail_fault(gf, &gf->gpu->fault, GF_OPERATION_STEP);
        if (!isfinite(sparse->scores[chunk])) sparse->scores[chunk] = FLT_MAX;
    }
    return GF_OK;
}

/* ---- commit ---- */

static gf_status chunk_commit(gf_context *gf, uint32_t chunk, bool sent, uint64_t packed, float factor)
{
    struct gf_sparse *sparse = &gf->sparse;
    uint64_t first = chunk_first(sparse, chunk), count = chunk_end(sparse, chunk) - first;
    size_t gradient_bytes = gf_type_size_bytes(gf->sparse_type);
    gf_type wire = gf->config.exchange.wire;
    gf_mem history = sparse->history + first * sizeof(float);
    gf_mem momentum = (is_local(gf) && (gf->momentum != 0)) ? gf->momentum + first * sizeof(float) : 0;
    bool masked = sent && (gf->config.sparse.momentum == GF_SPARSE_MOMENTUM_LOCAL_MASKED);
    gf_status status = GF_OK;

    if (!sent || ((momentum != 0) && !masked)) status = accumulate(gf, first, first + count, history, momentum);
    if (status < 0) return status;
    if (sent && (gf->ops->zero(&gf->queue, history, count * sizeof(float)) < 0)) status = GF_ERR_DEVICE;
    if (masked && (momentum != 0) && (gf->ops->zero(&gf->queue, momentum, count * sizeof(float)) < 0)) status = GF_ERR_DEVICE;
    if (!sent) {
        if (gf->ops->zero(&gf->queue, gradient_at(gf, first), count * gradient_bytes) < 0) status = GF_ERR_DEVICE;
    } else if (gf->ops->cast(&gf->queue, gradient_at(gf, first), gf->sparse_type,
                             gf->wire + packed * gf_type_size_bytes(wire), wire, count,
                             (gf->sparse_type == GF_TYPE_F32) ? factor : 1.0f, 0, NULL) < 0) {
        status = GF_ERR_DEVICE;
    }
    return (status < 0) ? gf_fail_fault(gf, &gf->gpu->fault, GF_OPERATION_STEP) : GF_OK;
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
    gf_sparse_select(sparse->scores, sparse->chunk_count, sparse->selected_count, sparse->selection);
    sparse->known = true;
}

gf_status gf_sparse_commit(gf_context *gf, float factor)
{
    struct gf_sparse *sparse = &gf->sparse;
    uint64_t elems = 0, most = gf->config.exchange.slice_bytes / sizeof(float);
    if (sparse->chunk_count == 0) return GF_OK;
    gf->samples_before = gf->step.samples_all;
    if (!gf->step.sparse) {
        gf_status status;
        if (gf->step.number < gf->config.sparse.warmup_steps) return GF_OK; /* the next step is dense too */
        if ((status = dense_scores(gf)) == GF_OK) select_next(gf);
        return status;
    }
    while (sparse->committed < sparse->chunk_count) {
        uint32_t chunk = sparse->committed;
        uint64_t count = chunk_end(sparse, chunk) - chunk_first(sparse, chunk);
        bool sent = (sparse->commit_slot < sparse->selected_count) && (sparse->selection[sparse->commit_slot] == chunk);
        gf_status status;
        if (elems >= most) return GF_AGAIN; /* work of one turn */
        if ((status = chunk_commit(gf, chunk, sent, gf->step.commit_elems, factor)) < 0) return status;
        if (sent) {
            gf->step.commit_elems += count;
            sparse->commit_slot++;
        }
        elems += count;
        sparse->committed++;
    }
    if (sparse->selected_count < sparse->chunk_count) sparse->history_empty = false;
    select_next(gf);
    return GF_OK;
}

/* ---- update ---- */

/* Each run of elements of this tensor that was sent: added to its norms, or updated. *slot only moves on. */
static gf_status each_sent_run(gf_context *gf, uint32_t tensor, uint32_t *slot, float rate, bool add)
{
    const struct gf_sparse *sparse = &gf->sparse;
    uint64_t begin = gf->tensors[tensor].first_elem, end = begin + gf->tensors[tensor].elem_count;
    while ((*slot < sparse->sent_count) && (chunk_end(sparse, sparse->sent[*slot]) <= begin)) (*slot)++;
    for (uint32_t s = *slot; (s < sparse->sent_count) && (chunk_first(sparse, sparse->sent[s]) < end);) {
        uint64_t first = chunk_first(sparse, sparse->sent[s]), to = chunk_end(sparse, sparse->sent[s]);
        gf_status status;
        for (s++; (s < sparse->sent_count) && (chunk_first(sparse, sparse->sent[s]) == to); s++)
            to = chunk_end(sparse, sparse->sent[s]); /* neighbours are one run */
        if (first < begin) first = begin;
        if (to > end) to = end;
        status = add ? gf_lars_add(gf, tensor, first, to) : gf_update_range(gf, tensor, first, to, rate);
        if (status < 0) return status;
    }
    return GF_OK;
}

gf_status gf_sparse_update(gf_context *gf, float learning_rate)
{
    uint32_t slot = 0;
    for (uint32_t i = 0; i < gf->tensor_count; i++) {
        gf_status status;
        if ((gf->tensors[i].sparse == 0) || (gf->tensors[i].elem_count == 0)) continue;
        gf_lars_begin(gf, i);
        if ((status = each_sent_run(gf, i, &slot, 0.0f, true)) < 0) return status;
        status = each_sent_run(gf, i, &slot, learning_rate * gf_lars_ratio(gf, i), false);
        if (status < 0) return status;
    }
    return GF_OK;
}
