/* Rows as text and as CSV, and how far a long table is: on a terminal, or where --progress asks for
 * it. A new column: a member of struct plan_row (plan.h), its value in row_fill() of plan_case.c
 * (from plan_world.c, where the simulation has it) and in plan_cache.c with another CACHE_VERSION,
 * here its head and value, that of a row without result too, and the number of columns in
 * tools/test_plan.sh. */
#include "tools/common/tool_args.h"
#include "tools/common/tool_clock.h"
#include "tools/plan/plan.h"

#define SILENT_S 2.0 /* a short run needs no such line */

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

void plan_table_head(const struct plan_table *table, const struct plan_choice *choice, FILE *out)
{
    const struct tool_cluster *cluster = table->cluster;
    (void)fprintf(out, "cluster   %s: %u nodes of %u GPUs, %.3g GB/s and %.3g us between nodes",
                  cluster->name, cluster->nodes, cluster->gpus_per_node,
                  cluster->network_bandwidth * 1e-9, cluster->network_latency * 1e6);
    if (cluster->gpus_per_node > 1)
        (void)fprintf(out, ", %.3g GB/s and %.3g us in them", cluster->node_bandwidth * 1e-9,
                      cluster->node_latency * 1e6);
    (void)fprintf(out,
                  "\nmodel     %s: %u tensors, %.1f MB as fp32, batch %u a GPU, %.3f ms a step of "
                  "one GPU alone\n",
                  table->model->name, table->model->tensor_count,
                  (double)table->model->elem_count * 4e-6,
                  plan_batch(table->model, cluster, choice),
                  plan_compute_s(table->model, cluster, choice) * 1e3);
    (void)fprintf(out, "times     virtual: the library's own step on a simulated network, sizes "
                       "only; which chunks sparse\n"
                       "          steps send is synthetic. Speed-up is against one GPU that "
                       "exchanges nothing.\n\n");
    (void)fprintf(out, "%5s %-10s %12s %12s %9s %6s %11s %10s%s\n", "GPUs", "mode", "step ms",
                  (table->model->sample.tokens > 0) ? "tokens/s" : "images/s", "speed-up", "eff %",
                  "exposed ms", "wire MB", (cluster->gpu_peak_flops > 0) ? "  MFU %" : "");
}

void plan_table_row(const struct plan_table *table, const struct plan_row *row, FILE *out)
{
    if (!row->known) {
        (void)fprintf(out, "%5u %-10s %12s %12s %9s %6s %11s %10s\n", row->gpus,
                      plan_mode_name(row->mode), "-", "-", "-", "-", "-", "-");
        return;
    }
    double rate =
        (table->model->sample.tokens > 0) ? plan_tokens(table->model, row) : row->images_per_second;
    (void)fprintf(out, "%5u %-10s %12.3f %12.0f %9.2f %6.1f %11.3f %10.2f", row->gpus,
                  plan_mode_name(row->mode), row->step_s * 1e3, rate, row->speedup,
                  row->efficiency * 100, row->exposed_s * 1e3, row->wire_bytes * 1e-6);
    if (table->cluster->gpu_peak_flops > 0)
        (void)fprintf(out, " %6.1f", plan_mfu(table->model, table->cluster, row) * 100);
    (void)fprintf(out, "\n");
}

/* Why rows have dashes. */
void plan_table_foot(const struct plan_table *table, FILE *out)
{
    for (uint32_t i = 0; i < table->row_count; i++) {
        if (table->rows[i].known) continue;
        (void)fprintf(out, "    -            hierarchy needs two GPUs a node or more, and more "
                           "than one node\n");
        return;
    }
}

/* Names are the user's own: a quote is doubled. */
static void csv_text(const char *text, FILE *out)
{
    (void)fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"') (void)fputc('"', out);
        (void)fputc(*text, out);
    }
    (void)fputs("\",", out);
}

void plan_csv(const struct plan_table *table, FILE *out)
{
    (void)fprintf(
        out,
        "cluster,model,mode,gpus,step_ms,images_per_s,speedup,efficiency,exposed_ms,compute_ms,"
        "wire_bytes,messages,buffers,tokens_per_s,mfu\n");
    for (uint32_t i = 0; i < table->row_count; i++) {
        const struct plan_row *row = &table->rows[i];
        if (!row->known) continue;
        csv_text(table->cluster->name, out);
        csv_text(table->model->name, out);
        (void)fprintf(out, "%s,%u,%.6f,%.3f,%.4f,%.6f,%.6f,%.6f,%.0f,%.0f,%.0f,%.3f,%.6f\n",
                      plan_mode_name(row->mode), row->gpus, row->step_s * 1e3,
                      row->images_per_second, row->speedup, row->efficiency, row->exposed_s * 1e3,
                      row->compute_s * 1e3, row->wire_bytes, row->messages, row->buffers,
                      plan_tokens(table->model, row), plan_mfu(table->model, table->cluster, row));
    }
}

void plan_progress_begin(struct plan_progress *progress, bool shows, bool is_asked)
{
    *progress = (struct plan_progress){.shows = !tool_quiet && (shows || is_asked),
                                       .is_asked = is_asked,
                                       .begin_ns = tool_clock_ns()};
}

/* Each of n ranks sends to the others in turn: a row takes about as n^2. */
void plan_progress_expect(struct plan_progress *progress, uint32_t gpus, int rows)
{
    progress->row_count += (uint32_t)rows;
    progress->all += (double)gpus * gpus * rows;
}

void plan_progress_row(struct plan_progress *progress, uint32_t gpus)
{
    double passed_s = (double)(tool_clock_ns() - progress->begin_ns) * 1e-9;
    double left_s;
    progress->done += (double)gpus * gpus;
    progress->rows++;
    left_s = passed_s * (progress->all / progress->done - 1) + 0.5;
    if (!progress->shows || ((passed_s < SILENT_S) && !progress->is_asked)) return;
    (void)fprintf(stderr, "gf-plan: %u of %u rows, about %.0f:%02u left\n", progress->rows,
                  progress->row_count, (left_s - (double)((uint64_t)left_s % 60)) / 60,
                  (unsigned)((uint64_t)left_s % 60));
}
