/* gf-perf: what collectives reach, size by size, after the manner of nccl-tests; what a model's
 * step costs; where auto should change algorithms. Starts under gf-run, Slurm or mpirun; rank 0
 * reports. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/perf/perf_device.h"
#include "tools/perf/perf_model.h"
#include "tools/perf/perf_options.h"
#include "tools/perf/perf_report.h"
#include "tools/perf/perf_tune.h"
#include "tools/common/tool_args.h"
#include "tools/common/tool_output.h"

/* Every size; 0, or -1 where something failed or was wrong. */
static int sizes_run(const struct perf_options *options, struct perf *perf,
                     struct perf_report *report)
{
    bool reports = gf_rank(perf->gf) == 0, barrier = perf->plan.operation == GF_OPERATION_BARRIER;
    int result = 0;
    if ((report->world == 1) && !barrier && !tool_quiet)
        fprintf(stderr, "gf-perf: warning: this is the only rank, so nothing is sent, and busbw is "
                        "0: start it by gf-run, srun or mpirun\n");
    if (reports) perf_report_head(report);
    for (uint64_t bytes = options->bytes_min; bytes <= options->bytes_max;
         bytes *= options->factor) {
        struct perf_row *row = &report->rows[report->row_count];
        gf_status status = perf_measure(perf, barrier ? 0 : bytes, row);
        if (status < 0) return perf_fail(status, "a measurement failed");
        report->row_count++;
        if (reports) perf_report_row(report, row);
        if (row->wrong + row->out_wrong > 0)
            result = reports ? perf_refuse("results are wrong") : -1;
        if (barrier) break; /* it has no size */
    }
    if (reports) perf_report_foot(report);
    return result;
}

static int collective_run(const struct perf_options *options, struct perf_report *report)
{
    static const struct gf_tensor tensor = {.name = "none", .elem_count = 1};
    struct perf perf = {.plan = options->plan, .way = &perf_host};
    struct perf_session session;
    void *source = NULL;
    void *own = NULL;
    bool has_data = options->plan.operation != GF_OPERATION_BARRIER;
    int result = perf_open(&options->config, &tensor, 1, &session);
    if (result == 0)
        result = perf_report_begin(report, session.gf, options->json_path, options->csv_path);
    if (result == 0) {
        perf.gf = session.gf;
        perf.times_us = session.times_us;
        if (options->own_memory) own = tool_memory(options->bytes_max);
        perf.data = options->own_memory ? (gf_mem)(uintptr_t)own
                                        : gf_exchange_take(perf.gf, options->bytes_max);
        if (has_data) source = tool_memory(options->bytes_max);
        perf.source = (gf_mem)(uintptr_t)source;
        if (has_data) perf.plan.seconds *= 0.5; /* for each place */
        if ((perf.data == 0) || (has_data && (source == NULL)))
            result = perf_refuse(PERF_NO_MEMORY);
        else if (perf.plan.root >= report->world)
            result = perf_refuse("--root is no rank of this job");
        else
            result = sizes_run(options, &perf, report);
    }
    perf_close(&session, result);
    free(source);
    free(own);
    return result;
}

/* Files hold what rows there are, also of a run that failed; then the pass mark. */
static int results_end(const struct perf_options *options, const struct perf_report *report)
{
    const struct perf_row *last =
        &report->rows[(report->row_count > 0) ? report->row_count - 1 : 0];
    int result = 0;
    if (report->row_count == 0) return -1;
    if ((options->json_path != NULL) && (perf_report_json(report, options->json_path) != 0))
        result = -1;
    if ((options->csv_path != NULL) && (perf_report_csv(report, options->csv_path) != 0))
        result = -1;
    if (last->busbw < options->busbw_min) {
        fprintf(stderr,
                "gf-perf: %.3f GB/s of bus bandwidth at %llu bytes, --min-busbw asks for %.3f\n",
                last->busbw, (unsigned long long)last->bytes, options->busbw_min);
        result = -1;
    }
    return result;
}

static int program(int argc, char **argv)
{
    static struct perf_options options;
    static struct perf_report report;
    int read = perf_options_read(argc, argv, &options);
    int result;
    if (read != 0) return tool_args_exit(read);
    report.plan = options.plan;
    report.config = &options.config;
    if (options.tune_path != NULL) return (perf_tune(&options) == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
    result = options.on_device              ? perf_device_run(&options, &report)
             : (options.model_path != NULL) ? perf_model(&options, &report)
                                            : collective_run(&options, &report);
    if (report.is_reporter && (results_end(&options, &report) != 0)) result = -1;
    return (result == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}

TOOL_MAIN("gf-perf", program)
