/* gf-perf --device cuda: an allreduce of gradients that lie on a GPU, which in this library is a
 * step of one tensor, and NCCL's beside it. Each size has a context of its own. */
#ifndef PERF_DEVICE_H
#define PERF_DEVICE_H

#include "tools/common/tool_context.h"
#include "tools/perf/perf_nccl.h"
#include "tools/perf/perf_options.h"
#include "tools/perf/perf_report.h"

/* The program's own part of the rank's GPU: what goes into gradients and comes out of them, and
 * what NCCL works on. */
struct perf_device {
    struct tool_gpu own;
    gf_mem source, target; /* [bytes_max] each, of its arena */
    uint64_t timeout_ns;   /* of work that is waited for */
    struct perf_nccl nccl;
};

/* Sizes, rows and, where there is a libnccl, NCCL's rows; 0, or -1: it said why on stderr. */
int perf_device_run(const struct perf_options *options, struct perf_report *report);

/* For ways whose data lies there, with perf->of a struct perf_device. They wait until it is
 * done. */
gf_status perf_device_clear(struct perf *perf, uint64_t bytes);
gf_status perf_device_fill(struct perf *perf, struct perf_values values);
gf_status perf_device_wrong(struct perf *perf, struct perf_values values, uint64_t *wrong);
gf_status perf_device_wait(struct perf *perf);
/* says on stderr what failed */
gf_status perf_device_check(const struct perf_device *device, gf_status status);

#endif
