/* See perf_tune.h. Two steps keep noise out: ratios are smoothed over neighbouring sizes before the best pair of limits
 * is looked for, and what is found has to be better than the limits there were also without any single size. */
#include "tools/perf/perf_tune.h"

#include <math.h>

/* A size's time with doubling and with ring over that with halving; logarithms: large sizes do not outweigh small ones. */
struct costs {
    double doubling[PERF_TUNE_SIZES_MAX], ring[PERF_TUNE_SIZES_MAX];
    uint32_t count;
};

/* halving from row `halving` on, ring from row `ring` on; rows before have doubling. */
struct limits {
    uint32_t halving, ring;
};

static struct limits limits_of(uint32_t halving, uint32_t ring)
{
    return (struct limits){halving, (ring > halving) ? ring : halving};
}

static double row_cost(const struct costs *costs, struct limits limits, uint32_t row)
{
    return (row < limits.halving) ? costs->doubling[row] : (row < limits.ring) ? 0 : costs->ring[row];
}

static double median_of_3(double a, double b, double c)
{
    return fmax(fmin(a, b), fmin(fmax(a, b), c));
}

/* The running median of three sizes; the outer ones take their two neighbours on one side. */
static void smooth(const double *values, uint32_t count, double *smooth_out)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = (i == 0) ? 0 : i - 1;
        if ((first > 0) && (first + 3 > count)) first--;
        smooth_out[i] = (count < 3) ? values[i] : median_of_3(values[first], values[first + 1], values[first + 2]);
    }
}

static struct limits best_of(const struct costs *costs)
{
    struct limits best = {0, 0};
    double least = INFINITY;
    for (uint32_t halving = 0; halving <= costs->count; halving++)
        for (uint32_t ring = halving; ring <= costs->count; ring++) {
            struct limits limits = {halving, ring};
            double cost = 0;
            for (uint32_t i = 0; i < costs->count; i++) cost += row_cost(costs, limits, i);
            if (cost >= least) continue;
            least = cost;
            best = limits;
        }
    return best;
}

/* `to`, where it costs less also without the row that speaks most for it and the one most against it; else `from`. */
static struct limits moved(const struct costs *costs, struct limits from, struct limits to)
{
    double gain = 0, most = 0, least = 0;
    for (uint32_t i = 0; i < costs->count; i++) {
        double row = row_cost(costs, from, i) - row_cost(costs, to, i);
        gain += row;
        most = fmax(most, row);
        least = fmin(least, row);
    }
    return (gain - most - least > 1e-9) ? to : from;
}

/* The first size above the limit. */
static uint32_t row_after(const struct perf_tuning *tuning, uint64_t limit)
{
    uint32_t row = 0;
    while ((row < tuning->size_count) && (tuning->bytes[row] <= limit)) row++;
    return row;
}

bool perf_tune_limits(const struct perf_tuning *tuning, uint64_t *doubling_max, uint64_t *halving_max)
{
    struct costs costs = {.count = tuning->size_count}, smoothed = costs;
    struct limits before = limits_of(row_after(tuning, *doubling_max), row_after(tuning, *halving_max)), best, now;
    for (uint32_t i = 0; i < tuning->size_count; i++) {
        const double *us = tuning->time_us[i];
        costs.doubling[i] = log(us[PERF_TUNE_DOUBLING] / us[PERF_TUNE_HALVING]);
        costs.ring[i] = log(us[PERF_TUNE_RING] / us[PERF_TUNE_HALVING]);
    }
    smooth(costs.doubling, costs.count, smoothed.doubling);
    smooth(costs.ring, costs.count, smoothed.ring);
    best = best_of(&smoothed);
    now = moved(&costs, before, limits_of(best.halving, before.ring));
    now = moved(&costs, now, limits_of(now.halving, best.ring));
    now = moved(&costs, now, best);
    /* a limit between the same two sizes as before stays what it was */
    if (now.halving != before.halving) *doubling_max = (now.halving == 0) ? 1 : tuning->bytes[now.halving - 1];
    if (now.ring != before.ring) *halving_max = (now.ring == 0) ? 1 : tuning->bytes[now.ring - 1];
    if (*halving_max < *doubling_max) *halving_max = *doubling_max;
    return (now.halving != before.halving) || (now.ring != before.ring);
}
