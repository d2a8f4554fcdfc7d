/* What the predictions of the published set-ups depend on: one input after the other is changed, alone. */
#include "tools/plan/plan.h"

#define VALUES_MAX 5

typedef enum plan_input {
    INPUT_KEEP = 0, INPUT_FUSE, INPUT_COMPUTE, INPUT_LATENCY, INPUT_OPS, INPUT_SPREAD
} plan_input;

static const struct sensitivity {
    const char *what, *model;
    plan_input input;
    double values[VALUES_MAX]; /* up to the first 0 but for the spread's first */
} sensitivities[] = {
    {"AlexNet, share kept", "alexnet", INPUT_KEEP, {0.10, 0.12, 0.15, 0.18, 0.20}},
    {"AlexNet, fused to, MiB", "alexnet", INPUT_FUSE, {4, 8, 16, 32}},
    {"AlexNet, one GPU's step, ms", "alexnet", INPUT_COMPUTE, {20, 30, 38.8, 50}},
    {"AlexNet, latency, factor", "alexnet", INPUT_LATENCY, {0.5, 1, 2}},
    {"AlexNet, ops, GB/s", "alexnet", INPUT_OPS, {500, 700, 900}},
    {"AlexNet, spread", "alexnet", INPUT_SPREAD, {0, 0.01, 0.02, 0.05}},
    {"ResNet-50, spread", "resnet50", INPUT_SPREAD, {0, 0.02, 0.04, 0.06}},
};

static void input_set(plan_input input, double value, struct plan_choice *choice, struct gf_config_cluster *cluster)
{
    switch (input) {
    case INPUT_KEEP: choice->keep_share = value; break;
    case INPUT_FUSE: choice->fuse_bytes = (uint64_t)value << 20; break;
    case INPUT_COMPUTE: choice->compute_s = value * 1e-3; break;
    case INPUT_LATENCY:
        cluster->network_latency *= value;
        cluster->node_latency *= value;
        cluster->message_cost *= value;
        break;
    case INPUT_OPS: cluster->op_bandwidth = value * 1e9; break;
    case INPUT_SPREAD: cluster->compute_spread = value; break;
    }
}

static int line_run(const struct sensitivity *line, const char *models_path, const struct gf_config_cluster *cluster,
                    const struct plan_cache *cache)
{
    struct plan_model model;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s.cfg", models_path, line->model);
    if (plan_model_load(path, &model) != 0) return -1;
    (void)printf("  %-28s", line->what);
    for (int i = 0; (i < VALUES_MAX) && ((i == 0) || (line->values[i] > 0)); i++) {
        struct gf_config_cluster changed = *cluster;
        struct plan_choice choice = {0};
        struct plan_row row;
        input_set(line->input, line->values[i], &choice, &changed);
        if (plan_cache_run(cache, &model, &changed, PLAN_SPARSE, 512, &choice, &row) != 0) return -1;
        (void)printf("  %g: %.1fx", line->values[i], row.speedup);
        (void)fflush(stdout);
    }
    (void)printf("\n");
    return 0;
}

int plan_sensitivity(const char *models_path, const char *clusters_path, const struct plan_cache *cache)
{
    struct gf_config_cluster cluster;
    char path[512], error[GF_CONFIG_ERROR_BYTES];
    (void)snprintf(path, sizeof path, "%s/gradientflow.cfg", clusters_path);
    if (gf_config_cluster_load(path, &cluster, error) < 0) return plan_refuse("%s", error);
    (void)printf("\nSensitivity: the speed-up on 512 GPUs, all together, where one input is another\n");
    for (size_t i = 0; i < sizeof sensitivities / sizeof sensitivities[0]; i++)
        if (line_run(&sensitivities[i], models_path, &cluster, cache) != 0) return -1;
    return 0;
}
