/* gf-perf's results: a table on stdout, and files. */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include <stdio.h>

#include "tools/perf/perf_run.h"

#define PERF_ROWS_MAX 128u

/* Beside the row of a replayed step; medians. */
struct perf_step {
    const char *model;
    uint32_t tensor_count, buffer_count;
    double compute_us;   /* what was asked for */
    double exposed_us;   /* the step's time beyond it */
    double exchange_us;  /* rank 0: from the first post to the last completion */
    uint64_t wire_bytes; /* rank 0 sent in a step */
};

struct perf_report {
    const struct gf_config *config;
    struct perf_plan plan;
    uint32_t world;
    bool is_reporter; /* rank 0, once it is open */
    uint32_t row_count;
    struct perf_row rows[PERF_ROWS_MAX];
    /* On a device: its name, gf_path_name() and what is to be said of NCCL, else empty; beside each
     * row NCCL's, where its samples are not 0. */
    char gpu[64], nccl[160];
    const char *path;
    struct perf_row nccl_rows[PERF_ROWS_MAX];
    struct perf_step step; /* model NULL: rows are of a collective */
};

/* Which ranks there are, who reports, and whether that one can write its files; 0, or -1 as
 * below. */
int perf_report_begin(struct perf_report *report, const gf_context *gf, const char *json_path,
                      const char *csv_path);
void perf_report_head(const struct perf_report *report);
void perf_report_row(const struct perf_report *report, const struct perf_row *row);
void perf_report_step(const struct perf_report *report);
/* whether all was right, and the mean bandwidth */
void perf_report_foot(const struct perf_report *report);
/* 0, or -1: it said why on stderr. */
int perf_report_json(const struct perf_report *report, const char *path);
int perf_report_csv(const struct perf_report *report, const char *path);
/* Whether a file can be written there, before an hour is spent on what goes into it; NULL is valid.
 * 0, or -1 as above. */
int perf_file_check(const char *path);

#endif
