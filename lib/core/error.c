/* How a context fails. The first failure is recorded, sticks, and is told; then, a poll at a time,
 * the ranks agree on the culprit (gf_members_attribute), a step that is half written is written, and
 * what is under way is ended, because buffers may still be written to; only then do polls answer
 * with the error. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"

/* What has not ended by then is ended by dropping the link: over shared memory, all that was under
 * way with a process that has died. Every error is told this much later, so it is short. A new link
 * is made by who shrinks. */
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

/* A job that goes on without its dead recovers, or says why it does not. */
static void failure_log(const gf_context *gf)
{
    bool goes_on = (gf->together_ns != 0) && gf_is_elastic(gf);
    bool died = (gf->error.code == GF_ERR_PEER) || (gf->error.code == GF_ERR_LINK) ||
                (gf->error.code == GF_ERR_TIMEOUT);
    gf_log_line(&gf->log, (goes_on && died) ? GF_LOG_WARN : GF_LOG_ERROR, "rank %u: %s", gf->rank,
                gf->error.text);
}

static void waits_now(gf_context *gf, uint64_t now_ns, struct gf_waits *waits_out)
{
    gf_ops_waits(gf, now_ns, waits_out);
    gf_join_unreached(gf, &waits_out->unreached);
}

/* From here on nothing new starts. Timeouts and lost links are somebody's fault: that is asked for
 * first, unless the members have said so already. */
static void failing_begin(gf_context *gf, bool attributed)
{
    /* The members know each other, in JOIN from the epoch before or once all have joined, and have
     * not said it themselves. */
    bool joined = (gf->phase == GF_PHASE_JOIN) && gf_members_joined(gf->members);
    bool tells = !attributed &&
                 ((gf->phase == GF_PHASE_READY) || (gf->phase == GF_PHASE_STEP) ||
                  (gf->phase == GF_PHASE_WARM) || joined || (gf->change.state == GF_CHANGE_JOIN));
    gf->failing.linked = !gf_joins(gf);
    gf->failing.writes = gf_step_is_cut(gf);
    gf->failing.attributes =
        tells && (gf->world > 1) &&
        ((gf->error.code == GF_ERR_TIMEOUT) || (gf->error.code == GF_ERR_LINK));
    gf->failing.waits.count = 0;
    gf->failing.waits.unreached = (struct gf_unreached){.code = GF_OK};
    gf->failing.waits_ns = gf_now(gf);
    if (gf->failing.attributes) waits_now(gf, gf->failing.waits_ns, &gf->failing.waits);
    gf->phase = GF_PHASE_FAILING;
    gf->failing.begin_ns = gf_awake(gf);
    gf_ops_cancel(gf, gf->error.code);
    if (tells && !gf->failing.attributes && (gf->error.code != GF_ERR_PEER))
        gf_members_tell(gf->members, &gf->error);
    if (gf->failing.linked) gf_wake(gf); /* behind the word, so that it is there */
    if (!gf->failing.attributes) failure_log(gf);
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
    uint32_t rank = gf_rank_of(gf, fault->peer);
    error_fill(gf, (fault->code == GF_OK) ? GF_ERR_LINK : fault->code, operation, rank,
               GF_TENSOR_NONE);
    gf_error_take(&gf->error, fault);
    size_t used = strlen(gf->error.text);
    if (rank != fault->peer)
        (void)snprintf(gf->error.text + used, sizeof gf->error.text - used,
                       " (by member id: %u is rank %u of epoch %u)", fault->peer, rank, gf->epoch);
    failing_begin(gf, false);
    return gf->error.code;
}

gf_status gf_fail_from(gf_context *gf, const struct gf_error *error)
{
    if (gf->error.code != GF_OK) return gf->error.code;
    gf_operation doing = gf_doing(gf);
    gf->error = *error;
    gf->error.rank = gf->rank;
    /* the culprit did nothing */
    if (gf->error.operation == GF_OPERATION_NONE) gf->error.operation = doing;
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
    case GF_PHASE_AGREE: return GF_OPERATION_SHRINK;
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

/* Asks whose fault it is; false: that is known. */
static bool asks(gf_context *gf)
{
    struct gf_error culprit = gf->error;
    gf_status status;
    if (!gf->failing.attributes) return false;
    status = gf_members_attribute(gf->members, gf_awake(gf), &gf->error, &culprit);
    if (status == GF_AGAIN) return true;
    if (status == GF_OK) {
        /* what the link saw would be lost */
        if ((gf->error.code == GF_ERR_LINK) && (strcmp(gf->error.text, culprit.text) != 0))
            gf_log_line(&gf->log, GF_LOG_WARN, "rank %u: %s", gf->rank, gf->error.text);
        gf->error.code = culprit.code;
        gf->error.peer = culprit.peer;
        if (culprit.operation != GF_OPERATION_NONE) gf->error.operation = culprit.operation;
        memcpy(gf->error.text, culprit.text, sizeof gf->error.text);
    }
    gf->failing.attributes = false;
    failure_log(gf);
    return false;
}

/* Writes a slice of the step that was cut short; false: it is whole. */
static bool writes(gf_context *gf, uint64_t now_ns)
{
    if (!gf->failing.writes) return false;
    gf->waiting.moved_ns = now_ns; /* no nap in between */
    gf->failing.writes = gf_step_write(gf) == GF_AGAIN;
    return gf->failing.writes;
}

gf_status gf_failing_poll(gf_context *gf, uint64_t now_ns)
{
    bool is_asking;
    if (gf->phase == GF_PHASE_FAILED) return gf->error.code;
    (void)gf->link->driver->progress(gf->link);
    if (gf->members != NULL) (void)gf_members_poll(gf->members, gf_awake(gf));
    is_asking = asks(gf); /* first: nobody waits for the word while this rank writes */
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
    gf->phase = GF_PHASE_FAILED;
    return gf->error.code;
}

uint64_t gf_begun_answer(void *context)
{
    const gf_context *gf = context;
    return gf->under_way.taken;
}

void gf_waits_answer(void *context, struct gf_waits *waits_out)
{
    gf_context *gf = context;
    if ((gf->phase != GF_PHASE_FAILING) && (gf->phase != GF_PHASE_FAILED)) {
        waits_now(gf, gf_now(gf), waits_out);
        return;
    }
    *waits_out = gf->failing.waits;
    waits_out->age_ns = gf_now(gf) - gf->failing.waits_ns;
}

void gf_failing_cut(gf_context *gf)
{
    if ((gf->phase != GF_PHASE_FAILING) || !gf->failing.attributes) return;
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
