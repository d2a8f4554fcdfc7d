/* What is counted and recorded for the program: trace.c, stats.c. */
#ifndef GF_OBSERVED_H
#define GF_OBSERVED_H

#include "gradientflow.h"

struct gf_trace {
    struct gf_trace_record *records;
    uint32_t record_max, next;
    uint64_t written, read;
    uint64_t begin_ns; /* of the first step; 0: none */
};

/* Of one rank, equal on all ranks: in how many steps the vote found it to be the last, and its
 * delays in total. */
struct gf_late {
    uint64_t steps;
    uint64_t ns;
};

/* Why a step is skipped, as its warning says. */
enum { GF_SKIP_VALUES, GF_SKIP_SUM, GF_SKIP_NORM, GF_SKIP_REASONS };
/* Steps skipped for one reason: a warning comes at the first one, then each time their number has
 * doubled. */
struct gf_skips {
    uint64_t count, first_step;
};

struct gf_observed {
    struct gf_skips skips[GF_SKIP_REASONS];
    uint64_t uneven;       /* steps whose samples do not fit exchange.average */
    uint32_t taken_in_row; /* steps that were not skipped */
    struct gf_trace trace;
    struct gf_stats stats;
    struct gf_late *late;      /* [world] of this generation */
    uint64_t generation_steps; /* whole ones that they count */
};

/* ---- trace.c ---- */
struct gf_op;
void gf_trace_begin(gf_context *gf); /* a step begins */
/* A record of an operation that has ended, and one of a gf_step_wait(). */
void gf_trace_op(gf_context *gf, const struct gf_op *op, gf_status status, uint64_t now_ns);
void gf_trace_wait(gf_context *gf, gf_status status, uint64_t begin_ns, uint64_t end_ns);

/* ---- stats.c ---- */
uint64_t gf_resident_bytes(void); /* host memory of this process that is not shared; 0: unknown */
void gf_opened_count(gf_context *gf); /* how it has grown since: what foreign libraries took */

#endif
