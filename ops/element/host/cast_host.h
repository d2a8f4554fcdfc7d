/* dst = round(src * scale). */
#ifndef GF_CAST_HOST_H
#define GF_CAST_HOST_H
#include "ops/element/host/vec.h"

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

/* Past the cache: ordinary stores to the first aligned address, then whole vectors. Returns how many it did. */
VEC_INLINE uint64_t cast_stream(const struct cast_range *r, gf_type dst_type, gf_type src_type)
{
    uint64_t unaligned_bytes = -(uintptr_t)r->dst % GF_LINE_BYTES, i = 0;
    uint64_t head = unaligned_bytes / gf_type_bytes(dst_type);
    if (unaligned_bytes % gf_type_bytes(dst_type) != 0) return 0; /* no element ever lies on a line's first byte */
    while (i < head) {
        uint32_t count = (head - i < VEC_ELEMS) ? (uint32_t)(head - i) : VEC_ELEMS;
        vec_store(dst_type, r->dst, i, count, cast_load(r, dst_type, src_type, i, count));
        i += count;
    }
    for (; r->elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) {
        vec_stream(dst_type, r->dst, i, cast_load(r, dst_type, src_type, i, VEC_ELEMS));
    }
    vec_stream_end();
    return i;
}

VEC_INLINE void cast_types(const struct cast_range *r, gf_type dst_type, gf_type src_type)
{
    uint64_t i = 0;
    if ((r->elem_count * gf_type_bytes(dst_type) >= GF_STREAM_BYTES) && (r->dst != r->src)) {
        i = cast_stream(r, dst_type, src_type);
    }
    for (; r->elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) {
        vec_store(dst_type, r->dst, i, VEC_ELEMS, cast_load(r, dst_type, src_type, i, VEC_ELEMS));
    }
    if (i < r->elem_count) {
        uint32_t count = (uint32_t)(r->elem_count - i);
        vec_store(dst_type, r->dst, i, count, cast_load(r, dst_type, src_type, i, count));
    }
}

VEC_INLINE void cast_from(const struct cast_range *r, gf_type dst_type, gf_type src_type)
{
    switch (src_type) {
    case GF_TYPE_F16: cast_types(r, dst_type, GF_TYPE_F16); break;
    case GF_TYPE_BF16: cast_types(r, dst_type, GF_TYPE_BF16); break;
    default: cast_types(r, dst_type, GF_TYPE_F32); break;
    }
}

VEC_FN gf_status cast(struct gf_queue *queue, gf_mem dst, gf_type dst_type, gf_mem src, gf_type src_type,
                      uint64_t elem_count, float scale, uint64_t base, struct gf_check *check)
{
    struct cast_range range = {gf_host_at(dst), gf_host_at(src), elem_count, base, scale, check};
    (void)queue;
    GF_ASSERT((dst_type < GF_TYPE_COUNT) && (src_type < GF_TYPE_COUNT));
    GF_ASSERT((dst != src) || (dst_type == src_type) || (elem_count == 0));
    switch (dst_type) {
    case GF_TYPE_F16: cast_from(&range, GF_TYPE_F16, src_type); break;
    case GF_TYPE_BF16: cast_from(&range, GF_TYPE_BF16, src_type); break;
    default: cast_from(&range, GF_TYPE_F32, src_type); break;
    }
    return GF_OK;
}

#endif
