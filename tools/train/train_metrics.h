/* gf-train --metrics: what the library counts, for node_exporter's textfile collector. */
#ifndef GF_TRAIN_METRICS_H
#define GF_TRAIN_METRICS_H

#include <stdbool.h>

#include "gradientflow.h"

struct train_metrics {
    const char *path;  /* NULL: none; "job.prom" is job.RANK.prom of each rank at the start */
    uint32_t rank;
    uint64_t last_ns;  /* 0: nothing is written yet */
    bool failed;       /* which was said, once: the run goes on */
};

/* Writes the file whole, beside it and renamed, every five seconds, or at once where `now` is true. */
void train_metrics_write(struct train_metrics *metrics, const gf_context *gf, uint64_t now_ns, bool now);

#endif
