/* Momentum SGD in one pass. The branches on what is given are the same in each turn of the loop. */
#ifndef GF_UPDATE_HOST_H
#define GF_UPDATE_HOST_H
#include "ops/element/host/block.h"

struct update_range {
    uint8_t *weight, *momentum_at;
    const uint8_t *gradient;
    float gradient_scale, rate_in, rate_out, momentum, decay;
    bool nesterov;
};

VEC_INLINE void update_some(const struct update_range *r, uint64_t i, uint32_t count)
{
    vec weight = vec_load(GF_TYPE_F32, r->weight, i, count);
    vec g = vec_add(vec_mul(vec_set(r->gradient_scale), vec_load(GF_TYPE_F32, r->gradient, i, count)),
                    vec_mul(vec_set(r->decay), weight));
    vec d = g = vec_mul(vec_set(r->rate_in), g);
    if (r->momentum_at != NULL) {
        vec v = vec_add(vec_mul(vec_set(r->momentum), vec_load(GF_TYPE_F32, r->momentum_at, i, count)), g);
        vec_store(GF_TYPE_F32, r->momentum_at, i, count, v);
        d = r->nesterov ? vec_add(vec_mul(vec_set(r->momentum), v), g) : v;
    }
    vec_store(GF_TYPE_F32, r->weight, i, count, vec_sub(weight, vec_mul(vec_set(r->rate_out), d)));
}

VEC_FN gf_status update(struct gf_queue *queue, const struct gf_update *u, uint64_t elem_count)
{
    struct block block;
    float ratio = 1;
    (void)queue;
    GF_ASSERT((u->gradient_type < GF_TYPE_COUNT) && (u->half_type < GF_TYPE_COUNT));
    if (u->ratio_f32 != 0) memcpy(&ratio, gf_host_at(u->ratio_f32), sizeof ratio);
    for (uint64_t at = 0; at < elem_count; at += BLOCK_ELEMS) {
        uint32_t count = block_elems(elem_count - at), i = 0;
        struct update_range r = {
            .weight = gf_host_at(u->weight_f32) + at * sizeof(float),
            .momentum_at = (u->momentum_f32 != 0) ? gf_host_at(u->momentum_f32) + at * sizeof(float) : NULL,
            .gradient = block_load(&block, u->gradient_type, gf_host_at(u->gradient), at, count),
            .gradient_scale = u->gradient_scale, .rate_in = u->rate_in * ratio, .rate_out = u->rate_out,
            .momentum = u->momentum, .decay = u->decay, .nesterov = u->nesterov,
        };
        for (; count - i >= VEC_ELEMS; i += VEC_ELEMS) update_some(&r, i, VEC_ELEMS);
        if (i < count) update_some(&r, i, count - i);
        if (u->half != 0) block_store(u->half_type, gf_host_at(u->half), at, r.weight, count);
    }
    return GF_OK;
}

#endif
