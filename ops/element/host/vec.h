/* What all widths share: elements by index, and vectors that are not whole. Included at the end of
 * a vec_*.h; alone it stands on the scalar one. `count` is a constant VEC_ELEMS but at the end of a
 * range, so the branches fold away. */
#include "ops/element/host/vec_scalar.h"
#ifndef GF_VEC_H
#define GF_VEC_H

VEC_INLINE vec vec_add(vec a, vec b)
{
    return a + b;
}
VEC_INLINE vec vec_sub(vec a, vec b)
{
    return a - b;
}
VEC_INLINE vec vec_mul(vec a, vec b)
{
    return a * b;
}
VEC_INLINE vec vec_div(vec a, vec b)
{
    return a / b;
}

/* A NaN as bf16 has it: quiet, with a lower half of zero, as a sum of such values is. Of other NaNs
 * what rounds to bf16 makes anything: a loop over data looks for values that are not finite anyway.
 * A vector of one takes all, fp16 too. */
VEC_INLINE vec vec_quiet(gf_type type, vec a)
{
#if VEC_ELEMS > 1
    typedef int32_t vec_bits __attribute__((vector_size(VEC_ELEMS * 4)));
    vec_bits bits = (vec_bits)a;
    vec_bits is_nan = (vec_bits)(a != a);
    if (type == GF_TYPE_BF16) return (vec)((bits | (is_nan & 0x400000)) & ~(is_nan & 0xffff));
#endif
    (void)type;
    return a;
}

/* Of what is left. */
VEC_INLINE uint32_t vec_count(uint64_t left)
{
    return (left < VEC_ELEMS) ? (uint32_t)left : VEC_ELEMS;
}

#ifndef VEC_HAS_PART
VEC_FN __attribute__((unused)) vec vec_load_part(gf_type type, const uint8_t *src, uint32_t count)
{
    uint8_t padded[VEC_ELEMS * 4] = {0};
    memcpy(padded, src, count * gf_type_bytes(type));
    return vec_load_whole(type, padded);
}

VEC_FN __attribute__((unused)) void vec_store_part(gf_type type, uint8_t *dst, uint32_t count,
                                                   vec a)
{
    uint8_t padded[VEC_ELEMS * 4];
    vec_store_whole(type, padded, a);
    memcpy(dst, padded, count * gf_type_bytes(type));
}
#endif

/* Lanes from count on are zero. */
VEC_INLINE vec vec_load(gf_type type, const uint8_t *base, uint64_t index, uint32_t count)
{
    const uint8_t *src = base + index * gf_type_bytes(type);
    return (count == VEC_ELEMS) ? vec_load_whole(type, src) : vec_load_part(type, src, count);
}

/* The same; a whole vector that begins a line also asks for lines ahead. Not in the plain
 * version. */
VEC_INLINE vec vec_load_ahead(gf_type type, const uint8_t *base, uint64_t index, uint32_t count)
{
    uint64_t offset = index * gf_type_bytes(type);
    if ((VEC_ELEMS > 1) && (count == VEC_ELEMS) && (offset % GF_LINE_BYTES == 0)) {
        gf_ahead_far(base, offset + GF_AHEAD_FAR_BYTES);
        gf_ahead_near(base, offset + GF_AHEAD_NEAR_BYTES);
    }
    return vec_load(type, base, index, count);
}

VEC_INLINE void vec_store(gf_type type, uint8_t *base, uint64_t index, uint32_t count, vec a)
{
    uint8_t *dst = base + index * gf_type_bytes(type);
    if (count == VEC_ELEMS)
        vec_store_whole(type, dst, a);
    else
        vec_store_part(type, dst, count, a);
}

/* The same past the cache: a whole vector, to an address aligned to GF_LINE_BYTES or whole vectors
 * after one. */
VEC_INLINE void vec_stream(gf_type type, uint8_t *base, uint64_t index, vec a)
{
    vec_stream_whole(type, base + index * gf_type_bytes(type), a);
}

/* Counts the first `count` lanes that would not be finite in the type whose overflow is `limit`. */
VEC_INLINE void vec_check(struct gf_check *check, uint64_t first, uint32_t count, vec a,
                          float limit)
{
    uint32_t bad = vec_bad(a, limit);
    if (count != VEC_ELEMS) bad &= ((uint32_t)1 << count) - 1;
    if (bad != 0) gf_check_note(check, first, bad);
}

#endif
