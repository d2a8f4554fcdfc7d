/* What is counted and recorded for those who ask: trace.c, stats.c. */
#ifndef GF_OBSERVED_H
#define GF_OBSERVED_H

#include "ops/coll/timing.h"
#include "gradientflow.h"

struct gf_trace {
    struct gf_trace_record *records;
    uint32_t record_max, next;
    uint64_t written, read;
};

struct gf_observed {
    struct gf_trace trace;
    struct gf_stats stats;
    struct gf_peer_stats *peers; /* [world] of this epoch */
    uint64_t epoch_steps;        /* whole ones that they count */
    struct gf_timing timing;     /* of links, in this step */
};

/* ---- trace.c ---- */
struct gf_op;
/* A record of an operation that has ended, and one of a gf_step_wait(). */
void gf_trace_op(gf_context *gf, const struct gf_op *op, gf_status status, uint64_t now_ns);
void gf_trace_wait(gf_context *gf, gf_status status, uint64_t begin_ns, uint64_t end_ns);

/* ---- stats.c ---- */
uint64_t gf_resident_bytes(void); /* host memory of this process that is not shared; 0: unknown */
void gf_opened_count(gf_context *gf); /* how it has grown since: what foreign libraries took */

/* link_times.c, which link was slow in a step: each rank's times go out with the vote, all learn the same from it. */
void gf_link_times_tell(gf_context *gf);  /* this rank's, into the words of the vote, all 0 */
void gf_link_times_learn(gf_context *gf); /* of all ranks, from them: step.link_ends and link_ns */

#endif
