/* From a failed context to a ready one without the dead: what surrounds the agreement of view.c.
 *
 *     DRAIN  as every failure: the culprit is asked for, messages end (error.c)
 *     AGREE  who survives, under which number, whose state counts
 *     JOIN   the link is reset (a message of the old epoch has nobody to go to), the region mapped anew, endpoint addresses travel
 *            and the link is warmed up, all as at open
 *     SYNC   where some rank is behind: weights, momentum, selection and loss scale from the lead, by broadcast
 *
 * A rank is behind the lead by one step at most (the verdict of the last step reached only some), or by the gf_update()
 * of the same step. What it had sent in a sparse step that others have ended is applied there, so its own history gives
 * it up; what it had not sent of that step's gradient is lost with the step.
 *
 * A link and a rendezvous know ranks by their member ids, the ranks of the first epoch; gf_member_id_of() translates. */
#include <stdio.h>
#include <string.h>

#include "drivers/identity.h"
#include "lib/device/device.h"
#include "lib/modules/modules.h"
#include "lib/core/accessors.h"
#include "lib/core/choose.h"
#include "lib/core/extra.h"
#include "lib/core/late.h"

static bool may_shrink(const gf_context *gf)
{
    return (gf->error.code == GF_ERR_PEER) || (gf->error.code == GF_ERR_LINK) || (gf->error.code == GF_ERR_TIMEOUT);
}

struct gf_members_standing gf_standing(const gf_context *gf)
{
    const struct gf_step *step = &gf->step;
    bool waits = !gf->shrink.in_step && step->whole && !step->updated && !step->skipped &&
                 gf_has_weights(gf);
    return (struct gf_members_standing){.steps = gf_steps(gf), .applied = waits ? 0 : 1,
                                        .requests = gf->requests.posted};
}

/* ---- a new link ---- */

static gf_status relink(gf_context *gf)
{
    const struct gf_members_plan *plan = &gf->shrink.plan;
    const void *endpoint;
    size_t endpoint_bytes;
    gf_status status;
    gf->epoch = plan->epoch;
    if (gf->on_device) gf->modules->device->ipc_close(gf);
    if ((status = gf_link_renew(gf, gf->link->network, &endpoint, &endpoint_bytes)) < 0) return status;
    gf_members_shrink_join(gf->members, endpoint, endpoint_bytes, gf_awake(gf));
    gf->rank = plan->rank;
    gf->world = plan->world;
    gf->ids = gf_members_ids(gf->members);
    gf_ops_reset(gf);
    gf_requests_reset(gf, plan->standing.requests);
    gf_choose_reset(gf);
    gf->warm.connected = 0;
    gf->warm.state = GF_WARM_BEGIN;
    gf->polled.members_skip = 0;
    gf->shrink.joiners = 0;
    memset(gf->observed.peers, 0, gf->world * sizeof *gf->observed.peers);
    gf->observed.epoch_steps = 0;
    gf->error = (struct gf_error){.rank = gf->rank, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    gf->phase = GF_PHASE_JOIN;
    return GF_OK;
}

/* ---- the common state ---- */

enum { WORD_SCALE, WORD_GOOD, WORD_BAD, WORD_SAMPLES, WORD_SAMPLES_HIGH, WORD_SELECTED, WORD_FLAGS, WORD_UPDATES };
#define FLAG_KNOWN 0x1u
#define FLAG_EMPTY 0x2u
#define FLAG_LOCAL 0x4u
#define FLAG_SKIPPED 0x8u

static void words_put(gf_context *gf)
{
    uint32_t *words = gf->shrink.words;
    memcpy(&words[WORD_SCALE], &gf->loss_scale.value, sizeof words[0]);
    words[WORD_GOOD] = gf->loss_scale.good;
    words[WORD_BAD] = gf->loss_scale.bad;
    words[WORD_SAMPLES] = (uint32_t)gf->samples_before;
    words[WORD_SAMPLES_HIGH] = (uint32_t)(gf->samples_before >> 32);
    words[WORD_SELECTED] = gf->sparse.selected_count;
    words[WORD_UPDATES] = (gf->optimizer.updates < UINT32_MAX) ? (uint32_t)gf->optimizer.updates : UINT32_MAX;
    words[WORD_FLAGS] = (gf->sparse.known ? FLAG_KNOWN : 0) | (gf->sparse.history_empty ? FLAG_EMPTY : 0) |
                        (gf->sparse.local_begun ? FLAG_LOCAL : 0) | (gf->skipped_last ? FLAG_SKIPPED : 0);
}

static void words_get(gf_context *gf)
{
    const uint32_t *words = gf->shrink.words;
    memcpy(&gf->loss_scale.value, &words[WORD_SCALE], sizeof words[0]);
    gf->loss_scale.good = words[WORD_GOOD];
    gf->loss_scale.bad = words[WORD_BAD];
    gf->samples_before = words[WORD_SAMPLES] | ((uint64_t)words[WORD_SAMPLES_HIGH] << 32);
    gf->sparse.selected_count = words[WORD_SELECTED];
    gf->optimizer.updates = words[WORD_UPDATES];
    gf->sparse.known = (words[WORD_FLAGS] & FLAG_KNOWN) != 0;
    gf->sparse.history_empty = (words[WORD_FLAGS] & FLAG_EMPTY) != 0;
    gf->sparse.local_begun = (words[WORD_FLAGS] & FLAG_LOCAL) != 0;
    gf->skipped_last = (words[WORD_FLAGS] & FLAG_SKIPPED) != 0;
}

/* Chunks of a step that this rank did not see the end of: the others have applied what it sent, unless they skipped it.
 * The lead's words are here, its selection is not yet. */
static gf_status history_give_up(gf_context *gf)
{
    struct gf_sparse *sparse = &gf->sparse;
    if ((gf->shrink.plan.standing.steps == gf->shrink.own.steps) || !gf->step.sparse || (sparse->elem_count == 0) ||
        ((gf->shrink.words[WORD_FLAGS] & FLAG_SKIPPED) != 0))
        return GF_OK;
    for (uint32_t i = 0; i < sparse->selected_count; i++) {
        uint64_t first = sparse->selection[i] * sparse->chunk_elems;
        uint64_t count = sparse->elem_count - first;
        if (count > sparse->chunk_elems) count = sparse->chunk_elems;
        if (gf->ops->zero(&gf->queue, sparse->history + first * sizeof(float), count * sizeof(float)) < 0)
            return gf_device_failed(gf, GF_OPERATION_SHRINK);
    }
    return GF_OK;
}

static void part_post(gf_context *gf, uint32_t part, gf_mem data, uint64_t elem_count, gf_type type)
{
    gf_status status;
    if (elem_count == 0) return;
    status = gf_request_post(gf, GF_OPERATION_SHRINK, GF_COLL_BROADCAST, data, elem_count, type, gf->shrink.plan.lead,
                             &gf->shrink.requests[part]);
    GF_ASSERT(status == GF_OK);
}

/* The appliance's own, as many at once as there is room for. */
static void extra_post(gf_context *gf)
{
    uint32_t *next = &gf->shrink.extra_next;
    for (uint32_t part = 0; (part < GF_REQUESTS_MAX) && (*next < gf->config.state_extra_count); part++, ++*next) {
        const struct gf_state_extra *extra = &gf->config.state_extra[*next];
        part_post(gf, part, (gf_mem)(uintptr_t)extra->data, extra->bytes / sizeof(float), GF_TYPE_F32);
    }
}

static void sync_post(gf_context *gf)
{
    const struct gf_members_standing *mine = &gf->shrink.own, *common = &gf->shrink.plan.standing;
    /* Those that are not behind receive the bits that they have. */
    if ((mine->steps != common->steps) || (mine->applied != common->applied)) gf->shrink.own.torn = 1;
    words_put(gf);
    part_post(gf, 0, (gf_mem)(uintptr_t)gf->shrink.words, sizeof gf->shrink.words / sizeof(float), GF_TYPE_F32);
    gf->shrink.posted = true;
}

/* Whole pools travel, gaps included: a flat range of one is the same range of all. Momentum that the words say is each
 * rank's own stays so; who had not divided it yet has no share of it. */
static gf_status pools_post(gf_context *gf)
{
    bool local = (gf->shrink.words[WORD_FLAGS] & FLAG_LOCAL) != 0;
    uint64_t elems = gf->pool.elem_count, own = local ? gf->pool.sparse_elem_count : 0;
    gf_status status = history_give_up(gf);
    if (status < 0) return status;
    if ((own > 0) && !gf->sparse.local_begun && (gf->optimizer.momentum != 0) &&
        (gf->ops->zero(&gf->queue, gf->optimizer.momentum, own * sizeof(float)) < 0))
        return gf_device_failed(gf, GF_OPERATION_SHRINK);
    part_post(gf, 1, (gf_mem)(uintptr_t)gf->sparse.selection, gf->sparse.chunk_count, GF_TYPE_F32);
    if (gf->optimizer.weight != 0) part_post(gf, 2, gf->optimizer.weight, elems, GF_TYPE_F32);
    if (gf->optimizer.momentum != 0) part_post(gf, 3, gf->optimizer.momentum + own * sizeof(float), elems - own, GF_TYPE_F32);
    if (gf->optimizer.moment2 != 0) part_post(gf, 5, gf->optimizer.moment2, elems, GF_TYPE_F32);
    if (gf->optimizer.half != 0) part_post(gf, 4, gf->optimizer.half, elems, gf->config.optimizer.half_weights);
    gf->shrink.pools_posted = true;
    return GF_OK;
}

/* GF_OK: every survivor holds the common state. */
static gf_status sync_progress(gf_context *gf)
{
    gf_status status;
    if (!gf->shrink.plan.behind) return GF_OK;
    if (!gf->shrink.posted) sync_post(gf);
    if (gf_request_progress(gf, NULL) < 0 || (gf->error.code != GF_OK)) return gf->error.code;
    if (!gf_requests_idle(gf)) return GF_AGAIN;
    gf_requests_reset(gf, gf->requests.posted);
    if (!gf->shrink.pools_posted) return ((status = pools_post(gf)) < 0) ? status : GF_AGAIN;
    if (gf->shrink.extra_next < gf->config.state_extra_count) {
        extra_post(gf);
        return GF_AGAIN;
    }
    words_get(gf);
    return GF_OK;
}

/* ---- the turns ---- */

static void shrunk(gf_context *gf)
{
    const struct gf_members_plan *plan = &gf->shrink.plan;
    gf->step = (struct gf_step){.number = plan->standing.steps, .whole = true, .updated = true,
                                .gradient_scale = 1.0f};
    gf->phase = GF_PHASE_READY;
    gf->together_ns = gf_now(gf);
    gf->shrink.state = GF_SHRINK_NONE;
    gf->shrink.count++;
    gf_log_line(&gf->log, GF_LOG_INFO, "rank %u of %u: epoch %u has begun behind step %llu%s%s", gf->rank, gf->world,
                gf->epoch, (unsigned long long)plan->standing.steps,
                (plan->standing.applied == 0) ? ", whose update nobody had applied" : "",
                plan->behind ? ", ranks that were behind have the common state" : "");
}

/* The end of it without an epoch; nothing is under way. */
static gf_status shrink_end(gf_context *gf, const struct gf_error *error)
{
    gf->error = *error;
    gf->error.rank = gf->rank;
    gf->phase = GF_PHASE_FAILED;
    gf->shrink.state = GF_SHRINK_NONE;
    gf_log_line(&gf->log, GF_LOG_ERROR, "rank %u: %s", gf->rank, gf->error.text);
    return gf->error.code;
}

static gf_status shrink_endf(gf_context *gf, gf_status code, const char *text)
{
    struct gf_error error = {.code = code, .peer = gf->error.peer, .operation = GF_OPERATION_SHRINK,
                             .step = gf->step.number, .tensor = GF_TENSOR_NONE};
    (void)snprintf(error.text, sizeof error.text, "%s%s%.180s", text, (gf->error.text[0] != 0) ? ": " : "",
                   gf->error.text);
    return shrink_end(gf, &error);
}

/* Who has ended may be known only a moment after its connections have. */
static void ended_look(gf_context *gf)
{
    unsigned char bits[GF_WORLD_MAX / 8];
    if ((gf->shrink.ended_fd >= 0) && gf_identity_ended_read(gf->shrink.ended_fd, bits, (gf->config.job.world + 7) / 8))
        gf_members_ended(gf->members, bits, gf->config.job.world);
}

static gf_status agree_progress(gf_context *gf)
{
    struct gf_shrinking *shrink = &gf->shrink;
    gf_status status;
    ended_look(gf);
    /* Another rank may still wait for what this one sent in the last step of the epoch. */
    if (gf->phase == GF_PHASE_AGREE) (void)gf->link->driver->progress(gf->link);
    status = gf_members_shrink_poll(gf->members, gf_awake(gf), &shrink->plan);
    if (status == GF_AGAIN) return GF_AGAIN;
    if (status < 0) return shrink_end(gf, gf_members_error(gf->members));
    if (relink(gf) < 0) {
        struct gf_error error = {.code = GF_ERR_LINK, .peer = GF_RANK_NONE, .operation = GF_OPERATION_SHRINK,
                                 .tensor = GF_TENSOR_NONE, .foreign_code = gf->link->fault.foreign_code};
        (void)snprintf(error.text, sizeof error.text, "the link cannot be reset: %.200s", gf->link->fault.text);
        return shrink_end(gf, &error);
    }
    shrink->state = GF_SHRINK_JOIN;
    shrink->posted = shrink->pools_posted = false;
    shrink->extra_next = 0;
    return GF_AGAIN;
}

/* A failure in the new epoch: another shrink, unless it is this rank's own. */
static gf_status again(gf_context *gf)
{
    gf->shrink.state = GF_SHRINK_DRAIN;
    if (!may_shrink(gf)) gf->shrink.final = true;
    return GF_AGAIN;
}

static gf_status drain_progress(gf_context *gf, uint64_t now_ns)
{
    struct gf_shrinking *shrink = &gf->shrink;
    (void)gf_failing_poll(gf, now_ns);
    if (gf->phase != GF_PHASE_FAILED) return GF_AGAIN;
    if (shrink->final || !may_shrink(gf)) {
        shrink->state = GF_SHRINK_NONE;
        return gf->error.code;
    }
    gf_members_shrink(gf->members, gf_awake(gf), gf->error.peer, &shrink->own,
                      gf->config.rendezvous.join_timeout_ns / GF_SETTLE_PARTS);
    shrink->state = GF_SHRINK_AGREE;
    return GF_AGAIN;
}

gf_status gf_shrink_progress(gf_context *gf, void *arg)
{
    struct gf_shrinking *shrink = &gf->shrink;
    uint64_t now_ns = gf_poll_begin(gf);
    bool late = (gf_awake(gf) >= shrink->deadline_ns), quiet = (shrink->state == GF_SHRINK_AGREE);
    gf_status status = GF_AGAIN;
    (void)arg;
    if (quiet && gf_aborted(gf)) return shrink_endf(gf, GF_ERR_ABORTED, "aborted by its appliance");
    if (quiet && late && (gf->shrink.count == 0) && gf_rejoined(gf))
        return shrink_endf(gf, GF_ERR_QUORUM, "the other ranks did not let this one in before the deadline of its join");
    if (quiet && late) return shrink_endf(gf, GF_ERR_QUORUM, "no new epoch before the deadline of the shrink");
    if ((gf->error.code == GF_OK) && (late || gf_aborted(gf))) {
        (void)gf_fail(gf, late ? GF_ERR_TIMEOUT : GF_ERR_ABORTED, GF_OPERATION_SHRINK, GF_RANK_NONE, GF_TENSOR_NONE,
                      "%s", late ? "the new epoch did not begin before the deadline of the shrink"
                                 : "aborted by its appliance");
        shrink->final = true;
    }
    switch (shrink->state) {
    case GF_SHRINK_NONE:  return gf->error.code;
    case GF_SHRINK_DRAIN: return drain_progress(gf, now_ns);
    case GF_SHRINK_AGREE: return agree_progress(gf);
    case GF_SHRINK_JOIN:
        if (gf->error.code != GF_OK) return again(gf);
        status = gf_join_progress(gf, now_ns);
        if (status == GF_OK) shrink->state = GF_SHRINK_SYNC;
        break;
    case GF_SHRINK_SYNC:
        if (gf->error.code != GF_OK) return again(gf);
        status = sync_progress(gf);
        if (status != GF_OK) break;
        shrunk(gf);
        return GF_OK;
    }
    return (gf->error.code != GF_OK) ? again(gf) : GF_AGAIN;
}

/* ---- the public calls ---- */

static void ended_take(gf_context *gf, const uint32_t *ended, uint32_t count)
{
    unsigned char bits[GF_WORLD_MAX / 8] = {0};
    for (uint32_t i = 0; i < count; i++) bits[ended[i] / 8] |= (unsigned char)(1u << (ended[i] % 8));
    gf_members_ended(gf->members, bits, gf->config.job.world);
}

gf_status gf_shrink(gf_context *gf, const uint32_t *ended, uint32_t count)
{
    gf_status status = gf_own(gf);
    if (status < 0) return status;
    for (uint32_t i = 0; i < count; i++)
        if ((ended == NULL) || (ended[i] >= gf->config.job.world) || (ended[i] == gf->config.job.rank))
            return gf_refuse(gf, GF_ERR_PARAM, "gf_shrink: ended[%u] is %u; allowed are other ranks below %u", i,
                             (ended == NULL) ? 0 : ended[i], gf->config.job.world);
    if (((gf->phase != GF_PHASE_FAILING) && (gf->phase != GF_PHASE_FAILED)) || (gf->members == NULL))
        return gf_refuse(gf, GF_ERR_STATE, "gf_shrink: no epoch has failed");
    if (gf->modules->elastic == NULL)
        return gf_refuse(gf, GF_ERR_STATE, "gf_shrink: the module \"elastic\" is not linked: %s has no "
                         ".elastic = &gf_module_elastic", gf->modules->name);
    if (gf->shrink.state != GF_SHRINK_NONE) return gf_refuse(gf, GF_ERR_STATE, "gf_shrink: one is under way");
    if (!may_shrink(gf) || gf_aborted(gf))
        return gf_refuse(gf, GF_ERR_STATE, "gf_shrink: this rank has failed by itself: %s", gf->error.text);
    gf->shrink.own = gf_standing(gf);
    gf->shrink.final = false;
    (void)gf_poll_begin(gf);
    gf->shrink.deadline_ns = gf_awake(gf) + gf->config.rendezvous.join_timeout_ns;
    gf->shrink.state = GF_SHRINK_DRAIN;
    if (ended != NULL) ended_take(gf, ended, count);
    else gf_members_ended(gf->members, NULL, 0);
    return GF_OK;
}

static gf_status shrink_enter(const gf_context *gf, const char *call)
{
    gf_status status = gf_own(gf);
    if (status < 0) return status;
    if (gf->shrink.state != GF_SHRINK_NONE) return GF_OK;
    if (gf->error.code != GF_OK) return gf->error.code;
    gf_log_line(&gf->log, GF_LOG_ERROR, "rank %u: %s: gf_shrink() was not called", gf->rank, call);
    return GF_ERR_STATE;
}

gf_status gf_shrink_poll(gf_context *gf)
{
    gf_status status = shrink_enter(gf, "gf_shrink_poll");
    return (status < 0) ? status : gf_shrink_progress(gf, NULL);
}

gf_status gf_shrink_wait(gf_context *gf)
{
    gf_status status = shrink_enter(gf, "gf_shrink_wait");
    return (status < 0) ? status : gf_wait(gf, gf_shrink_progress, NULL);
}
