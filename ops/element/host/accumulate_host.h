/* Sparse history: u' = momentum * u + g; h' = h + (ahead * u' + g). The branches on what is given are the same in each
 * turn of the loop. */
#ifndef GF_ACCUMULATE_HOST_H
#define GF_ACCUMULATE_HOST_H
#include "ops/element/host/block.h"

struct accumulate_range {
    uint8_t *dst_h, *dst_u;
    const uint8_t *h, *u, *src, *weight;
    float scale, momentum, ahead, decay;
};

VEC_INLINE void accumulate_some(const struct accumulate_range *r, uint64_t i, uint32_t count)
{
    vec g = vec_mul(vec_set(r->scale), vec_load(GF_TYPE_F32, r->src, i, count));
    if (r->weight != NULL) g = vec_add(g, vec_mul(vec_set(r->decay), vec_load(GF_TYPE_F32, r->weight, i, count)));
    if (r->u != NULL) {
        vec u = vec_add(vec_mul(vec_set(r->momentum), vec_load(GF_TYPE_F32, r->u, i, count)), g);
        if (r->dst_u != NULL) vec_store(GF_TYPE_F32, r->dst_u, i, count, u);
        g = vec_add(vec_mul(vec_set(r->ahead), u), g);
    }
    vec_store(GF_TYPE_F32, r->dst_h, i, count, vec_add(vec_load(GF_TYPE_F32, r->h, i, count), g));
}

VEC_FN gf_status accumulate(struct gf_queue *queue, const struct gf_accumulate *a, uint64_t elem_count)
{
    struct block block;
    (void)queue;
    GF_ASSERT(a->src_type < GF_TYPE_COUNT);
    GF_ASSERT((a->u_f32 != 0) || (a->dst_u_f32 == 0));
    for (uint64_t at = 0; at < elem_count; at += BLOCK_ELEMS) {
        uint32_t count = block_elems(elem_count - at), i = 0;
        struct accumulate_range r = {
            .dst_h = gf_host_at(a->dst_h_f32) + at * sizeof(float), .h = gf_host_at(a->h_f32) + at * sizeof(float),
            .src = block_load(&block, a->src_type, gf_host_at(a->src), at, count),
            .scale = a->scale, .momentum = a->momentum, .ahead = a->ahead, .decay = a->decay,
        };
        if (a->dst_u_f32 != 0) r.dst_u = gf_host_at(a->dst_u_f32) + at * sizeof(float);
        if (a->u_f32 != 0) r.u = gf_host_at(a->u_f32) + at * sizeof(float);
        if (a->weight_f32 != 0) r.weight = gf_host_at(a->weight_f32) + at * sizeof(float);
        for (; count - i >= VEC_ELEMS; i += VEC_ELEMS) accumulate_some(&r, i, VEC_ELEMS);
        if (i < count) accumulate_some(&r, i, count - i);
    }
    return GF_OK;
}

#endif
