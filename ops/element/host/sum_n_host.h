/* dst[0..] = round(src[0] + src[1] + ..). The lines that are stored were loaded just before, in
 * place as a rule: storing them past the cache would save no read, so there is no such version. */
#ifndef GF_SUM_N_HOST_H
#define GF_SUM_N_HOST_H
#include "ops/element/host/vec.h"

struct sum_n_range {
    const gf_mem *dst, *src;
    uint32_t dst_count, src_count;
    gf_type type;
    uint64_t base;
    struct gf_check *check, *sources;
};

/* Bit b of bad: sum i + b is not finite. Its sources still are what they were: nothing of this
 * vector is stored yet. */
VEC_FN void sum_n_note(const struct sum_n_range *r, uint64_t i, uint32_t count, uint32_t bad)
{
    gf_check_note(r->check, r->base + i, bad);
    if (r->sources == NULL) return;
    for (uint32_t s = 0; s < r->src_count; s++)
        vec_check(r->sources, ((uint64_t)s << GF_SOURCE_SHIFT) + r->base + i, count,
                  vec_load(r->type, gf_host_at(r->src[s]), i, count),
                  gf_type_overflow(GF_TYPE_F32));
}

VEC_INLINE void sum_n_check(const struct sum_n_range *r, gf_type type, uint64_t i, uint32_t count,
                            vec sum)
{
    uint32_t bad = vec_bad(sum, gf_type_overflow(type));
    if (count != VEC_ELEMS) bad &= ((uint32_t)1 << count) - 1;
    if (bad != 0) sum_n_note(r, i, count, bad);
}

VEC_INLINE void sum_n_some(const struct sum_n_range *r, gf_type type, uint64_t i, uint32_t count)
{
    vec sum = vec_load(type, gf_host_at(r->src[0]), i, count);
    for (uint32_t s = 1; s < r->src_count; s++)
        sum = vec_add(sum, vec_load(type, gf_host_at(r->src[s]), i, count));
    sum_n_check(r, type, i, count, sum);
    for (uint32_t d = 0; d < r->dst_count; d++)
        vec_store(type, gf_host_at(r->dst[d]), i, count, sum);
}

/* Whole vectors of two and of four ranks, as many to as from: addresses in registers; `ranks` is a
 * constant. Returns how many elements are stored: all of whole vectors, or those before the first
 * vector that has a sum that is not finite, of which nothing is. */
VEC_INLINE uint64_t sum_n_ranks(const struct sum_n_range *r, gf_type type, uint64_t elem_count,
                                uint32_t ranks)
{
    const uint8_t *from[4];
    uint8_t *to[4];
    uint64_t i;
    uint64_t end = elem_count / VEC_ELEMS * VEC_ELEMS;
#pragma GCC unroll 4
    for (uint32_t s = 0; s < ranks; s++) {
        from[s] = gf_host_at(r->src[s]);
        to[s] = gf_host_at(r->dst[s]);
    }
    for (i = 0; i < end; i += VEC_ELEMS) {
        vec sum = vec_load(type, from[0], i, VEC_ELEMS);
#pragma GCC unroll 4
        for (uint32_t s = 1; s < ranks; s++)
            sum = vec_add(sum, vec_load(type, from[s], i, VEC_ELEMS));
        if (vec_bad(sum, gf_type_overflow(type)) != 0) break;
#pragma GCC unroll 4
        for (uint32_t s = 0; s < ranks; s++) vec_store(type, to[s], i, VEC_ELEMS, sum);
    }
    return i;
}

/* The next eight vectors at once: of many ranks' memory each is read in runs of lines, as a CPU
 * reads ahead. False: some sum is not finite, and nothing is stored. */
#define GROUP_VECS 8u
#define GROUP_ELEMS (GROUP_VECS * VEC_ELEMS)
VEC_INLINE bool sum_n_group(const struct sum_n_range *r, gf_type type, uint64_t i)
{
    uint32_t bad = 0;
    const uint8_t *from = gf_host_at(r->src[0]);
    vec sum[GROUP_VECS];
#pragma GCC unroll 8
    for (uint32_t v = 0; v < GROUP_VECS; v++)
        sum[v] = vec_load(type, from, i + v * VEC_ELEMS, VEC_ELEMS);
    for (uint32_t s = 1; s < r->src_count; s++) {
        from = gf_host_at(r->src[s]);
#pragma GCC unroll 8
        for (uint32_t v = 0; v < GROUP_VECS; v++)
            sum[v] = vec_add(sum[v], vec_load(type, from, i + v * VEC_ELEMS, VEC_ELEMS));
    }
#pragma GCC unroll 8
    for (uint32_t v = 0; v < GROUP_VECS; v++) bad |= vec_bad(sum[v], gf_type_overflow(type));
    if (bad != 0) return false;
    for (uint32_t d = 0; d < r->dst_count; d++) {
        uint8_t *to = gf_host_at(r->dst[d]);
#pragma GCC unroll 8
        for (uint32_t v = 0; v < GROUP_VECS; v++)
            vec_store(type, to, i + v * VEC_ELEMS, VEC_ELEMS, sum[v]);
    }
    return true;
}

/* Three ways, each for what the one before leaves: two or four ranks in registers; eight vectors at
 * once; a vector at a time, which also is the way that counts what is not finite. */
VEC_INLINE void sum_n_type(const struct sum_n_range *r, gf_type type, uint64_t elem_count)
{
    uint32_t ranks = (r->src_count == r->dst_count) ? r->src_count : 0;
    uint64_t i = 0;
    if (ranks == 2) i = sum_n_ranks(r, type, elem_count, 2);
    if (ranks == 4) i = sum_n_ranks(r, type, elem_count, 4);
    while (i < elem_count) {
        uint64_t left = elem_count - i;
        uint64_t end = i + ((left < GROUP_ELEMS) ? left : GROUP_ELEMS);
        if ((left >= GROUP_ELEMS) && sum_n_group(r, type, i)) i = end;
        for (; i < end; i += VEC_ELEMS) sum_n_some(r, type, i, vec_count(end - i));
    }
}

VEC_FN gf_status sum_n(struct gf_queue *queue, const gf_mem *dst, uint32_t dst_count,
                       const gf_mem *src, uint32_t src_count, gf_type type, uint64_t elem_count,
                       uint64_t base, struct gf_check *check, struct gf_check *sources)
{
    struct sum_n_range range = {dst, src, dst_count, src_count, type, base, check, sources};
    (void)queue;
    GF_ASSERT((type < GF_TYPE_COUNT) && (src_count > 0) && ((sources == NULL) || (check != NULL)));
    switch (type) {
    case GF_TYPE_F32: sum_n_type(&range, GF_TYPE_F32, elem_count); break;
    case GF_TYPE_F16: sum_n_type(&range, GF_TYPE_F16, elem_count); break;
    case GF_TYPE_BF16: sum_n_type(&range, GF_TYPE_BF16, elem_count); break;
    case GF_TYPE_COUNT: break;
    }
    return GF_OK;
}

#endif
