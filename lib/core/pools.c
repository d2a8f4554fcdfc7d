/* The pools of the optimizer and of sparse communication. */
#include "lib/core/layout.h"

static gf_mem mem(const void *address)
{
    return (gf_mem)(uintptr_t)address;
}

/* On a device as many chunks of the usual 32 Ki as the largest of today has room for blocks that
 * score: 2 on each of 132 to 148 multiprocessors. */
#define SCRATCH_ELEMS (UINT64_C(10) << 20)

static uint64_t scratch_elems(const struct gf_layout *layout)
{
    uint64_t most = layout->config.exchange.slice_bytes / sizeof(float);
    if (layout->on_device && (most < SCRATCH_ELEMS)) most = SCRATCH_ELEMS;
    return (most < layout->pool.sparse_elem_count) ? most : layout->pool.sparse_elem_count;
}

static bool has_momentum(const struct gf_config *config)
{
    return (config->optimizer.kind == GF_OPTIMIZER_ADAMW) ||
           ((config->optimizer.kind != GF_OPTIMIZER_NONE) && (config->optimizer.momentum > 0.0f));
}

void gf_pools_lay(const struct gf_layout *layout, struct gf_arena *arena,
                  struct gf_pool_parts *parts)
{
    const struct gf_config *config = &layout->config;
    uint64_t pool_elems =
        (config->optimizer.kind != GF_OPTIMIZER_NONE) ? layout->pool.elem_count : 0;
    /* fp32 weights have no copy of another type */
    uint64_t half_bytes = (config->optimizer.half_weights != GF_TYPE_F32)
                              ? pool_elems * gf_type_bytes(config->optimizer.half_weights)
                              : 0;
    uint64_t moment2_elems = (config->optimizer.kind == GF_OPTIMIZER_ADAMW) ? pool_elems : 0;
    parts->weight = gf_arena_take(arena, pool_elems * sizeof(float));
    parts->momentum = gf_arena_take(arena, has_momentum(config) ? pool_elems * sizeof(float) : 0);
    parts->moment2 = gf_arena_take(arena, moment2_elems * sizeof(float));
    parts->half = gf_arena_take(arena, half_bytes);
    parts->history = gf_arena_take(arena, layout->pool.sparse_elem_count * sizeof(float));
    parts->scratch = gf_arena_take(arena, scratch_elems(layout) * sizeof(float));
    parts->part = gf_arena_take(arena, sizeof(float));
}

void gf_pools_open(gf_context *gf, const struct gf_layout *layout,
                   const struct gf_pool_parts *parts, uint32_t *chunks)
{
    const struct gf_config *config = &gf->config;
    struct gf_weights *weights = &gf->optimizer;
    weights->weight = (config->optimizer.kind != GF_OPTIMIZER_NONE) ? mem(parts->weight) : 0;
    weights->moment2 = (config->optimizer.kind == GF_OPTIMIZER_ADAMW) ? mem(parts->moment2) : 0;
    weights->momentum = has_momentum(config) ? mem(parts->momentum) : 0;
    weights->half = (config->optimizer.half_weights != GF_TYPE_F32) ? mem(parts->half) : 0;
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
