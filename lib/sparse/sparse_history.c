/* The history of the sparse part: h' and u' of a batch (sparse.h has the formulas), and how a pass
 * walks over chunks. */
#include "lib/sparse/sparse_passes.h"

#include "lib/core/device_work.h"
#include "ops/ops.h"

bool gf_sparse_is_local(const gf_context *gf)
{
    return gf->config.sparse.momentum != GF_SPARSE_MOMENTUM_REDUCED;
}

/* ---- passes ---- */

uint64_t gf_segment_end(const gf_context *gf, const struct gf_sparse_pass *pass)
{
    uint64_t end = gf_chunk_end(&gf->sparse, pass->chunk);
    return (end - pass->elem < gf_slice_elems(gf)) ? end : pass->elem + gf_slice_elems(gf);
}

bool gf_pass_selected(const struct gf_sparse *sparse, const struct gf_sparse_pass *pass)
{
    return (pass->slot < sparse->selected_count) && (sparse->selection[pass->slot] == pass->chunk);
}

void gf_pass_advance(const struct gf_sparse *sparse, struct gf_sparse_pass *pass, uint64_t end)
{
    pass->elem = end;
    if (end < gf_chunk_end(sparse, pass->chunk)) return;
    if (gf_pass_selected(sparse, pass)) pass->slot++;
    pass->chunk++;
}

/* ---- h' and u' ---- */

/* How much each rank adds of a value that all ranks share, so that the average over them has it
 * once: 1/ranks where the average is a sum, 1 where it is a mean. */
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

/* How far from `at` on, at most to `end`, weights decay alike. A gap between tensors belongs to the
 * one after it. *tensor only grows. */
static uint64_t decay_run(const gf_context *gf, uint32_t *tensor, uint64_t at, uint64_t end,
                          bool *decays_out)
{
    uint64_t to = end;
    bool known = false;
    *decays_out = false; /* as after the last tensor */
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

/* Each rank's share of the weight decay; 0: there is none, or no weights. */
static float decay_share(const gf_context *gf)
{
    return (gf->optimizer.weight != 0) ? gf->config.optimizer.weight_decay * rank_share(gf) : 0.0f;
}

/* Elements from `first` on. scratch_f32: where h' goes unless it is kept. */
static struct gf_accumulate accumulate_of(const gf_context *gf, uint64_t first, bool decays,
                                          gf_accumulate_to to, gf_mem scratch_f32)
{
    const struct gf_sparse *sparse = &gf->sparse;
    const bool keeps = (to == GF_ACCUMULATE_MEMORY);
    const uint64_t in = first * sizeof(float);
    const float momentum = gf->config.optimizer.momentum;
    /* The first local step continues from the common momentum: each rank takes its share of it. */
    const float share = sparse->local_begun ? 1.0f : rank_share(gf);
    struct gf_accumulate one = {.dst_h_f32 = keeps ? sparse->history + in : scratch_f32,
                                .h_f32 = sparse->history + in,
                                .src = gf_sparse_gradient(gf, first),
                                .src_type = sparse->type,
                                .scale = 1.0f / gf->loss_scale.value,
                                .momentum = momentum * share,
                                .ahead = momentum,
                                .decay = decay_share(gf)};
    if (gf_sparse_has_u(gf)) one.u_f32 = gf->optimizer.momentum + in;
    if (gf_sparse_has_u(gf) && keeps) one.dst_u_f32 = gf->optimizer.momentum + in;
    if (decays) one.weight_f32 = gf->optimizer.weight + in;
    return one;
}

/* A run is cut where the rule of decay changes; listed chunks have one rule. */
gf_status gf_sparse_accumulate(gf_context *gf, struct gf_queue *queue,
                               const struct gf_sparse_batch *batch, uint32_t *tensor,
                               gf_accumulate_to to)
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
        const struct gf_accumulate one = accumulate_of(gf, some.first, has_decay && decays, to,
                                                       sparse->scratch + done * sizeof(float));
        struct gf_chunks chunks = gf_sparse_chunks(sparse, &some);
        chunks.dst_packed = (to == GF_ACCUMULATE_SCRATCH);
        if (gf->ops->accumulate_chunks(queue, &one, &chunks) < 0)
            return gf_device_failed(gf, GF_OPERATION_STEP);
    }
    return GF_OK;
}
