/* What gf-perf measures: one operation of one size at a time, on all ranks, checked. */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "gradientflow.h"

#define PERF_SAMPLES_MAX 2000u

struct perf_plan {
    gf_operation operation;
    gf_type type;
    uint64_t iters;      /* samples; 0: as many as fit in seconds, 5 at least */
    uint64_t warmup;
    double seconds;      /* a size, about */
    bool check;
};

struct perf_row {
    uint64_t bytes, elem_count;
    uint32_t samples;
    double p50_us, p99_us, min_us, max_us; /* of a sample, which is the time of its slowest rank */
    double algbw, busbw;                   /* GB/s of the median */
    uint64_t wrong;                        /* elements, on the worst rank */
    gf_algorithm algorithm;
};

/* Memory of one run; the times are [PERF_SAMPLES_MAX * world]. */
struct perf {
    gf_context *gf;
    struct perf_plan plan;
    unsigned char *data; /* of the exchange region */
    float *times_us;
};

const char *perf_type_name(gf_type type);
/* Measures `bytes` of data, rounded down to elements. The row is the same on all ranks. */
gf_status perf_measure(struct perf *perf, uint64_t bytes, struct perf_row *row_out);

#endif
