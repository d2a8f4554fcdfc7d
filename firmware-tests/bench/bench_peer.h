/* What the programs that time other libraries share (C and C++): options, clock, median. Each times
 * an in-place fp32 sum over all ranks as gf-perf does: every rank rewrites its data, a barrier, the
 * operation; a sample is the slowest rank's.
 *     -s 4096,32768     sizes in bytes: a line "BYTES MEDIAN_US" each
 *     -c FILE           element counts, one a line, as tensors of a model: "each MEDIAN_US" one by
 *                       one, "fused MEDIAN_US"
 *                       all in one, "buckets MEDIAN_US" consecutive ones until they hold 25 MiB, as
 *                           PyTorch's DDP does
 *     -t SECONDS        for each line, about (0.1)
 *     -m                the mean instead of the median: where a link's bucket fills while a
 *                       contender stalls, most
 *                       samples may go faster than the link
 * Exit code 1 on a wrong sum. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BENCH_JOBS_MAX 64
#define BENCH_COUNTS_MAX 4096
#define BENCH_SAMPLES_MAX 2000
#define BENCH_SAMPLES_MIN 3
#define BENCH_PATTERN 7u
#define BENCH_BUCKET_ELEMS ((size_t)25 << 18)

struct bench {
    double seconds;
    size_t sizes[BENCH_JOBS_MAX]; /* bytes */
    int size_count;
    size_t counts[BENCH_COUNTS_MAX]; /* elements */
    int count_count;
    size_t elems_max;
    int wants_mean;
};

static inline double bench_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static inline int bench_counts_read(struct bench *bench, const char *path)
{
    FILE *file = fopen(path, "r");
    unsigned long count;
    size_t all = 0;
    if (file == NULL) return -1;
    while ((bench->count_count < BENCH_COUNTS_MAX) && (fscanf(file, "%lu", &count) == 1)) {
        bench->counts[bench->count_count++] = count;
        all += count;
    }
    fclose(file);
    if (all > bench->elems_max) bench->elems_max = all;
    return 0;
}

/* 0, or -1 for a wrong command line. Options in `own` are left to the program: rank_option(letter,
 * value). */
static inline int bench_options(struct bench *bench, int argc, char **argv, const char *own,
                                void (*own_option)(int letter, const char *value))
{
    char letters[64];
    int letter;
    memset(bench, 0, sizeof *bench);
    bench->seconds = 0.1;
    snprintf(letters, sizeof letters, "ms:c:t:%s", own);
    while ((letter = getopt(argc, argv, letters)) != -1) {
        char *at = optarg;
        switch (letter) {
        case 't': bench->seconds = atof(optarg); break;
        case 'm': bench->wants_mean = 1; break;
        case 'c':
            if (bench_counts_read(bench, optarg) != 0) return -1;
            break;
        case 's':
            while ((*at != '\0') && (bench->size_count < BENCH_JOBS_MAX)) {
                size_t bytes = strtoul(at, &at, 10);
                bench->sizes[bench->size_count++] = bytes;
                if (bytes / 4 > bench->elems_max) bench->elems_max = bytes / 4;
                at += *at == ',';
            }
            break;
        case '?': return -1;
        default: own_option(letter, optarg);
        }
    }
    return (bench->elems_max > 0) ? 0 : -1;
}

static inline int bench_compare(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

static inline double bench_median(double *times_us, int count)
{
    qsort(times_us, (size_t)count, sizeof *times_us, bench_compare);
    return 0.5 * (times_us[(count - 1) / 2] + times_us[count / 2]);
}

static inline double bench_mean(const double *times_us, int count)
{
    double sum_us = 0;
    for (int i = 0; i < count; i++) sum_us += times_us[i];
    return sum_us / count;
}

static inline int bench_sample_count(const struct bench *bench, double estimate_us)
{
    double most = bench->seconds * 1e6 / (estimate_us + 1);
    int least = (estimate_us > 1e6) ? 1 : BENCH_SAMPLES_MIN; /* two more were taken before */
    return (most < least) ? least : (most > BENCH_SAMPLES_MAX) ? BENCH_SAMPLES_MAX : (int)most;
}

static inline void bench_fill(float *data, size_t elem_count, int rank)
{
    for (size_t i = 0; i < elem_count; i++) data[i] = (float)((i + (size_t)rank) % BENCH_PATTERN);
}

static inline size_t bench_wrong(const float *data, size_t elem_count, int world)
{
    float want[BENCH_PATTERN];
    size_t wrong = 0;
    for (size_t i = 0; i < BENCH_PATTERN; i++) {
        want[i] = 0;
        for (int rank = 0; rank < world; rank++)
            want[i] += (float)((i + (size_t)rank) % BENCH_PATTERN);
    }
    for (size_t i = 0; i < elem_count; i++) wrong += data[i] != want[i % BENCH_PATTERN];
    return wrong;
}

/* What a program offers; the three talk to all ranks. */
struct bench_peer {
    float *data;
    int rank, world;
    void (*sum)(struct bench_peer *peer, size_t first, size_t elem_count);
    void (*barrier)(struct bench_peer *peer);
    double (*greatest)(struct bench_peer *peer, double value); /* over the ranks, on all of them */
};

/* All in one where bucket_elems is 0, else a sum a bucket of tensors: one is full that holds so
 * many elements. */
static inline void bench_sum(struct bench_peer *peer, const struct bench *bench, size_t elem_count,
                             size_t bucket_elems)
{
    size_t first = 0;
    size_t held = 0;
    if (bucket_elems == 0) peer->sum(peer, 0, elem_count);
    for (int i = 0; (bucket_elems > 0) && (i < bench->count_count); i++) {
        held += bench->counts[i];
        if ((held < bucket_elems) && (i + 1 < bench->count_count)) continue;
        peer->sum(peer, first, held);
        first += held;
        held = 0;
    }
}

/* This rank's time. Ranks compare theirs behind the last sample, as gf-perf's do. */
static inline double bench_sample(struct bench_peer *peer, const struct bench *bench,
                                  size_t elem_count, size_t bucket_elems)
{
    double begin_us;
    memset(peer->data, 0, elem_count * sizeof(float));
    peer->barrier(peer);
    begin_us = bench_now_us();
    bench_sum(peer, bench, elem_count, bucket_elems);
    return bench_now_us() - begin_us;
}

static inline int bench_line(struct bench_peer *peer, const struct bench *bench, const char *name,
                             size_t elem_count, size_t bucket_elems)
{
    static double times_us[BENCH_SAMPLES_MAX];
    double wrong;
    double estimate_us;
    int count;
    bench_fill(peer->data, elem_count, peer->rank);
    peer->barrier(peer);
    bench_sum(peer, bench, elem_count, bucket_elems);
    wrong = peer->greatest(peer, (double)bench_wrong(peer->data, elem_count, peer->world));
    if (wrong > 0) {
        fprintf(stderr, "%s: %.0f wrong elements\n", name, wrong);
        return 1;
    }
    /* the same on all ranks */
    estimate_us = peer->greatest(peer, bench_sample(peer, bench, elem_count, bucket_elems));
    for (int i = 0; (i < 5) && (estimate_us * (i + 1) < bench->seconds * 1e6); i++)
        estimate_us = peer->greatest(peer, bench_sample(peer, bench, elem_count, bucket_elems));
    count = bench_sample_count(bench, estimate_us);
    for (int i = 0; i < count; i++)
        times_us[i] = bench_sample(peer, bench, elem_count, bucket_elems);
    for (int i = 0; i < count; i++) times_us[i] = peer->greatest(peer, times_us[i]);
    if (peer->rank == 0)
        printf("%s %.3f\n", name,
               bench->wants_mean ? bench_mean(times_us, count) : bench_median(times_us, count));
    if (peer->rank == 0) fflush(stdout);
    return 0;
}

static inline int bench_run(struct bench_peer *peer, const struct bench *bench)
{
    int wrong = 0;
    size_t all = 0;
    char name[32];
    for (int i = 0; i < bench->size_count; i++) {
        snprintf(name, sizeof name, "%zu", bench->sizes[i]);
        wrong |= bench_line(peer, bench, name, bench->sizes[i] / sizeof(float), 0);
    }
    for (int i = 0; i < bench->count_count; i++) all += bench->counts[i];
    if (all > 0) wrong |= bench_line(peer, bench, "each", all, 1);
    if (all > 0) wrong |= bench_line(peer, bench, "buckets", all, BENCH_BUCKET_ELEMS);
    if (all > 0) wrong |= bench_line(peer, bench, "fused", all, 0);
    return wrong;
}

#endif
