/* gf_broadcast_weights(), and what a regroup does if a rank dies in it.
 *
 * Programs make the same calls in the same order. So two ranks have the same weights if they have
 * changed them equally often since the same whole step. A regroup compares that number as
 * `applied`: the update of a step is one change, each broadcast another; before the first step
 * there is no update.
 *
 * The root counts its broadcast when it calls, also where it has met a failure, unless a broadcast
 * before it was torn there; the other ranks when they end it. So a rank that has all values is
 * ahead, and the regroup gives its weights to all, which completes the broadcast. If no such rank
 * is left, the call counts as never made. After a step, a rank that was in the broadcast is
 * partial, and gets the weights of a rank that was not. Before the first step there are no such
 * weights: the number is 0 on all ranks, and gf_weights_common() says so. */
#include "lib/core/weights.h"

#include "lib/core/accessors.h"
#include "lib/core/applied.h"
#include "lib/core/extra.h"
#include "lib/core/wait.h"
#include "drivers/base/arithmetic.h"

/* ---- what is known of them ---- */

static uint32_t changes(const gf_context *gf)
{
    bool updated = (gf_steps(gf) > 0) && !gf_step_is_unapplied(gf);
    return gf->given.broadcasts + (updated ? 1u : 0u);
}

void gf_own_applied_set(const gf_context *gf, struct gf_control_progress *own)
{
    bool has_begun = (gf_steps(gf) > 0);
    own->applied = (gf->given.torn && !has_begun) ? 0 : changes(gf);
    if (gf->given.torn && has_begun) own->partial = 1;
}

void gf_given_lags(gf_context *gf, const struct gf_control_progress *common)
{
    /* before the first step nothing is lost with them: the job begins anew, and does not end */
    if (common->steps > 0)
        gf->change.own.partial = 1;
    else
        gf->given.torn = gf->given.owed = true;
}

void gf_given_take(gf_context *gf, const struct gf_control_progress *common)
{
    gf->given.missed = 0;
    gf->given.broadcasts = common->applied;
    if ((common->steps > 0) && (common->applied > 0)) gf->given.broadcasts--; /* the update */
    if ((common->steps > 0) || (common->applied > 0)) gf->given.torn = gf->given.owed = false;
}

bool gf_weights_common(const gf_context *gf)
{
    return (gf != NULL) && ((gf->phase == GF_PHASE_READY) || (gf->phase == GF_PHASE_STEP)) &&
           !gf->given.owed && ((gf_steps(gf) > 0) || (gf->given.broadcasts > 0));
}

/* ---- a broadcast of them ---- */

/* GF_OK: there is no message left. */
static gf_status broadcast_post(gf_context *gf, struct gf_weights_broadcast *broadcast)
{
    uint64_t words = 0;
    gf_mem data = 0;
    gf_status status;
    if (broadcast->part == GF_BROADCAST_WEIGHTS) {
        data = gf->optimizer.weight;
        words = (data != 0) ? gf->pool.elem_count : 0;
        broadcast->part = GF_BROADCAST_BULK;
    }
    if ((words == 0) && (broadcast->part == GF_BROADCAST_BULK)) {
        words = gf_extra_bulk(gf, &broadcast->first, &data);
        if (words == 0) {
            broadcast->part = GF_BROADCAST_RESTS;
            broadcast->first = broadcast->end = 0;
        }
    }
    if ((words == 0) && (broadcast->part == GF_BROADCAST_RESTS)) {
        words = gf_extra_rests(gf, broadcast->first, &broadcast->end);
        data = (gf_mem)(uintptr_t)gf->extra_stage;
        if (words == 0) return GF_OK;
        if (gf->rank == broadcast->root)
            gf_extra_rests_move(gf, broadcast->first, broadcast->end, true);
    }
    status = gf_broadcast(gf, data, words, GF_TYPE_F32, broadcast->root, &broadcast->request);
    if (status < 0) return status;
    broadcast->posted = true;
    return GF_AGAIN;
}

/* This rank has all values, also where it has failed: a regroup that gives them to all gives their
 * 16-bit copy, too. */
static gf_status broadcast_count(gf_context *gf)
{
    gf_status status = gf_half_refresh(gf);
    if (status < 0) return status;
    gf->given.torn = gf->given.owed = false;
    gf->given.broadcasts += 1u + gf->given.missed;
    gf->given.missed = 0;
    return GF_OK;
}

gf_status gf_weights_broadcast_poll(gf_context *gf, void *arg)
{
    struct gf_weights_broadcast *broadcast = arg;
    gf_status status = GF_AGAIN;
    while (status == GF_AGAIN) {
        if (broadcast->posted) {
            if ((status = gf_request_poll(gf, &broadcast->request)) != GF_OK) return status;
            broadcast->posted = false;
            if (broadcast->part == GF_BROADCAST_RESTS) {
                gf_extra_rests_move(gf, broadcast->first, broadcast->end, false);
                broadcast->first = broadcast->end;
            }
        }
        status = broadcast_post(gf, broadcast);
    }
    if ((status < 0) || (gf->rank == broadcast->root)) return status;
    return broadcast_count(gf);
}

/* May what is known to the library be half written, as an update is under way? */
static bool may_be_half_written(const gf_context *gf)
{
    return (gf->config.state_extra_count > 0) && gf_step_is_unapplied(gf);
}

/* Are this rank's values whole where it has met a failure? With an optimizer of the program's own
 * the step is not applied yet, and may be half written. The library's has refused gf_update(), and
 * the program has written its values after that. */
static bool is_whole_after_failure(const gf_context *gf)
{
    const bool between = (gf->step.state == GF_STEP_NONE) || gf_step_is_whole(gf);
    const bool applies = (gf->config.optimizer.kind == GF_OPTIMIZER_NONE);
    return between && gf_has_weights(gf) && !gf->given.torn &&
           !(applies && may_be_half_written(gf));
}

/* A failure came before this rank's call: nothing is posted. No other rank gets values, but the
 * root has written its own, and a regroup gives them to all; not those of a root that a broadcast
 * of another has left with a part of that one's. */
static void broadcast_after_failure(gf_context *gf, uint32_t root)
{
    gf->given.owed = true;
    if (gf->rank != root) gf->given.missed++;
    if ((gf->rank != root) || !is_whole_after_failure(gf) || !gf_regroup_is_next(gf)) return;
    if (broadcast_count(gf) < 0) return; /* the failure is what the call answers */
    /* gf_update() is refused from here on. Another rank may have made it, and not this call, which
     * must not count as much. */
    if (gf->step.state == GF_STEP_WHOLE) gf->step.state = GF_STEP_UPDATED;
}

static gf_status broadcast_check(gf_context *gf, uint32_t root)
{
    gf_status status = gf_enter(gf);
    if (status < 0) {
        if ((status != GF_ERR_PARAM) && (status != GF_ERR_STATE)) broadcast_after_failure(gf, root);
        return status;
    }
    if (!gf_requests_idle(gf))
        return gf_refuse(gf, GF_ERR_STATE, "gf_broadcast_weights: requests are under way");
    if (gf->requests.used == (1u << GF_REQUESTS_MAX) - 1)
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_broadcast_weights: %u requests have ended that nobody has asked for",
                         GF_REQUESTS_MAX);
    if (!gf_has_weights(gf))
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_broadcast_weights: the library knows no weights: optimizer.kind is "
                         "none and state_extra is empty; gf_broadcast() sends other memory");
    if (may_be_half_written(gf))
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_broadcast_weights: step %llu was not applied, and state_extra may be "
                         "half written; " GF_APPLY_FIRST,
                         (unsigned long long)gf->step.number);
    return GF_OK;
}

gf_status gf_weights_broadcast_begin(gf_context *gf, uint32_t root,
                                     struct gf_weights_broadcast *broadcast_out)
{
    gf_status status = broadcast_check(gf, root);
    if (status < 0) return status;
    *broadcast_out = (struct gf_weights_broadcast){.root = root, .part = GF_BROADCAST_WEIGHTS};
    if ((status = broadcast_post(gf, broadcast_out)) < 0) return status;
    if (gf->rank == root) return (broadcast_count(gf) < 0) ? gf->error.code : status;
    gf->given.torn = gf->given.owed = true;
    return status;
}

gf_status gf_broadcast_weights(gf_context *gf, uint32_t root)
{
    GF_COMPUTES();
    struct gf_weights_broadcast broadcast;
    gf_status status = gf_weights_broadcast_begin(gf, root, &broadcast);
    return (status < 0) ? status : gf_wait(gf, gf_weights_broadcast_poll, &broadcast);
}
