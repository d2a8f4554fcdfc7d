/* gpu-bench: each row timed by events of the device in interleaved rounds, a sweep of the same
 * reads and writes beside it. */
#include "firmware-tests/cuda/gpu_bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firmware-tests/cuda/gpu_program.h"
#include "ops/ops.h"

#define ROUNDS 7u
#define ROWS_MAX 32u
#define CALLS 20u                      /* behind each other, of what is launch-bound */
#define GOAL 0.9                       /* of the sweep .. */
#define GOAL_BYTES (UINT64_C(1) << 30) /* .. from so many bytes on: less may lie in the cache */
#define GOAL_DEVICE "H200"             /* on which a missed goal is a failure */

static double took_us[ROWS_MAX][ROUNDS], swept_us[ROWS_MAX][ROUNDS];

static uint32_t rounds(void)
{
    return gpu_program.is_fake ? 1 : ROUNDS;
}

static double bytes_of(const struct bench_row *row)
{
    return row->ranges * (double)bench_range_bytes;
}

/* Of each range that its sweep reads or writes: together the row's own bytes, where they fit. */
static uint64_t stream_bytes_of(const struct bench_row *row)
{
    const uint64_t share = (uint64_t)bytes_of(row) / (row->reads + row->writes);
    return ((share < bench_range_bytes) ? share : bench_range_bytes) / 16 * 16;
}

/* How much faster than its sweep a row moves a byte. */
static double of_sweep(const struct bench_row *row, double us, double sweep_us)
{
    const double sweep_bytes = (double)stream_bytes_of(row) * (row->reads + row->writes);
    return (bytes_of(row) / us) / (sweep_bytes / sweep_us);
}

static struct gf_sweep_args sweep_of(const struct bench_row *row, uint32_t mask)
{
    const uint64_t stream_bytes = stream_bytes_of(row);
    struct gf_sweep_args args = {.word_count = stream_bytes / 4,
                                 .meetings = bench_meetings(),
                                 .reads = row->reads,
                                 .writes = row->writes,
                                 .mask = mask};
    for (uint32_t r = 0; r < row->reads; r++) args.src[r] = bench_range(row->src[r]);
    for (uint32_t w = 0; w < row->writes; w++) args.dst[w] = bench_range(row->dst[w]);
    /* behind each other */
    if ((row->writes == 2) && (row->dst[0] == row->dst[1])) args.dst[1] += stream_bytes;
    return args;
}

/* That a sweep does what its bytes say, else what is fast may be nothing: one bit is met by one
 * thread, and arrives. */
static void sweep_prove(void)
{
    static const uint32_t bit = 0x80000000u;
    struct bench_row row = {.ranges = 1, .reads = 1, .src = {BENCH_OUT}};
    struct gf_sweep_args args = sweep_of(&row, UINT32_MAX);
    gf_mem last = bench_range(BENCH_OUT) + bench_range_bytes - 4;
    uint64_t met = 0;
    uint32_t arrived = 0;
    gpu_upload(last, &bit, sizeof bit);
    gpu_must(gpu_sweep(gpu_program.queue.stream, &args));
    args.reads = args.writes = 1;
    args.word_count /= 2;
    args.src[0] += bench_range_bytes / 2;
    args.dst[0] = bench_range(BENCH_OUT);
    gpu_must(gpu_sweep(gpu_program.queue.stream, &args));
    gpu_download(&arrived, args.dst[0] + bench_range_bytes / 2 - 4, sizeof arrived);
    gpu_download(&met, bench_meetings(), sizeof met);
    if ((met == 2) && (arrived == bit)) return;
    fprintf(stderr,
            "gpu-bench: a bit in the last word was met by %llu threads of two sweeps and arrived "
            "as 0x%08x\n",
            (unsigned long long)met, arrived);
    exit(1);
}

static void row_time(size_t at, uint32_t round, bool counts)
{
    const struct bench_row *row = &bench_rows[at];
    uint32_t calls = (row->bound_us > 0) ? CALLS : 1;
    double us;
    gpu_timer_begin();
    for (uint32_t i = 0; i < calls; i++) gpu_must(row->run());
    us = gpu_timer_end() / calls;
    if (counts) took_us[at][round] = us;
    if (row->reads + row->writes == 0) return;
    const struct gf_sweep_args args = sweep_of(row, 0);
    gpu_timer_begin();
    gpu_must(gpu_sweep(gpu_program.queue.stream, &args));
    us = gpu_timer_end();
    if (counts) swept_us[at][round] = us;
}

static double median(const double *us)
{
    return us[rounds() / 2];
}

static double rate_of(size_t at)
{
    return bytes_of(&bench_rows[at]) / median(took_us[at]) * 1e-3;
}

struct judged {
    bool has_goal, is_met, counts;
    double value, goal; /* microseconds, share of a sweep, or GB/s */
};

static struct judged row_judge(size_t at)
{
    const struct bench_row *row = &bench_rows[at];
    const bool is_swept = row->reads + row->writes > 0;
    const bool is_bound = row->bound_us > 0;
    const bool is_large = bytes_of(row) >= (double)GOAL_BYTES;
    const double us = median(took_us[at]);
    struct judged found = {.has_goal = is_bound || is_swept || (row->goal_gbps > 0)};
    found.goal = is_bound ? row->bound_us : is_swept ? GOAL : row->goal_gbps;
    found.value = is_bound ? us : is_swept ? of_sweep(row, us, median(swept_us[at])) : rate_of(at);
    found.is_met = is_bound ? (found.value <= found.goal) : (found.value >= found.goal);
    found.counts = found.has_goal && (strstr(gpu_program.gpu->name, GOAL_DEVICE) != NULL) &&
                   (is_bound || is_large);
    return found;
}

static void row_json(size_t at, const struct judged *found)
{
    const struct bench_row *row = &bench_rows[at];
    const double us = median(took_us[at]);
    char goal[128] = "";
    if (found->has_goal)
        (void)snprintf(goal, sizeof goal, ",\"goal\":%.2f,\"met\":%s,\"counts\":%s", found->goal,
                       found->is_met ? "true" : "false", found->counts ? "true" : "false");
    if (row->bound_us > 0)
        gpu_json_row("\"op\":\"%s\",\"us\":%.2f%s", row->name, us, goal);
    else if (row->reads + row->writes == 0)
        gpu_json_row("\"op\":\"%s\",\"us\":%.2f,\"bytes\":%.0f,\"GBps\":%.2f%s", row->name, us,
                     bytes_of(row), rate_of(at), goal);
    else
        gpu_json_row("\"op\":\"%s\",\"us\":%.2f,\"bytes\":%.0f,\"GBps\":%.2f,\"of_copy\":%.3f,"
                     "\"reads\":%u,\"writes\":%u,\"of_sweep\":%.3f%s",
                     row->name, us, bytes_of(row), rate_of(at), rate_of(at) / rate_of(0),
                     row->reads, row->writes, found->value, goal);
}

/* True: a goal that counts was missed. The first row is the device's own copy. */
static bool row_print(size_t at)
{
    const struct bench_row *row = &bench_rows[at];
    const struct judged found = row_judge(at);
    size_t than = 0;
    while ((row->than != NULL) && (strcmp(bench_rows[than].name, row->than) != 0)) than++;
    printf("  %-28s %10.2f us", row->name, median(took_us[at]));
    if (row->bound_us > 0)
        printf(", bound %.0f us", row->bound_us);
    else
        printf(" %8.0f MB %8.1f GB/s, %5.2f of copy", bytes_of(row) * 1e-6, rate_of(at),
               rate_of(at) / rate_of(0));
    if (row->reads + row->writes > 0)
        printf("  %5.2f of a sweep, %u read %u written, goal %.2f", found.value, row->reads,
               row->writes, GOAL);
    if (row->goal_gbps > 0) printf(", goal %.0f GB/s", row->goal_gbps);
    if (row->than != NULL) printf("  %5.2f of \"%s\"", rate_of(at) / rate_of(than), row->than);
    if (found.has_goal) printf("%s", found.is_met ? "" : found.counts ? ": MISSED" : ": missed");
    printf("\n");
    row_json(at, &found);
    return found.has_goal && !found.is_met && found.counts;
}

int gpu_bench(uint64_t range_bytes)
{
    struct gf_check found;
    uint32_t missed = 0;
    bench_range_bytes = range_bytes;
    gpu_open(BENCH_RANGES * range_bytes + BENCH_REST_BYTES, range_bytes);
    gpu_json_device();
    gpu_sweep_open();
    gpu_timer_open();
    GF_ASSERT(bench_row_count <= ROWS_MAX);
    bench_fill();
    sweep_prove();
    for (uint32_t round = 0; round < rounds() + 1; round++)
        for (size_t r = 0; r < bench_row_count; r++) row_time(r, round - (round > 0), round > 0);
    gpu_download(&found, bench_check(), sizeof found);
    if (found.bad_count != 0) {
        fprintf(stderr, "gpu-bench: %llu values are not finite\n",
                (unsigned long long)found.bad_count);
        return 1;
    }
    printf("gpu-bench: %s; %llu MiB a range, %u rounds, medians by device events, random data; "
           "GB/s of bytes read and "
           "written; a goal counts on an %s, from 1 GiB on%s\n",
           gpu_program.gpu->name, (unsigned long long)(range_bytes >> 20), rounds(), GOAL_DEVICE,
           gpu_program.is_fake ? "; NO GPU: these times mean nothing" : "");
    for (size_t r = 0; r < bench_row_count; r++) {
        qsort(took_us[r], rounds(), sizeof took_us[r][0], gpu_compare);
        qsort(swept_us[r], rounds(), sizeof swept_us[r][0], gpu_compare);
        missed += row_print(r);
    }
    gpu_timer_close();
    gpu_sweep_close();
    gpu_close();
    printf("gpu-bench: %u goals were missed\n", missed);
    return missed > 0;
}
