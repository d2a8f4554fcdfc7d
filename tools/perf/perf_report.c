/* See perf_report.h. */
#include "tools/perf/perf_report.h"

#include <string.h>

#include "tools/common/tool_file.h"
#include "tools/common/tool_output.h"

static const char *op_name(const struct perf_report *report)
{
    return gf_operation_name((report->step.model != NULL) ? GF_OPERATION_STEP
                                                          : report->plan.operation);
}

static const char *type_name(const struct perf_report *report)
{
    return perf_type_name((report->step.model != NULL) ? report->config->exchange.wire
                                                       : report->plan.type);
}

/* nccl-tests' names: what no value is made of has no reduction, and what begins nowhere has no
 * root. */
static const char *redop_name(const struct perf_report *report)
{
    gf_operation operation = report->plan.operation;
    if (report->step.model != NULL) return "sum";
    if (operation == GF_OPERATION_ALLREDUCE) return perf_redop_name(report->plan.reduction);
    return (operation == GF_OPERATION_REDUCE_SCATTER) ? "sum" : "none";
}

void perf_report_head(const struct perf_report *report)
{
    char summary[256];
    printf("# gf-perf %u.%u: %s, %u ranks, configuration 0x%016llx\n", GF_VERSION_MAJOR,
           GF_VERSION_MINOR, op_name(report), report->world,
           (unsigned long long)gf_config_hash(report->config));
    printf("# %s\n", gf_config_summary(report->config, summary, sizeof summary));
    if (report->gpu[0] != '\0')
        printf("# on a GPU a rank, %s, %s: an allreduce is a step of one tensor, its vote and what "
               "is packed included\n"
               "# NCCL: %s\n",
               report->gpu, report->path, report->nccl);
    printf("#\n");
    printf("# %58s out-of-place %24s in-place\n", "", "");
    printf("#%11s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int place = 0; place < 2; place++)
        printf("  %7s  %6s  %6s %6s", "time", "algbw", "busbw", "#wrong");
    printf("\n#%11s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int place = 0; place < 2; place++)
        printf("  %7s  %6s  %6s %6s", "(us)", "(GB/s)", "(GB/s)", "");
    printf("\n");
    fflush(stdout);
}

/* `unknown` where nobody looked. */
static const char *wrong_text(const struct perf_report *report, uint64_t wrong, const char *unknown,
                              char text[static 24])
{
    (void)snprintf(text, 24, "%llu", (unsigned long long)wrong);
    return report->plan.check ? text : unknown;
}

static void place_print(const struct perf_report *report, double us, double algbw, double busbw,
                        uint64_t wrong)
{
    char text[24];
    printf("  %7.*f  %6.2f  %6.2f  %5s",
           (us < 100)     ? 2
           : (us < 10000) ? 1
                          : 0,
           us, algbw, busbw, wrong_text(report, wrong, "N/A", text));
}

void perf_report_row(const struct perf_report *report, const struct perf_row *row)
{
    gf_operation operation = report->plan.operation;
    bool shares =
        (operation == GF_OPERATION_REDUCE_SCATTER) || (operation == GF_OPERATION_ALLGATHER);
    bool has_root = (operation == GF_OPERATION_BROADCAST) && (report->step.model == NULL);
    bool new_algorithm = (row == report->rows) || (row[-1].algorithm != row->algorithm);
    uint64_t count =
        shares ? (row->elem_count + report->world - 1) / report->world : row->elem_count;
    if (new_algorithm) printf("# by %s\n", gf_algorithm_name(row->algorithm));
    /* NCCL's as a comment, for who takes rows of the one benchmark */
    for (int theirs = 0; theirs < 2; theirs++) {
        if (theirs && (report->nccl_rows[row - report->rows].samples == 0)) break;
        const struct perf_row *of = theirs ? &report->nccl_rows[row - report->rows] : row;
        printf(theirs ? "# NCCL%6llu" : "%12llu", (unsigned long long)of->bytes);
        printf("  %12llu  %8s  %6s  %6d", (unsigned long long)count, type_name(report),
               redop_name(report), has_root ? (int)report->plan.root : -1);
        if (of->out_us > 0)
            place_print(report, of->out_us, of->out_algbw, of->out_busbw, of->out_wrong);
        else
            printf("  %7s  %6s  %6s  %5s", "N/A", "N/A", "N/A", "N/A");
        place_print(report, of->p50_us, of->algbw, of->busbw, of->wrong);
        printf("\n");
    }
    fflush(stdout);
}

void perf_report_foot(const struct perf_report *report)
{
    uint64_t wrong = 0;
    uint64_t places = 0;
    double sum = 0;
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct perf_row *row = &report->rows[i];
        wrong += row->wrong + row->out_wrong;
        sum += row->busbw + row->out_busbw;
        places += (row->out_us > 0) ? 2 : 1;
    }
    printf("# Out of bounds values : %llu %s\n# Avg bus bandwidth    : %g\n#\n",
           (unsigned long long)wrong, (wrong == 0) ? "OK" : "FAILED",
           (places > 0) ? sum / (double)places : 0.0);
    fflush(stdout);
}

void perf_report_step(const struct perf_report *report)
{
    const struct perf_step *step = &report->step;
    const struct perf_row *row = &report->rows[0];
    printf("# %s: %u tensors in %u buffers, %.3f MB sent a step by rank 0\n", step->model,
           step->tensor_count, step->buffer_count, (double)step->wire_bytes * 1e-6);
    printf(
        "# step %.3f ms, computing %.3f ms, exposed communication %.3f ms (%.1f %% of the step)\n",
        row->p50_us * 1e-3, step->compute_us * 1e-3, step->exposed_us * 1e-3,
        (row->p50_us > 0) ? 100.0 * step->exposed_us / row->p50_us : 0.0);
    fflush(stdout);
}

int perf_file_check(const char *path)
{
    struct tool_file file;
    return (tool_file_check(&file, path) == 0) ? 0 : perf_refuse(file.error);
}

int perf_report_begin(struct perf_report *report, const gf_context *gf, const char *json_path,
                      const char *csv_path)
{
    report->world = gf_world(gf);
    report->is_reporter = gf_rank(gf) == 0;
    if (report->row_count > 0) return 0; /* looked at before */
    return (report->is_reporter &&
            ((perf_file_check(json_path) != 0) || (perf_file_check(csv_path) != 0)))
               ? -1
               : 0;
}

static void json_header(FILE *file, const struct perf_report *report)
{
    char summary[256];
    fprintf(
        file,
        "{\n  \"header\": {\"version\": \"%u.%u\", \"world\": %u, \"config_hash\": \"0x%016llx\", "
        "\"config\": ",
        GF_VERSION_MAJOR, GF_VERSION_MINOR, report->world,
        (unsigned long long)gf_config_hash(report->config));
    tool_json_text(file, gf_config_summary(report->config, summary, sizeof summary));
    if (report->step.model != NULL) {
        const struct perf_step *step = &report->step;
        fprintf(file, ",\n    \"model\": ");
        tool_json_text(file, step->model);
        fprintf(file,
                ", \"tensors\": %u, \"buffers\": %u, \"compute_us\": %.3f, \"exposed_us\": %.3f, "
                "\"exchange_us\": %.3f, \"wire_bytes\": %llu",
                step->tensor_count, step->buffer_count, step->compute_us, step->exposed_us,
                step->exchange_us, (unsigned long long)step->wire_bytes);
    }
    if (report->gpu[0] != '\0') {
        fprintf(file, ",\n    \"device\": ");
        tool_json_text(file, report->gpu);
        fprintf(file, ", \"path\": \"%s\", \"nccl\": ", report->path);
        tool_json_text(file, report->nccl);
    }
    fprintf(file, "},\n  \"rows\": [");
}

int perf_report_json(const struct perf_report *report, const char *path)
{
    struct tool_file whole;
    if (tool_file_begin(&whole, path) != 0) return perf_refuse(whole.error);
    FILE *file = whole.stream;
    json_header(file, report);
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct perf_row *row = &report->rows[i];
        const struct perf_row *theirs = &report->nccl_rows[i];
        char wrong[24];
        fprintf(file,
                "%s\n    {\"op\": \"%s\", \"type\": \"%s\", \"redop\": \"%s\", "
                "\"bytes\": %llu, \"count\": %llu, \"samples\": %u, "
                "\"time_us\": %.3f, \"min_us\": %.3f, \"mean_us\": %.3f, \"p50_us\": %.3f, "
                "\"p95_us\": %.3f, "
                "\"p99_us\": %.3f, \"algbw\": %.4f, \"busbw\": %.4f, \"wrong\": %s, "
                "\"out_of_place_us\": %.3f, ",
                (i > 0) ? "," : "", op_name(report), type_name(report), redop_name(report),
                (unsigned long long)row->bytes, (unsigned long long)row->elem_count, row->samples,
                row->p50_us, row->min_us, row->mean_us, row->p50_us, row->p95_us, row->p99_us,
                row->algbw, row->busbw,
                wrong_text(report, row->wrong + row->out_wrong, "null", wrong), row->out_us);
        if (theirs->samples > 0)
            fprintf(file,
                    "\"nccl_us\": %.3f, \"nccl_busbw\": %.4f, \"nccl_out_of_place_us\": %.3f, "
                    "\"nccl_wrong\": %s, ",
                    theirs->p50_us, theirs->busbw, theirs->out_us,
                    wrong_text(report, theirs->wrong + theirs->out_wrong, "null", wrong));
        fprintf(file, "\"algorithm\": \"%s\"}", gf_algorithm_name(row->algorithm));
    }
    fprintf(file, "\n  ]\n}\n");
    return (tool_file_end(&whole) == 0) ? 0 : perf_refuse(whole.error);
}

int perf_report_csv(const struct perf_report *report, const char *path)
{
    struct tool_file whole;
    if (tool_file_begin(&whole, path) != 0) return perf_refuse(whole.error);
    FILE *file = whole.stream;
    fprintf(file, "op,type,ranks,bytes,count,samples,time_us,min_us,mean_us,p50_us,p95_us,p99_us,"
                  "algbw,busbw,wrong,"
                  "algorithm,config_hash\n");
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct perf_row *row = &report->rows[i];
        char wrong[24];
        fprintf(
            file, "%s,%s,%u,%llu,%llu,%u,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.4f,%.4f,%s,%s,0x%016llx\n",
            op_name(report), type_name(report), report->world, (unsigned long long)row->bytes,
            (unsigned long long)row->elem_count, row->samples, row->p50_us, row->min_us,
            row->mean_us, row->p50_us, row->p95_us, row->p99_us, row->algbw, row->busbw,
            wrong_text(report, row->wrong + row->out_wrong, "", wrong),
            gf_algorithm_name(row->algorithm), (unsigned long long)gf_config_hash(report->config));
    }
    return (tool_file_end(&whole) == 0) ? 0 : perf_refuse(whole.error);
}
