/* gf-perf --model: a model's training step with its computing replaced by waits; the exchange is
 * real. */
#ifndef PERF_MODEL_H
#define PERF_MODEL_H

#include "tools/perf/perf_options.h"
#include "tools/perf/perf_report.h"

/* Reads the model, replays steps, reports; the row and its step end up in the report, on all ranks.
 * 0, or -1 where something failed, was wrong or refused; it said why on stderr. */
int perf_model(const struct perf_options *options, struct perf_report *report);

#endif
