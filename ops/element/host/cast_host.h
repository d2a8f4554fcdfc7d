/* dst = round(src * scale). One of the types is fp32; between 16-bit types values pass through a
 * block of floats. */
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
static struct cast_range cast_part(const struct cast_range *r, uint64_t first, uint64_t elem_count)
{
    struct cast_range part = *r;
    part.dst += first * gf_type_bytes(r->dst_type);
    part.src += first * gf_type_bytes(r->src_type);
    part.base += first;
    part.elem_count = elem_count;
    return part;
}

/* Vectors from i on to the first that is not finite, which it leaves. Types and `stream` (past the
 * cache, to an aligned address) are constants. */
VEC_INLINE uint64_t cast_types(struct cast_range r, gf_type dst_type, gf_type src_type, bool stream,
                               uint64_t i)
{
    uint64_t end = r.elem_count / VEC_ELEMS * VEC_ELEMS;
    for (; i < end; i += VEC_ELEMS) {
        vec result = vec_mul(vec_load_ahead(src_type, r.src, i, VEC_ELEMS), vec_set(r.scale));
        if (vec_bad(result, gf_type_overflow(dst_type)) != 0) break;
        if (stream)
            vec_stream(dst_type, r.dst, i, result);
        else
            vec_store(dst_type, r.dst, i, VEC_ELEMS, result);
    }
    return i;
}

VEC_INLINE uint64_t cast_known(const struct cast_range *r, bool stream, uint64_t i)
{
    if (r->src_type == GF_TYPE_F16) return cast_types(*r, GF_TYPE_F32, GF_TYPE_F16, stream, i);
    if (r->src_type == GF_TYPE_BF16) return cast_types(*r, GF_TYPE_F32, GF_TYPE_BF16, stream, i);
    if (r->dst_type == GF_TYPE_F16) return cast_types(*r, GF_TYPE_F16, GF_TYPE_F32, stream, i);
    if (r->dst_type == GF_TYPE_BF16) return cast_types(*r, GF_TYPE_BF16, GF_TYPE_F32, stream, i);
    return cast_types(*r, GF_TYPE_F32, GF_TYPE_F32, stream, i);
}

/* A vector that is not whole, or not finite, goes by itself. */
VEC_FN void cast_any(const struct cast_range *r, bool stream)
{
    uint64_t i = 0;
    uint64_t src_bytes = gf_type_bytes(r->src_type);
    uint64_t dst_bytes = gf_type_bytes(r->dst_type);
    do {
        if (r->elem_count - i >= VEC_ELEMS)
            i = stream ? cast_known(r, true, i) : cast_known(r, false, i);
        uint32_t count = vec_count(r->elem_count - i);
        if (count == 0) break;
        vec result =
            vec_mul(vec_load_part(r->src_type, r->src + i * src_bytes, count), vec_set(r->scale));
        vec_check(r->check, r->base + i, count, result, gf_type_overflow(r->dst_type));
        vec_store_part(r->dst_type, r->dst + i * dst_bytes, count, vec_quiet(r->dst_type, result));
        i += count;
    } while (i < r->elem_count);
    if (stream) vec_stream_end();
}

/* Past the cache: ordinary stores to the first aligned address, then whole vectors. Returns how
 * many elements. */
VEC_FN uint64_t cast_long(const struct cast_range *r)
{
    uint64_t bytes = gf_type_bytes(r->dst_type);
    uint64_t unaligned_bytes = -(uintptr_t)r->dst % GF_LINE_BYTES;
    uint64_t head;
    uint64_t body;
    struct cast_range part;
    if ((r->elem_count * bytes < GF_STREAM_BYTES) || (r->dst == r->src)) return 0;
    if (unaligned_bytes % bytes != 0) return 0; /* no element ever lies on a line's first byte */
    head = unaligned_bytes / bytes;
    body = (r->elem_count - head) / VEC_ELEMS * VEC_ELEMS;
    part = cast_part(r, 0, head);
    cast_any(&part, false);
    part = cast_part(r, head, body);
    cast_any(&part, true);
    return head + body;
}

VEC_FN gf_status cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src,
                      gf_type src_type, uint64_t elem_count, float scale, uint64_t base,
                      struct gf_check *check)
{
    struct cast_range range = {
        gf_host_at(dst), gf_host_at(src), dst_type, src_type, elem_count, base, scale, check};
    (void)queue;
    GF_ASSERT((dst_type < GF_TYPE_COUNT) && (src_type < GF_TYPE_COUNT));
    GF_ASSERT((dst != src) || (dst_type == src_type) || (elem_count == 0));
    if ((dst_type == GF_TYPE_F32) || (src_type == GF_TYPE_F32)) {
        uint64_t done = cast_long(&range);
        if (done > 0) range = cast_part(&range, done, elem_count - done);
        cast_any(&range, false);
        return GF_OK;
    }
    for (uint64_t at = 0; at < elem_count; at += BLOCK_ELEMS) {
        struct block block;
        struct cast_range part = cast_part(&range, at, block_elems(elem_count - at));
        struct cast_range widened = part;
        part.src = widened.dst = (uint8_t *)&block;
        part.src_type = widened.dst_type = GF_TYPE_F32;
        widened.scale = 1;
        widened.check = NULL;
        cast_any(&widened, false);
        cast_any(&part, false);
    }
    return GF_OK;
}

#endif
