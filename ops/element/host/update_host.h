/* Momentum SGD in one pass. The branches on what is given are the same in each turn of the loop. */
#ifndef GF_UPDATE_HOST_H
#define GF_UPDATE_HOST_H
#include "ops/element/host/vec.h"

struct update_range {
    uint8_t *weight, *momentum_at, *half;
    const uint8_t *gradient;
    float gradient_scale, rate_in, rate_out, momentum, decay;
    bool nesterov;
};

VEC_INLINE void update_some(const struct update_range *r, gf_type gradient_type, gf_type half_type, uint64_t i,
                            uint32_t count)
{
    vec weight = vec_load(GF_TYPE_F32, r->weight, i, count);
    vec g = vec_add(vec_mul(vec_set(r->gradient_scale), vec_load(gradient_type, r->gradient, i, count)),
                    vec_mul(vec_set(r->decay), weight));
    vec d = g = vec_mul(vec_set(r->rate_in), g);
    if (r->momentum_at != NULL) {
        vec v = vec_add(vec_mul(vec_set(r->momentum), vec_load(GF_TYPE_F32, r->momentum_at, i, count)), g);
        vec_store(GF_TYPE_F32, r->momentum_at, i, count, v);
        d = r->nesterov ? vec_add(vec_mul(vec_set(r->momentum), v), g) : v;
    }
    weight = vec_sub(weight, vec_mul(vec_set(r->rate_out), d));
    vec_store(GF_TYPE_F32, r->weight, i, count, weight);
    if (r->half != NULL) vec_store(half_type, r->half, i, count, weight);
}

VEC_INLINE void update_types(const struct update_range *range, gf_type gradient_type, gf_type half_type,
                             uint64_t elem_count)
{
    uint64_t i = 0;
    for (; elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) update_some(range, gradient_type, half_type, i, VEC_ELEMS);
    if (i < elem_count) update_some(range, gradient_type, half_type, i, (uint32_t)(elem_count - i));
}

VEC_INLINE void update_half(const struct update_range *range, gf_type gradient_type, gf_type half_type,
                            uint64_t elem_count)
{
    switch (half_type) {
    case GF_TYPE_F16: update_types(range, gradient_type, GF_TYPE_F16, elem_count); break;
    case GF_TYPE_BF16: update_types(range, gradient_type, GF_TYPE_BF16, elem_count); break;
    default: update_types(range, gradient_type, GF_TYPE_F32, elem_count); break;
    }
}

VEC_FN gf_status update(struct gf_queue *queue, const struct gf_update *update, uint64_t elem_count)
{
    struct update_range range = {
        .weight = gf_host_at(update->weight_f32), .momentum_at = gf_host_at(update->momentum_f32),
        .half = gf_host_at(update->half), .gradient = gf_host_at(update->gradient),
        .gradient_scale = update->gradient_scale, .rate_in = update->rate_in, .rate_out = update->rate_out,
        .momentum = update->momentum, .decay = update->decay, .nesterov = update->nesterov,
    };
    (void)queue;
    if (update->ratio_f32 != 0) {
        float ratio;
        memcpy(&ratio, gf_host_at(update->ratio_f32), sizeof ratio);
        range.rate_in = range.rate_in * ratio;
    }
    GF_ASSERT((update->gradient_type < GF_TYPE_COUNT) && (update->half_type < GF_TYPE_COUNT));
    switch (update->gradient_type) {
    case GF_TYPE_F16: update_half(&range, GF_TYPE_F16, update->half_type, elem_count); break;
    case GF_TYPE_BF16: update_half(&range, GF_TYPE_BF16, update->half_type, elem_count); break;
    default: update_half(&range, GF_TYPE_F32, update->half_type, elem_count); break;
    }
    return GF_OK;
}

#endif
