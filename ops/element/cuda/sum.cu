/* dst = round(dst + src). */
#include "ops/element/cuda/device.cuh"

struct sum_some {
    struct gf_pack dst, src;
};

GF_INLINE void sum_load(struct sum_some *some, uint64_t i, int count, const struct gf_sum_args *r, uint32_t type,
                        struct gf_found *found)
{
    (void)found;
    gf_pack_load(&some->dst, type, r->dst, i, count);
    gf_pack_load(&some->src, type, r->src, i, count);
}

GF_INLINE void sum_finish(struct sum_some *some, uint64_t i, int count, const struct gf_sum_args *r, uint32_t type,
                          struct gf_found *found)
{
    float value[GF_PACK_MAX];
    GF_UNROLL
    for (int e = 0; e < count; e++) {
        value[e] = gf_add(gf_pack_get(&some->dst, type, e), gf_pack_get(&some->src, type, e), 1);
        gf_found_look(found, type, value[e], r->base + i + (uint64_t)e);
    }
    gf_pack_store(type, r->dst, i, value, count);
}

GF_INLINE void sum_type(uint32_t type, const struct gf_sum_args *r, struct gf_found *found)
{
    const int pack = 16 / (int)gf_bytes(type);
    uint32_t head = gf_head(r->dst, type, pack);
    struct gf_walk walk = gf_walk_make(gf_thread(), gf_threads(), r->elem_count, pack, head,
                                       gf_alike(r->src, type, pack, head));
    GF_WALK(walk, pack, 4, struct sum_some, sum_load, sum_finish, r, type, found);
}

GF_KERNEL(sum)
{
    struct gf_found found = {0, ~0ull};
    GF_TYPES(args.type, sum_type, &args, &found);
    gf_found_tell(&found, args.check);
}
