/* What gf-perf measures: one operation of one size at a time, on all ranks, checked. */
#ifndef PERF_RUN_H
#define PERF_RUN_H

#include "tools/common/tool_context.h"

#define PERF_SAMPLES_MAX 2000u

struct perf_plan {
    gf_operation operation;
    gf_reduction reduction; /* of an allreduce */
    uint32_t root;          /* of a broadcast */
    gf_type type;
    uint64_t iters; /* samples; 0: as many as fit in seconds, 3 at least */
    uint64_t warmup;
    double seconds; /* a size, about */
    bool check;
};

struct perf_row {
    uint64_t bytes, elem_count;
    uint32_t samples;
    /* of a sample, which is the time of its slowest rank */
    double p50_us, p95_us, p99_us, min_us, mean_us;
    double algbw, busbw;                 /* GB/s of the median */
    double out_us, out_algbw, out_busbw; /* the same out of place, medians; 0: not measured */
    uint64_t wrong, out_wrong;           /* elements, on the worst rank */
    gf_algorithm algorithm;
};

struct perf;
struct perf_values;

/* Where data lies and who works on it. Nothing is under way when a call returns; what fails is said
 * on stderr, but for what gf_error_last() tells. */
struct perf_way {
    bool is_step;                                          /* run() is one, of a single tensor */
    gf_status (*clear)(struct perf *perf, uint64_t bytes); /* zeroes, of what a sample reads */
    gf_status (*run)(struct perf *perf, uint64_t elem_count);
    /* values.data is not set. Fill: of what a sample reads; wrong: added to *wrong, of what it has
     * made. */
    gf_status (*fill)(struct perf *perf, struct perf_values values);
    gf_status (*wrong)(struct perf *perf, struct perf_values values, uint64_t *wrong);
};
extern const struct perf_way perf_host; /* the library's collectives, in host memory */

/* Memory of one run; the times are [PERF_SAMPLES_MAX * world]. */
struct perf {
    gf_context *gf;
    struct perf_plan plan;
    const struct perf_way *way;
    void *of;      /* the way's own */
    gf_mem data;   /* host: of the exchange region, or the program's */
    gf_mem source; /* 0, or out of place: copied to data, where the library works */
    float *times_us;
};

/* Where a rank writes what it brings. */
static inline gf_mem perf_input(const struct perf *perf)
{
    return (perf->source != 0) ? perf->source : perf->data;
}

const char *perf_type_name(gf_type type);
const char *perf_redop_name(gf_reduction reduction);
double perf_now_us(void);
gf_status perf_barrier(gf_context *gf);
/* times_us[count] of each rank become those of the slowest, on all ranks; room is for [count *
 * world]. */
gf_status perf_greatest(gf_context *gf, float *times_us, uint32_t count);
/* How many samples of about so long. */
uint32_t perf_sample_count(const struct perf_plan *plan, double estimate_us);
/* Sorts the times; row->bytes is there already. */
void perf_row_fill(float *times_us, uint32_t count, double factor, struct perf_row *row);
/* By which algbw becomes busbw. */
double perf_bus_factor(gf_operation operation, uint32_t world);
/* Measures `bytes` of data, rounded down to elements, out of place too where there is a source. The
 * row is the same on all ranks. */
gf_status perf_measure(struct perf *perf, uint64_t bytes, struct perf_row *row_out);

/* ---- a context and its memory, for a program that opens one after the other ---- */

struct perf_session {
    gf_context *gf;
    struct tool_context context; /* its */
    float *times_us;             /* [world][PERF_SAMPLES_MAX] */
};

/* May block until all ranks are there. 0, or -1: it said why on stderr. In both cases perf_close()
 * gives all back. Where result is no success it aborts, and the other ranks learn of it; else it
 * may block until they are ready to leave. */
int perf_open(const struct gf_config *config, const struct gf_tensor *tensors,
              uint32_t tensor_count, struct perf_session *session);
void perf_close(struct perf_session *session, int result);

/* Both give -1. fail: what the log has said already. */
#define PERF_NO_MEMORY "there is no memory for the measurement"
int perf_refuse(const char *text);
int perf_fail(gf_status status, const char *at);

#endif
