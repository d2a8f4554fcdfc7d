/* dst = round(src * scale): flat, and of listed chunks. */
#include "ops/element/cuda/device.cuh"

struct cast_some {
    struct gf_pack src;
};

GF_INLINE void cast_load(struct cast_some *some, uint64_t i, int count, const struct gf_cast_args *r, uint32_t dst_type,
                         uint32_t src_type, struct gf_found *found)
{
    (void)dst_type;
    (void)found;
    gf_pack_load(&some->src, src_type, r->src, i, count);
}

GF_INLINE void cast_finish(struct cast_some *some, uint64_t i, int count, const struct gf_cast_args *r,
                           uint32_t dst_type, uint32_t src_type, struct gf_found *found)
{
    float value[GF_PACK_MAX];
    GF_UNROLL
    for (int e = 0; e < count; e++) {
        value[e] = gf_mul(gf_pack_get(&some->src, src_type, e), r->scale, 1);
        gf_found_look(found, dst_type, value[e], r->base + i + (uint64_t)e);
    }
    gf_pack_store(dst_type, r->dst, i, value, count);
}

GF_INLINE void cast_walk(uint32_t src_type, uint32_t dst_type, const struct gf_cast_args *r, uint64_t worker,
                         uint64_t workers, struct gf_found *found)
{
    const int pack = (gf_bytes(dst_type) + gf_bytes(src_type) == 4) ? 8 : 4;
    uint32_t head = gf_head(r->dst, dst_type, pack);
    struct gf_walk walk =
        gf_walk_make(worker, workers, r->elem_count, pack, head, gf_alike(r->src, src_type, pack, head));
    GF_WALK(walk, pack, 4, struct cast_some, cast_load, cast_finish, r, dst_type, src_type, found);
}

GF_INLINE void cast_to(uint32_t dst_type, const struct gf_cast_args *r, uint64_t worker, uint64_t workers,
                       struct gf_found *found)
{
    GF_TYPES(r->src_type, cast_walk, dst_type, r, worker, workers, found);
}

GF_KERNEL(cast)
{
    struct gf_found found = {0, ~0ull};
    GF_TYPES(args.dst_type, cast_to, &args, gf_thread(), gf_threads(), &found);
    gf_found_tell(&found, args.check);
}

GF_KERNEL(cast_chunks)
{
    struct gf_found found = {0, ~0ull};
    uint64_t tiles = gf_tiles(&args.chunks) * args.chunks.count;
    for (uint64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        struct gf_tile tile = gf_tile_at(&args.chunks, t);
        struct gf_cast_args part = args.cast;
        part.dst += tile.dst * gf_bytes(part.dst_type);
        part.src += tile.src * gf_bytes(part.src_type);
        part.base += tile.src;
        part.elem_count = tile.count;
        GF_TYPES(part.dst_type, cast_to, &part, threadIdx.x, blockDim.x, &found);
    }
    gf_found_tell(&found, args.cast.check);
}
