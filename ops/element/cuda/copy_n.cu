/* Several ranges copied at once, each by its own blocks: those of peers come over as many links. */
#include "ops/element/cuda/device.cuh"

#define HALVES 8 /* of a pack */

GF_INLINE void copy_n_load(struct gf_pack *some, uint64_t i, uint64_t dst, uint64_t src)
{
    gf_line_load(some->words, src + i * 2u);
}

GF_INLINE int copy_n_pack(struct gf_pack *some, uint64_t i, uint64_t dst, uint64_t src)
{
    gf_line_store(dst + i * 2u, some->words);
    return 1;
}

GF_INLINE void copy_n_one(uint64_t i, uint64_t dst, uint64_t src)
{
    ((uint16_t *)dst)[i] = ((const uint16_t *)src)[i];
}

GF_KERNEL_CHANNEL(copy_n, copy_n)
{
    const uint32_t entry = blockIdx.x % args.count;
    const uint64_t dst = args.dst[entry], src = args.src[entry];
    const uint64_t worker = (uint64_t)(blockIdx.x / args.count) * blockDim.x + threadIdx.x;
    struct gf_range range = {0, 0, args.bytes[entry] / 2u, worker,
                             (uint64_t)(gridDim.x / args.count) * blockDim.x};
    const uint32_t head = gf_head(src, GF_KERNEL_F16, HALVES);
    const int alike = gf_alike(dst, 0, GF_KERNEL_F16, HALVES, head);
    GF_WALK(&range, HALVES, head, alike, GF_KERNEL_AHEAD_MAX, struct gf_pack, copy_n_load,
            copy_n_pack, GF_NO_LOOK, copy_n_one, dst, src);
}
