/* The pools of the optimizer and of sparse communication. */
#include "lib/core/layout.h"

static gf_mem mem(const void *address)
{
    return (gf_mem)(uintptr_t)address;
}

/* Scratch memory for as many chunks of the usual 32 Ki elements as the largest GPU of today scores
 * at once: two blocks on each of 132 to 148 multiprocessors. */
#define SCRATCH_ELEMS (UINT64_C(10) << 20)

static uint64_t scratch_elems(const struct gf_layout *layout)
{
    uint64_t most = layout->config.exchange.slice_bytes / sizeof(float);
    if (layout->on_device && (most < SCRATCH_ELEMS)) most = SCRATCH_ELEMS;
    return (most < layout->pool.sparse_elem_count) ? most : layout->pool.sparse_elem_count;
}

/* Which pools the optimizer has. */
struct pool_set {
    bool weight, momentum, moment2, half;
};
_Static_assert(GF_OPTIMIZER_POOLS == 4, "each pool is laid out and opened here");
static struct pool_set pools_of(const struct gf_config *config)
{
    const bool optimizes = config->optimizer.kind != GF_OPTIMIZER_NONE;
    const bool is_adam = config->optimizer.kind == GF_OPTIMIZER_ADAMW;
    return (struct pool_set){.weight = optimizes,
                             .momentum =
                                 is_adam || (optimizes && (config->optimizer.momentum > 0.0f)),
                             .moment2 = is_adam,
                             /* weights of fp32 have no copy of another type */
                             .half = optimizes && (config->optimizer.half_weights != GF_TYPE_F32)};
}

void gf_pools_lay(const struct gf_layout *layout, struct gf_arena *arena,
                  struct gf_pool_parts *parts)
{
    const struct gf_config *config = &layout->config;
    const struct pool_set has = pools_of(config);
    const uint64_t elems = layout->pool.elem_count;
    const uint64_t fp32_bytes = elems * sizeof(float);
    const uint64_t half_bytes = elems * gf_type_bytes(config->optimizer.half_weights);
    parts->weight = gf_arena_take(arena, has.weight ? fp32_bytes : 0);
    parts->momentum = gf_arena_take(arena, has.momentum ? fp32_bytes : 0);
    parts->moment2 = gf_arena_take(arena, has.moment2 ? fp32_bytes : 0);
    parts->half = gf_arena_take(arena, has.half ? half_bytes : 0);
    parts->history = gf_arena_take(arena, layout->pool.sparse_elem_count * sizeof(float));
    parts->scratch = gf_arena_take(arena, scratch_elems(layout) * sizeof(float));
    parts->part = gf_arena_take(arena, sizeof(float));
}

void gf_pools_open(gf_context *gf, const struct gf_layout *layout,
                   const struct gf_pool_parts *parts, uint32_t *chunks)
{
    const struct gf_config *config = &gf->config;
    const struct pool_set has = pools_of(config);
    struct gf_optimizer_pools *weights = &gf->optimizer;
    weights->weight = has.weight ? mem(parts->weight) : 0;
    weights->momentum = has.momentum ? mem(parts->momentum) : 0;
    weights->moment2 = has.moment2 ? mem(parts->moment2) : 0;
    weights->half = has.half ? mem(parts->half) : 0;
    gf->sparse.elem_count = layout->pool.sparse_elem_count;
    gf->sparse.chunk_elems = config->sparse.chunk_elems;
    gf->sparse.chunk_count = layout->chunk_count;
    gf->sparse.selection = chunks;
    gf->sparse.sent = chunks + layout->chunk_count;
    gf->sparse.part = mem(parts->part);
    gf->sparse.history = mem(parts->history);
    gf->sparse.scratch = mem(parts->scratch);
    gf->sparse.scratch_elems = scratch_elems(layout);
}
