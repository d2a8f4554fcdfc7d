/* dst[0..] = round(src[0] + src[1] + ..), added in fp32 in this order. The tables are the kernel's
 * own arguments. */
#include "ops/element/cuda/device.cuh"

/* Of peers a load takes a microsecond or two, and few multiprocessors have to keep the links full:
 * a thread has this many under way, whatever the number of sources (few of them: more packs), and
 * issues all of them before it uses the first. */
#define SUM_N_LOADS 8u

struct sum_n_some {
    struct gf_pack from[SUM_N_LOADS];
    float sum[GF_KERNEL_PACK_MAX]; /* of the rounds before these; only of many sources */
};

/* Of a sum that is not finite: which of the sources are not. They are looked at before the sum is
 * stored, as it may be stored over one of them. */
GF_INLINE void sum_n_one(uint64_t i, const struct gf_sum_n_args *r, uint32_t type, int pack,
                         uint32_t loads)
{
    struct gf_found found = {1, r->base + i};
    float value = gf_one_load(type, r->src[0], i);
    GF_ROLLED
    for (uint32_t s = 1; s < r->src_count; s++) value += gf_one_load(type, r->src[s], i);
    const uint32_t bad = gf_one_bad(type, value);
    if (bad) gf_found_add(&found, r->check);
    GF_ROLLED
    for (uint32_t s = 0; bad && (r->sources != 0) && (s < r->src_count); s++) {
        found.first = ((unsigned long long)s << GF_SOURCE_SHIFT) + r->base + i;
        if (gf_one_bad(GF_KERNEL_F32, gf_one_load(type, r->src[s], i)))
            gf_found_add(&found, r->sources);
    }
    GF_ROLLED
    for (uint32_t d = 0; d < r->dst_count; d++) gf_one_store(type, r->dst[d], i, value);
}

/* Sources first .. first+loads-1, as far as there are so many. What stands in for the others is
 * -0, which changes no bit of what it is added to, so that adding needs no branch. */
GF_INLINE void sum_n_issue(struct gf_pack *from, uint64_t i, const struct gf_sum_n_args *r,
                           uint32_t type, int pack, uint32_t first, uint32_t loads)
{
    const uint32_t nothing = (type == GF_KERNEL_F32) ? 0x80000000u : 0x80008000u;
    GF_UNROLL
    for (uint32_t l = 0; l < loads; l++) {
        GF_UNROLL
        for (uint32_t w = 0; w < 4; w++) from[l].words[w] = nothing;
        if (first + l < r->src_count) gf_pack_load(&from[l], type, r->src[first + l], i, pack);
    }
}

GF_INLINE void sum_n_add(float *sum, const struct gf_pack *from, uint32_t type, int pack,
                         uint32_t loads)
{
    GF_UNROLL
    for (uint32_t l = 0; l < loads; l++) {
        GF_UNROLL
        for (int e = 0; e < pack; e++) sum[e] = sum[e] + gf_pack_get(&from[l], type, e);
    }
}

/* `loads` is a constant: as many sources as there may be, or SUM_N_LOADS, in rounds. */
GF_INLINE void sum_n_load(struct sum_n_some *some, uint64_t i, const struct gf_sum_n_args *r,
                          uint32_t type, int pack, uint32_t loads)
{
    uint32_t first = 0;
    GF_UNROLL
    for (int e = 0; e < pack; e++) some->sum[e] = -0.0f;
    GF_ROLLED
    for (; (loads == SUM_N_LOADS) && (r->src_count - first > SUM_N_LOADS); first += SUM_N_LOADS) {
        sum_n_issue(some->from, i, r, type, pack, first, SUM_N_LOADS);
        sum_n_add(some->sum, some->from, type, pack, SUM_N_LOADS);
    }
    sum_n_issue(some->from, i, r, type, pack, first, loads);
}

GF_INLINE int sum_n_pack(struct sum_n_some *some, uint64_t i, const struct gf_sum_n_args *r,
                         uint32_t type, int pack, uint32_t loads)
{
    sum_n_add(some->sum, some->from, type, pack, loads);
    if (!gf_likely(gf_pack_fine(type, some->sum, pack))) return 0;
    GF_ROLLED
    for (uint32_t d = 0; d < r->dst_count; d++) gf_pack_store(type, r->dst[d], i, some->sum, pack);
    return 1;
}

GF_INLINE void sum_n_pack_check(uint64_t i, const struct gf_sum_n_args *r, uint32_t type, int pack,
                                uint32_t loads)
{
    GF_ROLLED
    for (int e = 0; e < pack; e++) sum_n_one(i + (uint64_t)e, r, type, pack, loads);
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
    if (r->src_count <= 2)
        GF_WALK(&range, pack, head, alike, 4, struct sum_n_some, sum_n_load, sum_n_pack,
                sum_n_pack_check, sum_n_one, r, type, pack, 2u);
    else if (r->src_count <= 4)
        GF_WALK(&range, pack, head, alike, 2, struct sum_n_some, sum_n_load, sum_n_pack,
                sum_n_pack_check, sum_n_one, r, type, pack, 4u);
    else
        GF_WALK(&range, pack, head, alike, 1, struct sum_n_some, sum_n_load, sum_n_pack,
                sum_n_pack_check, sum_n_one, r, type, pack, SUM_N_LOADS);
}

#define SUM_N(name, type)                  \
    GF_KERNEL_CHANNEL(sum_n_##name, sum_n) \
    {                                      \
        sum_n_type(type, &args);           \
    }
GF_EACH_TYPE(SUM_N)
