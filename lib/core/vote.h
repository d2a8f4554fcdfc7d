/* The small agreement at the end of a step: whether all values were finite and where the first was
 * that was not, how many samples the gradients stand for, and which rank was slow. It is one vector
 * of 64-bit words. In a sparse step the scores of the chunks follow, two floats a word (summed). */
#ifndef GF_VOTE_H
#define GF_VOTE_H

#include "gradientflow.h"

/* In brackets: how all ranks' words are combined. Times count from the vote before, which ends on
 * all ranks at the same time to within a small message; an exchange does not. */
enum {
    GF_VOTE_BAD,       /* local values that were not finite (sum) */
    GF_VOTE_FIRST_BAD, /* the first of them, as a key of finite.h (lowest) */
    GF_VOTE_SAMPLES,   /* (sum) */
    /* the first sum that is not finite, as a key of the rank that added or rounded it (lowest) */
    GF_VOTE_FIRST_SUM,
    /* processes that wait to come in (highest), above 32 bits the ranks that want to leave, and
     * above 48 those that said gf_step_samples() (sums) */
    GF_VOTE_WAITING,
    /* time from the vote before to a rank's last tensor, above the rank (highest: it was the
     * last) */
    GF_VOTE_LAST,
    GF_VOTE_FIRST, /* the same time, without the rank (lowest) */
    /* how long a rank did not poll though it had nothing to compute, above the rank (highest) */
    GF_VOTE_STILL,
    /* the step that a rank is in, in the bits above the rank (lowest, highest) */
    GF_VOTE_STEP_LOWEST,
    GF_VOTE_STEP_HIGHEST,
    GF_VOTE_METRIC, /* [GF_METRICS] gf_step_metric(), each a double (sum) */
    GF_VOTE_WORDS = GF_VOTE_METRIC + GF_METRICS
};
#define GF_VOTE_SAID_BIT 48u
#define GF_VOTE_RANK_BITS 13u
_Static_assert(GF_WORLD_MAX <= 1u << GF_VOTE_RANK_BITS, "a rank fits");

static inline uint64_t gf_vote_words(uint32_t chunk_count)
{
    return GF_VOTE_WORDS + ((uint64_t)chunk_count + 1) / 2;
}

/* Takes an op for the vote: the step is VOTED; false: none is free. When all have voted, it is
 * AGREED, with skipped, samples_all, last_rank and late_ns; why a step is skipped is logged. */
bool gf_vote_post(gf_context *gf);
/* After the vote. GF_ERR_MISMATCH: ranks are in different steps, because they have loaded saves of
 * different steps. Messages carry the step in their tag, so there a difference shows earlier;
 * shared memory has no tags, so there only this check finds it. */
gf_status gf_vote_check(gf_context *gf);

#endif
