/* AdamW in one pass. Square root and division are rounded correctly by nvcc's defaults. */
#include "ops/element/cuda/device.cuh"

struct adam_some {
    struct gf_pack weight, moment1, moment2, gradient;
};

/* One element, before and after. */
struct adam_one {
    float m, v, weight;
};

GF_INLINE struct adam_one adam_rule(const struct gf_adam *r, struct adam_one to, float gradient)
{
    float g = r->gradient_scale * gradient;
    to.m = r->beta1 * to.m + r->keep1 * g;
    to.v = r->beta2 * to.v + r->keep2 * g * g;
    float below = r->correct2 * sqrtf(to.v) + r->epsilon;
    float direction = r->correct1 * to.m / below + r->decay * to.weight;
    to.weight = to.weight - r->rate * direction;
    return to;
}

GF_INLINE void adam_single(uint64_t i, const struct gf_adam *r, uint32_t gradient_type)
{
    struct adam_one to;
    to.m = gf_one_load(GF_KERNEL_F32, r->moment1_f32, i);
    to.v = gf_one_load(GF_KERNEL_F32, r->moment2_f32, i);
    to.weight = gf_one_load(GF_KERNEL_F32, r->weight_f32, i);
    to = adam_rule(r, to, gf_one_load(gradient_type, r->gradient, i));
    gf_one_store(GF_KERNEL_F32, r->moment1_f32, i, to.m);
    gf_one_store(GF_KERNEL_F32, r->moment2_f32, i, to.v);
    gf_one_store(GF_KERNEL_F32, r->weight_f32, i, to.weight);
    if (r->half != 0) gf_one_store(r->half_type, r->half, i, to.weight);
}

GF_INLINE void adam_load(struct adam_some *some, uint64_t i, const struct gf_adam *r,
                         uint32_t gradient_type)
{
    gf_pack_load(&some->weight, GF_KERNEL_F32, r->weight_f32, i, 4);
    gf_pack_load(&some->moment1, GF_KERNEL_F32, r->moment1_f32, i, 4);
    gf_pack_load(&some->moment2, GF_KERNEL_F32, r->moment2_f32, i, 4);
    gf_pack_load(&some->gradient, gradient_type, r->gradient, i, 4);
}

GF_INLINE int adam_pack(struct adam_some *some, uint64_t i, const struct gf_adam *r,
                        uint32_t gradient_type)
{
    float m[4], v[4], weight[4];
    GF_UNROLL
    for (int e = 0; e < 4; e++) {
        struct adam_one to;
        to.m = gf_pack_get(&some->moment1, GF_KERNEL_F32, e);
        to.v = gf_pack_get(&some->moment2, GF_KERNEL_F32, e);
        to.weight = gf_pack_get(&some->weight, GF_KERNEL_F32, e);
        to = adam_rule(r, to, gf_pack_get(&some->gradient, gradient_type, e));
        m[e] = to.m;
        v[e] = to.v;
        weight[e] = to.weight;
    }
    gf_pack_store(GF_KERNEL_F32, r->moment1_f32, i, m, 4);
    gf_pack_store(GF_KERNEL_F32, r->moment2_f32, i, v, 4);
    gf_pack_store(GF_KERNEL_F32, r->weight_f32, i, weight, 4);
    if (r->half != 0) gf_four_store(r->half_type, r->half, i, weight);
    return 1;
}

GF_INLINE void adam_type(uint32_t gradient_type, const struct gf_adam *r, uint64_t elem_count)
{
    const uint32_t head = gf_head(r->weight_f32, GF_KERNEL_F32, 4);
    const int alike = gf_alike(r->moment1_f32, 0, GF_KERNEL_F32, 4, head) &&
                      gf_alike(r->moment2_f32, 0, GF_KERNEL_F32, 4, head) &&
                      gf_alike(r->half, 0, r->half_type, 4, head) &&
                      gf_alike(r->gradient, 0, gradient_type, 4, head);
    struct gf_range range = gf_flat(elem_count);
    GF_WALK(&range, 4, head, alike, 1, struct adam_some, adam_load, adam_pack, GF_NO_LOOK,
            adam_single, r, gradient_type);
}

#define ADAM(name, type)                            \
    GF_KERNEL_OF(adam_##name, adam)                 \
    {                                               \
        adam_type(type, &args.of, args.elem_count); \
    }
GF_EACH_TYPE(ADAM)
