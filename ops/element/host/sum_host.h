/* dst = round(dst + src). */
#ifndef GF_SUM_HOST_H
#define GF_SUM_HOST_H
#include "ops/element/host/vec.h"

/* Vectors from *at to the first that is not finite, and its bad lanes. */
VEC_INLINE uint32_t sum_type(uint8_t *dst, const uint8_t *src, gf_type type, uint64_t elem_count, uint64_t *at)
{
    uint64_t i = *at, end = elem_count / VEC_ELEMS * VEC_ELEMS;
    uint32_t bad = 0;
    for (; (bad == 0) && (i < end); i += VEC_ELEMS) {
        vec result = vec_add(vec_load_ahead(type, dst, i, VEC_ELEMS), vec_load_ahead(type, src, i, VEC_ELEMS));
        bad = vec_bad(result, gf_type_overflow(type));
        vec_store(type, dst, i, VEC_ELEMS, result);
    }
    *at = i;
    return bad;
}

/* Whole vectors. */
VEC_FN __attribute__((noinline)) void sum_vectors(uint8_t *dst, const uint8_t *src, gf_type type, uint64_t elem_count,
                                                  uint64_t base, struct gf_check *check)
{
    for (uint64_t at = 0; elem_count - at >= VEC_ELEMS;) {
        uint32_t bad = (type == GF_TYPE_F32)   ? sum_type(dst, src, GF_TYPE_F32, elem_count, &at)
                       : (type == GF_TYPE_F16) ? sum_type(dst, src, GF_TYPE_F16, elem_count, &at)
                                               : sum_type(dst, src, GF_TYPE_BF16, elem_count, &at);
        if (bad != 0) gf_check_note(check, base + at - VEC_ELEMS, bad);
    }
}

VEC_FN gf_status sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                     struct gf_check *check)
{
    uint8_t *to = gf_host_at(dst);
    const uint8_t *from = gf_host_at(src);
    uint32_t rest = (uint32_t)(elem_count % VEC_ELEMS);
    uint64_t whole = elem_count - rest;
    (void)queue;
    GF_ASSERT(type < GF_TYPE_COUNT);
    sum_vectors(to, from, type, elem_count, base, check);
    if (rest == 0) return GF_OK;
    to += whole * gf_type_bytes(type);
    from += whole * gf_type_bytes(type);
    vec result = vec_add(vec_load_part(type, to, rest), vec_load_part(type, from, rest));
    vec_check(check, base + whole, rest, result, gf_type_overflow(type));
    vec_store_part(type, to, rest, result);
    return GF_OK;
}

#endif
