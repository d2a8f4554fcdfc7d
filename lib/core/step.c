/* A step: tensors become ready, fused buffers go out in one order on every rank, the verdict, the commit.
 *
 *     ready -> PACK -> SETTLE -> RUN -> UNPACK -> END   a buffer, in its slot; all of them, then
 *     verdict -> commit -> whole
 *
 * Any ready order is valid, but buffers start in one order, by the last tensor they need: with a limited number of
 * slots two ranks that started in different orders could each hold what the other waits for. */
#include "lib/context.h"

#define STILL_NS UINT64_C(25000000)

/* What the reduced values are multiplied with so that they are the average: undoes loss scale and pre-scale. */
static float post_factor(const gf_context *gf)
{
    double factor = 1.0 / ((double)gf->scale * (double)gf->config.exchange.pre_scale);
    if (gf->config.exchange.average == GF_AVERAGE_RANKS) factor /= (double)gf->world;
    return (float)factor;
}

static bool buffer_in_place(const gf_context *gf, const struct gf_buffer *buffer)
{
    return (buffer->type == (uint8_t)gf->config.exchange.wire) && (buffer->chunk_count == 0);
}

static gf_mem buffer_gradient(const gf_context *gf, const struct gf_buffer *buffer)
{
    return gf->gradient + buffer->gradient_offset;
}

/* Where ops put what travels and take it from: beside the gradients. On the host the exchange does so too. */
static gf_mem buffer_near(const gf_context *gf, const struct gf_buffer *buffer)
{
    if (buffer_in_place(gf, buffer)) return buffer_gradient(gf, buffer);
    return gf->beside + buffer->first_elem * gf_type_size_bytes(gf->config.exchange.wire);
}

static gf_algorithm buffer_algorithm(const gf_context *gf, const struct gf_buffer *buffer)
{
    return gf_exchange_choose(gf, GF_COLL_ALLREDUCE,
                              buffer->elem_count * gf_type_size_bytes(gf->config.exchange.wire));
}

/* Nothing changes on the way to the wire, and who adds sees all ranks' values: a look before would read all once more,
 * which takes longer than adding. */
static bool buffer_unseen(const gf_context *gf, const struct gf_buffer *buffer)
{
    return buffer_in_place(gf, buffer) && !gf->on_device && (gf->config.exchange.pre_scale == 1.0f) &&
           (buffer_algorithm(gf, buffer) == GF_ALGORITHM_DIRECT);
}

/* Where the exchange works. */
static gf_mem buffer_wire(const gf_context *gf, const struct gf_buffer *buffer)
{
    if (!gf->on_device || gf_sums_late(gf)) return buffer_near(gf, buffer);
    return gf->wire + buffer->first_elem * gf_type_size_bytes(gf->config.exchange.wire);
}

/* Between device and wire, all of the buffer; nothing where both are the same memory. */
static gf_status buffer_copy(gf_context *gf, const struct gf_buffer *buffer, gf_mem to, gf_mem from)
{
    uint64_t bytes = buffer->elem_count * gf_type_size_bytes(gf->config.exchange.wire);
    if ((to == from) || (bytes == 0)) return GF_OK;
    return gf->gpu->driver->copy(&gf->queue, to, from, bytes);
}

static uint64_t slice_elems(const gf_context *gf, uint64_t left)
{
    uint64_t most = gf->config.exchange.slice_bytes / sizeof(float);
    return (left < most) ? left : most;
}

/* Elements of one turn: a slice of fp32, so that packing never holds a poll up for longer than a slice does. A device
 * is not held up: what it is given is queued. */
static uint64_t turn_elems(const gf_context *gf, uint64_t left)
{
    return gf->on_device ? left : slice_elems(gf, left);
}

static uint64_t scratch_elems(const gf_context *gf, uint64_t left)
{
    uint64_t most = gf->sparse.scratch_elems;
    return gf->on_device ? (left < most) ? left : most : slice_elems(gf, left);
}

/* Cast, scale and look at one slice on its way to the wire. */
static gf_status buffer_pack(gf_context *gf, struct gf_slot *slot, struct gf_check *check)
{
    const struct gf_buffer *buffer = &gf->buffers[slot->buffer];
    uint64_t done = slot->done_elems, count = turn_elems(gf, buffer->elem_count - done);
    gf_type type = (gf_type)buffer->type, wire = gf->config.exchange.wire;
    gf_mem from = buffer_gradient(gf, buffer) + done * gf_type_size_bytes(type);
    gf_mem to = buffer_near(gf, buffer) + done * gf_type_size_bytes(wire);
    float pre = gf->config.exchange.pre_scale;
    gf_status status;

    if (buffer->chunk_count > 0) return gf_sparse_pack(gf, slot, buffer_near(gf, buffer), check);
    if (buffer_unseen(gf, buffer)) {
        slot->done_elems = buffer->elem_count;
        return GF_OK;
    }
    if ((from == to) && (pre == 1.0f))
        status = gf->ops->check(&gf->queue, from, type, count, buffer->first_elem + done, check);
    else
        status = gf->ops->cast(&gf->queue, to, wire, from, type, count, pre, buffer->first_elem + done, check);
    if (status < 0) return gf_device_failed(gf, GF_OPERATION_STEP);
    slot->done_elems += count;
    return GF_OK;
}

/* Back from the wire. 16-bit gradients keep their scale (gf_gradient_scale): divided here they could underflow. With
 * GF_AVERAGE_SAMPLES the divisor is known only after the verdict. What the wire held may be too large for the
 * gradient's type or once its scale is undone: the verdict hears of it. */
static gf_status buffer_unpack(gf_context *gf, struct gf_slot *slot, struct gf_check *check)
{
    const struct gf_buffer *buffer = &gf->buffers[slot->buffer];
    gf_type type = (gf_type)buffer->type, wire = gf->config.exchange.wire;
    float factor = (type == GF_TYPE_F32) ? post_factor(gf) : 1.0f;
    bool sparse =
        buffer->chunk_count > 0; /* chunks wait for the verdict, which only has to know whether they will fit */
    bool fits = (type == GF_TYPE_F32) ? (factor <= 1.0f) : (type == wire);
    uint64_t done = slot->done_elems, count;
    gf_mem into = sparse ? gf->sparse.scratch : buffer_gradient(gf, buffer) + done * gf_type_size_bytes(type);

    if ((sparse && fits) || (buffer_in_place(gf, buffer) && (factor == 1.0f))) {
        slot->done_elems = buffer->elem_count;
        return GF_OK;
    }
    count = sparse ? scratch_elems(gf, buffer->elem_count - done) : turn_elems(gf, buffer->elem_count - done);
    if (gf->ops->cast(&gf->queue, into, type, buffer_near(gf, buffer) + done * gf_type_size_bytes(wire), wire, count,
                      factor, 0, check) < 0)
        return gf_device_failed(gf, GF_OPERATION_STEP);
    slot->done_elems += count;
    return GF_OK;
}

static uint32_t slot_index(const gf_context *gf, const struct gf_slot *slot) { return (uint32_t)(slot - gf->slots); }

/* A turn of packing or of unpacking. GF_OK: all of it is queued, its counters behind it. */
static gf_status slot_move(gf_context *gf, struct gf_slot *slot, uint64_t now_ns)
{
    const struct gf_buffer *buffer = &gf->buffers[slot->buffer];
    uint32_t index = slot_index(gf, slot);
    bool pack = (slot->state == GF_SLOT_PACK);
    gf_mem wire = buffer_wire(gf, buffer), near = buffer_near(gf, buffer);
    gf_status status = GF_OK;
    gf->moved_ns = now_ns;
    if ((slot->done_elems == 0) && (pack || !gf_sums_late(gf))) {
        if ((slot->counted = gf_checks_begin(gf, index)) == NULL) return gf_device_failed(gf, GF_OPERATION_STEP);
        if (!pack) status = buffer_copy(gf, buffer, near, wire);
        if (status < 0) return gf_device_failed(gf, GF_OPERATION_STEP);
    }
    if (slot->done_elems < buffer->elem_count)
        status = pack ? buffer_pack(gf, slot, slot->counted) : buffer_unpack(gf, slot, slot->counted);
    if (status < 0) return status;
    if (slot->done_elems < buffer->elem_count) return GF_AGAIN;
    if (pack) status = buffer_copy(gf, buffer, wire, near);
    if (status >= 0) status = gf_checks_end(gf, index);
    return (status < 0) ? gf_device_failed(gf, GF_OPERATION_STEP) : GF_OK;
}

/* GF_OK: seen[] says what packing or unpacking met. */
static gf_status slot_settle(gf_context *gf, const struct gf_slot *slot)
{
    gf_status status = gf_checks_reached(gf, slot_index(gf, slot));
    return (status < 0) ? gf_device_failed(gf, GF_OPERATION_STEP) : status;
}

/* Sums of devices are looked at by them, into the same counter as what follows. */
static gf_status buffer_post(gf_context *gf, struct gf_slot *slot, uint64_t now_ns)
{
    const struct gf_buffer *buffer = &gf->buffers[slot->buffer];
    gf_type wire = gf->config.exchange.wire;
    slot->coll.check = &slot->check;
    if (buffer_unseen(gf, buffer)) slot->coll.sources = &slot->sources;
    if (gf_sums_late(gf)) {
        if ((slot->counted = gf_checks_begin(gf, slot_index(gf, slot))) == NULL)
            return gf_device_failed(gf, GF_OPERATION_STEP);
        slot->coll.check = slot->counted;
    }
    gf_slot_start(gf, slot, buffer_algorithm(gf, buffer), GF_COLL_ALLREDUCE, 0, wire, buffer_wire(gf, buffer),
                  buffer->elem_count, gf_tag(gf->epoch, gf->step.number, slot->buffer), now_ns);
    if (!gf->step.posted) gf->step.first_ns = now_ns;
    gf->step.posted = true;
    return GF_OK;
}

/* One turn of a buffer. GF_OK: its state has changed, there may be more to do at once. */
static gf_status slot_progress(gf_context *gf, struct gf_slot *slot, uint64_t now_ns)
{
    gf_status status = GF_AGAIN;
    struct gf_check seen;
    switch (slot->state) {
    case GF_SLOT_FREE: return GF_AGAIN;
    case GF_SLOT_PACK:
        if ((status = slot_move(gf, slot, now_ns)) == GF_OK) slot->state = GF_SLOT_SETTLE;
        return status;
    case GF_SLOT_SETTLE:
        if ((status = slot_settle(gf, slot)) != GF_OK) return status;
        seen = gf_sparse_lists_blame(gf, &gf->buffers[slot->buffer], gf->seen[slot_index(gf, slot)]);
        gf_verdict_local(gf, &gf->buffers[slot->buffer], &seen);
        return buffer_post(gf, slot, now_ns);
    case GF_SLOT_RUN:
        if ((status = gf_slot_poll(gf, slot, now_ns)) != GF_OK) return status;
        gf->step.sum_bad += slot->check.bad_count;
        gf_verdict_sources(gf, &gf->buffers[slot->buffer], &slot->sources);
        slot->done_elems = 0;
        slot->state = GF_SLOT_UNPACK;
        return GF_OK;
    case GF_SLOT_UNPACK:
        if ((status = slot_move(gf, slot, now_ns)) == GF_OK) slot->state = GF_SLOT_END;
        return status;
    case GF_SLOT_END:
        if ((status = slot_settle(gf, slot)) != GF_OK) return status;
        gf->step.sum_bad += gf->seen[slot_index(gf, slot)].bad_count;
        gf_slot_release(gf, slot);
        gf->step.buffers_ended++;
        return GF_AGAIN;
    }
    return status;
}

void gf_buffers_order(gf_context *gf)
{
    /* Two runs, each in backward order already (the sparse part, then the dense one): merge them by last tensor. */
    uint32_t count = gf->step.buffer_count, split = 0, left, right;
    while ((split < count) && (gf->buffers[split].sparse != 0)) split++;
    left = 0;
    right = split;
    for (uint32_t i = 0; i < count; i++) {
        bool take_left = (left < split) && ((right == count) ||
                                            (gf->buffers[left].last_tensor <= gf->buffers[right].last_tensor));
        gf->buffer_order[i] = take_left ? left++ : right++;
    }
}

void gf_dense_begin(gf_context *gf)
{
    uint32_t count = 0;
    gf->sparse.score_queued = false;
    gf->buffers = gf->dense_buffers;
    for (int part = 1; part >= 0; part--)
        count = gf_pool_group(&gf->config, gf->tensors, gf->tensor_count, part == 1, gf->buffers, count);
    gf->dense_buffer_count = count;
    gf->step.buffer_count = count;
    for (uint32_t b = 0; b < count; b++) gf->buffer_pending[b] = gf->buffers[b].tensor_count;
    gf_buffers_order(gf);
}

static void buffers_start(gf_context *gf, uint64_t now_ns)
{
    struct gf_step *step = &gf->step;
    while (step->next < step->buffer_count) {
        uint32_t buffer = gf->buffer_order[step->next];
        struct gf_slot *slot;
        if ((gf->buffer_pending[buffer] > 0) || ((slot = gf_slot_take(gf)) == NULL)) return;
        slot->operation = GF_OPERATION_STEP;
        slot->buffer = buffer;
        slot->pack_ns = now_ns;
        step->next++;
    }
}

/* After the verdict: what depends on it. A slice a turn. */
static gf_status step_commit(gf_context *gf)
{
    struct gf_step *step = &gf->step;
    uint64_t samples;
    float factor;
    if (step->skipped) return GF_OK;
    step->gradient_scale = post_factor(gf);
    if (gf->config.exchange.average != GF_AVERAGE_SAMPLES) return gf_sparse_commit(gf, step->gradient_scale);
    samples = (step->samples_all > 0) ? step->samples_all : gf->samples_before; /* without any, history may be sent */
    factor = (samples > 0) ? (float)(1.0 / (double)samples) : 0.0f;
    step->gradient_scale = post_factor(gf) * factor;
    while (step->commit_tensor < gf->tensor_count) {
        const struct gf_pool_tensor *tensor = &gf->tensors[step->commit_tensor];
        uint64_t count = turn_elems(gf, tensor->elem_count - step->commit_elems);
        gf_mem at = gf->gradient + tensor->gradient_offset + step->commit_elems * sizeof(float);
        if ((tensor->type != GF_TYPE_F32) || (step->sparse && (tensor->sparse != 0))) count = tensor->elem_count;
        else if (gf->ops->cast(&gf->queue, at, GF_TYPE_F32, at, GF_TYPE_F32, count, factor, 0, NULL) < 0)
            return gf_device_failed(gf, GF_OPERATION_STEP);
        step->commit_elems += count;
        if (step->commit_elems < tensor->elem_count) return GF_AGAIN;
        step->commit_elems = 0;
        step->commit_tensor++;
    }
    return gf_sparse_commit(gf, step->gradient_scale);
}

static void step_end(gf_context *gf, uint64_t now_ns)
{
    struct gf_step *step = &gf->step;
    struct gf_stats *stats = &gf->stats;
    step->whole = true;
    gf_members_met(gf->members);
    gf->skipped_last = step->skipped;
    if (!step->skipped && (step->samples_all > 0)) gf->samples_before = step->samples_all;
    gf->phase = GF_PHASE_READY;
    stats->steps++;
    stats->steps_skipped += step->skipped ? 1 : 0;
    stats->last_exchange_ns = step->posted ? now_ns - step->first_ns : 0;
    stats->exchange_ns += stats->last_exchange_ns;
    stats->last_wire_bytes = gf->link->sent_bytes - step->wire_before;
    gf->epoch_steps++;
    gf->peers[step->last_rank].steps_last++;
    gf->peers[step->last_rank].late_ns += step->late_ns;
    for (uint32_t e = 0; e < 2; e++) {
        if (step->link_ends[e] == GF_RANK_NONE) continue;
        gf->peers[step->link_ends[e]].link_steps++;
        gf->peers[step->link_ends[e]].link_ns += step->link_ns;
    }
}

static gf_status step_advance(gf_context *gf, uint64_t now_ns)
{
    struct gf_step *step = &gf->step;
    gf_status status;

    buffers_start(gf, now_ns);
    for (uint32_t s = 0; s < gf->slot_count; s++) {
        struct gf_slot *slot = &gf->slots[s];
        if ((slot->state == GF_SLOT_FREE) || (slot->operation != GF_OPERATION_STEP)) continue;
        do {
            status = slot_progress(gf, slot, now_ns);
        } while (status == GF_OK);
        if (status < 0) return status;
    }
    if ((step->buffers_ended < step->buffer_count) || (step->declared < gf->tensor_count))
        return (step->sparse && (gf_sparse_score(gf, now_ns) < 0)) ? gf->error.code
                                                                   : GF_AGAIN; /* norms fill the wait */
    if (!step->verdict_posted) {
        if (step->sparse && ((status = gf_sparse_score(gf, now_ns)) != GF_OK)) return status;
        if (gf_verdict_post(gf, now_ns) != GF_OK) return GF_AGAIN;
        step->verdict_posted = true;
    }
    if (!step->agreed) {
        if ((status = gf_verdict_poll(gf, now_ns)) != GF_OK) return status;
        step->agreed = true;
    }
    if (!step->committed) {
        gf->moved_ns = now_ns; /* a commit takes turns, and there is no reason to nap between them */
        if ((status = step_commit(gf)) != GF_OK) return status;
        step->committed = true;
    }
    if ((status = gf_scale_step(gf, step->skipped)) < 0) return status;
    step_end(gf, now_ns);
    return GF_OK;
}

/* The context fails while a sparse step is being committed: half of a history would have this step's gradients and the
 * step begun anew would add them again. All that it needs is here, so it is finished: the step is whole, without its
 * gf_update(). */
void gf_step_settle(gf_context *gf)
{
    struct gf_step *step = &gf->step;
    const struct gf_sparse_pass *pass = &gf->sparse.commit;
    gf_status code = gf->error.code;
    bool survives = (code == GF_ERR_PEER) || (code == GF_ERR_LINK) || (code == GF_ERR_TIMEOUT);
    gf_status status;
    if (!survives || (gf->phase != GF_PHASE_STEP) || !step->agreed || step->committed || !step->sparse) return;
    if ((pass->chunk == 0) && (pass->elem == 0)) return;
    do {
        status = gf_sparse_commit(gf, step->gradient_scale);
    } while (status == GF_AGAIN);
    if (status < 0) return;
    step->committed = true;
    (void)gf_scale_step(gf, false);
    step_end(gf, gf_now(gf));
}

/* ---- the public calls ---- */

gf_status gf_step_begin(gf_context *gf)
{
    gf_status status = gf_enter(gf);
    uint64_t number;
    if (status < 0) return status;
    if (gf->phase == GF_PHASE_STEP)
        return gf_refuse(gf, GF_ERR_STATE, "gf_step_begin: step %llu is not whole",
                         (unsigned long long)gf->step.number);
    if ((gf->phase != GF_PHASE_READY) || !gf_requests_idle(gf))
        return gf_refuse(gf, GF_ERR_STATE, "gf_step_begin: %s",
                         (gf->phase == GF_PHASE_READY) ? "requests are under way" : "the context is not open yet");
    if (gf->inherit.next < gf->inherit.world)
        return gf_refuse(gf, GF_ERR_STATE, "gf_step_begin: the state of old rank %u of %u was not added (gf_state_add)",
                         gf->inherit.next, gf->inherit.world);
    number = gf->step.number + 1;
    gf->step = (struct gf_step){.number = number,
                                .samples = 1,
                                .first_key = UINT64_MAX,
                                .gradient_scale = 1.0f,
                                .wire_before = gf->link->sent_bytes};
    for (uint32_t i = 0; i < gf->tensor_count; i++) gf->tensors[i].ready = 0;
    gf_timing_begin(&gf->timing);
    gf->sparse.commit = (struct gf_sparse_pass){0}; /* an epoch may have ended in the middle of one */
    gf->sparse.commit_packed = 0;
    gf->sparse.score_queued = false;
    if (gf_sparse_step_is_dense(gf)) gf_dense_begin(gf);
    else if ((status = gf_sparse_begin(gf)) < 0) return status;
    gf->phase = GF_PHASE_STEP;
    gf_members_position(gf->members)->step = number;
    gf_members_position(gf->members)->operation = GF_OPERATION_STEP;
    gf->stats.last_wait_ns = 0;
    return GF_OK;
}

gf_status gf_step_samples(gf_context *gf, uint64_t sample_count)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if ((gf->phase != GF_PHASE_STEP) || gf->step.verdict_posted)
        return gf_refuse(gf, GF_ERR_STATE, "gf_step_samples: not inside a step");
    gf->step.samples = sample_count;
    return GF_OK;
}

/* Shared by ready and skip: refuses, or counts the tensor in. */
static gf_status tensor_declare(gf_context *gf, uint32_t tensor, const char *call)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if (tensor >= gf->tensor_count)
        return gf_refuse(gf, GF_ERR_PARAM, "%s: tensor %u of %u", call, tensor, gf->tensor_count);
    if (gf->phase != GF_PHASE_STEP)
        return gf_refuse(gf, GF_ERR_STATE, "%s: tensor %u \"%s\" outside of a step", call, tensor,
                         gf->tensors[tensor].name);
    if (gf->tensors[tensor].ready != 0)
        return gf_refuse(gf, GF_ERR_STATE, "%s: tensor %u \"%s\" was declared before in step %llu", call, tensor,
                         gf->tensors[tensor].name, (unsigned long long)gf->step.number);
    return GF_OK;
}

static gf_status tensor_count_in(gf_context *gf, uint32_t tensor)
{
    struct gf_pool_tensor *declared = &gf->tensors[tensor];
    declared->ready = 1;
    gf->step.declared++;
    if (gf->step.declared == gf->tensor_count) gf->timing.from_ns = gf->step.declared_ns = gf_now(gf);
    gf->stats.produced_bytes += declared->elem_count * sizeof(float);
    for (uint32_t b = 0; b < declared->buffer_count; b++) gf->buffer_pending[declared->buffer_first + b]--;
    return gf_step_progress(gf, NULL) < 0 ? gf->error.code : GF_OK;
}

gf_status gf_tensor_ready(gf_context *gf, uint32_t tensor, gf_queue_handle queue)
{
    gf_status status = tensor_declare(gf, tensor, "gf_tensor_ready");
    if (status < 0) return status;
    if (gf->gpu->driver->wait_for(&gf->queue, queue) < 0) return gf_device_failed(gf, GF_OPERATION_STEP);
    return tensor_count_in(gf, tensor);
}

gf_status gf_tensor_skip(gf_context *gf, uint32_t tensor)
{
    gf_status status = tensor_declare(gf, tensor, "gf_tensor_skip");
    const struct gf_pool_tensor *skipped;
    if (status < 0) return status;
    skipped = &gf->tensors[tensor];
    if (gf->ops->zero(&gf->queue, gf->gradient + skipped->gradient_offset,
                      skipped->elem_count * gf_type_size_bytes((gf_type)skipped->type)) < 0)
        return gf_device_failed(gf, GF_OPERATION_STEP);
    return tensor_count_in(gf, tensor);
}

/* Who stands still behind its last tensor makes everybody wait alike, so that no waiting tells who it was; the rank
 * itself can. Naps are shorter. */
static void still_note(gf_context *gf, uint64_t now_ns)
{
    uint64_t since_ns = (gf->step_polled_ns > gf->step.declared_ns) ? gf->step_polled_ns : gf->step.declared_ns;
    bool waits = gf->step.declared == gf->tensor_count;
    gf->step_polled_ns = now_ns;
    if (waits && (now_ns > since_ns + STILL_NS) && (now_ns - since_ns > gf->still_ns)) gf->still_ns = now_ns - since_ns;
}

gf_status gf_step_progress(gf_context *gf, void *arg)
{
    uint64_t now_ns = gf_now(gf);
    (void)arg;
    still_note(gf, now_ns);
    if ((gf->error.code == GF_OK) && (gf_progress(gf, now_ns) == GF_OK)) {
        gf_status status = step_advance(gf, now_ns);
        if (status >= 0) return status;
    }
    return gf_failing_poll(gf, now_ns);
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
    gf_status status;
    if ((gf != NULL) && (gf->phase == GF_PHASE_READY) && gf->step.whole && (gf_enter(gf) == GF_OK)) return GF_OK;
    status = step_enter(gf, "gf_step_poll");
    return (status == GF_OK) ? gf_step_progress(gf, NULL) : status;
}

gf_status gf_step_wait(gf_context *gf)
{
    struct gf_trace_record record = {.operation = GF_OPERATION_WAIT, .first_tensor = GF_TENSOR_NONE,
                                     .waited_for = GF_RANK_NONE};
    gf_status status;
    if ((gf != NULL) && (gf->phase == GF_PHASE_READY) && gf->step.whole && (gf_enter(gf) == GF_OK)) return GF_OK;
    if ((status = step_enter(gf, "gf_step_wait")) < 0) return status;
    if ((gf->phase == GF_PHASE_STEP) && (gf->step.declared < gf->tensor_count)) {
        uint32_t missing = 0;
        while (gf->tensors[missing].ready != 0) missing++;
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_step_wait: tensor %u \"%s\" was not declared ready in step %llu (%u of %u were)", missing,
                         gf->tensors[missing].name, (unsigned long long)gf->step.number, gf->step.declared,
                         gf->tensor_count);
    }
    record.step = gf->step.number;
    record.begin_ns = gf_now(gf);
    status = gf_wait(gf, gf_step_progress, NULL);
    record.end_ns = gf_now(gf);
    record.status = (int32_t)status;
    gf_trace_write(gf, &record);
    gf->stats.last_wait_ns = record.end_ns - record.begin_ns;
    gf->stats.wait_ns += gf->stats.last_wait_ns;
    return status;
}

bool gf_step_skipped(const gf_context *gf) { return (gf != NULL) && gf->step.whole && gf->step.skipped; }

float gf_gradient_scale(const gf_context *gf) { return (gf == NULL) ? 1.0f : gf->step.gradient_scale; }
