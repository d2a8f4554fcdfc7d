/* How a context fails. The first failure is recorded, stays, and is reported to the coordinator.
 * Then, a poll at a time, the context waits for the coordinator's finding, writes a step that is
 * half written to its end, and ends what is under way, because the link may still write to its
 * buffers. Only after that do polls return the error. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/core/relink.h"
#include "lib/device/device.h"

/* Requests that have not ended after this time are ended by dropping the link. Over shared memory
 * these are all requests with a process that has died. The time is short because every error is
 * returned that much later. A rank that continues makes a new link. */
#define DRAIN_NS UINT64_C(200000000)

void gf_context_mark(gf_context *gf)
{
    gf->magic = GF_CONTEXT_MAGIC;
    gf_forked_watch();
    gf->forks = gf_forks;
}

static void error_fill(gf_context *gf, gf_status code, gf_operation operation, uint32_t peer,
                       uint32_t tensor)
{
    gf->error = (struct gf_error){.code = code,
                                  .rank = gf->rank,
                                  .peer = peer,
                                  .operation = operation,
                                  .step = gf->step.number,
                                  .tensor = tensor};
}

/* Logs a warning if the job can go on without the dead rank, otherwise an error. */
static void failure_log(const gf_context *gf)
{
    bool goes_on = (gf->together_ns != 0) && gf_is_elastic(gf) && (gf->control != NULL) &&
                   !gf_control_is_final(gf->control);
    bool died = (gf->error.code == GF_ERR_PEER) || (gf->error.code == GF_ERR_LINK) ||
                (gf->error.code == GF_ERR_TIMEOUT);
    gf_log_line(&gf->log, (goes_on && died) ? GF_LOG_WARN : GF_LOG_ERROR, "rank %u: %s", gf->rank,
                gf->error.text);
}

/* Can another rank have caused this failure? Then the others may go on, and this rank with them,
 * unless the coordinator finds that it is at fault. */
static bool may_be_anothers(const gf_context *gf)
{
    return (gf->world > 1) && ((gf->error.code == GF_ERR_TIMEOUT) ||
                               (gf->error.code == GF_ERR_LINK) || (gf->error.code == GF_ERR_PEER));
}

/* From here on nothing new starts. This rank asks the coordinator who caused the failure, unless
 * the finding is here already. If this rank cannot continue in any case it only reports the
 * failure. */
static void failing_begin(gf_context *gf, bool is_found)
{
    gf_control_state state =
        (gf->control != NULL) ? gf_control_current_state(gf->control) : GF_CONTROL_ENDED;
    bool works = (state == GF_CONTROL_WORKS) || (state == GF_CONTROL_FAILED);
    bool is_late = (gf->change.state != GF_CHANGE_NONE) && gf->change.final;
    bool ends = !works || is_late || !may_be_anothers(gf);
    gf->failing.linked = !gf_joins(gf);
    gf->failing.writes = gf_step_is_cut(gf);
    gf->failing.asks = !is_found && !ends;
    gf->failing.ends = ends;
    gf->failing.begin_ns = gf_awake(gf);
    /* with what the link shows now: what follows ends connections */
    if (!is_found && (gf->control != NULL))
        gf_control_fault(gf->control, &gf->error, gf_steps(gf), ends);
    gf->phase = GF_PHASE_FAILING;
    gf_ops_cancel(gf, gf->error.code);
    if (gf->failing.linked) gf_wake(gf); /* after the report, so that it is there */
    if (!gf->failing.asks) failure_log(gf);
}

gf_status gf_fail(gf_context *gf, gf_status code, gf_operation operation, uint32_t peer,
                  uint32_t tensor, const char *format, ...)
{
    va_list arguments;
    if (gf->error.code != GF_OK) return gf->error.code;
    error_fill(gf, code, operation, peer, tensor);
    va_start(arguments, format);
    (void)vsnprintf(gf->error.text, sizeof gf->error.text, format, arguments);
    va_end(arguments);
    failing_begin(gf, false);
    return code;
}

gf_status gf_fail_fault(gf_context *gf, const struct gf_fault *fault, gf_operation operation)
{
    if (gf->error.code != GF_OK) return gf->error.code;
    error_fill(gf, (fault->code == GF_OK) ? GF_ERR_LINK : fault->code, operation, fault->peer,
               GF_TENSOR_NONE);
    gf_error_take(&gf->error, fault);
    if (gf->error.code == GF_ERR_LINK) gf->failing.link_peer = fault->peer;
    failing_begin(gf, false);
    return gf->error.code;
}

/* "; rank 1 was in step 7, operation step, tensor 12 \"conv1.weight\"": what this rank was doing. A
 * finding has the same text on all ranks, so it needs the rank's number. */
static void error_location_append(gf_context *gf)
{
    char tensor[64] = "";
    size_t used = strlen(gf->error.text);
    gf_operation doing = gf->error.operation;
    if (gf->error.tensor < gf->tensor_count)
        (void)snprintf(tensor, sizeof tensor, ", tensor %u \"%.32s\"", gf->error.tensor,
                       gf->tensors[gf->error.tensor].name);
    if ((doing == GF_OPERATION_NONE) || !gf_control_is_lost(gf->control)) return;
    (void)snprintf(gf->error.text + used, sizeof gf->error.text - used,
                   "; rank %u was in step %llu, operation %s%s", gf->rank,
                   (unsigned long long)gf->step.number, gf_operation_name(doing), tensor);
}

/* The coordinator's finding becomes this rank's error. Step and tensor are this rank's own. */
static void finding_take(gf_context *gf, const struct gf_error *found)
{
    bool is_cut =
        gf_control_is_final(gf->control) && gf_is_elastic(gf) && (found->peer == gf->rank);
    struct gf_error before = gf->error;
    gf->error = *found;
    gf->error.rank = gf->rank;
    gf->error.step = gf->step.number;
    if (before.code != GF_OK) {
        gf->error.operation = before.operation;
        gf->error.tensor = before.tensor;
        gf->error.foreign_code = before.foreign_code;
        memcpy(gf->error.foreign_call, before.foreign_call, sizeof gf->error.foreign_call);
    } else {
        gf->error.operation = gf_doing(gf);
        gf->error.tensor = gf->position.tensor;
    }
    if (is_cut) gf->error.code = GF_ERR_PEER; /* the others go on without it */
    error_location_append(gf);
}

gf_status gf_fail_from(gf_context *gf, const struct gf_error *error)
{
    if (gf->error.code != GF_OK) return gf->error.code;
    GF_ASSERT(error->code < 0); /* or a context ends, and each call answers that all is well */
    finding_take(gf, error);
    failing_begin(gf, true);
    return gf->error.code;
}

gf_status gf_refuse(gf_context *gf, gf_status code, const char *format, ...)
{
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    gf_log_line(&gf->log, GF_LOG_ERROR, "rank %u: %s", gf->rank, text);
    return code;
}

gf_status gf_own(const gf_context *gf)
{
    if ((gf == NULL) || (gf->magic != GF_CONTEXT_MAGIC)) return GF_ERR_PARAM;
    return gf_forked(gf) ? GF_ERR_STATE : GF_OK; /* a forked child: the parent's is not ours */
}

gf_status gf_enter_ill(gf_context *gf)
{
    gf_status status = gf_own(gf);
    if (status < 0) return status;
    if ((gf->error.code == GF_OK) && gf_aborted(gf))
        return gf_fail(gf, GF_ERR_ABORTED, gf_doing(gf), gf->rank, GF_TENSOR_NONE,
                       "aborted by its appliance");
    return gf->error.code;
}

gf_operation gf_doing(const gf_context *gf)
{
    switch (gf->phase) {
    case GF_PHASE_JOIN:
    case GF_PHASE_WARM: return GF_OPERATION_JOIN;
    case GF_PHASE_STEP:
        return (gf->step.state >= GF_STEP_VOTED) ? GF_OPERATION_VOTE : GF_OPERATION_STEP;
    case GF_PHASE_LEAVE: return GF_OPERATION_CLOSE;
    case GF_PHASE_AGREE: return GF_OPERATION_REGROUP;
    case GF_PHASE_READY:
    case GF_PHASE_LEFT:
    case GF_PHASE_FAILING:
    case GF_PHASE_FAILED:
    case GF_PHASE_CLOSED: break;
    }
    return gf_requests_doing(gf);
}

static bool drained(gf_context *gf, uint64_t now_ns)
{
    /* Copies to and from the region, too. */
    bool device = !gf->on_device || (gf_device_finished(gf) != GF_AGAIN);
    return gf_ops_drained(gf, now_ns) && device;
}

/* The appliance aborts while the finding is awaited, which may take until join_timeout: no call has
 * answered with the failure yet, and this rank gives up. */
static void asking_abort(gf_context *gf)
{
    const struct gf_error failed = gf->error;
    error_fill(gf, GF_ERR_ABORTED, failed.operation, gf->rank, failed.tensor);
    (void)snprintf(gf->error.text, sizeof gf->error.text, "aborted by its appliance: %.200s",
                   failed.text);
    gf->failing.asks = false;
    gf->failing.ends = true;
    gf_control_fault(gf->control, &gf->error, gf_steps(gf), true);
    failure_log(gf);
}

/* Is the finding still awaited? Once it is here it is the error. */
static bool finding_is_awaited(gf_context *gf)
{
    if (!gf->failing.asks) return false;
    if (!gf_control_is_found(gf->control)) {
        if (!gf_aborted(gf)) return true;
        asking_abort(gf);
        return false;
    }
    /* what the link saw would be lost */
    if (gf->error.code == GF_ERR_LINK)
        gf_log_line(&gf->log, GF_LOG_WARN, "rank %u: %s", gf->rank, gf->error.text);
    finding_take(gf, gf_control_error(gf->control));
    gf->failing.asks = false;
    failure_log(gf);
    return false;
}

/* Writes a slice of the step that was cut short; false: it is whole. */
static bool writes(gf_context *gf, uint64_t now_ns)
{
    if (!gf->failing.writes) return false;
    gf->wait_state.moved_ns = now_ns; /* no nap in between */
    gf->failing.writes = gf_step_write(gf) == GF_AGAIN;
    return gf->failing.writes;
}

/* Does a coordinator in this process still have to report the cause to other ranks? Once this call
 * returns the error, the program may stop polling. After a failed join the coordinator waits for
 * ranks that have not joined yet. */
static bool must_report(const gf_context *gf)
{
    bool joins = (gf->together_ns == 0);
    uint64_t most_ns = joins ? gf->config.rendezvous.join_timeout_ns : DRAIN_NS;
    return (gf->control != NULL) && gf_control_hosts(gf->control) &&
           (gf->failing.ends || gf_control_is_final(gf->control)) &&
           !gf_control_flushed(gf->control) && (gf_awake(gf) - gf->failing.begin_ns < most_ns);
}

gf_status gf_failing_poll(gf_context *gf, uint64_t now_ns)
{
    bool is_asking;
    if (gf->phase == GF_PHASE_FAILED) return gf->error.code;
    (void)gf->link->driver->progress(gf->link);
    if (gf->control != NULL) (void)gf_poll_control(gf);
    /* first, so that no rank waits for the report while this one writes */
    is_asking = finding_is_awaited(gf);
    if (writes(gf, now_ns) || is_asking) {
        gf->failing.begin_ns = gf_awake(gf);
        return GF_AGAIN;
    }
    if (!drained(gf, now_ns)) {
        if (gf_awake(gf) - gf->failing.begin_ns < DRAIN_NS) return GF_AGAIN;
        /* ends every request; nothing is under way after it */
        if (gf->failing.linked)
            gf->link->driver->drop(gf->link);
        else
            gf_link_cut(gf);
        (void)drained(gf, now_ns);
    }
    if (must_report(gf)) return GF_AGAIN;
    gf->phase = GF_PHASE_FAILED;
    return gf->error.code;
}

bool gf_edge_is_broken(void *context, uint32_t rank, struct gf_fault *fault_out)
{
    const gf_context *gf = context;
    if ((gf->error.code == GF_ERR_LINK) && (rank == gf->failing.link_peer)) return true;
    if (gf_join_is_refused(gf, rank)) return true;
    if ((gf->link == NULL) || (gf->link->driver->edge_is_broken == NULL)) return false;
    return gf->link->driver->edge_is_broken(gf->link, rank, fault_out);
}

void gf_failing_cut(gf_context *gf)
{
    if ((gf->phase != GF_PHASE_FAILING) || !gf->failing.asks) return;
    gf_log_line(&gf->log, GF_LOG_ERROR,
                "rank %u: %s (closed before the ranks had found out whose fault it is)", gf->rank,
                gf->error.text);
}

void gf_abort(gf_context *gf)
{
    if (gf != NULL) atomic_store_explicit(&gf->aborted, 1, memory_order_relaxed);
}

const char *gf_error_text(const gf_context *gf)
{
    return gf_error_last(gf)->text;
}

const struct gf_error *gf_error_last(const gf_context *gf)
{
    static const struct gf_error none = {.peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    return (gf == NULL) ? &none : &gf->error;
}
