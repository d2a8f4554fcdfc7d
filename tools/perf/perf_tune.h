/* gf-perf --tune: where algorithm auto should go from doubling to halving, and from halving to
 * ring, on these machines. */
#ifndef PERF_TUNE_H
#define PERF_TUNE_H

#include "tools/perf/perf_options.h"

#define PERF_TUNE_SIZES_MAX 64u
enum { PERF_TUNE_DOUBLING, PERF_TUNE_HALVING, PERF_TUNE_RING, PERF_TUNE_COUNT };

/* Sizes in ascending order, and the time of each algorithm at each. */
struct perf_tuning {
    uint32_t size_count, world;
    uint64_t bytes[PERF_TUNE_SIZES_MAX];
    double time_us[PERF_TUNE_SIZES_MAX][PERF_TUNE_COUNT];
};

/* doubling up to *doubling_max, then halving up to *halving_max: from what they are, to the sizes
 * with which auto loses least against the best algorithm at each size. More than one size has to
 * speak for a move. A limit of 1 means: at no size. False: they stay. As the world's auto takes
 * *halving_max: a part of it where the world is no power of two. */
bool perf_tune_limits(const struct perf_tuning *tuning, uint64_t *doubling_max,
                      uint64_t *halving_max);

/* Measures in interleaved rounds and writes options->tune_path. 0, or -1: it said why on stderr. */
int perf_tune(const struct perf_options *options);

#endif
