/* A step: tensors become ready, fused buffers go out in one order on every rank, the vote, the
 * commit.
 *
 *     ready -> an operation each buffer (op.h); all of them, then
 *     vote -> commit -> whole
 *
 * Any ready order is valid, but buffers start in one order, by the last tensor they need: with a
 * limited number of ops two ranks that started in different orders could each hold what the other
 * waits for. */
#include <float.h>
#include <string.h>

#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/core/skipped.h"
#include "lib/core/applied.h"
#include "lib/core/vote.h"
#include "drivers/base/arithmetic.h"

#define STILL_NS UINT64_C(25000000)

void gf_buffers_order(gf_context *gf)
{
    /* Two runs, each in backward order already (the sparse part, then the dense one): merge them by
     * last tensor. */
    uint32_t count = gf->step.buffer_count;
    uint32_t split = 0;
    uint32_t left;
    uint32_t right;
    while ((split < count) && (gf->buffers.now[split].sparse != 0)) split++;
    left = 0;
    right = split;
    for (uint32_t i = 0; i < count; i++) {
        bool take_left =
            (left < split) && ((right == count) || (gf->buffers.now[left].last_tensor <=
                                                    gf->buffers.now[right].last_tensor));
        gf->buffers.order[i] = take_left ? left++ : right++;
    }
}

void gf_dense_begin(gf_context *gf)
{
    uint32_t count = 0;
    gf->buffers.now = gf->buffers.dense;
    for (int part = 1; part >= 0; part--)
        count = gf_pool_group(&gf->config, gf->tensors, gf->tensor_count, part == 1,
                              gf->buffers.now, count);
    gf->buffers.dense_count = count;
    gf->step.buffer_count = count;
    for (uint32_t b = 0; b < count; b++) gf->buffers.pending[b] = gf->buffers.now[b].tensor_count;
    gf_buffers_order(gf);
}

static void buffers_start(gf_context *gf)
{
    struct gf_step *step = &gf->step;
    while (step->next < step->buffer_count) {
        uint32_t number = gf->buffers.order[step->next];
        if ((gf->buffers.pending[number] > 0) || !gf_buffer_start(gf, number)) return;
        step->next++;
    }
}

/* Divides gradients of dense buffers that do not keep their scale by what only the vote knows and
 * by what unpacking left in them. One poll does about a slice. */
static gf_status samples_divide(gf_context *gf, float factor)
{
    struct gf_step *step = &gf->step;
    while (step->commit_tensor < gf->tensor_count) {
        const struct gf_pool_tensor *tensor = &gf->tensors[step->commit_tensor];
        gf_type type = (gf_type)tensor->type;
        float rest = (gf_unpack_factor(gf, type) == 1.0f) ? step->gradient_scale : factor;
        uint64_t count = gf_poll_elems(gf, tensor->elem_count - step->commit_elems);
        gf_mem at =
            gf->gradient + tensor->gradient_offset + step->commit_elems * gf_type_size_bytes(type);
        if (gf_keeps_scale(gf, type) || (step->sparse && (tensor->sparse != 0)))
            count = tensor->elem_count;
        else if (gf->ops->cast(&gf->queue, at, type, at, type, count, rest, 0, NULL) < 0)
            return gf_device_failed(gf, GF_OPERATION_STEP);
        step->commit_elems += count;
        if (step->commit_elems < tensor->elem_count) return GF_AGAIN;
        step->commit_elems = 0;
        step->commit_tensor++;
    }
    return GF_OK;
}

/* After the vote: what depends on it. */
static gf_status step_commit(gf_context *gf)
{
    struct gf_step *step = &gf->step;
    gf_status status = gf_vote_check(gf);
    if (status != GF_OK) return status;
    if (step->skipped) return GF_OK;
    step->gradient_scale = gf_buffer_factor(gf);
    if (gf->config.exchange.average == GF_AVERAGE_SAMPLES) {
        /* history may be sent */
        uint64_t samples = (step->samples_all > 0) ? step->samples_all : gf->samples_before;
        float factor = (samples > 0) ? (float)(1.0 / (double)samples) : 0.0f;
        step->gradient_scale *= factor;
        if ((status = samples_divide(gf, factor)) != GF_OK) return status;
    }
    status = gf_clip_sparse(gf);
    if ((status != GF_OK) || step->skipped) return status;
    return gf_sparse_commit(gf, step->gradient_scale);
}

static void step_end(gf_context *gf, uint64_t now_ns)
{
    struct gf_step *step = &gf->step;
    struct gf_stats *stats = &gf->observed.stats;
    step->state = GF_STEP_WHOLE;
    gf->skipped_last = step->skipped;
    gf->given.broadcasts = 0;
    if (!step->skipped && (step->samples_all > 0)) gf->samples_before = step->samples_all;
    stats->steps++;
    stats->steps_skipped += step->skipped ? 1 : 0;
    stats->last_exchange_ns = (step->first_ns != 0) ? now_ns - step->first_ns : 0;
    stats->exchange_ns += stats->last_exchange_ns;
    stats->last_wire_bytes = gf->link->sent_bytes - step->wire_before;
    gf->observed.generation_steps++;
    gf->observed.late[step->last_rank].steps++;
    gf->observed.late[step->last_rank].ns += step->late_ns;
}

gf_status gf_step_drop(gf_context *gf, const char *what, double norm)
{
    const bool whole = gf->step.state >= GF_STEP_WHOLE;
    char many[GF_SKIP_TEXT_BYTES];
    gf->step.skipped = gf->skipped_last = true;
    gf->observed.stats.steps_skipped += whole ? 1 : 0;
    if (gf_skip_is_news(gf, GF_SKIP_NORM, many))
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "step %llu skipped on all ranks: all gradients are finite, but %s %g is %s%s",
                    (unsigned long long)gf->step.number, what, norm,
                    (norm > (double)FLT_MAX) ? "not, in fp32"
                                             : "so large that optimizer.clip_norm makes them 0",
                    many);
    if (!whole) return GF_OK; /* its end counts it */
    return gf_scale_drop(gf);
}

/* GF_OK: the vote is posted; all tensors are declared, exchanged and (of a sparse step) scored. */
static gf_status step_vote(gf_context *gf, uint64_t now_ns)
{
    const struct gf_step *step = &gf->step;
    gf_status scored = step->sparse ? gf_sparse_score(gf, now_ns) : GF_OK;
    if (scored != GF_OK) return scored;
    if ((step->buffers_ended < step->buffer_count) || (step->declared < gf->tensor_count))
        return GF_AGAIN;
    return gf_vote_post(gf) ? GF_OK : GF_AGAIN;
}

static gf_status step_advance(gf_context *gf, uint64_t now_ns)
{
    struct gf_step *step = &gf->step;
    gf_status status;

    buffers_start(gf);
    status = gf_ops_progress(gf, now_ns);
    if (status < 0) return status;
    if (step->state == GF_STEP_BEGUN) {
        status = step_vote(gf, now_ns);
        /* the vote is posted in the poll in which the last buffer has ended */
        if (status == GF_OK) status = gf_ops_progress(gf, now_ns);
        if (status < 0) return status;
    }
    if (step->state < GF_STEP_AGREED) return GF_AGAIN;
    if (step->state == GF_STEP_AGREED) {
        /* a commit takes several polls, and there is no reason to nap between them */
        gf->wait_state.moved_ns = now_ns;
        if ((status = step_commit(gf)) != GF_OK) return status;
        step->state = GF_STEP_COMMITTED;
    }
    if ((status = gf_scale_step(gf, step->skipped)) < 0) return status;
    gf->phase = GF_PHASE_READY;
    step_end(gf, now_ns);
    return GF_OK;
}

/* Writes the rest of a sparse step while the context fails. Otherwise a part of the history would
 * hold this step's gradients, and the repeated step would add them again. All that is needed is
 * here. The step is whole afterwards, without its gf_update(). */
bool gf_step_is_cut(const gf_context *gf)
{
    return gf_may_go_on(gf) && (gf->phase == GF_PHASE_STEP) && (gf->step.state == GF_STEP_AGREED) &&
           gf->step.sparse && gf_sparse_commits(gf);
}

gf_status gf_step_write(gf_context *gf)
{
    gf_status status = gf_sparse_commit(gf, gf->step.gradient_scale);
    if (status != GF_OK) return status;
    (void)gf_scale_step(gf, false);
    step_end(gf, gf_now(gf));
    return GF_OK;
}

/* ---- the public calls ---- */

gf_status gf_step_begin(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = gf_enter(gf);
    uint64_t number;
    if (status < 0) return status;
    if (gf->phase == GF_PHASE_STEP)
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_step_begin: step %llu is not whole (%u of %u tensors were declared "
                         "ready); gf_step_wait() ends it",
                         (unsigned long long)gf->step.number, gf->step.declared, gf->tensor_count);
    if ((gf->phase != GF_PHASE_READY) || !gf_requests_idle(gf))
        return gf_refuse(gf, GF_ERR_STATE, "gf_step_begin: %s",
                         (gf->phase == GF_PHASE_READY) ? "requests are under way"
                                                       : "the context is not open");
    /* where a rank may come or go at any step, its weights must be those of the last one */
    if (gf_is_elastic(gf) && gf_step_is_unapplied(gf))
        return gf_refuse(
            gf, GF_ERR_STATE,
            "gf_step_begin: step %llu of an elastic job was not applied; " GF_APPLY_FIRST,
            (unsigned long long)gf->step.number);
    if (gf->given.owed) return gf_refuse(gf, GF_ERR_STATE, "gf_step_begin: " GF_GIVE_FIRST);
    if (gf_queue_after(gf, &gf->queue, &gf->pack_queue) < 0)
        return gf_device_failed(gf, GF_OPERATION_STEP);
    number = gf->step.number + 1;
    gf->step = (struct gf_step){.state = GF_STEP_BEGUN,
                                .number = number,
                                .samples = 1,
                                .gradient_scale = 1.0f,
                                .wire_before = gf->link->sent_bytes};
    /* an average that is larger than its sum may be infinite, and only unpacking counts that */
    gf->step.update_scales =
        (gf->config.optimizer.kind != GF_OPTIMIZER_NONE) && (gf_buffer_factor(gf) <= 1.0f);
    for (uint32_t i = 0; i < gf->tensor_count; i++) gf->tensors[i].ready = 0;
    gf_finite_step(gf);
    if ((status = gf_sparse_begin(gf)) < 0) return status;
    if (!gf->step.sparse) gf_dense_begin(gf);
    gf->phase = GF_PHASE_STEP;
    gf->position.operation = GF_OPERATION_STEP;
    gf->observed.stats.last_wait_ns = 0;
    gf_trace_begin(gf);
    return GF_OK;
}

gf_status gf_step_samples(gf_context *gf, uint64_t sample_count)
{
    GF_COMPUTES();
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if ((gf->phase != GF_PHASE_STEP) || (gf->step.declared == gf->tensor_count))
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_step_samples: not between gf_step_begin() and the last tensor");
    if (sample_count > UINT64_MAX / GF_WORLD_MAX)
        return gf_refuse(gf, GF_ERR_PARAM,
                         "gf_step_samples: %llu; the sum over all ranks would not fit",
                         (unsigned long long)sample_count);
    gf->step.samples = sample_count;
    gf->step.samples_set = true;
    return GF_OK;
}

gf_status gf_step_metric(gf_context *gf, uint32_t index, double value)
{
    GF_COMPUTES();
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if (index >= GF_METRICS)
        return gf_refuse(gf, GF_ERR_PARAM, "gf_step_metric: metric %u of %u", index, GF_METRICS);
    if ((gf->phase != GF_PHASE_STEP) || (gf->step.declared == gf->tensor_count))
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_step_metric: not between gf_step_begin() and the last tensor");
    gf->step.metrics[index] = value;
    return GF_OK;
}

double gf_metric(const gf_context *gf, uint32_t index)
{
    return ((gf != NULL) && (index < GF_METRICS) && gf_step_is_whole(gf)) ? gf->step.metrics[index]
                                                                          : 0.0;
}

/* May tensors first .. first + count - 1 be declared? */
static gf_status tensors_check(gf_context *gf, uint32_t first, uint32_t count, const char *call)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if ((count == 0) || (first >= gf->tensor_count) || (count > gf->tensor_count - first))
        return gf_refuse(gf, GF_ERR_PARAM, "%s: tensor %u of %u, and %u on", call, first,
                         gf->tensor_count, count);
    if (gf->phase != GF_PHASE_STEP)
        return gf_refuse(gf, GF_ERR_STATE, "%s: tensor %u \"%s\" outside of a step", call, first,
                         gf->tensors[first].name);
    for (uint32_t i = first; i < first + count; i++)
        if (gf->tensors[i].ready != 0)
            return gf_refuse(gf, GF_ERR_STATE,
                             "%s: tensor %u \"%s\" was declared before in step %llu", call, i,
                             gf->tensors[i].name, (unsigned long long)gf->step.number);
    return GF_OK;
}

static gf_status tensors_count_in(gf_context *gf, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        struct gf_pool_tensor *declared = &gf->tensors[i];
        declared->ready = 1;
        gf->observed.stats.produced_bytes += declared->elem_count * sizeof(float);
        for (uint32_t b = 0; b < declared->buffer_count; b++)
            gf->buffers.pending[declared->buffer_first + b]--;
    }
    gf->step.declared += count;
    if (gf->step.declared == gf->tensor_count) gf->step.declared_ns = gf_now(gf);
    return gf_step_progress(gf, NULL) < 0 ? gf->error.code : GF_OK;
}

/* The step has failed, and the coordinator has not yet found who caused it. A call that declares a
 * tensor does not return the error before the finding is here, as gf_step_wait() does not: a caller
 * that closed at the first error would never learn the culprit. */
static bool culprit_is_asked_for(const gf_context *gf)
{
    return (gf_own(gf) == GF_OK) && (gf->phase == GF_PHASE_FAILING);
}

static gf_status culprit_ask(gf_context *gf)
{
    gf_status status = gf_failing_poll(gf, gf_poll_begin(gf));
    return (status == GF_AGAIN) ? GF_OK : status;
}

/* False: *answer_out is what the call returns, which is GF_OK while the finding is awaited. */
static bool may_declare(gf_context *gf, uint32_t first, uint32_t count, const char *call,
                        gf_status *answer_out)
{
    if (culprit_is_asked_for(gf)) {
        *answer_out = culprit_ask(gf);
        return false;
    }
    *answer_out = tensors_check(gf, first, count, call);
    if (*answer_out >= 0) *answer_out = gf_scale_check(gf, call);
    return *answer_out >= 0;
}

/* Declares tensors first .. first + count - 1. `event` says when they are computed; 0: the library
 * records its own event after what their queue holds now. */
static gf_status tensors_declare(gf_context *gf, uint32_t first, uint32_t count,
                                 gf_queue_handle queue, gf_event_handle event, const char *call)
{
    struct gf_queue theirs = {.gpu = gf->gpu, .stream = queue};
    gf_status status = GF_OK;
    gf_device_calls_begin(gf);
    if (event == 0) status = gf->gpu->driver->event_record(&theirs, gf_tensor_event(gf, first));
    if (status < 0) {
        status = gf_queue_refused(gf, status, call);
    } else {
        for (uint32_t i = first; i < first + count; i++) {
            gf->tensors[i].declared_with = first;
            gf->tensors[i].event = event;
        }
        status = tensors_count_in(gf, first, count);
    }
    gf_device_calls_end(gf, GF_OPERATION_STEP);
    return status;
}

static gf_status tensors_ready(gf_context *gf, uint32_t first, uint32_t count,
                               gf_queue_handle queue, const char *call)
{
    gf_status answer;
    if (!may_declare(gf, first, count, call, &answer)) return answer;
    return tensors_declare(gf, first, count, queue, 0, call);
}

gf_status gf_tensor_ready(gf_context *gf, uint32_t tensor, gf_queue_handle queue)
{
    GF_COMPUTES();
    return tensors_ready(gf, tensor, 1, queue, "gf_tensor_ready");
}

gf_status gf_tensors_ready(gf_context *gf, uint32_t first, uint32_t count, gf_queue_handle queue)
{
    GF_COMPUTES();
    return tensors_ready(gf, first, count, queue, "gf_tensors_ready");
}

gf_status gf_tensor_ready_event(gf_context *gf, uint32_t tensor, gf_event_handle event)
{
    GF_COMPUTES();
    static const char call[] = "gf_tensor_ready_event";
    gf_status answer;
    if (!may_declare(gf, tensor, 1, call, &answer)) return answer;
    if ((event == 0) == gf->on_device)
        return gf_refuse(gf, GF_ERR_PARAM, "%s: tensor %u \"%s\": %s", call, tensor,
                         gf->tensors[tensor].name,
                         gf->on_device ? "no event" : "the host has no events (must be 0)");
    return tensors_declare(gf, tensor, 1, 0, event, call);
}

gf_status gf_tensor_copy(gf_context *gf, uint32_t tensor, const void *gradient,
                         gf_queue_handle queue)
{
    GF_COMPUTES();
    static const char call[] = "gf_tensor_copy";
    gf_status status;
    if (!may_declare(gf, tensor, 1, call, &status)) return status;
    const struct gf_pool_tensor *to = &gf->tensors[tensor];
    uint64_t bytes = to->elem_count * gf_type_size_bytes((gf_type)to->type);
    gf_mem dst = gf->gradient + to->gradient_offset;
    if ((gradient == NULL) && (bytes > 0))
        return gf_refuse(gf, GF_ERR_PARAM, "%s: tensor %u \"%s\" from NULL", call, tensor,
                         to->name);
    if (dst == (gf_mem)(uintptr_t)gradient) {
        bytes = 0; /* it is written where it travels from */
    } else if (gf->on_device) {
        struct gf_queue theirs = {.gpu = gf->gpu, .stream = queue};
        status = gf->gpu->driver->copy(&theirs, dst, (gf_mem)(uintptr_t)gradient, bytes);
        if (status < 0) return gf_queue_refused(gf, status, call);
    } else if (bytes > 0) {
        memcpy((void *)(uintptr_t)dst, gradient, bytes);
    }
    gf->observed.stats.copied_bytes += bytes;
    return tensors_declare(gf, tensor, 1, queue, 0, call);
}

gf_status gf_tensor_skip(gf_context *gf, uint32_t tensor)
{
    GF_COMPUTES();
    if (culprit_is_asked_for(gf)) return culprit_ask(gf);
    gf_status status = tensors_check(gf, tensor, 1, "gf_tensor_skip");
    const struct gf_pool_tensor *skipped;
    if (status < 0) return status;
    skipped = &gf->tensors[tensor];
    if (gf->ops->zero(&gf->pack_queue, gf->gradient + skipped->gradient_offset,
                      skipped->elem_count * gf_type_size_bytes((gf_type)skipped->type)) < 0)
        return gf_device_failed(gf, GF_OPERATION_STEP);
    gf->tensors[tensor].declared_with = tensor; /* its event is of an earlier step, and complete */
    gf->tensors[tensor].event = 0;
    return tensors_count_in(gf, tensor, 1);
}

/* A rank that does not poll after its last tensor makes all others wait equally, so their waits do
 * not show which rank it was. That rank itself knows, and counts the time here. The pauses of an
 * idle rank are shorter than what is counted. */
static void still_note(gf_context *gf, uint64_t now_ns)
{
    uint64_t since_ns =
        (gf->polled.step_ns > gf->step.declared_ns) ? gf->polled.step_ns : gf->step.declared_ns;
    bool waits = gf->step.declared == gf->tensor_count;
    gf->polled.step_ns = now_ns;
    if (waits && (now_ns > since_ns + STILL_NS) && (now_ns - since_ns > gf->polled.still_ns))
        gf->polled.still_ns = now_ns - since_ns;
}

gf_status gf_step_progress(gf_context *gf, void *arg)
{
    uint64_t now_ns = gf_poll_begin(gf);
    gf_status status = GF_AGAIN;
    (void)arg;
    still_note(gf, now_ns);
    gf_device_calls_begin(gf);
    if ((gf->error.code == GF_OK) && (gf_progress(gf, now_ns) == GF_OK))
        status = step_advance(gf, now_ns);
    gf_device_calls_end(gf, GF_OPERATION_STEP);
    return (gf->error.code == GF_OK) ? status : gf_failing_poll(gf, now_ns);
}

/* GF_OK: a step is under way; anything else is the answer. */
static gf_status step_enter(gf_context *gf, const char *call)
{
    gf_status status = gf_enter_poll(gf);
    if (status < 0) return status;
    if ((gf->phase == GF_PHASE_STEP) || (gf->phase == GF_PHASE_FAILING)) return GF_OK;
    return gf_refuse(gf, GF_ERR_STATE, "%s: no step was begun", call);
}

gf_status gf_step_poll(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status;
    if ((gf != NULL) && (gf->phase == GF_PHASE_READY) && gf_step_is_whole(gf) &&
        (gf_enter(gf) == GF_OK))
        return GF_OK;
    status = step_enter(gf, "gf_step_poll");
    return (status == GF_OK) ? gf_step_progress(gf, NULL) : status;
}

static gf_status step_wait(gf_context *gf, uint64_t bound_ns, const char *call)
{
    struct gf_stats *stats;
    gf_status status;
    uint64_t begin_ns;
    uint64_t end_ns;
    if ((gf != NULL) && (gf->phase == GF_PHASE_READY) && gf_step_is_whole(gf) &&
        (gf_enter(gf) == GF_OK))
        return GF_OK;
    if ((status = step_enter(gf, call)) < 0) return status;
    if ((gf->phase == GF_PHASE_STEP) && (gf->step.declared < gf->tensor_count)) {
        uint32_t missing = 0;
        while (gf->tensors[missing].ready != 0) missing++;
        return gf_refuse(gf, GF_ERR_STATE,
                         "%s: tensor %u \"%s\" was not declared ready in step %llu (%u of %u were)",
                         call, missing, gf->tensors[missing].name,
                         (unsigned long long)gf->step.number, gf->step.declared, gf->tensor_count);
    }
    begin_ns = gf_now(gf);
    gf_device_calls_begin(gf);
    status = gf_wait_for(gf, gf_step_progress, NULL, bound_ns);
    gf_device_calls_end(gf, GF_OPERATION_STEP);
    end_ns = gf_now(gf);
    stats = &gf->observed.stats;
    stats->last_wait_ns += end_ns - begin_ns;
    stats->wait_ns += end_ns - begin_ns;
    /* one record a step, of all that it waited */
    if (status != GF_AGAIN) gf_trace_wait(gf, status, end_ns - stats->last_wait_ns, end_ns);
    return status;
}

gf_status gf_step_wait(gf_context *gf)
{
    GF_COMPUTES();
    return step_wait(gf, GF_WAIT_UNBOUNDED, "gf_step_wait");
}

gf_status gf_step_wait_for(gf_context *gf, uint64_t bound_ns)
{
    GF_COMPUTES();
    return step_wait(gf, bound_ns, "gf_step_wait_for");
}

bool gf_step_skipped(const gf_context *gf)
{
    return (gf != NULL) && gf_step_is_whole(gf) && gf->step.skipped;
}

float gf_gradient_scale(const gf_context *gf)
{
    return ((gf == NULL) || (gf->config.optimizer.kind == GF_OPTIMIZER_NONE))
               ? 1.0f
               : gf->step.gradient_scale;
}
