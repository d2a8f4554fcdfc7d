/* Leaving, closing, and a sign of life in between. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"
#include "drivers/arithmetic.h"

void gf_drivers_close(gf_context *gf)
{
    if ((gf->gpu != NULL) && gf->on_device) {
        gf_ipc_close(gf);
        if (gf->link != NULL) (void)gf_device_region_close(gf);
    }
    if (gf->link != NULL) gf->link->driver->close(gf->link);
    if (gf->rendezvous != NULL) gf->rendezvous->driver->close(gf->rendezvous);
    if (gf->gpu != NULL) gf->gpu->driver->close(gf->gpu);
    gf->link = NULL;
    gf->rendezvous = NULL;
    gf->gpu = NULL;
    gf->members = NULL;
    gf->position = NULL;
}

/* The others may still need what this rank has sent: progress until all have said that they
 * leave. */
static gf_status leave_progress(gf_context *gf, void *arg)
{
    uint64_t now_ns = gf_poll_begin(gf);
    uint64_t from;
    gf_status status;
    (void)arg;
    if (gf->error.code != GF_OK) return gf_failing_poll(gf, now_ns);
    if (gf_aborted(gf)) return gf_enter(gf);
    /* the others have been told why, which is no failure of this one */
    if (gf->opening.left_late) return GF_ERR_TIMEOUT;
    (void)gf->link->driver->progress(gf->link);
    status = gf_members_leave(gf->members, gf_awake(gf));
    if (status < 0) return gf_fail_from(gf, gf_members_error(gf->members));
    if ((status != GF_AGAIN) || (gf_awake(gf) <= gf->opening.leave_ns) ||
        (gf_members_patience(gf->members, gf_awake(gf), &from) > 0))
        return status;
    if (gf_members_leave_late(gf->members) == GF_AGAIN) return GF_AGAIN;
    gf->opening.left_late = true;
    gf_log_line(
        &gf->log, GF_LOG_WARN,
        "gf_close: not all ranks have finished within exchange.timeout (%.1f s): rank %u ends "
        "alone",
        (double)gf->config.exchange.timeout_ns * 1e-9, gf->rank);
    return GF_ERR_TIMEOUT;
}

/* From here on only leaving goes on, or failing. What is under way is given up, and the others are
 * told. */
static gf_status leave_begin(gf_context *gf)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    (void)gf_poll_begin(gf);
    /* tells the others */
    if (gf->phase == GF_PHASE_JOIN) (void)gf_members_leave(gf->members, gf_awake(gf));
    if ((gf->phase == GF_PHASE_WARM) || (gf->phase == GF_PHASE_STEP) || !gf_requests_idle(gf))
        return gf_fail(gf, GF_ERR_ABORTED, GF_OPERATION_CLOSE, gf->rank, GF_TENSOR_NONE,
                       "rank %u closed its context while %s was under way, in step %llu", gf->rank,
                       gf_operation_name(gf_doing(gf)), (unsigned long long)gf->step.number);
    if (gf->phase != GF_PHASE_READY) return GF_OK;
    /* before the exporters hear that this rank leaves: then they free it */
    if (gf->on_device) gf_ipc_close(gf);
    gf->phase = GF_PHASE_LEAVE;
    gf->opening.leave_ns = gf_awake(gf) + gf->config.exchange.timeout_ns;
    return GF_OK;
}

/* GF_AGAIN: there is something to wait for; anything else is the answer. */
static gf_status leave_enter(gf_context *gf)
{
    gf_status status = gf_own(gf);
    if (status < 0) return status;
    (void)leave_begin(gf);
    if (gf->phase == GF_PHASE_FAILED) return gf->error.code;
    return ((gf->phase == GF_PHASE_LEAVE) || (gf->phase == GF_PHASE_FAILING)) ? GF_AGAIN : GF_OK;
}

gf_status gf_close_poll(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = leave_enter(gf);
    return (status == GF_AGAIN) ? leave_progress(gf, NULL) : status;
}

gf_status gf_close_wait_for(gf_context *gf, uint64_t bound_ns)
{
    GF_COMPUTES();
    gf_status status = leave_enter(gf);
    return (status == GF_AGAIN) ? gf_wait_for(gf, leave_progress, NULL, bound_ns) : status;
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
    /* what was told goes out before the connection ends */
    for (uint64_t end_ns = gf_poll_begin(gf) + GF_FLUSH_NS;
         (gf->rendezvous != NULL) && !gf->rendezvous->driver->flushed(gf->rendezvous) &&
         (gf_poll_begin(gf) < end_ns);)
        (void)gf_members_poll(gf->members, gf_awake(gf));
    gf_failing_cut(gf);
    gf_drivers_close(gf);
    gf->phase = GF_PHASE_CLOSED;
    gf->magic = 0;
    /* what failed is known */
    return ((status == GF_ERR_TIMEOUT) && (gf->error.code == GF_OK)) ? status : GF_OK;
}

gf_status gf_heartbeat(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = gf_enter(gf);
    uint64_t now_ns;
    if (status < 0) return status;
    if (gf->phase == GF_PHASE_LEFT)
        return gf_refuse(gf, GF_ERR_STATE, "gf_heartbeat: this rank has left");
    now_ns = gf_poll_begin(gf);
    gf_members_heartbeat(gf->members, gf_awake(gf));
    gf->polled.members_skip = 0;
    gf->polled.link_ns = 0;
    /* gf_regroup_poll() moves the rest; no link that fails ends it */
    if (gf->phase == GF_PHASE_AGREE) return GF_OK;
    if (gf_progress(gf, now_ns) < 0) return gf->error.code;
    gf_device_turn_begin(gf);
    (void)gf_ops_progress(gf, now_ns); /* what it has begun does not wait for it */
    gf_device_turn_end(gf, gf_doing(gf));
    return gf->error.code;
}
