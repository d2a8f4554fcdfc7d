/* See perf_open.h. */
#include "tools/perf/perf_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int perf_refuse(const char *text)
{
    fprintf(stderr, "gf-perf: %s\n", text);
    return -1;
}

int perf_fail(const gf_context *gf, gf_status status, const char *at)
{
    const struct gf_error *error = (gf != NULL) ? gf_error_last(gf) : NULL;
    bool told = (error != NULL) && (error->code != GF_OK);
    fprintf(stderr, "gf-perf: %s: %s%s%s\n", at, gf_status_name(status), told ? ": " : "", told ? error->text : "");
    return -1;
}

void *perf_memory(size_t size_bytes)
{
    void *memory = aligned_alloc(64, (size_bytes + 63) & ~(size_t)63);
    if (memory != NULL) memset(memory, 0, size_bytes);
    return memory;
}

int perf_open(const struct gf_config *config, const struct gf_tensor *tensors, uint32_t tensor_count,
              struct perf_session *session)
{
    struct gf_footprint need;
    gf_status status = gf_measure(config, tensors, tensor_count, &need);
    *session = (struct perf_session){.gf = NULL};
    if (status < 0) return perf_fail(NULL, status, "cannot open");
    session->memory = perf_memory(need.control_bytes);
    if (session->memory == NULL) return perf_refuse("there is no memory for the control region");
    status = gf_open(config, tensors, tensor_count, session->memory, need.control_bytes, &session->gf);
    if (status >= 0) status = gf_open_wait(session->gf);
    if (status < 0) return perf_fail(session->gf, status, "cannot open");
    session->times_us = perf_memory((size_t)PERF_SAMPLES_MAX * gf_world(session->gf) * sizeof(float));
    return (session->times_us == NULL) ? perf_refuse(PERF_NO_MEMORY) : 0;
}

void perf_close(struct perf_session *session, int result)
{
    if ((result != 0) && (session->gf != NULL)) gf_abort(session->gf);
    (void)gf_close(session->gf);
    free(session->memory);
    free(session->times_us);
    *session = (struct perf_session){.gf = NULL};
}
