/* Element ops over listed chunks: the flat one, a chunk at a time; on the host none fails. */
#ifndef GF_CHUNKS_HOST_H
#define GF_CHUNKS_HOST_H
#include "ops/element/host/accumulate_host.h"
#include "ops/element/host/cast_host.h"
#include "ops/element/host/copy_host.h"
#include "ops/element/host/update_host.h"

struct chunk_span {
    uint64_t dst, src, count; /* elements */
};

static inline struct chunk_span chunk_span(const struct gf_chunks *chunks, uint32_t entry)
{
    uint32_t chunk = entry;
    if (chunks->list_u32 != 0)
        memcpy(&chunk, gf_host_at(chunks->list_u32) + entry * sizeof chunk, sizeof chunk);
    uint64_t first = chunk * chunks->chunk_elems;
    uint64_t packed = entry * chunks->chunk_elems;
    GF_ASSERT(first < chunks->elems);
    uint64_t left = chunks->elems - first;
    return (struct chunk_span){.dst = chunks->dst_packed ? packed : first,
                               .src = chunks->src_packed ? packed : first,
                               .count = (left < chunks->chunk_elems) ? left : chunks->chunk_elems};
}

VEC_FN gf_status cast_chunks(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src,
                             gf_type src_type, const struct gf_chunks *chunks, float scale,
                             uint64_t base, struct gf_check *check)
{
    for (uint32_t entry = 0; entry < chunks->count; entry++) {
        struct chunk_span at = chunk_span(chunks, entry);
        (void)cast(queue, dst + at.dst * gf_type_bytes(dst_type), dst_type,
                   src + at.src * gf_type_bytes(src_type), src_type, at.count, scale, base + at.src,
                   check);
    }
    return GF_OK;
}

VEC_FN gf_status accumulate_chunks(struct gf_queue *queue, const struct gf_accumulate *all,
                                   const struct gf_chunks *chunks)
{
    for (uint32_t entry = 0; entry < chunks->count; entry++) {
        struct chunk_span at = chunk_span(chunks, entry);
        const struct gf_accumulate one = accumulate_from(all, at.dst, at.src);
        (void)accumulate(queue, &one, at.count);
    }
    return GF_OK;
}

VEC_FN gf_status zero_chunks(struct gf_queue *queue, gf_mem dst, gf_type type,
                             const struct gf_chunks *chunks)
{
    for (uint32_t entry = 0; entry < chunks->count; entry++) {
        struct chunk_span at = chunk_span(chunks, entry);
        (void)zero(queue, dst + at.dst * gf_type_bytes(type), at.count * gf_type_bytes(type));
    }
    return GF_OK;
}

VEC_FN gf_status update_parts(struct gf_queue *queue, const struct gf_update *all,
                              const struct gf_update_part *parts, uint32_t count)
{
    for (const struct gf_update_part *part = parts; part < parts + count; part++) {
        struct gf_update some = update_from(all, part->first);
        some.ratio_f32 = part->ratio_f32;
        some.decay = part->decay;
        (void)update(queue, &some, part->elem_count);
    }
    return GF_OK;
}

VEC_FN gf_status update_chunks(struct gf_queue *queue, const struct gf_update *all,
                               const struct gf_chunks *chunks)
{
    for (uint32_t entry = 0; entry < chunks->count; entry++) {
        struct chunk_span at = chunk_span(chunks, entry);
        const struct gf_update_part part = {at.dst, at.count, all->ratio_f32, all->decay, 0};
        (void)update_parts(queue, all, &part, 1);
    }
    return GF_OK;
}

#endif
