/* The passes of a sparse step on a device, by lists of chunks. On the host a poll takes
 * a slice; here one launch serves a buffer, a batch or a step, because many small launches cost a
 * device more than one large one. A list holds all chunks: the ones that the step sends, in rising
 * order, then the others, in rising order. The values are bit for bit those of the host's passes,
 * which also serve on a device where a chunk is larger than the scratch memory, and where tensors
 * with and without weight decay share the sparse part. */
#include "lib/context.h"
#include "lib/core/device_work.h"
#include "ops/ops.h"

static uint32_t other_count(const struct gf_sparse *sparse)
{
    return sparse->chunk_count - sparse->selected_count;
}
static const uint32_t *others(const struct gf_sparse *sparse)
{
    return sparse->lists + sparse->selected_count;
}

static bool decays(const gf_context *gf, const struct gf_pool_tensor *tensor)
{
    return (gf->optimizer.weight != 0) && (gf->config.optimizer.weight_decay != 0.0f) &&
           ((tensor->flags & GF_TENSOR_NO_DECAY) == 0);
}

void gf_sparse_lists_open(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    bool known = false;
    sparse->in_lists = gf->on_device && (sparse->chunk_count > 0) &&
                       ((sparse->chunk_elems <= sparse->scratch_elems) ||
                        (sparse->elem_count <= sparse->scratch_elems));
    for (uint32_t i = 0; i < gf->tensor_count; i++) {
        const struct gf_pool_tensor *tensor = &gf->tensors[i];
        if (tensor->sparse != 0) sparse->type = (gf_type)tensor->type;
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
    uint32_t sent = 0;
    uint32_t other = sparse->selected_count;
    if (!sparse->in_lists) return GF_OK;
    for (uint32_t chunk = 0; chunk < sparse->chunk_count; chunk++) {
        bool is_sent = (sent < sparse->selected_count) && (sparse->selection[sent] == chunk);
        sparse->lists[is_sent ? sent++ : other++] = chunk;
    }
    if (gf->gpu->driver->copy(&gf->pack_queue, sparse->device_lists,
                              (gf_mem)(uintptr_t)sparse->lists,
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

/* `count` chunks from entry `first` of the lists on; all are of one list. */
static struct gf_sparse_batch listed(const struct gf_sparse *sparse, uint32_t first, uint32_t count)
{
    return (struct gf_sparse_batch){.list_u32 = sparse->device_lists + first * sizeof(uint32_t),
                                    .count = count,
                                    .elems = gf_chunks_elems(sparse, sparse->lists + first, count)};
}

struct gf_sparse_batch gf_sparse_lists_sent(const struct gf_sparse *sparse,
                                            const struct gf_buffer *buffer,
                                            struct gf_sparse_pass *pack)
{
    uint32_t first = pack->slot;
    uint32_t left = buffer->chunk_first + buffer->chunk_count - first;
    if (left > batch_max(sparse)) left = batch_max(sparse);
    pack->slot += left;
    return listed(sparse, first, left);
}

/* ---- scores ---- */

/* Scores of `count` chunks from `first` on, of their gradients; check: NULL, or what counts values
 * that are not finite. */
static gf_status gradients_score(gf_context *gf, struct gf_queue *queue, uint32_t first,
                                 uint32_t count, struct gf_check *check)
{
    const struct gf_sparse *sparse = &gf->sparse;
    uint32_t batch = (sparse->type == GF_TYPE_F32) ? count : batch_max(sparse);
    gf_status status = GF_OK;
    for (uint32_t end = first + count, next; (first < end) && (status == GF_OK); first = next) {
        struct gf_sparse_batch run = {.first = gf_chunk_first(sparse, first)};
        next = (end - first < batch) ? end : first + batch;
        run.elems = gf_chunk_end(sparse, next - 1) - run.first;
        status = gf_sparse_batch_score(gf, queue, &run, first, NULL, check);
    }
    return status;
}

/* The scores of the others are written one after the other, and gf_sparse_lists_scatter() moves
 * each to its chunk's entry. With local momentum all chunks are scored, each into its entry. A
 * batch is as large as the scratch, unless it is the last one. */
gf_status gf_sparse_lists_score(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    struct gf_check *check = gf_finite_counter(gf, gf->under_way.count, GF_COUNT_PACKED);
    bool local = gf_sparse_is_local(gf), all = sparse->ready_elems == sparse->elem_count;
    uint32_t total = local ? sparse->chunk_count : other_count(sparse);
    gf_status status = GF_OK;
    while ((sparse->listed < total) && (status == GF_OK)) {
        uint32_t first = sparse->listed;
        uint32_t count = 0;
        if (local)
            count =
                all ? total - first : (uint32_t)(sparse->ready_elems / sparse->chunk_elems) - first;
        while (!local && (first + count < total) && (count < batch_max(sparse)) &&
               (gf_chunk_end(sparse, others(sparse)[first + count]) <= sparse->ready_elems))
            count++;
        if ((count == 0) || ((count < batch_max(sparse)) && !all)) return GF_AGAIN;
        sparse->listed += count;
        if (local) {
            status = gradients_score(gf, &gf->pack_queue, first, count, check);
        } else {
            const struct gf_sparse_batch some =
                listed(sparse, sparse->selected_count + first, count);
            status = gf_sparse_batch_score(gf, &gf->pack_queue, &some, first, &sparse->score.tensor,
                                           check);
        }
    }
    return status;
}

/* A chunk's entry never comes before the one that its score is moved from. So no score is lost
 * where the last one is moved first. */
void gf_sparse_lists_scatter(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    struct gf_check *check = gf_finite_seen(gf, gf->under_way.count, GF_COUNT_PACKED);
    const uint32_t *list = others(sparse);
    if (gf_sparse_is_local(gf)) return; /* each score is in its entry */
    for (uint32_t i = other_count(sparse); i-- > 0;) sparse->scores[list[i]] = sparse->scores[i];
    for (uint32_t i = 0; i < sparse->selected_count; i++)
        sparse->scores[sparse->selection[i]] = 0.0f;
    if (check->bad_count > 0) check->bad_first = gf_sparse_elem_of(sparse, list, check->bad_first);
}

/* ---- after the vote ---- */

gf_status gf_sparse_lists_commit(gf_context *gf, float factor)
{
    const struct gf_sparse *sparse = &gf->sparse;
    const struct gf_sparse_batch sent = listed(sparse, 0, sparse->selected_count);
    const struct gf_sparse_batch other =
        listed(sparse, sparse->selected_count, other_count(sparse));
    gf_status status = gf_sparse_batch_commit(gf, &other, false, factor);
    return (status < 0) ? status : gf_sparse_batch_commit(gf, &sent, true, factor);
}

gf_status gf_sparse_lists_weigh(gf_context *gf)
{
    return gradients_score(gf, &gf->queue, 0, gf->sparse.chunk_count, NULL);
}

/* ---- the update ---- */

/* Without LARS all tensors of the part share their rules (the decay is in the history), so that
 * what was sent is one launch. Its list lies on the device until the next step begins. Gaps between
 * tensors are zeroes and stay so. */
gf_status gf_sparse_lists_update(gf_context *gf, float learning_rate)
{
    const struct gf_sparse *sparse = &gf->sparse;
    const struct gf_sparse_batch batch = {.list_u32 = sparse->device_lists,
                                          .count = sparse->sent_count};
    const struct gf_chunks sent = gf_sparse_chunks(sparse, &batch);
    uint32_t tensor = 0;
    while (gf->tensors[tensor].sparse == 0) tensor++;
    return gf_update_chunks(gf, tensor, &sent, learning_rate);
}
