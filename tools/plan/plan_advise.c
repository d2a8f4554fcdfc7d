/* What to choose for a model on a cluster: a configuration, found by simulating one setting after
 * the other; layers that had better be split by outputs than by images; what a larger batch brings
 * and asks for. */
#include <math.h>
#include <string.h>

#include "tools/common/tool_file.h"
#include "tools/plan/plan.h"

#define IMAGES 1281167.0 /* of ImageNet's training set, for warm-up epochs */
/* sparser than what is within 2 % of the fastest does not pay for what it costs in accuracy */
#define WORTH_SHARE 1.02

struct search {
    const struct plan_model *model;
    const struct tool_cluster *cluster;
    const struct plan_cache *cache;
    uint32_t gpus;
    struct plan_choice best;
    plan_mode mode;
    double best_s;
    struct plan_progress progress; /* of what may take minutes, shown to a file too */
};

static const uint64_t fuses[] = {1, 2, 4, 8, 16, 32, 64}; /* MiB */
static const uint64_t slices[] = {64, 512, 1024};         /* KiB */
static const double shares[] = {0.5, 0.25, 0.15, 0.1};
enum {
    FUSES = sizeof fuses / sizeof fuses[0],
    SLICES = sizeof slices / sizeof slices[0],
    SHARES = sizeof shares / sizeof shares[0],
    BATCHES = 3 /* the batch, twice and four times it */
};

/* Sizes that are not the best one already. */
static int fuses_left(const struct search *search)
{
    int count = 0;
    for (int i = 0; i < FUSES; i++) count += (fuses[i] << 20) != search->best.fuse_bytes;
    return count;
}

static int search_time(struct search *search, plan_mode mode, const struct plan_choice *choice,
                       double *seconds_out)
{
    struct plan_row row = {.step_s = INFINITY}; /* what a GPU has no memory for */
    if (plan_cache_run(search->cache, search->model, search->cluster, mode, search->gpus, choice,
                       &row) < 0)
        return -1;
    plan_progress_row(&search->progress, search->gpus);
    (void)printf("  %-9s fuse %6.2f MiB  slice %5.0f KiB  keep %5.3f   ",
                 gf_algorithm_name(choice->algorithm), (double)choice->fuse_bytes / 1048576,
                 (double)choice->slice_bytes / 1024,
                 (mode == PLAN_SPARSE) ? choice->keep_share : 1.0);
    if (isinf(row.step_s))
        (void)printf("does not fit\n");
    else
        (void)printf("%10.3f ms\n", row.step_s * 1e3);
    *seconds_out = row.step_s;
    return fflush(stdout);
}

static int search_try(struct search *search, const struct plan_choice *choice)
{
    double seconds;
    if (search_time(search, search->mode, choice, &seconds) != 0) return -1;
    if ((search->best_s > 0) && (seconds >= search->best_s)) return 0;
    search->best = *choice;
    search->best_s = seconds;
    return 0;
}

static int search_fuse(struct search *search)
{
    struct plan_choice choice = search->best;
    uint64_t known = choice.fuse_bytes;
    for (int i = 0; i < FUSES; i++) {
        choice.fuse_bytes = fuses[i] << 20;
        if ((choice.fuse_bytes != known) && (search_try(search, &choice) != 0)) return -1;
    }
    return 0;
}

/* Dense settings, one after the other, each at the best of those before. */
static int search_dense(struct search *search)
{
    static const gf_algorithm algorithms[] = {GF_ALGORITHM_RING, GF_ALGORITHM_HALVING,
                                              GF_ALGORITHM_HIERARCHY};
    struct plan_choice choice = search->best;
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++) {
        choice.algorithm = algorithms[i];
        if ((algorithms[i] == GF_ALGORITHM_HIERARCHY) &&
            !plan_mode_is_there(PLAN_HIERARCHY, search->gpus, search->cluster))
            continue;
        if (search_try(search, &choice) != 0) return -1;
    }
    if (search_fuse(search) != 0) return -1;
    choice = search->best;
    for (int i = 0; i < SLICES; i++) {
        choice.slice_bytes = slices[i] << 10;
        if (search_try(search, &choice) != 0) return -1;
    }
    return 0;
}

/* The largest share that is nearly as fast as the fastest; the dense step is one of them. */
static int search_sparse(struct search *search)
{
    double seconds[SHARES];
    double least = search->best_s;
    for (int i = 0; i < SHARES; i++) {
        struct plan_choice choice = search->best;
        choice.keep_share = shares[i];
        if (search_time(search, PLAN_SPARSE, &choice, &seconds[i]) != 0) return -1;
        if (seconds[i] < least) least = seconds[i];
    }
    if (search->best_s <= least * WORTH_SHARE) return 0;
    plan_progress_expect(&search->progress, search->gpus, fuses_left(search));
    for (int i = 0; i < SHARES; i++) {
        if (seconds[i] > least * WORTH_SHARE) continue;
        search->mode = PLAN_SPARSE;
        search->best.keep_share = shares[i];
        search->best_s = seconds[i];
        return search_fuse(search); /* less is sent: another size may suit it */
    }
    return 0;
}

static void fragment_print(const struct search *search, FILE *out)
{
    const struct plan_choice *best = &search->best;
    (void)fprintf(out, "# gf-plan --advise: %s on %u GPUs of %s\n", search->model->name,
                  search->gpus, search->cluster->name);
    (void)fprintf(
        out,
        "exchange = {\n    wire = \"fp16\";\n    algorithm = \"%s\";\n    fuse_bytes = %llu;\n"
        "    slice_bytes = %llu;\n    buffers_active = 4;\n};\n",
        gf_algorithm_name(best->algorithm), (unsigned long long)best->fuse_bytes,
        (unsigned long long)best->slice_bytes);
    (void)fprintf(out, "loss_scale = {\n    enabled = true;\n};\n");
    if (search->mode == PLAN_SPARSE)
        (void)fprintf(out, "sparse = {\n    enabled = true;\n    keep_share = %.2f;\n};\n",
                      best->keep_share);
}

static int configuration_advise(struct search *search, const char *config_path)
{
    struct tool_file file;
    (void)printf("Configuration: a step of %s on %u GPUs of %s, fp16, overlapped\n",
                 search->model->name, search->gpus, search->cluster->name);
    if ((search_dense(search) != 0) || (search_sparse(search) != 0) || isinf(search->best_s))
        return -1;
    (void)printf("\nBest, at %.3f ms a step of which %.3f ms are computed%s:\n\n",
                 search->best_s * 1e3,
                 plan_compute_s(search->model, search->cluster, &search->best) * 1e3,
                 (search->mode == PLAN_SPARSE) ? "" : "; sparse steps would not be 2 % faster");
    fragment_print(search, stdout);
    if (config_path == NULL) return 0;
    if (tool_file_begin(&file, config_path) == 0) {
        fragment_print(search, file.stream);
        if (tool_file_end(&file) == 0) return 0;
    }
    return plan_refuse("%s", file.error);
}

/* FireCaffe's rule (arXiv 1511.00175, section 3), layer by layer: images split among GPUs move the
 * layer's gradients, its outputs split among GPUs move what enters it, of all images. An input that
 * several layers take counts for each. */
static void layers_advise(const struct search *search)
{
    const struct plan_model *model = search->model;
    double batch = (double)search->gpus * plan_batch(model, search->cluster, &search->best);
    double data_all = 0;
    double model_all = 0;
    double best_all = 0;
    (void)printf("\nLayers: what data parallelism moves (W, gradients) and model parallelism (D, "
                 "what enters the layer, of a\n"
                 "batch of %.0f), as fp32; a ring moves 2 (p - 1) / p of either. The fewer bytes "
                 "win: model parallel while the\n"
                 "batch is below W / D of one image.\n  %-34s %10s %12s  %-6s %s\n",
                 batch, "layer", "W MB", "D MB", "better", "below a batch of");
    for (uint32_t i = 0; i < model->tensor_count; i++) {
        const struct tool_flops *flops = &model->flops[i];
        double weights = (double)model->tensors[i].elem_count;
        double inputs = (double)flops->inputs;
        if ((inputs <= 0) || (weights <= 0)) continue;
        data_all += weights;
        model_all += inputs * batch;
        best_all += (inputs * batch < weights) ? inputs * batch : weights;
        (void)printf("  %-34s %10.3f %12.3f  %-6s %.0f\n", model->tensors[i].name, weights * 4e-6,
                     inputs * batch * 4e-6, (inputs * batch < weights) ? "model" : "data",
                     weights / inputs);
    }
    (void)printf("  %-34s %10.3f %12.3f  the better of each: %.3f MB\n", "all", data_all * 4e-6,
                 model_all * 4e-6, best_all * 4e-6);
    (void)printf("  This library is data-parallel; a layer marked \"model\" is better split by the "
                 "appliance itself.\n");
}

static int batch_advise(struct search *search)
{
    uint32_t batch = plan_batch(search->model, search->cluster, &search->best);
    bool is_text = search->model->sample.tokens > 0;
    (void)printf("\nBatch: fewer exchanges a sample as it grows\n  %8s %10s %12s %12s %8s%s\n",
                 "a GPU", "of all", "step ms", is_text ? "tokens/s" : "images/s", "eff %",
                 is_text ? "" : "     rate x  warm-up steps");
    for (uint32_t factor = 1; factor < (1u << BATCHES); factor *= 2) {
        struct plan_choice choice = search->best;
        struct plan_row row;
        double all = (double)search->gpus * batch * factor;
        choice.batch = batch * factor;
        if (choice.compute_s > 0) choice.compute_s *= factor;
        int result = plan_cache_run(search->cache, search->model, search->cluster, search->mode,
                                    search->gpus, &choice, &row);
        if ((result == PLAN_NO_ROOM) && (factor > 1)) return 0; /* it said so */
        if (result != 0) return -1;
        plan_progress_row(&search->progress, search->gpus);
        (void)printf("  %8u %10.0f %12.3f %12.0f %8.1f", choice.batch, all, row.step_s * 1e3,
                     is_text ? plan_tokens(search->model, &row) : row.images_per_second,
                     row.efficiency * 100);
        if (!is_text) (void)printf(" %10.2f %14.0f", all / 256, 5 * IMAGES / all);
        (void)printf("\n");
        if (fflush(stdout) != 0) return -1;
    }
    if (is_text) return 0;
    (void)printf("  Learning rate: base x batch / 256, reached over 5 epochs of warm-up (of "
                 "1,281,167 images), then down\n"
                 "  as (1 - t)^2. Beyond a batch of about 8,192 with LARS: rate x eta |w| / (|g| + "
                 "decay |w|) a layer. What\n"
                 "  does not fit into gpu_memory is refused; accuracy has to be tried.\n");
    return 0;
}

int plan_advise(const struct plan_model *model, const struct tool_cluster *cluster, uint32_t gpus,
                const struct plan_choice *choice, const struct plan_cache *cache,
                const char *config_path, bool progress)
{
    struct search search = {.model = model,
                            .cluster = cluster,
                            .cache = cache,
                            .gpus = gpus,
                            .best = *choice,
                            .mode = PLAN_LAZY};
    struct tool_file file;
    if (tool_file_check(&file, config_path) != 0) return plan_refuse("%s", file.error);
    if (search.best.fuse_bytes == 0) search.best.fuse_bytes = PLAN_FUSE_BYTES;
    if (search.best.slice_bytes == 0) search.best.slice_bytes = 256u << 10;
    bool hierarchy = plan_mode_is_there(PLAN_HIERARCHY, gpus, cluster);
    plan_progress_begin(&search.progress, true, progress);
    plan_progress_expect(&search.progress, gpus,
                         2 + hierarchy + fuses_left(&search) + SLICES + SHARES + BATCHES);
    if (configuration_advise(&search, config_path) != 0) return -1;
    layers_advise(&search);
    return batch_advise(&search);
}
