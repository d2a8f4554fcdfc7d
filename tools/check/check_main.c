/* gf-check: what a configuration file means, and how much memory it asks for. */
#include <stdio.h>
#include <stdlib.h>

#include "tools/check/check_preflight.h"
#include "tools/common/tool_args.h"
#include "tools/common/tool_model.h"
#include "tools/common/tool_output.h"
#include "tools/common/tool_tensors.h"

static int footprint_print(const struct gf_config *config, uint32_t world,
                           const struct gf_tensor *tensors, uint32_t tensor_count)
{
    struct gf_config here = *config;
    struct gf_footprint need;
    uint64_t elem_count = 0;
    gf_status status;
    check_world_assume(&here, world);
    here.job.ignore_environment = true; /* the launcher's world is not asked about */
    here.log = gf_log_stderr;
    here.log_user = (void *)(uintptr_t) "gf-check";
    status = gf_measure(&here, tensors, tensor_count, &need);
    if (status != GF_OK) {
        (void)fprintf(stderr, "gf-check: the footprint cannot be told: %s\n",
                      gf_status_name(status));
        return EXIT_FAILURE;
    }
    for (uint32_t i = 0; i < tensor_count; i++) elem_count += tensors[i].elem_count;
    (void)printf("tensors: %u, %llu elements\n", tensor_count, (unsigned long long)elem_count);
    (void)printf("world: %u%s\n", here.job.world,
                 ((world == 0) && (config->job.world == 0)) ? " (assumed; --world N for another)"
                                                            : "");
    if (here.job.world_max > here.job.world)
        (void)printf("world_max: %u, memory is for these\n", here.job.world_max);
    (void)printf("control_bytes: %llu\n", (unsigned long long)need.control_bytes);
    (void)printf("exchange_bytes: %llu\n", (unsigned long long)need.exchange_bytes);
    (void)printf("device_bytes: %llu\n", (unsigned long long)need.device_bytes);
    return EXIT_SUCCESS;
}

static struct gf_tensor tensors[GF_TENSORS_MAX]; /* of the file that is looked at */
static char names[GF_TENSORS_MAX][48];

struct request {
    const char *tensors_path;
    uint64_t world, local_count, deadline_s;
    bool preflight, json;
};

static int preflight(const struct gf_config *config, const struct gf_tensor *tensors,
                     uint32_t tensor_count, const struct request *request)
{
    static struct check_job job;
    int refused =
        check_job_fill(config, tensors, tensor_count, (uint32_t)request->world,
                       (uint32_t)request->local_count, request->deadline_s * 1000000000u, &job);
    return (refused != 0) ? refused : check_preflight(&job, request->json);
}

/* A file for gf-plan and others: what it is, in a line; false where it is none. */
static bool other_tell(const char *path)
{
    static struct tool_flops flops[GF_TENSORS_MAX];
    static char error[GF_CONFIG_ERROR_BYTES];
    struct tool_cluster cluster;
    uint64_t elem_count = 0;
    uint64_t forward = 0;
    uint64_t backward = 0;
    struct tool_model model = {
        .tensors = tensors, .names = names, .flops = flops, .tensor_max = GF_TENSORS_MAX};
    if (tool_model_load(path, &model, error) == GF_OK) {
        for (uint32_t i = 0; i < model.tensor_count; i++) {
            elem_count += tensors[i].elem_count;
            forward += flops[i].forward;
            backward += flops[i].backward;
        }
        (void)printf("%s: a model, no configuration: %u tensors, %llu elements, %.3f GFLOPs "
                     "forward, %.3f backward\n"
                     "It goes to --tensors of gf-check, --model of gf-perf and gf-plan.\n",
                     path, model.tensor_count, (unsigned long long)elem_count,
                     (double)forward * 1e-9, (double)backward * 1e-9);
        return true;
    }
    if (tool_cluster_load(path, &cluster, error) != GF_OK) return false;
    (void)printf("%s: a cluster to plan for, no configuration: %s%s%u nodes, %u GPUs each, %.3g "
                 "GB/s of a node's "
                 "port, models with a rate: %u\nIt goes to --cluster of gf-plan.\n",
                 path, cluster.name, (cluster.name[0] != '\0') ? ", " : "", cluster.nodes,
                 cluster.gpus_per_node, cluster.network_bandwidth * 1e-9, cluster.model_count);
    return true;
}

static int file_check(const char *path, const struct request *request)
{
    const char *tensors_path = request->tensors_path;
    static struct gf_config config;
    static char error[GF_CONFIG_ERROR_BYTES];
    struct tool_model model = {.tensors = tensors, .names = names, .tensor_max = GF_TENSORS_MAX};
    gf_status status = gf_config_load(path, &config, error);
    if ((status != GF_OK) && !request->preflight && (tensors_path == NULL) && other_tell(path))
        return EXIT_SUCCESS;
    if ((status == GF_OK) && (tensors_path != NULL))
        status = tool_model_load(tensors_path, &model, error);
    if (status != GF_OK) {
        (void)fprintf(stderr, "gf-check: %s\n", error);
        return EXIT_FAILURE;
    }
    const struct gf_tensor *table = (tensors_path != NULL) ? tensors : tool_tensors;
    uint32_t tensor_count = (tensors_path != NULL) ? model.tensor_count : TOOL_TENSOR_COUNT;
    if (request->preflight) return preflight(&config, table, tensor_count, request);
    if (check_name_is_open(&config))
        (void)fprintf(
            stderr,
            "gf-check: rendezvous.address %s: the host is not known here; ranks ask again "
            "until rendezvous.join_timeout\n",
            config.rendezvous.address);
    gf_config_print(&config, path, stdout);
    (void)printf("\nhash: 0x%016llx\n", (unsigned long long)gf_config_hash(&config));
    return footprint_print(&config, (uint32_t)request->world, table, tensor_count);
}

/* What does not go together; NULL where all does. */
static const char *contradiction(const struct request *request, bool keys, uint32_t operand_count)
{
    bool more = request->preflight || request->json || (request->world != 0) ||
                (request->tensors_path != NULL);
    if (keys && (more || (operand_count != 0))) return "--keys stands alone";
    if (!keys && (operand_count == 0)) return "a FILE is missing";
    if (!request->preflight &&
        (request->json || (request->local_count != 0) || (request->deadline_s != 0)))
        return "--json, --local and --deadline belong to --preflight";
    return NULL;
}

static int program(int argc, char **argv)
{
    static bool keys;
    static struct request request;
    static const struct tool_option options[] = {
        {.name = "tensors",
         .kind = TOOL_TEXT,
         .value_out = &request.tensors_path,
         .value_name = "FILE",
         .help = "measure for this tensor table; else for the demo's"},
        {.name = "world",
         .kind = TOOL_NUMBER,
         .value_out = &request.world,
         .value_name = "N",
         .low = 1,
         .high = GF_WORLD_MAX,
         .help = "measure for so many ranks"},
        {.name = "preflight",
         .kind = TOOL_FLAG,
         .value_out = &request.preflight,
         .help = "is this node fit for it? under a launcher: are all ranks?"},
        {.name = "json",
         .kind = TOOL_FLAG,
         .value_out = &request.json,
         .help = "preflight: one line of JSON a rank"},
        {.name = "local",
         .kind = TOOL_NUMBER,
         .value_out = &request.local_count,
         .value_name = "N",
         .low = 1,
         .high = GF_WORLD_MAX,
         .help = "preflight of a node by itself: ranks on it"},
        {.name = "deadline",
         .kind = TOOL_NUMBER,
         .value_out = &request.deadline_s,
         .value_name = "SECONDS",
         .low = 1,
         .high = 3600,
         .help = "preflight: how long to wait for other ranks (10)"},
        {.name = "keys",
         .kind = TOOL_FLAG,
         .value_out = &keys,
         .help = "all keys as a Markdown table"},
    };
    static const struct tool_args args = {
        .program = "gf-check",
        .usage = "FILE [--tensors FILE] [--world N] [--preflight ..] | --keys",
        .about = "Prints what a configuration file means with all defaults, its hash (equal on "
                 "ranks that fit\n"
                 "together) and the memory that gf_open() will ask for. With --preflight it looks "
                 "whether this node,\n"
                 "or started by srun, mpirun or gf-run all ranks of the job, can run with it: exit "
                 "code 0 if they can\n"
                 "(warnings included), 1 if something fails, 2 for a wrong command line.",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
        .operands_max = 1,
    };
    const char *path = NULL;
    const char *wrong;
    uint32_t operand_count;
    int read = tool_args_read(&args, argc, argv, &path, &operand_count);
    int result = EXIT_SUCCESS;
    if (read != 0) return tool_args_exit(read);
    if ((wrong = contradiction(&request, keys, operand_count)) != NULL) {
        (void)fprintf(stderr, "gf-check: %s\nusage: gf-check %s\n", wrong, args.usage);
        return TOOL_EXIT_USAGE;
    }
    if (request.deadline_s == 0) request.deadline_s = 10;
    if (keys)
        gf_config_print_table(stdout);
    else
        result = file_check(path, &request);
    return result;
}

TOOL_MAIN("gf-check", program)
