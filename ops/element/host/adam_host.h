/* AdamW and LAMB in one pass. The branches on what is given are the same in each turn of the loop. */
#ifndef GF_ADAM_HOST_H
#define GF_ADAM_HOST_H
#include "ops/element/host/block.h"

struct adam_range {
    const struct gf_adam *adam;
    uint8_t *weight, *moment1, *moment2, *direction;
    const uint8_t *gradient;
    float rate;
};

VEC_INLINE void adam_some(const struct adam_range *r, uint64_t i, uint32_t count)
{
    const struct gf_adam *a = r->adam;
    vec weight = vec_load(GF_TYPE_F32, r->weight, i, count);
    vec m = vec_load(GF_TYPE_F32, r->moment1, i, count), v = vec_load(GF_TYPE_F32, r->moment2, i, count);
    vec below, direction;
    if (r->gradient != NULL) {
        vec g = vec_mul(vec_set(a->gradient_scale), vec_load(GF_TYPE_F32, r->gradient, i, count));
        m = vec_add(vec_mul(vec_set(a->beta1), m), vec_mul(vec_set(a->keep1), g));
        v = vec_add(vec_mul(vec_set(a->beta2), v), vec_mul(vec_mul(vec_set(a->keep2), g), g));
        vec_store(GF_TYPE_F32, r->moment1, i, count, m);
        vec_store(GF_TYPE_F32, r->moment2, i, count, v);
    }
    below = vec_add(vec_mul(vec_set(a->correct2), vec_sqrt(v)), vec_set(a->epsilon));
    direction = vec_add(vec_div(vec_mul(vec_set(a->correct1), m), below), vec_mul(vec_set(a->decay), weight));
    if (r->direction != NULL) vec_store(GF_TYPE_F32, r->direction, i, count, direction);
    else vec_store(GF_TYPE_F32, r->weight, i, count, vec_sub(weight, vec_mul(vec_set(r->rate), direction)));
}

VEC_FN gf_status adam(struct gf_queue *queue, const struct gf_adam *a, uint64_t elem_count)
{
    struct block block;
    float ratio = 1;
    (void)queue;
    GF_ASSERT((a->gradient_type < GF_TYPE_COUNT) && (a->half_type < GF_TYPE_COUNT));
    if (a->ratio_f32 != 0) memcpy(&ratio, gf_host_at(a->ratio_f32), sizeof ratio);
    for (uint64_t at = 0; at < elem_count; at += BLOCK_ELEMS) {
        uint32_t count = block_elems(elem_count - at), i = 0;
        struct adam_range r = {
            .adam = a, .weight = gf_host_at(a->weight_f32) + at * sizeof(float),
            .moment1 = gf_host_at(a->moment1_f32) + at * sizeof(float),
            .moment2 = gf_host_at(a->moment2_f32) + at * sizeof(float), .rate = a->rate * ratio,
        };
        if (a->direction_f32 != 0) r.direction = gf_host_at(a->direction_f32) + at * sizeof(float);
        if (a->gradient != 0) r.gradient = block_load(&block, a->gradient_type, gf_host_at(a->gradient), at, count);
        for (; count - i >= VEC_ELEMS; i += VEC_ELEMS) adam_some(&r, i, VEC_ELEMS);
        if (i < count) adam_some(&r, i, count - i);
        if ((a->half != 0) && (a->direction_f32 == 0))
            block_store(a->half_type, gf_host_at(a->half), at, r.weight, count);
    }
    return GF_OK;
}

#endif
