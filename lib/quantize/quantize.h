/* Fewer bits a gradient (exchange.quantize), with error feedback: what a rank could not say in a
 * step it says later.
 *
 * Per rank, over the pool: r, what it owes the sum of each element; over its blocks: e, what it
 * owes all of the result.
 *     pack:    x = r + g (unscaled);  q = quantized x, to the owners of its blocks;  r' = x - q
 *     owner:   s = e + q of all ranks, in fp32;  p = quantized s, to all ranks;  e' = s - p
 *     unpack:  g = p
 * Both are two arrays each: r' and e' take the place of r and e when the step is committed; a
 * skipped one has none. No partial sum is quantized: alltoall and direct fold each block at its
 * owner alone.
 *
 * View change: survivors keep r, as sparse communication's histories; a rank that lagged by the
 * step takes its r'; r of a dead rank is lost, that of a new one is 0. e is dropped, for blocks are
 * others' then. Saved states hold both; in another world r is inherited as histories are, and e
 * dropped, as where buffers or scale_elems are others. */
#ifndef GF_QUANTIZE_H
#define GF_QUANTIZE_H

#include "lib/core/op.h"
#include "ops/ops.h"

/* Of an operation: this rank's block of its buffer, in groups. */
struct gf_quantized_block {
    gf_context *gf;
    const struct gf_op *op;
    uint64_t elem_count; /* of the buffer */
    uint64_t first, count;
    uint64_t owner_first; /* its first element in owner[] */
    uint64_t folded;      /* groups so far, of all ranks */
    uint64_t calls;
};

struct gf_quantized {
    struct gf_groups form; /* elems 0: gradients are not quantized */
    gf_mem residual_next;  /* fp32 [pool.elem_count] r'; r is sparse.history */
    /* fp32 [owner_elems] in host memory, in the order in which buffers start */
    float *owner, *owner_next;
    uint64_t owner_elems;
    uint32_t epoch;                   /* that owner[] is of: in another one blocks are others' */
    uint64_t groups_used, owner_used; /* of the step under way: by buffers that started */
    struct gf_quantized_block of[GF_OPS_MAX];
};

static inline struct gf_groups gf_quantize_form(const struct gf_config *config)
{
    bool onebit = config->exchange.quantize == GF_QUANTIZE_ONEBIT;
    uint32_t elems = (config->exchange.scale_elems > 0) ? config->exchange.scale_elems
                     : onebit                           ? 256
                                                        : 32;
    if (config->exchange.quantize == GF_QUANTIZE_NONE) return (struct gf_groups){0};
    return (struct gf_groups){.elems = elems, .bits = onebit ? 1 : 8};
}
/* What fused buffers of `elem_count` elements together take: on the wire, and of owner[] in any
 * world that is not 1. */
static inline uint64_t gf_quantize_groups_max(const struct gf_groups *form, uint64_t elem_count,
                                              uint64_t buffer_count)
{
    return elem_count / form->elems + buffer_count;
}
static inline uint64_t gf_quantize_owner_max(const struct gf_groups *form, uint64_t elem_count,
                                             uint64_t buffer_count)
{
    return (gf_quantize_groups_max(form, elem_count, buffer_count) + buffer_count) / 2 *
           form->elems;
}

struct gf_step_module;
extern const struct gf_step_module gf_module_quantize;

#endif
