/* A read-only sweep: 16 bytes a thread, four of them under way, as the kernels of ops/ read. What was read stays alive
 * by a store that a sweep over zeroes never makes. Compiled like those kernels. */
#include "ops/element/cuda/device.cuh"
#include "firmware-tests/cuda/sweep.h"

GF_INLINE void sweep_load(struct gf_pack *some, uint64_t i, uint64_t words, uint32_t *bits)
{
    (void)bits;
    gf_pack_load(some, GF_KERNEL_F32, words, i, 4);
}

GF_INLINE int sweep_pack(struct gf_pack *some, uint64_t i, uint64_t words, uint32_t *bits)
{
    (void)i, (void)words;
    GF_UNROLL
    for (int e = 0; e < 4; e++) *bits |= some->words[e];
    return 1;
}

GF_INLINE void sweep_single(uint64_t i, uint64_t words, uint32_t *bits)
{
    *bits |= ((const uint32_t *)words)[i];
}

GF_KERNEL(sweep)
{
    uint32_t bits = 0;
    const uint32_t head = gf_head(args.words, GF_KERNEL_F32, 4u);
    struct gf_range range = gf_flat(args.word_count);
    GF_WALK(&range, 4, head, 1, 4, struct gf_pack, sweep_load, sweep_pack, sweep_single, args.words, &bits);
    if ((bits & args.mask) != 0) atomicAdd((unsigned long long *)args.meetings, 1ull);
}
