/* Which chunks travel. These are pure functions of numbers that have the same bits on all ranks,
 * so that ranks agree without a message. */
#include "lib/sparse/sparse.h"

#include <math.h>
#include <string.h>

#include "drivers/base/fault.h"

uint32_t gf_sparse_kept(const struct gf_config *config, uint32_t chunk_count, uint64_t number)
{
    uint64_t warmup = config->sparse.warmup_steps;
    uint64_t ramp = config->sparse.ramp_steps;
    /* 0.15f lies above 0.15: without the correction by a float's precision 100 chunks would keep
     * 16. */
    double target = ceil((double)config->sparse.keep_share * (double)chunk_count * (1.0 - 0x1p-24));
    uint32_t kept = (target < 1.0) ? 1 : (uint32_t)target;
    uint32_t falling;
    GF_ASSERT((chunk_count > 0) && (chunk_count <= GF_SPARSE_CHUNKS_MAX) && (kept <= chunk_count));
    if (number <= warmup) return chunk_count;
    if (number - warmup > ramp) return kept;
    falling =
        (uint32_t)((double)(chunk_count - kept) * (double)(number - warmup) / (double)(ramp + 1));
    return chunk_count - falling;
}

/* The bits of finite floats that are not negative order as the floats do; -0 is taken for 0. */
static uint32_t score_key(float score)
{
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x7fffffffu;
}

/* Radix selection: four passes find the kept-th largest key a byte at a time, a fifth collects. */
void gf_sparse_select(const float *scores, uint32_t count, uint32_t kept, uint32_t *selection_out)
{
    uint32_t prefix = 0;
    uint32_t mask = 0;
    uint32_t left = kept;
    uint32_t taken = 0;
    GF_ASSERT(kept <= count);
    if (kept == 0) return;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t histogram[256] = {0};
        uint32_t digit = 255;
        for (uint32_t i = 0; i < count; i++)
            if ((score_key(scores[i]) & mask) == prefix)
                histogram[(score_key(scores[i]) >> shift) & 255u]++;
        while (histogram[digit] < left) left -= histogram[digit--];
        prefix |= digit << shift;
        mask |= 255u << shift;
    }
    /* all above the threshold, and the first `left` that equal it */
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = score_key(scores[i]);
        bool take = (key > prefix) || ((key == prefix) && (left > 0));
        if ((key == prefix) && take) left--;
        if (take) selection_out[taken++] = i;
    }
}
