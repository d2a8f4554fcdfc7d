/* The scores of chunks, by which the next sparse step chooses: sums of magnitudes, on their way to
 * the vote. */
#include "lib/sparse/sparse_passes.h"

#include <float.h>
#include <math.h>

#include "lib/core/device_work.h"
#include "lib/device/device.h"
#include "ops/ops.h"

gf_status gf_sparse_scores_poll(gf_context *gf, struct gf_queue *queue)
{
    const uint32_t counter = gf_score_counter(gf);
    gf_status status = GF_OK;
    if (gf->on_device && !gf->sparse.score_queued)
        status = gf_device_counters_fetch(gf, queue, counter);
    if (status < 0) return gf_device_failed(gf, GF_OPERATION_STEP);
    gf->sparse.score_queued = true;
    if (gf->on_device) status = gf->gpu->driver->event_query(gf->gpu, counter);
    return (status < 0) ? gf_device_failed(gf, GF_OPERATION_STEP) : status;
}

/* How far the gradients of the part are ready, in the order of the pool. On a device a tensor is
 * ready once it is computed: so what is packed of other tensors waits for no norm. */
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

/* What a batch is scored by, as fp32: h' in the scratch; or where tensor is NULL its gradients, in
 * the pool or cast into the scratch. All ranks have the same scale. */
static gf_status values_load(gf_context *gf, struct gf_queue *queue,
                             const struct gf_sparse_batch *batch, uint32_t *tensor, gf_mem *to_out)
{
    gf_mem gradient = gf_sparse_gradient(gf, batch->first);
    gf_type type = gf->sparse.type;
    *to_out = ((tensor == NULL) && (type == GF_TYPE_F32)) ? gradient : gf->sparse.scratch;
    if (tensor != NULL)
        return gf_sparse_accumulate(gf, queue, batch, tensor, GF_ACCUMULATE_SCRATCH);
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
    /* a chunk's first segment sets its score, a later one is added to it */
    bool more = (batch->list_u32 == 0) && (batch->first != gf_chunk_first(sparse, at));
    gf_status status = values_load(gf, queue, batch, tensor, &values);
    if (status < 0) return status;
    if ((gf->ops->score(queue, more ? sparse->part : score, values, batch->elems,
                        sparse->chunk_elems, gf_slice_elems(gf)) < 0) ||
        (more && (gf->ops->sum(queue, score, sparse->part, GF_TYPE_F32, 1, 0, NULL) < 0)))
        return gf_device_failed(gf, GF_OPERATION_STEP);
    /* Which element made a score infinite? On a device scores cannot be read yet, so that all
     * values are checked. */
    if ((check == NULL) || (!gf->on_device && isfinite(sparse->scores[at]))) return GF_OK;
    if (gf->ops->check(queue, values, GF_TYPE_F32, batch->elems,
                       (batch->list_u32 == 0) ? batch->first : gf_chunk_first(sparse, at),
                       check) < 0)
        return gf_device_failed(gf, GF_OPERATION_STEP);
    return GF_OK;
}

/* All scores are there. Values that are not finite go into the vote. Finite ones whose magnitudes
 * add up to more than fp32 holds get the largest score, as after a dense step: a score only
 * chooses, and the sum of several such ranks, which is infinite, is still the first choice. */
static void scores_attribute(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    const struct gf_check *check = gf_finite_seen(gf, gf_score_counter(gf), GF_COUNT_PACKED);
    for (uint32_t chunk = 0; chunk < sparse->chunk_count; chunk++)
        if (!isfinite(sparse->scores[chunk]))
            sparse->scores[chunk] = (check->bad_count > 0) ? 0.0f : FLT_MAX;
    gf_finite_scored(gf, check);
}

/* Scores the segment at pass->elem. A chunk that is sent leaves nothing behind, so its score is 0
 * and it is passed as a whole; but with local momentum scores are of gradients, and it has one,
 * too. GF_AGAIN: the segment is not ready. */
static gf_status segment_score(gf_context *gf, struct gf_sparse_pass *pass, uint64_t *spent)
{
    struct gf_sparse *sparse = &gf->sparse;
    const bool local = gf_sparse_is_local(gf);
    const bool leaves = !local && gf_pass_selected(sparse, pass);
    const uint64_t end = leaves ? gf_chunk_end(sparse, pass->chunk) : gf_segment_end(gf, pass);
    const struct gf_sparse_batch segment = {.first = pass->elem, .elems = end - pass->elem};
    gf_status status = GF_OK;
    if (end > sparse->ready_elems) return GF_AGAIN;
    if (leaves)
        sparse->scores[pass->chunk] = 0.0f;
    else
        status = gf_sparse_batch_score(
            gf, &gf->pack_queue, &segment, pass->chunk, local ? NULL : &pass->tensor,
            gf_finite_counter(gf, gf_score_counter(gf), GF_COUNT_PACKED));
    if (status < 0) return status;
    *spent += (leaves ? 0 : segment.elems) + GF_SEGMENT_COST_ELEMS;
    gf_pass_advance(sparse, pass, end);
    return GF_OK;
}

/* Segments that are ready, about a slice of them. GF_OK: all are queued. */
static gf_status segments_score(gf_context *gf, uint64_t now_ns)
{
    const struct gf_sparse *sparse = &gf->sparse;
    struct gf_sparse_pass *pass = &gf->sparse.score;
    uint64_t spent = 0;
    while ((pass->chunk < sparse->chunk_count) && (spent < gf_slice_elems(gf))) {
        gf_status status = segment_score(gf, pass, &spent);
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
    status = sparse->in_lists ? gf_sparse_lists_score(gf) : segments_score(gf, now_ns);
    if (status != GF_OK) return status;
    status = gf_sparse_scores_poll(gf, &gf->pack_queue);
    if (status != GF_OK) return status;
    if (sparse->in_lists) gf_sparse_lists_scatter(gf);
    scores_attribute(gf);
    sparse->scored = true;
    if (gf->on_device) status = gf_device_counters_take(gf, gf_score_counter(gf));
    return (status < 0) ? gf_device_failed(gf, GF_OPERATION_STEP) : GF_OK;
}
