/* Clusters to plan for: text to struct tool_cluster, as strictly as configurations. */
#include <stdlib.h>
#include <string.h>

#include "tools/common/tool_model.h"
#include "tools/common/tool_fields.h"

#define CLUSTER_FILE_BYTES_MAX (1u << 20)
#define NODES_MAX 8192.0

static gf_status models_load(const struct tool_reader *reader, const config_setting_t *node,
                             void *struct_out);

#define COUNT(member, from, to, ...)                                                         \
    {                                                                                        \
        TOOL_FIELD(tool_cluster, member), .kind = TOOL_FIELD_COUNT, .low = from, .high = to, \
                                          __VA_ARGS__                                        \
    }
#define REAL(member, from, to, ...)                                                         \
    {                                                                                       \
        TOOL_FIELD(tool_cluster, member), .kind = TOOL_FIELD_REAL, .low = from, .high = to, \
                                          __VA_ARGS__                                       \
    }
static const struct tool_field fields[] = {
    {TOOL_FIELD(tool_cluster, name), .kind = TOOL_FIELD_TEXT, .high = 47,
     .help = "what tables call it"},
    COUNT(nodes, 1, NODES_MAX, .needed = true, .help = "how many there are"),
    COUNT(gpus_per_node, 1, 64, .needed = true, .help = "one rank each"),
    COUNT(batch, 1, 1e6, .needed = true,
          .help = "samples a GPU and step, where the model says none"),
    REAL(network_bandwidth, 1e3, 1e15, .needed = true, .unit = "bytes/s",
         .help = "of a network card, in and out apart"),
    REAL(network_latency, 0, 10, .needed = true, .unit = "s",
         .help = "of a message beside its bytes"),
    COUNT(nics_per_node, 1, 64,
          .help = "network cards, shared evenly by the GPUs of a node in their order; else 1"),
    {TOOL_FIELD(tool_cluster, rails), .kind = TOOL_FIELD_BOOL,
     .help = "the cards of one index in all nodes share a leaf switch, other indices are reached "
             "over the upper tier; "
             "else a node's cards share one"},
    COUNT(leaf_nodes, 1, NODES_MAX,
          .help = "nodes of a leaf switch; else all, and only rails cross the upper tier"),
    REAL(oversubscription, 1, 1000,
         .help = "a leaf's bandwidth to its nodes over that to the upper tier; else 1"),
    REAL(node_bandwidth, 1e3, 1e15, .unit = "bytes/s",
         .help = "of a GPU's port to the others of its node: NVLink or PCIe, in and out apart"),
    REAL(node_pair_bandwidth, 1e3, 1e15, .unit = "bytes/s",
         .help = "between two GPUs of a node where links join them in pairs; left out where a "
                 "switch does"),
    REAL(node_latency, 0, 10, .unit = "s", .help = "of a message or flag in a node"),
    REAL(message_cost, 0, 10, .unit = "s",
         .help = "each message keeps its card so long beside its bytes"),
    REAL(op_bandwidth, 1e3, 1e15, .needed = true, .unit = "bytes/s",
         .help = "of element ops, read and written"),
    REAL(op_cost, 0, 10, .unit = "s", .help = "and so long each: a kernel launch"),
    REAL(poll_time, 0, 10, .unit = "s",
         .help = "until the CPU sees that a GPU has ended something: a poll each phase"),
    {TOOL_FIELD(tool_cluster, device_ops), .kind = TOOL_FIELD_BOOL,
     .help =
         "GPUs compute them, a launch for many slices of the pool; else hosts, a slice at a time"},
    REAL(host_bandwidth, 1e3, 1e15, .unit = "bytes/s",
         .help = "between a GPU's memory and its host's, each way, and of what a core adds there: "
                 "gradients lie on "
                 "GPUs; left out, they lie where a node's ranks all reach them"),
    {TOOL_FIELD(tool_cluster, gpu_direct), .kind = TOOL_FIELD_BOOL,
     .help = "they lie on GPUs, and network cards read them there"},
    REAL(gpu_flops, 1, 1e18, .unit = "FLOP/s", .help = "sustained, for models that are not listed"),
    REAL(gpu_peak_flops, 1, 1e18, .unit = "FLOP/s", .help = "the peak that MFU is a share of"),
    REAL(gpu_memory, 1e6, 1e15, .unit = "bytes",
         .help = "what does not fit is refused; left out: all fits"),
    REAL(compute_spread, 0, 0.5,
         .help = "normal deviation of a rank's compute time from step to step, as a share of it"),
    REAL(straggler_scale, 0, 100,
         .help = "s: a rank computes 1 + s (X - 1) times as long, X of a Pareto distribution"),
    REAL(straggler_tail, 1.05, 100,
         .help = "a: P(X > x) = x^-a from x = 1 on; the smaller, the heavier"),
    {.key = "models",
     .kind = TOOL_FIELD_OTHER,
     .load = models_load,
     .help = "models whose rate is known",
     .allowed = "a list ( { .. }, .. ) of at most 16 groups"},
    {.key = NULL},
};

#define MODEL(member) TOOL_FIELD(tool_cluster_model, member)
static const struct tool_field model_fields[] = {
    {MODEL(name), .kind = TOOL_FIELD_TEXT, .high = 47, .needed = true,
     .help = "the model file's, without folder and .cfg"},
    {MODEL(images_per_second), .kind = TOOL_FIELD_REAL, .low = 1e-6, .high = 1e9, .needed = true,
     .unit = "1/s", .help = "samples that one GPU trains on, nothing exchanged"},
    {MODEL(batch), .kind = TOOL_FIELD_COUNT, .low = 1, .high = 1e6,
     .help = "samples a GPU and step"},
    {.key = NULL},
};
_Static_assert(sizeof fields / sizeof fields[0] <= TOOL_FIELDS_MAX, "seen[] holds a flag a field");

static gf_status models_load(const struct tool_reader *reader, const config_setting_t *node,
                             void *struct_out)
{
    struct tool_cluster *cluster = struct_out;
    uint32_t count = (uint32_t)config_setting_length(node);
    if ((config_setting_is_list(node) != CONFIG_TRUE) || (count > TOOL_CLUSTER_MODELS_MAX))
        return tool_reader_refuse(reader, node,
                                  "models must be a list ( { .. }, .. ) of at most %u",
                                  TOOL_CLUSTER_MODELS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const config_setting_t *group = config_setting_get_elem(node, i);
        bool seen[TOOL_FIELDS_MAX] = {false};
        gf_status status;
        cluster->models[i] = (struct tool_cluster_model){.batch = 0};
        if (config_setting_is_group(group) != CONFIG_TRUE)
            return tool_reader_refuse(
                reader, group,
                "a model must be a group { name = \"..\"; images_per_second = ..; }");
        if ((status = tool_fields_load(reader, group, model_fields, seen, &cluster->models[i])) !=
            GF_OK)
            return status;
        if ((status = tool_fields_missing(reader, group, model_fields, seen)) != GF_OK)
            return status;
    }
    cluster->model_count = count;
    return GF_OK;
}

gf_status tool_cluster_check(const struct tool_cluster *c, const char *origin, char *error_out)
{
    if ((uint64_t)c->nodes * c->gpus_per_node > GF_WORLD_MAX)
        return gf_source_refuse(error_out, origin, 0, "%u nodes of %u GPUs; allowed are %u GPUs",
                                c->nodes, c->gpus_per_node, GF_WORLD_MAX);
    if ((c->gpus_per_node > 1) && (c->node_bandwidth <= 0))
        return gf_source_refuse(error_out, origin, 0,
                                "node_bandwidth is missing: nodes have %u GPUs", c->gpus_per_node);
    if ((c->nics_per_node > 1) && (c->gpus_per_node % c->nics_per_node != 0))
        return gf_source_refuse(error_out, origin, 0,
                                "nics_per_node = %u must divide gpus_per_node = %u",
                                c->nics_per_node, c->gpus_per_node);
    if (c->rails && (c->nics_per_node < 2))
        return gf_source_refuse(error_out, origin, 0,
                                "rails are for several network cards: nics_per_node is %u",
                                (c->nics_per_node > 0) ? c->nics_per_node : 1);
    if ((c->oversubscription > 1) && !c->rails && (c->leaf_nodes == 0))
        return gf_source_refuse(error_out, origin, 0,
                                "leaf_nodes is missing: oversubscription is of what leaves a leaf");
    if ((c->straggler_scale > 0) && (c->straggler_tail <= 0))
        return gf_source_refuse(error_out, origin, 0,
                                "straggler_tail is missing: straggler_scale is there");
    return GF_OK;
}

gf_status tool_cluster_load(const char *path, struct tool_cluster *cluster_out, char *error_out)
{
    struct tool_reader reader = {
        .origin = path, .page = "gf-cluster.cfg(5)", .error_out = error_out};
    struct tool_cluster cluster = {.nodes = 0};
    const config_setting_t *root;
    const config_setting_t *group;
    bool seen[TOOL_FIELDS_MAX] = {false};
    config_t tree;
    gf_status status = gf_tree_read(path, CLUSTER_FILE_BYTES_MAX, &tree, error_out);
    if (status != GF_OK) return status;
    root = config_root_setting(&tree);
    group = config_setting_get_member(root, "cluster");
    if ((group == NULL) || (config_setting_length(root) != 1) ||
        (config_setting_is_group(group) != CONFIG_TRUE))
        status = tool_reader_refuse(&reader, group, "must hold cluster = { .. }; and nothing else");
    else
        status = tool_fields_load(&reader, group, fields, seen, &cluster);
    if (status == GF_OK) status = tool_fields_missing(&reader, group, fields, seen);
    config_destroy(&tree);
    if (status == GF_OK) status = tool_cluster_check(&cluster, path, error_out);
    if (status == GF_OK) *cluster_out = cluster;
    return status;
}

gf_status tool_cluster_set(struct tool_cluster *cluster, const char *text, const char *origin,
                           char *error_out)
{
    struct tool_reader reader = {
        .origin = origin, .page = "gf-cluster.cfg(5)", .error_out = error_out};
    struct tool_cluster changed = *cluster;
    bool seen[TOOL_FIELDS_MAX] = {false};
    config_t tree;
    gf_status status = gf_source_check(text, strlen(text), origin, error_out);
    if (status != GF_OK) return status;
    config_init(&tree);
    if (config_read_string(&tree, text) != CONFIG_TRUE)
        status =
            gf_source_refuse(error_out, origin, 0, "\"%.60s\" is not \"key = value; ..\"", text);
    else
        status = tool_fields_load(&reader, config_root_setting(&tree), fields, seen, &changed);
    config_destroy(&tree);
    if (status == GF_OK) status = tool_cluster_check(&changed, origin, error_out);
    if (status == GF_OK) *cluster = changed;
    return status;
}

void tool_cluster_print(const struct tool_cluster *cluster, FILE *out)
{
    (void)fputs("cluster = {\n", out);
    tool_fields_print(fields, cluster, out);
    (void)fputs("    models = (\n", out);
    for (uint32_t i = 0; i < cluster->model_count; i++) {
        (void)fputs((i > 0) ? "    }, {\n" : "    {\n", out);
        tool_fields_print(model_fields, &cluster->models[i], out);
    }
    (void)fputs((cluster->model_count > 0) ? "    } );\n};\n" : "    );\n};\n", out);
}

void tool_cluster_keys(FILE *out)
{
    (void)fputs(TOOL_FIELDS_TABLE_HEAD, out);
    tool_fields_table(fields, "", out);
    tool_fields_table(model_fields, "models.", out);
}
