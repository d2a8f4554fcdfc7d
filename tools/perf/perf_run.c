/* A sample: every rank rewrites its data, so that its lines are in its own cache as a gradient's
 * are that was just computed; a barrier; then the operation, timed. A sample's time is that of its
 * slowest rank. */
#include "tools/perf/perf_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/tool_clock.h"
#include "tools/perf/perf_values.h"

#define SAMPLES_MIN 3u /* the least that has a median of its own */

double perf_now_us(void)
{
    return (double)tool_clock_ns() * 1e-3;
}

const char *perf_type_name(gf_type type)
{
    static const char *const names[GF_TYPE_COUNT] = {"float", "half", "bfloat16"};
    return names[type];
}

const char *perf_redop_name(gf_reduction reduction)
{
    static const char *const names[GF_REDUCTION_COUNT] = {"sum", "min", "max"};
    return names[reduction];
}

gf_status perf_barrier(gf_context *gf)
{
    struct gf_request request = {0};
    gf_status status = gf_barrier(gf, &request);
    return (status < 0) ? status : gf_request_wait(gf, &request);
}

static gf_status checked_run(struct perf *perf, uint64_t elem_count, uint64_t *wrong)
{
    struct perf_values values = {.elem_count = elem_count,
                                 .type = perf->plan.type,
                                 .operation = perf->plan.operation,
                                 .reduction = perf->plan.reduction,
                                 .world = gf_world(perf->gf),
                                 .rank = gf_rank(perf->gf),
                                 .root = perf->plan.root};
    gf_status status = perf->way->fill(perf, values);
    if (status >= 0) status = perf->way->run(perf, elem_count);
    return (status < 0) ? status : perf->way->wrong(perf, values, wrong);
}

/* ---- time ---- */

static gf_status sample(struct perf *perf, uint64_t elem_count, float *us_out)
{
    gf_status status = perf->way->clear(perf, elem_count * gf_type_size_bytes(perf->plan.type));
    double begin_us;
    if ((status < 0) || ((status = perf_barrier(perf->gf)) < 0)) return status;
    begin_us = perf_now_us();
    status = perf->way->run(perf, elem_count);
    *us_out = (float)(perf_now_us() - begin_us);
    return status;
}

gf_status perf_greatest(gf_context *gf, float *times_us, uint32_t count)
{
    struct gf_request request = {0};
    uint32_t world = gf_world(gf);
    uint32_t rank = gf_rank(gf);
    gf_status status;
    if (rank != 0) memmove(times_us + (size_t)rank * count, times_us, count * sizeof(float));
    status = gf_allgather(gf, (gf_mem)(uintptr_t)times_us, (uint64_t)count * world, GF_TYPE_F32,
                          &request);
    if ((status < 0) || ((status = gf_request_wait(gf, &request)) < 0)) return status;
    for (uint32_t r = 1; r < world; r++)
        for (uint32_t i = 0; i < count; i++)
            if (times_us[(size_t)r * count + i] > times_us[i])
                times_us[i] = times_us[(size_t)r * count + i];
    return GF_OK;
}

uint32_t perf_sample_count(const struct perf_plan *plan, double estimate_us)
{
    double most = plan->seconds * 1e6 / (estimate_us + 1.0);
    if (plan->iters > 0) return (uint32_t)plan->iters;
    return (most < SAMPLES_MIN)        ? SAMPLES_MIN
           : (most > PERF_SAMPLES_MAX) ? PERF_SAMPLES_MAX
                                       : (uint32_t)most;
}

/* All ranks take as many samples: they agree on the slowest's estimate. One sample may last longer
 * than all should: then there is no other warm-up. */
static gf_status samples_plan(struct perf *perf, uint64_t elem_count, uint32_t *count_out)
{
    uint64_t warmup;
    gf_status status = sample(perf, elem_count, perf->times_us);
    if ((status < 0) || ((status = perf_greatest(perf->gf, perf->times_us, 1)) < 0)) return status;
    warmup = (uint64_t)(perf->plan.seconds * 1e6 / ((double)perf->times_us[0] + 1.0));
    if ((warmup > perf->plan.warmup) || (perf->plan.iters > 0)) warmup = perf->plan.warmup;
    for (uint64_t i = 0; (status >= 0) && (i < warmup); i++)
        status = sample(perf, elem_count, perf->times_us);
    if ((status < 0) || ((status = perf_greatest(perf->gf, perf->times_us, 1)) < 0)) return status;
    *count_out = perf_sample_count(&perf->plan, (double)perf->times_us[0]);
    return GF_OK;
}

static int compare(const void *a, const void *b)
{
    float left;
    float right;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

double perf_bus_factor(gf_operation operation, uint32_t world)
{
    double n = (double)world;
    switch (operation) {
    case GF_OPERATION_ALLREDUCE: return 2 * (n - 1) / n;
    case GF_OPERATION_REDUCE_SCATTER:
    case GF_OPERATION_ALLGATHER: return (n - 1) / n;
    default: return 1;
    }
}

void perf_row_fill(float *times_us, uint32_t count, double factor, struct perf_row *row)
{
    qsort(times_us, count, sizeof *times_us, compare);
    row->samples = count;
    row->min_us = (double)times_us[0];
    for (uint32_t i = 0; i < count; i++) row->mean_us += (double)times_us[i] / count;
    row->p50_us = 0.5 * ((double)times_us[(count - 1) / 2] + (double)times_us[count / 2]);
    row->p95_us = (double)times_us[(uint32_t)ceil(0.95 * count) - 1];
    row->p99_us = (double)times_us[(uint32_t)ceil(0.99 * count) - 1];
    row->algbw = (row->p50_us > 0) ? (double)row->bytes * 1e-3 / row->p50_us : 0;
    row->busbw = row->algbw * factor;
}

/* Of the newest such operation in the trace, which it reads to its end. */
static gf_algorithm algorithm_last(gf_context *gf, gf_operation operation)
{
    struct gf_trace_record records[64];
    gf_algorithm last = GF_ALGORITHM_AUTO;
    uint32_t count;
    while ((count = gf_trace_read(gf, records, 64)) > 0)
        for (uint32_t i = 0; i < count; i++)
            if (records[i].operation == operation) last = (gf_algorithm)records[i].algorithm;
    return last;
}

/* In place, or out of place where there is a source. */
static gf_status place_measure(struct perf *perf, uint64_t bytes, struct perf_row *row_out)
{
    struct perf_row row = {.elem_count = bytes / gf_type_size_bytes(perf->plan.type)};
    uint64_t wrong = 0;
    uint32_t count = 0;
    gf_status status = GF_OK;
    row.bytes = row.elem_count * gf_type_size_bytes(perf->plan.type);
    if (perf->plan.check) status = checked_run(perf, row.elem_count, &wrong);
    if (status >= 0) status = samples_plan(perf, row.elem_count, &count);
    for (uint32_t i = 0; (status >= 0) && (i < count); i++)
        status = sample(perf, row.elem_count, &perf->times_us[i]);
    if (status < 0) return status;
    row.algorithm =
        algorithm_last(perf->gf, perf->way->is_step ? GF_OPERATION_STEP : perf->plan.operation);
    if ((status = perf_greatest(perf->gf, perf->times_us, count)) < 0) return status;
    perf_row_fill(perf->times_us, count, perf_bus_factor(perf->plan.operation, gf_world(perf->gf)),
                  &row);
    if (perf->plan.check && ((status = checked_run(perf, row.elem_count, &wrong)) < 0))
        return status;
    perf->times_us[0] = (float)wrong;
    if ((status = perf_greatest(perf->gf, perf->times_us, 1)) < 0) return status;
    row.wrong = (uint64_t)perf->times_us[0];
    *row_out = row;
    return GF_OK;
}

gf_status perf_measure(struct perf *perf, uint64_t bytes, struct perf_row *row_out)
{
    struct perf in_place = *perf;
    struct perf_row out;
    gf_status status;
    in_place.source = 0;
    if (((status = place_measure(&in_place, bytes, row_out)) < 0) || (perf->source == 0))
        return status;
    if ((status = place_measure(perf, bytes, &out)) < 0) return status;
    row_out->out_us = out.p50_us;
    row_out->out_algbw = out.algbw;
    row_out->out_busbw = out.busbw;
    row_out->out_wrong = out.wrong;
    return GF_OK;
}

/* ---- the library's collectives, posted as requests, on data in host memory ---- */

static void *memory(gf_mem address)
{
    return (void *)(uintptr_t)address;
}

static gf_status host_clear(struct perf *perf, uint64_t bytes)
{
    if (bytes > 0) memset(memory(perf_input(perf)), 0, bytes);
    return GF_OK;
}

static gf_status host_run(struct perf *perf, uint64_t elem_count)
{
    struct gf_request request = {0};
    gf_type type = perf->plan.type;
    gf_reduction reduction = perf->plan.reduction;
    gf_status status;
    if (perf->source != 0)
        memcpy(memory(perf->data), memory(perf->source), elem_count * gf_type_size_bytes(type));
    switch (perf->plan.operation) {
    case GF_OPERATION_BROADCAST:
        status = gf_broadcast(perf->gf, perf->data, elem_count, type, perf->plan.root, &request);
        break;
    case GF_OPERATION_REDUCE_SCATTER:
        status = gf_reduce_scatter(perf->gf, perf->data, elem_count, type, &request);
        break;
    case GF_OPERATION_ALLGATHER:
        status = gf_allgather(perf->gf, perf->data, elem_count, type, &request);
        break;
    case GF_OPERATION_BARRIER: status = gf_barrier(perf->gf, &request); break;
    default:
        status = gf_allreduce_by(perf->gf, reduction, perf->data, elem_count, type, &request);
        break;
    }
    return (status < 0) ? status : gf_request_wait(perf->gf, &request);
}

static gf_status host_fill(struct perf *perf, struct perf_values values)
{
    values.data = memory(perf_input(perf));
    perf_values_fill(&values);
    return GF_OK;
}

static gf_status host_wrong(struct perf *perf, struct perf_values values, uint64_t *wrong)
{
    values.data = memory(perf->data);
    *wrong += perf_values_wrong(&values);
    return GF_OK;
}

const struct perf_way perf_host = {
    .clear = host_clear, .run = host_run, .fill = host_fill, .wrong = host_wrong};

/* ---- a context and its memory ---- */

int perf_refuse(const char *text)
{
    fprintf(stderr, "gf-perf: %s\n", text);
    return -1;
}

int perf_fail(gf_status status, const char *at)
{
    fprintf(stderr, "gf-perf: %s: %s\n", at, gf_status_name(status));
    return -1;
}

int perf_open(const struct gf_config *config, const struct gf_tensor *tensors,
              uint32_t tensor_count, struct perf_session *session)
{
    *session = (struct perf_session){.gf = NULL};
    gf_status status = tool_context_open(&session->context, config, tensors, tensor_count);
    session->gf = session->context.gf;
    if (status == GF_ERR_ARENA) return perf_refuse("there is no memory for the control region");
    if (status >= 0) status = gf_open_wait(session->gf);
    if (status < 0) return perf_fail(status, "cannot open");
    session->times_us =
        tool_memory((size_t)PERF_SAMPLES_MAX * gf_world(session->gf) * sizeof(float));
    return (session->times_us == NULL) ? perf_refuse(PERF_NO_MEMORY) : 0;
}

void perf_close(struct perf_session *session, int result)
{
    if ((result != 0) && (session->gf != NULL)) gf_abort(session->gf);
    (void)tool_context_close(&session->context);
    free(session->times_us);
    *session = (struct perf_session){.gf = NULL};
}
