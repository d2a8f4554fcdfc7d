/* dst = round(dst + src); and what a range holds is looked at alike: dst is NULL. */
#ifndef GF_SUM_HOST_H
#define GF_SUM_HOST_H
#include "ops/element/host/vec.h"

/* Vectors from *at to the first that is not finite, and its bad lanes. Type and `adds` are constants. */
VEC_INLINE uint32_t sum_type(uint8_t *dst, const uint8_t *src, gf_type type, bool adds, uint64_t elem_count,
                             uint64_t *at)
{
    uint64_t i = *at, end = elem_count / VEC_ELEMS * VEC_ELEMS;
    uint32_t bad = 0;
    for (; (bad == 0) && (i < end); i += VEC_ELEMS) {
        vec result = adds ? vec_add(vec_load_ahead(type, dst, i, VEC_ELEMS), vec_load_ahead(type, src, i, VEC_ELEMS))
                          : vec_load(type, src, i, VEC_ELEMS);
        bad = vec_bad(result, gf_type_overflow(type));
        if (adds) vec_store(type, dst, i, VEC_ELEMS, result);
    }
    *at = i;
    return bad;
}

VEC_INLINE uint32_t sum_known(uint8_t *dst, const uint8_t *src, gf_type type, bool adds, uint64_t elem_count,
                              uint64_t *at)
{
    if (type == GF_TYPE_F32) return sum_type(dst, src, GF_TYPE_F32, adds, elem_count, at);
    if (type == GF_TYPE_F16) return sum_type(dst, src, GF_TYPE_F16, adds, elem_count, at);
    return sum_type(dst, src, GF_TYPE_BF16, adds, elem_count, at);
}

/* Whole vectors. */
VEC_FN __attribute__((noinline)) void sum_vectors(uint8_t *dst, const uint8_t *src, gf_type type, uint64_t elem_count,
                                                  uint64_t base, struct gf_check *check)
{
    for (uint64_t at = 0; elem_count - at >= VEC_ELEMS;) {
        uint32_t bad = (dst != NULL) ? sum_known(dst, src, type, true, elem_count, &at)
                                     : sum_known(NULL, src, type, false, elem_count, &at);
        if (bad != 0) gf_check_note(check, base + at - VEC_ELEMS, bad);
    }
}

VEC_FN __attribute__((noinline)) gf_status sum_range(uint8_t *dst, const uint8_t *src, gf_type type,
                                                     uint64_t elem_count, uint64_t base, struct gf_check *check)
{
    bool adds = dst != NULL;
    uint32_t rest = (uint32_t)(elem_count % VEC_ELEMS);
    uint64_t whole = elem_count - rest;
    GF_ASSERT(type < GF_TYPE_COUNT);
    sum_vectors(dst, src, type, elem_count, base, check);
    if (rest == 0) return GF_OK;
    src += whole * gf_type_bytes(type);
    if (adds) dst += whole * gf_type_bytes(type);
    vec result = vec_load_part(type, src, rest);
    if (adds) result = vec_add(vec_load_part(type, dst, rest), result);
    vec_check(check, base + whole, rest, result, gf_type_overflow(type));
    if (adds) vec_store_part(type, dst, rest, result);
    return GF_OK;
}

VEC_FN gf_status sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                     struct gf_check *check)
{
    (void)queue;
    return sum_range(gf_host_at(dst), gf_host_at(src), type, elem_count, base, check);
}

VEC_FN gf_status check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                       struct gf_check *check)
{
    (void)queue;
    return sum_range(NULL, gf_host_at(src), type, elem_count, base, check);
}

#endif
