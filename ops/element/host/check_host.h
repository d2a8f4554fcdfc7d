/* Counts what is not finite. */
#ifndef GF_CHECK_HOST_H
#define GF_CHECK_HOST_H
#include "ops/element/host/vec.h"

/* Vectors from *at to the first that is not finite, and its bad lanes. */
VEC_INLINE uint32_t check_type(const uint8_t *src, gf_type type, uint64_t elem_count, uint64_t *at)
{
    uint64_t i = *at, end = elem_count / VEC_ELEMS * VEC_ELEMS;
    uint32_t bad = 0;
    for (; (bad == 0) && (i < end); i += VEC_ELEMS)
        bad = vec_bad(vec_load(type, src, i, VEC_ELEMS), __builtin_inff());
    *at = i;
    return bad;
}

/* Whole vectors. */
VEC_FN __attribute__((noinline)) void check_vectors(const uint8_t *src, gf_type type, uint64_t elem_count,
                                                    uint64_t base, struct gf_check *check)
{
    for (uint64_t at = 0; elem_count - at >= VEC_ELEMS;) {
        uint32_t bad = (type == GF_TYPE_F32)   ? check_type(src, GF_TYPE_F32, elem_count, &at)
                       : (type == GF_TYPE_F16) ? check_type(src, GF_TYPE_F16, elem_count, &at)
                                               : check_type(src, GF_TYPE_BF16, elem_count, &at);
        if (bad != 0) gf_check_note(check, base + at - VEC_ELEMS, bad);
    }
}

VEC_FN gf_status check(struct gf_queue *queue, gf_mem src, gf_type type, uint64_t elem_count, uint64_t base,
                       struct gf_check *check)
{
    uint32_t rest = (uint32_t)(elem_count % VEC_ELEMS);
    uint64_t whole = elem_count - rest;
    (void)queue;
    GF_ASSERT(type < GF_TYPE_COUNT);
    check_vectors(gf_host_at(src), type, elem_count, base, check);
    if (rest == 0) return GF_OK;
    vec last = vec_load_part(type, gf_host_at(src) + whole * gf_type_bytes(type), rest);
    vec_check(check, base + whole, rest, last, __builtin_inff());
    return GF_OK;
}

#endif
