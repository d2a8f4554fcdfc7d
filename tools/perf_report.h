/* gf-perf's results: a table on stdout, and files. */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include "perf_run.h"

#define PERF_ROWS_MAX 128u

struct perf_report {
    const struct gf_config *config;
    struct perf_plan plan;
    uint32_t world;
    uint32_t row_count;
    struct perf_row rows[PERF_ROWS_MAX];
};

void perf_report_head(const struct perf_report *report);
void perf_report_row(const struct perf_report *report, const struct perf_row *row);
/* 0, or -1: it said why on stderr. */
int perf_report_json(const struct perf_report *report, const char *path);
int perf_report_csv(const struct perf_report *report, const char *path);

#endif
