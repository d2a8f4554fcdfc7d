/* See perf_tune.h. Each round opens a context for each algorithm in turn, because the speed of a
 * shared machine drifts; a size counts with the median of its rounds. */
#include "tools/perf/perf_tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/perf/perf_report.h"
#include "tools/common/tool_file.h"

/* ---- limits ---- Two steps keep noise out: ratios are smoothed over neighbouring sizes before the
 * best pair of limits is looked for, and what is found has to be better than the limits there were
 * also without any single size. */

#define LIMIT_BYTES_MAX (UINT64_C(1) << 30)

/* A size's time with doubling and with ring over that with halving; logarithms: large sizes do not
 * outweigh small ones. */
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
    return (row < limits.halving) ? costs->doubling[row]
           : (row < limits.ring)  ? 0
                                  : costs->ring[row];
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
        smooth_out[i] = (count < 3)
                            ? values[i]
                            : median_of_3(values[first], values[first + 1], values[first + 2]);
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

/* `to`, where it costs less also without the row that speaks most for it and the one most against
 * it; else `from`. */
static struct limits moved(const struct costs *costs, struct limits from, struct limits to)
{
    double gain = 0;
    double most = 0;
    double least = 0;
    for (uint32_t i = 0; i < costs->count; i++) {
        double row = row_cost(costs, from, i) - row_cost(costs, to, i);
        gain += row;
        most = fmax(most, row);
        least = fmin(least, row);
    }
    return (gain - most - least > 1e-9) ? to : from;
}

/* The limit before this row, as a key may say it. */
static uint64_t limit_of(const struct perf_tuning *tuning, uint32_t row, uint64_t share)
{
    uint64_t bytes = (row == 0) ? 1 : tuning->bytes[row - 1] * share;
    return (bytes < LIMIT_BYTES_MAX) ? bytes : LIMIT_BYTES_MAX;
}

/* The first size above the limit. */
static uint32_t row_after(const struct perf_tuning *tuning, uint64_t limit)
{
    uint32_t row = 0;
    while ((row < tuning->size_count) && (tuning->bytes[row] <= limit)) row++;
    return row;
}

bool perf_tune_limits(const struct perf_tuning *tuning, uint64_t *doubling_max,
                      uint64_t *halving_max)
{
    struct costs costs = {.count = tuning->size_count};
    struct costs smoothed = costs;
    const bool few = (tuning->world == 3) || ((tuning->world & (tuning->world - 1)) == 0);
    const uint64_t share = few ? 1 : 32; /* as gf_halving_pays() has it */
    struct limits before =
        limits_of(row_after(tuning, *doubling_max), row_after(tuning, *halving_max / share));
    struct limits best;
    struct limits now;
    for (uint32_t i = 0; i < tuning->size_count; i++) {
        const double *us = tuning->time_us[i];
        const double middle = us[(tuning->world == 3) ? PERF_TUNE_RING : PERF_TUNE_HALVING];
        costs.doubling[i] = log(us[PERF_TUNE_DOUBLING] / middle);
        costs.ring[i] = log(us[PERF_TUNE_RING] / middle);
    }
    smooth(costs.doubling, costs.count, smoothed.doubling);
    smooth(costs.ring, costs.count, smoothed.ring);
    best = best_of(&smoothed);
    now = moved(&costs, before, limits_of(best.halving, before.ring));
    now = moved(&costs, now, limits_of(now.halving, best.ring));
    now = moved(&costs, now, best);
    /* a limit between the same two sizes as before stays what it was */
    if (now.halving != before.halving) *doubling_max = limit_of(tuning, now.halving, 1);
    if (now.ring != before.ring) *halving_max = limit_of(tuning, now.ring, share);
    if (*halving_max < *doubling_max) *halving_max = *doubling_max;
    return (now.halving != before.halving) || (now.ring != before.ring);
}

/* ---- measuring ---- */

#define ROUNDS 5u

static const gf_algorithm algorithms[PERF_TUNE_COUNT] = {
    [PERF_TUNE_DOUBLING] = GF_ALGORITHM_DOUBLING,
    [PERF_TUNE_HALVING] = GF_ALGORITHM_HALVING,
    [PERF_TUNE_RING] = GF_ALGORITHM_RING,
};
static double times_us[PERF_TUNE_SIZES_MAX][PERF_TUNE_COUNT][ROUNDS];

struct tune {
    struct perf_tuning tuning;
    struct gf_config config; /* with all defaults */
    bool is_writer;
};

static int sizes_time(struct perf *perf, struct tune *tune, uint32_t algorithm, uint32_t round)
{
    for (uint32_t i = 0; i < tune->tuning.size_count; i++) {
        struct perf_row row;
        gf_status status = perf_measure(perf, tune->tuning.bytes[i], &row);
        if (status < 0) return perf_fail(status, "a measurement failed");
        if (row.wrong > 0) return tune->is_writer ? perf_refuse("results are wrong") : -1;
        times_us[i][algorithm][round] = row.p50_us;
    }
    return 0;
}

static int algorithm_time(const struct perf_options *options, struct tune *tune, uint32_t algorithm,
                          uint32_t round)
{
    static const struct gf_tensor tensor = {.name = "none", .elem_count = 1};
    struct gf_config config = options->config;
    struct perf perf = {.plan = options->plan, .way = &perf_host};
    struct perf_session session;
    int result;
    config.exchange.algorithm = algorithms[algorithm];
    config.exchange.deterministic = false; /* would refuse ring */
    result = perf_open(&config, &tensor, 1, &session);
    if (result == 0) {
        perf.gf = session.gf;
        tune->tuning.world = gf_world(perf.gf);
        tune->is_writer = gf_rank(perf.gf) == 0;
        if (tune->is_writer && (perf_file_check(options->tune_path) != 0)) result = -1;
        perf.plan.seconds /= ROUNDS;
        perf.plan.check = perf.plan.check && (round == 0);
        perf.data = gf_exchange_take(perf.gf, options->bytes_max);
        perf.times_us = session.times_us;
        if (perf.data == 0)
            result = perf_refuse(PERF_NO_MEMORY);
        else if (result == 0)
            result = sizes_time(&perf, tune, algorithm, round);
    }
    perf_close(&session, result);
    return result;
}

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static void table_print(FILE *out, const struct perf_options *options, const struct tune *tune)
{
    fprintf(out,
            "# gf-perf --tune: allreduce of %s, %u ranks, transports %s; median us of %u rounds.\n",
            perf_type_name(options->plan.type), tune->tuning.world,
            (tune->config.link.transports[0] != '\0') ? tune->config.link.transports : "auto",
            ROUNDS);
    fprintf(out, "# %12s %12s %12s %12s\n", "bytes", "doubling", "halving", "ring");
    for (uint32_t i = 0; i < tune->tuning.size_count; i++) {
        const double *row = tune->tuning.time_us[i];
        fprintf(out, "# %12llu %12.2f %12.2f %12.2f\n", (unsigned long long)tune->tuning.bytes[i],
                row[PERF_TUNE_DOUBLING], row[PERF_TUNE_HALVING], row[PERF_TUNE_RING]);
    }
}

static int fragment_write(const struct perf_options *options, const struct tune *tune)
{
    uint64_t doubling_max = tune->config.exchange.doubling_max_bytes;
    uint64_t halving_max = tune->config.exchange.halving_max_bytes;
    struct tool_file whole;
    bool moved = perf_tune_limits(&tune->tuning, &doubling_max, &halving_max);
    if (tool_file_begin(&whole, options->tune_path) != 0) return perf_refuse(whole.error);
    FILE *file = whole.stream;
    table_print(stdout, options, tune);
    table_print(file, options, tune);
    fprintf(file,
            "# The limits count bytes on the wire. Put these lines into the exchange group of all "
            "ranks' configuration.\n"
            "exchange = {\n    algorithm = \"auto\";\n    doubling_max_bytes = \"%llu B\";\n"
            "    halving_max_bytes = \"%llu B\";\n};\n",
            (unsigned long long)doubling_max, (unsigned long long)halving_max);
    if (tool_file_end(&whole) != 0) return perf_refuse(whole.error);
    printf("doubling up to %llu bytes, halving up to %llu, then ring%s: %s\n",
           (unsigned long long)doubling_max, (unsigned long long)halving_max,
           moved ? "" : ", as configured", options->tune_path);
    return 0;
}

int perf_tune(const struct perf_options *options)
{
    static struct tune tune;
    struct perf_tuning *tuning = &tune.tuning;
    char why[256];
    if (gf_config_effective(&options->config, &tune.config, why) < 0) return perf_refuse(why);
    for (uint64_t bytes = options->bytes_min; bytes <= options->bytes_max; bytes *= options->factor)
        if (tuning->size_count < PERF_TUNE_SIZES_MAX) tuning->bytes[tuning->size_count++] = bytes;
    for (uint32_t round = 0; round < ROUNDS; round++)
        for (uint32_t algorithm = 0; algorithm < PERF_TUNE_COUNT; algorithm++)
            if (algorithm_time(options, &tune, algorithm, round) != 0) return -1;
    for (uint32_t i = 0; i < tuning->size_count; i++)
        for (uint32_t algorithm = 0; algorithm < PERF_TUNE_COUNT; algorithm++) {
            qsort(times_us[i][algorithm], ROUNDS, sizeof(double), compare);
            tuning->time_us[i][algorithm] = times_us[i][algorithm][ROUNDS / 2];
        }
    return tune.is_writer ? fragment_write(options, &tune) : 0;
}
