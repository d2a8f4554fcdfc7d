/* The host backend: hands each call to the widest version that this CPU and its system run. CPUID was read once by the
 * compiler's runtime before main(), so asking costs a load and a test; nothing here is written at run time. */
#include "ops/element/host/ops_host.h"

static bool always(void)
{
    return true;
}

const struct gf_ops_variant gf_ops_variants[] = {
    {&gf_ops_scalar, always},
#if defined(__x86_64__)
    {&gf_ops_avx2, gf_has_avx2},
    {&gf_ops_avx512, gf_has_avx512},
#elif defined(__aarch64__)
    {&gf_ops_neon, always},
#endif
};
const uint32_t gf_ops_variant_count = sizeof gf_ops_variants / sizeof gf_ops_variants[0];

static const struct gf_ops *best(void)
{
    uint32_t v = gf_ops_variant_count - 1;
    while (!gf_ops_variants[v].supported()) v--; /* the first one always is */
    return gf_ops_variants[v].ops;
}

static gf_status host_cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                           uint64_t elem_count, float scale, uint64_t base, struct gf_check *check)
{
    return best()->cast(queue, dst, dst_type, src, src_type, elem_count, scale, base, check);
}

static gf_status host_sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count,
                          uint64_t base, struct gf_check *check)
{
    return best()->sum(queue, dst, src, type, elem_count, base, check);
}

static gf_status host_sum_n(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count, const gf_mem *src,
                            uint32_t src_count, gf_type type, uint64_t elem_count, uint64_t base,
                            struct gf_check *check, struct gf_check *sources)
{
    return best()->sum_n(queue, dst, dst_count, src, src_count, type, elem_count, base, check, sources);
}

static gf_status host_check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                            struct gf_check *check)
{
    return best()->check(queue, src, type, elem_count, base, check);
}

static gf_status host_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes)
{
    return gf_ops_scalar.copy(queue, dst, src, size_bytes);
}

static gf_status host_copy_n(struct gf_queue *queue, const gf_mem *dst, const gf_mem *src, const uint64_t *size_bytes,
                             uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) (void)host_copy(queue, dst[i], src[i], size_bytes[i]);
    return GF_OK;
}

static gf_status host_zero(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes)
{
    return gf_ops_scalar.zero(queue, dst, size_bytes);
}

static gf_status host_score(struct gf_queue *queue, gf_mem scores_f32, gf_mem src_f32, uint64_t elem_count,
                            uint64_t chunk_elems, uint64_t piece_elems)
{
    return best()->score(queue, scores_f32, src_f32, elem_count, chunk_elems, piece_elems);
}

static gf_status host_norm(struct gf_queue *queue, gf_mem scratch_f32, gf_type type, const struct gf_norm *ranges,
                           uint32_t count)
{
    return best()->norm(queue, scratch_f32, type, ranges, count);
}

static gf_status host_ratio(struct gf_queue *queue, const struct gf_ratio *ratios, uint32_t count)
{
    return gf_ops_scalar.ratio(queue, ratios, count);
}

static gf_status host_accumulate(struct gf_queue *queue, const struct gf_accumulate *accumulate, uint64_t elem_count)
{
    return best()->accumulate(queue, accumulate, elem_count);
}

static gf_status host_cast_chunks(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                                  const struct gf_chunks *chunks, float scale, uint64_t base, struct gf_check *check)
{
    return best()->cast_chunks(queue, dst, dst_type, src, src_type, chunks, scale, base, check);
}

static gf_status host_accumulate_chunks(struct gf_queue *queue, const struct gf_accumulate *accumulate,
                                        const struct gf_chunks *chunks)
{
    return best()->accumulate_chunks(queue, accumulate, chunks);
}

static gf_status host_zero_chunks(struct gf_queue *queue, gf_mem dst, gf_type type, const struct gf_chunks *chunks)
{
    return gf_ops_scalar.zero_chunks(queue, dst, type, chunks);
}

static gf_status host_update(struct gf_queue *queue, const struct gf_update *update, uint64_t elem_count)
{
    return best()->update(queue, update, elem_count);
}

static gf_status host_update_parts(struct gf_queue *queue, const struct gf_update *update,
                                   const struct gf_update_part *parts, uint32_t count)
{
    return best()->update_parts(queue, update, parts, count);
}

static gf_status host_update_chunks(struct gf_queue *queue, const struct gf_update *update,
                                    const struct gf_chunks *chunks)
{
    return best()->update_chunks(queue, update, chunks);
}

static gf_status host_adam(struct gf_queue *queue, const struct gf_adam *adam, uint64_t elem_count)
{
    return best()->adam(queue, adam, elem_count);
}

static gf_status host_quantize(struct gf_queue *queue, gf_mem groups, gf_mem values_f32, uint64_t elem_count,
                               const struct gf_groups *form, uint64_t base, struct gf_check *check)
{
    return best()->quantize(queue, groups, values_f32, elem_count, form, base, check);
}

static gf_status host_dequantize(struct gf_queue *queue, gf_mem dst_f32, gf_mem groups, uint64_t elem_count,
                                 const struct gf_groups *form, float factor, bool add)
{
    return best()->dequantize(queue, dst_f32, groups, elem_count, form, factor, add);
}

const struct gf_ops gf_ops_host = {
    .name = "host",
    .cast = host_cast,
    .sum = host_sum,
    .sum_n = host_sum_n,
    .check = host_check,
    .copy = host_copy,
    .copy_n = host_copy_n,
    .zero = host_zero,
    .score = host_score,
    .norm = host_norm,
    .ratio = host_ratio,
    .accumulate = host_accumulate,
    .cast_chunks = host_cast_chunks,
    .accumulate_chunks = host_accumulate_chunks,
    .zero_chunks = host_zero_chunks,
    .update = host_update,
    .update_parts = host_update_parts,
    .update_chunks = host_update_chunks,
    .adam = host_adam,
    .quantize = host_quantize,
    .dequantize = host_dequantize,
};
