/* Moves the rounds of a collective. Messages have one order, (round, slice). Four counters run
 * through that order, each after the one that it depends on:
 *     sent >= send_done      recvd >= recv_done
 * A send waits until recv_done has passed what it hands on. An arrival that replaces data is
 * received in place, and posted only once send_done has passed the sends that read that memory: a
 * link may read it until the send has ended. An arrival that is reduced lands in a staging slot,
 * so its receive is posted ahead at once; the reduction is what waits.
 *
 * No cycle of waits is possible: a message waits only for messages before it, in rounds that all
 * ranks number alike. (A reduction also waits for this rank's send of its own round, which waits
 * for no arrival of that round.)
 *
 * On a device reductions are asynchronous: they are queued, and until they are done nothing may be
 * sent on and no staging slot used again. So a fifth counter runs ahead of recv_done, and the CPU
 * waits for neither:
 *     recvd >= reduced >= recv_done
 * One event is enough. It covers all that was queued before it was recorded. When it is complete
 * recv_done goes up to there, and if more was queued meanwhile the event is recorded again. What
 * is received in place needs no event: nothing queued touches it, because memory is received into
 * only after it was sent, and it is sent only after it was reduced. */
#include "ops/coll/flow.h"

#define SLOT_ALIGN_BYTES 512u /* UCX receives into these at once (lib/core/arena.h) */

static const uint64_t flow_token = 0; /* what a barrier sends; nobody reads it */

static uint64_t div_up(uint64_t count, uint64_t by)
{
    return count / by + (count % by != 0);
}

static size_t slot_bytes(uint64_t slice_bytes, uint64_t round_bytes)
{
    uint64_t bytes = (round_bytes < slice_bytes) ? round_bytes : slice_bytes;
    if (bytes < sizeof flow_token) bytes = sizeof flow_token;
    return (size_t)(div_up(bytes, SLOT_ALIGN_BYTES) * SLOT_ALIGN_BYTES);
}

void gf_flow_slots(const struct gf_coll_limits *limits, uint32_t rounds, uint64_t round_bytes,
                   struct gf_coll_need *need_out)
{
    /* Ranges of one slice make one message a round; then fewer rounds than the window leave slots
     * unused. */
    uint32_t slots = limits->window;
    if ((round_bytes <= limits->slice_bytes) && (rounds < slots)) slots = rounds;
    need_out->msg_count = 2 * slots;
    need_out->staging_bytes = slots * slot_bytes(limits->slice_bytes, round_bytes);
}

/* A range is rounded up to an element of any size. */
void gf_flow_need(const struct gf_coll_kind *kind, const struct gf_coll_limits *limits,
                  struct gf_coll_need *need_out)
{
    uint64_t longest;
    uint32_t rounds = kind->shape(GF_COLL_ALLREDUCE, limits->size, limits->bytes_max, &longest);
    gf_flow_slots(limits, rounds, longest + GF_COLL_ELEM_BYTES_MAX, need_out);
}

/* The last two rounds are kept, because small data asks ten times for its only round. */
static const struct gf_round *round_at(const struct gf_coll *coll, struct gf_round *kept,
                                       uint32_t number)
{
    if (kept->number != number) {
        *kept = (struct gf_round){
            .number = number, .send.after = GF_ROUND_NONE, .recv.after = GF_ROUND_NONE};
        coll->kind->round(coll, number, kept);
    }
    return kept;
}

static const struct gf_range *range_at(const struct gf_coll *coll, const struct gf_flow_at *at,
                                       bool is_send)
{
    const struct gf_round *round = round_at(coll, &coll->own.flow->known, at->round);
    return is_send ? &round->send : &round->recv;
}

/* Moves a position that may lie after the last slice of its round to the next message. */
static void flow_seek(const struct gf_coll *coll, struct gf_flow_at *at, bool is_send)
{
    const struct gf_flow *flow = coll->own.flow;
    for (; at->round < flow->round_count; at->round++, at->slice = 0)
        if (at->slice * flow->slice_elems < range_at(coll, at, is_send)->count) return;
}

static void flow_next(const struct gf_coll *coll, struct gf_flow_at *at, bool is_send)
{
    at->count++;
    at->slice++;
    flow_seek(coll, at, is_send);
}

gf_status gf_flow_start(struct gf_coll *coll)
{
    struct gf_flow *flow = coll->own.flow;
    uint64_t longest;
    *flow = (struct gf_flow){
        .known.number = GF_ROUND_NONE, .before.number = GF_ROUND_NONE, .there_round = UINT32_MAX};
    flow->slice_elems = coll->slice_bytes / gf_coll_elem_bytes(coll);
    flow->round_count =
        coll->kind->shape(coll->plan.collective, coll->size, gf_flow_elems(coll), &longest);
    flow->round_slices = div_up(longest, flow->slice_elems);
    flow->slot_bytes = slot_bytes(coll->slice_bytes, longest * gf_coll_elem_bytes(coll));
    flow_seek(coll, &flow->sent, true);
    flow_seek(coll, &flow->recvd, false);
    flow->send_done = flow->sent;
    flow->recv_done = flow->reduced = flow->recorded = flow->recvd;
    return GF_OK;
}

/* A message: its range, and where it travels. */
struct flow_slice {
    uint64_t first;
    uint64_t count;
};

static struct flow_slice flow_slice(const struct gf_flow *flow, const struct gf_range *range,
                                    uint64_t slice)
{
    uint64_t skip = slice * flow->slice_elems;
    uint64_t rest = range->count - skip;
    return (struct flow_slice){range->first + skip,
                               (rest < flow->slice_elems) ? rest : flow->slice_elems};
}

/* Has `at` passed every slice of round `number`, a range [first, first + count), that begins before
 * `end`? */
static bool flow_passed(const struct gf_flow *flow, const struct gf_flow_at *at, uint32_t number,
                        uint64_t first, uint64_t end)
{
    if (at->round != number) return at->round > number;
    return (end <= first) || (at->slice >= div_up(end - first, flow->slice_elems));
}

/* Are so many elements of what this rank sends in round `number` its own data by now? */
static bool flow_there(const struct gf_flow *flow, uint32_t number, uint64_t elems)
{
    return (number < flow->there_round) ||
           ((number == flow->there_round) && (elems <= flow->there_elems));
}

/* Has the other direction finished all messages before `end` of a range? Then what is to be sent
 * has arrived, and what is to be received may overwrite it. */
static bool flow_ready(const struct gf_coll *coll, const struct gf_range *range, uint64_t end,
                       bool is_send)
{
    struct gf_flow *flow = coll->own.flow;
    const struct gf_round *before;
    if (range->after == GF_ROUND_NONE) return !is_send || flow_there(flow, 0, end - range->first);
    before = round_at(coll, &flow->before, range->after);
    return is_send ? flow_passed(flow, &flow->recv_done, before->number, before->recv.first, end)
                   : flow_passed(flow, &flow->send_done, before->number, before->send.first, end);
}

/* Slots of both directions alternate, so their numbers do not depend on how many there are. */
static uint32_t slot_of(const struct gf_coll *coll, const struct gf_flow_at *at, bool is_send)
{
    return 2 * (uint32_t)(at->count % coll->window) + !is_send;
}

static gf_mem recv_staging(const struct gf_coll *coll, const struct gf_flow_at *at)
{
    return coll->staging + (at->count % coll->window) * coll->own.flow->slot_bytes;
}

static gf_status flow_sends_end(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_flow *flow = coll->own.flow;
    while (flow->send_done.count < flow->sent.count) {
        gf_status status = gf_coll_test(coll, slot_of(coll, &flow->send_done, true));
        if (status != GF_OK) return status;
        flow_next(coll, &flow->send_done, true);
        coll->moved_ns = now_ns;
    }
    return GF_OK;
}

/* The next arrival to look at. */
static struct gf_flow_at *flow_arrival(const struct gf_coll *coll)
{
    return (coll->async != NULL) ? &coll->own.flow->reduced : &coll->own.flow->recv_done;
}

/* Takes arrivals in order. Reducing stops after about a slice, so that a poll stays short while
 * many wait; queueing on a device is short in any case. */
static gf_status flow_recvs_end(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_flow *flow = coll->own.flow;
    struct gf_flow_at *at = flow_arrival(coll);
    uint64_t reduced = 0;
    while ((at->count < flow->recvd.count) &&
           ((reduced < flow->slice_elems) || (coll->async != NULL))) {
        const struct gf_round *round;
        struct flow_slice slice;
        gf_status status = gf_coll_test(coll, slot_of(coll, at, false));
        if (status != GF_OK) return status;
        round = round_at(coll, &flow->known, at->round);
        if (round->reduce && (coll->plan.collective != GF_COLL_BARRIER)) {
            slice = flow_slice(flow, &round->recv, at->slice);
            if (!flow_ready(coll, &round->recv, slice.first + slice.count, false) ||
                !flow_there(flow, at->round + 1, slice.first + slice.count - round->recv.first))
                return GF_AGAIN;
            status = gf_coll_reduce(coll, slice.first, recv_staging(coll, at), slice.count);
            if (status != GF_OK) return status;
            reduced += slice.count;
            flow->last_reduce = at->count + 1;
        }
        flow_next(coll, at, false);
        coll->moved_ns = now_ns;
    }
    return GF_OK;
}

gf_status gf_flow_async(struct gf_coll *coll, uint64_t now_ns)
{
    const struct gf_gpu_driver *driver = coll->queue->gpu->driver;
    struct gf_flow *flow = coll->own.flow;
    gf_status status;
    if (flow->recorded.count > flow->recv_done.count) {
        if ((status = driver->event_query(coll->queue->gpu, coll->event)) != GF_OK) return status;
        flow->recv_done = flow->recorded;
        coll->moved_ns = now_ns;
    }
    if (flow->recv_done.count >= flow->last_reduce) {
        flow->recv_done = flow->reduced;
        return GF_OK;
    }
    if ((status = driver->event_record(coll->queue, coll->event)) < 0) return status;
    flow->recorded = flow->reduced;
    return GF_AGAIN;
}

/* The messages of one direction, as far as the window reaches and what they depend on is there. */
static gf_status flow_post(struct gf_coll *coll, bool is_send, uint64_t now_ns)
{
    struct gf_flow *flow = coll->own.flow;
    struct gf_flow_at *at = is_send ? &flow->sent : &flow->recvd;
    const struct gf_flow_at *done = is_send ? &flow->send_done : &flow->recv_done;
    size_t elem_bytes = gf_coll_elem_bytes(coll);
    while ((at->round < flow->round_count) && (at->count - done->count < coll->window)) {
        const struct gf_range *range = range_at(coll, at, is_send);
        struct flow_slice slice = flow_slice(flow, range, at->slice);
        gf_mem data = coll->plan.data + slice.first * elem_bytes;
        gf_status status;
        if (!is_send && flow->known.reduce)
            data = recv_staging(coll, at);
        else if (!flow_ready(coll, range, slice.first + slice.count, is_send))
            return GF_AGAIN;
        if (is_send && (coll->plan.collective == GF_COLL_BARRIER))
            data = (gf_mem)(uintptr_t)&flow_token;
        status = gf_coll_post(coll, slot_of(coll, at, is_send), range->peer,
                              at->round * flow->round_slices + at->slice, data,
                              slice.count * elem_bytes, is_send);
        if (status != GF_OK) return status;
        flow_next(coll, at, is_send);
        coll->moved_ns = now_ns;
    }
    return GF_OK;
}

/* The culprit if nothing moves from here on: the rank whose message is awaited, or the rank that
 * does not take the message of this one. */
static uint32_t flow_waits_for(struct gf_coll *coll)
{
    const struct gf_flow *flow = coll->own.flow;
    const struct gf_flow_at *at = flow_arrival(coll);
    const struct gf_coll_msg *recv = &coll->msgs[slot_of(coll, at, false)];
    if ((at->count < flow->recvd.count) && recv->active) return recv->peer;
    if (flow->send_done.count < flow->sent.count)
        return coll->msgs[slot_of(coll, &flow->send_done, true)].peer;
    return GF_RANK_NONE;
}

gf_status gf_flow_progress(struct gf_coll *coll, uint64_t now_ns)
{
    const struct gf_flow *flow = coll->own.flow;
    gf_status status = flow_sends_end(coll, now_ns);
    /* What arrived comes before what is posted: it frees slots and lets sends go in this very poll.
     * Receives come before sends: a message that finds its receive posted is not kept elsewhere
     * first. */
    if (status >= 0) status = flow_recvs_end(coll, now_ns);
    if ((status >= 0) && (coll->async != NULL)) status = coll->async(coll, now_ns);
    if (status >= 0) status = flow_post(coll, false, now_ns);
    if (status >= 0) status = flow_post(coll, true, now_ns);
    if (status < 0) return status;
    coll->waits_for = flow_waits_for(coll);
    coll->awaits_device = flow->recorded.count > flow->recv_done.count;
    if ((flow->send_done.round < flow->round_count) || (flow->recv_done.round < flow->round_count))
        return GF_AGAIN;
    return GF_OK;
}
