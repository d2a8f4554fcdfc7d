/* dst[0..] = round(src[0] + src[1] + ..), added in fp32 in this order. The tables are the kernel's own arguments. */
#include "ops/element/cuda/device.cuh"

struct sum_n_some {
    float at[GF_PACK_MAX];
};

struct sum_n_found {
    struct gf_found sums, sources;
};

GF_INLINE void sum_n_add(struct sum_n_some *some, uint64_t i, int count, const struct gf_sum_n_args *r, uint32_t type)
{
    struct gf_pack pack;
    gf_pack_load(&pack, type, r->src[0], i, count);
    GF_UNROLL
    for (int e = 0; e < count; e++) some->at[e] = gf_pack_get(&pack, type, e);
    for (uint32_t s = 1; s < r->src_count; s++) {
        gf_pack_load(&pack, type, r->src[s], i, count);
        GF_UNROLL
        for (int e = 0; e < count; e++) some->at[e] = gf_add(some->at[e], gf_pack_get(&pack, type, e), 1);
    }
}

GF_INLINE void sum_n_load(struct sum_n_some *some, uint64_t i, int count, const struct gf_sum_n_args *r, uint32_t type,
                          struct sum_n_found *found)
{
    (void)found;
    sum_n_add(some, i, count, r, type);
}

/* Of sums that are not finite: the sources, which nobody has stored to yet. */
GF_INLINE void sum_n_blame(uint64_t i, int count, const struct gf_sum_n_args *r, uint32_t type, struct gf_found *found)
{
    struct gf_pack pack;
    for (uint32_t s = 0; s < r->src_count; s++) {
        gf_pack_load(&pack, type, r->src[s], i, count);
        for (int e = 0; e < count; e++)
            gf_found_look(found, GF_KERNEL_F32, gf_pack_get(&pack, type, e),
                          ((uint64_t)s << GF_KERNEL_SOURCE_SHIFT) + r->base + i + (uint64_t)e);
    }
}

GF_INLINE void sum_n_finish(struct sum_n_some *some, uint64_t i, int count, const struct gf_sum_n_args *r,
                            uint32_t type, struct sum_n_found *found)
{
    unsigned long long before = found->sums.count;
    GF_UNROLL
    for (int e = 0; e < count; e++) gf_found_look(&found->sums, type, some->at[e], r->base + i + (uint64_t)e);
    if ((found->sums.count != before) && (r->sources != 0)) sum_n_blame(i, count, r, type, &found->sources);
    for (uint32_t d = 0; d < r->dst_count; d++) gf_pack_store(type, r->dst[d], i, some->at, count);
}

GF_INLINE void sum_n_type(uint32_t type, const struct gf_sum_n_args *r, struct sum_n_found *found)
{
    const int pack = 16 / (int)gf_bytes(type);
    uint32_t head = gf_head(r->src[0], type, pack);
    int alike = 1;
    struct gf_walk walk;
    for (uint32_t s = 1; s < r->src_count; s++) alike = alike && gf_alike(r->src[s], type, pack, head);
    for (uint32_t d = 0; d < r->dst_count; d++) alike = alike && gf_alike(r->dst[d], type, pack, head);
    walk = gf_walk_make(gf_thread(), gf_threads(), r->elem_count, pack, head, alike);
    GF_WALK(walk, pack, 2, struct sum_n_some, sum_n_load, sum_n_finish, r, type, found);
}

GF_KERNEL(sum_n)
{
    struct sum_n_found found = {{0, ~0ull}, {0, ~0ull}};
    GF_TYPES(args.type, sum_n_type, &args, &found);
    gf_found_tell(&found.sums, args.check);
    gf_found_tell(&found.sources, args.sources);
}
