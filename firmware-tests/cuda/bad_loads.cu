/* Kernels as they must not be, for kernel_loads.py: each has one of the faults that it looks for,
 * in nvcc's PTX and in machine code. */
#include "ops/element/cuda/device.cuh"

GF_INLINE void add_source(float sum[8], const struct gf_sum_n_args *r, uint32_t s, uint64_t i)
{
    struct gf_pack from;
    gf_pack_load(&from, GF_KERNEL_BF16, r->src[s], i, 8);
    GF_UNROLL
    for (int e = 0; e < 8; e++) sum[e] = sum[e] + gf_pack_get(&from, GF_KERNEL_BF16, e);
}

/* What sum_n once did: it waits for its first source before it loads the last one. */
GF_KERNEL_OF(waits, sum_n)
{
    for (uint64_t i = gf_thread() * 8; i < args.elem_count; i += gf_threads() * 8) {
        float sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
        add_source(sum, &args, 0, i);
        GF_ROLLED
        for (uint32_t s = 2; s < args.src_count; s++) add_source(sum, &args, s, i);
        add_source(sum, &args, 1, i);
        gf_pack_store(GF_KERNEL_BF16, args.dst[0], i, sum, 8);
    }
}

GF_KERNEL_OF(fuses, sum)
{
    const uint64_t i = gf_thread();
    if (i < args.elem_count)
        ((float *)args.dst)[i] = fmaf(((const float *)args.src)[i], 3.0f, 0.1f);
}

/* 16 bytes are loaded, and stored 4 at a time. */
GF_KERNEL_OF(narrow, sum)
{
    for (uint64_t i = gf_thread() * 4; i < args.elem_count; i += gf_threads() * 4) {
        struct gf_pack from;
        gf_pack_load(&from, GF_KERNEL_F32, args.src, i, 4);
        for (int e = 0; e < 4; e++)
            ((volatile float *)args.dst)[i + (uint64_t)e] = gf_pack_get(&from, GF_KERNEL_F32, e);
    }
}

/* And one that may be as it is: both loads, then both uses. */
GF_KERNEL_OF(fine, sum_n)
{
    for (uint64_t i = gf_thread() * 4; i < args.elem_count; i += gf_threads() * 4) {
        struct gf_pack from[2];
        float sum[4];
        for (int s = 0; s < 2; s++) gf_pack_load(&from[s], GF_KERNEL_F32, args.src[s], i, 4);
        for (int e = 0; e < 4; e++)
            sum[e] =
                gf_pack_get(&from[0], GF_KERNEL_F32, e) + gf_pack_get(&from[1], GF_KERNEL_F32, e);
        gf_pack_store(GF_KERNEL_F32, args.dst[0], i, sum, 4);
    }
}
