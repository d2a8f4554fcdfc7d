/* gf-perf: what collectives reach, size by size, after the manner of nccl-tests. Starts under gf-run, Slurm or mpirun;
 * rank 0 reports. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "perf_report.h"
#include "tool_args.h"

#define BYTES_MAX (UINT64_C(64) << 30)

static struct {
    uint64_t bytes_min, bytes_max, factor, iters, warmup, check;
    double seconds, busbw_min;
    const char *op, *type, *algorithm, *config_path, *json_path, *csv_path, *set;
} given = {.bytes_min = 4096, .bytes_max = UINT64_C(64) << 20, .factor = 4, .warmup = 5, .check = 1, .seconds = 0.3,
           .op = "allreduce", .type = "float"};

static const struct tool_option options[] = {
    {.name = "min-bytes", .kind = TOOL_SIZE, .value_out = &given.bytes_min, .value_name = "SIZE", .low = 4,
     .high = BYTES_MAX, .help = "-b: the smallest size (4K)"},
    {.name = "max-bytes", .kind = TOOL_SIZE, .value_out = &given.bytes_max, .value_name = "SIZE", .low = 4,
     .high = BYTES_MAX, .help = "-e: the largest (64M)"},
    {.name = "factor", .kind = TOOL_NUMBER, .value_out = &given.factor, .value_name = "N", .low = 2, .high = 1024,
     .help = "-f: from size to size (4)"},
    {.name = "iters", .kind = TOOL_NUMBER, .value_out = &given.iters, .value_name = "N", .low = 1,
     .high = PERF_SAMPLES_MAX, .help = "-n: samples of a size; else what --seconds allows"},
    {.name = "warmup", .kind = TOOL_NUMBER, .value_out = &given.warmup, .value_name = "N", .high = 1000,
     .help = "-w: samples before, not counted (5)"},
    {.name = "seconds", .kind = TOOL_REAL, .value_out = &given.seconds, .value_name = "S", .low_real = 0.001,
     .high_real = 3600, .help = "-t: for each size, about (0.3)"},
    {.name = "op", .kind = TOOL_TEXT, .value_out = &given.op, .value_name = "NAME",
     .allowed = "allreduce|broadcast|reduce_scatter|allgather|barrier", .help = "-o: the operation (allreduce)"},
    {.name = "type", .kind = TOOL_TEXT, .value_out = &given.type, .value_name = "NAME", .allowed = "float|half|bfloat16",
     .help = "-d: float, half or bfloat16"},
    {.name = "algorithm", .kind = TOOL_TEXT, .value_out = &given.algorithm, .value_name = "NAME",
     .help = "-a: exchange.algorithm of the configuration: auto, direct, ring, .."},
    {.name = "check", .kind = TOOL_NUMBER, .value_out = &given.check, .value_name = "0|1", .high = 1,
     .help = "-c: look at every element before and behind the samples (1)"},
    {.name = "config", .kind = TOOL_TEXT, .value_out = &given.config_path, .value_name = "FILE",
     .help = "configuration (none: defaults)"},
    {.name = "set", .kind = TOOL_TEXT, .value_out = &given.set, .value_name = "GROUP.KEY=VALUE",
     .help = "any line of it, more behind commas: link.idle=spin,link.window=4"},
    {.name = "json", .kind = TOOL_TEXT, .value_out = &given.json_path, .value_name = "FILE", .help = "write the rows there"},
    {.name = "csv", .kind = TOOL_TEXT, .value_out = &given.csv_path, .value_name = "FILE", .help = "likewise"},
    {.name = "min-busbw", .kind = TOOL_REAL, .value_out = &given.busbw_min, .value_name = "GB/S", .high_real = 1e6,
     .help = "fail if the largest size stays below"},
};
#define OPTION_COUNT (sizeof options / sizeof options[0])

/* nccl-tests' letters, as our names; all take a value. */
static void letters_expand(int argc, char **argv, char *names[])
{
    static const char *const letters[][2] = {
        {"-b", "--min-bytes"}, {"-e", "--max-bytes"}, {"-f", "--factor"}, {"-n", "--iters"}, {"-w", "--warmup"},
        {"-t", "--seconds"},   {"-o", "--op"},        {"-d", "--type"},   {"-a", "--algorithm"}, {"-c", "--check"},
    };
    for (int i = 0; i < argc; i++) {
        names[i] = argv[i];
        for (size_t l = 0; (i > 0) && (l < sizeof letters / sizeof letters[0]); l++)
            if (strcmp(argv[i], letters[l][0]) == 0) names[i] = (char *)(uintptr_t)letters[l][1];
    }
    names[argc] = NULL;
}

static void log_print(void *user, gf_log_level level, const char *text)
{
    (void)user;
    if (level <= GF_LOG_WARN) fprintf(stderr, "gf-perf: %s\n", text);
}

static int refuse(const char *text)
{
    fprintf(stderr, "gf-perf: %s\n", text);
    return -1;
}

static int settings_apply(struct gf_config *config, char *error)
{
    static char text[1024];
    char *rest = text, *setting;
    if ((given.algorithm != NULL) &&
        (gf_config_set(config, "exchange.algorithm", given.algorithm, "--algorithm", error) < 0)) return -1;
    snprintf(text, sizeof text, "%s", (given.set != NULL) ? given.set : "");
    while ((setting = strsep(&rest, ",")) != NULL) {
        char *value = strchr(setting, '=');
        if (setting[0] == '\0') continue;
        if (value == NULL) {
            snprintf(error, GF_CONFIG_ERROR_BYTES, "--set %.100s: allowed is GROUP.KEY=VALUE", setting);
            return -1;
        }
        *value++ = '\0';
        if (gf_config_set(config, setting, value, "--set", error) < 0) return -1;
    }
    return 0;
}

static int config_make(struct gf_config *config)
{
    static char error[GF_CONFIG_ERROR_BYTES];
    if ((given.config_path != NULL) && (gf_config_load(given.config_path, config, error) < 0)) return refuse(error);
    if (settings_apply(config, error) < 0) return refuse(error);
    config->exchange.user_bytes = (given.bytes_max + 63) / 64 * 64 + 64;
    config->trace_records = 64;
    config->log = log_print;
    return 0;
}

static void plan_make(struct perf_plan *plan)
{
    static const gf_operation ops[] = {GF_OPERATION_BROADCAST, GF_OPERATION_REDUCE_SCATTER, GF_OPERATION_ALLGATHER,
                                       GF_OPERATION_BARRIER};
    *plan = (struct perf_plan){.operation = GF_OPERATION_ALLREDUCE, .iters = given.iters, .warmup = given.warmup,
                               .seconds = given.seconds, .check = given.check != 0};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strcmp(given.op, gf_operation_name(ops[i])) == 0) plan->operation = ops[i];
    plan->type = (given.type[0] == 'h') ? GF_TYPE_F16 : (given.type[0] == 'b') ? GF_TYPE_BF16 : GF_TYPE_F32;
}

static int fail_library(const gf_context *gf, gf_status status, const char *at)
{
    const struct gf_error *error = gf_error_last(gf);
    fprintf(stderr, "gf-perf: %s: %s%s%s\n", at, gf_status_name(status), (error->code != GF_OK) ? ": " : "",
            (error->code != GF_OK) ? error->text : "");
    return -1;
}

/* Every size; 0, or -1 where something failed or was wrong. */
static int sizes_run(struct perf *perf, struct perf_report *report)
{
    bool reports = gf_rank(perf->gf) == 0;
    int result = 0;
    if (reports) perf_report_head(report);
    for (uint64_t bytes = given.bytes_min; bytes <= given.bytes_max; bytes *= given.factor) {
        struct perf_row *row = &report->rows[report->row_count];
        gf_status status = perf_measure(perf, bytes, row);
        if (status < 0) return fail_library(perf->gf, status, "a measurement failed");
        report->row_count++;
        if (reports) perf_report_row(report, row);
        if (row->wrong > 0) result = reports ? refuse("results are wrong") : -1;
    }
    return result;
}

static int files_write(const struct perf_report *report)
{
    const struct perf_row *last = &report->rows[report->row_count - 1];
    int result = 0;
    if ((given.json_path != NULL) && (perf_report_json(report, given.json_path) != 0)) result = -1;
    if ((given.csv_path != NULL) && (perf_report_csv(report, given.csv_path) != 0)) result = -1;
    if (last->busbw < given.busbw_min) {
        fprintf(stderr, "gf-perf: %.3f GB/s of bus bandwidth at %llu bytes, --min-busbw asks for %.3f\n", last->busbw,
                (unsigned long long)last->bytes, given.busbw_min);
        result = -1;
    }
    return result;
}

static void *memory_take(size_t size_bytes)
{
    void *memory = aligned_alloc(64, (size_bytes + 63) & ~(size_t)63);
    if (memory != NULL) memset(memory, 0, size_bytes);
    return memory;
}

static int run(const struct gf_config *config, struct perf_report *report)
{
    static const struct gf_tensor tensor = {.name = "none", .elem_count = 1};
    struct perf perf = {.plan = report->plan};
    struct gf_footprint need;
    gf_status status = gf_measure(config, &tensor, 1, &need);
    void *memory = (status < 0) ? NULL : memory_take(need.control_bytes);
    int result = -1;
    if (status < 0) return fail_library(NULL, status, "cannot open");
    if (memory == NULL) return refuse("there is no memory for the control region");
    status = gf_open(config, &tensor, 1, memory, need.control_bytes, &perf.gf);
    if (status >= 0) status = gf_open_wait(perf.gf);
    if (status >= 0) {
        report->world = gf_world(perf.gf);
        perf.data = (unsigned char *)(uintptr_t)gf_exchange_take(perf.gf, given.bytes_max);
        perf.times_us = memory_take((size_t)PERF_SAMPLES_MAX * report->world * sizeof(float));
        if ((perf.data == NULL) || (perf.times_us == NULL)) result = refuse("there is no memory for the measurement");
        else result = sizes_run(&perf, report);
        if ((result == 0) && (gf_rank(perf.gf) == 0)) result = files_write(report);
    } else {
        (void)fail_library(perf.gf, status, "cannot open");
    }
    (void)gf_close(perf.gf);
    free(perf.times_us);
    free(memory);
    return result;
}

int main(int argc, char **argv)
{
    static const struct tool_args args = {
        .program = "gf-perf", .usage = "[options]",
        .about = "Times one collective, in place, size by size, on all ranks that gf-run, Slurm or mpirun started. Each\n"
                 "rank rewrites its data before each sample; a sample's time is that of the slowest rank.",
        .options = options, .option_count = OPTION_COUNT,
    };
    static struct gf_config config;
    static struct perf_report report;
    uint32_t operand_count;
    char **names = calloc((size_t)argc + 1, sizeof *names);
    int read;
    if (names == NULL) return EXIT_FAILURE;
    letters_expand(argc, argv, names);
    read = tool_args_read(&args, argc, names, NULL, &operand_count);
    free(names);
    if (read != 0) return (read > 0) ? EXIT_SUCCESS : TOOL_EXIT_USAGE;
    if (given.bytes_min > given.bytes_max) {
        (void)refuse("--min-bytes is above --max-bytes");
        return TOOL_EXIT_USAGE;
    }
    if (config_make(&config) != 0) return TOOL_EXIT_USAGE;
    plan_make(&report.plan);
    report.config = &config;
    return (run(&config, &report) == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}
