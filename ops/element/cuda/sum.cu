/* dst = round(dst + src); and what a range holds is looked at alike, without a dst. `adds` is a
 * constant. */
#include "ops/element/cuda/device.cuh"

struct sum_some {
    struct gf_pack dst, src;
};

GF_INLINE void sum_one(uint64_t i, const struct gf_sum_args *r, uint32_t type, int adds, int pack,
                       struct gf_found *found)
{
    float value = gf_one_load(type, r->src, i);
    if (adds) {
        value = gf_one_load(type, r->dst, i) + value;
        gf_one_store(type, r->dst, i, value);
    }
    gf_found_one(found, gf_one_bad(type, value), r->base + i);
}

GF_INLINE void sum_load(struct sum_some *some, uint64_t i, const struct gf_sum_args *r,
                        uint32_t type, int adds, int pack, struct gf_found *found)
{
    if (adds) gf_pack_load(&some->dst, type, r->dst, i, pack);
    gf_pack_load(&some->src, type, r->src, i, pack);
}

GF_INLINE int sum_pack(struct sum_some *some, uint64_t i, const struct gf_sum_args *r,
                       uint32_t type, int adds, int pack, struct gf_found *found)
{
    float value[GF_KERNEL_PACK_MAX];
    GF_UNROLL
    for (int e = 0; e < pack; e++) {
        value[e] = gf_pack_get(&some->src, type, e);
        if (adds) value[e] = gf_pack_get(&some->dst, type, e) + value[e];
    }
    if (adds) gf_pack_store(type, r->dst, i, value, pack);
    return gf_pack_fine(type, value, pack);
}

GF_INLINE void sum_pack_check(uint64_t i, const struct gf_sum_args *r, uint32_t type, int adds,
                              int pack, struct gf_found *found)
{
    gf_found_pack(found, type, adds ? r->dst : r->src, i, pack, r->base + i);
}

GF_INLINE void sum_type(uint32_t type, int adds, const struct gf_sum_args *r)
{
    const int pack = 16 / (int)gf_bytes(type);
    const uint32_t head = gf_head(r->src, type, pack);
    struct gf_found found = {0, ~0ull};
    struct gf_range range = gf_flat(r->elem_count);
    const int alike = !adds || gf_alike(r->dst, 0, type, pack, head);
    GF_WALK(&range, pack, head, alike, GF_KERNEL_AHEAD_MAX, struct sum_some, sum_load, sum_pack,
            sum_pack_check, sum_one, r, type, adds, pack, &found);
    gf_found_add(&found, r->check);
}

#define SUM(name, type)             \
    GF_KERNEL_OF(sum_##name, sum)   \
    {                               \
        sum_type(type, 1, &args);   \
    }                               \
    GF_KERNEL_OF(check_##name, sum) \
    {                               \
        sum_type(type, 0, &args);   \
    }
GF_EACH_TYPE(SUM)
