/* dst[0..] = round(src[0] + src[1] + ..). The lines that are stored were loaded just before, in place as a rule: storing
 * them past the cache would save no read, so there is no such version. */
#ifndef GF_SUM_N_HOST_H
#define GF_SUM_N_HOST_H
#include "vec.h"

struct sum_n_range {
    const gf_mem *dst, *src;
    uint32_t dst_count, src_count;
    uint64_t base;
    struct gf_check *check;
};

VEC_INLINE void sum_n_some(const struct sum_n_range *r, gf_type type, uint64_t i, uint32_t count)
{
    vec result = vec_load(type, gf_host_at(r->src[0]), i, count);
    for (uint32_t s = 1; s < r->src_count; s++) result = vec_add(result, vec_load(type, gf_host_at(r->src[s]), i, count));
    vec_check(r->check, r->base + i, count, result, gf_type_overflow(type));
    for (uint32_t d = 0; d < r->dst_count; d++) vec_store(type, gf_host_at(r->dst[d]), i, count, result);
}

/* Whole vectors of two ranks, their addresses in registers. Returns how many elements it did. */
VEC_INLINE uint64_t sum_n_pair(const struct sum_n_range *r, gf_type type, uint64_t elem_count)
{
    const uint8_t *a = gf_host_at(r->src[0]), *b = gf_host_at(r->src[1]);
    uint8_t *to = gf_host_at(r->dst[0]), *too = gf_host_at(r->dst[1]);
    uint64_t i = 0;
    for (; elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) {
        vec result = vec_add(vec_load(type, a, i, VEC_ELEMS), vec_load(type, b, i, VEC_ELEMS));
        vec_check(r->check, r->base + i, VEC_ELEMS, result, gf_type_overflow(type));
        vec_store(type, to, i, VEC_ELEMS, result);
        vec_store(type, too, i, VEC_ELEMS, result);
    }
    return i;
}

VEC_INLINE void sum_n_type(const struct sum_n_range *r, gf_type type, uint64_t elem_count)
{
    uint64_t i = ((r->src_count == 2) && (r->dst_count == 2)) ? sum_n_pair(r, type, elem_count) : 0;
    for (; elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) sum_n_some(r, type, i, VEC_ELEMS);
    if (i < elem_count) sum_n_some(r, type, i, (uint32_t)(elem_count - i));
}

VEC_FN gf_status sum_n(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count, const gf_mem *src,
                       uint32_t src_count, gf_type type, uint64_t elem_count, uint64_t base, struct gf_check *check)
{
    struct sum_n_range range = {dst, src, dst_count, src_count, base, check};
    (void)queue;
    GF_ASSERT((type < GF_TYPE_COUNT) && (src_count > 0));
    switch (type) {
    case GF_TYPE_F16: sum_n_type(&range, GF_TYPE_F16, elem_count); break;
    case GF_TYPE_BF16: sum_n_type(&range, GF_TYPE_BF16, elem_count); break;
    default: sum_n_type(&range, GF_TYPE_F32, elem_count); break;
    }
    return GF_OK;
}

#endif
