/* Zeroes listed chunks; a whole range is the driver's own work. */
#include "ops/element/cuda/device.cuh"

struct zero_some {
    char none;
};

GF_INLINE void zero_load(struct zero_some *some, uint64_t i, int count, uint64_t dst, uint32_t type)
{
    (void)some, (void)i, (void)count, (void)dst, (void)type;
}

GF_INLINE void zero_finish(struct zero_some *some, uint64_t i, int count, uint64_t dst, uint32_t type)
{
    const float zeroes[GF_PACK_MAX] = {0, 0, 0, 0, 0, 0, 0, 0};
    (void)some;
    gf_pack_store(type, dst, i, zeroes, count);
}

GF_INLINE void zero_type(uint32_t type, uint64_t dst, uint64_t elem_count)
{
    const int pack = 16 / (int)gf_bytes(type);
    struct gf_walk walk = gf_walk_make(threadIdx.x, blockDim.x, elem_count, pack, gf_head(dst, type, pack), 1);
    GF_WALK(walk, pack, 1, struct zero_some, zero_load, zero_finish, dst, type);
}

GF_KERNEL(zero_chunks)
{
    uint64_t tiles = gf_tiles(&args.chunks) * args.chunks.count;
    for (uint64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        struct gf_tile tile = gf_tile_at(&args.chunks, t);
        GF_TYPES(args.type, zero_type, args.dst + tile.dst * gf_bytes(args.type), tile.count);
    }
}
