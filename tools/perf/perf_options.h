/* gf-perf's command line. */
#ifndef PERF_OPTIONS_H
#define PERF_OPTIONS_H

#include "tools/perf/perf_run.h"

struct perf_options {
    uint64_t bytes_min, bytes_max, factor;
    double busbw_min;
    const char *json_path, *csv_path;
    const char *model_path, *tune_path; /* NULL: neither */
    double compute_ms;                  /* of a model's step; 0: all tensors are ready at once */
    bool own_memory;                    /* data lies in the program's memory, not the library's */
    bool on_device;                     /* --device cuda */
    const char *nccl_path;              /* NULL: the system's */
    struct perf_plan plan;
    struct gf_config config;
};

/* 0, or what tool_args_exit() takes; it said why. */
int perf_options_read(int argc, char **argv, struct perf_options *options_out);

#endif
