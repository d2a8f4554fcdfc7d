/* The published results of the two systems that this library follows, beside what the planner
 * predicts for the same set-up. Which of its inputs come from which figure stands below each table:
 * a figure that an input was taken from is not predicted by it. */
#include <math.h>
#include <string.h>

#include "tools/common/tool_data.h"
#include "tools/plan/plan.h"

#define IMAGES 1281167.0 /* of ImageNet's training set */

/* A published speed-up, and the time it came to. */
static const struct headline {
    const char *what, *model, *cluster;
    uint32_t gpus, batch; /* a GPU; 0: the cluster's */
    plan_mode mode;
    bool whole;          /* all gradients as one operation, as FireCaffe's tree sums them */
    bool copies;         /* by way of host memory, before the exchange and after it */
    const char *printed; /* the figure as it was published */
    double published;
    double epochs, minutes; /* 0: no time was published */
    const char *note;
} headlines[] = {
    {"AlexNet, parameter server", "alexnet", "gradientflow", 64, 0, PLAN_SERVER, false, false,
     "2.5", 2.5, 0, 0, "a"},
    {"AlexNet, reduction tree", "alexnet", "gradientflow", 64, 0, PLAN_TREE, true, false, "2.5",
     2.5, 0, 0, "a"},
    {"AlexNet, unfused ring", "alexnet", "gradientflow", 64, 0, PLAN_RING, false, false, "2.5", 2.5,
     0, 0, "a"},
    {"AlexNet, unfused, host MPI", "alexnet", "host_mpi", 64, 0, PLAN_RING, false, true, "2.5", 2.5,
     0, 0, "a"},
    {"AlexNet, all together", "alexnet", "gradientflow", 512, 0, PLAN_SPARSE, false, false, "410.2",
     410.2, 95, 1.5, "b"},
    {"ResNet-50, all together", "resnet50", "gradientflow", 512, 0, PLAN_SPARSE, false, false,
     "434.1", 434.1, 90, 7.3, "b"},
    {"GoogLeNet, tree", "googlenet", "firecaffe", 32, 32, PLAN_TREE, true, false, "20", 20, 0, 0,
     "c"},
    {"GoogLeNet, tree", "googlenet", "firecaffe", 128, 0, PLAN_TREE, true, false, "47", 47, 0, 0,
     "c"},
    {"Network-in-Network, tree", "nin", "firecaffe", 32, 32, PLAN_TREE, true, false, "23", 23, 0, 0,
     "c"},
    {"Network-in-Network, tree", "nin", "firecaffe", 128, 0, PLAN_TREE, true, false, "39", 39, 0, 0,
     "c"},
};
#define HEADLINES (sizeof headlines / sizeof headlines[0])
#define COPY_BANDWIDTH 3.0e9 /* between a GPU and memory that is not pinned: assumed */

/* What the 512 GPUs are said to have gained on earlier systems: minutes of both. */
static const struct earlier {
    const char *what, *model;
    double epochs, minutes, published;
    uint32_t gpus;
    double peak_flops, used; /* of a GPU, and the share of it that is published; 0: none */
} earlier[] = {
    {"AlexNet, 1,024 P40 (2018)", "alexnet", 95, 4.0, 2.6, 1024, 11.76e12, 0.185},
    {"ResNet-50, 1,024 P100 (2017)", "resnet50", 90, 15.0, 2.1, 1024, 0, 0},
    {"ResNet-50, 2,048 P40 (2018)", "resnet50", 90, 6.6, 0, 2048, 11.76e12, 0.262},
};

static const char *const notes =
    "\nInputs and what they come from\n"
    "  rates   One GPU's images/s are calibrated: AlexNet's and ResNet-50's are images x epochs / "
    "time / speed-up\n"
    "          of the published run itself, GoogLeNet's and NiN's the days of one K20. The minutes "
    "are the speed-\n"
    "          up's deviation once more and no prediction of their own. How far a speed-up depends "
    "on the rates:\n"
    "          see the sensitivity.\n"
    "  network Bandwidths are nominal or measured by others, latencies and op rates assumed "
    "(config/clusters/).\n"
    "          Nothing was fitted to rows a and b. FireCaffe's 3.0 GB/s is half of what was "
    "measured of its\n"
    "          network, taken in the knowledge that 2.6 would give GoogLeNet's 47x (and NiN "
    "38.6x): the rows of\n"
    "          128 are consistent with the published ones rather than predictions. Nothing was "
    "fitted to those of\n"
    "          32.\n"
    "  a       The paper does not say how the systems it measured exchanged gradients. Host MPI: "
    "gradients are\n"
    "          copied to host memory, summed there tensor by tensor at the rate and the cost of a "
    "message that\n"
    "          Open MPI has here (config/clusters/host_mpi.cfg), and copied back, both at an "
    "assumed 3 GB/s.\n"
    "  b       fp16, overlapped, fused to 16 MiB, 15 % of the chunks: an assumption within the "
    "paper's \"85 to 90\n"
    "          % sparsity\". Which ones is synthetic: their number and size count, not which. The "
    "model lacks what\n"
    "          the published systems had: GPUs that differ from step to step, input, other users "
    "of the network.\n"
    "          So it is too high, most of all where communication is hidden, as with ResNet-50.\n"
    "  c       fp32, nothing overlapped, a batch of 1,024, 8 or 32 images a GPU at the rate of a "
    "full batch. All\n"
    "          gradients are one operation; --modes tree sends tensors one by one, which is "
    "slower.\n"
    "  earlier Which systems the gains refer to is our reading. 18.5 % and 26.2 % are, in the "
    "source, how much of\n"
    "          the GPUs was used for AlexNet and ResNet-50 on the cluster with V100s, as a "
    "shortfall from linear\n"
    "          scaling; that they are shares of peak of earlier systems with P40s is our reading, "
    "and open. By our\n"
    "          FLOPs: the model's (config/models/) x images x epochs / time / peak.\n";

/* Of those that come with the tools. */
static int model_load(const char *name, struct plan_model *model_out)
{
    static const char *folder;
    char path[1400];
    if (folder == NULL) folder = tool_data("models");
    (void)snprintf(path, sizeof path, "%s/%s.cfg", folder, name);
    return plan_model_load(path, model_out);
}

static int cluster_load(const char *name, struct tool_cluster *cluster_out)
{
    static const char *folder;
    char path[1400];
    char error[GF_CONFIG_ERROR_BYTES];
    if (folder == NULL) folder = tool_data("clusters");
    (void)snprintf(path, sizeof path, "%s/%s.cfg", folder, name);
    return (tool_cluster_load(path, cluster_out, error) < 0) ? plan_refuse("%s", error) : 0;
}

static int headline_run(const struct headline *line, const struct plan_cache *cache,
                        double *minutes_out)
{
    struct gf_config whole = {.exchange = {.algorithm = GF_ALGORITHM_TREE,
                                           .fuse_bytes = UINT64_C(1) << 30,
                                           .cut_bytes = PLAN_CUT_NEVER}};
    struct plan_choice choice = {.config = line->whole ? &whole : NULL, .batch = line->batch};
    struct tool_cluster cluster;
    struct plan_model model;
    struct plan_row row;
    if ((cluster_load(line->cluster, &cluster) != 0) || (model_load(line->model, &model) != 0))
        return -1;
    if (plan_cache_run(cache, &model, &cluster, line->mode, line->gpus, &choice, &row) != 0)
        return -1;
    if (line->copies) {
        row.step_s += 2 * (double)model.elem_count * 4 / COPY_BANDWIDTH;
        row.speedup = row.gpus * row.compute_s / row.step_s;
    }
    *minutes_out = line->epochs * IMAGES / row.images_per_second / 60;
    (void)printf("%-28s %5u %9sx %9.1fx %+9.1f %%", line->what, line->gpus, line->printed,
                 row.speedup, (row.speedup / line->published - 1) * 100);
    if (line->minutes > 0)
        (void)printf(" %9.1f min %8.2f min", line->minutes, *minutes_out);
    else
        (void)printf(" %13s %12s", "", "");
    (void)printf("   %s\n", line->note);
    return fflush(stdout);
}

/* minutes[HEADLINES] as predicted. */
static int earlier_print(const double *minutes)
{
    (void)printf("\nBeside earlier systems\n%-30s %8s %10s %10s %10s %10s %14s\n", "", "minutes",
                 "ours", "published", "predicted", "of peak", "by our FLOPs");
    for (size_t i = 0; i < sizeof earlier / sizeof earlier[0]; i++) {
        const struct earlier *line = &earlier[i];
        struct plan_model model;
        double ours = 0;
        double used;
        if (model_load(line->model, &model) != 0) return -1;
        for (size_t h = 0; h < HEADLINES; h++)
            if ((headlines[h].minutes > 0) && (strcmp(headlines[h].model, line->model) == 0))
                ours = minutes[h];
        used = IMAGES * line->epochs * (model.forward_flops + model.backward_flops) /
               (line->minutes * 60 * line->gpus);
        (void)printf("%-30s %8.1f %10.2f", line->what, line->minutes, ours);
        if (line->published > 0)
            (void)printf(" %9.1fx %9.2fx", line->published, line->minutes / ours);
        else
            (void)printf(" %10s %10s", "", "");
        if (line->used > 0)
            (void)printf(" %8.1f %% %12.1f %%", line->used * 100, used / line->peak_flops * 100);
        (void)printf("\n");
    }
    return 0;
}

/* FireCaffe's comparison: GoogLeNet's 53 MB at 56 Gbit/s, nothing but the exchange. */
static int exchange_run(const struct plan_model *model, const struct tool_cluster *cluster,
                        plan_mode mode, gf_algorithm algorithm, uint32_t gpus,
                        const struct plan_cache *cache, double *seconds_out)
{
    struct gf_config whole = {.exchange = {.algorithm = algorithm,
                                           .fuse_bytes = UINT64_C(1) << 30,
                                           .cut_bytes = PLAN_CUT_NEVER}};
    struct plan_choice choice = {.config = &whole, .compute_s = 1e-6};
    struct plan_row row;
    if (plan_cache_run(cache, model, cluster, mode, gpus, &choice, &row) != 0) return -1;
    *seconds_out = row.exposed_s;
    return 0;
}

static int exchanges_print(const struct plan_cache *cache)
{
    static const uint32_t worlds[] = {4, 16, 64, 128};
    const struct tool_cluster cluster = {.name = "56 Gbit/s",
                                         .nodes = 128,
                                         .gpus_per_node = 1,
                                         .batch = 1,
                                         .network_bandwidth = 7e9,
                                         .op_bandwidth = 1e15,
                                         .gpu_flops = 1e12};
    struct plan_model model;
    if (model_load("googlenet", &model) != 0) return -1;
    (void)printf(
        "\nServer against tree: one exchange of GoogLeNet (%.1f MB) at 56 Gbit/s, seconds\n"
        "%5s  %8s %9s %7s  %8s %9s %7s  %8s %9s %7s\n",
        (double)model.elem_count * 4e-6, "GPUs", "server", "simulated", "", "tree", "simulated", "",
        "ring", "simulated", "");
    for (size_t i = 0; i < sizeof worlds / sizeof worlds[0]; i++) {
        double p = worlds[i];
        double unit = (double)model.elem_count * 4 / cluster.network_bandwidth;
        double server;
        double tree;
        double ring;
        double formulas[3] = {unit * p, 2 * unit * log2(p), 2 * unit * (p - 1) / p};
        if ((exchange_run(&model, &cluster, PLAN_SERVER, GF_ALGORITHM_SERVER, worlds[i], cache,
                          &server) != 0) ||
            (exchange_run(&model, &cluster, PLAN_TREE, GF_ALGORITHM_TREE, worlds[i], cache,
                          &tree) != 0) ||
            (exchange_run(&model, &cluster, PLAN_RING, GF_ALGORITHM_RING, worlds[i], cache,
                          &ring) != 0))
            return -1;
        server /= 2; /* the formula is one way */
        (void)printf("%5u  %8.3f %9.3f %+5.1f %%  %8.3f %9.3f %+5.1f %%  %8.3f %9.3f %+5.1f %%\n",
                     worlds[i], formulas[0], server, (server / formulas[0] - 1) * 100, formulas[1],
                     tree, (tree / formulas[1] - 1) * 100, formulas[2], ring,
                     (ring / formulas[2] - 1) * 100);
    }
    (void)printf(
        "  By formula, for W bytes at B bytes/s: server W p / B (each way), tree 2 W "
        "log2(p) / B, ring\n"
        "  2 W (p - 1) / (p B). A server that is itself a rank moves W (p - 1). The two "
        "last vectors of an even\n"
        "  number of levels reach the root together; of an odd number the last comes alone, "
        "and slices of it go\n"
        "  down while it comes, as a port does both at once: W less.\n");
    return 0;
}

/* ---- what the predictions depend on: one input after the other is changed, alone ---- */

#define VALUES_MAX 5

typedef enum plan_input {
    INPUT_KEEP = 0,
    INPUT_FUSE,
    INPUT_COMPUTE,
    INPUT_BANDWIDTH,
    INPUT_LATENCY,
    INPUT_OPS,
    INPUT_SPREAD
} plan_input;

static const struct sensitivity {
    const char *what, *model;
    plan_input input;
    double values[VALUES_MAX]; /* up to the first 0 but for the spread's first */
} sensitivities[] = {
    {"AlexNet, share kept", "alexnet", INPUT_KEEP, {0.10, 0.12, 0.15, 0.18, 0.20}},
    {"AlexNet, fused to, MiB", "alexnet", INPUT_FUSE, {4, 8, 16, 32}},
    {"AlexNet, one GPU's step, ms", "alexnet", INPUT_COMPUTE, {20, 30, 38.8, 50}},
    {"AlexNet, bandwidth, factor", "alexnet", INPUT_BANDWIDTH, {0.25, 0.5, 1, 2}},
    {"ResNet-50, bandwidth, factor", "resnet50", INPUT_BANDWIDTH, {0.25, 0.5, 1, 2}},
    {"AlexNet, latency, factor", "alexnet", INPUT_LATENCY, {0.5, 1, 2}},
    {"AlexNet, ops, GB/s", "alexnet", INPUT_OPS, {500, 700, 900}},
    {"AlexNet, spread", "alexnet", INPUT_SPREAD, {0, 0.01, 0.02, 0.05}},
    {"ResNet-50, spread", "resnet50", INPUT_SPREAD, {0, 0.02, 0.04, 0.06}},
};

static void input_set(plan_input input, double value, struct plan_choice *choice,
                      struct tool_cluster *cluster)
{
    switch (input) {
    case INPUT_KEEP: choice->keep_share = value; break;
    case INPUT_FUSE: choice->fuse_bytes = (uint64_t)value << 20; break;
    case INPUT_COMPUTE: choice->compute_s = value * 1e-3; break;
    case INPUT_BANDWIDTH: cluster->network_bandwidth *= value; break;
    case INPUT_LATENCY:
        cluster->network_latency *= value;
        cluster->node_latency *= value;
        cluster->message_cost *= value;
        break;
    case INPUT_OPS: cluster->op_bandwidth = value * 1e9; break;
    case INPUT_SPREAD: cluster->compute_spread = value; break;
    }
}

static int line_run(const struct sensitivity *line, const struct tool_cluster *cluster,
                    const struct plan_cache *cache)
{
    struct plan_model model;
    if (model_load(line->model, &model) != 0) return -1;
    (void)printf("  %-28s", line->what);
    for (int i = 0; (i < VALUES_MAX) && ((i == 0) || (line->values[i] > 0)); i++) {
        struct tool_cluster changed = *cluster;
        struct plan_choice choice = {0};
        struct plan_row row;
        input_set(line->input, line->values[i], &choice, &changed);
        if (plan_cache_run(cache, &model, &changed, PLAN_SPARSE, 512, &choice, &row) != 0)
            return -1;
        (void)printf("  %g: %.1fx", line->values[i], row.speedup);
        if (fflush(stdout) != 0) return -1;
    }
    (void)printf("\n");
    return 0;
}

static int sensitivity_print(const struct plan_cache *cache)
{
    struct tool_cluster cluster;
    if (cluster_load("gradientflow", &cluster) != 0) return -1;
    (void)printf(
        "\nSensitivity: the speed-up on 512 GPUs, all together, where one input is another\n");
    for (size_t i = 0; i < sizeof sensitivities / sizeof sensitivities[0]; i++)
        if (line_run(&sensitivities[i], &cluster, cache) != 0) return -1;
    return 0;
}

int plan_paper(bool brief, const struct plan_cache *cache)
{
    double minutes[HEADLINES];
    (void)printf("%-28s %5s %10s %10s %11s %13s %12s   %s\n", "set-up", "GPUs", "published",
                 "predicted", "deviation", "published", "predicted", "note");
    for (size_t i = 0; i < HEADLINES; i++)
        if (headline_run(&headlines[i], cache, &minutes[i]) != 0) return -1;
    if (earlier_print(minutes) != 0) return -1;
    if (exchanges_print(cache) != 0) return -1;
    if (!brief && (sensitivity_print(cache) != 0)) return -1;
    (void)printf("%s", notes);
    return 0;
}
