/* Momentum SGD in one pass, with a trust ratio that lies in memory; flat and of listed chunks. */
#include "ops/element/cuda/device.cuh"

struct update_some {
    struct gf_pack weight, momentum, gradient;
};

GF_INLINE void update_load(struct update_some *some, uint64_t i, int count, const struct gf_update_args *r,
                           uint32_t gradient_type, float rate_in)
{
    (void)rate_in;
    gf_pack_load(&some->weight, GF_KERNEL_F32, r->weight, i, count);
    gf_pack_load(&some->gradient, gradient_type, r->gradient, i, count);
    if (r->momentum_at != 0) gf_pack_load(&some->momentum, GF_KERNEL_F32, r->momentum_at, i, count);
}

/* v in *v, the weight returned. */
GF_INLINE float update_one(const struct update_some *some, int e, const struct gf_update_args *r, float rate_in,
                           float *v, uint32_t gradient_type, int exact)
{
    float weight = gf_pack_get(&some->weight, GF_KERNEL_F32, e);
    float g = gf_add(gf_mul(r->gradient_scale, gf_pack_get(&some->gradient, gradient_type, e), exact),
                     gf_mul(r->decay, weight, exact), exact);
    float d = g = gf_mul(rate_in, g, exact);
    if (r->momentum_at != 0) {
        *v = gf_add(gf_mul(r->momentum, gf_pack_get(&some->momentum, GF_KERNEL_F32, e), exact), g, exact);
        d = r->nesterov ? gf_add(gf_mul(r->momentum, *v, exact), g, exact) : *v;
    }
    return gf_sub(weight, gf_mul(r->rate_out, d, exact), exact);
}

GF_INLINE void update_finish(struct update_some *some, uint64_t i, int count, const struct gf_update_args *r,
                             uint32_t gradient_type, float rate_in)
{
    float weight[4], v[4] = {0, 0, 0, 0};
    GF_UNROLL
    for (int e = 0; e < count; e++) {
        weight[e] = update_one(some, e, r, rate_in, &v[e], gradient_type, 0);
        if (weight[e] != weight[e]) weight[e] = update_one(some, e, r, rate_in, &v[e], gradient_type, 1);
    }
    if (r->momentum_at != 0) gf_pack_store(GF_KERNEL_F32, r->momentum_at, i, v, count);
    gf_pack_store(GF_KERNEL_F32, r->weight, i, weight, count);
    if (r->half == 0) return;
    if (r->half_type == GF_KERNEL_F16) gf_pack_store(GF_KERNEL_F16, r->half, i, weight, count);
    else if (r->half_type == GF_KERNEL_BF16) gf_pack_store(GF_KERNEL_BF16, r->half, i, weight, count);
    else gf_pack_store(GF_KERNEL_F32, r->half, i, weight, count);
}

GF_INLINE void update_type(uint32_t gradient_type, const struct gf_update_args *r, float rate_in, uint64_t worker,
                           uint64_t workers)
{
    uint32_t head = gf_head(r->weight, GF_KERNEL_F32, 4);
    int alike = gf_alike(r->momentum_at, GF_KERNEL_F32, 4, head) && gf_alike(r->half, r->half_type, 4, head) &&
                gf_alike(r->gradient, gradient_type, 4, head);
    struct gf_walk walk = gf_walk_make(worker, workers, r->elem_count, 4, head, alike);
    GF_WALK(walk, 4, 2, struct update_some, update_load, update_finish, r, gradient_type, rate_in);
}

GF_INLINE float update_rate_in(const struct gf_update_args *r)
{
    return (r->ratio != 0) ? r->rate_in * *(const float *)r->ratio : r->rate_in;
}

GF_KERNEL(update)
{
    GF_TYPES(args.gradient_type, update_type, &args, update_rate_in(&args), gf_thread(), gf_threads());
}

GF_KERNEL(update_chunks)
{
    uint64_t tiles = gf_tiles(&args.chunks) * args.chunks.count;
    float rate_in = update_rate_in(&args.update);
    for (uint64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        struct gf_tile tile = gf_tile_at(&args.chunks, t);
        struct gf_update_args part = args.update;
        part.weight += tile.dst * 4u;
        if (part.momentum_at != 0) part.momentum_at += tile.dst * 4u;
        if (part.half != 0) part.half += tile.dst * gf_bytes(part.half_type);
        part.gradient += tile.dst * gf_bytes(part.gradient_type);
        part.elem_count = tile.count;
        GF_TYPES(part.gradient_type, update_type, &part, rate_in, threadIdx.x, blockDim.x);
    }
}
