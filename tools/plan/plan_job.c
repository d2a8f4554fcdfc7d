/* What a run of many steps needs beside a step's time: a GPU's memory, failures, money. */
#include <math.h>

#include "tools/plan/plan.h"

/* firmware-tests/results/faults.md, worst of 20: a host is cut off 2.1 s, it comes back 0.2 s */
#define ELASTIC_S 2.3
#define HOUR_S 3600.0

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

int plan_memory_check(const struct plan_model *model, const struct tool_cluster *cluster,
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

/* ---- failures ---- */

struct plan_failures plan_failures_of(const struct tool_cluster *cluster, uint32_t gpus,
                                      double step_s)
{
    struct plan_failures f = {.nodes =
                                  (gpus + cluster->gpus_per_node - 1) / cluster->gpus_per_node};
    double cost = cluster->checkpoint_cost;
    double elastic = (cluster->elastic_cost > 0) ? cluster->elastic_cost : ELASTIC_S;
    double x;
    f.mtbf_s = cluster->node_mtbf / f.nodes;
    f.young_s = sqrt(2 * cost * f.mtbf_s);
    x = cost / (2 * f.mtbf_s);
    f.daly_s = (x < 1) ? f.young_s * (1 + sqrt(x) / 3 + x / 9) - cost : f.mtbf_s;
    f.restart_share = f.daly_s / (f.mtbf_s * exp(cluster->restart_cost / f.mtbf_s) *
                                  expm1((f.daly_s + cost) / f.mtbf_s));
    f.elastic_share = f.mtbf_s / (f.mtbf_s + elastic + step_s) *
                      (cluster->node_mtbf / (cluster->node_mtbf + cluster->node_repair));
    return f;
}

/* ---- the run ---- */

double plan_mfu(const struct plan_model *model, const struct tool_cluster *cluster,
                const struct plan_row *row)
{
    double flops = (model->forward_flops + model->backward_flops) * row->images_per_second;
    return (cluster->gpu_peak_flops > 0) ? flops / (row->gpus * cluster->gpu_peak_flops) : 0;
}

double plan_tokens(const struct plan_model *model, const struct plan_row *row)
{
    return model->sample.tokens * row->images_per_second;
}

static void cost_print(const struct plan_table *table, const struct plan_row *row, double share,
                       double samples, FILE *out)
{
    const struct tool_cluster *cluster = table->cluster;
    double rate =
        (table->model->sample.tokens > 0) ? plan_tokens(table->model, row) : row->images_per_second;
    double hours = samples / (rate * share) / HOUR_S;
    (void)fprintf(out, "%s%.4g %s in %.4g h, %.4g GPU-hours", (cluster->node_mtbf > 0) ? "; " : " ",
                  samples, (table->model->sample.tokens > 0) ? "tokens" : "samples", hours,
                  hours * row->gpus);
    if (cluster->gpu_hour_price > 0)
        (void)fprintf(out, ", %.4g %s", hours * row->gpus * cluster->gpu_hour_price,
                      cluster->currency);
}

void plan_job_print(const struct plan_table *table, double samples, FILE *out)
{
    const struct tool_cluster *cluster = table->cluster;
    if ((cluster->node_mtbf <= 0) && (samples <= 0)) return;
    (void)fprintf(out, "\nThe run, by the fastest row of each number of GPUs\n");
    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct plan_row *best = &table->rows[i];
        double share = 1;
        if ((i > 0) && (table->rows[i - 1].gpus == best->gpus)) continue;
        for (uint32_t k = i; (k < table->row_count) && (table->rows[k].gpus == best->gpus); k++)
            if (table->rows[k].known && (!best->known || (table->rows[k].step_s < best->step_s)))
                best = &table->rows[k];
        if (!best->known) continue;
        (void)fprintf(out, "%5u %-10s", best->gpus, plan_mode_name(best->mode));
        if (cluster->node_mtbf > 0) {
            struct plan_failures f = plan_failures_of(cluster, best->gpus, best->step_s);
            share = fmax(f.restart_share, f.elastic_share);
            (void)fprintf(out,
                          " a failure each %.4g h; checkpoint each %.4g s (Young %.4g s): %.2f %% "
                          "of the time counts; "
                          "elastic: %.2f %%",
                          f.mtbf_s / HOUR_S, f.daly_s, f.young_s, f.restart_share * 100,
                          f.elastic_share * 100);
        }
        if (samples > 0) cost_print(table, best, share, samples, out);
        (void)fprintf(out, "\n");
    }
}
