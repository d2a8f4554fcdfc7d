/* The chunks that a sparse step sends: its fused buffers before the step, and the update of just
 * these chunks after it. What is computed for them is in sparse_pack.c, sparse_score.c and
 * sparse_commit.c. */
#include "lib/context.h"
#include "lib/core/device_work.h"
#include "lib/core/layout.h"
#include "lib/settings/settings.h"
#include "ops/element_args.h"

/* ---- at open ---- */

/* A configuration made for a larger model: sparse steps would be dense ones, and more expensive.
 * One rank says so. */
static void nothing_saved_log(const gf_context *gf)
{
    const struct gf_config *config = &gf->config;
    const uint32_t count = gf->sparse.chunk_count;
    if ((gf->rank != 0) || (config->sparse.keep_share >= 1.0f)) return;
    if (count == 0)
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "sparse.enabled = true: no tensor is sparse, all are sent whole");
    else if (gf_sparse_kept(config, count, UINT64_MAX) == count)
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "sparse.chunk_elems = %u: the %llu elements of the sparse tensors are %u "
                    "chunk%s, and a share of %g of them is all: every step sends everything",
                    config->sparse.chunk_elems, (unsigned long long)gf->sparse.elem_count, count,
                    (count == 1) ? "" : "s", (double)config->sparse.keep_share);
}

void gf_sparse_open(gf_context *gf)
{
    gf_sparse_lists_open(gf);
    nothing_saved_log(gf);
}

/* ---- buffers ---- */

static bool step_is_dense(const gf_context *gf)
{
    const struct gf_sparse *sparse = &gf->sparse;
    if (sparse->selected_count == 0) return true;
    /* its momentum is no longer common, and no dense step may apply it */
    if (sparse->local_begun) return false;
    if (gf->step.number <= gf->config.sparse.warmup_steps) return true;
    /* Everything is sent and nothing waits: that is a dense step, bit for bit where momentum
     * follows the reduction. */
    return !gf_sparse_is_local(gf) && sparse->history_empty &&
           (sparse->selected_count == sparse->chunk_count);
}

/* A buffer leaves once all of its chunks are ready: if one held the whole step, nothing would leave
 * before backward ends. So what is sent fills as many buffers as may be active, unless they were
 * smaller than FUSE_LEAST_BYTES. */
#define FUSE_LEAST_BYTES (UINT64_C(1) << 20)
static uint64_t sparse_fuse_bytes(const gf_context *gf, size_t wire_bytes)
{
    const struct gf_sparse *sparse = &gf->sparse;
    uint64_t sent_bytes = sparse->selected_count * sparse->chunk_elems * wire_bytes;
    uint64_t bytes =
        (sent_bytes + gf->config.exchange.buffers_active - 1) / gf->config.exchange.buffers_active;
    if (bytes < FUSE_LEAST_BYTES) bytes = FUSE_LEAST_BYTES;
    return (bytes < gf->config.exchange.fuse_bytes) ? bytes : gf->config.exchange.fuse_bytes;
}

/* Selected chunks, packed one after the other, in runs of at least sparse_fuse_bytes(). */
static uint32_t sparse_group(gf_context *gf)
{
    const struct gf_sparse *sparse = &gf->sparse;
    size_t wire_bytes = gf_type_size_bytes(gf->config.exchange.wire);
    uint64_t fuse_bytes = sparse_fuse_bytes(gf, wire_bytes);
    struct gf_buffer *open = NULL;
    uint64_t packed = 0;
    uint32_t count = 0;
    for (uint32_t slot = 0; slot < sparse->selected_count; slot++) {
        uint32_t chunk = sparse->selection[slot];
        uint64_t elems = gf_chunk_end(sparse, chunk) - gf_chunk_first(sparse, chunk);
        if (open == NULL) {
            open = &gf->buffers.now[count++];
            *open = (struct gf_buffer){.first_elem = packed,
                                       .first_tensor = GF_TENSOR_NONE,
                                       .chunk_first = slot,
                                       .type = (uint8_t)gf->sparse.type,
                                       .sparse = 1};
        }
        open->elem_count += elems;
        open->chunk_count++;
        packed += elems;
        if (open->elem_count * wire_bytes >= fuse_bytes) open = NULL;
    }
    return count;
}

/* Which buffers wait for which tensors: chunks, buffers and tensors all rise, so one walk pairs
 * them. */
static void sparse_wire_up(gf_context *gf, uint32_t buffer_count)
{
    const struct gf_sparse *sparse = &gf->sparse;
    uint32_t slot = 0;
    uint32_t first = 0;
    uint32_t count = sparse->selected_count;
    for (uint32_t b = 0; b < buffer_count; b++) gf->buffers.pending[b] = 0;
    for (uint32_t i = 0; i < gf->tensor_count; i++) {
        struct gf_pool_tensor *tensor = &gf->tensors[i];
        uint64_t end = tensor->first_elem + tensor->elem_count;
        uint32_t last_slot;
        if (tensor->sparse == 0) continue;
        tensor->buffer_count = 0;
        while ((slot < count) &&
               (gf_chunk_end(sparse, sparse->selection[slot]) <= tensor->first_elem))
            slot++;
        last_slot = slot;
        while ((last_slot < count) && (gf_chunk_first(sparse, sparse->selection[last_slot]) < end))
            last_slot++;
        if ((last_slot == slot) || (tensor->elem_count == 0)) continue; /* nothing of it is sent */
        while (gf->buffers.now[first].chunk_first + gf->buffers.now[first].chunk_count <= slot)
            first++;
        tensor->buffer_first = first;
        for (uint32_t b = first; (b < buffer_count) && (gf->buffers.now[b].chunk_first < last_slot);
             b++) {
            struct gf_buffer *buffer = &gf->buffers.now[b];
            if (buffer->first_tensor == GF_TENSOR_NONE) buffer->first_tensor = i;
            buffer->last_tensor = i;
            buffer->tensor_count++;
            gf->buffers.pending[b]++;
            tensor->buffer_count++;
        }
        slot = last_slot - 1; /* the next tensor may share this one's last chunk */
    }
    /* chunks that lie in a gap between tensors wait for none */
    for (uint32_t b = 0; b < buffer_count; b++) {
        if (gf->buffers.now[b].first_tensor != GF_TENSOR_NONE) continue;
        gf->buffers.now[b].first_tensor = gf->buffers.now[b].last_tensor =
            (b > 0) ? gf->buffers.now[b - 1].last_tensor : 0;
    }
}

gf_status gf_sparse_begin(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    uint32_t count;
    if (sparse->chunk_count == 0) return GF_OK;
    sparse->commit =
        (struct gf_sparse_pass){0}; /* a generation may have ended in the middle of one */
    sparse->commit_packed = 0;
    sparse->score_queued = sparse->scored = false;
    gf_finite_begin(gf, gf->under_way.count); /* the counter of what is scored */
    if (step_is_dense(gf)) return GF_OK;
    gf->step.sparse = true;
    gf->buffers.now = gf->buffers.sparse;
    count = sparse_group(gf);
    sparse_wire_up(gf, count);
    gf->step.buffer_count =
        gf_pool_group(&gf->config, gf->tensors, gf->tensor_count, false, gf->buffers.now, count);
    for (uint32_t b = count; b < gf->step.buffer_count; b++)
        gf->buffers.pending[b] = gf->buffers.now[b].tensor_count;
    gf_buffers_order(gf);
    sparse->ready_tensor = 0;
    sparse->ready_elems = 0;
    sparse->score = (struct gf_sparse_pass){0};
    sparse->listed = 0;
    return gf_sparse_lists_begin(gf);
}

bool gf_sparse_commits(const gf_context *gf)
{
    return (gf->sparse.commit.chunk != 0) || (gf->sparse.commit.elem != 0);
}

gf_status gf_sparse_measure(struct gf_layout *layout, char *error_out)
{
    const struct gf_config *config = &layout->config;
    uint64_t elems = layout->pool.sparse_elem_count;
    uint64_t by_bytes = config->exchange.buffers_active;
    uint64_t chunks = (elems + config->sparse.chunk_elems - 1) / config->sparse.chunk_elems;
    if (chunks > GF_SPARSE_CHUNKS_MAX)
        return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                "sparse.chunk_elems = %u makes %llu chunks of %llu elements, "
                                "allowed are %u; raise it",
                                config->sparse.chunk_elems, (unsigned long long)chunks,
                                (unsigned long long)elems, GF_SPARSE_CHUNKS_MAX);
    layout->chunk_count = (uint32_t)chunks;
    /* Beside all dense buffers; a step that sends little is cut into as many as may be active. */
    by_bytes += elems * gf_type_size_bytes(config->exchange.wire) / config->exchange.fuse_bytes + 1;
    layout->buffers_max += (uint32_t)(chunks < by_bytes ? chunks : by_bytes);
    return GF_OK;
}

/* ---- batches ---- */

struct gf_chunks gf_sparse_chunks(const struct gf_sparse *sparse,
                                  const struct gf_sparse_batch *batch)
{
    bool run = batch->list_u32 == 0;
    return (struct gf_chunks){.list_u32 = batch->list_u32,
                              .count = run ? 1 : batch->count,
                              .chunk_elems = run ? batch->elems : sparse->chunk_elems,
                              .elems = run ? batch->elems : sparse->elem_count};
}

uint64_t gf_chunks_elems(const struct gf_sparse *sparse, const uint32_t *chunks, uint32_t count)
{
    if (count == 0) return 0;
    return (count - 1) * sparse->chunk_elems + gf_chunk_end(sparse, chunks[count - 1]) -
           gf_chunk_first(sparse, chunks[count - 1]);
}

uint64_t gf_sparse_elem_of(const struct gf_sparse *sparse, const uint32_t *chunks, uint64_t packed)
{
    return gf_chunk_first(sparse, chunks[packed / sparse->chunk_elems]) +
           packed % sparse->chunk_elems;
}

/* ---- update ---- */

/* Each run of elements of this tensor that was sent: added to its norms, or updated. *slot only
 * moves on. */
static gf_status each_sent_run(gf_context *gf, uint32_t tensor, uint32_t *slot, float rate,
                               bool add)
{
    const struct gf_sparse *sparse = &gf->sparse;
    uint64_t begin = gf->tensors[tensor].first_elem;
    uint64_t end = begin + gf->tensors[tensor].elem_count;
    while ((*slot < sparse->sent_count) && (gf_chunk_end(sparse, sparse->sent[*slot]) <= begin))
        (*slot)++;
    for (uint32_t s = *slot;
         (s < sparse->sent_count) && (gf_chunk_first(sparse, sparse->sent[s]) < end);) {
        uint64_t first = gf_chunk_first(sparse, sparse->sent[s]);
        uint64_t to = gf_chunk_end(sparse, sparse->sent[s]);
        gf_status status;
        for (s++; (s < sparse->sent_count) && (gf_chunk_first(sparse, sparse->sent[s]) == to); s++)
            to = gf_chunk_end(sparse, sparse->sent[s]); /* neighbours are one run */
        if (first < begin) first = begin;
        if (to > end) to = end;
        status =
            add ? gf_lars_add(gf, tensor, first, to) : gf_update_range(gf, tensor, first, to, rate);
        if (status < 0) return status;
    }
    return GF_OK;
}

gf_status gf_sparse_update(gf_context *gf, float learning_rate)
{
    uint32_t slot = 0;
    if (gf->sparse.in_lists && (gf->config.optimizer.kind != GF_OPTIMIZER_LARS))
        return gf_sparse_lists_update(gf, learning_rate);
    for (uint32_t i = 0; i < gf->tensor_count; i++) {
        gf_status status;
        if ((gf->tensors[i].sparse == 0) || (gf->tensors[i].elem_count == 0)) continue;
        if ((status = each_sent_run(gf, i, &slot, 0.0f, true)) < 0) return status;
        if ((status = gf_lars_end(gf, i)) < 0) return status;
        if ((status = each_sent_run(gf, i, &slot, learning_rate, false)) < 0) return status;
    }
    return GF_OK;
}

/* ---- another world ---- */

/* A mean over ranks divides what was sent by the ranks of the step that sends it. A gradient counts
 * as in the step that computed it, where the others divided theirs by the ranks of that time. */
float gf_sparse_world_factor(const gf_context *gf, uint32_t ranks)
{
    return (gf->config.exchange.average == GF_AVERAGE_RANKS)
               ? (float)((double)gf->world / (double)ranks)
               : 1.0f;
}

static gf_status part_scale(gf_context *gf, gf_mem part, float factor)
{
    if (gf->ops->cast(&gf->queue, part, GF_TYPE_F32, part, GF_TYPE_F32, gf->sparse.elem_count,
                      factor, 0, NULL) < 0)
        return gf_device_failed(gf, GF_OPERATION_REGROUP);
    return GF_OK;
}

gf_status gf_sparse_world_set(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    const uint32_t ranks = (sparse->world == 0) ? gf->world : sparse->world; /* 0: it comes in */
    const float factor = gf_sparse_world_factor(gf, ranks);
    gf_status status = GF_OK;
    sparse->world = gf->world;
    if ((factor == 1.0f) || (sparse->elem_count == 0)) return GF_OK;
    if (!sparse->history_empty) status = part_scale(gf, sparse->history, factor);
    if ((status == GF_OK) && sparse->local_begun && (gf->optimizer.momentum != 0))
        status = part_scale(gf, gf->optimizer.momentum, factor);
    return status;
}
