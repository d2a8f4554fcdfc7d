/* Leaving and closing. */
#include <stdio.h>

#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"
#include "drivers/base/arithmetic.h"

#define FLUSH_POLLS 64u

void gf_drivers_close(gf_context *gf)
{
    if ((gf->gpu != NULL) && gf->on_device) {
        gf_ipc_close(gf);
        if (gf->link != NULL) (void)gf_device_region_close(gf);
    }
    if (gf->link != NULL) gf->link->driver->close(gf->link);
    if (gf->control != NULL) gf_control_close(gf->control);
    if (gf->gpu != NULL) gf->gpu->driver->close(gf->gpu);
    gf->link = NULL;
    gf->control = NULL;
    gf->gpu = NULL;
}

/* A rank that could continue and does not reports that, or the others would wait for it. */
static void give_up(gf_context *gf)
{
    if (gf->control == NULL) return;
    gf_control_state state = gf_control_current_state(gf->control);
    if ((state == GF_CONTROL_LEAVES) || gf_control_is_final(gf->control)) return;
    struct gf_error error = gf->error;
    if (error.code == GF_OK) error.code = GF_ERR_ABORTED;
    if (error.text[0] == '\0')
        (void)snprintf(error.text, sizeof error.text, "it closed its context");
    gf_control_fault(gf->control, &error, gf_steps(gf), true);
}

/* For whom it has waited in vain. */
static void lateness_log(const gf_context *gf, const char *what)
{
    char whom[160] = "";
    uint32_t rank;
    const char *location = gf_control_waits_for(gf->control, &rank);
    if (rank != GF_RANK_NONE)
        (void)snprintf(whom, sizeof whom, ": rank %u is in %.127s", rank, location);
    gf_log_line(
        &gf->log, GF_LOG_WARN,
        "gf_close: not all ranks have finished within exchange.timeout (%.1f s): rank %u%s%s",
        (double)gf->config.exchange.timeout_ns * 1e-9, gf->rank, what, whom);
}

/* The others may still need what this rank has sent, so it makes progress until all have reported
 * that they leave. Where the coordinator runs here it waits for all ranks, because the job ends
 * with it. */
static gf_status leave_progress(gf_context *gf, void *arg)
{
    uint64_t now_ns = gf_poll_begin(gf);
    uint64_t from;
    (void)arg;
    if (gf->error.code != GF_OK) return gf_failing_poll(gf, now_ns);
    if (gf_aborted(gf)) return gf_enter(gf);
    (void)gf->link->driver->progress(gf->link);
    switch (gf_poll_control(gf)) {
    case GF_CONTROL_LEFT:
        if (gf_control_hosts(gf->control) && !gf_control_flushed(gf->control)) return GF_AGAIN;
        return GF_OK;
    case GF_CONTROL_ENDED: return gf_fail_from(gf, gf_control_error(gf->control));
    default: break;
    }
    if ((gf_awake(gf) <= gf->opening.leave_ns) ||
        (gf_control_patience(gf->control, gf_awake(gf), &from) > 0))
        return GF_AGAIN;
    if (gf_control_hosts(gf->control)) {
        if (!gf->opening.leave_logged)
            lateness_log(gf, ", in whose process the coordinator runs, waits for them");
        gf->opening.leave_logged = true;
        return GF_AGAIN;
    }
    lateness_log(gf, " ends alone");
    return GF_ERR_TIMEOUT;
}

/* From here on the context only leaves or fails. Operations under way are cancelled, and the others
 * are informed. */
static gf_status leave_begin(gf_context *gf)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    (void)gf_poll_begin(gf);
    if ((gf->phase == GF_PHASE_WARM) || (gf->phase == GF_PHASE_STEP) || !gf_requests_idle(gf))
        return gf_fail(gf, GF_ERR_ABORTED, GF_OPERATION_CLOSE, gf->rank, GF_TENSOR_NONE,
                       "rank %u closed its context while %s was under way, in step %llu", gf->rank,
                       gf_operation_name(gf_doing(gf)), (unsigned long long)gf->step.number);
    if (gf->phase != GF_PHASE_READY) return GF_OK;
    /* before the exporters hear that this rank leaves: then they free it */
    if (gf->on_device) gf_ipc_close(gf);
    gf->phase = GF_PHASE_LEAVE;
    gf->opening.leave_ns = gf_awake(gf) + gf->config.exchange.timeout_ns;
    gf_control_bye(gf->control, gf_steps(gf));
    return GF_OK;
}

static gf_status gave_up(gf_context *gf, gf_status status)
{
    if (gf->phase == GF_PHASE_FAILED) give_up(gf);
    return status;
}

/* GF_AGAIN: there is something to wait for; anything else is the answer. */
static gf_status leave_enter(gf_context *gf)
{
    gf_status status = gf_own(gf);
    if (status < 0) return status;
    (void)leave_begin(gf);
    if (gf->phase == GF_PHASE_FAILED) return gave_up(gf, gf->error.code);
    return ((gf->phase == GF_PHASE_LEAVE) || (gf->phase == GF_PHASE_FAILING)) ? GF_AGAIN : GF_OK;
}

gf_status gf_close_poll(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = leave_enter(gf);
    return (status == GF_AGAIN) ? gave_up(gf, leave_progress(gf, NULL)) : status;
}

gf_status gf_close_wait_for(gf_context *gf, uint64_t bound_ns)
{
    GF_COMPUTES();
    gf_status status = leave_enter(gf);
    return (status == GF_AGAIN) ? gave_up(gf, gf_wait_for(gf, leave_progress, NULL, bound_ns))
                                : status;
}

/* Sends what is still queued on the control channel before the connection ends. */
static void words_flush(gf_context *gf)
{
    const uint64_t end_ns = gf_poll_begin(gf) + GF_FLUSH_NS;
    uint64_t now_ns = 0;
    uint32_t same = 0; /* polls that found one time: a simulated clock may wait for this one */
    while (!gf_control_flushed(gf->control) && (now_ns < end_ns) && (same < FLUSH_POLLS)) {
        uint64_t then_ns = now_ns;
        (void)gf_poll_control(gf);
        now_ns = gf_poll_begin(gf);
        same = (now_ns == then_ns) ? same + 1 : 0;
    }
}

gf_status gf_close(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status;
    if (gf == NULL) return GF_OK;
    if ((status = gf_own(gf)) < 0) return status;
    status = leave_begin(gf);
    if ((status == GF_OK) && (gf->phase == GF_PHASE_LEAVE))
        status = gf_wait(gf, leave_progress, NULL);
    give_up(gf);
    if (gf->control != NULL) words_flush(gf);
    gf_failing_cut(gf);
    gf_drivers_close(gf);
    gf->phase = GF_PHASE_CLOSED;
    gf->magic = 0;
    /* what failed is known */
    return ((status == GF_ERR_TIMEOUT) && (gf->error.code == GF_OK)) ? status : GF_OK;
}
