/* The real thing, small: opens the library as the job will, sums something over all ranks, and
 * leaves. */
#include "tools/check/check_preflight.h"

#include <stdio.h>

#include "tools/common/tool_clock.h"
#include "tools/common/tool_context.h"

#define JOIN_ELEMS 1024u

/* 1 + 2 + .. + world everywhere. */
static gf_status sum_try(gf_context *gf, bool *right_out)
{
    static float values[JOIN_ELEMS];
    struct gf_request request = {0};
    uint32_t world = gf_world(gf);
    /* exact: below 2^26 and a multiple of 4 beyond 2^24 */
    float want = (float)world * (float)(world + 1) / 2;
    gf_status status;
    for (uint32_t i = 0; i < JOIN_ELEMS; i++) values[i] = (float)(gf_rank(gf) + 1);
    status = gf_allreduce(gf, (gf_mem)(uintptr_t)values, JOIN_ELEMS, GF_TYPE_F32, &request);
    if (status == GF_OK) status = gf_request_wait(gf, &request);
    if (status != GF_OK) return status;
    *right_out = true;
    /* fp32 rounds a sum of thousands by parts in a million */
    for (uint32_t i = 0; i < JOIN_ELEMS; i++)
        if (!(values[i] > want * 0.999f) || !(values[i] < want * 1.001f)) *right_out = false;
    return GF_OK;
}

check_met check_join(struct check_report *report, const struct check_job *job)
{
    struct gf_config config = job->config;
    struct tool_context context;
    gf_context *gf;
    uint64_t begin_ns = tool_clock_ns();
    uint64_t open_ns;
    bool right = false;
    gf_status status;
    config.rendezvous.join_timeout_ns = job->deadline_ns;
    config.exchange.timeout_ns = job->deadline_ns;
    status = tool_context_open(&context, &config, job->tensors, job->tensor_count);
    if (status == GF_ERR_ARENA) {
        check_say(report, "join", CHECK_FAIL, "ulimit -v; fewer ranks a node, or a smaller model",
                  "there is no memory for a rank's control region");
        return CHECK_NOT_TRIED;
    }
    gf = context.gf;
    if (status == GF_OK) status = gf_open_wait(gf);
    open_ns = tool_clock_ns() - begin_ns;
    if (status == GF_OK) status = sum_try(gf, &right);
    if (status != GF_OK)
        check_say(report, "join", CHECK_FAIL, "what it names is what the job would end with",
                  "%s: %s", gf_status_name(status),
                  (gf != NULL) ? gf_error_last(gf)->text : "no context");
    else if (!right)
        check_say(report, "join", CHECK_FAIL,
                  "try link.private_memory, link.driver, and link.checksum",
                  "the ranks joined, but a sum over all of them is wrong");
    else
        check_say(report, "join", CHECK_OK, NULL,
                  "%u ranks joined in %.2f s, and a sum over all of them is right", gf_world(gf),
                  (double)open_ns / 1e9);
    if (status == GF_OK) check_large(report, job, gf);
    (void)tool_context_close(&context);
    if (status == GF_ERR_LINK) return CHECK_APART;
    return (status == GF_OK) ? CHECK_MET : CHECK_NOT_TRIED;
}
