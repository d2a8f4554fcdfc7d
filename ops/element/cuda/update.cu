/* Momentum SGD in one pass, with trust ratios that lie in memory; flat, of parts and of listed
 * chunks. */
#include "ops/element/cuda/device.cuh"

struct update_some {
    struct gf_pack weight, momentum, gradient;
};

/* What parts differ in. */
struct update_rates {
    float in, decay;
};

/* *v: momentum before and after; the weight returned. */
GF_INLINE float update_rule(const struct gf_update *r, struct update_rates rates, float weight,
                            float *v, float gradient)
{
    float g = rates.in * (r->gradient_scale * gradient + rates.decay * weight);
    float step = g;
    if (r->momentum_f32 != 0) {
        *v = r->momentum * *v + g;
        step = r->nesterov ? r->momentum * *v + g : *v;
    }
    return weight - r->rate_out * step;
}

GF_INLINE void update_one(uint64_t i, const struct gf_update *r, uint32_t gradient_type,
                          struct update_rates rates)
{
    float v = (r->momentum_f32 != 0) ? gf_one_load(GF_KERNEL_F32, r->momentum_f32, i) : 0.0f;
    float weight = update_rule(r, rates, gf_one_load(GF_KERNEL_F32, r->weight_f32, i), &v,
                               gf_one_load(gradient_type, r->gradient, i));
    if (r->momentum_f32 != 0) gf_one_store(GF_KERNEL_F32, r->momentum_f32, i, v);
    gf_one_store(GF_KERNEL_F32, r->weight_f32, i, weight);
    if (r->half != 0) gf_one_store(r->half_type, r->half, i, weight);
}

GF_INLINE void update_load(struct update_some *some, uint64_t i, const struct gf_update *r,
                           uint32_t gradient_type, struct update_rates rates)
{
    gf_pack_load(&some->weight, GF_KERNEL_F32, r->weight_f32, i, 4);
    gf_pack_load(&some->gradient, gradient_type, r->gradient, i, 4);
    if (r->momentum_f32 != 0) gf_pack_load(&some->momentum, GF_KERNEL_F32, r->momentum_f32, i, 4);
}

GF_INLINE int update_pack(struct update_some *some, uint64_t i, const struct gf_update *r,
                          uint32_t gradient_type, struct update_rates rates)
{
    float weight[4], v[4];
    GF_UNROLL
    for (int e = 0; e < 4; e++) {
        v[e] = gf_pack_get(&some->momentum, GF_KERNEL_F32, e);
        weight[e] = update_rule(r, rates, gf_pack_get(&some->weight, GF_KERNEL_F32, e), &v[e],
                                gf_pack_get(&some->gradient, gradient_type, e));
    }
    if (r->momentum_f32 != 0) gf_pack_store(GF_KERNEL_F32, r->momentum_f32, i, v, 4);
    gf_pack_store(GF_KERNEL_F32, r->weight_f32, i, weight, 4);
    if (r->half != 0) gf_four_store(r->half_type, r->half, i, weight);
    return 1;
}

GF_INLINE void update_range(struct gf_range *range, uint32_t gradient_type,
                            const struct gf_update *r, struct update_rates rates)
{
    const uint64_t first = range->first;
    const uint32_t head = gf_head(r->weight_f32 + first * 4u, GF_KERNEL_F32, 4);
    const int alike = gf_alike(r->momentum_f32, first, GF_KERNEL_F32, 4, head) &&
                      gf_alike(r->half, first, r->half_type, 4, head) &&
                      gf_alike(r->gradient, first, gradient_type, 4, head);
    GF_WALK(range, 4, head, alike, 2, struct update_some, update_load, update_pack, GF_NO_LOOK,
            update_one, r, gradient_type, rates);
}

/* The part that a tile is of, by bisection over the parts' first tiles, and where in it. */
GF_INLINE uint32_t update_tile(const struct gf_update_args *r, uint64_t tile,
                               struct gf_range *range)
{
    uint32_t low = 0, high = r->part_count;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (r->parts[middle].first_tile <= tile)
            low = middle;
        else
            high = middle;
    }
    const uint64_t skip = (tile - r->parts[low].first_tile) * GF_KERNEL_TILE_ELEMS;
    const uint64_t left = r->parts[low].elem_count - skip;
    range->first = range->src = r->parts[low].first + skip;
    range->count = (left < GF_KERNEL_TILE_ELEMS) ? left : GF_KERNEL_TILE_ELEMS;
    range->worker = threadIdx.x;
    range->workers = blockDim.x;
    return low;
}

/* Three ways to share the work out: one flat part by all threads in one go; several parts, or
 * listed chunks, a tile a block. They stand in one loop, as the walk behind it is most of the
 * kernel. */
GF_INLINE void update_type(uint32_t gradient_type, const struct gf_update_args *r)
{
    const int is_listed = r->chunks.count > 0;
    const int is_flat = !is_listed && (r->part_count == 1);
    uint64_t all = r->tiles;
    if (is_listed) all = gf_tiles(&r->chunks) * r->chunks.count;
    if (is_flat) all = 1;
    for (uint64_t tile = is_flat ? 0u : blockIdx.x; tile < all; tile += is_flat ? 1u : gridDim.x) {
        struct gf_range range;
        uint32_t part = 0;
        if (is_listed) {
            range = gf_tile_at(&r->chunks, tile);
        } else if (is_flat) {
            range = gf_flat(r->parts[0].elem_count);
            range.first = range.src = r->parts[0].first;
        } else {
            part = update_tile(r, tile, &range);
        }
        struct update_rates rates = {r->of.rate_in, r->parts[part].decay};
        if (r->parts[part].ratio_f32 != 0) rates.in *= *(const float *)r->parts[part].ratio_f32;
        update_range(&range, gradient_type, &r->of, rates);
    }
}

#define UPDATE(name, type)              \
    GF_KERNEL_OF(update_##name, update) \
    {                                   \
        update_type(type, &args);       \
    }
GF_EACH_TYPE(UPDATE)
