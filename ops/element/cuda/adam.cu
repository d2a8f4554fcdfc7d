/* AdamW and LAMB in one pass, with a trust ratio that lies in memory. Square root and division are rounded correctly by
 * nvcc's defaults. */
#include "ops/element/cuda/device.cuh"

struct adam_some {
    struct gf_pack weight, moment1, moment2, gradient;
};

/* What one element becomes. */
struct adam_one {
    float m, v, direction, weight;
};

GF_INLINE float adam_sqrt(float a, int exact)
{
    float result = gf_raw(sqrtf(a));
    return exact ? gf_exact(result, a, a) : result;
}

GF_INLINE float adam_div(float a, float b, int exact)
{
    float result = gf_raw(a / b);
    return exact ? gf_exact(result, a, b) : result;
}

GF_INLINE void adam_load(struct adam_some *some, uint64_t i, int count, const struct gf_adam_args *r,
                         uint32_t gradient_type, float rate)
{
    (void)rate;
    gf_pack_load(&some->weight, GF_KERNEL_F32, r->weight, i, count);
    gf_pack_load(&some->moment1, GF_KERNEL_F32, r->moment1, i, count);
    gf_pack_load(&some->moment2, GF_KERNEL_F32, r->moment2, i, count);
    if (r->gradient != 0) gf_pack_load(&some->gradient, gradient_type, r->gradient, i, count);
}

GF_INLINE struct adam_one adam_make(const struct adam_some *some, int e, const struct gf_adam_args *r, float rate,
                                    uint32_t gradient_type, int exact)
{
    struct adam_one to;
    float below, weight = gf_pack_get(&some->weight, GF_KERNEL_F32, e);
    to.m = gf_pack_get(&some->moment1, GF_KERNEL_F32, e);
    to.v = gf_pack_get(&some->moment2, GF_KERNEL_F32, e);
    if (r->gradient != 0) {
        float g = gf_mul(r->gradient_scale, gf_pack_get(&some->gradient, gradient_type, e), exact);
        to.m = gf_add(gf_mul(r->beta1, to.m, exact), gf_mul(r->keep1, g, exact), exact);
        to.v = gf_add(gf_mul(r->beta2, to.v, exact), gf_mul(gf_mul(r->keep2, g, exact), g, exact), exact);
    }
    below = gf_add(gf_mul(r->correct2, adam_sqrt(to.v, exact), exact), r->epsilon, exact);
    to.direction = gf_add(adam_div(gf_mul(r->correct1, to.m, exact), below, exact), gf_mul(r->decay, weight, exact),
                          exact);
    to.weight = gf_sub(weight, gf_mul(rate, to.direction, exact), exact);
    return to;
}

GF_INLINE void adam_finish(struct adam_some *some, uint64_t i, int count, const struct gf_adam_args *r,
                           uint32_t gradient_type, float rate)
{
    float m[4], v[4], direction[4], weight[4];
    GF_UNROLL
    for (int e = 0; e < count; e++) {
        struct adam_one to = adam_make(some, e, r, rate, gradient_type, 0);
        if ((to.weight != to.weight) || (to.v != to.v)) to = adam_make(some, e, r, rate, gradient_type, 1);
        m[e] = to.m, v[e] = to.v, direction[e] = to.direction, weight[e] = to.weight;
    }
    if (r->gradient != 0) {
        gf_pack_store(GF_KERNEL_F32, r->moment1, i, m, count);
        gf_pack_store(GF_KERNEL_F32, r->moment2, i, v, count);
    }
    if (r->direction != 0) {
        gf_pack_store(GF_KERNEL_F32, r->direction, i, direction, count);
        return;
    }
    gf_pack_store(GF_KERNEL_F32, r->weight, i, weight, count);
    if (r->half == 0) return;
    if (r->half_type == GF_KERNEL_F16) gf_pack_store(GF_KERNEL_F16, r->half, i, weight, count);
    else if (r->half_type == GF_KERNEL_BF16) gf_pack_store(GF_KERNEL_BF16, r->half, i, weight, count);
    else gf_pack_store(GF_KERNEL_F32, r->half, i, weight, count);
}

GF_INLINE void adam_type(uint32_t gradient_type, const struct gf_adam_args *r, float rate)
{
    uint32_t head = gf_head(r->weight, GF_KERNEL_F32, 4);
    int alike = gf_alike(r->moment1, GF_KERNEL_F32, 4, head) && gf_alike(r->moment2, GF_KERNEL_F32, 4, head) &&
                gf_alike(r->half, r->half_type, 4, head) && gf_alike(r->gradient, gradient_type, 4, head) &&
                gf_alike(r->direction, GF_KERNEL_F32, 4, head);
    struct gf_walk walk = gf_walk_make(gf_thread(), gf_threads(), r->elem_count, 4, head, alike);
    GF_WALK(walk, 4, 2, struct adam_some, adam_load, adam_finish, r, gradient_type, rate);
}

GF_KERNEL(adam)
{
    float rate = (args.ratio != 0) ? args.rate * *(const float *)args.ratio : args.rate;
    GF_TYPES(args.gradient_type, adam_type, &args, rate);
}
