/* See progress.h. */
#include "lib/context.h"
#include "lib/core/accessors.h"

/* Reading the control channel is a system call. A rank that spins does not make it at each poll; a
 * rank that polls only between layers makes it soon. */
#define CONTROL_EVERY 64u
#define CONTROL_EVERY_NS UINT64_C(1000000)
/* The same for the link while no message is awaited: polling it takes as long as a small operation
 * through memory. */
#define PROGRESS_EVERY_NS UINT64_C(200000)

gf_status gf_enter(gf_context *gf)
{
    return gf_is_well(gf) ? GF_OK : gf_enter_ill(gf);
}

gf_status gf_enter_poll(gf_context *gf)
{
    gf_status status = gf_enter(gf);
    return ((status < 0) && (gf_own(gf) == GF_OK) && (gf->phase == GF_PHASE_FAILING)) ? GF_OK
                                                                                      : status;
}

uint64_t gf_gap_most_ns(const gf_context *gf)
{
    uint64_t most_ns = gf->config.exchange.timeout_ns / 4;
    return (most_ns < GF_GAP_NS) ? most_ns : GF_GAP_NS;
}

uint64_t gf_poll_begin(gf_context *gf)
{
    uint64_t now_ns = gf_now(gf);
    uint64_t most_ns = gf_gap_most_ns(gf);
    uint64_t gap_ns = now_ns - gf->polled.at_ns;
    gf->polled.at_ns = now_ns;
    if (gap_ns <= most_ns) return now_ns;
    gf->polled.away_ns += gap_ns - most_ns;
    gf_ops_forgive(gf, gap_ns - most_ns);
    return now_ns;
}

/* A rank has called gf_heartbeat(): for the ranks that wait for it that counts as if something had
 * moved then. */
static void patience_have(gf_context *gf, uint64_t now_ns)
{
    uint64_t from = 0;
    uint64_t left_ns = gf_control_patience(gf->control, gf_awake(gf), &from);
    uint64_t timeout_ns = gf->config.exchange.timeout_ns;
    if ((left_ns > 0) && (now_ns + left_ns > timeout_ns))
        gf_ops_patient(gf, from, now_ns + left_ns - timeout_ns);
}

/* A rank has closed, and this rank is in a step that the closed rank did not end. No rank can end
 * that step. */
static gf_status closed_check(gf_context *gf)
{
    uint32_t rank;
    uint64_t step;
    if ((gf->phase != GF_PHASE_STEP) || !gf_control_closed(gf->control, &rank, &step)) return GF_OK;
    if (gf_step_is_whole(gf) || (gf->step.number <= step)) return GF_OK;
    return gf_fail(gf, GF_ERR_PEER, GF_OPERATION_STEP, rank, GF_TENSOR_NONE,
                   "rank %u closed after %llu steps, and this one is in step %llu", rank,
                   (unsigned long long)step, (unsigned long long)gf->step.number);
}

gf_status gf_progress(gf_context *gf, uint64_t now_ns)
{
    gf_status status;
    /* also in the middle of a wait */
    if (gf_aborted(gf) && ((status = gf_enter(gf)) < 0)) return status;
    if ((gf->algorithm == GF_ALGORITHM_DIRECT) &&
        (now_ns - gf->polled.link_ns < PROGRESS_EVERY_NS) && !gf_ops_have_messages(gf))
        return GF_OK;
    gf->polled.link_ns = now_ns;
    /* once: a system call over tcp, and what came may be awaited */
    if (gf->link->driver->progress(gf->link)) gf->wait_state.moved_ns = now_ns;
    if (gf->link->failed < 0) return gf_fail_fault(gf, &gf->link->fault, gf_doing(gf));
    if ((gf->polled.control_skip > 0) && (now_ns - gf->polled.control_ns < CONTROL_EVERY_NS)) {
        gf->polled.control_skip--;
        return GF_OK;
    }
    gf->polled.control_skip = CONTROL_EVERY;
    gf->polled.control_ns = now_ns;
    switch (gf_poll_control(gf)) {
    case GF_CONTROL_WORKS: break;
    case GF_CONTROL_AWAITS: /* gf_heartbeat() in a join or at the end: nothing has failed */
    case GF_CONTROL_LEAVES:
    case GF_CONTROL_LEFT: return GF_OK;
    case GF_CONTROL_FAILED:
    case GF_CONTROL_ENDED: return gf_fail_from(gf, gf_control_error(gf->control));
    }
    patience_have(gf, now_ns);
    return closed_check(gf);
}
