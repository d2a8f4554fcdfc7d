/* Coarse-grained sparse communication: only the chunks with the largest scores travel, and the
 * others wait in the history.
 *
 * Per rank, over the sparse part of the pool: h history, u momentum (the momentum pool itself), S_t
 * the chunks sent. A step, with g the unscaled local gradient plus this rank's share of the weight
 * decay (arXiv 1902.06855):
 *
 *     reduced        h' = h + g
 *     local          u' = momentum*u + g
 *                    h' = h + momentum*u' + g
 *     chunks in S_t  the sum of h' over the ranks is applied, then h = 0
 *     other chunks   nothing is sent or applied, h = h'
 *     scores         n_c over all ranks: reduced |h_c|_1, local |g_c|_1, of all chunks
 *     selection      S_t+1 has the k chunks with the largest scores; of equals, the lower index
 *
 * reduced applies momentum after the reduction, to the chunks that were sent.
 *
 * Nothing is written to h and u before the vote: sending computes h' on its way to the wire,
 * scoring computes it on its way to the norm, and the commit computes it once more to keep it. */
#ifndef GF_SPARSE_H
#define GF_SPARSE_H

#include "lib/core/step.h"

struct gf_buffer;

/* Scores are one vector of one exchange a step, and every rank looks at all of them: this many
 * chunks at most. */
#define GF_SPARSE_CHUNKS_MAX (1u << 22)

/* How far a pass over the chunks of the part has come. It advances by segments: a segment is a
 * chunk, or a slice of a chunk that is larger.
 *
 *     chunks       |         0         |         1         |         2         |  3  |
 *     segments     |    .    .    .    |    .    .    .    |    .    .    .    |     |
 *     selection          slot 0                                  slot 1
 *                                           ^ elem, with chunk 1 and slot 1 */
struct gf_sparse_pass {
    uint64_t elem;   /* of the pool: the next one */
    uint32_t chunk;  /* that holds it */
    uint32_t slot;   /* of the selection: the first one whose chunk is this one or a later one */
    uint32_t tensor; /* every tensor before this one ends before elem */
};

struct gf_sparse {
    gf_type type;        /* of the gradients of the part */
    uint64_t elem_count; /* of the sparse part; 0: there is none */
    uint64_t chunk_elems;
    uint32_t chunk_count;
    /* [chunk_count]; selected_count chunks of the next sparse step, rising */
    uint32_t *selection;
    uint32_t selected_count; /* 0: no selection has been made */
    uint32_t *sent;          /* [chunk_count]; the chunks of the step that was committed last */
    uint32_t sent_count;
    gf_mem history; /* fp32 [elem_count] */
    /* all of it is 0, because every step so far has sent all chunks */
    bool history_empty;
    /* Ranks by which what waits would be divided: those of the last generation that was ready. */
    uint32_t world;
    bool local_begun; /* u is each rank's own share, no longer the common momentum */
    /* fp32 [scratch_elems]: a slice, on a device more, or all of the part */
    gf_mem scratch;
    uint64_t scratch_elems;
    gf_mem part;   /* fp32 [1]: score of a segment of a chunk */
    bool in_lists; /* on a device: sparse_lists.c */
    bool decays;   /* in_lists: weights of the part do */
    /* [chunk_count] in registered host memory: chunks sent, then the others, each rising */
    uint32_t *lists;
    gf_mem device_lists; /* the same where kernels read them */
    float *scores;       /* [chunk_count] in the vote's vector */

    /* of the step under way */
    uint32_t ready_tensor; /* every tensor of the sparse part before this one is ready */
    uint64_t ready_elems;  /* and so every element before this one */
    struct gf_sparse_pass pack[GF_OPS_MAX]; /* of each op's buffer */
    struct gf_sparse_pass score;
    /* in_lists: chunks of the list of others (local: of all) that are queued to be scored */
    uint32_t listed;
    bool score_queued; /* the end of the scoring, of a sparse step or after a dense one */
    bool scored;
    struct gf_sparse_pass commit; /* also after a dense step; at 0 between steps */
    /* elements of sent chunks that the commit has passed, which says where the next one's sum lies
     * in the pack buffer */
    uint64_t commit_packed;
};

static inline uint64_t gf_chunk_first(const struct gf_sparse *sparse, uint32_t chunk)
{
    return chunk * sparse->chunk_elems;
}

static inline uint64_t gf_chunk_end(const struct gf_sparse *sparse, uint32_t chunk)
{
    uint64_t end = (chunk + UINT64_C(1)) * sparse->chunk_elems;
    return (end < sparse->elem_count) ? end : sparse->elem_count;
}

bool gf_sparse_is_local(const gf_context *gf); /* sparse.momentum is */

/* What one launch computes: chunks of a list, in rising order, or a run of elements of the part. */
struct gf_sparse_batch {
    gf_mem list_u32;       /* in the memory of kernels; 0: a run */
    uint32_t count;        /* chunks listed */
    uint64_t first, elems; /* a run's first element, 0 of a list; of all of it */
};

/* sparse.c */
struct gf_layout;
/* at open: chunks and buffers of layout */
gf_status gf_sparse_measure(struct gf_layout *layout, char *error_out);
/* once tensors and pools are laid out */
void gf_sparse_open(gf_context *gf);
/* A step begins: sets step.sparse and its buffers, unless it is a dense one. */
gf_status gf_sparse_begin(gf_context *gf);
/* of a sparse step: a commit has begun and is not done */
bool gf_sparse_commits(const gf_context *gf);
/* The optimizer's step for the chunks that a sparse step sent. */
gf_status gf_sparse_update(gf_context *gf, float learning_rate);
/* What waits from steps of so many ranks, times this, counts in this world as it did in theirs. */
float gf_sparse_world_factor(const gf_context *gf, uint32_t ranks);
/* A generation is about to be ready: history and local momentum are multiplied by that. */
gf_status gf_sparse_world_set(gf_context *gf);
/* sparse_pack.c */
extern const struct gf_op_kind gf_sparse_buffer;
/* sparse_score.c. Of a sparse step, about a slice a call; GF_OK: all chunks have their score. */
gf_status gf_sparse_score(gf_context *gf, uint64_t now_ns);
/* sparse_commit.c. After the vote of any step that is not skipped, about a slice a call. GF_OK:
 * history, momentum and gradients are those after the step, and the next chunks are chosen. */
gf_status gf_sparse_commit(gf_context *gf, float factor);

struct gf_chunks gf_sparse_chunks(const struct gf_sparse *sparse,
                                  const struct gf_sparse_batch *batch);
/* Scores of a batch to scores[at] and on. A run is a segment of a chunk, or whole chunks. tensor:
 * as in a pass; NULL: gradients are scored, not h'. check: counts what is not finite, or NULL. */
gf_status gf_sparse_batch_score(gf_context *gf, struct gf_queue *queue,
                                const struct gf_sparse_batch *batch, uint32_t at, uint32_t *tensor,
                                struct gf_check *check);
gf_status gf_sparse_batch_commit(gf_context *gf, const struct gf_sparse_batch *batch, bool sent,
                                 float factor);
/* Elements of `count` rising chunks, of which only the part's last may be short. */
uint64_t gf_chunks_elems(const struct gf_sparse *sparse, const uint32_t *chunks, uint32_t count);
/* The element at index `packed` of listed chunks that lie one after the other. */
uint64_t gf_sparse_elem_of(const struct gf_sparse *sparse, const uint32_t *chunks, uint64_t packed);

/* sparse_lists.c. These queue everything and return. Only the score may have to be called again, as
 * more gradients become ready. */
void gf_sparse_lists_open(gf_context *gf);
gf_status gf_sparse_lists_begin(gf_context *gf);
/* The next chunks of the buffer, as many as the scratch holds. */
struct gf_sparse_batch gf_sparse_lists_sent(const struct gf_sparse *sparse,
                                            const struct gf_buffer *buffer,
                                            struct gf_sparse_pass *pack);
gf_status gf_sparse_lists_score(gf_context *gf); /* GF_OK: all of them are queued */
void gf_sparse_lists_scatter(gf_context *gf);    /* after their event */
gf_status gf_sparse_lists_commit(gf_context *gf, float factor);
gf_status gf_sparse_lists_update(gf_context *gf, float learning_rate); /* without LARS */
gf_status gf_sparse_lists_weigh(gf_context *gf);                       /* after a dense step */

/* Chunks that step `number` sends (1 is the first): all during warm-up, then falling in a straight
 * line over ramp_steps to the kept share, which is at least one chunk. */
uint32_t gf_sparse_kept(const struct gf_config *config, uint32_t chunk_count, uint64_t number);

/* The `kept` largest scores, ties to the lower index, as rising indices in selection_out[kept].
 * Scores are numbers and not negative. kept is at most count. */
void gf_sparse_select(const float *scores, uint32_t count, uint32_t kept, uint32_t *selection_out);

#endif
