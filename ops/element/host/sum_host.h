/* dst = round(dst + src); and what a range holds is looked at alike, without a dst. `adds` is a constant. */
#ifndef GF_SUM_HOST_H
#define GF_SUM_HOST_H
#include "ops/element/host/vec.h"

/* Vectors from *at to the first that is not finite, and its bad lanes. The type is a constant. */
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

VEC_INLINE void sum_range(uint8_t *dst, const uint8_t *src, gf_type type, bool adds, uint64_t elem_count,
                          uint64_t base, struct gf_check *check)
{
    uint32_t rest = (uint32_t)(elem_count % VEC_ELEMS);
    uint64_t whole = elem_count - rest;
    GF_ASSERT(type < GF_TYPE_COUNT);
    for (uint64_t at = 0; at < whole;) {
        uint32_t bad = (type == GF_TYPE_F32)   ? sum_type(dst, src, GF_TYPE_F32, adds, whole, &at)
                       : (type == GF_TYPE_F16) ? sum_type(dst, src, GF_TYPE_F16, adds, whole, &at)
                                               : sum_type(dst, src, GF_TYPE_BF16, adds, whole, &at);
        if (bad != 0) gf_check_note(check, base + at - VEC_ELEMS, bad);
    }
    if (rest == 0) return;
    src += whole * gf_type_bytes(type);
    vec result = vec_load_part(type, src, rest);
    if (adds) result = vec_add(vec_load_part(type, dst + whole * gf_type_bytes(type), rest), result);
    vec_check(check, base + whole, rest, result, gf_type_overflow(type));
    if (adds) vec_store_part(type, dst + whole * gf_type_bytes(type), rest, result);
}

VEC_FN gf_status sum(struct gf_queue *queue, gf_mem dst, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                     struct gf_check *check)
{
    (void)queue;
    sum_range(gf_host_at(dst), gf_host_at(src), type, true, elem_count, base, check);
    return GF_OK;
}

VEC_FN gf_status check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                       struct gf_check *check)
{
    (void)queue;
    sum_range(NULL, gf_host_at(src), type, false, elem_count, base, check);
    return GF_OK;
}

#endif
