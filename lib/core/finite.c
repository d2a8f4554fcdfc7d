/* See finite.h. */
#include "lib/context.h"
#include "lib/core/accessors.h"

struct gf_check *gf_finite_counter(const gf_context *gf, uint32_t index, gf_count which)
{
    return (struct gf_check *)(uintptr_t)gf->finite.counters + index * GF_COUNTS + which;
}

struct gf_check *gf_finite_seen(const gf_context *gf, uint32_t index, gf_count which)
{
    return &gf->finite.seen[index * GF_COUNTS + which];
}

void gf_finite_begin(gf_context *gf, uint32_t index)
{
    for (gf_count which = 0; !gf->on_device && (which < GF_COUNTS); which++)
        *gf_finite_counter(gf, index, which) = (struct gf_check){.bad_first = UINT64_MAX};
}

void gf_finite_step(gf_context *gf)
{
    gf->finite.local_count = 0;
    gf->finite.first_key = gf->finite.first_sum = GF_KEY_NONE;
}

/* Puts the key of check's first value into *key_out if it is lower. buffer NULL: indices are of the
 * pool. */
static void first_put(const gf_context *gf, uint32_t rank, const struct gf_buffer *buffer,
                      const struct gf_check *check, uint64_t *key_out)
{
    uint32_t first = 0;
    uint32_t last = gf->tensor_count - 1;
    uint32_t tensor;
    uint64_t elem = 0;
    uint64_t key;
    bool sparse = (buffer == NULL) || (buffer->sparse != 0);
    if (check->bad_count == 0) return;
    if (buffer != NULL) {
        first = buffer->first_tensor;
        last = buffer->last_tensor;
    }
    tensor = gf_pool_find(gf->tensors, first, last, sparse, check->bad_first);
    /* none: the value is in a gap between tensors, where the appliance wrote though no tensor
     * lies there */
    if (tensor == GF_TENSOR_NONE)
        tensor = 0;
    else
        elem = check->bad_first - gf->tensors[tensor].first_elem;
    key = ((uint64_t)rank << (GF_KEY_TENSOR_BITS + GF_KEY_ELEM_BITS)) |
          ((uint64_t)tensor << GF_KEY_ELEM_BITS) | elem;
    if (key < *key_out) *key_out = key;
}

/* Adds values of this rank that are not finite. */
static void local_add(gf_context *gf, const struct gf_buffer *buffer, const struct gf_check *check)
{
    gf->finite.local_count += check->bad_count;
    first_put(gf, gf->rank, buffer, check, &gf->finite.first_key);
}

static void sums_add(gf_context *gf, const struct gf_buffer *buffer, const struct gf_check *check)
{
    first_put(gf, gf->rank, buffer, check, &gf->finite.first_sum);
}

/* Adds values of all ranks that are not finite, in the blocks that this rank added: sum_n() says
 * whose value was the first. */
static void sources_add(gf_context *gf, const struct gf_op *op, const struct gf_buffer *buffer,
                        struct gf_check check)
{
    const uint32_t *ranks =
        (op->plan.algorithm == GF_ALGORITHM_HIERARCHY) ? gf->nodes.of.local : NULL;
    uint32_t source = (uint32_t)(check.bad_first >> GF_SOURCE_SHIFT);
    if (check.bad_count == 0) return;
    check.bad_first &= (UINT64_C(1) << GF_SOURCE_SHIFT) - 1;
    gf->finite.local_count += check.bad_count;
    first_put(gf, gf_rank_at(ranks, source), buffer, &check, &gf->finite.first_key);
}

/* Counters of a sparse buffer count packed elements: translates the index of the first one to the
 * pool. */
static struct gf_check placed(const gf_context *gf, const struct gf_buffer *buffer,
                              const struct gf_check *check)
{
    struct gf_check at = *check;
    if ((buffer->chunk_count > 0) && (at.bad_count > 0))
        at.bad_first = gf_sparse_elem_of(&gf->sparse, gf->sparse.selection + buffer->chunk_first,
                                         at.bad_first);
    return at;
}

void gf_finite_buffer(gf_context *gf, const struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    const struct gf_check local =
        placed(gf, buffer, gf_finite_seen(gf, op->index, GF_COUNT_PACKED));
    const struct gf_check added = placed(gf, buffer, &op->summed);
    const struct gf_check unpacked =
        placed(gf, buffer, gf_finite_seen(gf, op->index, GF_COUNT_SUMMED));
    local_add(gf, buffer, &local);
    sums_add(gf, buffer, &added);
    sums_add(gf, buffer, &unpacked);
    sources_add(gf, op, buffer, op->sources);
    sources_add(gf, op, buffer, *gf_finite_seen(gf, op->index, GF_COUNT_SOURCES));
}

void gf_finite_scored(gf_context *gf, const struct gf_check *check)
{
    local_add(gf, NULL, check);
}
