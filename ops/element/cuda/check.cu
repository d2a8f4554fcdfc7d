/* Counts what is not finite. */
#include "ops/element/cuda/device.cuh"

struct check_some {
    struct gf_pack src;
};

GF_INLINE void check_load(struct check_some *some, uint64_t i, int count, const struct gf_check_args *r, uint32_t type,
                          struct gf_found *found)
{
    (void)found;
    gf_pack_load(&some->src, type, r->src, i, count);
}

/* A value of any type is infinite as an fp32 if it is so in its own. */
GF_INLINE void check_finish(struct check_some *some, uint64_t i, int count, const struct gf_check_args *r,
                            uint32_t type, struct gf_found *found)
{
    GF_UNROLL
    for (int e = 0; e < count; e++)
        gf_found_look(found, GF_KERNEL_F32, gf_pack_get(&some->src, type, e), r->base + i + (uint64_t)e);
}

GF_INLINE void check_type(uint32_t type, const struct gf_check_args *r, struct gf_found *found)
{
    const int pack = 16 / (int)gf_bytes(type);
    struct gf_walk walk =
        gf_walk_make(gf_thread(), gf_threads(), r->elem_count, pack, gf_head(r->src, type, pack), 1);
    GF_WALK(walk, pack, 4, struct check_some, check_load, check_finish, r, type, found);
}

GF_KERNEL(check)
{
    struct gf_found found = {0, ~0ull};
    GF_TYPES(args.type, check_type, &args, &found);
    gf_found_tell(&found, args.check);
}
