/* See perf_options.h. */
#include "tools/perf/perf_options.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "drivers/gpu.h"
#include "tools/common/tool_args.h"

#define BYTES_MAX ((UINT64_C(64) << 30) - 64) /* exchange.user_bytes holds 64 more */

static struct perf_options out = {.bytes_min = 4096,
                                  .bytes_max = UINT64_C(64) << 20,
                                  .factor = 4,
                                  .plan = {.warmup = 5, .seconds = 0.3}};
static struct {
    uint64_t check, root;
    const char *op, *redop, *type, *algorithm, *config_path, *device, *memory;
    struct tool_settings set;
    bool compute_given, size_given, op_given, redop_given, root_given, memory_given;
} given = {.check = 1, .op = "allreduce", .redop = "sum", .type = "float", .memory = "exchange"};

static const struct tool_option options[] = {
    {.name = "min-bytes",
     .kind = TOOL_SIZE,
     .value_out = &out.bytes_min,
     .value_name = "SIZE",
     .low = 4,
     .high = BYTES_MAX,
     .given_out = &given.size_given,
     .letter = 'b',
     .help = "the smallest size (4K)"},
    {.name = "max-bytes",
     .kind = TOOL_SIZE,
     .value_out = &out.bytes_max,
     .value_name = "SIZE",
     .low = 4,
     .high = BYTES_MAX,
     .given_out = &given.size_given,
     .letter = 'e',
     .help = "the largest (64M)"},
    {.name = "factor",
     .kind = TOOL_NUMBER,
     .value_out = &out.factor,
     .value_name = "N",
     .low = 2,
     .high = 1024,
     .given_out = &given.size_given,
     .letter = 'f',
     .help = "from size to size (4)"},
    {.name = "iters",
     .kind = TOOL_NUMBER,
     .value_out = &out.plan.iters,
     .value_name = "N",
     .low = 1,
     .high = PERF_SAMPLES_MAX,
     .letter = 'n',
     .help = "samples of a size; else what --seconds allows"},
    {.name = "warmup",
     .kind = TOOL_NUMBER,
     .value_out = &out.plan.warmup,
     .value_name = "N",
     .high = 1000,
     .given_out = &given.size_given,
     .letter = 'w',
     .help = "samples before, not counted (5)"},
    {.name = "seconds",
     .kind = TOOL_REAL,
     .value_out = &out.plan.seconds,
     .value_name = "S",
     .low_real = 0.001,
     .high_real = 3600,
     .help = "for each size, about (0.3)"},
    {.name = "op",
     .kind = TOOL_TEXT,
     .value_out = &given.op,
     .value_name = "NAME",
     .given_out = &given.op_given,
     .allowed = "allreduce|broadcast|reduce_scatter|allgather|barrier",
     .help = "the operation (allreduce)"},
    {.name = "redop",
     .kind = TOOL_TEXT,
     .value_out = &given.redop,
     .value_name = "NAME",
     .letter = 'o',
     .given_out = &given.redop_given,
     .allowed = "sum|min|max",
     .help = "the reduction of an allreduce (sum)"},
    {.name = "root",
     .kind = TOOL_NUMBER,
     .value_out = &given.root,
     .value_name = "RANK",
     .letter = 'r',
     .high = GF_WORLD_MAX - 1,
     .given_out = &given.root_given,
     .help = "of a broadcast (0)"},
    {.name = "type",
     .kind = TOOL_TEXT,
     .value_out = &given.type,
     .value_name = "NAME",
     .letter = 'd',
     .given_out = &given.size_given,
     .allowed = "float|half|bfloat16",
     .help = "of elements (float)"},
    {.name = "memory",
     .kind = TOOL_TEXT,
     .value_out = &given.memory,
     .value_name = "NAME",
     .given_out = &given.memory_given,
     .allowed = "exchange|program",
     .help = "where the data lies: in memory of gf_exchange_take(), or the program's (exchange)"},
    {.name = "device",
     .kind = TOOL_TEXT,
     .value_out = &given.device,
     .value_name = "NAME",
     .allowed = GF_GPU_DRIVER_CHOICES,
     .help =
         "where the data lies; cuda: on a GPU a rank, a step of one tensor, beside NCCL (host)"},
    {.name = "nccl",
     .kind = TOOL_TEXT,
     .value_out = &out.nccl_path,
     .value_name = "FILE",
     .help = "with --device cuda: NCCL's library (libnccl.so.2, where there is one)"},
    {.name = "algorithm",
     .kind = TOOL_TEXT,
     .value_out = &given.algorithm,
     .value_name = "NAME",
     .help = "exchange.algorithm of the configuration: auto, direct, ring, .."},
    {.name = "check",
     .kind = TOOL_NUMBER,
     .value_out = &given.check,
     .value_name = "0|1",
     .high = 1,
     .letter = 'c',
     .help = "look at every element before and after the samples (1)"},
    {.name = "config",
     .kind = TOOL_TEXT,
     .value_out = &given.config_path,
     .value_name = "FILE",
     .help = "configuration (none: defaults)"},
    {.name = "set",
     .kind = TOOL_SETTINGS,
     .value_out = &given.set,
     .value_name = "GROUP.KEY=VALUE",
     .help = "any line of it; may be repeated"},
    {.name = "json",
     .kind = TOOL_TEXT,
     .value_out = &out.json_path,
     .value_name = "FILE",
     .help = "write the rows there"},
    {.name = "csv",
     .kind = TOOL_TEXT,
     .value_out = &out.csv_path,
     .value_name = "FILE",
     .help = "likewise"},
    {.name = "min-busbw",
     .kind = TOOL_REAL,
     .value_out = &out.busbw_min,
     .value_name = "GB/S",
     .high_real = 1e6,
     .help = "fail if the largest size stays below"},
    {.name = "tune",
     .kind = TOOL_TEXT,
     .value_out = &out.tune_path,
     .value_name = "FILE",
     .help = "time the algorithms of auto against each other and write its limits there"},
    {.name = "model",
     .kind = TOOL_TEXT,
     .value_out = &out.model_path,
     .value_name = "FILE",
     .help = "replay the steps of a model (config/models) in place of one collective"},
    {.name = "compute-ms",
     .kind = TOOL_REAL,
     .value_out = &out.compute_ms,
     .value_name = "MS",
     .high_real = 1e6,
     .given_out = &given.compute_given,
     .help = "of a model's step: forward and backward, as waits (0)"},
};
#define OPTION_COUNT (sizeof options / sizeof options[0])

static bool on_device(void)
{
    return (given.device != NULL) && gf_gpu_is_device(given.device);
}

static gf_type type_given(void)
{
    return (given.type[0] == 'h')   ? GF_TYPE_F16
           : (given.type[0] == 'b') ? GF_TYPE_BF16
                                    : GF_TYPE_F32;
}

/* A step's gradients are summed as they are, and no weights are there to be updated. */
static int config_on_device(struct gf_config *config)
{
    if (config->sparse.enabled || (config->exchange.average > GF_AVERAGE_SUM))
        return perf_refuse("--device cuda times plain sums: leave sparse and average out");
    config->optimizer.kind = GF_OPTIMIZER_NONE;
    config->exchange.user_bytes = 0;
    if (config->exchange.wire == GF_TYPE_F32) config->exchange.wire = type_given();
    return 0;
}

static int config_make(struct gf_config *config)
{
    static char error[GF_CONFIG_ERROR_BYTES];
    if ((given.config_path != NULL) && (gf_config_load(given.config_path, config, error) < 0)) {
        (void)perf_refuse(error);
        return TOOL_FAILED;
    }
    if ((given.device != NULL) &&
        (gf_config_set(config, "device.driver", given.device, "--device", error) < 0))
        return perf_refuse(error);
    if ((given.algorithm != NULL) &&
        (gf_config_set(config, "exchange.algorithm", given.algorithm, "--algorithm", error) < 0))
        return perf_refuse(error);
    if (gf_config_set_all(config, given.set.text, given.set.count, "--set", error) < 0)
        return perf_refuse(error);
    config->loss_scale.enabled = false; /* sums are checked, and no loss was scaled */
    out.own_memory = strcmp(given.memory, "program") == 0;
    if ((out.model_path == NULL) && !out.own_memory)
        config->exchange.user_bytes = (out.bytes_max + 63) / 64 * 64 + 64;
    config->log = gf_log_stderr;
    config->log_user = (void *)(uintptr_t) "gf-perf";
    return on_device() ? config_on_device(config) : 0;
}

static void plan_make(struct perf_plan *plan)
{
    static const gf_operation ops[] = {GF_OPERATION_BROADCAST, GF_OPERATION_REDUCE_SCATTER,
                                       GF_OPERATION_ALLGATHER, GF_OPERATION_BARRIER};
    plan->operation = GF_OPERATION_ALLREDUCE;
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strcmp(given.op, gf_operation_name(ops[i])) == 0) plan->operation = ops[i];
    for (gf_reduction r = 0; r < GF_REDUCTION_COUNT; r++)
        if (strcmp(given.redop, perf_redop_name(r)) == 0) plan->reduction = r;
    plan->root = (uint32_t)given.root;
    plan->type = type_given();
    plan->check = given.check != 0;
}

/* What does not go together. */
static int combination_check(void)
{
    bool model = out.model_path != NULL, tune = out.tune_path != NULL;
    if (on_device() && (model || tune || (strcmp(given.op, "allreduce") != 0) || given.redop_given))
        return perf_refuse("--device cuda times sums of an allreduce; leave --op, --redop, --model "
                           "and --tune out");
    if ((out.nccl_path != NULL) && !on_device()) return perf_refuse("--nccl needs --device cuda");
    if (given.memory_given && (on_device() || model || tune))
        return perf_refuse("--memory is for collectives in host memory; leave --device cuda, "
                           "--model and --tune out");
    if (out.bytes_min > out.bytes_max) return perf_refuse("--min-bytes is above --max-bytes");
    if (model && tune) return perf_refuse("--model and --tune: give one of them");
    if (!model && given.compute_given) return perf_refuse("--compute-ms needs --model FILE");
    if (given.redop_given && (strcmp(given.op, "allreduce") != 0))
        return perf_refuse("--redop is for allreduce");
    if (given.root_given && (strcmp(given.op, "broadcast") != 0))
        return perf_refuse("--root is for broadcast");
    if ((model || tune) && given.redop_given)
        return perf_refuse("--model and --tune time sums; leave --redop out");
    if (model && (given.size_given || given.op_given))
        return perf_refuse("--model: the model says operation and sizes; leave --op, --type, "
                           "--min-bytes, --max-bytes, "
                           "--factor and --warmup out");
    if (tune && (given.op_given || (given.algorithm != NULL)))
        return perf_refuse(
            "--tune times every algorithm of allreduce; leave --op and --algorithm out");
    if (tune && ((out.json_path != NULL) || (out.csv_path != NULL) || (out.busbw_min > 0)))
        return perf_refuse("--tune writes its own file; leave --json, --csv and --min-busbw out");
    return 0;
}

int perf_options_read(int argc, char **argv, struct perf_options *options_out)
{
    static const struct tool_args args = {
        .program = "gf-perf",
        .usage = "[options]",
        .about = "Times one collective, in place and out of place, size by size, on all ranks that "
                 "gf-run, Slurm or\n"
                 "mpirun started. Each rank rewrites its data before each sample; a sample's time "
                 "is that of the\n"
                 "slowest rank. Exit code 1: wrong data, a failure or timeout, rows missing, too "
                 "little bandwidth.\n"
                 "Letters, columns and the average line are those of nccl-tests.",
        .options = options,
        .option_count = OPTION_COUNT,
    };
    uint32_t operand_count;
    int read = tool_args_read(&args, argc, argv, NULL, &operand_count);
    if (read == 0) read = combination_check();
    if (read == 0) read = config_make(&out.config);
    if (read != 0) return read;
    plan_make(&out.plan);
    out.on_device = on_device();
    *options_out = out;
    return 0;
}
