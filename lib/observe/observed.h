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

/* The observe module: what the core calls of it. The program calls gf_trace_read(), gf_stats(), gf_peer_stats(). */
struct gf_op;
struct gf_observe_module {
    uint64_t (*resident_bytes)(void); /* host memory of this process that is not shared; 0: unknown */
    void (*opened)(gf_context *gf);   /* how it has grown since: what foreign libraries took */
    void (*op_ended)(gf_context *gf, const struct gf_op *op, gf_status status, uint64_t now_ns); /* of an operation */
    void (*waited)(gf_context *gf, gf_status status, uint64_t begin_ns, uint64_t end_ns); /* gf_step_wait() */
    gf_timing_arrived_fn arrived;
    void (*link_times_tell)(gf_context *gf);
    void (*link_times_learn)(gf_context *gf);
};
uint64_t gf_resident_bytes(void); /* stats.c */
void gf_opened_count(gf_context *gf);
/* link_times.c, which link was slow in a step: each rank's times go out with the vote, all learn the same from it. */
void gf_link_times_tell(gf_context *gf);  /* this rank's, into the words of the vote, all 0 */
void gf_link_times_learn(gf_context *gf); /* of all ranks, from them: step.link_ends and link_ns */

#endif
