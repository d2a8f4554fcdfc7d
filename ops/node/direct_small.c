/* Direct for small data: one barrier. Each rank copies its data to where the others read it, and
 * after the barrier reads all copies and combines them itself, in rank order, into its own data.
 * Each element is rounded as with blocks, so the bits are the same, and only its block's owner
 * looks whether it is finite.
 *
 * A copy that fits is inlined: it lies beside the flag in each peer's region, so that one cache
 * line travels instead of two. A larger one lies once, in its owner's region.
 *
 * A rank that has all flags of an operation does not know whether its copy has been read. For
 * operation k it knows that once all flags of operation k + GF_DIRECT_OPS_MAX are there, because no
 * rank takes that one before it is done with k. Therefore there are 2 L copies for the L operations
 * that can be under way, and a copy is written again only then. */
#include "ops/node/direct.h"

/* Where a rank's copy lies in its region, if it is not beside the flags. */
static size_t copy_at(const struct gf_coll *coll)
{
    const struct gf_direct *direct = coll->own.direct;
    return gf_direct_flags_bytes(direct->flag_ranks) +
           (size_t)(direct->order % (2 * GF_DIRECT_OPS_MAX)) * GF_DIRECT_SMALL_BYTES;
}

/* Blocks first..first+count-1, in bytes. */
static void range_of(const struct gf_coll *coll, uint32_t block, uint32_t block_count,
                     size_t *at_out, size_t *bytes_out)
{
    size_t elem_bytes = gf_coll_elem_bytes(coll);
    uint64_t first;
    uint64_t count;
    uint64_t last_first;
    gf_coll_block(coll->plan.elem_count, coll->size, block, &first, &count);
    gf_coll_block(coll->plan.elem_count, coll->size, block + block_count - 1, &last_first, &count);
    *at_out = first * elem_bytes;
    *bytes_out = (last_first + count - first) * elem_bytes;
}

static gf_status copy_put(struct gf_coll *coll)
{
    uint32_t first = (coll->plan.collective == GF_COLL_ALLGATHER) ? coll->index : 0;
    uint32_t count = (coll->plan.collective == GF_COLL_ALLGATHER) ? 1 : coll->size;
    gf_mem copy = gf_direct_region(coll, coll->index) + copy_at(coll);
    size_t at;
    size_t bytes;
    if (coll->plan.elem_count == 0) return GF_OK;
    range_of(coll, first, count, &at, &bytes);
    return coll->ops->copy(coll->queue, copy + at, coll->plan.data + at, bytes);
}

/* Elements first..end-1 of all copies, added into this rank's data. */
static gf_status sum_range(const struct gf_coll *coll, const gf_mem *from, uint64_t first,
                           uint64_t end, struct gf_check *check, struct gf_check *sources)
{
    gf_mem src[GF_DIRECT_RANKS_MAX];
    gf_mem dst = coll->plan.data + first * gf_coll_elem_bytes(coll);
    if (first >= end) return GF_OK;
    for (uint32_t index = 0; index < coll->size; index++)
        src[index] = from[index] + first * gf_coll_elem_bytes(coll);
    return gf_direct_sum(coll, &dst, 1, src, first, end - first, check, sources);
}

static gf_status sum_all(const struct gf_coll *coll, const gf_mem *from)
{
    uint64_t first;
    uint64_t count;
    gf_status status;
    if ((coll->plan.collective == GF_COLL_ALLREDUCE) && (coll->check == NULL))
        return gf_direct_sum(coll, &coll->plan.data, 1, from, 0, coll->plan.elem_count, NULL, NULL);
    gf_coll_block(coll->plan.elem_count, coll->size, coll->index, &first, &count);
    if (coll->plan.collective == GF_COLL_REDUCE_SCATTER)
        return sum_range(coll, from, first, first + count, coll->check, coll->sources);
    if ((status = sum_range(coll, from, 0, first, NULL, NULL)) < 0) return status;
    if ((status = sum_range(coll, from, first, first + count, coll->check, coll->sources)) < 0)
        return status;
    return sum_range(coll, from, first + count, coll->plan.elem_count, NULL, NULL);
}

/* Applies the plan's own reduction, which identifies a word by its offset in the data. */
static gf_status reduce_all(struct gf_coll *coll, const gf_mem *from)
{
    gf_status status = coll->ops->copy(coll->queue, coll->plan.data, from[0], coll->bytes);
    for (uint32_t index = 1; (status == GF_OK) && (index < coll->size); index++)
        status = coll->plan.reduce(coll->plan.reduce_arg, coll->plan.data, from[index],
                                   coll->plan.elem_count);
    return status;
}

static gf_status copy_some(struct gf_coll *coll, const gf_mem *from)
{
    for (uint32_t index = 0; index < coll->size; index++) {
        uint32_t owner = (coll->plan.collective == GF_COLL_BROADCAST) ? coll->plan.root : index;
        size_t at;
        size_t bytes;
        gf_status status;
        if (!gf_direct_moves(coll, index, false)) continue;
        range_of(coll, index, 1, &at, &bytes);
        status = coll->ops->copy(coll->queue, coll->plan.data + at, from[owner] + at, bytes);
        if (status < 0) return status;
        coll->bytes_mapped += bytes;
    }
    return GF_OK;
}

static gf_status small_get(struct gf_coll *coll)
{
    gf_mem from[GF_DIRECT_RANKS_MAX];
    gf_mem inlined = (gf_mem)(uintptr_t)gf_direct_slot_of(coll, 0)->inlined;
    size_t at;
    size_t bytes = coll->bytes;
    if (coll->plan.elem_count == 0) return GF_OK;
    if (gf_direct_of(coll)->inlined) {
        for (uint32_t index = 0; index < coll->size;
             index++, inlined += sizeof(struct gf_direct_slot))
            from[index] = inlined;
        from[coll->index] = coll->plan.data;
    } else {
        for (uint32_t index = 0; index < coll->size; index++) {
            if ((from[index] = gf_direct_region(coll, index)) == 0)
                return gf_direct_lost(coll, index);
            from[index] += copy_at(coll);
        }
    }
    if (coll->plan.collective > GF_COLL_REDUCE_SCATTER) return copy_some(coll, from);
    if (coll->plan.collective == GF_COLL_REDUCE_SCATTER)
        range_of(coll, coll->index, 1, &at, &bytes);
    coll->bytes_mapped += bytes * (coll->size - 1);
    return (coll->plan.reduce != NULL) ? reduce_all(coll, from) : sum_all(coll, from);
}

/* Prefetches the second cache line of each slot, if inlined data reaches into it. */
static void inlined_fetch(const struct gf_coll *coll)
{
    const char *slots = (const void *)gf_direct_slot_of(coll, 0);
    if (coll->bytes + offsetof(struct gf_direct_slot, inlined) <= GF_DIRECT_LINE_BYTES) return;
    for (uint32_t index = 0; index < coll->size; index++)
        __builtin_prefetch(slots + index * sizeof(struct gf_direct_slot) + GF_DIRECT_LINE_BYTES);
}

/* The flags are read in the next poll. A rank that reads them before the others have stored takes
 * the cache line from them, and the line travels three times instead of once. */
gf_status gf_direct_small_progress(struct gf_coll *coll, uint64_t now_ns)
{
    gf_status status;
    if (gf_direct_of(coll)->inlined) inlined_fetch(coll);
    status = gf_direct_flags_poll(coll, now_ns);
    return (status == GF_OK) ? small_get(coll) : status;
}

/* A reduction works in place, so it gets a copy of its own. The first poll makes the copy and sets
 * the flag. */
gf_status gf_direct_small_start(struct gf_coll *coll)
{
    struct gf_direct_state *direct = gf_direct_of(coll);
    gf_status status;
    direct->inlined = (coll->bytes <= GF_DIRECT_INLINE_BYTES) &&
                      (coll->plan.collective == GF_COLL_ALLREDUCE) && (coll->plan.reduce == NULL);
    if (!direct->inlined) {
        status = copy_put(coll);
        if (status < 0) return status;
    }
    status = gf_direct_signal(coll);
    coll->start_progressed = status == GF_OK;
    return status;
}
