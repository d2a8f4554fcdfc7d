/* The late device's element ops: each call is written down as it was made, and done later by the host's. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/late_state.h"

gf_status late_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    struct late_work *work = late_work_new(queue, COPY);
    late_expect_reachable(late_of(queue->gpu), dst, size_bytes);
    late_expect_reachable(late_of(queue->gpu), src, size_bytes);
    work->at[0] = dst;
    work->at[1] = src;
    work->elem_count = size_bytes;
    return GF_OK;
}

gf_status late_zero(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes)
{
    struct late_work *work = late_work_new(queue, ZERO);
    late_expect_reachable(late_of(queue->gpu), dst, size_bytes);
    work->at[0] = dst;
    work->elem_count = size_bytes;
    return GF_OK;
}

static gf_status late_cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                           uint64_t elem_count, float scale, uint64_t base, struct gf_check *check)
{
    struct late *late = late_of(queue->gpu);
    struct late_work *work = late_work_new(queue, CAST);
    late_expect_reachable(late, dst, elem_count * gf_type_size_bytes(dst_type));
    late_expect_reachable(late, src, elem_count * gf_type_size_bytes(src_type));
    late_expect_reachable(late, (gf_mem)(uintptr_t)check, sizeof *check);
    *work = (struct late_work){.kind = CAST, .at = {dst, src}, .types = {dst_type, src_type}, .elem_count = elem_count,
                          .scale = scale, .base = base, .check = check};
    return GF_OK;
}

static gf_status late_sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count,
                          uint64_t base, struct gf_check *check)
{
    struct late *late = late_of(queue->gpu);
    struct late_work *work = late_work_new(queue, SUM);
    late_expect_reachable(late, dst, elem_count * gf_type_size_bytes(type));
    late_expect_reachable(late, src, elem_count * gf_type_size_bytes(type));
    *work = (struct late_work){.kind = SUM, .at = {dst, src}, .types = {type}, .elem_count = elem_count, .base = base,
                          .check = check};
    return GF_OK;
}

static gf_status late_copy_n(struct gf_queue *queue, const gf_mem *dst, const gf_mem *src, const uint64_t *size_bytes,
                             uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) (void)late_copy(queue, dst[i], src[i], size_bytes[i]);
    return GF_OK;
}

static gf_status late_sum_n(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count, const gf_mem *src,
                            uint32_t src_count, gf_type type, uint64_t elem_count, uint64_t base,
                            struct gf_check *check, struct gf_check *sources)
{
    struct late_work *work = late_work_new(queue, SUM_N);
    assert_true((dst_count <= SOURCES_MAX) && (src_count <= SOURCES_MAX));
    work->types[0] = type;
    work->elem_count = elem_count;
    work->base = base;
    work->check = check;
    work->sources = sources;
    work->dst_count = dst_count;
    work->src_count = src_count;
    memcpy(work->tables[0], dst, dst_count * sizeof *dst);
    memcpy(work->tables[1], src, src_count * sizeof *src);
    return GF_OK;
}

static gf_status late_check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                            struct gf_check *check)
{
    struct late_work *work = late_work_new(queue, CHECK);
    late_expect_reachable(late_of(queue->gpu), src, elem_count * gf_type_size_bytes(type));
    late_expect_reachable(late_of(queue->gpu), (gf_mem)(uintptr_t)check, sizeof *check);
    *work = (struct late_work){.kind = CHECK, .at = {src}, .types = {type}, .elem_count = elem_count, .base = base,
                          .check = check};
    return GF_OK;
}

static gf_status late_score(struct gf_queue *queue, gf_mem scores_f32, gf_mem src_f32, uint64_t elem_count,
                            uint64_t chunk_elems, uint64_t piece_elems)
{
    struct late_work *work = late_work_new(queue, SCORE);
    late_expect_reachable(late_of(queue->gpu), src_f32, elem_count * sizeof(float));
    late_expect_reachable(late_of(queue->gpu), scores_f32,
                     (elem_count + chunk_elems - 1) / (chunk_elems + (chunk_elems == 0)) * sizeof(float));
    *work = (struct late_work){.kind = SCORE, .at = {scores_f32, src_f32}, .elem_count = elem_count,
                          .chunk_elems = chunk_elems, .piece_elems = piece_elems};
    return GF_OK;
}

/* The host's op wants no scratch. */
static gf_status late_norm(struct gf_queue *queue, gf_mem scratch_f32, gf_type type, const struct gf_norm *ranges,
                           uint32_t count)
{
    uint64_t runs = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct late_work *work = late_work_new(queue, NORM);
        late_expect_reachable(late_of(queue->gpu), ranges[i].square_f32, sizeof(float));
        late_expect_reachable(late_of(queue->gpu), ranges[i].src, ranges[i].elem_count * gf_type_size_bytes(type));
        *work = (struct late_work){.kind = NORM, .types = {type}, .norm = ranges[i]};
        runs += gf_runs(ranges[i].elem_count);
    }
    late_expect_reachable(late_of(queue->gpu), scratch_f32, runs * sizeof(float));
    return GF_OK;
}

static void expect_accumulate(struct late *late, const struct gf_accumulate *a, uint64_t dst_elems, uint64_t src_elems)
{
    late_expect_reachable(late, a->dst_h_f32, dst_elems * sizeof(float));
    late_expect_reachable(late, a->dst_u_f32, dst_elems * sizeof(float));
    late_expect_reachable(late, a->h_f32, src_elems * sizeof(float));
    late_expect_reachable(late, a->u_f32, src_elems * sizeof(float));
    late_expect_reachable(late, a->weight_f32, src_elems * sizeof(float));
    late_expect_reachable(late, a->src, src_elems * gf_type_size_bytes(a->src_type));
}

static gf_status late_accumulate(struct gf_queue *queue, const struct gf_accumulate *accumulate, uint64_t elem_count)
{
    struct late_work *work = late_work_new(queue, ACCUMULATE);
    work->accumulate = *accumulate;
    work->elem_count = elem_count;
    expect_accumulate(late_of(queue->gpu), accumulate, elem_count, elem_count);
    return GF_OK;
}

/* Lists are read late, too. */
static void expect_chunks(struct late *late, const struct gf_chunks *chunks)
{
    late_expect_reachable(late, chunks->dst_list_u32, chunks->count * sizeof(uint32_t));
    late_expect_reachable(late, chunks->src_list_u32, chunks->count * sizeof(uint32_t));
}

static gf_status late_cast_chunks(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                                  const struct gf_chunks *chunks, float scale, uint64_t base, struct gf_check *check)
{
    struct late *late = late_of(queue->gpu);
    struct late_work *work = late_work_new(queue, CAST_CHUNKS);
    expect_chunks(late, chunks);
    late_expect_reachable(late, dst, chunks->dst_elems * gf_type_size_bytes(dst_type));
    late_expect_reachable(late, src, chunks->src_elems * gf_type_size_bytes(src_type));
    *work = (struct late_work){.kind = CAST_CHUNKS, .at = {dst, src}, .types = {dst_type, src_type}, .scale = scale,
                          .base = base, .check = check, .chunks = *chunks};
    return GF_OK;
}

static gf_status late_accumulate_chunks(struct gf_queue *queue, const struct gf_accumulate *accumulate,
                                        const struct gf_chunks *chunks)
{
    struct late *late = late_of(queue->gpu);
    struct late_work *work = late_work_new(queue, ACCUMULATE_CHUNKS);
    work->accumulate = *accumulate;
    work->chunks = *chunks;
    expect_chunks(late, chunks);
    expect_accumulate(late, accumulate, chunks->dst_elems, chunks->src_elems);
    return GF_OK;
}

static gf_status late_zero_chunks(struct gf_queue *queue, gf_mem dst, gf_type type, const struct gf_chunks *chunks)
{
    struct late *late = late_of(queue->gpu);
    struct late_work *work = late_work_new(queue, ZERO_CHUNKS);
    expect_chunks(late, chunks);
    late_expect_reachable(late, dst, chunks->dst_elems * gf_type_size_bytes(type));
    *work = (struct late_work){.kind = ZERO_CHUNKS, .at = {dst}, .types = {type}, .chunks = *chunks};
    return GF_OK;
}

static gf_status late_ratio(struct gf_queue *queue, const struct gf_ratio *ratios, uint32_t count)
{
    for (const struct gf_ratio *ratio = ratios; ratio < ratios + count; ratio++) {
        struct late_work *work = late_work_new(queue, RATIO);
        late_expect_reachable(late_of(queue->gpu), ratio->ratio_f32, sizeof(float));
        late_expect_reachable(late_of(queue->gpu), ratio->weight_square_f32, sizeof(float));
        late_expect_reachable(late_of(queue->gpu), ratio->gradient_square_f32, sizeof(float));
        work->ratio = *ratio;
    }
    return GF_OK;
}

static void expect_update(struct late *late, const struct gf_update *update, uint64_t first, uint64_t elem_count,
                          gf_mem ratio_f32)
{
    uint64_t half_bytes = gf_type_size_bytes(update->half_type), bytes = gf_type_size_bytes(update->gradient_type);
    late_expect_reachable(late, update->weight_f32 + first * sizeof(float), elem_count * sizeof(float));
    late_expect_reachable(late, update->gradient + first * bytes, elem_count * bytes);
    if (update->momentum_f32 != 0)
        late_expect_reachable(late, update->momentum_f32 + first * sizeof(float), elem_count * sizeof(float));
    if (update->half != 0) late_expect_reachable(late, update->half + first * half_bytes, elem_count * half_bytes);
    if (ratio_f32 != 0) late_expect_reachable(late, ratio_f32, sizeof(float));
}

static gf_status late_update(struct gf_queue *queue, const struct gf_update *update, uint64_t elem_count)
{
    struct late_work *work = late_work_new(queue, UPDATE);
    expect_update(late_of(queue->gpu), update, 0, elem_count, update->ratio_f32);
    work->update = *update;
    work->elem_count = elem_count;
    return GF_OK;
}

static gf_status late_update_parts(struct gf_queue *queue, const struct gf_update *update,
                                   const struct gf_update_part *parts, uint32_t count)
{
    for (const struct gf_update_part *part = parts; part < parts + count; part++) {
        struct late_work *work = late_work_new(queue, UPDATE_PART);
        expect_update(late_of(queue->gpu), update, part->first, part->elem_count, part->ratio_f32);
        work->update = *update;
        work->part = *part;
    }
    return GF_OK;
}

static gf_status late_update_chunks(struct gf_queue *queue, const struct gf_update *update,
                                    const struct gf_chunks *chunks)
{
    struct late *late = late_of(queue->gpu);
    struct late_work *work = late_work_new(queue, UPDATE_CHUNKS);
    expect_chunks(late, chunks);
    late_expect_reachable(late, update->weight_f32, chunks->dst_elems * sizeof(float));
    late_expect_reachable(late, update->gradient, chunks->dst_elems * gf_type_size_bytes(update->gradient_type));
    work->update = *update;
    work->chunks = *chunks;
    return GF_OK;
}

static gf_status late_adam(struct gf_queue *queue, const struct gf_adam *adam, uint64_t elem_count)
{
    struct late_work *work = late_work_new(queue, ADAM);
    late_expect_reachable(late_of(queue->gpu), adam->weight_f32, elem_count * sizeof(float));
    late_expect_reachable(late_of(queue->gpu), adam->moment1_f32, elem_count * sizeof(float));
    late_expect_reachable(late_of(queue->gpu), adam->moment2_f32, elem_count * sizeof(float));
    late_expect_reachable(late_of(queue->gpu), adam->direction_f32, elem_count * sizeof(float));
    late_expect_reachable(late_of(queue->gpu), adam->gradient, elem_count * gf_type_size_bytes(adam->gradient_type));
    work->adam = *adam;
    work->elem_count = elem_count;
    return GF_OK;
}

void late_work_do(struct late *late, const struct late_work *work)
{
    struct gf_queue host = {.gpu = &late->gpu};
    const struct gf_element_ops *ops = gf_element_ops_best();
    const struct gf_sparse_ops *sparse = gf_sparse_ops(ops);
    const struct gf_optimizer_ops *optimizer = gf_optimizer_ops(ops);
    gf_status status = GF_OK;
    switch (work->kind) {
    case COPY: memmove((void *)(uintptr_t)work->at[0], (const void *)(uintptr_t)work->at[1], work->elem_count); break;
    case ZERO: memset((void *)(uintptr_t)work->at[0], 0, work->elem_count); break;
    case CAST:
        status = ops->cast(&host, work->at[0], work->types[0], work->at[1], work->types[1], work->elem_count,
                           work->scale, work->base, work->check);
        break;
    case SUM:
        status = ops->sum(&host, work->at[0], work->at[1], work->types[0], work->elem_count, work->base, work->check);
        break;
    case SUM_N:
        status = gf_node_ops(ops)->sum_n(&host, work->tables[0], work->dst_count, work->tables[1], work->src_count,
                                         work->types[0], work->elem_count, work->base, work->check, work->sources);
        break;
    case CHECK:
        status = ops->check(&host, work->at[0], work->types[0], work->elem_count, work->base, work->check);
        break;
    case SCORE:
        status = sparse->score(&host, work->at[0], work->at[1], work->elem_count, work->chunk_elems, work->piece_elems);
        break;
    case NORM: status = optimizer->norm(&host, 0, work->types[0], &work->norm, 1); break;
    case ACCUMULATE: status = sparse->accumulate(&host, &work->accumulate, work->elem_count); break;
    case RATIO: status = optimizer->ratio(&host, &work->ratio, 1); break;
    case UPDATE: status = optimizer->update(&host, &work->update, work->elem_count); break;
    case UPDATE_PART: status = optimizer->update_parts(&host, &work->update, &work->part, 1); break;
    case ADAM: status = optimizer->adam(&host, &work->adam, work->elem_count); break;
    case UPDATE_CHUNKS: status = optimizer->update_chunks(&host, &work->update, &work->chunks); break;
    case CAST_CHUNKS:
        status = sparse->cast_chunks(&host, work->at[0], work->types[0], work->at[1], work->types[1], &work->chunks,
                                  work->scale, work->base, work->check);
        break;
    case ACCUMULATE_CHUNKS: status = sparse->accumulate_chunks(&host, &work->accumulate, &work->chunks); break;
    case ZERO_CHUNKS: status = sparse->zero_chunks(&host, work->at[0], work->types[0], &work->chunks); break;
    }
    assert_int_equal(status, GF_OK);
}

static const struct gf_node_ops late_node_ops = {.sum_n = late_sum_n, .copy_n = late_copy_n};
static const struct gf_sparse_ops late_sparse_ops = {
    .score = late_score, .accumulate = late_accumulate, .cast_chunks = late_cast_chunks,
    .accumulate_chunks = late_accumulate_chunks, .zero_chunks = late_zero_chunks,
};
static const struct gf_optimizer_ops late_optimizer_ops = {
    .norm = late_norm, .ratio = late_ratio, .update = late_update, .update_parts = late_update_parts,
    .update_chunks = late_update_chunks, .adam = late_adam,
};
const struct gf_element_ops late_ops = {
    .name = "late", .node = &late_node_ops, .sparse = &late_sparse_ops, .optimizer = &late_optimizer_ops,
    .cast = late_cast, .sum = late_sum, .check = late_check, .copy = late_copy, .zero = late_zero,
};
