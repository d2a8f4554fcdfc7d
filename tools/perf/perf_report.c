/* See perf_report.h. */
#include "tools/perf/perf_report.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const char *op_name(const struct perf_report *report)
{
    return gf_operation_name((report->step.model != NULL) ? GF_OPERATION_STEP : report->plan.operation);
}

static const char *type_name(const struct perf_report *report)
{
    return perf_type_name((report->step.model != NULL) ? report->config->exchange.wire : report->plan.type);
}

void perf_report_head(const struct perf_report *report)
{
    char summary[256];
    printf("# gf-perf %u.%u: %s, %s, in place, %u ranks, configuration 0x%016llx\n", GF_VERSION_MAJOR, GF_VERSION_MINOR,
           op_name(report), type_name(report), report->world, (unsigned long long)gf_config_hash(report->config));
    printf("# %s\n", gf_config_summary(report->config, summary, sizeof summary));
    printf("#%11s %11s %7s %12s %12s %12s %9s %9s %6s  %s\n", "bytes", "count", "samples", "p50_us", "p99_us", "min_us",
           "algbw", "busbw", "wrong", "algorithm");
    fflush(stdout);
}

void perf_report_row(const struct perf_report *report, const struct perf_row *row)
{
    char wrong[24] = "-";
    if (report->plan.check) snprintf(wrong, sizeof wrong, "%llu", (unsigned long long)row->wrong);
    printf("%12llu %11llu %7u %12.2f %12.2f %12.2f %9.3f %9.3f %6s  %s\n", (unsigned long long)row->bytes,
           (unsigned long long)row->elem_count, row->samples, row->p50_us, row->p99_us, row->min_us, row->algbw,
           row->busbw, wrong, gf_algorithm_name(row->algorithm));
    fflush(stdout);
}

void perf_report_step(const struct perf_report *report)
{
    const struct perf_step *step = &report->step;
    const struct perf_row *row = &report->rows[0];
    printf("# %s: %u tensors in %u buffers, %.3f MB sent a step by rank 0\n", step->model, step->tensor_count,
           step->buffer_count, (double)step->wire_bytes * 1e-6);
    printf("# step %.3f ms, computing %.3f ms, exposed communication %.3f ms (%.1f %% of the step)\n",
           row->p50_us * 1e-3, step->compute_us * 1e-3, step->exposed_us * 1e-3,
           (row->p50_us > 0) ? 100.0 * step->exposed_us / row->p50_us : 0.0);
    fflush(stdout);
}

int perf_file_end(FILE *file, const char *path)
{
    bool bad = ferror(file) != 0;
    if ((fclose(file) == 0) && !bad) return 0;
    fprintf(stderr, "gf-perf: cannot write %s: %s\n", path, strerror(errno));
    return -1;
}

FILE *perf_file_begin(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) fprintf(stderr, "gf-perf: cannot write %s: %s\n", path, strerror(errno));
    return file;
}

int perf_file_check(const char *path)
{
    int fd = (path != NULL) ? open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666) : -1;
    if (path == NULL) return 0;
    if (fd < 0) fprintf(stderr, "gf-perf: cannot write %s: %s\n", path, strerror(errno));
    return (fd < 0) ? -1 : close(fd);
}

/* A name from the command line, as JSON. */
static void json_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text != '\0'; text++) {
        if ((*text == '"') || (*text == '\\')) fprintf(file, "\\%c", *text);
        else if ((unsigned char)*text < 0x20) fprintf(file, "\\u%04x", (unsigned)(unsigned char)*text);
        else fputc(*text, file);
    }
    fputc('"', file);
}

static void json_header(FILE *file, const struct perf_report *report)
{
    char summary[256];
    fprintf(file, "{\n  \"header\": {\"version\": \"%u.%u\", \"world\": %u, \"config_hash\": \"0x%016llx\", \"config\": ",
            GF_VERSION_MAJOR, GF_VERSION_MINOR, report->world, (unsigned long long)gf_config_hash(report->config));
    json_text(file, gf_config_summary(report->config, summary, sizeof summary));
    if (report->step.model != NULL) {
        const struct perf_step *step = &report->step;
        fprintf(file, ",\n    \"model\": ");
        json_text(file, step->model);
        fprintf(file, ", \"tensors\": %u, \"buffers\": %u, \"compute_us\": %.3f, \"exposed_us\": %.3f, "
                "\"exchange_us\": %.3f, \"wire_bytes\": %llu", step->tensor_count, step->buffer_count, step->compute_us,
                step->exposed_us, step->exchange_us, (unsigned long long)step->wire_bytes);
    }
    fprintf(file, "},\n  \"rows\": [");
}

int perf_report_json(const struct perf_report *report, const char *path)
{
    FILE *file = perf_file_begin(path);
    if (file == NULL) return -1;
    json_header(file, report);
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct perf_row *row = &report->rows[i];
        fprintf(file, "%s\n    {\"op\": \"%s\", \"type\": \"%s\", \"bytes\": %llu, \"count\": %llu, \"samples\": %u, "
                "\"time_us\": %.3f, \"min_us\": %.3f, \"mean_us\": %.3f, \"p50_us\": %.3f, \"p95_us\": %.3f, "
                "\"p99_us\": %.3f, \"algbw\": %.4f, \"busbw\": %.4f, \"wrong\": %llu, "
                "\"algorithm\": \"%s\"}", (i > 0) ? "," : "", op_name(report), type_name(report),
                (unsigned long long)row->bytes, (unsigned long long)row->elem_count, row->samples, row->p50_us,
                row->min_us, row->mean_us, row->p50_us, row->p95_us, row->p99_us, row->algbw, row->busbw,
                (unsigned long long)row->wrong, gf_algorithm_name(row->algorithm));
    }
    fprintf(file, "\n  ]\n}\n");
    return perf_file_end(file, path);
}

int perf_report_csv(const struct perf_report *report, const char *path)
{
    FILE *file = perf_file_begin(path);
    if (file == NULL) return -1;
    fprintf(file, "op,type,ranks,bytes,count,samples,time_us,min_us,mean_us,p50_us,p95_us,p99_us,algbw,busbw,wrong,"
            "algorithm,config_hash\n");
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct perf_row *row = &report->rows[i];
        fprintf(file, "%s,%s,%u,%llu,%llu,%u,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.4f,%.4f,%llu,%s,0x%016llx\n",
                op_name(report), type_name(report), report->world, (unsigned long long)row->bytes,
                (unsigned long long)row->elem_count,
                row->samples, row->p50_us, row->min_us, row->mean_us, row->p50_us, row->p95_us, row->p99_us, row->algbw,
                row->busbw, (unsigned long long)row->wrong, gf_algorithm_name(row->algorithm),
                (unsigned long long)gf_config_hash(report->config));
    }
    return perf_file_end(file, path);
}
