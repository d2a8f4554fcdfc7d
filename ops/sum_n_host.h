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

/* Whole vectors of two and of four ranks, as many to as from: addresses in registers, and no look at results that nobody
 * wants to know of; `looks` and `type` are constants. Return how many elements they did. */
VEC_INLINE uint64_t sum_n_pair(const struct sum_n_range *r, gf_type type, uint64_t elem_count, bool looks)
{
    const uint8_t *a = gf_host_at(r->src[0]), *b = gf_host_at(r->src[1]);
    uint8_t *to = gf_host_at(r->dst[0]), *too = gf_host_at(r->dst[1]);
    struct gf_check *check = r->check;
    uint64_t i = 0, base = r->base;
    for (; elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) {
        vec result = vec_add(vec_load(type, a, i, VEC_ELEMS), vec_load(type, b, i, VEC_ELEMS));
        if (looks) vec_check(check, base + i, VEC_ELEMS, result, gf_type_overflow(type));
        vec_store(type, to, i, VEC_ELEMS, result);
        vec_store(type, too, i, VEC_ELEMS, result);
    }
    return i;
}

VEC_INLINE uint64_t sum_n_quad(const struct sum_n_range *r, gf_type type, uint64_t elem_count, bool looks)
{
    const uint8_t *a = gf_host_at(r->src[0]), *b = gf_host_at(r->src[1]);
    const uint8_t *c = gf_host_at(r->src[2]), *d = gf_host_at(r->src[3]);
    uint8_t *to_a = gf_host_at(r->dst[0]), *to_b = gf_host_at(r->dst[1]);
    uint8_t *to_c = gf_host_at(r->dst[2]), *to_d = gf_host_at(r->dst[3]);
    struct gf_check *check = r->check;
    uint64_t i = 0, base = r->base;
    for (; elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) {
        vec result = vec_add(vec_load(type, a, i, VEC_ELEMS), vec_load(type, b, i, VEC_ELEMS));
        result = vec_add(result, vec_load(type, c, i, VEC_ELEMS));
        result = vec_add(result, vec_load(type, d, i, VEC_ELEMS));
        if (looks) vec_check(check, base + i, VEC_ELEMS, result, gf_type_overflow(type));
        vec_store(type, to_a, i, VEC_ELEMS, result);
        vec_store(type, to_b, i, VEC_ELEMS, result);
        vec_store(type, to_c, i, VEC_ELEMS, result);
        vec_store(type, to_d, i, VEC_ELEMS, result);
    }
    return i;
}

VEC_INLINE uint64_t sum_n_known(const struct sum_n_range *r, gf_type type, uint64_t elem_count)
{
    if (r->src_count != r->dst_count) return 0;
    if (r->src_count == 2) return r->check ? sum_n_pair(r, type, elem_count, true) : sum_n_pair(r, type, elem_count, false);
    if (r->src_count == 4) return r->check ? sum_n_quad(r, type, elem_count, true) : sum_n_quad(r, type, elem_count, false);
    return 0;
}

VEC_INLINE void sum_n_type(const struct sum_n_range *r, gf_type type, uint64_t elem_count)
{
    uint64_t i = sum_n_known(r, type, elem_count);
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
