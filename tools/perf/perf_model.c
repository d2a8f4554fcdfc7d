/* See perf_model.h. A step: wait as long as the forward pass takes, then for each tensor until
 * backward would have ended it, and declare it ready; the last one ends the computing. Time passes
 * in proportion to the model's FLOPs, as these stand at the tensor that ends with them. While it
 * waits a rank polls the library and gives its core away, as an appliance does whose GPU computes;
 * with link.idle = "sleep" it does so ten times a millisecond and sleeps between. */
#include "tools/perf/perf_model.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "config/config.h"
#include "drivers/gpu.h"
#include "tools/common/tool_model.h"
#include "tools/perf/perf_values.h"

#define PAUSE_US 100.0 /* a slice of 256 KiB takes 2 ms at 1 Gbit/s, and several are under way */

static struct gf_tensor tensors[GF_TENSORS_MAX];
static char names[GF_TENSORS_MAX][48];
static struct tool_flops flops[GF_TENSORS_MAX];
static double ready_us[GF_TENSORS_MAX]; /* after the step's begin */

struct replay {
    gf_context *gf;
    const struct perf_options *options;
    uint32_t tensor_count;
    double compute_us;
    float *times_us; /* [PERF_SAMPLES_MAX * world] */
    uint64_t noise;
};

/* Fills ready_us; compute_us, or -1. */
static double schedule_make(const struct perf_options *options, uint32_t tensor_count)
{
    double all = 0;
    double forward = 0;
    double backward = 0;
    double compute_us = options->compute_ms * 1e3;
    for (uint32_t i = 0; i < tensor_count; i++) {
        forward += (double)flops[i].forward;
        all += (double)flops[i].forward + (double)flops[i].backward;
    }
    if ((compute_us > 0) && (all <= 0))
        return perf_refuse("the model has no flops: its tensors have no schedule");
    for (uint32_t i = 0; i < tensor_count; i++) {
        backward += (double)flops[i].backward;
        ready_us[i] = (compute_us > 0) ? compute_us * (forward + backward) / all : 0;
    }
    return compute_us;
}

static gf_status wait_until(struct replay *replay, double end_us)
{
    bool sleeps = replay->options->config.link.idle == GF_IDLE_SLEEP;
    for (double left_us = end_us - perf_now_us(); left_us > 0; left_us = end_us - perf_now_us()) {
        gf_status status = gf_step_poll(replay->gf);
        if (status < 0) return status;
        if (sleeps) {
            (void)nanosleep(
                &(struct timespec){.tv_nsec =
                                       (long)(1e3 * ((left_us < PAUSE_US) ? left_us : PAUSE_US))},
                NULL);
        } else {
            (void)sched_yield();
        }
    }
    return GF_OK;
}

static gf_status step_run(struct replay *replay)
{
    gf_status status = gf_step_begin(replay->gf);
    double begin_us = perf_now_us();
    for (uint32_t i = 0; (status >= 0) && (i < replay->tensor_count); i++) {
        status = wait_until(replay, begin_us + ready_us[i]);
        if (status >= 0) status = gf_tensor_ready(replay->gf, i, 0);
    }
    return (status < 0) ? status : gf_step_wait(replay->gf);
}

/* With an optimizer the weights move by nothing: only so does the library go on to the next
 * step. */
static gf_status step_apply(struct replay *replay)
{
    return (replay->options->config.optimizer.kind == GF_OPTIMIZER_NONE)
               ? GF_OK
               : gf_update(replay->gf, 0.0f);
}

static struct perf_values values_of(struct replay *replay, uint32_t tensor, uint64_t first_elem)
{
    return (struct perf_values){.data = (unsigned char *)(uintptr_t)gf_gradient(replay->gf, tensor),
                                .elem_count = tensors[tensor].elem_count,
                                .first_elem = first_elem,
                                .type = tensors[tensor].type,
                                .operation = GF_OPERATION_ALLREDUCE,
                                .world = gf_world(replay->gf),
                                .rank = gf_rank(replay->gf)};
}

/* A step on known values; leaves zeroes, which stay zero however often they are summed. */
static gf_status checked_step(struct replay *replay, uint64_t *wrong)
{
    bool check = replay->options->plan.check;
    gf_status status;
    uint64_t first = 0;
    for (uint32_t i = 0; check && (i < replay->tensor_count); first += tensors[i++].elem_count) {
        struct perf_values values = values_of(replay, i, first);
        perf_values_fill(&values);
    }
    if (((status = step_run(replay)) < 0) || ((status = step_apply(replay)) < 0)) return status;
    first = 0;
    for (uint32_t i = 0; i < replay->tensor_count; first += tensors[i++].elem_count) {
        struct perf_values values = values_of(replay, i, first);
        if (check) *wrong += perf_values_wrong(&values);
        memset(values.data, 0, values.elem_count * gf_type_size_bytes(values.type));
    }
    return GF_OK;
}

/* Sparse steps choose by what gradients hold: noise, so that what is sent lies all over the
 * pool. */
static void noise_fill(struct replay *replay)
{
    for (uint32_t i = 0; i < replay->tensor_count; i++) {
        struct perf_values values = values_of(replay, i, 0);
        for (uint64_t e = 0; e < values.elem_count; e++) {
            replay->noise =
                replay->noise * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            perf_value_put(&values, e, (float)(int32_t)(replay->noise >> 32) * 0x1p-31f);
        }
    }
}

static gf_status sample(struct replay *replay, float *us_out)
{
    gf_status status;
    double begin_us;
    if (replay->options->config.sparse.enabled) noise_fill(replay);
    status = perf_barrier(replay->gf);
    begin_us = perf_now_us();
    if (status >= 0) status = step_run(replay);
    *us_out = (float)(perf_now_us() - begin_us);
    return (status < 0) ? status : step_apply(replay);
}

static gf_status samples_run(struct replay *replay, uint32_t *count_out)
{
    gf_status status = sample(replay, replay->times_us);
    uint32_t count;
    if ((status < 0) || ((status = perf_greatest(replay->gf, replay->times_us, 1)) < 0))
        return status;
    count = perf_sample_count(&replay->options->plan, (double)replay->times_us[0]);
    for (uint32_t i = 0; (status >= 0) && (i < count); i++)
        status = sample(replay, &replay->times_us[i]);
    *count_out = count;
    return status;
}

/* Of the buffers of the last step: the algorithm of the largest. */
static gf_algorithm algorithm_of_largest(gf_context *gf)
{
    struct gf_trace_record records[64];
    gf_algorithm algorithm = GF_ALGORITHM_AUTO;
    uint64_t bytes = 0;
    uint32_t count;
    while ((count = gf_trace_read(gf, records, 64)) > 0)
        for (uint32_t i = 0; i < count; i++) {
            if ((records[i].operation != GF_OPERATION_STEP) || (records[i].bytes < bytes)) continue;
            bytes = records[i].bytes;
            algorithm = (gf_algorithm)records[i].algorithm;
        }
    return algorithm;
}

static gf_status replay_run(struct replay *replay, struct perf_row *row, struct perf_step *step)
{
    struct gf_stats stats = {.size_bytes = sizeof stats};
    uint64_t wrong = 0;
    uint32_t count = 0;
    gf_status status = checked_step(replay, &wrong);
    if ((status < 0) || ((status = samples_run(replay, &count)) < 0)) return status;
    if ((status = gf_stats_read(replay->gf, &stats)) < 0) return status;
    row->algorithm = algorithm_of_largest(replay->gf);
    if ((status = perf_greatest(replay->gf, replay->times_us, count)) < 0) return status;
    perf_row_fill(replay->times_us, count,
                  perf_bus_factor(GF_OPERATION_ALLREDUCE, gf_world(replay->gf)), row);
    step->exposed_us = (row->p50_us > replay->compute_us) ? row->p50_us - replay->compute_us : 0;
    step->exchange_us = (double)stats.last_exchange_ns * 1e-3;
    step->wire_bytes = stats.last_wire_bytes;
    step->buffer_count = stats.buffer_count;
    if ((status = checked_step(replay, &wrong)) < 0) return status;
    replay->times_us[0] = (float)wrong;
    if ((status = perf_greatest(replay->gf, replay->times_us, 1)) < 0) return status;
    row->wrong = (uint64_t)replay->times_us[0];
    return GF_OK;
}

static int replay_report(struct replay *replay, struct perf_report *report)
{
    struct perf_row *row = &report->rows[0];
    gf_status status;
    if (perf_report_begin(report, replay->gf, replay->options->json_path,
                          replay->options->csv_path) != 0)
        return -1;
    if (report->is_reporter) perf_report_head(report);
    status = replay_run(replay, row, &report->step);
    if (status < 0) return perf_fail(status, "a step failed");
    report->row_count = 1;
    if (report->is_reporter) perf_report_row(report, row);
    if (report->is_reporter) perf_report_step(report);
    if (row->wrong == 0) return 0;
    return report->is_reporter ? perf_refuse("results are wrong") : -1;
}

int perf_model(const struct perf_options *options, struct perf_report *report)
{
    static char error[GF_CONFIG_ERROR_BYTES];
    const struct gf_config *config = &options->config;
    struct replay replay = {.options = options};
    struct perf_session session;
    int result;
    struct tool_model model = {
        .tensors = tensors, .names = names, .flops = flops, .tensor_max = GF_TENSORS_MAX};
    if (tool_model_load(options->model_path, &model, error) < 0) return perf_refuse(error);
    replay.tensor_count = model.tensor_count;
    replay.compute_us = schedule_make(options, replay.tensor_count);
    if (replay.compute_us < 0) return -1;
    if (options->plan.check &&
        (config->sparse.enabled || (config->exchange.average > GF_AVERAGE_SUM)))
        return perf_refuse(
            "exact sums are checked: give --check 0 where there are means or sparse steps");
    if (gf_gpu_is_device(config->device.driver))
        return perf_refuse("--model writes gradients in host memory: leave device.driver out");
    report->step = (struct perf_step){.model = options->model_path,
                                      .tensor_count = replay.tensor_count,
                                      .compute_us = replay.compute_us};
    for (uint32_t i = 0; i < replay.tensor_count; i++) {
        report->rows[0].elem_count += tensors[i].elem_count;
        /* as fp32, whatever travels */
        report->rows[0].bytes += tensors[i].elem_count * sizeof(float);
    }
    result = perf_open(config, tensors, replay.tensor_count, &session);
    replay.gf = session.gf;
    replay.times_us = session.times_us;
    if (result == 0) replay.noise = gf_rank(session.gf) + 1u;
    if (result == 0) result = replay_report(&replay, report);
    perf_close(&session, result);
    return result;
}
