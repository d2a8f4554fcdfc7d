/* dst = round(dst + src); and what a range holds is looked at alike: dst is NULL. */
#ifndef GF_SUM_HOST_H
#define GF_SUM_HOST_H
#include "ops/element/host/vec.h"

/* Vectors from i on to the first that is not finite, which it leaves. Type and `adds` are
 * constants. */
VEC_INLINE uint64_t sum_type(uint8_t *dst, const uint8_t *src, gf_type type, bool adds,
                             uint64_t elem_count, uint64_t i)
{
    uint64_t end = elem_count / VEC_ELEMS * VEC_ELEMS;
    for (; i < end; i += VEC_ELEMS) {
        vec result = adds ? vec_add(vec_load_ahead(type, dst, i, VEC_ELEMS),
                                    vec_load_ahead(type, src, i, VEC_ELEMS))
                          : vec_load(type, src, i, VEC_ELEMS);
        if (vec_bad(result, gf_type_overflow(type)) != 0) break;
        if (adds) vec_store(type, dst, i, VEC_ELEMS, result);
    }
    return i;
}

VEC_INLINE uint64_t sum_known(uint8_t *dst, const uint8_t *src, gf_type type, bool adds,
                              uint64_t elem_count, uint64_t i)
{
    if (type == GF_TYPE_F32) return sum_type(dst, src, GF_TYPE_F32, adds, elem_count, i);
    if (type == GF_TYPE_F16) return sum_type(dst, src, GF_TYPE_F16, adds, elem_count, i);
    return sum_type(dst, src, GF_TYPE_BF16, adds, elem_count, i);
}

VEC_FN uint64_t sum_vectors(uint8_t *dst, const uint8_t *src, gf_type type, uint64_t elem_count,
                            uint64_t i)
{
    return (dst != NULL) ? sum_known(dst, src, type, true, elem_count, i)
                         : sum_known(NULL, src, type, false, elem_count, i);
}

/* A vector that is not whole, or not finite, goes by itself. */
VEC_FN gf_status sum_range(uint8_t *dst, const uint8_t *src, gf_type type, uint64_t elem_count,
                           uint64_t base, struct gf_check *check)
{
    uint64_t i = 0;
    uint64_t size = gf_type_bytes(type);
    GF_ASSERT(type < GF_TYPE_COUNT);
    do {
        if (elem_count - i >= VEC_ELEMS) i = sum_vectors(dst, src, type, elem_count, i);
        uint32_t count = vec_count(elem_count - i);
        if (count == 0) break;
        vec result = vec_load_part(type, src + i * size, count);
        if (dst != NULL) result = vec_add(vec_load_part(type, dst + i * size, count), result);
        vec_check(check, base + i, count, result, gf_type_overflow(type));
        if (dst != NULL) vec_store_part(type, dst + i * size, count, result);
        i += count;
    } while (i < elem_count);
    return GF_OK;
}

VEC_FN gf_status sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type,
                     uint64_t elem_count, uint64_t base, struct gf_check *check)
{
    (void)queue;
    return sum_range(gf_host_at(dst), gf_host_at(src), type, elem_count, base, check);
}

VEC_FN gf_status check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count,
                       uint64_t base, struct gf_check *check)
{
    (void)queue;
    return sum_range(NULL, gf_host_at(src), type, elem_count, base, check);
}

#endif
