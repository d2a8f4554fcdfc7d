/* A read-only sweep: 16 bytes a thread, four of them under way, as the kernels of ops/ read. What was read stays alive
 * by a store that a sweep over zeroes never makes. Compiled like those kernels. */
#include "ops/element/cuda/device.cuh"
#include "firmware-tests/cuda/sweep.h"

GF_INLINE void sweep_load(struct gf_pack *some, uint64_t i, int count, const struct gf_sweep_args *r, uint32_t *bits)
{
    (void)bits;
    gf_pack_load(some, GF_KERNEL_F32, r->words, i, count);
}

GF_INLINE void sweep_finish(struct gf_pack *some, uint64_t i, int count, const struct gf_sweep_args *r, uint32_t *bits)
{
    (void)i;
    (void)r;
    GF_UNROLL
    for (int e = 0; e < count; e++) *bits |= some->words[e];
}

GF_KERNEL(sweep)
{
    uint32_t bits = 0;
    uint32_t head = gf_head(args.words, GF_KERNEL_F32, 4u);
    struct gf_walk walk = gf_walk_make(gf_thread(), gf_threads(), args.word_count, 4u, head, 1);
    GF_WALK(walk, 4, 4, struct gf_pack, sweep_load, sweep_finish, &args, &bits);
    if ((bits & args.mask) != 0) atomicAdd((unsigned long long *)args.meetings, 1ull);
}
