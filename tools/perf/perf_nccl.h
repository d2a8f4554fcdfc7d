/* NCCL beside the library: libnccl.so.2 is looked for when the program runs, and never linked. */
#ifndef PERF_NCCL_H
#define PERF_NCCL_H

#include "tools/perf/perf_run.h"

struct perf_device;

/* The few calls of nccl.h (2.x) that are needed, with its types as they are passed. Results: 0 is
 * success. */
struct perf_nccl_id {
    char bytes[128];
};
struct perf_nccl_calls {
    int (*ncclGetVersion)(int *version_out);
    int (*ncclGetUniqueId)(struct perf_nccl_id *id_out);
    int (*ncclCommInitRank)(void **comm_out, int ranks, struct perf_nccl_id id, int rank);
    int (*ncclAllReduce)(const void *send, void *receive, size_t count, int type, int reduction,
                         void *comm, void *stream);
    int (*ncclCommDestroy)(void *comm);
    int (*ncclCommAbort)(void *comm);
    const char *(*ncclGetErrorString)(int result);
};

struct perf_nccl {
    struct perf_nccl_calls calls;
    void *library, *comm;
    bool is_open;
    char text[160]; /* its version; or why there are no rows of it */
};

/* With perf->of a struct perf_device, on all ranks, which agree: is_open where each has the library
 * and a GPU of its own. May block while NCCL connects. Below 0: the context has failed. */
gf_status perf_nccl_open(struct perf *perf, const char *path);
void perf_nccl_close(struct perf_device *device, int result);

extern const struct perf_way perf_nccl;

#endif
