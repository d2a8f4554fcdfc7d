/* Sparse history: u' = momentum * u + g; h' = h + (ahead * u' + g). The branches on what is given are the same in each
 * turn of the loop. */
#ifndef GF_ACCUMULATE_HOST_H
#define GF_ACCUMULATE_HOST_H
#include "ops/element/host/vec.h"

struct accumulate_range {
    uint8_t *dst_h, *dst_u;
    const uint8_t *h, *u, *src, *weight;
    float scale, momentum, ahead, decay;
};

VEC_INLINE void accumulate_some(const struct accumulate_range *r, gf_type src_type, uint64_t i, uint32_t count)
{
    vec g = vec_mul(vec_set(r->scale), vec_load(src_type, r->src, i, count));
    if (r->weight != NULL) g = vec_add(g, vec_mul(vec_set(r->decay), vec_load(GF_TYPE_F32, r->weight, i, count)));
    if (r->u != NULL) {
        vec u = vec_add(vec_mul(vec_set(r->momentum), vec_load(GF_TYPE_F32, r->u, i, count)), g);
        if (r->dst_u != NULL) vec_store(GF_TYPE_F32, r->dst_u, i, count, u);
        g = vec_add(vec_mul(vec_set(r->ahead), u), g);
    }
    vec_store(GF_TYPE_F32, r->dst_h, i, count, vec_add(vec_load(GF_TYPE_F32, r->h, i, count), g));
}

VEC_INLINE void accumulate_type(const struct accumulate_range *range, gf_type src_type, uint64_t elem_count)
{
    uint64_t i = 0;
    for (; elem_count - i >= VEC_ELEMS; i += VEC_ELEMS) accumulate_some(range, src_type, i, VEC_ELEMS);
    if (i < elem_count) accumulate_some(range, src_type, i, (uint32_t)(elem_count - i));
}

VEC_FN gf_status accumulate(struct gf_queue *queue, const struct gf_accumulate *a, uint64_t elem_count)
{
    struct accumulate_range range = {
        .dst_h = gf_host_at(a->dst_h_f32), .dst_u = gf_host_at(a->dst_u_f32), .h = gf_host_at(a->h_f32),
        .u = gf_host_at(a->u_f32), .src = gf_host_at(a->src), .weight = gf_host_at(a->weight_f32),
        .scale = a->scale, .momentum = a->momentum, .ahead = a->ahead, .decay = a->decay,
    };
    (void)queue;
    GF_ASSERT(a->src_type < GF_TYPE_COUNT);
    GF_ASSERT((a->u_f32 != 0) || (a->dst_u_f32 == 0));
    switch (a->src_type) {
    case GF_TYPE_F16: accumulate_type(&range, GF_TYPE_F16, elem_count); break;
    case GF_TYPE_BF16: accumulate_type(&range, GF_TYPE_BF16, elem_count); break;
    default: accumulate_type(&range, GF_TYPE_F32, elem_count); break;
    }
    return GF_OK;
}

#endif
