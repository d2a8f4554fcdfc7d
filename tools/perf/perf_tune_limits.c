/* See perf_tune.h. All pairs of limits are tried: noise in one size then costs that size, where a search for the first
 * crossing could be led astray. */
#include "tools/perf/perf_tune.h"

#include <math.h>

/* What sizes below `halving_from` lose with doubling, those below `ring_from` with halving, the rest with ring; in
 * factors, so that large sizes do not outweigh small ones. */
static double loss(const struct perf_tuning *tuning, uint32_t halving_from, uint32_t ring_from)
{
    double sum = 0;
    for (uint32_t i = 0; i < tuning->size_count; i++) {
        uint32_t taken = (i < halving_from) ? PERF_TUNE_DOUBLING : (i < ring_from) ? PERF_TUNE_HALVING : PERF_TUNE_RING;
        sum += log(tuning->time_us[i][taken]);
    }
    return sum;
}

void perf_tune_limits(const struct perf_tuning *tuning, uint64_t *doubling_max_out, uint64_t *halving_max_out)
{
    uint32_t best_halving = 0, best_ring = 0;
    double best = INFINITY;
    for (uint32_t halving_from = 0; halving_from <= tuning->size_count; halving_from++)
        for (uint32_t ring_from = halving_from; ring_from <= tuning->size_count; ring_from++) {
            double lost = loss(tuning, halving_from, ring_from);
            if (lost >= best) continue;
            best = lost;
            best_halving = halving_from;
            best_ring = ring_from;
        }
    *doubling_max_out = (best_halving == 0) ? 1 : tuning->bytes[best_halving - 1];
    *halving_max_out = (best_ring == 0) ? 1 : tuning->bytes[best_ring - 1];
}
