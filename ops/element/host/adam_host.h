/* AdamW in one pass. */
#ifndef GF_ADAM_HOST_H
#define GF_ADAM_HOST_H
#include "ops/element/host/block.h"

/* gradient is floats. */
VEC_INLINE void adam_some(const struct gf_adam *a, uint64_t i, uint32_t count)
{
    vec weight = floats_load(a->weight_f32, i, count);
    vec m = floats_load(a->moment1_f32, i, count);
    vec v = floats_load(a->moment2_f32, i, count);
    vec g = vec_mul(vec_set(a->gradient_scale), floats_load(a->gradient, i, count));
    vec below;
    vec direction;
    m = vec_add(vec_mul(vec_set(a->beta1), m), vec_mul(vec_set(a->keep1), g));
    v = vec_add(vec_mul(vec_set(a->beta2), v), vec_mul(vec_mul(vec_set(a->keep2), g), g));
    floats_store(a->moment1_f32, i, count, m);
    floats_store(a->moment2_f32, i, count, v);
    below = vec_add(vec_mul(vec_set(a->correct2), vec_sqrt(v)), vec_set(a->epsilon));
    direction = vec_add(vec_div(vec_mul(vec_set(a->correct1), m), below),
                        vec_mul(vec_set(a->decay), weight));
    floats_store(a->weight_f32, i, count, vec_sub(weight, vec_mul(vec_set(a->rate), direction)));
}

VEC_FN gf_status adam(struct gf_queue *queue, const struct gf_adam *all, uint64_t elem_count)
{
    struct block block;
    (void)queue;
    GF_ASSERT((all->gradient_type < GF_TYPE_COUNT) && (all->half_type < GF_TYPE_COUNT));
    for (uint64_t at = 0; at < elem_count; at += BLOCK_ELEMS) {
        uint32_t count = block_elems(elem_count - at);
        uint64_t i = 0;
        struct gf_adam some = *all;
        some.weight_f32 = floats_from(all->weight_f32, at);
        some.moment1_f32 = floats_from(all->moment1_f32, at);
        some.moment2_f32 = floats_from(all->moment2_f32, at);
        some.half += at * gf_type_bytes(all->half_type);
        some.gradient = block_load(&block, all->gradient_type,
                                   all->gradient + at * gf_type_bytes(all->gradient_type), count);
        for (; count - i >= VEC_ELEMS; i += VEC_ELEMS) adam_some(&some, i, VEC_ELEMS);
        if (i < count) adam_some(&some, i, (uint32_t)(count - i));
        if (all->half != 0)
            block_store(some.half_type, gf_host_at(some.half), gf_host_at(some.weight_f32), count);
    }
    return GF_OK;
}

#endif
