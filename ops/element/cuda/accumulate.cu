/* Sparse history: h' = h + (momentum * u + g), flat and of listed chunks. */
#include "ops/element/cuda/device.cuh"

struct accumulate_some {
    struct gf_pack src, weight, u, h;
};

GF_INLINE void accumulate_load(struct accumulate_some *some, uint64_t i, int count, const struct gf_accumulate_args *r,
                               uint32_t src_type)
{
    gf_pack_load(&some->src, src_type, r->src, i, count);
    if (r->weight != 0) gf_pack_load(&some->weight, GF_KERNEL_F32, r->weight, i, count);
    if (r->u != 0) gf_pack_load(&some->u, GF_KERNEL_F32, r->u, i, count);
    gf_pack_load(&some->h, GF_KERNEL_F32, r->h, i, count);
}

/* u' in *u, h' returned. */
GF_INLINE float accumulate_one(const struct accumulate_some *some, int e, const struct gf_accumulate_args *r, float *u,
                               uint32_t src_type, int exact)
{
    float g = gf_mul(r->scale, gf_pack_get(&some->src, src_type, e), exact);
    if (r->weight != 0) g = gf_add(g, gf_mul(r->decay, gf_pack_get(&some->weight, GF_KERNEL_F32, e), exact), exact);
    if (r->u != 0) g = gf_add(gf_mul(r->momentum, gf_pack_get(&some->u, GF_KERNEL_F32, e), exact), g, exact);
    *u = g;
    return gf_add(gf_pack_get(&some->h, GF_KERNEL_F32, e), g, exact);
}

GF_INLINE void accumulate_finish(struct accumulate_some *some, uint64_t i, int count,
                                 const struct gf_accumulate_args *r, uint32_t src_type)
{
    float h[4], u[4];
    GF_UNROLL
    for (int e = 0; e < count; e++) {
        h[e] = accumulate_one(some, e, r, &u[e], src_type, 0);
        if (h[e] != h[e]) h[e] = accumulate_one(some, e, r, &u[e], src_type, 1);
    }
    if (r->dst_u != 0) gf_pack_store(GF_KERNEL_F32, r->dst_u, i, u, count);
    gf_pack_store(GF_KERNEL_F32, r->dst_h, i, h, count);
}

GF_INLINE void accumulate_walk(uint32_t src_type, const struct gf_accumulate_args *r, uint64_t worker, uint64_t workers)
{
    uint32_t head = gf_head(r->h, GF_KERNEL_F32, 4);
    int alike = gf_alike(r->dst_h, GF_KERNEL_F32, 4, head) && gf_alike(r->dst_u, GF_KERNEL_F32, 4, head) &&
                gf_alike(r->u, GF_KERNEL_F32, 4, head) && gf_alike(r->weight, GF_KERNEL_F32, 4, head) &&
                gf_alike(r->src, src_type, 4, head);
    struct gf_walk walk = gf_walk_make(worker, workers, r->elem_count, 4, head, alike);
    GF_WALK(walk, 4, 2, struct accumulate_some, accumulate_load, accumulate_finish, r, src_type);
}

GF_KERNEL(accumulate)
{
    GF_TYPES(args.src_type, accumulate_walk, &args, gf_thread(), gf_threads());
}

GF_KERNEL(accumulate_chunks)
{
    uint64_t tiles = gf_tiles(&args.chunks) * args.chunks.count;
    for (uint64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        struct gf_tile tile = gf_tile_at(&args.chunks, t);
        struct gf_accumulate_args part = args.accumulate;
        part.dst_h += tile.dst * 4u;
        part.h += tile.src * 4u;
        if (part.dst_u != 0) part.dst_u += tile.dst * 4u;
        if (part.u != 0) part.u += tile.src * 4u;
        if (part.weight != 0) part.weight += tile.src * 4u;
        part.src += tile.src * gf_bytes(part.src_type);
        part.elem_count = tile.count;
        GF_TYPES(part.src_type, accumulate_walk, &part, threadIdx.x, blockDim.x);
    }
}
