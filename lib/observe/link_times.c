/* How fast links are (ops/coll/timing.h measures), as the vote carries it: four of its words. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/vote.h"

#define TIMING_MAX ((UINT64_C(1) << 24) - 1) /* ns for a KiB: 61 KB/s */
#define TIMING_COUNT_BITS 16u

/* Where both directions of a rank's link are slow, two ranks besides it measure that, or it and one: which of them is
 * heard of must change from step to step, so that the one they have in common stands out. */
static uint32_t link_word(uint32_t rank, uint64_t step)
{
    uint32_t mixed = (rank + 1) * 0x9e3779b1u ^ (uint32_t)step * 0x85ebca6bu;
    mixed = (mixed ^ (mixed >> 15)) * 0x2c1b3c6du;
    return GF_VOTE_LINK + (mixed >> 31);
}

/* A size as a few bits: four steps an octave, rounded down. */
static uint64_t kib_pack(uint64_t bytes)
{
    uint64_t kib = bytes / 1024, octave = 0;
    for (kib = (kib < 1) ? 4 : 4 * kib; kib >= 8; kib /= 2) octave++;
    return (octave > 31) ? 127 : 4 * octave + kib - 4;
}

static uint64_t kib_of(uint64_t packed) { return ((4 + packed % 4) << (packed / 4)) / 4; }

/*     63..40 ns/KiB | 39 awaited after another | 38..33 size of the message, as packed | 32..26 of all in the step |
 *     25..13 from | to */
static uint64_t timing_pack(const struct gf_timing_peer *peer, uint32_t from, uint32_t to)
{
    uint64_t timing = gf_timing_ns_per_kib(peer), size = kib_pack(peer->bytes);
    if (timing > TIMING_MAX) timing = TIMING_MAX;
    if (size > 63) size = 63;
    return (timing << 40) | ((uint64_t)peer->is_behind << 39) | (size << 33) | (kib_pack(peer->all_bytes) << 26) |
           ((uint64_t)from << GF_VOTE_RANK_BITS) | to;
}

void gf_link_times_tell(gf_context *gf)
{
    const struct gf_timing_peer *slowest = gf_timing_extreme(&gf->observed.timing, true);
    const struct gf_timing_peer *quickest = gf_timing_extreme(&gf->observed.timing, false);
    uint32_t from = (slowest == NULL) ? GF_RANK_NONE : gf_rank_of(gf, slowest->peer);
    uint64_t word;
    if (from == GF_RANK_NONE) return;
    word = timing_pack(slowest, from, gf->rank);
    gf->vote[link_word(gf->rank, gf->step.number)] = word;
    gf->vote[GF_VOTE_LINK_ALL] = ((word >> 40) << TIMING_COUNT_BITS) | 1;
    if (quickest != slowest) gf->vote[GF_VOTE_LINK_END] = timing_pack(quickest, gf->rank, gf->rank);
}

/* What the bytes of a step took more on that link than on all in the mean. A sender that declared its last tensor
 * late was not there when its first message was awaited; one that stood still was not there at any time. */
static uint64_t link_excess(const gf_context *gf, uint64_t word)
{
    uint64_t count = gf->vote[GF_VOTE_LINK_ALL] & ((1u << TIMING_COUNT_BITS) - 1);
    uint64_t timing = word >> 40, rest, away_ns = gf->vote[GF_VOTE_STILL] >> GF_VOTE_RANK_BITS;
    if (((word >> 39) & 1) == 0) away_ns = gf->step.late_ns;
    if (count == 0) return 0;
    rest = (gf->vote[GF_VOTE_LINK_ALL] >> TIMING_COUNT_BITS) / count;
    rest += away_ns / kib_of((word >> 33) & 63);
    return (timing > rest) ? (timing - rest) * kib_of((word >> 26) & 127) : 0;
}

/* Nobody can tell which end of the slowest link it is, unless one is slow from all sides, or is the end of another slow
 * one. */
void gf_link_times_learn(gf_context *gf)
{
    bool second = gf->vote[GF_VOTE_LINK] < gf->vote[GF_VOTE_LINK + 1];
    uint64_t word = gf->vote[GF_VOTE_LINK + second], other = gf->vote[GF_VOTE_LINK + !second];
    const uint32_t mask = (1u << GF_VOTE_RANK_BITS) - 1;
    uint32_t others[2] = {(uint32_t)(other >> GF_VOTE_RANK_BITS) & mask, (uint32_t)other & mask};
    uint32_t all_sides = (uint32_t)gf->vote[GF_VOTE_LINK_END] & mask;
    struct gf_step *step = &gf->step;
    uint32_t *ends = step->link_ends;
    bool shared[2];
    ends[0] = ends[1] = GF_RANK_NONE;
    if ((step->link_ns = link_excess(gf, word)) == 0) return;
    ends[0] = (uint32_t)(word >> GF_VOTE_RANK_BITS) & mask;
    ends[1] = (uint32_t)word & mask;
    for (uint32_t e = 0; e < 2; e++) {
        shared[e] = (ends[e] == others[0]) || (ends[e] == others[1]);
        if ((ends[e] != all_sides) || (link_excess(gf, gf->vote[GF_VOTE_LINK_END]) < step->link_ns / 4)) continue;
        ends[1 - e] = GF_RANK_NONE;
        return;
    }
    if ((shared[0] == shared[1]) || (link_excess(gf, other) < step->link_ns / 4)) return;
    ends[shared[0] ? 1 : 0] = GF_RANK_NONE;
}
