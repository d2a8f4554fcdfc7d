/* AdamW and LAMB in one pass. The branches on what is given are the same in each turn of the loop. */
#ifndef GF_ADAM_HOST_H
#define GF_ADAM_HOST_H
#include "ops/element/host/vec.h"

struct adam_range {
    const struct gf_adam *adam;
    uint8_t *weight, *moment1, *moment2, *half, *direction;
    const uint8_t *gradient;
    float rate;
};

VEC_INLINE void adam_some(const struct adam_range *r, gf_type gradient_type, gf_type half_type, uint64_t i,
                          uint32_t count)
{
    const struct gf_adam *a = r->adam;
    vec weight = vec_load(GF_TYPE_F32, r->weight, i, count);
    vec m = vec_load(GF_TYPE_F32, r->moment1, i, count), v = vec_load(GF_TYPE_F32, r->moment2, i, count);
    vec below, direction;
    if (r->gradient != NULL) {
        vec g = vec_mul(vec_set(a->gradient_scale), vec_load(gradient_type, r->gradient, i, count));
        m = vec_add(vec_mul(vec_set(a->beta1), m), vec_mul(vec_set(a->keep1), g));
        v = vec_add(vec_mul(vec_set(a->beta2), v), vec_mul(vec_mul(vec_set(a->keep2), g), g));
        vec_store(GF_TYPE_F32, r->moment1, i, count, m);
        vec_store(GF_TYPE_F32, r->moment2, i, count, v);
    }
    below = vec_add(vec_mul(vec_set(a->correct2), vec_sqrt(v)), vec_set(a->epsilon));
    direction = vec_add(vec_div(vec_mul(vec_set(a->correct1), m), below), vec_mul(vec_set(a->decay), weight));
    if (r->direction != NULL) {
        vec_store(GF_TYPE_F32, r->direction, i, count, direction);
        return;
    }
    weight = vec_sub(weight, vec_mul(vec_set(r->rate), direction));
    vec_store(GF_TYPE_F32, r->weight, i, count, weight);
    if (r->half != NULL) vec_store(half_type, r->half, i, count, weight);
}

VEC_INLINE void adam_types(const struct adam_range *range, gf_type gradient_type, gf_type half_type,
                           uint64_t elem_count)
{
    uint64_t i = 0;
    for (; elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) adam_some(range, gradient_type, half_type, i, VEC_ELEMS);
    if (i < elem_count) adam_some(range, gradient_type, half_type, i, (uint32_t)(elem_count - i));
}

VEC_INLINE void adam_half(const struct adam_range *range, gf_type gradient_type, gf_type half_type, uint64_t elem_count)
{
    switch (half_type) {
    case GF_TYPE_F16: adam_types(range, gradient_type, GF_TYPE_F16, elem_count); break;
    case GF_TYPE_BF16: adam_types(range, gradient_type, GF_TYPE_BF16, elem_count); break;
    default: adam_types(range, gradient_type, GF_TYPE_F32, elem_count); break;
    }
}

VEC_FN gf_status adam(struct gf_queue *queue, const struct gf_adam *adam, uint64_t elem_count)
{
    struct adam_range range = {
        .adam = adam, .weight = gf_host_at(adam->weight_f32), .moment1 = gf_host_at(adam->moment1_f32),
        .moment2 = gf_host_at(adam->moment2_f32), .half = gf_host_at(adam->half),
        .direction = gf_host_at(adam->direction_f32), .gradient = gf_host_at(adam->gradient), .rate = adam->rate,
    };
    (void)queue;
    if (adam->ratio_f32 != 0) {
        float ratio;
        memcpy(&ratio, gf_host_at(adam->ratio_f32), sizeof ratio);
        range.rate = range.rate * ratio;
    }
    GF_ASSERT((adam->gradient_type < GF_TYPE_COUNT) && (adam->half_type < GF_TYPE_COUNT));
    switch (adam->gradient_type) {
    case GF_TYPE_F16: adam_half(&range, GF_TYPE_F16, adam->half_type, elem_count); break;
    case GF_TYPE_BF16: adam_half(&range, GF_TYPE_BF16, adam->half_type, elem_count); break;
    default: adam_half(&range, GF_TYPE_F32, adam->half_type, elem_count); break;
    }
    return GF_OK;
}

#endif
