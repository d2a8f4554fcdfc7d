/* gf-plan: what a model's training step would cost on a cluster, before there is one. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/plan/plan.h"
#include "drivers/gpu.h"
#include "tools/common/tool_args.h"
#include "tools/common/tool_data.h"
#include "tools/common/tool_file.h"
#include "tools/common/tool_output.h"

#define LIST_MAX 64u
/* of --all, where no other is named: it goes on where it was stopped */
#define ALL_CACHE "gf-plan.cache"

struct options {
    const char *cluster, *model, *gpus, *modes, *csv, *svg, *cache, *config, *algorithm, *fragment;
    const char *transformer, *keys, *set;
    bool paper, brief, all, advise, llama, show, progress;
    uint64_t fuse_bytes, slice_bytes, batch;
    double keep_share, compute_ms;
};

/* "1,8,64": how many, or -1. */
static int gpus_read(const char *text, uint32_t *gpus_out)
{
    int count = 0;
    for (const char *at = text;;) {
        char *end;
        unsigned long value = strtoul(at, &end, 10);
        if ((*at < '0') || (*at > '9') || (value < 1) || (value > GF_WORLD_MAX) ||
            ((*end != ',') && (*end != '\0')))
            return plan_refuse("--gpus %s: allowed are whole numbers from 1 to %u, with commas",
                               text, GF_WORLD_MAX);
        if (count == (int)LIST_MAX) return plan_refuse("--gpus: at most %u numbers", LIST_MAX);
        gpus_out[count++] = (uint32_t)value;
        if (*end == '\0') return count;
        at = end + 1;
    }
}

static int modes_read(const char *text, plan_mode *modes_out)
{
    int count = 0;
    for (const char *at = text;; at += strcspn(at, ",") + 1) {
        size_t length = strcspn(at, ",");
        int mode = 0;
        while ((mode < PLAN_MODE_COUNT) &&
               ((strlen(plan_mode_name((plan_mode)mode)) != length) ||
                (strncmp(at, plan_mode_name((plan_mode)mode), length) != 0)))
            mode++;
        for (int i = 0; i < count; i++)
            if ((int)modes_out[i] == mode) mode = PLAN_MODE_COUNT; /* twice */
        if (mode == PLAN_MODE_COUNT)
            return plan_refuse(
                "--modes %s: allowed are server, tree, ring, fp16, overlap, lazy, sparse and "
                "hierarchy, each once, with commas",
                text);
        modes_out[count++] = (plan_mode)mode;
        if (at[length] == '\0') return count;
    }
}

static int cluster_read(const struct options *options, struct tool_cluster *cluster)
{
    char error[GF_CONFIG_ERROR_BYTES];
    if (tool_cluster_load(options->cluster, cluster, error) < 0) return plan_refuse("%s", error);
    if ((options->set != NULL) && (tool_cluster_set(cluster, options->set, "--set", error) < 0)) {
        (void)plan_refuse("%s", error);
        exit(TOOL_EXIT_USAGE); /* a wrong command line, and nothing was begun */
    }
    return (tool_cluster_check(cluster, options->cluster, error) < 0) ? plan_refuse("%s", error)
                                                                      : 0;
}

static int choice_read(const struct options *options, struct gf_config *config,
                       struct plan_choice *choice)
{
    char error[GF_CONFIG_ERROR_BYTES];
    *choice = (struct plan_choice){.fuse_bytes = options->fuse_bytes,
                                   .slice_bytes = options->slice_bytes,
                                   .keep_share = options->keep_share,
                                   .batch = (uint32_t)options->batch,
                                   .compute_s = options->compute_ms * 1e-3};
    if ((options->config != NULL) && (gf_config_load(options->config, config, error) < 0))
        return plan_refuse("%s", error);
    if (options->algorithm != NULL) {
        if (gf_config_set(config, "exchange.algorithm", options->algorithm, "--algorithm", error) !=
            GF_OK) {
            (void)plan_refuse("%s", error);
            exit(TOOL_EXIT_USAGE);
        }
        choice->algorithm = config->exchange.algorithm;
        choice->is_auto = choice->algorithm == GF_ALGORITHM_AUTO;
    }
    if (options->config == NULL) return 0;
    choice->config = config;
    return 0;
}

/* What rows there are, after a failure too; nothing where no such file was asked for. */
static int table_write(const struct plan_table *table, const char *path,
                       void (*write)(const struct plan_table *table, FILE *out))
{
    struct tool_file file;
    if (path == NULL) return 0;
    if (tool_file_begin(&file, path) == 0) {
        write(table, file.stream);
        if (tool_file_end(&file) == 0) return 0;
    }
    return plan_refuse("%s", file.error);
}

static int table_run(struct plan_table *table, const struct plan_choice *choice,
                     const uint32_t *gpus, int gpu_count, const plan_mode *modes, int mode_count,
                     const struct plan_cache *cache, const struct options *options)
{
    struct plan_progress progress;
    plan_progress_begin(&progress, isatty(STDERR_FILENO) == 1, options->progress);
    for (int g = 0; g < gpu_count; g++) plan_progress_expect(&progress, gpus[g], mode_count);
    plan_table_head(table, choice, stdout);
    for (int g = 0; g < gpu_count; g++)
        for (int m = 0; m < mode_count; m++) {
            struct plan_row *row = &table->rows[table->row_count];
            if (plan_cache_run(cache, table->model, table->cluster, modes[m], gpus[g], choice,
                               row) != 0)
                return -1;
            table->row_count++;
            plan_progress_row(&progress, gpus[g]);
            plan_table_row(table, row, stdout);
            if (fflush(stdout) != 0) return -1; /* nobody reads what may take an hour */
        }
    plan_table_foot(table, stdout);
    return 0;
}

static int tables_run(const struct options *options, const struct tool_cluster *cluster,
                      const struct plan_model *model, const struct plan_choice *choice,
                      const struct plan_cache *cache)
{
    static struct plan_row rows[LIST_MAX * PLAN_MODE_COUNT];
    uint32_t gpus[LIST_MAX];
    plan_mode modes[PLAN_MODE_COUNT];
    struct plan_table table = {.model = model, .cluster = cluster, .rows = rows};
    struct tool_file file;
    const char *all_gpus = options->all ? "1,2,4,8,16,32,64,128,256,512,1024" : "1,8,64";
    const char *all_modes =
        options->config ? "overlap" : "server,tree,ring,fp16,overlap,lazy,sparse,hierarchy";
    int gpu_count = gpus_read(options->gpus ? options->gpus : all_gpus, gpus);
    int mode_count = modes_read(options->modes ? options->modes : all_modes, modes);
    int result;
    if ((gpu_count < 0) || (mode_count < 0)) return -1;
    if ((tool_file_check(&file, options->csv) != 0) || (tool_file_check(&file, options->svg) != 0))
        return plan_refuse("%s", file.error);
    result = table_run(&table, choice, gpus, gpu_count, modes, mode_count, cache, options);
    if (table_write(&table, options->csv, plan_csv) != 0) result = -1;
    if (table_write(&table, options->svg, plan_svg) != 0) result = -1;
    return result;
}

/* What is assumed because nobody said it, on stderr. */
static void assumptions_tell(const struct tool_cluster *cluster, const struct plan_model *model,
                             const struct plan_choice *choice, uint32_t most)
{
    const uint64_t there = (uint64_t)cluster->nodes * cluster->gpus_per_node;
    if ((choice->batch == 0) && (plan_batch(model, cluster, choice) == 1))
        (void)fprintf(stderr,
                      "gf-plan: neither --batch nor cluster %s says how many samples of %s a GPU "
                      "takes: 1\n",
                      cluster->name, model->name);
    if (most > there)
        (void)fprintf(stderr,
                      "gf-plan: %u GPUs are more than the %u x %u of cluster %s: as if it had more "
                      "nodes\n",
                      most, cluster->nodes, cluster->gpus_per_node, cluster->name);
}

static uint32_t most_of(const uint32_t *numbers, int count)
{
    uint32_t most = 0;
    for (int i = 0; i < count; i++)
        if (numbers[i] > most) most = numbers[i];
    return most;
}

static int plan_run(const struct options *options)
{
    static struct gf_config config;
    struct tool_cluster cluster;
    struct plan_model model;
    struct plan_choice choice;
    struct plan_cache cache = {.path = options->cache};
    uint32_t gpus[LIST_MAX];
    if (options->all && (cache.path == NULL)) cache.path = ALL_CACHE;
    if (options->paper) return plan_paper(options->brief, &cache);
    if ((choice_read(options, &config, &choice) != 0) || (cluster_read(options, &cluster) != 0))
        return -1;
    if (options->show) {
        tool_cluster_print(&cluster, stdout);
        return 0;
    }
    if (gf_gpu_is_device(config.device.driver) && !cluster.gpu_direct &&
        !(cluster.host_bandwidth > 0))
        return plan_refuse(
            "%s: device.driver = \"cuda\", but cluster %s says nothing of memory of GPUs: set "
            "host_bandwidth or gpu_direct there, or by --set",
            options->config, cluster.name);
    if (plan_model_load(options->model, &model) != 0) return -1;
    assumptions_tell(&cluster, &model, &choice,
                     (options->gpus != NULL) ? most_of(gpus, gpus_read(options->gpus, gpus)) : 0);
    if (!options->advise) return tables_run(options, &cluster, &model, &choice, &cache);
    return plan_advise(&model, &cluster,
                       options->gpus && (gpus_read(options->gpus, gpus) == 1)
                           ? gpus[0]
                           : cluster.nodes * cluster.gpus_per_node,
                       &choice, &cache, options->fragment, options->progress);
}

/* What can be known to be wrong before a file is read. */
static int options_check(const struct options *options)
{
    uint32_t gpus[LIST_MAX];
    plan_mode modes[PLAN_MODE_COUNT];
    int count = (options->gpus != NULL) ? gpus_read(options->gpus, gpus) : 1;
    if ((count < 0) || ((options->modes != NULL) && (modes_read(options->modes, modes) < 0)))
        return -1;
    if (options->advise && (count != 1))
        return plan_refuse("--advise is for one number of --gpus, not for %s", options->gpus);
    if (options->paper + options->all + options->advise > 1)
        return plan_refuse("--paper, --all and --advise exclude each other");
    if (options->config && (options->modes || (options->fuse_bytes > 0) ||
                            (options->slice_bytes > 0) || (options->keep_share > 0)))
        return plan_refuse(
            "--fuse, --slice and --keep are for --modes: --config %s says its own fuse_bytes, "
            "slice_bytes and keep_share",
            options->config);
    if (options->paper &&
        (options->gpus || options->modes || options->csv || options->svg || options->config ||
         options->set || options->batch || options->fuse_bytes || options->slice_bytes ||
         (options->keep_share > 0) || options->algorithm || (options->compute_ms > 0) ||
         options->show || options->cluster || options->model))
        return plan_refuse("--paper stands alone: its set-ups are the published ones");
    if (options->advise && (options->modes || options->csv || options->svg || options->config ||
                            options->algorithm || (options->keep_share > 0)))
        return plan_refuse("--advise tries what there is and prints no table: without --modes, "
                           "--config, --algorithm, "
                           "--keep, --csv and --svg");
    if (options->llama && (options->transformer == NULL))
        return plan_refuse("--llama goes with --transformer");
    if (options->brief && !options->paper) return plan_refuse("--brief goes with --paper");
    if ((options->fragment != NULL) && !options->advise)
        return plan_refuse("--write goes with --advise");
    return 0;
}

static int program(int argc, char **argv)
{
    static struct options options;
    static const struct tool_option list[] = {
        {.name = "cluster",
         .kind = TOOL_TEXT,
         .value_out = &options.cluster,
         .value_name = "FILE",
         .help = "nodes, GPUs, bandwidths, rates, also by name (h200); gradientflow"},
        {.name = "model",
         .kind = TOOL_TEXT,
         .value_out = &options.model,
         .value_name = "FILE",
         .help = "tensors and FLOPs, also by name (resnet50); alexnet"},
        {.name = "set",
         .kind = TOOL_TEXT,
         .value_out = &options.set,
         .value_name = "TEXT",
         .help = "keys over the cluster's file: \"rails = true; nics_per_node = 8\""},
        {.name = "progress",
         .kind = TOOL_FLAG,
         .value_out = &options.progress,
         .help =
             "say on stderr, row by row, how far a table or advice is; else where it takes long"},
        {.name = "show",
         .kind = TOOL_FLAG,
         .value_out = &options.show,
         .help = "print the cluster as a file, and end"},
        {.name = "keys",
         .kind = TOOL_TEXT,
         .value_out = &options.keys,
         .value_name = "FILE",
         .allowed = "cluster|model",
         .help = "print the keys of such a file, and end"},
        {.name = "transformer",
         .kind = TOOL_TEXT,
         .value_out = &options.transformer,
         .value_name = "L,W,H,V[,S]",
         .help = "print a model file: layers, width, heads, vocabulary, sequence length (1024)"},
        {.name = "llama",
         .kind = TOOL_FLAG,
         .value_out = &options.llama,
         .help = "with --transformer: Llama's form, not GPT-2's"},
        {.name = "gpus",
         .kind = TOOL_TEXT,
         .value_out = &options.gpus,
         .value_name = "N,N,..",
         .help = "how many; 1,8,64"},
        {.name = "modes",
         .kind = TOOL_TEXT,
         .value_out = &options.modes,
         .value_name = "M,M,..",
         .help = "of server, tree, ring, fp16, overlap, lazy, sparse, hierarchy; all these"},
        {.name = "config",
         .kind = TOOL_TEXT,
         .value_out = &options.config,
         .value_name = "FILE",
         .help = "exchange as this configuration says, in place of the modes"},
        {.name = "paper",
         .kind = TOOL_FLAG,
         .value_out = &options.paper,
         .help = "the published results beside their predictions, and what those depend on"},
        {.name = "brief",
         .kind = TOOL_FLAG,
         .value_out = &options.brief,
         .help = "with --paper: not what they depend on, which takes minutes"},
        {.name = "all",
         .kind = TOOL_FLAG,
         .value_out = &options.all,
         .help = "1 to 1024 GPUs; may take an hour; keeps rows in gf-plan.cache"},
        {.name = "advise",
         .kind = TOOL_FLAG,
         .value_out = &options.advise,
         .help = "the best configuration for the cluster, and what else to know"},
        {.name = "write",
         .kind = TOOL_TEXT,
         .value_out = &options.fragment,
         .value_name = "FILE",
         .help = "with --advise: the configuration as a file"},
        {.name = "csv",
         .kind = TOOL_TEXT,
         .value_out = &options.csv,
         .value_name = "FILE",
         .help = "rows as CSV"},
        {.name = "svg",
         .kind = TOOL_TEXT,
         .value_out = &options.svg,
         .value_name = "FILE",
         .help = "speed-ups as a picture"},
        {.name = "cache",
         .kind = TOOL_TEXT,
         .value_out = &options.cache,
         .value_name = "FILE",
         .help = "keep rows there, take those that are"},
        {.name = "fuse",
         .kind = TOOL_SIZE,
         .value_out = &options.fuse_bytes,
         .value_name = "SIZE",
         .low = 1,
         .high = UINT64_C(1) << 30,
         .help = "fused buffers of lazy and later; 16M"},
        {.name = "slice",
         .kind = TOOL_SIZE,
         .value_out = &options.slice_bytes,
         .value_name = "SIZE",
         .low = 4096,
         .high = UINT64_C(16) << 20,
         .help = "messages at most; 256K"},
        {.name = "keep",
         .kind = TOOL_REAL,
         .value_out = &options.keep_share,
         .value_name = "SHARE",
         .low_real = 0.001,
         .high_real = 1.0,
         .help = "chunks that sparse steps send; 0.15"},
        {.name = "algorithm",
         .kind = TOOL_TEXT,
         .value_out = &options.algorithm,
         .value_name = "NAME",
         .help = "exchange.algorithm, in place of the mode's"},
        {.name = "batch",
         .kind = TOOL_NUMBER,
         .value_out = &options.batch,
         .value_name = "N",
         .low = 1,
         .high = 1000000,
         .help = "images a GPU; the cluster's"},
        {.name = "compute-ms",
         .kind = TOOL_REAL,
         .value_out = &options.compute_ms,
         .value_name = "MS",
         .low_real = 0.001,
         .high_real = 1e7,
         .help = "a step's forward and backward; from the cluster's rate"},
    };
    static const struct tool_args args = {
        .program = "gf-plan",
        .usage = "[--cluster FILE] [--model FILE] [options]",
        .about = "Runs the library's step on a simulated cluster in virtual time: step time, "
                 "images/s, speed-up, efficiency\n"
                 "and exposed communication.",
        .options = list,
        .option_count = sizeof list / sizeof list[0],
    };
    uint32_t operand_count;
    options = (struct options){0};
    int read = tool_args_read(&args, argc, argv, NULL, &operand_count);
    int result;
    if (read != 0) return tool_args_exit(read);
    if (options_check(&options) != 0) return TOOL_EXIT_USAGE;
    options.cluster = (options.cluster != NULL) ? tool_data_named("clusters", options.cluster)
                                                : tool_data("clusters/gradientflow.cfg");
    options.model = (options.model != NULL) ? tool_data_named("models", options.model)
                                            : tool_data("models/alexnet.cfg");
    if (options.keys != NULL) {
        if (strcmp(options.keys, "model") == 0)
            tool_model_keys(stdout);
        else
            tool_cluster_keys(stdout);
        return EXIT_SUCCESS;
    }
    if (options.transformer != NULL)
        return (plan_transformer(options.transformer, options.llama, stdout) == 0)
                   ? EXIT_SUCCESS
                   : TOOL_EXIT_USAGE;
    result = plan_run(&options);
    return (result == 0) ? EXIT_SUCCESS : EXIT_FAILURE;
}

TOOL_MAIN("gf-plan", program)
