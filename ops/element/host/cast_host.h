/* dst = round(src * scale). One of the types is fp32; between 16-bit types values pass through a block of floats. */
#ifndef GF_CAST_HOST_H
#define GF_CAST_HOST_H
#include "ops/element/host/block.h"

struct cast_range {
    uint8_t *dst;
    const uint8_t *src;
    gf_type dst_type, src_type;
    uint64_t elem_count, base;
    float scale;
    struct gf_check *check;
};

/* Elements on from `first`. */
__attribute__((noinline)) static struct cast_range cast_part(const struct cast_range *r, uint64_t first,
                                                              uint64_t elem_count)
{
    struct cast_range part = *r;
    part.dst += first * gf_type_bytes(r->dst_type);
    part.src += first * gf_type_bytes(r->src_type);
    part.base += first;
    part.elem_count = elem_count;
    return part;
}

/* Vectors from *at to the first that is not finite, and its bad lanes. Types and `stream` (past the cache, to an
 * aligned address) are constants. */
VEC_INLINE uint32_t cast_types(struct cast_range r, gf_type dst_type, gf_type src_type, bool stream, uint64_t *at)
{
    uint64_t i = *at, end = r.elem_count / VEC_ELEMS * VEC_ELEMS;
    uint32_t bad = 0;
    for (; (bad == 0) && (i < end); i += VEC_ELEMS) {
        vec result = vec_mul(vec_load_ahead(src_type, r.src, i, VEC_ELEMS), vec_set(r.scale));
        bad = vec_bad(result, gf_type_overflow(dst_type));
        if (stream) vec_stream(dst_type, r.dst, i, result);
        else vec_store(dst_type, r.dst, i, VEC_ELEMS, result);
    }
    *at = i;
    return bad;
}

VEC_INLINE uint32_t cast_known(const struct cast_range *r, bool stream, uint64_t *at)
{
    if (r->src_type == GF_TYPE_F16) return cast_types(*r, GF_TYPE_F32, GF_TYPE_F16, stream, at);
    if (r->src_type == GF_TYPE_BF16) return cast_types(*r, GF_TYPE_F32, GF_TYPE_BF16, stream, at);
    if (r->dst_type == GF_TYPE_F16) return cast_types(*r, GF_TYPE_F16, GF_TYPE_F32, stream, at);
    if (r->dst_type == GF_TYPE_BF16) return cast_types(*r, GF_TYPE_BF16, GF_TYPE_F32, stream, at);
    return cast_types(*r, GF_TYPE_F32, GF_TYPE_F32, stream, at);
}

/* Whole vectors. */
VEC_FN __attribute__((noinline)) void cast_vectors(const struct cast_range *r, bool stream)
{
    for (uint64_t at = 0; r->elem_count - at >= VEC_ELEMS;) {
        uint32_t bad = stream ? cast_known(r, true, &at) : cast_known(r, false, &at);
        if (bad != 0) gf_check_note(r->check, r->base + at - VEC_ELEMS, bad);
    }
    if (stream) vec_stream_end();
}

VEC_FN __attribute__((noinline)) void cast_any(const struct cast_range *r)
{
    uint32_t rest = (uint32_t)(r->elem_count % VEC_ELEMS);
    uint64_t whole = r->elem_count - rest;
    cast_vectors(r, false);
    if (rest == 0) return;
    vec result = vec_load_part(r->src_type, r->src + whole * gf_type_bytes(r->src_type), rest);
    result = vec_mul(result, vec_set(r->scale));
    vec_check(r->check, r->base + whole, rest, result, gf_type_overflow(r->dst_type));
    vec_store_part(r->dst_type, r->dst + whole * gf_type_bytes(r->dst_type), rest, result);
}

/* Past the cache: ordinary stores to the first aligned address, then whole vectors. Returns how many elements. */
VEC_FN uint64_t cast_long(const struct cast_range *r)
{
    uint64_t bytes = gf_type_bytes(r->dst_type), unaligned_bytes = -(uintptr_t)r->dst % GF_LINE_BYTES, head, body;
    struct cast_range part;
    if ((r->elem_count * bytes < GF_STREAM_BYTES) || (r->dst == r->src)) return 0;
    if (unaligned_bytes % bytes != 0) return 0; /* no element ever lies on a line's first byte */
    head = unaligned_bytes / bytes;
    body = (r->elem_count - head) / VEC_ELEMS * VEC_ELEMS;
    part = cast_part(r, 0, head);
    cast_any(&part);
    part = cast_part(r, head, body);
    cast_vectors(&part, true);
    return head + body;
}

VEC_FN gf_status cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                      uint64_t elem_count, float scale, uint64_t base, struct gf_check *check)
{
    struct cast_range range = {gf_host_at(dst), gf_host_at(src), dst_type, src_type,
                               elem_count,      base,            scale,    check};
    (void)queue;
    GF_ASSERT((dst_type < GF_TYPE_COUNT) && (src_type < GF_TYPE_COUNT));
    GF_ASSERT((dst != src) || (dst_type == src_type) || (elem_count == 0));
    if ((dst_type == GF_TYPE_F32) || (src_type == GF_TYPE_F32)) {
        uint64_t done = cast_long(&range);
        if (done > 0) range = cast_part(&range, done, elem_count - done);
        cast_any(&range);
        return GF_OK;
    }
    for (uint64_t at = 0; at < elem_count; at += BLOCK_ELEMS) {
        struct block block;
        struct cast_range part = cast_part(&range, at, block_elems(elem_count - at)), widened = part;
        part.src = widened.dst = (uint8_t *)&block;
        part.src_type = widened.dst_type = GF_TYPE_F32;
        widened.scale = 1;
        widened.check = NULL;
        cast_any(&widened);
        cast_any(&part);
    }
    return GF_OK;
}

#endif
