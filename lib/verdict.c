/* The small agreement at the end of a step: finite or not, who was first, and how many samples the gradients stand for.
 * One vector of 64-bit words, each with its own way of being combined, so that any run of words may be folded alone:
 *     [0] local values that were not finite (sum)      [1] the first of them, as a key (lowest)
 *     [2] samples (sum)                                [3] sums that are not finite (sum)
 *     [4] restarted ranks that wait to come in (sum; only the coordinator knows)
 *     [5] for how long a rank has waited since its last tensor, and the rank (lowest: it was the last)
 *     [6] the same, without the rank (highest)
 *     [7] for how long a rank has not polled though it had nothing to compute, and the rank (highest)
 *     [8..] of a sparse step: norms of the chunks, two floats a word (sum) */
#include <string.h>

#include "context.h"

#define KEY_ELEM_BITS 37u /* gf_pool_place() allows no more elements */
#define KEY_TENSOR_BITS 14u
#define KEY_NONE UINT64_MAX
#define RANK_BITS 13u
#define WAIT_MASK ((UINT64_C(1) << (64 - RANK_BITS)) - 1) /* 26 days */
_Static_assert(GF_WORLD_MAX <= 1u << RANK_BITS, "a rank fits");

static uint64_t key_make(uint32_t rank, uint32_t tensor, uint64_t elem)
{
    return ((uint64_t)rank << (KEY_TENSOR_BITS + KEY_ELEM_BITS)) | ((uint64_t)tensor << KEY_ELEM_BITS) | elem;
}

static void norms_add(uint64_t *into, const uint64_t *from)
{
    float sums[2], more[2];
    memcpy(sums, into, sizeof sums);
    memcpy(more, from, sizeof more);
    sums[0] += more[0];
    sums[1] += more[1];
    memcpy(into, sums, sizeof sums);
}

/* dst and src lie at the same place of two vectors; dst tells which words these are. */
static gf_status verdict_fold(void *arg, gf_mem dst, gf_mem src, uint64_t word_count)
{
    const gf_context *gf = arg;
    uint64_t *into = (uint64_t *)(uintptr_t)dst;
    const uint64_t *from = (const uint64_t *)(uintptr_t)src;
    uint64_t first = (uint64_t)(into - gf->verdict);
    for (uint64_t i = 0; i < word_count; i++) {
        if (first + i >= GF_VERDICT_WORDS) norms_add(&into[i], &from[i]);
        else if ((first + i == 6) || (first + i == 7)) into[i] = (from[i] > into[i]) ? from[i] : into[i];
        else if ((first + i == 1) || (first + i == 5)) into[i] = (from[i] < into[i]) ? from[i] : into[i];
        else into[i] += from[i];
    }
    return GF_OK;
}

static void bad_of(gf_context *gf, uint32_t rank, uint32_t tensor, const struct gf_check *check)
{
    uint64_t elem = 0, key;
    gf->step.check.bad_count += check->bad_count;
    if (tensor == GF_TENSOR_NONE) tensor = 0; /* in a gap between tensors: the appliance wrote where nothing lies */
    else elem = check->bad_first - gf->tensors[tensor].first_elem;
    key = key_make(rank, tensor, elem);
    if (key < gf->step.first_key) gf->step.first_key = key;
}

void gf_verdict_local_at(gf_context *gf, uint32_t tensor, const struct gf_check *check)
{
    bad_of(gf, gf->rank, tensor, check);
}

static void bad_in(gf_context *gf, uint32_t rank, const struct gf_buffer *buffer, const struct gf_check *check)
{
    if (check->bad_count == 0) return;
    bad_of(gf, rank, gf_pool_find(gf->tensors, buffer->first_tensor, buffer->last_tensor, buffer->sparse != 0,
                                  check->bad_first), check);
}

void gf_verdict_local(gf_context *gf, const struct gf_buffer *buffer, const struct gf_check *check)
{
    bad_in(gf, gf->rank, buffer, check);
}

void gf_verdict_sources(gf_context *gf, const struct gf_buffer *buffer, const struct gf_check *sources)
{
    struct gf_check check = *sources;
    check.bad_first = buffer->first_elem + (sources->bad_first & ((UINT64_C(1) << GF_SOURCE_SHIFT) - 1));
    bad_in(gf, (uint32_t)(sources->bad_first >> GF_SOURCE_SHIFT), buffer, &check);
}

gf_status gf_verdict_post(gf_context *gf, uint64_t now_ns)
{
    struct gf_slot *slot = gf_slot_take(gf);
    uint64_t words = gf->step.sparse ? gf_verdict_words(gf->sparse.chunk_count) : GF_VERDICT_WORDS;
    if (slot == NULL) return GF_AGAIN;
    if (gf->step.sparse && (gf->sparse.chunk_count % 2 != 0))
        gf->sparse.scores[gf->sparse.chunk_count] = 0.0f; /* fills a word */
    gf->verdict[0] = gf->step.check.bad_count;
    gf->verdict[1] = gf->step.first_key;
    gf->verdict[2] = gf->step.samples;
    gf->verdict[3] = gf->step.sum_bad;
    gf->verdict[4] = gf_members_waiting(gf->members);
    gf->verdict[6] = (now_ns - gf->step.declared_ns) & WAIT_MASK;
    gf->verdict[5] = (gf->verdict[6] << RANK_BITS) | gf->rank;
    gf->verdict[7] = (gf->still_ns == 0) ? 0 : ((gf->still_ns & WAIT_MASK) << RANK_BITS) | gf->rank;
    gf->still_ns = 0;
    slot->operation = GF_OPERATION_VERDICT;
    slot->buffer = 0;
    slot->coll.fold = verdict_fold;
    slot->coll.fold_arg = gf;
    slot->coll.fold_elem_bytes = sizeof gf->verdict[0];
    gf->step.verdict_slot = (uint32_t)(slot - gf->slots);
    gf_slot_start(gf, slot, gf_exchange_choose_folded(gf, words * sizeof gf->verdict[0]), GF_COLL_ALLREDUCE, 0,
                  GF_TYPE_F32, (gf_mem)(uintptr_t)gf->verdict, words, gf_tag(gf->epoch, gf->step.number, GF_TAG_BUFFER_OTHER), now_ns);
    return GF_OK;
}

gf_status gf_verdict_poll(gf_context *gf, uint64_t now_ns)
{
    struct gf_slot *slot = &gf->slots[gf->step.verdict_slot];
    struct gf_step *step = &gf->step;
    gf_status status = gf_slot_poll(gf, slot, now_ns);
    if (status != GF_OK) return status;
    gf_slot_release(gf, slot);
    step->skipped = (gf->verdict[0] != 0) || (gf->verdict[3] != 0);
    step->samples_all = gf->verdict[2];
    gf->joiners = (uint32_t)gf->verdict[4];
    step->last_rank = (uint32_t)(gf->verdict[5] & ((1u << RANK_BITS) - 1));
    step->late_ns = gf->verdict[6] - (gf->verdict[5] >> RANK_BITS);
    if ((gf->verdict[7] >> RANK_BITS) > step->late_ns) {
        step->last_rank = (uint32_t)(gf->verdict[7] & ((1u << RANK_BITS) - 1));
        step->late_ns = gf->verdict[7] >> RANK_BITS;
    }
    if (step->skipped && (gf->verdict[1] != KEY_NONE)) {
        uint64_t key = gf->verdict[1];
        uint32_t tensor = (uint32_t)(key >> KEY_ELEM_BITS) & ((1u << KEY_TENSOR_BITS) - 1);
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "step %llu skipped on all ranks: %llu values are not finite, first on rank %u, tensor %u \"%s\", "
                    "element %llu",
                    (unsigned long long)step->number, (unsigned long long)gf->verdict[0],
                    (unsigned)(key >> (KEY_TENSOR_BITS + KEY_ELEM_BITS)), tensor, gf->tensors[tensor].name,
                    (unsigned long long)(key & ((UINT64_C(1) << KEY_ELEM_BITS) - 1)));
    } else if (step->skipped) {
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "step %llu skipped on all ranks: %llu sums left the range of the wire or of their gradient; "
                    "every local gradient was finite",
                    (unsigned long long)step->number, (unsigned long long)gf->verdict[3]);
    }
    return GF_OK;
}
