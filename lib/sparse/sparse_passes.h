/* What the passes of a sparse step share: sparse_pack.c (to the wire), sparse_score.c (to the
 * vote) and sparse_commit.c (after the vote, to memory). Each computes h' with what
 * sparse_history.c has, and none but the commit writes h and u. */
#ifndef GF_SPARSE_PASSES_H
#define GF_SPARSE_PASSES_H

#include "lib/context.h"

/* What a segment costs beside its elements: bounds how many tiny chunks a poll takes. */
#define GF_SEGMENT_COST_ELEMS 64u

/* Where the segment that begins at pass->elem ends. A chunk is cut at the same elements in every
 * pass, however many polls that takes: its norm must not depend on timing. */
uint64_t gf_segment_end(const gf_context *gf, const struct gf_sparse_pass *pass);
/* Does this step send the chunk that the pass is in? */
bool gf_pass_selected(const struct gf_sparse *sparse, const struct gf_sparse_pass *pass);
/* On to `end`, where a segment ended. */
void gf_pass_advance(const struct gf_sparse *sparse, struct gf_sparse_pass *pass, uint64_t end);

/* All sparse tensors share one type, and their part begins the pool: the index of an element alone
 * says where its gradient lies. */
static inline gf_mem gf_sparse_gradient(const gf_context *gf, uint64_t elem)
{
    return gf->gradient + elem * gf_type_bytes(gf->sparse.type);
}
/* Does each rank keep a momentum u of its own? */
static inline bool gf_sparse_has_u(const gf_context *gf)
{
    return gf_sparse_is_local(gf) && (gf->optimizer.momentum != 0);
}

typedef enum gf_accumulate_to {
    GF_ACCUMULATE_SCRATCH, /* h' to the scratch, one element after the other; h and u stay */
    GF_ACCUMULATE_MEMORY   /* h' and u' take the place of h and u */
} gf_accumulate_to;
/* *tensor is that of a pass: the rule of decay is looked up from there on. */
gf_status gf_sparse_accumulate(gf_context *gf, struct gf_queue *queue,
                               const struct gf_sparse_batch *batch, uint32_t *tensor,
                               gf_accumulate_to to);

/* The counter of values that are not finite, of what is scored. */
static inline uint32_t gf_score_counter(const gf_context *gf)
{
    return gf->under_way.count;
}
/* The scores that were queued: GF_OK once they and their counter are in host memory. */
gf_status gf_sparse_scores_poll(gf_context *gf, struct gf_queue *queue);

#endif
