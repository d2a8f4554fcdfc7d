/* Direct for small data: one barrier. Each rank copies its data beside its flags, and after the barrier reads all
 * copies and combines them itself, in rank order, into its own data: nobody writes to another's memory but flags. Each
 * element is rounded as with blocks, so the bits are the same, and only its block's owner looks whether it is finite.
 *
 * A rank that has all flags of an operation does not know whether its copy has been read. It knows so of operation k
 * once all flags of operation k + GF_DIRECT_LANES are there, as nobody takes that place before it is done with k. A
 * lane therefore has two places, used in turn, and a place is written anew only then. */
#include "ops/node/direct.h"

static gf_mem small_at(const struct gf_coll *coll, uint32_t index)
{
    gf_mem region = gf_direct_region(coll, index);
    if (region == 0) return 0;
    return region + coll->own.direct->area_offset + gf_direct_flags_bytes(coll->own.direct->lane_ranks) +
           (size_t)(coll->own.direct->order % (2 * GF_DIRECT_LANES)) * GF_DIRECT_SMALL_BYTES;
}

/* Blocks first..first+count-1, in bytes. */
static void range_of(const struct gf_coll *coll, uint32_t block, uint32_t block_count, size_t *at_out, size_t *bytes_out)
{
    size_t elem_bytes = gf_coll_elem_bytes(coll);
    uint64_t first, count, last_first;
    gf_coll_block(coll->elem_count, coll->size, block, &first, &count);
    gf_coll_block(coll->elem_count, coll->size, block + block_count - 1, &last_first, &count);
    *at_out = first * elem_bytes;
    *bytes_out = (last_first + count - first) * elem_bytes;
}

gf_status gf_direct_small_put(struct gf_coll *coll)
{
    uint32_t first = (coll->op == GF_COLL_ALLGATHER) ? coll->index : 0;
    uint32_t count = (coll->op == GF_COLL_ALLGATHER) ? 1 : coll->size;
    size_t at, bytes;
    range_of(coll, first, count, &at, &bytes);
    return coll->ops->copy(coll->queue, small_at(coll, coll->index) + at, coll->data + at, bytes);
}

/* Elements first..end-1 of all copies, added into this rank's data. */
static gf_status sum_range(const struct gf_coll *coll, const gf_mem *from, uint64_t first, uint64_t end,
                           struct gf_check *check, struct gf_check *sources)
{
    gf_mem src[GF_DIRECT_RANKS_MAX], dst = coll->data + first * gf_coll_elem_bytes(coll);
    if (first >= end) return GF_OK;
    for (uint32_t index = 0; index < coll->size; index++) src[index] = from[index] + first * gf_coll_elem_bytes(coll);
    return coll->ops->sum_n(coll->queue, &dst, 1, src, coll->size, coll->type, end - first, coll->base + first, check,
                            sources);
}

static gf_status sum_all(const struct gf_coll *coll, const gf_mem *from)
{
    uint64_t first, count;
    gf_status status;
    gf_coll_block(coll->elem_count, coll->size, coll->index, &first, &count);
    if (coll->op == GF_COLL_REDUCE_SCATTER)
        return sum_range(coll, from, first, first + count, coll->check, coll->sources);
    if (coll->check == NULL) return sum_range(coll, from, 0, coll->elem_count, NULL, NULL);
    if ((status = sum_range(coll, from, 0, first, NULL, NULL)) < 0) return status;
    if ((status = sum_range(coll, from, first, first + count, coll->check, coll->sources)) < 0) return status;
    return sum_range(coll, from, first + count, coll->elem_count, NULL, NULL);
}

/* The owner's way of combining, which tells words by where they lie in the data. */
static gf_status fold_all(struct gf_coll *coll, const gf_mem *from)
{
    gf_status status = coll->ops->copy(coll->queue, coll->data, from[0], coll->elem_count * gf_coll_elem_bytes(coll));
    for (uint32_t index = 1; (status == GF_OK) && (index < coll->size); index++)
        status = coll->fold(coll->fold_arg, coll->data, from[index], coll->elem_count);
    return status;
}

static gf_status copy_some(struct gf_coll *coll, const gf_mem *from)
{
    for (uint32_t index = 0; index < coll->size; index++) {
        uint32_t owner = (coll->op == GF_COLL_BROADCAST) ? coll->root : index;
        size_t at, bytes;
        gf_status status;
        if (!gf_direct_moves(coll, index, false)) continue;
        range_of(coll, index, 1, &at, &bytes);
        status = coll->ops->copy(coll->queue, coll->data + at, from[owner] + at, bytes);
        if (status < 0) return status;
        coll->bytes_mapped += bytes;
    }
    return GF_OK;
}

gf_status gf_direct_small_get(struct gf_coll *coll)
{
    gf_mem from[GF_DIRECT_RANKS_MAX];
    size_t at, bytes;
    for (uint32_t index = 0; index < coll->size; index++)
        if ((from[index] = small_at(coll, index)) == 0) return gf_direct_lost(coll, index);
    if (coll->op > GF_COLL_REDUCE_SCATTER) return copy_some(coll, from);
    range_of(coll, (coll->op == GF_COLL_ALLREDUCE) ? 0 : coll->index, (coll->op == GF_COLL_ALLREDUCE) ? coll->size : 1,
             &at, &bytes);
    coll->bytes_mapped += bytes * (coll->size - 1);
    return (coll->fold != NULL) ? fold_all(coll, from) : sum_all(coll, from);
}
