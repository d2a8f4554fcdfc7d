/* What all widths share: elements by index, and vectors that are not whole. Included at the end of a vec_*.h; alone it
 * stands on the scalar one. `count` is a constant VEC_ELEMS but at the end of a range, so the branches fold away. */
#include "vec_scalar.h"
#ifndef GF_VEC_H
#define GF_VEC_H

/* Lanes from count on are zero. */
VEC_INLINE vec vec_load(gf_type type, const uint8_t *base, uint64_t index, uint32_t count)
{
    uint8_t padded[VEC_ELEMS * 4] = {0};
    const uint8_t *src = base + index * gf_type_bytes(type);
    if (count == VEC_ELEMS) return vec_load_whole(type, src);
    memcpy(padded, src, count * gf_type_bytes(type));
    return vec_load_whole(type, padded);
}

VEC_INLINE void vec_store(gf_type type, uint8_t *base, uint64_t index, uint32_t count, vec a)
{
    uint8_t padded[VEC_ELEMS * 4];
    uint8_t *dst = base + index * gf_type_bytes(type);
    if (count == VEC_ELEMS) {
        vec_store_whole(type, dst, a);
        return;
    }
    vec_store_whole(type, padded, a);
    memcpy(dst, padded, count * gf_type_bytes(type));
}

/* Counts the first `count` lanes that would not be finite in the type whose overflow is `limit`. */
VEC_INLINE void vec_check(struct gf_check *check, uint64_t first, uint32_t count, vec a, float limit)
{
    uint32_t bad = vec_bad(a, limit);
    if (count != VEC_ELEMS) bad &= ((uint32_t)1 << count) - 1;
    if (bad != 0) gf_check_note(check, first, bad);
}

#endif
