/* dst = round(src * scale). */
#ifndef GF_CAST_HOST_H
#define GF_CAST_HOST_H
#include "vec.h"

struct cast_range {
    uint8_t *dst;
    const uint8_t *src;
    uint64_t elem_count, base;
    float scale;
    struct gf_check *check;
};

VEC_INLINE void cast_some(const struct cast_range *r, gf_type dst_type, gf_type src_type, uint64_t i, uint32_t count)
{
    vec result = vec_mul(vec_load(src_type, r->src, i, count), vec_set(r->scale));
    vec_check(r->check, r->base + i, count, result, gf_type_overflow(dst_type));
    vec_store(dst_type, r->dst, i, count, result);
}

VEC_INLINE void cast_types(struct cast_range r, gf_type dst_type, gf_type src_type)
{
    uint64_t i = 0;
    for (; r.elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) cast_some(&r, dst_type, src_type, i, VEC_ELEMS);
    if (i < r.elem_count) cast_some(&r, dst_type, src_type, i, (uint32_t)(r.elem_count - i));
}

VEC_INLINE void cast_from(const struct cast_range *r, gf_type dst_type, gf_type src_type)
{
    switch (src_type) {
    case GF_TYPE_F16: cast_types(*r, dst_type, GF_TYPE_F16); break;
    case GF_TYPE_BF16: cast_types(*r, dst_type, GF_TYPE_BF16); break;
    default: cast_types(*r, dst_type, GF_TYPE_F32); break;
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
