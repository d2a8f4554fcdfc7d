/* Zeroes listed chunks of 16-bit elements; a whole range is the driver's own work. */
#include "ops/element/cuda/device.cuh"

GF_INLINE void zero_single(uint64_t i, uint64_t dst)
{
    ((uint16_t *)dst)[i] = 0;
}

GF_INLINE void zero_load(struct gf_pack *some, uint64_t i, uint64_t dst)
{
}

GF_INLINE int zero_pack(struct gf_pack *some, uint64_t i, uint64_t dst)
{
    const uint32_t words[4] = {0, 0, 0, 0};
    gf_line_store(dst + i * 2u, words);
    return 1;
}

GF_INLINE void zero_range(struct gf_range *range, uint64_t dst)
{
    const uint32_t head = gf_head(dst + range->first * 2u, GF_KERNEL_F16, 8);
    GF_WALK(range, 8, head, 1, 1, struct gf_pack, zero_load, zero_pack, GF_NO_LOOK, zero_single,
            dst);
}

GF_KERNEL(zero_chunks)
{
    GF_RANGES(&args.chunks, 0, zero_range, args.dst);
}
