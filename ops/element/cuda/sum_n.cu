/* dst[0..] = round(src[0] + src[1] + ..), added in fp32 in this order. The tables are the kernel's
 * own arguments. */
#include "ops/element/cuda/device.cuh"

struct sum_n_some {
    float at[GF_KERNEL_PACK_MAX];
};

/* Of a sum that is not finite: which of the sources are not. They are looked at before the sum is
 * stored, as it may be stored over one of them. */
GF_INLINE void sum_n_one(uint64_t i, const struct gf_sum_n_args *r, uint32_t type, int pack)
{
    struct gf_found found = {1, r->base + i};
    float value = gf_one_load(type, r->src[0], i);
    GF_ROLLED
    for (uint32_t s = 1; s < r->src_count; s++) value += gf_one_load(type, r->src[s], i);
    const uint32_t bad = gf_one_bad(type, value);
    if (bad) gf_found_tell(&found, r->check);
    GF_ROLLED
    for (uint32_t s = 0; bad && (r->sources != 0) && (s < r->src_count); s++) {
        found.first = ((unsigned long long)s << GF_SOURCE_SHIFT) + r->base + i;
        if (gf_one_bad(GF_KERNEL_F32, gf_one_load(type, r->src[s], i)))
            gf_found_tell(&found, r->sources);
    }
    GF_ROLLED
    for (uint32_t d = 0; d < r->dst_count; d++) gf_one_store(type, r->dst[d], i, value);
}

/* So many sources are on their way at once: of peers, each takes a microsecond or two, and few
 * multiprocessors have to keep the links full. */
#define SUM_N_LOADS 8u

GF_INLINE void sum_n_load(struct sum_n_some *some, uint64_t i, const struct gf_sum_n_args *r,
                          uint32_t type, int pack)
{
    struct gf_pack from[SUM_N_LOADS];
    uint32_t s = 1;
    gf_pack_load(&from[0], type, r->src[0], i, pack);
    GF_UNROLL
    for (int e = 0; e < pack; e++) some->at[e] = gf_pack_get(&from[0], type, e);
    GF_ROLLED
    for (; s + SUM_N_LOADS <= r->src_count; s += SUM_N_LOADS) {
        GF_UNROLL
        for (uint32_t l = 0; l < SUM_N_LOADS; l++)
            gf_pack_load(&from[l], type, r->src[s + l], i, pack);
        GF_UNROLL
        for (uint32_t l = 0; l < SUM_N_LOADS; l++) GF_UNROLL
        for (int e = 0; e < pack; e++) some->at[e] = some->at[e] + gf_pack_get(&from[l], type, e);
    }
    GF_UNROLL
    for (uint32_t l = 0; l < SUM_N_LOADS - 1u; l++)
        if (s + l < r->src_count) gf_pack_load(&from[l], type, r->src[s + l], i, pack);
    GF_UNROLL
    for (uint32_t l = 0; l < SUM_N_LOADS - 1u; l++) {
        if (s + l >= r->src_count) continue;
        GF_UNROLL
        for (int e = 0; e < pack; e++) some->at[e] = some->at[e] + gf_pack_get(&from[l], type, e);
    }
}

GF_INLINE void sum_n_pack(struct sum_n_some *some, uint64_t i, const struct gf_sum_n_args *r,
                          uint32_t type, int pack)
{
    if (!gf_likely(gf_pack_fine(type, some->at, pack))) {
        GF_ROLLED
        for (int e = 0; e < pack; e++) sum_n_one(i + (uint64_t)e, r, type, pack);
        return;
    }
    GF_ROLLED
    for (uint32_t d = 0; d < r->dst_count; d++) gf_pack_store(type, r->dst[d], i, some->at, pack);
}

GF_INLINE void sum_n_type(uint32_t type, const struct gf_sum_n_args *r)
{
    const int pack = 16 / (int)gf_bytes(type);
    const uint32_t head = gf_head(r->src[0], type, pack);
    struct gf_range range = gf_flat(r->elem_count);
    int alike = 1;
    GF_ROLLED
    for (uint32_t s = 1; s < r->src_count; s++)
        alike = alike && gf_alike(r->src[s], 0, type, pack, head);
    GF_ROLLED
    for (uint32_t d = 0; d < r->dst_count; d++)
        alike = alike && gf_alike(r->dst[d], 0, type, pack, head);
    GF_WALK(&range, pack, head, alike, 1, struct sum_n_some, sum_n_load, sum_n_pack, sum_n_one, r,
            type, pack);
}

#define SUM_N(name, type)             \
    GF_KERNEL_OF(sum_n_##name, sum_n) \
    {                                 \
        sum_n_type(type, &args);      \
    }
GF_EACH_TYPE(SUM_N)
