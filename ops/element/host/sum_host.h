/* dst = round(dst + src). */
#ifndef GF_SUM_HOST_H
#define GF_SUM_HOST_H
#include "ops/element/host/vec.h"

VEC_INLINE void sum_some(uint8_t *dst, const uint8_t *src, gf_type type, uint64_t i, uint32_t count, uint64_t base,
                         struct gf_check *check)
{
    vec result = vec_add(vec_load_ahead(type, dst, i, count), vec_load_ahead(type, src, i, count));
    vec_check(check, base + i, count, result, gf_type_overflow(type));
    vec_store(type, dst, i, count, result);
}

VEC_INLINE void sum_type(uint8_t *dst, const uint8_t *src, gf_type type, uint64_t elem_count, uint64_t base,
                         struct gf_check *check)
{
    uint64_t i = 0;
    for (; elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) sum_some(dst, src, type, i, VEC_ELEMS, base, check);
    if (i < elem_count) sum_some(dst, src, type, i, (uint32_t)(elem_count - i), base, check);
}

VEC_FN gf_status sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                     struct gf_check *check)
{
    (void)queue;
    GF_ASSERT(type < GF_TYPE_COUNT);
    switch (type) {
    case GF_TYPE_F16: sum_type(gf_host_at(dst), gf_host_at(src), GF_TYPE_F16, elem_count, base, check); break;
    case GF_TYPE_BF16: sum_type(gf_host_at(dst), gf_host_at(src), GF_TYPE_BF16, elem_count, base, check); break;
    default: sum_type(gf_host_at(dst), gf_host_at(src), GF_TYPE_F32, elem_count, base, check); break;
    }
    return GF_OK;
}

#endif
