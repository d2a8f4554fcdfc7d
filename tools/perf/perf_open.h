/* A context and its memory, for a program that opens one after the other. */
#ifndef PERF_OPEN_H
#define PERF_OPEN_H

#include "tools/perf/perf_run.h"

struct perf_session {
    gf_context *gf;
    void *memory;
    float *times_us; /* [world][PERF_SAMPLES_MAX] */
};

/* May block until all ranks are there. 0, or -1: it said why on stderr. In both cases perf_close() gives all back. Where
 * result is no success it aborts, and the other ranks learn of it; else it may block until they are ready to leave. */
int perf_open(const struct gf_config *config, const struct gf_tensor *tensors, uint32_t tensor_count,
              struct perf_session *session);
void perf_close(struct perf_session *session, int result);

/* Zeroed and aligned to a cache line; NULL where there is none. free() it. */
void *perf_memory(size_t size_bytes);
/* Both give -1. */
#define PERF_NO_MEMORY "there is no memory for the measurement"
int perf_refuse(const char *text);
int perf_fail(const gf_context *gf, gf_status status, const char *at);

#endif
