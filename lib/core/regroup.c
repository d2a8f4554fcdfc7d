/* From one generation to the next: what surrounds the coordinator's list. A failure, a process that
 * comes in, growth and a planned leave take the same path.
 *
 *     state  begins with               then    what is done
 *     DRAIN  a failure                 AWAIT   the finding is awaited, messages end (error.c)
 *     AWAIT  READY was said, or this   JOIN    LIST: the link is made anew, ENDPOINT; until GO.
 *            process comes in                  A rank that leaves is done
 *     JOIN   GO                        SYNC    connections and warm-up as at open
 *     SYNC   the warm-up               ready   the common state to those that lag (common_state.c)
 *     JOIN, SYNC: a failure            DRAIN   until the deadline, which GO sets anew */
#include <stdio.h>
#include <string.h>

#include "drivers/base/arithmetic.h"
#include "lib/core/accessors.h"
#include "lib/core/choose.h"
#include "lib/core/device_work.h"
#include "lib/core/relink.h"
#include "lib/core/applied.h"
#include "lib/device/device.h"

/* later than the coordinator's own deadline, so that its text, which names what was lacking, comes
 * first */
#define LATE_NS UINT64_C(2000000000)

static bool has_failed(const gf_context *gf)
{
    return (gf->phase == GF_PHASE_FAILING) || (gf->phase == GF_PHASE_FAILED);
}

/* Sets this rank's progress. Called again once the context has failed, because a failing context
 * may still write its step to the end. */
static void own_progress_set(gf_context *gf)
{
    gf->change.own.steps = gf_steps(gf);
    gf_own_applied_set(gf, &gf->change.own);
}

/* ---- a new link ---- */

/* Gradients of the generation before are nobody's any more. On the host they lie in the exchange
 * region, whose memory is another one from here on; on a device they stay where they are, zeroes at
 * open. The region is given back next, which waits for all that is queued, so no write of the
 * appliance meets this one. */
static gf_status gradients_clear(gf_context *gf, struct gf_fault *fault_out)
{
    if (!gf->on_device || (gf->together_ns == 0) ||
        (gf->ops->zero(&gf->queue, gf->gradient, gf->pool.gradient_bytes) >= 0))
        return GF_OK;
    *fault_out = gf->gpu->fault;
    return GF_ERR_DEVICE;
}

gf_status gf_generation_enter(gf_context *gf, const struct gf_generation *to,
                              struct gf_fault *fault_out)
{
    const void *endpoint;
    size_t endpoint_bytes;
    if (gf->on_device) gf_ipc_close(gf);
    gf_status status = gradients_clear(gf, fault_out);
    if (status < 0) return status;
    status = gf_link_renew(gf, to, &endpoint, &endpoint_bytes, fault_out);
    if (status < 0) return status;
    gf_control_endpoint_set(gf->control, endpoint, endpoint_bytes);
    gf_ops_reset(gf);
    gf_choose_reset(gf);
    gf->failing.link_peer = GF_RANK_NONE; /* ranks have other numbers, and a new link */
    gf->warm = (struct gf_warm){.state = GF_WARM_BEGIN};
    gf->polled.control_skip = 0;
    gf->position = (struct gf_position){
        .step = gf->position.step, .tensor = GF_TENSOR_NONE, .waits_for = GF_RANK_NONE};
    return GF_OK;
}

/* ---- the states ---- */

/* Sets the deadline of a regroup: at its begin, and again at each generation that it reaches,
 * because that generation may fail before a step and the coordinator then starts its own deadline
 * anew. */
static void deadline_set(gf_context *gf)
{
    gf->change.deadline_ns = gf_awake(gf) + gf->config.rendezvous.join_timeout_ns + LATE_NS;
}

/* GO has come: what is under way now is the generation's. It is the one way into a generation, so
 * what this rank is in it (numbers, whether it came in) holds also where it fails at once. */
static void joined(gf_context *gf)
{
    struct gf_change *change = &gf->change;
    change->plan = *gf_control_generation(gf->control);
    gf_requests_reset(gf, change->plan.progress.requests);
    change->joiners = change->leavers = 0;
    memset(gf->observed.late, 0, gf->world * sizeof *gf->observed.late);
    gf->observed.generation_steps = 0;
    gf->error = (struct gf_error){.rank = gf->rank, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    gf->phase = GF_PHASE_JOIN;
    change->state = GF_CHANGE_JOIN;
    deadline_set(gf);
    change->sync_next = GF_SYNC_WORDS;
    if (change->plan.comes_in) change->own.partial = 1;
    change->comes_in = change->comes_in || change->plan.comes_in;
}

static void begun(gf_context *gf)
{
    struct gf_change *change = &gf->change;
    const struct gf_generation *plan = &change->plan;
    gf->step = (struct gf_step){
        .state = GF_STEP_NONE, .number = plan->progress.steps, .gradient_scale = 1.0f};
    gf->phase = GF_PHASE_READY;
    change->state = GF_CHANGE_NONE;
    change->own.partial = 0;
    gf_given_take(gf, &plan->progress);
    if (gf->together_ns == 0) {
        change->was_admitted = change->comes_in;
    } else {
        change->left_out = change->comes_in;
    }
    change->comes_in = false;
    gf->together_ns = gf_now(gf);
    change->count++;
    if (change->left_out)
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "the others went on without rank %u: it has come in again, as rank %u of %u",
                    gf->config.job.rank, gf->rank, gf->world);
    gf_log_line(&gf->log, GF_LOG_INFO, "rank %u of %u: generation %u has begun after step %llu%s%s",
                gf->rank, gf->world, gf->generation, (unsigned long long)plan->progress.steps,
                ((plan->progress.steps > 0) && (plan->progress.applied == 0))
                    ? ", whose update nobody had applied"
                    : "",
                plan->lags ? ", ranks that lagged have the common state" : "");
}

static gf_status left(gf_context *gf)
{
    gf->phase = GF_PHASE_LEFT;
    gf->change.state = GF_CHANGE_NONE;
    gf->change.left = true;
    gf->error = (struct gf_error){.rank = gf->rank, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    gf_log_line(&gf->log, GF_LOG_INFO, "rank %u of %u has left after step %llu", gf->rank,
                gf->world, (unsigned long long)gf_steps(gf));
    return GF_OK;
}

/* The end of it without a generation; nothing is under way. */
static gf_status end(gf_context *gf, const struct gf_error *error)
{
    gf->error = *error;
    gf->error.rank = gf->rank;
    gf->error.step = gf->step.number;
    if (gf->error.operation == GF_OPERATION_NONE) gf->error.operation = GF_OPERATION_REGROUP;
    gf->phase = GF_PHASE_FAILED;
    gf->change.state = GF_CHANGE_NONE;
    gf_log_line(&gf->log, GF_LOG_ERROR, "rank %u: %s", gf->rank, gf->error.text);
    return gf->error.code;
}

/* This rank's own: the others hear it. */
static gf_status end_own(gf_context *gf, const struct gf_error *error)
{
    gf_control_fault(gf->control, error, gf_steps(gf), true);
    return end(gf, error);
}

static gf_status endf(gf_context *gf, gf_status code, const char *text)
{
    struct gf_error error = {.code = code,
                             .peer = gf->error.peer,
                             .operation = GF_OPERATION_REGROUP,
                             .step = gf->step.number,
                             .tensor = GF_TENSOR_NONE};
    (void)snprintf(error.text, sizeof error.text, "%s%s%.180s", text,
                   (gf->error.text[0] != 0) ? ": " : "", gf->error.text);
    return end_own(gf, &error);
}

static gf_status unlinked(gf_context *gf, const struct gf_fault *fault)
{
    bool device = (fault->code == GF_ERR_DEVICE);
    struct gf_error error = {.code = device ? GF_ERR_DEVICE : GF_ERR_SYSTEM,
                             .peer = GF_RANK_NONE,
                             .operation = GF_OPERATION_REGROUP,
                             .tensor = GF_TENSOR_NONE,
                             .foreign_code = fault->foreign_code};
    (void)snprintf(error.text, sizeof error.text, "%s: %.200s",
                   device ? "no new generation" : "the link cannot be reset", fault->text);
    return end_own(gf, &error);
}

/* Another rank may still wait for what this one sent in the last step of its generation. */
static gf_status await_progress(gf_context *gf)
{
    struct gf_generation to;
    struct gf_fault fault = {.code = GF_OK, .peer = GF_RANK_NONE};
    bool moves = (gf->phase == GF_PHASE_AGREE) && !gf->opening.renewed;
    if (moves) (void)gf->link->driver->progress(gf->link);
    switch (gf_poll_control(gf)) {
    case GF_CONTROL_AWAITS: break;
    case GF_CONTROL_WORKS:
    case GF_CONTROL_FAILED: /* it failed in the poll that began it: the next one drains it */
        joined(gf);
        return GF_AGAIN;
    case GF_CONTROL_LEFT:
    case GF_CONTROL_LEAVES: return left(gf);
    case GF_CONTROL_ENDED: return end(gf, gf_control_error(gf->control));
    }
    if (!gf_control_list_due(gf->control, &to)) return GF_AGAIN;
    gf->opening.renewed = true;
    return (gf_generation_enter(gf, &to, &fault) < 0) ? unlinked(gf, &fault) : GF_AGAIN;
}

/* Asks the coordinator for the next list. First it tells its peers that it writes no more into
 * their memory; a rank with a device does not, because queued copies may still run. */
static void await_begin(gf_context *gf, bool planned)
{
    if (!gf->on_device && (gf->link->driver->quiesce != NULL)) gf->link->driver->quiesce(gf->link);
    gf_control_ready(gf->control, &gf->change.own, planned, gf->change.leaves);
    gf->opening.renewed = false;
    gf->change.state = GF_CHANGE_AWAIT;
}

static gf_status drain_progress(gf_context *gf, uint64_t now_ns)
{
    (void)gf_failing_poll(gf, now_ns);
    if (gf->phase != GF_PHASE_FAILED) return GF_AGAIN;
    if (gf->change.final || !gf_may_go_on(gf)) {
        gf->change.state = GF_CHANGE_NONE;
        return gf->error.code;
    }
    own_progress_set(gf);
    await_begin(gf, false);
    return GF_AGAIN;
}

/* An end from outside: the appliance aborts, or the deadline of the whole regroup has passed. */
typedef enum change_stop { STOP_NOT = 0, STOP_ABORTED, STOP_LATE } change_stop;

static change_stop stop_of(const gf_context *gf)
{
    if (gf_aborted(gf)) return STOP_ABORTED;
    return (gf_awake(gf) >= gf->change.deadline_ns) ? STOP_LATE : STOP_NOT;
}

/* While a list is awaited nothing is under way: it ends at once. */
static gf_status await_stop(gf_context *gf, change_stop stop)
{
    if (stop == STOP_ABORTED) return endf(gf, GF_ERR_ABORTED, "aborted by its appliance");
    if (gf->together_ns == 0)
        return endf(gf, GF_ERR_TIMEOUT,
                    "the other ranks did not let this one in before the deadline of its join");
    char text[128]; /* one begun anew waits for who has ended */
    (void)snprintf(text, sizeof text,
                   "no new generation of the coordinator at %.60s before the deadline",
                   gf->config.rendezvous.address);
    return endf(gf, GF_ERR_TIMEOUT, text);
}

/* In all other states it is a failure: the other ranks hear of it, what is under way is drained,
 * and no generation follows. */
static void joined_stop(gf_context *gf, change_stop stop)
{
    if ((stop == STOP_NOT) || (gf->error.code != GF_OK)) return;
    gf->change.final = true;
    (void)gf_fail(gf, (stop == STOP_LATE) ? GF_ERR_TIMEOUT : GF_ERR_ABORTED, GF_OPERATION_REGROUP,
                  GF_RANK_NONE, GF_TENSOR_NONE, "%s",
                  (stop == STOP_LATE) ? "the new generation did not begin before the deadline"
                                      : "aborted by its appliance");
}

gf_status gf_change_progress(gf_context *gf, void *arg)
{
    struct gf_change *change = &gf->change;
    uint64_t now_ns = gf_poll_begin(gf);
    change_stop stop = stop_of(gf);
    (void)arg;
    if (change->state == GF_CHANGE_AWAIT)
        return (stop != STOP_NOT) ? await_stop(gf, stop) : await_progress(gf);
    joined_stop(gf, stop);
    switch (change->state) {
    case GF_CHANGE_DRAIN: return drain_progress(gf, now_ns);
    case GF_CHANGE_JOIN:
        if ((gf->error.code == GF_OK) && (gf_join_progress(gf, now_ns) == GF_OK))
            change->state = GF_CHANGE_SYNC;
        break;
    case GF_CHANGE_SYNC:
        if ((gf->error.code != GF_OK) || (gf_common_state_progress(gf) != GF_OK) ||
            (gf_sparse_world_set(gf) < 0))
            break;
        begun(gf);
        return GF_OK;
    case GF_CHANGE_NONE:
    case GF_CHANGE_AWAIT: return gf->error.code;
    }
    /* the generation has failed before it was of use: one more is needed */
    if (gf->error.code != GF_OK) change->state = GF_CHANGE_DRAIN;
    return GF_AGAIN;
}

/* ---- the beginnings ---- */

static void change_begin(gf_context *gf)
{
    own_progress_set(gf);
    gf->change.own.requests = gf->requests.posted;
    gf->change.final = false;
    (void)gf_poll_begin(gf);
    deadline_set(gf);
}

void gf_come_in_begin(gf_context *gf)
{
    change_begin(gf);
    gf->change.own.partial = 1;
    gf->phase = GF_PHASE_AGREE;
    gf->opening.renewed = true;
    gf->change.state = GF_CHANGE_AWAIT;
}

static gf_status planned_begin(gf_context *gf)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if ((gf->phase != GF_PHASE_READY) || !gf_requests_idle(gf))
        return gf_refuse(
            gf, GF_ERR_STATE,
            "gf_regroup_begin: %s; allowed is a call between steps, or after a failure",
            (gf->phase == GF_PHASE_READY) ? "requests are under way"
                                          : "the context is not between steps");
    if (gf_regroup_due(gf) == 0)
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_regroup_begin: nothing has failed, and nobody waits or leaves");
    change_begin(gf);
    if (gf_step_is_unapplied(gf))
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_regroup_begin: step %llu was not applied; " GF_APPLY_FIRST,
                         (unsigned long long)gf->step.number);
    /* what has happened since the last poll comes first */
    if (gf_poll_control(gf) != GF_CONTROL_WORKS) {
        (void)gf_fail_from(gf, gf_control_error(gf->control));
        gf->change.state = GF_CHANGE_DRAIN;
        return GF_OK;
    }
    gf->phase = GF_PHASE_AGREE;
    await_begin(gf, true);
    return GF_OK;
}

gf_status gf_regroup_begin(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = gf_own(gf);
    if (status < 0) return status;
    if ((gf->control == NULL) || (gf->together_ns == 0))
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_regroup_begin: the context was never of a generation");
    if (gf->change.state != GF_CHANGE_NONE)
        return gf_refuse(gf, GF_ERR_STATE, "gf_regroup_begin: one is under way");
    if (gf->opening.leave_ns != 0)
        return gf_refuse(gf, GF_ERR_STATE, "gf_regroup_begin: gf_close_poll() was called");
    (void)gf_enter(gf); /* an abort becomes a failure */
    if (!has_failed(gf)) return planned_begin(gf);
    if (!gf_may_go_on(gf) || gf_aborted(gf))
        return gf_refuse(gf, GF_ERR_STATE, "gf_regroup_begin: this rank cannot go on: %s",
                         gf->error.text);
    gf->change.state = GF_CHANGE_DRAIN;
    change_begin(gf);
    return GF_OK;
}

static gf_status change_enter(gf_context *gf, const char *call)
{
    gf_status status = gf_own(gf);
    if ((status < 0) || (gf->change.state != GF_CHANGE_NONE)) return status;
    status = gf_enter(gf);
    return (status < 0)
               ? status
               : gf_refuse(gf, GF_ERR_STATE, "%s: gf_regroup_begin() was not called", call);
}

gf_status gf_regroup_poll(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = change_enter(gf, "gf_regroup_poll");
    return (status < 0) ? status : gf_change_progress(gf, NULL);
}

gf_status gf_regroup_wait(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = change_enter(gf, "gf_regroup_wait");
    return (status < 0) ? status : gf_wait(gf, gf_change_progress, NULL);
}

gf_status gf_regroup_wait_for(gf_context *gf, uint64_t bound_ns)
{
    GF_COMPUTES();
    gf_status status = change_enter(gf, "gf_regroup_wait_for");
    return (status < 0) ? status : gf_wait_for(gf, gf_change_progress, NULL, bound_ns);
}

gf_status gf_leave(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if ((gf->phase != GF_PHASE_READY) && (gf->phase != GF_PHASE_STEP))
        return gf_refuse(
            gf, GF_ERR_STATE,
            "gf_leave: the context is not ready; allowed is a call in or between steps");
    if (gf->world == 1)
        return gf_refuse(gf, GF_ERR_STATE, "gf_leave: this rank is alone; gf_close() ends the job");
    if (gf_control_hosts(gf->control))
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_leave: the coordinator runs in this process, and the job ends with it "
                         "(rendezvous.coordinator = \"separate\" gives it a process of its own)");
    gf->change.leaves = true;
    return GF_OK;
}

uint32_t gf_joiners(const gf_context *gf)
{
    return ((gf == NULL) || (gf->phase != GF_PHASE_READY)) ? 0 : gf->change.joiners;
}

uint32_t gf_regroup_due(const gf_context *gf)
{
    return ((gf == NULL) || (gf->phase != GF_PHASE_READY))
               ? 0
               : gf->change.joiners + gf->change.leavers;
}

bool gf_rejoined(const gf_context *gf)
{
    return (gf != NULL) && gf->change.was_admitted;
}
bool gf_left_out(const gf_context *gf)
{
    return (gf != NULL) && gf->change.left_out;
}
bool gf_left(const gf_context *gf)
{
    return (gf != NULL) && gf->change.left;
}
