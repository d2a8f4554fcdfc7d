/* Sparse history, flat and of listed chunks: u' = momentum * u + g; h' = h + (ahead * u' + g). */
#include "ops/element/cuda/device.cuh"

struct accumulate_some {
    struct gf_pack src, weight, u, h;
};

/* *u: before and after; h' returned. */
GF_INLINE float accumulate_rule(const struct gf_accumulate *r, float src, float weight, float *u,
                                float h)
{
    float g = r->scale * src;
    if (r->weight_f32 != 0) g = g + r->decay * weight;
    if (r->u_f32 == 0) return h + g;
    *u = r->momentum * *u + g;
    return h + (r->ahead * *u + g);
}

/* Element i of dst, and `off` more of what is read. */
GF_INLINE void accumulate_one(uint64_t i, const struct gf_accumulate *r, uint64_t off,
                              uint32_t src_type)
{
    float weight = (r->weight_f32 != 0) ? gf_one_load(GF_KERNEL_F32, r->weight_f32, i + off) : 0.0f;
    float u = (r->u_f32 != 0) ? gf_one_load(GF_KERNEL_F32, r->u_f32, i + off) : 0.0f;
    float h = accumulate_rule(r, gf_one_load(src_type, r->src, i + off), weight, &u,
                              gf_one_load(GF_KERNEL_F32, r->h_f32, i + off));
    if (r->dst_u_f32 != 0) gf_one_store(GF_KERNEL_F32, r->dst_u_f32, i, u);
    gf_one_store(GF_KERNEL_F32, r->dst_h_f32, i, h);
}

GF_INLINE void accumulate_load(struct accumulate_some *some, uint64_t i,
                               const struct gf_accumulate *r, uint64_t off, uint32_t src_type)
{
    gf_pack_load(&some->src, src_type, r->src, i + off, 4);
    if (r->weight_f32 != 0) gf_pack_load(&some->weight, GF_KERNEL_F32, r->weight_f32, i + off, 4);
    if (r->u_f32 != 0) gf_pack_load(&some->u, GF_KERNEL_F32, r->u_f32, i + off, 4);
    gf_pack_load(&some->h, GF_KERNEL_F32, r->h_f32, i + off, 4);
}

GF_INLINE int accumulate_pack(struct accumulate_some *some, uint64_t i,
                              const struct gf_accumulate *r, uint64_t off, uint32_t src_type)
{
    float h[4], u[4];
    GF_UNROLL
    for (int e = 0; e < 4; e++) {
        u[e] = gf_pack_get(&some->u, GF_KERNEL_F32, e);
        h[e] = accumulate_rule(r, gf_pack_get(&some->src, src_type, e),
                               gf_pack_get(&some->weight, GF_KERNEL_F32, e), &u[e],
                               gf_pack_get(&some->h, GF_KERNEL_F32, e));
    }
    if (r->dst_u_f32 != 0) gf_pack_store(GF_KERNEL_F32, r->dst_u_f32, i, u, 4);
    gf_pack_store(GF_KERNEL_F32, r->dst_h_f32, i, h, 4);
    return 1;
}

GF_INLINE void accumulate_range(struct gf_range *range, uint32_t src_type,
                                const struct gf_accumulate *r)
{
    const uint64_t dst = range->first, src = range->src;
    const uint32_t head = gf_head(r->h_f32 + src * 4u, GF_KERNEL_F32, 4);
    const int alike = gf_alike(r->dst_h_f32, dst, GF_KERNEL_F32, 4, head) &&
                      gf_alike(r->dst_u_f32, dst, GF_KERNEL_F32, 4, head) &&
                      gf_alike(r->u_f32, src, GF_KERNEL_F32, 4, head) &&
                      gf_alike(r->weight_f32, src, GF_KERNEL_F32, 4, head) &&
                      gf_alike(r->src, src, src_type, 4, head);
    GF_WALK(range, 4, head, alike, 2, struct accumulate_some, accumulate_load, accumulate_pack,
            GF_NO_LOOK, accumulate_one, r, src - dst, src_type);
}

GF_INLINE void accumulate_type(uint32_t src_type, const struct gf_accumulate_args *r)
{
    GF_RANGES(&r->chunks, r->elem_count, accumulate_range, src_type, &r->of);
}

#define ACCUMULATE(name, type)                  \
    GF_KERNEL_OF(accumulate_##name, accumulate) \
    {                                           \
        accumulate_type(type, &args);           \
    }
GF_EACH_TYPE(ACCUMULATE)
