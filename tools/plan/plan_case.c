/* From a model, a cluster and a mode to a simulation, and from its times to a row. */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/tool_output.h"
#include "tools/plan/plan.h"

int plan_refuse(const char *format, ...)
{
    va_list arguments;
    (void)fprintf(stderr, "gf-plan: ");
    va_start(arguments, format);
    (void)vfprintf(stderr, format, arguments);
    va_end(arguments);
    (void)fprintf(stderr, "\n");
    return -1;
}

const char *plan_mode_name(plan_mode mode)
{
    static const char *const names[PLAN_MODE_COUNT] = {"server",  "tree", "ring",   "fp16",
                                                       "overlap", "lazy", "sparse", "hierarchy"};
    return names[mode];
}

/* It stands in comments of one line, and on a terminal. */
static void model_name(const char *path, char *name_out, size_t name_bytes)
{
    const char *base = strrchr(path, '/');
    tool_plain_text((base != NULL) ? base + 1 : path, name_out, name_bytes);
    if (strlen(name_out) > 4 && (strcmp(name_out + strlen(name_out) - 4, ".cfg") == 0))
        name_out[strlen(name_out) - 4] = '\0';
}

int plan_model_load(const char *path, struct plan_model *model_out)
{
    char error[GF_CONFIG_ERROR_BYTES];
    struct plan_model model = {.tensors = calloc(GF_TENSORS_MAX, sizeof *model.tensors),
                               .flops = calloc(GF_TENSORS_MAX, sizeof *model.flops),
                               .names = calloc(GF_TENSORS_MAX, sizeof *model.names)};
    if ((model.tensors == NULL) || (model.flops == NULL) || (model.names == NULL))
        return plan_refuse("no memory");
    struct tool_model file = {.tensors = model.tensors,
                              .names = model.names,
                              .flops = model.flops,
                              .tensor_max = GF_TENSORS_MAX};
    if (tool_model_load(path, &file, error) < 0) return plan_refuse("%s", error);
    model.tensor_count = file.tensor_count;
    model.sample = file.sample;
    model_name(path, model.name, sizeof model.name);
    for (uint32_t i = 0; i < model.tensor_count; i++) {
        model.elem_count += model.tensors[i].elem_count;
        model.forward_flops += (double)model.flops[i].forward;
        model.backward_flops += (double)model.flops[i].backward;
    }
    if (model.backward_flops <= 0)
        return plan_refuse("%s: the model has no flops: its tensors have no schedule", path);
    *model_out = model;
    return 0;
}

static int model_find(const struct plan_model *model, const struct tool_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->model_count; i++)
        if (strcmp(cluster->models[i].name, model->name) == 0) return (int)i;
    return -1;
}

uint32_t plan_batch(const struct plan_model *model, const struct tool_cluster *cluster,
                    const struct plan_choice *choice)
{
    int found = model_find(model, cluster);
    if (choice->batch > 0) return choice->batch;
    return ((found >= 0) && (cluster->models[found].batch > 0)) ? cluster->models[found].batch
                                                                : cluster->batch;
}

double plan_compute_s(const struct plan_model *model, const struct tool_cluster *cluster,
                      const struct plan_choice *choice)
{
    int found = model_find(model, cluster);
    double images = plan_batch(model, cluster, choice);
    if (choice->compute_s > 0) return choice->compute_s;
    if (found >= 0) return images / cluster->models[found].images_per_second;
    if (cluster->gpu_flops <= 0) return 0;
    return images * (model->forward_flops + model->backward_flops) / cluster->gpu_flops;
}

void plan_mode_config(plan_mode mode, const struct plan_choice *choice,
                      struct gf_config *config_out)
{
    struct gf_config config = {0};
    if (choice->config != NULL) {
        *config_out = *choice->config;
        return;
    }
    config.exchange.algorithm = (mode == PLAN_SERVER)      ? GF_ALGORITHM_SERVER
                                : (mode == PLAN_TREE)      ? GF_ALGORITHM_TREE
                                : (mode == PLAN_HIERARCHY) ? GF_ALGORITHM_HIERARCHY
                                                           : GF_ALGORITHM_RING;
    if (choice->is_auto || (choice->algorithm != GF_ALGORITHM_AUTO))
        config.exchange.algorithm = choice->algorithm;
    config.exchange.wire = (mode >= PLAN_FP16) ? GF_TYPE_F16 : GF_TYPE_F32;
    config.exchange.buffers_active = (mode >= PLAN_OVERLAP) ? 4 : 1;
    config.exchange.fuse_bytes = (choice->fuse_bytes > 0) ? choice->fuse_bytes : PLAN_FUSE_BYTES;
    if (mode < PLAN_LAZY) { /* each tensor by itself */
        config.exchange.fuse_bytes = 1;
        config.exchange.cut_bytes = PLAN_CUT_NEVER;
    }
    config.exchange.slice_bytes = (uint32_t)choice->slice_bytes;
    config.sparse.enabled = (mode == PLAN_SPARSE) || (mode == PLAN_HIERARCHY);
    if (choice->keep_share >= 1.0) config.sparse.enabled = false;
    config.sparse.keep_share =
        (float)((choice->keep_share > 0) ? choice->keep_share : PLAN_KEEP_SHARE);
    *config_out = config;
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * 1e9 + 0.5);
}

/* A leaf has as many bytes upwards as to its cards, divided by the oversubscription. */
static double leaf_bandwidth(const struct tool_cluster *cluster)
{
    double cards = (cluster->leaf_nodes > 0) ? cluster->leaf_nodes : cluster->nodes;
    if (!cluster->rails && (cluster->leaf_nodes == 0)) return 0;
    if (!cluster->rails && (cluster->nics_per_node > 1)) cards *= cluster->nics_per_node;
    return cards * cluster->network_bandwidth /
           ((cluster->oversubscription > 1) ? cluster->oversubscription : 1);
}

static struct plan_network network_of(const struct tool_cluster *cluster)
{
    return (struct plan_network){.ranks_per_node = cluster->gpus_per_node,
                                 .node_cards = cluster->nics_per_node,
                                 .rails = cluster->rails,
                                 .leaf_nodes = cluster->leaf_nodes,
                                 .leaf_bytes_per_ns = leaf_bandwidth(cluster) * 1e-9,
                                 .pair_bytes_per_ns = cluster->node_pair_bandwidth * 1e-9,
                                 .bytes_per_ns = cluster->network_bandwidth * 1e-9,
                                 .node_bytes_per_ns = cluster->node_bandwidth * 1e-9,
                                 .latency_ns = ns_of(cluster->network_latency),
                                 .node_latency_ns = ns_of(cluster->node_latency),
                                 .message_ns = ns_of(cluster->message_cost),
                                 .op_bytes_per_ns = cluster->op_bandwidth * 1e-9,
                                 .op_ns = ns_of(cluster->op_cost),
                                 .poll_ns = ns_of(cluster->poll_time),
                                 .device_ops = cluster->device_ops,
                                 .gpu_memory = cluster->gpu_direct || (cluster->host_bandwidth > 0),
                                 .gpu_direct = cluster->gpu_direct,
                                 .host_bytes_per_ns = cluster->host_bandwidth * 1e-9};
}

/* When backward ends each tensor; without overlap all of them at its end. */
static void schedule_make(const struct plan_model *model, double compute_s, bool overlaps,
                          uint64_t *ready_ns)
{
    double all = model->forward_flops + model->backward_flops;
    double done = model->forward_flops;
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        done += (double)model->flops[i].backward;
        ready_ns[i] = ns_of(overlaps ? compute_s * done / all : compute_s);
    }
}

static void row_fill(const struct plan_result *result, double images,
                     const struct plan_setup *setup, struct plan_row *row)
{
    row->known = true;
    row->compute_s = (double)setup->compute_ns * 1e-9;
    row->step_s = (double)result->step_ns * 1e-9;
    row->exposed_s = (double)result->exposed_ns * 1e-9;
    row->images_per_second = (double)row->gpus * images / row->step_s;
    row->speedup = (double)row->gpus * row->compute_s / row->step_s;
    row->efficiency = row->speedup / (double)row->gpus;
    row->wire_bytes = (double)result->wire_bytes;
    row->messages = (double)result->messages;
    row->buffers = result->buffer_count;
}

/* ---- memory ---- */

/* 16-bit weights, and in fp32 the master copy and Adam's two moments (arXiv 1910.02054, section
 * 3.1) or one momentum; where the library updates, only the first is not its own. */
static double state_bytes(const struct plan_model *model, const struct gf_config *config)
{
    if (config->optimizer.kind != GF_OPTIMIZER_NONE) return 2.0 * (double)model->elem_count;
    return ((model->sample.tokens > 0) ? 14.0 : 10.0) * (double)model->elem_count;
}

static double activation_bytes(const struct plan_model *model)
{
    double values = 0;
    if (model->sample.activation_bytes > 0) return (double)model->sample.activation_bytes;
    for (uint32_t i = 0; i < model->tensor_count; i++) values += (double)model->flops[i].inputs;
    /* what enters a layer, and what it is before its non-linearity, in 16 bits */
    return 4 * values;
}

/* 0, or -1 and said by how much a GPU's memory is too small for what this configuration and the
 * model ask for. */
static int memory_check(const struct plan_model *model, const struct tool_cluster *cluster,
                        const struct plan_choice *choice, const struct gf_config *config,
                        const struct gf_tensor *tensors, const char *what)
{
    struct gf_config local = *config;
    struct gf_footprint need;
    double library;
    double state = state_bytes(model, config);
    double kept;
    double all;
    if (cluster->gpu_memory <= 0) return 0;
    local.job.rank = 0;
    local.job.ignore_environment = true;
    if (gf_measure(&local, tensors, model->tensor_count, &need) != GF_OK)
        return 0; /* refused where it is opened, with why */
    library = (double)need.control_bytes + (double)need.exchange_bytes + (double)need.device_bytes;
    kept = activation_bytes(model) * plan_batch(model, cluster, choice);
    all = library + state + kept;
    if (all <= cluster->gpu_memory) return 0;
    return plan_refuse(
        "%s on %u GPUs, %s: a GPU has %.4g GB and this wants %.4g: %.4g GB too much (the library's "
        "gradients, "
        "buffers and history %.4g, weights and optimizer %.4g, activations of %u samples %.4g)",
        model->name, config->job.world, what, cluster->gpu_memory * 1e-9, all * 1e-9,
        (all - cluster->gpu_memory) * 1e-9, library * 1e-9, state * 1e-9,
        plan_batch(model, cluster, choice), kept * 1e-9);
}

static int case_simulate(const struct plan_model *model, const struct tool_cluster *cluster,
                         plan_mode mode, const struct plan_choice *choice, double compute_s,
                         struct plan_row *row)
{
    struct plan_setup setup = {.world = row->gpus,
                               .network = network_of(cluster),
                               .tensors = model->tensors,
                               .tensor_count = model->tensor_count,
                               .compute_ns = ns_of(compute_s),
                               .compute_spread = cluster->compute_spread,
                               .straggler_scale = cluster->straggler_scale,
                               .straggler_tail = cluster->straggler_tail};
    struct gf_tensor *tensors = calloc(model->tensor_count, sizeof *tensors);
    uint64_t *ready_ns = calloc(model->tensor_count, sizeof *ready_ns);
    struct plan_result result;
    char error[PLAN_ERROR_BYTES];
    gf_status status = GF_ERR_SYSTEM;
    bool fits = true;
    (void)snprintf(error, sizeof error, "no memory");
    if ((tensors != NULL) && (ready_ns != NULL)) {
        plan_mode_config(mode, choice, &setup.config);
        /* the first one is dense: it has no scores to choose by */
        setup.steps = setup.config.sparse.enabled ? 2 : 1;
        if (cluster->compute_spread > 0) setup.steps += 2;
        memcpy(tensors, model->tensors, model->tensor_count * sizeof *tensors);
        for (uint32_t i = 0; (choice->config == NULL) && (i < model->tensor_count); i++)
            tensors[i].type = setup.config.exchange.wire;
        schedule_make(model, compute_s, mode >= PLAN_OVERLAP, ready_ns);
        setup.tensors = tensors;
        setup.ready_ns = ready_ns;
        setup.config.job.world = row->gpus;
        fits =
            memory_check(model, cluster, choice, &setup.config, tensors, plan_mode_name(mode)) == 0;
        if (fits) status = plan_world_run(&setup, &result, error);
    }
    free(tensors);
    free(ready_ns);
    if (!fits) return PLAN_NO_ROOM;
    if (status < 0)
        return plan_refuse("%s on %u GPUs, %s: %s", model->name, row->gpus, plan_mode_name(mode),
                           error);
    row_fill(&result, plan_batch(model, cluster, choice), &setup, row);
    return 0;
}

bool plan_mode_is_there(plan_mode mode, uint32_t gpus, const struct tool_cluster *cluster)
{
    const struct gf_tensor tensor = {.name = "x", .elem_count = 1};
    struct gf_config config = {.job = {.world = gpus, .ignore_environment = true},
                               .exchange.algorithm = GF_ALGORITHM_HIERARCHY};
    struct gf_footprint need;
    if (mode != PLAN_HIERARCHY) return true;
    return (cluster->gpus_per_node > 1) && (gpus > cluster->gpus_per_node) &&
           (gf_measure(&config, &tensor, 1, &need) == GF_OK);
}

int plan_case_run(const struct plan_model *model, const struct tool_cluster *cluster,
                  plan_mode mode, uint32_t gpus, const struct plan_choice *choice,
                  struct plan_row *row_out)
{
    struct plan_row row = {.mode = mode, .gpus = gpus};
    double compute_s = plan_compute_s(model, cluster, choice);
    int result = 0;
    if (compute_s <= 0)
        return plan_refuse("cluster %s has neither a rate for the model %s nor gpu_flops",
                           cluster->name, model->name);
    if (plan_mode_is_there(mode, gpus, cluster))
        result = case_simulate(model, cluster, mode, choice, compute_s, &row);
    if (result == 0) *row_out = row;
    return result;
}
