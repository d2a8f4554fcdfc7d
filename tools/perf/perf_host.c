/* The library's collectives, posted as requests, on data in host memory. */
#include <string.h>

#include "tools/perf/perf_run.h"
#include "tools/perf/perf_values.h"

static void *memory(gf_mem address) { return (void *)(uintptr_t)address; }

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
    if (perf->source != 0) memcpy(memory(perf->data), memory(perf->source), elem_count * gf_type_size_bytes(type));
    switch (perf->plan.operation) {
    case GF_OPERATION_BROADCAST:
        status = gf_broadcast(perf->gf, perf->data, elem_count, type, perf->plan.root, &request);
        break;
    case GF_OPERATION_REDUCE_SCATTER:
        status = gf_reduce_scatter(perf->gf, perf->data, elem_count, type, &request);
        break;
    case GF_OPERATION_ALLGATHER: status = gf_allgather(perf->gf, perf->data, elem_count, type, &request); break;
    case GF_OPERATION_BARRIER: status = gf_barrier(perf->gf, &request); break;
    default: status = gf_allreduce_by(perf->gf, reduction, perf->data, elem_count, type, &request); break;
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

const struct perf_way perf_host = {.clear = host_clear, .run = host_run, .fill = host_fill, .wrong = host_wrong};
