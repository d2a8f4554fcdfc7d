/* Momentum SGD in one pass. The branches on what is given are the same in each iteration of the
 * loop. */
#ifndef GF_UPDATE_HOST_H
#define GF_UPDATE_HOST_H
#include "ops/element/host/block.h"

/* gradient is floats. */
VEC_INLINE void update_some(const struct gf_update *u, uint64_t i, uint32_t count)
{
    vec weight = floats_load(u->weight_f32, i, count);
    vec g = vec_add(vec_mul(vec_set(u->gradient_scale), floats_load(u->gradient, i, count)),
                    vec_mul(vec_set(u->decay), weight));
    vec d = g = vec_mul(vec_set(u->rate_in), g);
    if (u->momentum_f32 != 0) {
        vec v = vec_add(vec_mul(vec_set(u->momentum), floats_load(u->momentum_f32, i, count)), g);
        floats_store(u->momentum_f32, i, count, v);
        d = u->nesterov ? vec_add(vec_mul(vec_set(u->momentum), v), g) : v;
    }
    floats_store(u->weight_f32, i, count, vec_sub(weight, vec_mul(vec_set(u->rate_out), d)));
}

/* From this element on. */
static inline struct gf_update update_from(const struct gf_update *all, uint64_t first)
{
    struct gf_update from = *all;
    from.weight_f32 = floats_from(all->weight_f32, first);
    from.momentum_f32 = floats_from(all->momentum_f32, first);
    from.gradient += first * gf_type_bytes(all->gradient_type);
    if (all->half != 0) from.half += first * gf_type_bytes(all->half_type);
    return from;
}

VEC_FN gf_status update(struct gf_queue *queue, const struct gf_update *all, uint64_t elem_count)
{
    struct block block;
    (void)queue;
    GF_ASSERT((all->gradient_type < GF_TYPE_COUNT) && (all->half_type < GF_TYPE_COUNT));
    for (uint64_t at = 0; at < elem_count; at += BLOCK_ELEMS) {
        uint32_t count = block_elems(elem_count - at);
        uint64_t i = 0;
        struct gf_update some = update_from(all, at);
        some.rate_in *= ratio_at(all->ratio_f32);
        some.gradient = block_load(&block, some.gradient_type, some.gradient, count);
        for (; count - i >= VEC_ELEMS; i += VEC_ELEMS) update_some(&some, i, VEC_ELEMS);
        if (i < count) update_some(&some, i, (uint32_t)(count - i));
        if (some.half != 0)
            block_store(some.half_type, gf_host_at(some.half), gf_host_at(some.weight_f32), count);
    }
    return GF_OK;
}

#endif
