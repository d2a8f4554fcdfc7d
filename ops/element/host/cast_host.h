/* dst = round(src * scale). One of the types is fp32; between 16-bit types values pass through a block of floats. */
#ifndef GF_CAST_HOST_H
#define GF_CAST_HOST_H
#include "ops/element/host/block.h"

struct cast_range {
    uint8_t *dst;
    const uint8_t *src;
    uint64_t elem_count, base;
    float scale;
    struct gf_check *check;
};

VEC_INLINE vec cast_load(const struct cast_range *r, gf_type dst_type, gf_type src_type, uint64_t i, uint32_t count)
{
    vec result = vec_mul(vec_load_ahead(src_type, r->src, i, count), vec_set(r->scale));
    vec_check(r->check, r->base + i, count, result, gf_type_overflow(dst_type));
    return result;
}

/* Elements on from `first`. */
static inline struct cast_range cast_part(const struct cast_range *r, gf_type dst_type, gf_type src_type,
                                          uint64_t first, uint64_t elem_count)
{
    struct cast_range part = *r;
    part.dst += first * gf_type_bytes(dst_type);
    part.src += first * gf_type_bytes(src_type);
    part.base += first;
    part.elem_count = elem_count;
    return part;
}

/* `stream` (a constant): past the cache, whole vectors to an aligned address. */
VEC_INLINE void cast_types(const struct cast_range *r, gf_type dst_type, gf_type src_type, bool stream)
{
    uint64_t i = 0;
    for (; r->elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) {
        vec result = cast_load(r, dst_type, src_type, i, VEC_ELEMS);
        if (stream) vec_stream(dst_type, r->dst, i, result);
        else vec_store(dst_type, r->dst, i, VEC_ELEMS, result);
    }
    if (stream) vec_stream_end();
    else if (i < r->elem_count) {
        uint32_t count = (uint32_t)(r->elem_count - i);
        vec_store(dst_type, r->dst, i, count, cast_load(r, dst_type, src_type, i, count));
    }
}

VEC_INLINE void cast_known(struct cast_range r, gf_type dst_type, gf_type src_type, bool stream)
{
    if (src_type == GF_TYPE_F16) cast_types(&r, GF_TYPE_F32, GF_TYPE_F16, stream);
    else if (src_type == GF_TYPE_BF16) cast_types(&r, GF_TYPE_F32, GF_TYPE_BF16, stream);
    else if (dst_type == GF_TYPE_F16) cast_types(&r, GF_TYPE_F16, GF_TYPE_F32, stream);
    else if (dst_type == GF_TYPE_BF16) cast_types(&r, GF_TYPE_BF16, GF_TYPE_F32, stream);
    else cast_types(&r, GF_TYPE_F32, GF_TYPE_F32, stream);
}

VEC_FN __attribute__((noinline)) void cast_plain(struct cast_range range, gf_type dst_type, gf_type src_type)
{
    cast_known(range, dst_type, src_type, false);
}

VEC_FN __attribute__((noinline)) void cast_stream(struct cast_range range, gf_type dst_type, gf_type src_type)
{
    cast_known(range, dst_type, src_type, true);
}

/* Past the cache: ordinary stores to the first aligned address, then whole vectors. */
VEC_FN uint64_t cast_long(const struct cast_range *r, gf_type dst_type, gf_type src_type)
{
    uint64_t bytes = gf_type_bytes(dst_type), unaligned_bytes = -(uintptr_t)r->dst % GF_LINE_BYTES, head, body;
    if ((r->elem_count * bytes < GF_STREAM_BYTES) || (r->dst == r->src)) return 0;
    if (unaligned_bytes % bytes != 0) return 0; /* no element ever lies on a line's first byte */
    head = unaligned_bytes / bytes;
    body = (r->elem_count - head) / VEC_ELEMS * VEC_ELEMS;
    cast_plain(cast_part(r, dst_type, src_type, 0, head), dst_type, src_type);
    cast_stream(cast_part(r, dst_type, src_type, head, body), dst_type, src_type);
    return head + body;
}

VEC_FN gf_status cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                      uint64_t elem_count, float scale, uint64_t base, struct gf_check *check)
{
    struct cast_range all = {gf_host_at(dst), gf_host_at(src), elem_count, base, scale, check};
    (void)queue;
    GF_ASSERT((dst_type < GF_TYPE_COUNT) && (src_type < GF_TYPE_COUNT));
    GF_ASSERT((dst != src) || (dst_type == src_type) || (elem_count == 0));
    if ((dst_type == GF_TYPE_F32) || (src_type == GF_TYPE_F32)) {
        uint64_t done = cast_long(&all, dst_type, src_type);
        cast_plain(cast_part(&all, dst_type, src_type, done, elem_count - done), dst_type, src_type);
        return GF_OK;
    }
    for (uint64_t at = 0; at < elem_count; at += BLOCK_ELEMS) {
        struct block block;
        struct cast_range part = cast_part(&all, dst_type, src_type, at, block_elems(elem_count - at));
        part.src = block_load(&block, src_type, all.src, at, (uint32_t)part.elem_count);
        cast_plain(part, dst_type, GF_TYPE_F32);
    }
    return GF_OK;
}

#endif
