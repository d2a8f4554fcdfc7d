/* Reports for people and for programs. */
#include "tools/train/train_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gradientflow.h"
#include "tools/common/tool_args.h"

#define BAR_CELLS 24u
#define TERMINAL_PERIOD_NS 100000000u
#define LOG_PERIOD_NS 5000000000u
#define MEGABYTE 1e6

void report_begin(struct report *report, uint64_t now_ns, uint64_t step)
{
    *report = (struct report){.terminal = isatty(STDERR_FILENO) == 1,
                              .begin_ns = now_ns,
                              .last_ns = now_ns,
                              .begin_step = step,
                              .last_step = step};
}

/* From the mean of all steps of this run; "0:07 left", "2:03:04 left". */
static const char *time_left(const struct report *report, const struct report_moment *moment,
                             char *text, size_t bytes)
{
    double passed_s = (double)(moment->now_ns - report->begin_ns) * 1e-9;
    if (moment->step <= report->begin_step) return "?"; /* a regroup can go back */
    double step_s = passed_s / (double)(moment->step - report->begin_step);
    uint64_t left_s = (uint64_t)((double)(moment->step_count - moment->step) * step_s + 0.5);
    int used = (left_s >= 3600)
                   ? snprintf(text, bytes, "%llu:%02u", (unsigned long long)(left_s / 3600),
                              (unsigned)(left_s / 60 % 60))
                   : snprintf(text, bytes, "%u", (unsigned)(left_s / 60));
    (void)snprintf(text + used, bytes - (size_t)used, ":%02u", (unsigned)(left_s % 60));
    return text;
}

void report_live(struct report *report, const struct report_moment *moment)
{
    uint64_t period_ns = report->terminal ? TERMINAL_PERIOD_NS : LOG_PERIOD_NS;
    uint64_t passed_ns = moment->now_ns - report->last_ns;
    bool last = moment->step == moment->step_count;
    if (tool_quiet || ((passed_ns < period_ns) && !last)) return;
    uint64_t steps = moment->step - report->last_step;
    if (passed_ns == 0) passed_ns = 1;
    char bar[BAR_CELLS + 1u];
    char left[32];
    size_t full = (size_t)(moment->step * BAR_CELLS / moment->step_count);
    memset(bar, '.', BAR_CELLS);
    memset(bar, '#', full);
    bar[BAR_CELLS] = '\0';
    uint64_t epochs = (moment->step_count + moment->epoch_steps - 1u) / moment->epoch_steps;
    fprintf(stderr,
            "%sepoch %llu/%llu  step %*llu/%llu [%s]  loss %.4f  %5.0f images/s  %7.1f MB sent  "
            "%4.1f %% waiting  "
            "%s left%s",
            report->terminal ? "\r" : "",
            (unsigned long long)((moment->step - 1u) / moment->epoch_steps + 1u),
            (unsigned long long)epochs, (moment->step_count < 1000u) ? 3 : 6,
            (unsigned long long)moment->step, (unsigned long long)moment->step_count, bar,
            moment->loss, (double)(steps * moment->batch) * 1e9 / (double)passed_ns,
            moment->wire_bytes / MEGABYTE,
            100.0 * (double)(moment->wait_ns - report->last_wait_ns) / (double)passed_ns,
            time_left(report, moment, left, sizeof left), report->terminal ? "\x1b[K" : "\n");
    fflush(stderr);
    report->written = report->terminal;
    report->last_ns = moment->now_ns;
    report->last_step = moment->step;
    report->last_wait_ns = moment->wait_ns;
}

void report_end(struct report *report)
{
    if (report->written) fputc('\n', stderr);
    report->written = false;
}

bool report_hashes_equal(const struct report_result *result)
{
    for (uint32_t i = 1; i < result->ranks; i++) {
        if (result->weights_hash[i] != result->weights_hash[0]) return false;
    }
    return true;
}

/* Of this run: one that was resumed made fewer than there are. */
static double steps_made(const struct report_result *result)
{
    return (double)result->images / result->batch;
}

/* What backward produced beside what left the ranks: 16-bit wire types and chunks that wait make
 * the second smaller, lazy allreduce makes it few messages. */
static void bytes_table(const struct report_result *result)
{
    double produced = fmax(1.0, (double)result->produced_bytes);
    double steps = steps_made(result);
    double kept = 100.0 * result->keep_share;
    printf("bytes                  in all       a step  of produced\n");
    printf("  produced    %12.1f MB %9.3f MB      100.0 %%  fp32, %u tensors\n",
           produced / MEGABYTE, produced / steps / MEGABYTE, result->tensor_count);
    printf("  network     %12.1f MB %9.3f MB      %5.1f %%  %s, %.0f messages a step, dense: %u "
           "buffers\n",
           (double)result->wire_bytes / MEGABYTE, (double)result->wire_bytes / steps / MEGABYTE,
           100.0 * (double)result->wire_bytes / produced, result->wire,
           (double)result->messages / steps, result->buffer_count);
    if (isfinite(result->wire_bytes_steady))
        printf("  at last                     %9.3f MB      %5.1f %%  %.3g %% of the chunks\n",
               result->wire_bytes_steady / MEGABYTE,
               100.0 * result->wire_bytes_steady * steps / produced, kept);
    else
        printf("  the run was over before its %.3g %% of the chunks were reached\n", kept);
    printf("  shared memory %10.1f MB %9.3f MB      %5.1f %%  between the ranks of a node\n",
           (double)result->mapped_bytes / MEGABYTE, (double)result->mapped_bytes / steps / MEGABYTE,
           100.0 * (double)result->mapped_bytes / produced);
}

void report_table(const struct report_result *result)
{
    printf("ranks         %u\n", result->ranks);
    printf("model         %s, %s, batch %u, seed %llu\n", result->model, result->precision,
           result->batch, (unsigned long long)result->seed);
    printf("steps         %llu", (unsigned long long)result->steps);
    if (result->steps_skipped > 0)
        printf(" (%llu skipped)", (unsigned long long)result->steps_skipped);
    if (result->images == 0) { /* a finished run was resumed: there is nothing to time */
        printf(", all of them before\nweights       %016llx, %s\ntest accuracy %.2f %%\n",
               (unsigned long long)result->weights_hash[0],
               report_hashes_equal(result) ? "the same on all ranks" : "NOT the same on all ranks",
               result->test_accuracy);
        return;
    }
    printf("\nloss          %.4f at first, %.4f at last\n", result->loss_first, result->loss_last);
    printf("time          %.1f s, %.0f images/s\n", result->train_seconds,
           (double)result->images_timed / fmax(1e-9, result->train_seconds));
    printf("step          %.2f ms, exchange %.2f ms, %.0f %% of it hidden (%s)\n",
           1e3 * result->step_seconds, 1e3 * result->exchange_seconds, 100.0 * result->hidden_share,
           result->algorithm);
    if ((result->slowest != GF_RANK_NONE) && (result->ranks > 1))
        printf("slowest       rank %u, the last in %u %% of the steps, %.2f ms a step behind the "
               "first\n",
               result->slowest, result->slowest_percent,
               1e3 * result->slowest_seconds / steps_made(result));
    bytes_table(result);
    if (result->split != NULL)
        printf("split %-7s %.3f MB a step between the ranks; its weights %.3f MB (W), what enters "
               "it %.3f MB (D)\n",
               result->split, (double)result->split_bytes / steps_made(result) / MEGABYTE,
               (double)result->split_weight_bytes / MEGABYTE,
               (double)result->split_input_bytes / MEGABYTE);
    if (result->path != NULL) printf("gradients     on a device, %s\n", result->path);
    printf("weights       %016llx, %s\n", (unsigned long long)result->weights_hash[0],
           report_hashes_equal(result) ? "the same on all ranks" : "NOT the same on all ranks");
    printf("test accuracy %.2f %%\n", result->test_accuracy);
    fflush(stdout);
}

/* JSON knows no infinity and no NaN. */
static void json_number(FILE *out, const char *name, double value)
{
    if (isfinite(value))
        fprintf(out, "  \"%s\": %.9g,\n", name, value);
    else
        fprintf(out, "  \"%s\": null,\n", name);
}

static void json_count(FILE *out, const char *name, uint64_t value)
{
    fprintf(out, "  \"%s\": %llu,\n", name, (unsigned long long)value);
}

int report_json(const char *path, const struct report_result *result, struct tool_file *file)
{
    if (tool_file_begin(file, path) != 0) return -1;
    FILE *out = file->stream;
    fprintf(out, "{\n  \"model\": \"%s\",\n  \"wire\": \"%s\",\n", result->model, result->wire);
    fprintf(out, "  \"precision\": \"%s\",\n  \"algorithm\": \"%s\",\n", result->precision,
            result->algorithm);
    json_count(out, "ranks", result->ranks);
    json_count(out, "batch", result->batch);
    json_count(out, "seed", result->seed);
    json_count(out, "steps", result->steps);
    json_count(out, "steps_skipped", result->steps_skipped);
    json_number(out, "loss_first", result->loss_first);
    json_number(out, "loss_last", result->loss_last);
    json_number(out, "test_accuracy", result->test_accuracy);
    json_count(out, "wire_bytes", result->wire_bytes);
    if (result->split != NULL) json_count(out, "split_bytes", result->split_bytes);
    json_number(out, "wire_bytes_steady", result->wire_bytes_steady);
    json_count(out, "produced_bytes", result->produced_bytes);
    json_count(out, "messages", result->messages);
    json_number(out, "keep_share", result->keep_share);
    json_count(out, "wire_bytes_setup", result->wire_bytes_setup);
    json_count(out, "mapped_bytes", result->mapped_bytes);
    json_count(out, "control_bytes", result->control_bytes);
    json_number(out, "train_seconds", result->train_seconds);
    json_number(out, "step_seconds", result->step_seconds);
    json_number(out, "exchange_seconds", result->exchange_seconds);
    json_number(out, "hidden_share", result->hidden_share);
    json_count(out, "slowest", (result->slowest == GF_RANK_NONE) ? 0 : result->slowest);
    json_count(out, "slowest_percent", result->slowest_percent);
    json_number(out, "slowest_seconds", result->slowest_seconds);
    fprintf(out, "  \"weights_hash\": [");
    for (uint32_t i = 0; i < result->ranks; i++)
        fprintf(out, "%s\"%016llx\"", (i == 0) ? "" : ", ",
                (unsigned long long)result->weights_hash[i]);
    fprintf(out, "]\n}\n");
    return tool_file_end(file);
}
