/* Element ops over listed chunks: the flat one, a chunk at a time; on the host none fails. */
#ifndef GF_CHUNKS_HOST_H
#define GF_CHUNKS_HOST_H
#include "ops/element/host/accumulate_host.h"
#include "ops/element/host/cast_host.h"
#include "ops/element/host/copy_host.h"
#include "ops/element/host/update_host.h"

struct chunk_place {
    uint64_t dst, src, count; /* elements */
};

static inline uint64_t chunk_listed(gf_mem list_u32, uint32_t turn)
{
    uint32_t chunk = turn;
    if (list_u32 != 0) memcpy(&chunk, gf_host_at(list_u32) + (size_t)turn * sizeof chunk, sizeof chunk);
    return chunk;
}

static inline struct chunk_place chunk_place(const struct gf_chunks *chunks, uint32_t turn)
{
    struct chunk_place place = {.dst = chunk_listed(chunks->dst_list_u32, turn) * chunks->chunk_elems,
                                .src = chunk_listed(chunks->src_list_u32, turn) * chunks->chunk_elems,
                                .count = chunks->chunk_elems};
    GF_ASSERT((place.dst < chunks->dst_elems) && (place.src < chunks->src_elems));
    if (chunks->dst_elems - place.dst < place.count) place.count = chunks->dst_elems - place.dst;
    if (chunks->src_elems - place.src < place.count) place.count = chunks->src_elems - place.src;
    return place;
}

VEC_FN gf_status cast_chunks(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                             const struct gf_chunks *chunks, float scale, uint64_t base, struct gf_check *check)
{
    for (uint32_t turn = 0; turn < chunks->count; turn++) {
        struct chunk_place at = chunk_place(chunks, turn);
        (void)cast(queue, dst + at.dst * gf_type_bytes(dst_type), dst_type, src + at.src * gf_type_bytes(src_type),
                   src_type, at.count, scale, base + at.src, check);
    }
    return GF_OK;
}

VEC_FN gf_status accumulate_chunks(struct gf_queue *queue, const struct gf_accumulate *all,
                                   const struct gf_chunks *chunks)
{
    for (uint32_t turn = 0; turn < chunks->count; turn++) {
        struct chunk_place at = chunk_place(chunks, turn);
        uint64_t to = at.dst * sizeof(float), from = at.src * sizeof(float);
        struct gf_accumulate one = *all;
        one.dst_h_f32 += to;
        one.h_f32 += from;
        one.src += at.src * gf_type_bytes(one.src_type);
        if (one.dst_u_f32 != 0) one.dst_u_f32 += to;
        if (one.u_f32 != 0) one.u_f32 += from;
        if (one.weight_f32 != 0) one.weight_f32 += from;
        (void)accumulate(queue, &one, at.count);
    }
    return GF_OK;
}

VEC_FN gf_status zero_chunks(struct gf_queue *queue, gf_mem dst, gf_type type, const struct gf_chunks *chunks)
{
    for (uint32_t turn = 0; turn < chunks->count; turn++) {
        uint64_t first = chunk_listed(chunks->dst_list_u32, turn) * chunks->chunk_elems, count = chunks->chunk_elems;
        GF_ASSERT(first < chunks->dst_elems);
        if (chunks->dst_elems - first < count) count = chunks->dst_elems - first;
        (void)zero(queue, dst + first * gf_type_bytes(type), count * gf_type_bytes(type));
    }
    return GF_OK;
}

VEC_FN gf_status update_parts(struct gf_queue *queue, const struct gf_update *all, const struct gf_update_part *parts,
                              uint32_t count)
{
    for (const struct gf_update_part *part = parts; part < parts + count; part++) {
        struct gf_update some = *all;
        some.weight_f32 += part->first * sizeof(float);
        if (some.momentum_f32 != 0) some.momentum_f32 += part->first * sizeof(float);
        if (some.half != 0) some.half += part->first * gf_type_bytes(some.half_type);
        some.gradient += part->first * gf_type_bytes(some.gradient_type);
        some.ratio_f32 = part->ratio_f32;
        some.decay = part->decay;
        (void)update(queue, &some, part->elem_count);
    }
    return GF_OK;
}

VEC_FN gf_status update_chunks(struct gf_queue *queue, const struct gf_update *all, const struct gf_chunks *chunks)
{
    for (uint32_t turn = 0; turn < chunks->count; turn++) {
        struct gf_update_part part = {.first = chunk_listed(chunks->dst_list_u32, turn) * chunks->chunk_elems,
                                      .ratio_f32 = all->ratio_f32, .decay = all->decay};
        uint64_t left = chunks->dst_elems - part.first;
        GF_ASSERT(part.first < chunks->dst_elems);
        part.elem_count = (left < chunks->chunk_elems) ? left : chunks->chunk_elems;
        (void)update_parts(queue, all, &part, 1);
    }
    return GF_OK;
}

#endif
