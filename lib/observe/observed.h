/* What is counted and recorded for those who ask: trace.c, stats.c. */
#ifndef GF_OBSERVED_H
#define GF_OBSERVED_H

#include "ops/coll/timing.h"
#include "gradientflow.h"

struct gf_trace {
    struct gf_trace_record *records;
    uint32_t record_max, next;
    uint64_t written, read;
    struct gf_trace_record none; /* where there is no ring */
};

struct gf_observed {
    struct gf_trace trace;
    struct gf_stats stats;
    struct gf_peer_stats *peers; /* [world] of this epoch */
    uint64_t epoch_steps;        /* whole ones that they count */
    struct gf_timing timing;     /* of links, in this step */
};

#endif
