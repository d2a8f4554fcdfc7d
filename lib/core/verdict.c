/* The small agreement at the end of a step: finite or not, who was first, and how many samples the gradients stand for.
 * One vector of 64-bit words, each with its own way of being combined, so that any run of words may be folded alone:
 *     [0] local values that were not finite (sum)      [1] the first of them, as a key (lowest)
 *     [2] samples (sum)                                [3] sums that are not finite (sum)
 *     [4] restarted ranks that wait to come in (sum; only the coordinator knows)
 *     [5] how long after the verdict before this one a rank has declared its last tensor, and the rank (highest: it was
 *         the last)
 *     [6] the same, without the rank (lowest)
 *     [7] for how long a rank has not polled though it had nothing to compute, and the rank (highest)
 *     [8], [9] the time for its bytes of the quickest message from a peer, of the peer where that is highest (timing.h),
 *         and of whom to whom that was (highest). Each rank uses one of the two, in half of the steps the other one
 *     [10] of how many ranks, and all their times (sum)
 *     [11] the same as [8] of the peer where it is lowest, of ranks that have several, and of which rank (highest):
 *         whoever is slow from all sides is at the end of the slow link
 *     [12..] of a sparse step: norms of the chunks, two floats a word (sum)
 * The verdict before is when all were last together, to within a small message: an exchange does not end everywhere at
 * once. */
#include <string.h>

#include "lib/context.h"

#define KEY_ELEM_BITS 37u /* gf_pool_place() allows no more elements */
#define KEY_TENSOR_BITS 14u
#define KEY_NONE UINT64_MAX
#define RANK_BITS 13u
#define WAIT_MASK ((UINT64_C(1) << (64 - RANK_BITS)) - 1) /* 26 days */
#define TIMING_MAX ((UINT64_C(1) << 24) - 1) /* ns for a KiB: 61 KB/s */
#define TIMING_COUNT_BITS 16u
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

#define HIGHEST ((1u << 5) | (1u << 7) | (1u << 8) | (1u << 9) | (1u << 11))
#define LOWEST ((1u << 1) | (1u << 6))

/* dst and src lie at the same place of two vectors; dst tells which words these are. */
static gf_status verdict_fold(void *arg, gf_mem dst, gf_mem src, uint64_t word_count)
{
    const gf_context *gf = arg;
    uint64_t *into = (uint64_t *)(uintptr_t)dst;
    const uint64_t *from = (const uint64_t *)(uintptr_t)src;
    uint64_t first = (uint64_t)(into - gf->verdict);
    for (uint64_t i = 0; i < word_count; i++) {
        if (first + i >= GF_VERDICT_WORDS) norms_add(&into[i], &from[i]);
        else if ((HIGHEST >> (first + i)) & 1) into[i] = (from[i] > into[i]) ? from[i] : into[i];
        else if ((LOWEST >> (first + i)) & 1) into[i] = (from[i] < into[i]) ? from[i] : into[i];
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

/* Where both directions of a rank's link are slow, two ranks besides it measure that, or it and one: which of them is
 * heard of must change from step to step, so that the one they have in common stands out. */
static uint32_t link_word(uint32_t rank, uint64_t step)
{
    uint32_t mixed = (rank + 1) * 0x9e3779b1u ^ (uint32_t)step * 0x85ebca6bu;
    mixed = (mixed ^ (mixed >> 15)) * 0x2c1b3c6du;
    return 8 + (mixed >> 31);
}

/* A size as a few bits: four steps an octave, rounded down. */
static uint64_t kib_pack(uint64_t bytes)
{
    uint64_t kib = bytes / 1024, octave = 0;
    for (kib = (kib < 1) ? 4 : 4 * kib; kib >= 8; kib /= 2) octave++;
    return (octave > 31) ? 127 : 4 * octave + kib - 4;
}

static uint64_t kib_of(uint64_t packed) { return ((4 + packed % 4) << (packed / 4)) / 4; }

/*     63..40 ns/KiB | 39 awaited behind another | 38..33 size of the message, as packed | 32..26 of all in the step |
 *     25..13 from | to */
static uint64_t timing_pack(const struct gf_timing_peer *peer, uint32_t from, uint32_t to)
{
    uint64_t timing = gf_timing_ns_per_kib(peer), size = kib_pack(peer->bytes);
    if (timing > TIMING_MAX) timing = TIMING_MAX;
    if (size > 63) size = 63;
    return (timing << 40) | ((uint64_t)peer->is_behind << 39) | (size << 33) | (kib_pack(peer->all_bytes) << 26) |
           ((uint64_t)from << RANK_BITS) | to;
}

static void links_tell(gf_context *gf)
{
    const struct gf_timing_peer *slowest = gf_timing_slowest(&gf->timing), *quickest = gf_timing_quickest(&gf->timing);
    uint32_t from = (slowest == NULL) ? GF_RANK_NONE : gf_rank_of(gf, slowest->peer);
    uint64_t word;
    gf->verdict[8] = gf->verdict[9] = gf->verdict[10] = gf->verdict[11] = 0;
    if (from == GF_RANK_NONE) return;
    word = timing_pack(slowest, from, gf->rank);
    gf->verdict[link_word(gf->rank, gf->step.number)] = word;
    gf->verdict[10] = ((word >> 40) << TIMING_COUNT_BITS) | 1;
    if (quickest != slowest) gf->verdict[11] = timing_pack(quickest, gf->rank, gf->rank);
}

/* What the bytes of a step took more on that link than on all in the mean. A sender that declared its last tensor
 * late was not there when its first message was awaited; one that stood still was not there at any time. */
static uint64_t link_excess(const gf_context *gf, uint64_t word)
{
    uint64_t count = gf->verdict[10] & ((1u << TIMING_COUNT_BITS) - 1);
    uint64_t timing = word >> 40, rest, away_ns = gf->verdict[7] >> RANK_BITS;
    if (((word >> 39) & 1) == 0) away_ns = gf->step.late_ns;
    if (count == 0) return 0;
    rest = (gf->verdict[10] >> TIMING_COUNT_BITS) / count;
    rest += away_ns / kib_of((word >> 33) & 63);
    return (timing > rest) ? (timing - rest) * kib_of((word >> 26) & 127) : 0;
}

/* Nobody can tell which end of the slowest link it is, unless one is slow from all sides, or is the end of another slow
 * one. */
static void links_learn(gf_context *gf)
{
    uint32_t most = (gf->verdict[8] >= gf->verdict[9]) ? 8 : 9;
    uint64_t word = gf->verdict[most], other = gf->verdict[17 - most];
    const uint32_t mask = (1u << RANK_BITS) - 1;
    uint32_t others[2] = {(uint32_t)(other >> RANK_BITS) & mask, (uint32_t)other & mask};
    uint32_t all_sides = (uint32_t)gf->verdict[11] & mask;
    struct gf_step *step = &gf->step;
    uint32_t *ends = step->link_ends;
    bool shared[2];
    ends[0] = ends[1] = GF_RANK_NONE;
    if ((step->link_ns = link_excess(gf, word)) == 0) return;
    ends[0] = (uint32_t)(word >> RANK_BITS) & mask;
    ends[1] = (uint32_t)word & mask;
    for (uint32_t e = 0; e < 2; e++) {
        shared[e] = (ends[e] == others[0]) || (ends[e] == others[1]);
        if ((ends[e] != all_sides) || (link_excess(gf, gf->verdict[11]) < step->link_ns / 4)) continue;
        ends[1 - e] = GF_RANK_NONE;
        return;
    }
    if ((shared[0] == shared[1]) || (link_excess(gf, other) < step->link_ns / 4)) return;
    ends[shared[0] ? 1 : 0] = GF_RANK_NONE;
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
    gf->verdict[6] = 0;
    if (gf->step.declared_ns > gf->together_ns) gf->verdict[6] = (gf->step.declared_ns - gf->together_ns) & WAIT_MASK;
    gf->verdict[5] = (gf->verdict[6] << RANK_BITS) | gf->rank;
    gf->verdict[7] = (gf->still_ns == 0) ? 0 : ((gf->still_ns & WAIT_MASK) << RANK_BITS) | gf->rank;
    gf->still_ns = 0;
    links_tell(gf);
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
    step->late_ns = (gf->verdict[5] >> RANK_BITS) - gf->verdict[6];
    gf->together_ns = now_ns;
    if ((gf->verdict[7] >> RANK_BITS) > step->late_ns) {
        step->last_rank = (uint32_t)(gf->verdict[7] & ((1u << RANK_BITS) - 1));
        step->late_ns = gf->verdict[7] >> RANK_BITS;
    }
    links_learn(gf);
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
