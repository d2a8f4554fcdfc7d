/* The vote: the small agreement at the end of a step (vote.h). It is an operation that reduces
 * each of its words by a rule of its own, and every word alone, so that any range of words may be
 * reduced at a time. */
#include <math.h>
#include <string.h>

#include "lib/context.h"
#include "lib/core/choose.h"
#include "lib/core/skipped.h"
#include "lib/core/vote.h"

/* Adds two words as doubles. Every rank adds the same two, but a CPU that adds two NaNs returns the
 * first one, so NaNs are made equal: all ranks get the same bits. */
static void metric_add(uint64_t *into, const uint64_t *from)
{
    double sum;
    double more;
    memcpy(&sum, into, sizeof sum);
    memcpy(&more, from, sizeof more);
    sum += more;
    if (isnan(sum)) sum = (double)NAN;
    memcpy(into, &sum, sizeof sum);
}

static void norms_add(uint64_t *into, const uint64_t *from)
{
    float sums[2];
    float more[2];
    memcpy(sums, into, sizeof sums);
    memcpy(more, from, sizeof more);
    sums[0] += more[0];
    sums[1] += more[1];
    memcpy(into, sums, sizeof sums);
}

/* How many processes wait to come in: each rank knows the number that it received last. */
static void waiting_add(uint64_t *into, uint64_t from)
{
    const uint64_t joiners = UINT32_MAX;
    uint64_t most = ((*into & joiners) > (from & joiners)) ? *into : from;
    *into = ((*into & ~joiners) + (from & ~joiners)) | (most & joiners);
}

#define BIT(word) (1u << (word))
#define HIGHEST (BIT(GF_VOTE_LAST) | BIT(GF_VOTE_STILL) | BIT(GF_VOTE_STEP_HIGHEST))
#define LOWEST                                                              \
    (BIT(GF_VOTE_FIRST_BAD) | BIT(GF_VOTE_FIRST_SUM) | BIT(GF_VOTE_FIRST) | \
     BIT(GF_VOTE_STEP_LOWEST))
#define RANK_MASK ((1u << GF_VOTE_RANK_BITS) - 1)
#define WAIT_MASK ((UINT64_C(1) << (64 - GF_VOTE_RANK_BITS)) - 1) /* 26 days */

/* dst and src have the same offset in two vectors; that of dst says which words these are. */
static gf_status vote_reduce(void *arg, gf_mem dst, gf_mem src, uint64_t word_count)
{
    const gf_context *gf = arg;
    uint64_t *into = (uint64_t *)(uintptr_t)dst;
    const uint64_t *from = (const uint64_t *)(uintptr_t)src;
    uint64_t first = (uint64_t)(into - gf->vote);
    for (uint64_t i = 0; i < word_count; i++) {
        if (first + i >= GF_VOTE_WORDS)
            norms_add(&into[i], &from[i]);
        else if (first + i >= GF_VOTE_METRIC)
            metric_add(&into[i], &from[i]);
        else if ((HIGHEST >> (first + i)) & 1)
            into[i] = (from[i] > into[i]) ? from[i] : into[i];
        else if ((LOWEST >> (first + i)) & 1)
            into[i] = (from[i] < into[i]) ? from[i] : into[i];
        else if (first + i == GF_VOTE_WAITING)
            waiting_add(&into[i], from[i]);
        else
            into[i] += from[i];
    }
    return GF_OK;
}

static void vote_done(gf_context *gf, struct gf_op *op, uint64_t now_ns)
{
    struct gf_step *step = &gf->step;
    const uint64_t *words = gf->vote;
    (void)op;
    step->state = GF_STEP_AGREED;
    step->skipped = (words[GF_VOTE_BAD] != 0) || (words[GF_VOTE_FIRST_SUM] != GF_KEY_NONE);
    step->samples_all = words[GF_VOTE_SAMPLES];
    memcpy(step->metrics, &words[GF_VOTE_METRIC], sizeof step->metrics);
    gf->change.joiners = (uint32_t)words[GF_VOTE_WAITING];
    gf->change.leavers = (uint32_t)(words[GF_VOTE_WAITING] >> 32) & 0xffffu;
    gf_samples_log(gf, words);
    step->last_rank = (uint32_t)(words[GF_VOTE_LAST] & RANK_MASK);
    step->late_ns = (words[GF_VOTE_LAST] >> GF_VOTE_RANK_BITS) - words[GF_VOTE_FIRST];
    gf->together_ns = now_ns;
    if ((words[GF_VOTE_STILL] >> GF_VOTE_RANK_BITS) > step->late_ns) {
        step->last_rank = (uint32_t)(words[GF_VOTE_STILL] & RANK_MASK);
        step->late_ns = words[GF_VOTE_STILL] >> GF_VOTE_RANK_BITS;
    }
    if (words[GF_VOTE_BAD] != 0)
        gf_skip_values_log(gf, words);
    else if (step->skipped)
        gf_skip_sum_log(gf, words);
    else
        gf_skip_none(gf);
}

gf_status gf_vote_check(gf_context *gf)
{
    const uint64_t lowest = gf->vote[GF_VOTE_STEP_LOWEST] >> GF_VOTE_RANK_BITS;
    const uint64_t highest = gf->vote[GF_VOTE_STEP_HIGHEST] >> GF_VOTE_RANK_BITS;
    const uint32_t rank = (uint32_t)(gf->vote[GF_VOTE_STEP_LOWEST] & RANK_MASK);
    const uint32_t other = (uint32_t)(gf->vote[GF_VOTE_STEP_HIGHEST] & RANK_MASK);
    /* steps count from 1: 0 is of a simulation that leaves the data out */
    if ((lowest == highest) || (lowest == 0)) return GF_OK;
    return gf_fail(
        gf, GF_ERR_MISMATCH, GF_OPERATION_STEP, rank, GF_TENSOR_NONE,
        "rank %u is in step %llu, and rank %u in step %llu: all ranks must load one save", rank,
        (unsigned long long)lowest, other, (unsigned long long)highest);
}

static const struct gf_op_kind vote_kind = {.done = vote_done};

static void words_put(gf_context *gf)
{
    uint64_t *words = gf->vote;
    uint64_t declared_ns = gf->step.declared_ns;
    words[GF_VOTE_BAD] = gf->finite.local_count;
    words[GF_VOTE_FIRST_BAD] = gf->finite.first_key;
    words[GF_VOTE_SAMPLES] = gf->step.samples;
    words[GF_VOTE_FIRST_SUM] = gf->finite.first_sum;
    words[GF_VOTE_WAITING] = gf_control_joiners(gf->control) |
                             ((uint64_t)(gf->change.leaves ? 1 : 0) << 32) |
                             ((uint64_t)(gf->step.samples_set ? 1 : 0) << GF_VOTE_SAID_BIT);
    words[GF_VOTE_FIRST] =
        (declared_ns > gf->together_ns) ? (declared_ns - gf->together_ns) & WAIT_MASK : 0;
    words[GF_VOTE_LAST] = (words[GF_VOTE_FIRST] << GF_VOTE_RANK_BITS) | gf->rank;
    words[GF_VOTE_STILL] = ((gf->polled.still_ns & WAIT_MASK) << GF_VOTE_RANK_BITS) | gf->rank;
    gf->polled.still_ns = 0;
    words[GF_VOTE_STEP_LOWEST] = (gf->step.number << GF_VOTE_RANK_BITS) | gf->rank;
    words[GF_VOTE_STEP_HIGHEST] = words[GF_VOTE_STEP_LOWEST];
    memcpy(&words[GF_VOTE_METRIC], gf->step.metrics, sizeof gf->step.metrics);
}

bool gf_vote_post(gf_context *gf)
{
    const uint64_t count = gf->step.sparse ? gf_vote_words(gf->sparse.chunk_count) : GF_VOTE_WORDS;
    struct gf_op *op = gf_op_seek(gf);
    if (op == NULL) return false;
    op->plan = (struct gf_op_plan){
        .kind = &vote_kind,
        .operation = GF_OPERATION_VOTE,
        .algorithm = gf_choose_reduced(gf, count * sizeof gf->vote[0]),
        .packed = (gf_mem)(uintptr_t)gf->vote,
    };
    op->coll.plan = (struct gf_coll_plan){
        .collective = GF_COLL_ALLREDUCE,
        .type = GF_TYPE_F32,
        .elem_count = count,
        .data = (gf_mem)(uintptr_t)gf->vote,
        .tag = gf_tag(gf->generation, gf->step.number, GF_TAG_BUFFER_OTHER),
        .reduce = vote_reduce,
        .reduce_arg = gf,
        .reduce_elem_bytes = sizeof gf->vote[0],
    };
    gf_op_take(gf, op);
    gf->step.state = GF_STEP_VOTED;
    words_put(gf);
    return true;
}
