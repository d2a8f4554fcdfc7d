/* Fewer bits: 16 threads a group, each the same share of its payload. */
#include "ops/element/cuda/lanes.cuh"

#define GROUP_THREADS 16u
/* 1.5 * 2^23: adding it rounds to nearest even, into the lowest bits */
#define QUANTIZE_ROUND 12582912.0f
#define QUANTIZE_LEAST 0x1p-100f
#define QUANTIZE_INFINITE 0x7f800000u

GF_INLINE uint32_t group_mask(void)
{
    return 0xffffu << (threadIdx.x % 32u / GROUP_THREADS * GROUP_THREADS);
}

/* To all threads of the group: bits of the largest magnitude of all. */
GF_INLINE uint32_t group_most(uint32_t most)
{
    GF_UNROLL
    for (uint32_t half = GROUP_THREADS / 2; half > 0; half /= 2) {
        uint32_t other =
            gf_bits(__shfl_down_sync(group_mask(), gf_of_bits(most), half, GROUP_THREADS));
        if (other > most) most = other;
    }
    return gf_bits(__shfl_sync(group_mask(), gf_of_bits(most), 0, GROUP_THREADS));
}

/* What a thread has of one value: its payload bits. *value becomes the error. */
GF_INLINE uint32_t quantize_one(const struct gf_groups_args *r, float *value, float scale, float by)
{
    if (r->bits == 8) {
        float q = ((*value * by) + QUANTIZE_ROUND);
        *value = (*value - ((q - QUANTIZE_ROUND) * scale));
        return gf_bits(q) & 0xffu;
    }
    uint32_t negative = gf_bits(*value) >> 31;
    *value = (*value - (negative ? -scale : scale));
    return negative;
}

/* sum: of the magnitudes, in the first thread. */
GF_INLINE void quantize_group(const struct gf_groups_args *r, uint64_t group, float sum,
                              struct gf_found *found)
{
    const uint32_t share = r->elems / GROUP_THREADS, part = threadIdx.x % GROUP_THREADS;
    const uint64_t first = group * r->elems,
                   at = r->groups + group * (4u + r->elems * r->bits / 8u);
    const uint64_t count = (r->elem_count - first < r->elems) ? r->elem_count - first : r->elems;
    float *value = (float *)r->values + first;
    uint8_t *to = (uint8_t *)(at + 4u + part * share * r->bits / 8u);
    uint32_t most = 0, begin = part * share;
    float scale;
    for (uint32_t i = begin; (i < begin + share) && (i < count); i++) {
        uint32_t bits = gf_bits(value[i]) & 0x7fffffffu;
        if (bits >= QUANTIZE_INFINITE) gf_found_one(found, 1, r->base + first + i);
        if (bits > most) most = bits;
    }
    most = group_most(most);
    scale = gf_of_bits(most) / 127.0f;
    if (r->bits == 1) scale = __shfl_sync(group_mask(), sum, 0, GROUP_THREADS) / (float)count;
    if ((most >= QUANTIZE_INFINITE) ||
        !(((r->bits == 1) ? scale : gf_of_bits(most)) >= QUANTIZE_LEAST) ||
        (gf_bits(scale) >= QUANTIZE_INFINITE)) {
        if (part == 0) *(float *)at = 0.0f;
        for (uint32_t b = 0; b < share * r->bits / 8u; b++) to[b] = 0;
        return;
    }
    if (part == 0) *(float *)at = scale;
    for (uint32_t b = 0; b < share * r->bits / 8u; b++) {
        uint32_t byte = 0;
        for (uint32_t e = 0; e < 8u / r->bits; e++) {
            uint32_t i = begin + b * 8u / r->bits + e;
            if (i < count)
                byte |= quantize_one(r, &value[i], scale, 127.0f / gf_of_bits(most)) << e;
        }
        to[b] = (uint8_t)byte;
    }
}

GF_KERNEL_BOUND(quantize, groups, 2)
{
    const uint64_t groups = (args.elem_count - 1) / args.elems + 1;
    struct gf_found found = {0, ~0ull};
    for (uint64_t turn = 0; (turn + blockIdx.x * blockDim.x) / GROUP_THREADS < groups;
         turn += gf_threads()) {
        uint64_t group = (turn + gf_thread()) / GROUP_THREADS, first = group * args.elems;
        uint64_t left = args.elem_count - first;
        float sum = 0.0f;
        if ((args.bits == 1) && (group < groups))
            sum = gf_lanes_sum(GF_KERNEL_F32, args.values + first * 4u,
                               (left < args.elems) ? left : args.elems, 0);
        __syncthreads(); /* what was added by lanes is written by shares */
        if (group < groups) quantize_group(&args, group, sum, &found);
    }
    gf_found_tell(&found, args.check);
}

GF_KERNEL_OF(dequantize, groups)
{
    for (uint64_t i = gf_thread(); i < args.elem_count; i += gf_threads()) {
        const uint64_t at = args.groups + i / args.elems * (4u + args.elems * args.bits / 8u);
        const uint32_t e = (uint32_t)(i % args.elems);
        const uint8_t *from = (const uint8_t *)(at + 4u);
        float scale = *(const float *)at, value, *dst = (float *)args.values + i;
        if (args.bits == 8)
            value = ((float)(int8_t)from[e] * scale);
        else
            value = ((from[e / 8] >> (e % 8)) & 1u) ? -scale : scale;
        value = (value * args.factor);
        *dst = args.add ? *dst + value : value;
    }
}
