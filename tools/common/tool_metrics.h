/* gf_stats() as Prometheus text (exposition format 0.0.4): what node_exporter's textfile collector
 * reads. */
#ifndef TOOL_METRICS_H
#define TOOL_METRICS_H

#include "gradientflow.h"

/* The rank as label, at most `bytes` with its NUL. Returns its length, as snprintf() does; 0: there
 * are no statistics. */
uint64_t tool_metrics(const gf_context *gf, char *text_out, uint64_t bytes);

#endif
