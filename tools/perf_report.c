/* See perf_report.h. */
#include "perf_report.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void perf_report_head(const struct perf_report *report)
{
    char summary[256];
    printf("# gf-perf %u.%u: %s, %s, in place, %u ranks, configuration 0x%016llx\n", GF_VERSION_MAJOR, GF_VERSION_MINOR,
           gf_operation_name(report->plan.operation), perf_type_name(report->plan.type), report->world,
           (unsigned long long)gf_config_hash(report->config));
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

static int file_end(FILE *file, const char *path)
{
    bool bad = ferror(file) != 0;
    if ((fclose(file) == 0) && !bad) return 0;
    fprintf(stderr, "gf-perf: cannot write %s: %s\n", path, strerror(errno));
    return -1;
}

static FILE *file_begin(const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL) fprintf(stderr, "gf-perf: cannot write %s: %s\n", path, strerror(errno));
    return file;
}

int perf_report_json(const struct perf_report *report, const char *path)
{
    char summary[256];
    FILE *file = file_begin(path);
    if (file == NULL) return -1;
    fprintf(file, "{\n  \"header\": {\"version\": \"%u.%u\", \"world\": %u, \"config_hash\": \"0x%016llx\", "
            "\"config\": \"%s\"},\n  \"rows\": [", GF_VERSION_MAJOR, GF_VERSION_MINOR, report->world,
            (unsigned long long)gf_config_hash(report->config), gf_config_summary(report->config, summary, sizeof summary));
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct perf_row *row = &report->rows[i];
        fprintf(file, "%s\n    {\"op\": \"%s\", \"type\": \"%s\", \"bytes\": %llu, \"count\": %llu, \"samples\": %u, "
                "\"time_us\": %.3f, \"p50_us\": %.3f, \"p99_us\": %.3f, \"algbw\": %.4f, \"busbw\": %.4f, "
                "\"wrong\": %llu, \"algorithm\": \"%s\"}", (i > 0) ? "," : "",
                gf_operation_name(report->plan.operation), perf_type_name(report->plan.type),
                (unsigned long long)row->bytes, (unsigned long long)row->elem_count, row->samples, row->p50_us,
                row->p50_us, row->p99_us, row->algbw, row->busbw, (unsigned long long)row->wrong,
                gf_algorithm_name(row->algorithm));
    }
    fprintf(file, "\n  ]\n}\n");
    return file_end(file, path);
}

int perf_report_csv(const struct perf_report *report, const char *path)
{
    FILE *file = file_begin(path);
    if (file == NULL) return -1;
    fprintf(file, "op,type,ranks,bytes,count,samples,p50_us,p99_us,algbw,busbw,wrong,algorithm\n");
    for (uint32_t i = 0; i < report->row_count; i++) {
        const struct perf_row *row = &report->rows[i];
        fprintf(file, "%s,%s,%u,%llu,%llu,%u,%.3f,%.3f,%.4f,%.4f,%llu,%s\n", gf_operation_name(report->plan.operation),
                perf_type_name(report->plan.type), report->world, (unsigned long long)row->bytes,
                (unsigned long long)row->elem_count, row->samples, row->p50_us, row->p99_us, row->algbw, row->busbw,
                (unsigned long long)row->wrong, gf_algorithm_name(row->algorithm));
    }
    return file_end(file, path);
}
