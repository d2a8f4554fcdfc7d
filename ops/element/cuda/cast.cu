/* dst = round(src * scale): flat, and of listed chunks. */
#include "ops/element/cuda/device.cuh"

/* src: where what belongs to element i of dst would lie at i. */
GF_INLINE void cast_one(uint64_t i, const struct gf_cast_args *r, uint64_t src, uint64_t base,
                        uint32_t dst_type, uint32_t src_type, int pack, struct gf_found *found)
{
    float value = gf_one_load(src_type, src, i) * r->scale;
    gf_one_store(dst_type, r->dst, i, value);
    gf_found_one(found, gf_one_bad(dst_type, value), base + i);
}

GF_INLINE void cast_load(struct gf_pack *some, uint64_t i, const struct gf_cast_args *r,
                         uint64_t src, uint64_t base, uint32_t dst_type, uint32_t src_type,
                         int pack, struct gf_found *found)
{
    gf_pack_load(some, src_type, src, i, pack);
}

GF_INLINE int cast_pack(struct gf_pack *some, uint64_t i, const struct gf_cast_args *r,
                        uint64_t src, uint64_t base, uint32_t dst_type, uint32_t src_type, int pack,
                        struct gf_found *found)
{
    float value[GF_KERNEL_PACK_MAX];
    GF_UNROLL
    for (int e = 0; e < pack; e++) value[e] = gf_pack_get(some, src_type, e) * r->scale;
    gf_pack_store(dst_type, r->dst, i, value, pack);
    return gf_pack_fine(dst_type, value, pack);
}

GF_INLINE void cast_pack_check(uint64_t i, const struct gf_cast_args *r, uint64_t src,
                               uint64_t base, uint32_t dst_type, uint32_t src_type, int pack,
                               struct gf_found *found)
{
    gf_found_pack(found, dst_type, r->dst, i, pack, base + i);
}

GF_INLINE void cast_range(struct gf_range *range, uint32_t dst_type, uint32_t src_type,
                          const struct gf_cast_args *r, struct gf_found *found)
{
    const int pack = (gf_bytes(dst_type) + gf_bytes(src_type) == 4) ? 8 : 4;
    const uint64_t off = range->src - range->first;
    const uint64_t src = r->src + off * gf_bytes(src_type), base = r->base + off;
    const uint32_t head = gf_head(r->dst + range->first * gf_bytes(dst_type), dst_type, pack);
    const int alike = gf_alike(src, range->first, src_type, pack, head);
    GF_WALK(range, pack, head, alike, GF_KERNEL_AHEAD_MAX, struct gf_pack, cast_load, cast_pack,
            cast_pack_check, cast_one, r, src, base, dst_type, src_type, pack, found);
}

GF_INLINE void cast_types(uint32_t dst_type, uint32_t src_type, const struct gf_cast_args *r)
{
    struct gf_found found = {0, ~0ull};
    GF_RANGES(&r->chunks, r->elem_count, cast_range, dst_type, src_type, r, &found);
    gf_found_add(&found, r->check);
}

#define CAST(name, dst_type, src_type)         \
    GF_KERNEL_OF(cast_##name, cast)            \
    {                                          \
        cast_types(dst_type, src_type, &args); \
    }
#define CAST_TO(name, type)               \
    CAST(name##_f32, type, GF_KERNEL_F32) \
    CAST(name##_f16, type, GF_KERNEL_F16) CAST(name##_bf16, type, GF_KERNEL_BF16)
GF_EACH_TYPE(CAST_TO)
