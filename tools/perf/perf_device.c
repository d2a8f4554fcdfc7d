/* See perf_device.h. The time of an allreduce is that of a whole step: what the library puts before
 * the exchange and after it, the vote and, until the appliance's stream may go on, all of the
 * device's work. */
#include "tools/perf/perf_device.h"

#include <stdio.h>

#include "tools/perf/perf_values.h"

#define STAGING_BYTES (UINT64_C(4) << 20)

static struct perf_device *device_of(const struct perf *perf)
{
    return perf->of;
}

gf_status perf_device_check(const struct perf_device *device, gf_status status)
{
    if (status < 0) fprintf(stderr, "gf-perf: %s\n", device->own.gpu->fault.text);
    return status;
}

gf_status perf_device_wait(struct perf *perf)
{
    struct perf_device *device = device_of(perf);
    double end_us = perf_now_us() + (double)device->timeout_ns * 1e-3;
    gf_status status;
    while ((status = device->own.gpu->driver->finished(&device->own.queue)) == GF_AGAIN) {
        if ((status = gf_heartbeat(perf->gf)) < 0) return status;
        if (perf_now_us() < end_us) continue;
        fprintf(stderr, "gf-perf: the device did not end its work within exchange.timeout\n");
        return GF_ERR_TIMEOUT;
    }
    return perf_device_check(device, status);
}

/* Queued. */
static gf_status device_copy(struct perf *perf, gf_mem dst, gf_mem src, uint64_t bytes)
{
    struct perf_device *device = device_of(perf);
    return perf_device_check(device,
                             device->own.gpu->driver->copy(&device->own.queue, dst, src, bytes));
}

gf_status perf_device_clear(struct perf *perf, uint64_t bytes)
{
    struct perf_device *device = device_of(perf);
    gf_status status = device->own.gpu->driver->zero(&device->own.queue, perf_input(perf), bytes);
    return (status < 0) ? perf_device_check(device, status) : perf_device_wait(perf);
}

/* values of as much as the staging holds, from element `first` on. */
static struct perf_values values_part(const struct perf *perf, const struct perf_values *values,
                                      uint64_t first)
{
    uint64_t most = STAGING_BYTES / gf_type_size_bytes(values->type);
    uint64_t left = values->elem_count - first;
    struct perf_values part = *values;
    part.data = device_of(perf)->own.host;
    part.first_elem = first;
    part.elem_count = (left < most) ? left : most;
    return part;
}

gf_status perf_device_fill(struct perf *perf, struct perf_values values)
{
    gf_mem staging = (gf_mem)(uintptr_t)device_of(perf)->own.host;
    uint64_t size = gf_type_size_bytes(values.type);
    gf_status status = GF_OK;
    for (uint64_t first = 0; (status >= 0) && (first < values.elem_count);) {
        struct perf_values part = values_part(perf, &values, first);
        perf_values_fill(&part);
        status =
            device_copy(perf, perf_input(perf) + first * size, staging, part.elem_count * size);
        if (status >= 0) status = perf_device_wait(perf);
        first += part.elem_count;
    }
    return status;
}

gf_status perf_device_wrong(struct perf *perf, struct perf_values values, uint64_t *wrong)
{
    gf_mem staging = (gf_mem)(uintptr_t)device_of(perf)->own.host;
    uint64_t size = gf_type_size_bytes(values.type);
    gf_status status = GF_OK;
    for (uint64_t first = 0; (status >= 0) && (first < values.elem_count);) {
        struct perf_values part = values_part(perf, &values, first);
        status = device_copy(perf, staging, perf->data + first * size, part.elem_count * size);
        if (status >= 0) status = perf_device_wait(perf);
        if (status >= 0) *wrong += perf_values_wrong(&part);
        first += part.elem_count;
    }
    return status;
}

static gf_status step_run(struct perf *perf, uint64_t elem_count)
{
    struct perf_device *device = device_of(perf);
    gf_status status = gf_step_begin(perf->gf);
    if ((status >= 0) && (perf->source != 0))
        status = device_copy(perf, perf->data, perf->source,
                             elem_count * gf_type_size_bytes(perf->plan.type));
    if (status >= 0) status = gf_tensor_ready(perf->gf, 0, device->own.queue.stream);
    if (status >= 0) status = gf_step_wait(perf->gf);
    if (status >= 0) status = gf_queue_follow(perf->gf, device->own.queue.stream);
    return (status < 0) ? status : perf_device_wait(perf);
}

static const struct perf_way step_way = {.is_step = true,
                                         .clear = perf_device_clear,
                                         .run = step_run,
                                         .fill = perf_device_fill,
                                         .wrong = perf_device_wrong};

/* ---- open to close ---- */

static int device_open(const struct perf_options *options, struct perf_device *device)
{
    const struct gf_config *config = &options->config;
    uint64_t range = (options->bytes_max + 255) / 256 * 256;
    if (tool_gpu_open(&device->own, config, 2 * range, STAGING_BYTES, NULL) < 0)
        return perf_refuse(tool_gpu_error(&device->own));
    device->source = device->own.gpu->arena;
    device->target = device->source + range;
    device->timeout_ns =
        (config->exchange.timeout_ns > 0) ? config->exchange.timeout_ns : UINT64_C(30000000000);
    return 0;
}

/* A context, our row and NCCL's. */
static int size_run(const struct perf_options *options, struct perf_device *device, uint64_t bytes,
                    struct perf_report *report)
{
    struct perf perf = {
        .plan = options->plan, .way = &step_way, .of = device, .source = device->source};
    const struct gf_tensor tensor = {.name = "data",
                                     .type = options->plan.type,
                                     .elem_count = bytes / gf_type_size_bytes(options->plan.type)};
    struct gf_stats stats = {.size_bytes = sizeof stats};
    struct perf_row *row = &report->rows[report->row_count];
    struct perf_session session;
    gf_status status = GF_OK;
    int result = perf_open(&options->config, &tensor, 1, &session);
    if (result == 0)
        result = perf_report_begin(report, session.gf, options->json_path, options->csv_path);
    if (result == 0) {
        perf.gf = session.gf;
        perf.times_us = session.times_us;
        perf.data = gf_gradient(perf.gf, 0);
        perf.plan.seconds *= 0.5; /* for each place */
    }
    if ((result == 0) && (report->row_count == 0)) {
        status = perf_nccl_open(&perf, options->nccl_path);
        if (status >= 0) status = gf_stats_read(perf.gf, &stats);
        (void)snprintf(report->gpu, sizeof report->gpu, "%s", device->own.gpu->name);
        report->path = gf_path_name((gf_path)stats.path);
        (void)snprintf(report->nccl, sizeof report->nccl, "%s", device->nccl.text);
        if (report->is_reporter && (status >= 0)) perf_report_head(report);
    }
    if ((result == 0) && (status >= 0)) status = perf_measure(&perf, bytes, row);
    if ((result == 0) && (status >= 0) && device->nccl.is_open) {
        perf.way = &perf_nccl;
        perf.data = device->target;
        status = perf_measure(&perf, bytes, &report->nccl_rows[report->row_count]);
    }
    if ((result == 0) && (status < 0)) result = perf_fail(status, "a measurement failed");
    if (result == 0) {
        const struct perf_row *theirs = &report->nccl_rows[report->row_count++];
        if (report->is_reporter) perf_report_row(report, row);
        if (row->wrong + row->out_wrong > 0)
            result = report->is_reporter ? perf_refuse("results are wrong") : -1;
        if (theirs->wrong + theirs->out_wrong > 0)
            result = report->is_reporter ? perf_refuse("NCCL's results are wrong") : -1;
    }
    perf_close(&session, result);
    return result;
}

int perf_device_run(const struct perf_options *options, struct perf_report *report)
{
    struct perf_device device = {.source = 0};
    int result = device_open(options, &device);
    for (uint64_t bytes = options->bytes_min; (result == 0) && (bytes <= options->bytes_max);
         bytes *= options->factor)
        result = size_run(options, &device, bytes, report);
    if (report->is_reporter && (report->row_count > 0)) perf_report_foot(report);
    perf_nccl_close(&device, result);
    tool_gpu_close(&device.own);
    return result;
}
