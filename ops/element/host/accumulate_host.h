/* Sparse history: u' = momentum * u + g; h' = h + (ahead * u' + g). The branches on what is given
 * are the same in each iteration of the loop. */
#ifndef GF_ACCUMULATE_HOST_H
#define GF_ACCUMULATE_HOST_H
#include "ops/element/host/block.h"

/* src is floats. */
VEC_INLINE void accumulate_some(const struct gf_accumulate *a, uint64_t i, uint32_t count)
{
    vec g = vec_mul(vec_set(a->scale), floats_load(a->src, i, count));
    if (a->weight_f32 != 0)
        g = vec_add(g, vec_mul(vec_set(a->decay), floats_load(a->weight_f32, i, count)));
    if (a->u_f32 != 0) {
        vec u = vec_add(vec_mul(vec_set(a->momentum), floats_load(a->u_f32, i, count)), g);
        if (a->dst_u_f32 != 0) floats_store(a->dst_u_f32, i, count, u);
        g = vec_add(vec_mul(vec_set(a->ahead), u), g);
    }
    floats_store(a->dst_h_f32, i, count, vec_add(floats_load(a->h_f32, i, count), g));
}

/* From element `dst` of what is written and element `src` of what is read. */
static inline struct gf_accumulate accumulate_from(const struct gf_accumulate *all, uint64_t dst,
                                                   uint64_t src)
{
    struct gf_accumulate from = *all;
    from.dst_h_f32 = floats_from(all->dst_h_f32, dst);
    from.dst_u_f32 = floats_from(all->dst_u_f32, dst);
    from.h_f32 = floats_from(all->h_f32, src);
    from.u_f32 = floats_from(all->u_f32, src);
    from.weight_f32 = floats_from(all->weight_f32, src);
    from.src += src * gf_type_bytes(all->src_type);
    return from;
}

VEC_FN gf_status accumulate(struct gf_queue *queue, const struct gf_accumulate *all,
                            uint64_t elem_count)
{
    struct block block;
    (void)queue;
    GF_ASSERT(all->src_type < GF_TYPE_COUNT);
    GF_ASSERT((all->u_f32 != 0) || (all->dst_u_f32 == 0));
    for (uint64_t at = 0; at < elem_count; at += BLOCK_ELEMS) {
        uint32_t count = block_elems(elem_count - at);
        uint64_t i = 0;
        struct gf_accumulate some = accumulate_from(all, at, at);
        some.src = block_load(&block, some.src_type, some.src, count);
        for (; count - i >= VEC_ELEMS; i += VEC_ELEMS) accumulate_some(&some, i, VEC_ELEMS);
        if (i < count) accumulate_some(&some, i, (uint32_t)(count - i));
    }
    return GF_OK;
}

#endif
