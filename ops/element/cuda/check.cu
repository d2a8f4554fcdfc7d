/* Counts what is not finite. A value of any type is infinite as an fp32 if it is so in its own. */
#include "ops/element/cuda/device.cuh"

GF_INLINE void check_single(uint64_t i, const struct gf_check_args *r, uint32_t type, int pack, struct gf_found *found)
{
    gf_found_one(found, gf_one_bad(GF_KERNEL_F32, gf_one_load(type, r->src, i)), r->base + i);
}

GF_INLINE void check_load(struct gf_pack *some, uint64_t i, const struct gf_check_args *r, uint32_t type, int pack,
                          struct gf_found *found)
{
    gf_pack_load(some, type, r->src, i, pack);
}

GF_INLINE int check_pack(struct gf_pack *some, uint64_t i, const struct gf_check_args *r, uint32_t type, int pack,
                          struct gf_found *found)
{
    float value[GF_PACK_MAX];
    GF_UNROLL
    for (int e = 0; e < pack; e++) value[e] = gf_pack_get(some, type, e);
    return gf_pack_fine(GF_KERNEL_F32, value, pack);
}

GF_INLINE void check_type(uint32_t type, const struct gf_check_args *r)
{
    const int pack = 16 / (int)gf_bytes(type);
    struct gf_found found = {0, ~0ull};
    struct gf_range range = gf_flat(r->elem_count);
    GF_WALK(&range, pack, gf_head(r->src, type, pack), 1, 4, struct gf_pack, check_load, check_pack, check_single, r,
            type, pack, &found);
    gf_found_tell(&found, r->check);
}

#define CHECK(name, type) \
    GF_KERNEL_OF(check_##name, check) { check_type(type, &args); }
GF_EACH_TYPE(CHECK)
