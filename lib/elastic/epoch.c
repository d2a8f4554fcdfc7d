/* From one epoch to the next: what surrounds the agreement of view.c. A failure, a rejoin, growth
 * and a planned leave are one way.
 *
 *     state  begins with               then    what is done
 *     DRAIN  a failure                 AGREE   the culprit is asked for, messages end (error.c)
 *     AGREE  DRAIN, a planned change,  JOIN    who goes on, whose state counts (view.c); a rank that
 *            a join                            leaves is done
 *     JOIN   the agreement             SYNC    link and region anew, join and warm-up as at open
 *     SYNC   the warm-up               ready   the common state to those that lag (common_state.c)
 *     JOIN, SYNC: a failure            DRAIN   until the deadline
 *
 * A link and a rendezvous know ranks by their member ids, which never change; gf_member_id_of()
 * translates. */
#include <stdio.h>
#include <string.h>

#include "drivers/identity.h"
#include "lib/device/device.h"
#include "lib/core/accessors.h"
#include "lib/core/choose.h"
#include "lib/core/extra.h"
#include "lib/core/device_work.h"
#include "lib/elastic/view.h"
#include "drivers/arithmetic.h"

/* so that the control channel says first why it did not get through */
#define JOIN_GRACE_NS UINT64_C(100000000)

static bool has_failed(const gf_context *gf)
{
    return (gf->phase == GF_PHASE_FAILING) || (gf->phase == GF_PHASE_FAILED);
}

/* A context that fails may still write its step to the end: so this is looked at anew once it has
 * failed. */
static void steps_look(gf_context *gf)
{
    gf->change.own.steps = gf_steps(gf);
    gf->change.own.applied = gf_step_waits(gf) ? 0 : 1;
}

/* ---- a new link ---- */

static gf_status relink(gf_context *gf)
{
    const struct gf_members_plan *plan = &gf->change.plan;
    const void *endpoint;
    size_t endpoint_bytes;
    gf_status status;
    gf->epoch = plan->epoch;
    if (gf->on_device) gf_ipc_close(gf);
    /* On each rank of the next epoch all messages and copies of the failed one had ended before it
     * promised a view. */
    gf->link->region_stays =
        (gf->phase == GF_PHASE_FAILED) && !gf->on_device && gf_view_left_ended(gf->members);
    status = gf_link_renew(gf, gf_link_network(gf), &endpoint, &endpoint_bytes);
    gf->link->region_stays = false;
    if (status < 0) return status;
    gf_view_epoch_join(gf->members, endpoint, endpoint_bytes, gf_awake(gf));
    gf->rank = plan->rank;
    gf->world = plan->world;
    gf->ids = gf_members_ids(gf->members);
    gf_ops_reset(gf);
    gf_requests_reset(gf, plan->progress.requests);
    gf_choose_reset(gf);
    gf->warm = (struct gf_warm){.state = GF_WARM_BEGIN};
    gf->polled.members_skip = 0;
    gf->change.joiners = gf->change.leavers = 0;
    memset(gf->observed.late, 0, gf->world * sizeof *gf->observed.late);
    gf->observed.epoch_steps = 0;
    gf->error = (struct gf_error){.rank = gf->rank, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    gf->phase = GF_PHASE_JOIN;
    return GF_OK;
}

/* ---- the states ---- */

static void begun(gf_context *gf)
{
    const struct gf_members_plan *plan = &gf->change.plan;
    gf->step = (struct gf_step){
        .state = GF_STEP_UPDATED, .number = plan->progress.steps, .gradient_scale = 1.0f};
    gf->phase = GF_PHASE_READY;
    gf->together_ns = gf_now(gf);
    gf->change.state = GF_CHANGE_NONE;
    gf->change.own.partial = 0;
    gf->change.left_out = plan->left_out;
    gf->change.count++;
    gf_log_line(&gf->log, GF_LOG_INFO, "rank %u of %u: epoch %u has begun after step %llu%s%s",
                gf->rank, gf->world, gf->epoch, (unsigned long long)plan->progress.steps,
                (plan->progress.applied == 0) ? ", whose update nobody had applied" : "",
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

/* The end of it without an epoch; nothing is under way. */
static gf_status end(gf_context *gf, const struct gf_error *error)
{
    gf->error = *error;
    gf->error.rank = gf->rank;
    gf->phase = GF_PHASE_FAILED;
    gf->change.state = GF_CHANGE_NONE;
    gf_log_line(&gf->log, GF_LOG_ERROR, "rank %u: %s", gf->rank, gf->error.text);
    return gf->error.code;
}

static gf_status endf(gf_context *gf, gf_status code, const char *text)
{
    struct gf_error error = {.code = code,
                             .peer = gf->error.peer,
                             .operation = GF_OPERATION_SHRINK,
                             .step = gf->step.number,
                             .tensor = GF_TENSOR_NONE};
    (void)snprintf(error.text, sizeof error.text, "%s%s%.180s", text,
                   (gf->error.text[0] != 0) ? ": " : "", gf->error.text);
    return end(gf, &error);
}

/* Who has ended may be known only a moment after its connections have. */
static void ended_look(gf_context *gf)
{
    unsigned char bits[GF_WORLD_MAX / 8];
    uint32_t ids = gf->config.job.world_max;
    if ((gf->change.ended_fd >= 0) &&
        gf_identity_ended_read(gf->change.ended_fd, bits, (ids + 7) / 8))
        gf_view_ended(gf->members, bits, ids);
}

/* Another rank may still wait for what this one sent in the last step of the epoch. */
static gf_status agree_progress(gf_context *gf)
{
    struct gf_change *change = &gf->change;
    gf_status status;
    ended_look(gf);
    if (gf->phase == GF_PHASE_AGREE) (void)gf->link->driver->progress(gf->link);
    status = gf_view_poll(gf->members, gf_awake(gf), &change->plan);
    if (status == GF_AGAIN) return GF_AGAIN;
    if (status < 0) return end(gf, gf_members_error(gf->members));
    if (change->plan.world == 0) return left(gf);
    if (change->plan.left_out) change->own.partial = 1;
    if ((status = relink(gf)) < 0) {
        bool device = (status == GF_ERR_DEVICE);
        const struct gf_fault *fault = device ? &gf->gpu->fault : &gf->link->fault;
        /* this rank's own */
        struct gf_error error = {.code = device ? status : GF_ERR_SYSTEM,
                                 .peer = GF_RANK_NONE,
                                 .operation = GF_OPERATION_SHRINK,
                                 .tensor = GF_TENSOR_NONE,
                                 .foreign_code = fault->foreign_code};
        (void)snprintf(error.text, sizeof error.text, "%s: %.200s",
                       device ? "no new epoch" : "the link cannot be reset", fault->text);
        return end(gf, &error);
    }
    change->state = GF_CHANGE_JOIN;
    change->sync_next = 0;
    return GF_AGAIN;
}

/* How long others are waited for. Those that are connected may, where nothing has failed, still be
 * in the step. */
static void agree_begin(gf_context *gf, bool planned)
{
    uint64_t join_ns = gf->config.rendezvous.join_timeout_ns;
    uint64_t part_ns = join_ns / GF_WAIT_PARTS;
    uint64_t step_ns = gf->config.exchange.timeout_ns;
    struct gf_members_reason reason = {.planned = planned,
                                       .leaves = gf->change.leaves,
                                       .culprit = gf->error.peer,
                                       .silent_ns = part_ns,
                                       .away_ns = part_ns,
                                       .own = gf->change.own};
    if (planned) reason.silent_ns = (step_ns < join_ns / 2) ? step_ns : join_ns / 2;
    if (reason.away_ns > reason.silent_ns) reason.away_ns = reason.silent_ns;
    gf_view_change(gf->members, gf_awake(gf), &reason);
    gf->change.state = GF_CHANGE_AGREE;
}

static gf_status drain_progress(gf_context *gf, uint64_t now_ns)
{
    (void)gf_failing_poll(gf, now_ns);
    if (gf->phase != GF_PHASE_FAILED) return GF_AGAIN;
    if (gf->change.final || !gf_may_go_on(gf)) {
        gf->change.state = GF_CHANGE_NONE;
        return gf->error.code;
    }
    steps_look(gf);
    agree_begin(gf, false);
    return GF_AGAIN;
}

/* An end from outside: the appliance aborts, or the deadline of the whole change has passed. */
typedef enum change_stop { STOP_NOT = 0, STOP_ABORTED, STOP_LATE } change_stop;

static change_stop stop_of(const gf_context *gf)
{
    if (gf_aborted(gf)) return STOP_ABORTED;
    return (gf_awake(gf) >= gf->change.deadline_ns) ? STOP_LATE : STOP_NOT;
}

/* While members agree nothing is under way: it ends at once, and nobody is told. */
static gf_status agree_stop(gf_context *gf, change_stop stop)
{
    if (stop == STOP_ABORTED) return endf(gf, GF_ERR_ABORTED, "aborted by its appliance");
    if (gf_view_is_left_out(gf->members))
        return endf(gf, GF_ERR_QUORUM,
                    "the other ranks went on, and did not let this one in before the deadline");
    if (gf_view_was_led(gf->members)) {
        gf_view_too_few(gf->members, ", before the deadline");
        return end(gf, gf_members_error(gf->members));
    }
    if ((gf->change.count == 0) && gf_rejoined(gf))
        return endf(gf, GF_ERR_QUORUM,
                    "the other ranks did not let this one in before the deadline of its join");
    return endf(gf, GF_ERR_QUORUM, "no new epoch before the deadline");
}

/* In all other states it is a failure: the other ranks hear of it, what is under way is drained, and
 * no change follows. */
static void joined_stop(gf_context *gf, change_stop stop)
{
    if ((stop == STOP_NOT) || (gf->error.code != GF_OK)) return;
    (void)gf_fail(gf, (stop == STOP_LATE) ? GF_ERR_TIMEOUT : GF_ERR_ABORTED, GF_OPERATION_SHRINK,
                  GF_RANK_NONE, GF_TENSOR_NONE, "%s",
                  (stop == STOP_LATE) ? "the new epoch did not begin before the deadline"
                                      : "aborted by its appliance");
    gf->change.final = true;
}

gf_status gf_change_progress(gf_context *gf, void *arg)
{
    struct gf_change *change = &gf->change;
    uint64_t now_ns = gf_poll_begin(gf);
    change_stop stop = stop_of(gf);
    (void)arg;
    if (change->state == GF_CHANGE_AGREE)
        return (stop != STOP_NOT) ? agree_stop(gf, stop) : agree_progress(gf);
    joined_stop(gf, stop);
    switch (change->state) {
    case GF_CHANGE_DRAIN: return drain_progress(gf, now_ns);
    case GF_CHANGE_JOIN:
        if ((gf->error.code == GF_OK) && (gf_join_progress(gf, now_ns) == GF_OK))
            change->state = GF_CHANGE_SYNC;
        break;
    case GF_CHANGE_SYNC:
        if ((gf->error.code != GF_OK) || (gf_common_state_progress(gf) != GF_OK)) break;
        begun(gf);
        return GF_OK;
    case GF_CHANGE_NONE:
    case GF_CHANGE_AGREE: return gf->error.code;
    }
    /* the new epoch has failed before it began: one more is needed */
    if (gf->error.code != GF_OK) change->state = GF_CHANGE_DRAIN;
    return GF_AGAIN;
}

/* ---- the beginnings ---- */

static void change_begin(gf_context *gf, uint64_t grace_ns)
{
    steps_look(gf);
    gf->change.own.requests = gf->requests.posted;
    gf->change.final = false;
    (void)gf_poll_begin(gf);
    gf->change.deadline_ns = gf_awake(gf) + gf->config.rendezvous.join_timeout_ns + grace_ns;
}

void gf_rejoin_begin(gf_context *gf)
{
    gf->change.own.partial = 1;
    change_begin(gf, JOIN_GRACE_NS);
    gf->phase = GF_PHASE_AGREE;
    agree_begin(gf, false);
}

static void ended_take(gf_context *gf, const uint32_t *ended, uint32_t count)
{
    unsigned char bits[GF_WORLD_MAX / 8] = {0};
    for (uint32_t i = 0; i < count; i++) gf_view_add(bits, ended[i]);
    gf_view_ended(gf->members, (ended != NULL) ? bits : NULL, gf->config.job.world_max);
}

static gf_status planned_begin(gf_context *gf, const uint32_t *ended, uint32_t count)
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
    change_begin(gf, 0);
    if (gf->change.own.applied == 0)
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_regroup_begin: step %llu was not applied; " GF_APPLY_FIRST,
                         (unsigned long long)gf->step.number);
    gf->phase = GF_PHASE_AGREE;
    ended_take(gf, ended, count);
    agree_begin(gf, true);
    return GF_OK;
}

gf_status gf_regroup_begin(gf_context *gf, const uint32_t *ended, uint32_t count)
{
    GF_COMPUTES();
    gf_status status = gf_own(gf);
    if (status < 0) return status;
    for (uint32_t i = 0; i < count; i++)
        if ((ended == NULL) || (ended[i] >= gf->config.job.world_max) ||
            (ended[i] == gf->config.job.rank))
            return gf_refuse(
                gf, GF_ERR_PARAM,
                "gf_regroup_begin: ended[%u] is %u; allowed are other members below %u", i,
                (ended == NULL) ? 0 : ended[i], gf->config.job.world_max);
    if (gf->members == NULL)
        return gf_refuse(gf, GF_ERR_STATE, "gf_regroup_begin: the context was never of an epoch");
    if (gf->change.state != GF_CHANGE_NONE)
        return gf_refuse(gf, GF_ERR_STATE, "gf_regroup_begin: one is under way");
    if (gf->opening.leave_ns != 0)
        return gf_refuse(gf, GF_ERR_STATE, "gf_regroup_begin: gf_close_poll() was called");
    (void)gf_enter(gf); /* an abort becomes a failure */
    if (!has_failed(gf)) return planned_begin(gf, ended, count);
    if (!gf_may_go_on(gf) || gf_aborted(gf))
        return gf_refuse(gf, GF_ERR_STATE, "gf_regroup_begin: this rank has failed by itself: %s",
                         gf->error.text);
    gf->change.state = GF_CHANGE_DRAIN;
    change_begin(gf, 0);
    ended_take(gf, ended, count);
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
    return (gf != NULL) && gf->config.rendezvous.rejoin;
}
bool gf_left_out(const gf_context *gf)
{
    return (gf != NULL) && gf->change.left_out;
}
bool gf_left(const gf_context *gf)
{
    return (gf != NULL) && gf->change.left;
}
