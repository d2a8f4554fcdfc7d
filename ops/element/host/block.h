/* Element ops that are more than one load and one store work in fp32 alone: what is stored in 16
 * bits passes through a block of floats that stays in the first-level cache. So each of them is one
 * loop, not one for each pair of types. */
#ifndef GF_BLOCK_H
#define GF_BLOCK_H
#include "ops/element/host/vec.h"

#define BLOCK_ELEMS 256u /* 1 KiB of the caller's stack */

struct block {
    float value[BLOCK_ELEMS];
};

VEC_INLINE void convert(uint8_t *dst, gf_type dst_type, const uint8_t *src, gf_type src_type,
                        uint32_t count)
{
    uint32_t i = 0;
    for (; count - i >= VEC_ELEMS; i += VEC_ELEMS)
        vec_store(dst_type, dst, i, VEC_ELEMS,
                  vec_quiet(dst_type, vec_load(src_type, src, i, VEC_ELEMS)));
    if (i < count)
        vec_store(dst_type, dst, i, count - i,
                  vec_quiet(dst_type, vec_load(src_type, src, i, count - i)));
}

VEC_FN gf_mem block_widen(struct block *block, gf_type type, const uint8_t *src, uint32_t count)
{
    if (type == GF_TYPE_F16)
        convert((uint8_t *)block, GF_TYPE_F32, src, GF_TYPE_F16, count);
    else
        convert((uint8_t *)block, GF_TYPE_F32, src, GF_TYPE_BF16, count);
    return (gf_mem)(uintptr_t)block;
}

/* src as floats: where they are, or in the block. */
VEC_INLINE gf_mem block_load(struct block *block, gf_type type, gf_mem src, uint32_t count)
{
    return (type == GF_TYPE_F32) ? src : block_widen(block, type, gf_host_at(src), count);
}

/* dst = round(floats). */
VEC_FN void block_store(gf_type type, uint8_t *dst, const uint8_t *floats, uint32_t count)
{
    if (type == GF_TYPE_F16)
        convert(dst, GF_TYPE_F16, floats, GF_TYPE_F32, count);
    else if (type == GF_TYPE_BF16)
        convert(dst, GF_TYPE_BF16, floats, GF_TYPE_F32, count);
    else
        memcpy(dst, floats, count * sizeof(float));
}

/* From element `first` on; 0 where there is none. */
static inline gf_mem floats_from(gf_mem base, uint64_t first)
{
    return (base == 0) ? 0 : base + first * sizeof(float);
}

VEC_INLINE vec floats_load(gf_mem base, uint64_t i, uint32_t count)
{
    return vec_load(GF_TYPE_F32, gf_host_at(base), i, count);
}

VEC_INLINE void floats_store(gf_mem base, uint64_t i, uint32_t count, vec a)
{
    vec_store(GF_TYPE_F32, gf_host_at(base), i, count, a);
}

/* A trust ratio; 1 where there is none. */
static inline float ratio_at(gf_mem ratio_f32)
{
    float ratio = 1;
    if (ratio_f32 != 0) memcpy(&ratio, gf_host_at(ratio_f32), sizeof ratio);
    return ratio;
}

static inline uint32_t block_elems(uint64_t left)
{
    return (left < BLOCK_ELEMS) ? (uint32_t)left : BLOCK_ELEMS;
}

#endif
