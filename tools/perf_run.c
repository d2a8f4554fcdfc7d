/* A sample: every rank rewrites its data, so that its lines are in its own cache as a gradient's are that was just
 * computed; a barrier; then the operation, timed. A sample's time is that of its slowest rank. */
#include "perf_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "half.h"

#define PATTERN 7u /* values are below it, so that sums of dozens of ranks are exact in every type */

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

const char *perf_type_name(gf_type type)
{
    static const char *const names[GF_TYPE_COUNT] = {"float", "half", "bfloat16"};
    return names[type];
}

static gf_status operation_run(struct perf *perf, uint64_t elem_count)
{
    struct gf_request request = {0};
    gf_mem data = (gf_mem)(uintptr_t)perf->data;
    gf_type type = perf->plan.type;
    gf_status status;
    switch (perf->plan.operation) {
    case GF_OPERATION_BROADCAST: status = gf_broadcast(perf->gf, data, elem_count, type, 0, &request); break;
    case GF_OPERATION_REDUCE_SCATTER: status = gf_reduce_scatter(perf->gf, data, elem_count, type, &request); break;
    case GF_OPERATION_ALLGATHER: status = gf_allgather(perf->gf, data, elem_count, type, &request); break;
    case GF_OPERATION_BARRIER: status = gf_barrier(perf->gf, &request); break;
    default: status = gf_allreduce(perf->gf, data, elem_count, type, &request); break;
    }
    return (status < 0) ? status : gf_request_wait(perf->gf, &request);
}

static gf_status barrier_run(struct perf *perf)
{
    struct gf_request request = {0};
    gf_status status = gf_barrier(perf->gf, &request);
    return (status < 0) ? status : gf_request_wait(perf->gf, &request);
}

/* ---- values ---- */

static uint32_t bits_of(gf_type type, float value)
{
    if (type == GF_TYPE_F16) return gf_f16_of_f32(value);
    return (type == GF_TYPE_BF16) ? gf_bf16_of_f32(value) : gf_f32_bits(value);
}

static uint32_t pattern_of(const struct perf *perf)
{
    return (gf_world(perf->gf) * (PATTERN - 1) <= 256) ? PATTERN : 2; /* bf16 holds whole numbers up to 256 */
}

static void fill(struct perf *perf, uint64_t elem_count)
{
    size_t size = gf_type_size_bytes(perf->plan.type);
    uint32_t pattern = pattern_of(perf);
    for (uint64_t i = 0; i < elem_count; i++) {
        uint32_t bits = bits_of(perf->plan.type, (float)((i + gf_rank(perf->gf)) % pattern));
        memcpy(perf->data + i * size, &bits, size);
    }
}

/* What a rank holds behind the operation where all were filled as above. */
static void wanted(const struct perf *perf, uint32_t from_rank, uint32_t *bits_out)
{
    uint32_t pattern = pattern_of(perf);
    bool sums = (perf->plan.operation == GF_OPERATION_ALLREDUCE) || (perf->plan.operation == GF_OPERATION_REDUCE_SCATTER);
    for (uint32_t i = 0; i < pattern; i++) {
        float value = (float)((i + from_rank) % pattern);
        if (sums) {
            value = 0;
            for (uint32_t rank = 0; rank < gf_world(perf->gf); rank++) value += (float)((i + rank) % pattern);
        }
        bits_out[i] = bits_of(perf->plan.type, value);
    }
}

static uint64_t wrong_in(const struct perf *perf, uint64_t first, uint64_t count, uint32_t from_rank)
{
    size_t size = gf_type_size_bytes(perf->plan.type);
    uint32_t want[PATTERN], pattern = pattern_of(perf);
    uint64_t wrong = 0;
    wanted(perf, from_rank, want);
    for (uint64_t i = first; i < first + count; i++) {
        uint32_t got = 0;
        memcpy(&got, perf->data + i * size, size);
        wrong += got != want[i % pattern];
    }
    return wrong;
}

static uint64_t wrong_count(const struct perf *perf, uint64_t elem_count)
{
    uint32_t world = gf_world(perf->gf);
    uint64_t first, count, wrong = 0;
    switch (perf->plan.operation) {
    case GF_OPERATION_BARRIER: return 0;
    case GF_OPERATION_REDUCE_SCATTER:
        gf_block(elem_count, world, gf_rank(perf->gf), &first, &count);
        return wrong_in(perf, first, count, 0);
    case GF_OPERATION_ALLGATHER:
        for (uint32_t rank = 0; rank < world; rank++) {
            gf_block(elem_count, world, rank, &first, &count);
            wrong += wrong_in(perf, first, count, rank);
        }
        return wrong;
    default: return wrong_in(perf, 0, elem_count, 0);
    }
}

static gf_status checked_run(struct perf *perf, uint64_t elem_count, uint64_t *wrong)
{
    gf_status status;
    fill(perf, elem_count);
    if ((status = operation_run(perf, elem_count)) < 0) return status;
    *wrong += wrong_count(perf, elem_count);
    return GF_OK;
}

/* ---- time ---- */

static gf_status sample(struct perf *perf, uint64_t elem_count, float *us_out)
{
    gf_status status;
    double begin_us;
    memset(perf->data, 0, elem_count * gf_type_size_bytes(perf->plan.type));
    if ((status = barrier_run(perf)) < 0) return status;
    begin_us = now_us();
    status = operation_run(perf, elem_count);
    *us_out = (float)(now_us() - begin_us);
    return status;
}

/* values[count] of each rank, behind each other in times_us, become their greatest. */
static gf_status greatest(struct perf *perf, uint32_t count)
{
    struct gf_request request = {0};
    uint32_t world = gf_world(perf->gf), rank = gf_rank(perf->gf);
    gf_status status;
    if (rank != 0) memmove(perf->times_us + (size_t)rank * count, perf->times_us, count * sizeof(float));
    status = gf_allgather(perf->gf, (gf_mem)(uintptr_t)perf->times_us, (uint64_t)count * world, GF_TYPE_F32, &request);
    if ((status < 0) || ((status = gf_request_wait(perf->gf, &request)) < 0)) return status;
    for (uint32_t r = 1; r < world; r++)
        for (uint32_t i = 0; i < count; i++)
            if (perf->times_us[(size_t)r * count + i] > perf->times_us[i])
                perf->times_us[i] = perf->times_us[(size_t)r * count + i];
    return GF_OK;
}

/* All ranks take as many samples: they agree on the slowest's estimate. */
static gf_status samples_plan(struct perf *perf, uint64_t elem_count, uint32_t *count_out)
{
    gf_status status = GF_OK;
    double most;
    for (uint64_t i = 0; (status >= 0) && (i <= perf->plan.warmup); i++)
        status = sample(perf, elem_count, perf->times_us);
    if ((status < 0) || ((status = greatest(perf, 1)) < 0)) return status;
    most = perf->plan.seconds * 1e6 / ((double)perf->times_us[0] + 1.0);
    *count_out = (most < 5) ? 5 : (most > PERF_SAMPLES_MAX) ? PERF_SAMPLES_MAX : (uint32_t)most;
    if (perf->plan.iters > 0) *count_out = (uint32_t)perf->plan.iters;
    return GF_OK;
}

static int compare(const void *a, const void *b)
{
    float left, right;
    memcpy(&left, a, sizeof left);
    memcpy(&right, b, sizeof right);
    return (left > right) - (left < right);
}

static double bus_factor(gf_operation operation, uint32_t world)
{
    double n = (double)world;
    switch (operation) {
    case GF_OPERATION_ALLREDUCE: return 2 * (n - 1) / n;
    case GF_OPERATION_REDUCE_SCATTER:
    case GF_OPERATION_ALLGATHER: return (n - 1) / n;
    default: return 1;
    }
}

static void row_fill(struct perf *perf, uint32_t count, struct perf_row *row)
{
    const float *times = perf->times_us;
    qsort(perf->times_us, count, sizeof *times, compare);
    row->samples = count;
    row->min_us = (double)times[0];
    row->max_us = (double)times[count - 1];
    row->p50_us = 0.5 * ((double)times[(count - 1) / 2] + (double)times[count / 2]);
    row->p99_us = (double)times[(uint32_t)ceil(0.99 * count) - 1];
    row->algbw = (row->p50_us > 0) ? (double)row->bytes * 1e-3 / row->p50_us : 0;
    row->busbw = row->algbw * bus_factor(perf->plan.operation, gf_world(perf->gf));
}

static gf_algorithm last_algorithm(gf_context *gf)
{
    struct gf_trace_record records[64];
    gf_algorithm last = GF_ALGORITHM_AUTO;
    uint32_t count;
    while ((count = gf_trace_read(gf, records, 64)) > 0) last = (gf_algorithm)records[count - 1].algorithm;
    return last;
}

gf_status perf_measure(struct perf *perf, uint64_t bytes, struct perf_row *row_out)
{
    struct perf_row row = {.elem_count = bytes / gf_type_size_bytes(perf->plan.type)};
    uint64_t wrong = 0;
    uint32_t count = 0;
    gf_status status = GF_OK;
    row.bytes = row.elem_count * gf_type_size_bytes(perf->plan.type);
    if (perf->plan.check) status = checked_run(perf, row.elem_count, &wrong);
    if (status >= 0) status = samples_plan(perf, row.elem_count, &count);
    for (uint32_t i = 0; (status >= 0) && (i < count); i++) status = sample(perf, row.elem_count, &perf->times_us[i]);
    if (status < 0) return status;
    row.algorithm = last_algorithm(perf->gf);
    if ((status = greatest(perf, count)) < 0) return status;
    row_fill(perf, count, &row);
    if (perf->plan.check && ((status = checked_run(perf, row.elem_count, &wrong)) < 0)) return status;
    perf->times_us[0] = (float)wrong;
    if ((status = greatest(perf, 1)) < 0) return status;
    row.wrong = (uint64_t)perf->times_us[0];
    *row_out = row;
    return GF_OK;
}
