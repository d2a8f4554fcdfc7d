/* After the vote: history, momentum and gradients become those after the step, and the chunks of
 * the next one are chosen. */
#include "lib/sparse/sparse_passes.h"

#include <float.h>
#include <math.h>

#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "ops/ops.h"

/* A chunk that was sent: its sum becomes the gradient, and nothing of it waits any more. Another
 * chunk: it waits, and its gradient is 0. */
gf_status gf_sparse_batch_commit(gf_context *gf, const struct gf_sparse_batch *batch, bool sent,
                                 float factor)
{
    struct gf_sparse *sparse = &gf->sparse;
    const struct gf_element_ops *ops = gf->ops;
    gf_type type = sparse->type;
    gf_type wire = gf->config.exchange.wire;
    gf_mem gradient = gf_sparse_gradient(gf, batch->first);
    gf_mem history = sparse->history + batch->first * sizeof(float);
    gf_mem packed = gf->pack + sparse->commit_packed * gf_type_bytes(wire);
    const struct gf_chunks chunks = gf_sparse_chunks(sparse, batch);
    struct gf_chunks from_pack = chunks;
    gf_status status = GF_OK;
    from_pack.src_packed = true;
    if (!sent || gf_sparse_has_u(gf))
        status = gf_sparse_accumulate(gf, &gf->queue, batch, &sparse->commit.tensor,
                                      GF_ACCUMULATE_MEMORY);
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

/* GF_OK: all scores are there. Those of a sparse step were there before the vote. After a dense one
 * nothing waits, so the gradient that was applied is scored; all ranks have the same bits of it. */
static gf_status scores_ready(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    gf_status status;
    if (gf->step.sparse) return GF_OK;
    status = gf_sparse_scores_poll(gf, &gf->queue);
    if (status != GF_OK) return status;
    for (uint32_t chunk = 0; chunk < sparse->chunk_count; chunk++)
        if (!isfinite(sparse->scores[chunk])) sparse->scores[chunk] = FLT_MAX;
    return GF_OK;
}

/* The chunks of the next step. No message is needed: all ranks have the same bits of all scores. */
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

/* On a device, all chunks at once. */
static gf_status lists_queue(gf_context *gf, float factor)
{
    gf_status status =
        gf->step.sparse ? gf_sparse_lists_commit(gf, factor) : gf_sparse_lists_weigh(gf);
    if (status == GF_OK) gf->sparse.commit.chunk = gf->sparse.chunk_count;
    return status;
}

/* About a slice of segments: committed, or after a dense step scored. GF_OK: there are no more. */
static gf_status segments_commit(gf_context *gf, float factor)
{
    struct gf_sparse *sparse = &gf->sparse;
    struct gf_sparse_pass *pass = &sparse->commit;
    uint64_t spent = 0;
    while (pass->chunk < sparse->chunk_count) {
        const struct gf_sparse_batch segment = {.first = pass->elem,
                                                .elems = gf_segment_end(gf, pass) - pass->elem};
        gf_status status;
        if (spent >= gf_slice_elems(gf)) return GF_AGAIN;
        status = gf->step.sparse
                     ? gf_sparse_batch_commit(gf, &segment, gf_pass_selected(sparse, pass), factor)
                     : gf_sparse_batch_score(gf, &gf->queue, &segment, pass->chunk, NULL, NULL);
        if (status < 0) return status;
        spent += segment.elems + GF_SEGMENT_COST_ELEMS;
        gf_pass_advance(sparse, pass, pass->elem + segment.elems);
    }
    return GF_OK;
}

gf_status gf_sparse_commit(gf_context *gf, float factor)
{
    struct gf_sparse *sparse = &gf->sparse;
    gf_status status = GF_OK;
    if (sparse->chunk_count == 0) return GF_OK;
    /* a dense step before another dense one chooses nothing */
    if (!gf->step.sparse && (gf->step.number < gf->config.sparse.warmup_steps)) return GF_OK;
    if (sparse->in_lists && (sparse->commit.chunk == 0)) status = lists_queue(gf, factor);
    if (status == GF_OK) status = segments_commit(gf, factor);
    if (status == GF_OK) status = scores_ready(gf);
    if (status != GF_OK) return status;
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
