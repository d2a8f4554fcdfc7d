/* AdamW and LAMB in one pass, with a trust ratio that lies in memory. Square root and division are
 * rounded correctly by nvcc's defaults. */
#include "ops/element/cuda/device.cuh"

struct adam_some {
    struct gf_pack weight, moment1, moment2, gradient;
};

/* One element, before and after. */
struct adam_one {
    float m, v, direction, weight;
};

GF_INLINE struct adam_one adam_rule(const struct gf_adam *r, float rate, struct adam_one to,
                                    float gradient)
{
    if (r->gradient != 0) {
        float g = r->gradient_scale * gradient;
        to.m = r->beta1 * to.m + r->keep1 * g;
        to.v = r->beta2 * to.v + r->keep2 * g * g;
    }
    float below = r->correct2 * sqrtf(to.v) + r->epsilon;
    to.direction = r->correct1 * to.m / below + r->decay * to.weight;
    to.weight = to.weight - rate * to.direction;
    return to;
}

GF_INLINE void adam_single(uint64_t i, const struct gf_adam *r, uint32_t gradient_type, float rate)
{
    struct adam_one to;
    to.m = gf_one_load(GF_KERNEL_F32, r->moment1_f32, i);
    to.v = gf_one_load(GF_KERNEL_F32, r->moment2_f32, i);
    to.weight = gf_one_load(GF_KERNEL_F32, r->weight_f32, i);
    to = adam_rule(r, rate, to,
                   (r->gradient != 0) ? gf_one_load(gradient_type, r->gradient, i) : 0.0f);
    if (r->gradient != 0) gf_one_store(GF_KERNEL_F32, r->moment1_f32, i, to.m);
    if (r->gradient != 0) gf_one_store(GF_KERNEL_F32, r->moment2_f32, i, to.v);
    if (r->direction_f32 != 0)
        gf_one_store(GF_KERNEL_F32, r->direction_f32, i, to.direction);
    else
        gf_one_store(GF_KERNEL_F32, r->weight_f32, i, to.weight);
    if ((r->direction_f32 == 0) && (r->half != 0))
        gf_one_store(r->half_type, r->half, i, to.weight);
}

GF_INLINE void adam_load(struct adam_some *some, uint64_t i, const struct gf_adam *r,
                         uint32_t gradient_type, float rate)
{
    gf_pack_load(&some->weight, GF_KERNEL_F32, r->weight_f32, i, 4);
    gf_pack_load(&some->moment1, GF_KERNEL_F32, r->moment1_f32, i, 4);
    gf_pack_load(&some->moment2, GF_KERNEL_F32, r->moment2_f32, i, 4);
    if (r->gradient != 0) gf_pack_load(&some->gradient, gradient_type, r->gradient, i, 4);
}

GF_INLINE void adam_pack(struct adam_some *some, uint64_t i, const struct gf_adam *r,
                         uint32_t gradient_type, float rate)
{
    float m[4], v[4], direction[4], weight[4];
    GF_UNROLL
    for (int e = 0; e < 4; e++) {
        struct adam_one to;
        to.m = gf_pack_get(&some->moment1, GF_KERNEL_F32, e);
        to.v = gf_pack_get(&some->moment2, GF_KERNEL_F32, e);
        to.weight = gf_pack_get(&some->weight, GF_KERNEL_F32, e);
        to = adam_rule(r, rate, to, gf_pack_get(&some->gradient, gradient_type, e));
        m[e] = to.m;
        v[e] = to.v;
        direction[e] = to.direction;
        weight[e] = to.weight;
    }
    if (r->gradient != 0) {
        gf_pack_store(GF_KERNEL_F32, r->moment1_f32, i, m, 4);
        gf_pack_store(GF_KERNEL_F32, r->moment2_f32, i, v, 4);
    }
    /* Two calls: a pointer chosen between two register arrays would put both on the stack. */
    if (r->direction_f32 != 0) {
        gf_pack_store(GF_KERNEL_F32, r->direction_f32, i, direction, 4);
    } else {
        gf_pack_store(GF_KERNEL_F32, r->weight_f32, i, weight, 4);
        if (r->half != 0) gf_four_store(r->half_type, r->half, i, weight);
    }
}

GF_INLINE void adam_type(uint32_t gradient_type, const struct gf_adam *r, uint64_t elem_count)
{
    const float rate = (r->ratio_f32 != 0) ? r->rate * *(const float *)r->ratio_f32 : r->rate;
    const uint32_t head = gf_head(r->weight_f32, GF_KERNEL_F32, 4);
    const int alike = gf_alike(r->moment1_f32, 0, GF_KERNEL_F32, 4, head) &&
                      gf_alike(r->moment2_f32, 0, GF_KERNEL_F32, 4, head) &&
                      gf_alike(r->half, 0, r->half_type, 4, head) &&
                      gf_alike(r->gradient, 0, gradient_type, 4, head) &&
                      gf_alike(r->direction_f32, 0, GF_KERNEL_F32, 4, head);
    struct gf_range range = gf_flat(elem_count);
    GF_WALK(&range, 4, head, alike, 1, struct adam_some, adam_load, adam_pack, adam_single, r,
            gradient_type, rate);
}

#define ADAM(name, type)                            \
    GF_KERNEL_OF(adam_##name, adam)                 \
    {                                               \
        adam_type(type, &args.of, args.elem_count); \
    }
GF_EACH_TYPE(ADAM)
