/* See sweep.h: 16 bytes a thread and stream, four of them under way, as the kernels of ops/ read
 * and write. What was read stays alive by a store that is never made. */
#include "ops/element/cuda/device.cuh"
#include "firmware-tests/cuda/sweep.h"

struct sweep_some {
    struct gf_pack in[GF_SWEEP_READS_MAX];
};

GF_INLINE void sweep_load(struct sweep_some *some, uint64_t i, const struct gf_sweep_args *a,
                          int reads, int writes, uint32_t *bits)
{
    (void)writes, (void)bits;
    GF_UNROLL
    for (int r = 0; r < reads; r++) gf_pack_load(&some->in[r], GF_KERNEL_F32, a->src[r], i, 4);
}

GF_INLINE int sweep_pack(struct sweep_some *some, uint64_t i, const struct gf_sweep_args *a,
                         int reads, int writes, uint32_t *bits)
{
    const uint32_t zeroes[4] = {0, 0, 0, 0};
    GF_UNROLL
    for (int r = 0; r < reads; r++) {
        GF_UNROLL
        for (int e = 0; e < 4; e++) *bits |= some->in[r].words[e];
    }
    GF_UNROLL
    for (int w = 0; w < writes; w++)
        gf_line_store(a->dst[w] + i * 4u,
                      (reads > 0) ? some->in[w % (reads + (reads == 0))].words : zeroes);
    return 1;
}

GF_INLINE void sweep_single(uint64_t i, const struct gf_sweep_args *a, int reads, int writes,
                            uint32_t *bits)
{
    uint32_t words[GF_SWEEP_READS_MAX] = {0, 0, 0};
    for (int r = 0; r < reads; r++) *bits |= words[r] = ((const uint32_t *)a->src[r])[i];
    for (int w = 0; w < writes; w++) ((uint32_t *)a->dst[w])[i] = words[w % (reads + (reads == 0))];
}

GF_INLINE void sweep_mix(const struct gf_sweep_args *given, int reads, int writes)
{
    uint32_t bits = 0;
    const uint32_t head = gf_head(0, GF_KERNEL_F32, 4u);
    struct gf_range range = gf_flat(given->word_count);
    GF_WALK(&range, 4, head, 1, GF_KERNEL_AHEAD_MAX, struct sweep_some, sweep_load, sweep_pack,
            GF_NO_LOOK, sweep_single, given, reads, writes, &bits);
    if ((bits & given->mask) != 0) gf_global_add(given->meetings, 1);
}

GF_KERNEL(sweep)
{
#define SWEEP(some_reads, some_writes)                              \
    if ((args.reads == some_reads) && (args.writes == some_writes)) \
        sweep_mix(&args, some_reads, some_writes);
    GF_SWEEP_MIXES(SWEEP)
}
