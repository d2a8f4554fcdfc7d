/* What gf-perf measures: one operation of one size at a time, on all ranks, checked. */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "gradientflow.h"

#define PERF_SAMPLES_MAX 2000u

struct perf_plan {
    gf_operation operation;
    gf_reduction reduction; /* of an allreduce */
    uint32_t root;          /* of a broadcast */
    gf_type type;
    uint64_t iters;      /* samples; 0: as many as fit in seconds, 3 at least */
    uint64_t warmup;
    double seconds;      /* a size, about */
    bool check;
};

struct perf_row {
    uint64_t bytes, elem_count;
    uint32_t samples;
    double p50_us, p95_us, p99_us, min_us, mean_us; /* of a sample, which is the time of its slowest rank */
    double algbw, busbw;                   /* GB/s of the median */
    double out_us, out_algbw, out_busbw;   /* the same out of place, medians; 0: not measured */
    uint64_t wrong, out_wrong;             /* elements, on the worst rank */
    gf_algorithm algorithm;
};

/* Memory of one run; the times are [PERF_SAMPLES_MAX * world]. */
struct perf {
    gf_context *gf;
    struct perf_plan plan;
    unsigned char *data;   /* of the exchange region */
    unsigned char *source; /* NULL, or out of place: copied to data, where the operation works */
    float *times_us;
};

const char *perf_type_name(gf_type type);
const char *perf_redop_name(gf_reduction reduction);
double perf_now_us(void);
gf_status perf_barrier(gf_context *gf);
/* times_us[count] of each rank become those of the slowest, on all ranks; room is for [count * world]. */
gf_status perf_greatest(gf_context *gf, float *times_us, uint32_t count);
/* How many samples of about so long. */
uint32_t perf_sample_count(const struct perf_plan *plan, double estimate_us);
/* Sorts the times; row->bytes is there already. */
void perf_row_fill(float *times_us, uint32_t count, double factor, struct perf_row *row);
/* By which algbw becomes busbw. */
double perf_bus_factor(gf_operation operation, uint32_t world);
/* Of the newest operation in the trace, which it reads to its end. */
gf_algorithm perf_algorithm_last(gf_context *gf);
/* Measures `bytes` of data, rounded down to elements. The row is the same on all ranks. */
gf_status perf_measure(struct perf *perf, uint64_t bytes, struct perf_row *row_out);

#endif
