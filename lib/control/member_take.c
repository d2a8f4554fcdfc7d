/* What a member receives: frames of its coordinator, and the begin and end of its connection. */
#include "lib/control/member_state.h"

#include "drivers/link.h"

#include <stdio.h>

#define EVENTS_MAX 256u

static void list_take(struct gf_member *member, struct gf_get *get)
{
    struct control_list list = {0};
    gf_frame_list_walk(&(struct gf_walk){.get = get}, &list);
    bool awaited = (member->state == GF_MEMBER_JOINING) || (member->state == GF_MEMBER_READY) ||
                   (member->state == GF_MEMBER_LISTED);
    if (get->bad || (list.world > member->setup.id_count) || (list.rank >= list.world) ||
        (list.network >= GF_NETWORKS)) {
        get->bad = true;
        return;
    }
    if (!awaited || (list.number <= member->standing.generation)) return;
    member->standing.listed = list.number;
    /* Said again on a new connection: the endpoint is, too. */
    bool again = (member->state == GF_MEMBER_LISTED) && (list.number == member->listed.number);
    member->listed = (struct gf_generation){.number = list.number,
                                            .rank = list.rank,
                                            .world = list.world,
                                            .network = list.network,
                                            .comes_in = list.comes_in};
    member->go_rank = member->go_at = 0;
    member->endpoint_sent = 0;
    if (again) {
        if (!member->endpoint_due) member->pending |= 1u << CONTROL_ENDPOINT;
        return;
    }
    member->endpoint_due = true;
    member->pending &= ~(1u << CONTROL_ENDPOINT | 1u << CONTROL_READY);
    gf_member_enter(member, GF_MEMBER_LISTED);
}

static void generation_begin(struct gf_member *member, const struct control_go *go)
{
    const struct gf_error seen = member->fault.error;
    const bool ends = member->fault.ends;
    member->generation = member->listed;
    member->generation.lead = go->lead;
    member->generation.lags = go->lags;
    member->generation.progress = go->progress;
    member->standing = (struct control_standing){.generation = go->number,
                                                 .rank = member->listed.rank,
                                                 .world = member->listed.world,
                                                 .list_hash = go->list_hash,
                                                 .listed = go->number};
    member->found = false;
    member->inquiry = member->awaits.count = 0;
    member->awaits.awaited = GF_RANK_NONE;
    member->error = (struct gf_error){.peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    member->report = (struct control_report){.waits_for = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    member->pending &= 1u << CONTROL_OFFER;
    member->beat_ns = 0;
    member->moved_ns = member->waited_ns = member->now_ns;
    member->patience = (struct control_patience){0};
    member->fault = (struct control_fault){.error.peer = GF_RANK_NONE};
    member->moved = member->reported = member->report;
    member->closed.rank = GF_RANK_NONE;
    gf_member_enter(member, GF_MEMBER_WORKS);
    if (ends) gf_member_fault(member, &seen, true); /* it was said before, and still holds */
}

static void go_take(struct gf_member *member, struct gf_get *get)
{
    struct control_go go = {0};
    gf_frame_go_walk(&(struct gf_walk){.get = get}, &go);
    if (get->bad || (member->state != GF_MEMBER_LISTED) || (go.number != member->listed.number))
        return;
    if (go.lead >= member->listed.world) {
        get->bad = true;
        return;
    }
    while (get->left > 0) {
        struct control_piece piece = {0};
        gf_frame_piece_walk(&(struct gf_walk){.get = get}, &piece);
        const unsigned char *bytes = gf_get_bytes(get, piece.bytes);
        if (get->bad || (piece.rank != member->go_rank) || (piece.at != member->go_at) ||
            (piece.rank >= member->listed.world) ||
            (piece.total > member->setup.endpoint_bytes_max) ||
            ((piece.at != 0) && (piece.total != member->sizes[piece.rank])) ||
            (piece.bytes > piece.total - piece.at)) {
            get->bad = true;
            return;
        }
        unsigned char *to = member->endpoints + piece.rank * member->setup.endpoint_bytes_max;
        if (piece.bytes > 0) memcpy(to + piece.at, bytes, piece.bytes);
        member->sizes[piece.rank] = piece.total;
        member->go_at += piece.bytes;
        if (member->go_at < piece.total) continue;
        member->go_at = 0;
        member->go_rank++;
    }
    if (member->go_rank == member->listed.world) generation_begin(member, &go);
}

/* A process may die before it has said that it is in this step. A step ends by the votes of all, so
 * it was. */
static void location_mend(const struct gf_member *member, struct gf_error *error)
{
    if ((error->code != GF_ERR_PEER) || (error->step >= member->report.step)) return;
    error->step = member->report.step;
    error->operation = (gf_operation)member->report.operation;
    error->tensor = member->report.tensor;
}

static void finding_take(struct gf_member *member, struct gf_get *get)
{
    struct control_finding finding = {0};
    gf_frame_finding_walk(&(struct gf_walk){.get = get}, &finding);
    if (get->bad) return;
    if (member->generation.number != 0) location_mend(member, &finding.error);
    if ((member->state == GF_MEMBER_CLOSING) && !finding.may_go_on) {
        gf_member_enter(member, GF_MEMBER_GONE); /* what others do after that is not its end */
        return;
    }
    bool works = (member->state == GF_MEMBER_WORKS) ||
                 ((member->state == GF_MEMBER_FAILED) && !member->found);
    if (!works && finding.may_go_on) return; /* the list changes, and nothing else */
    if (member_is_over(member)) return;
    /* What it gave up for it knows best. */
    member->error = member->fault.ends ? member->fault.error : finding.error;
    member->error.rank = member->generation.rank;
    member->found = true;
    member->pending &= ~(1u << CONTROL_FAULT);
    if (member->standing.said < CONTROL_SAID_FAULT) member->standing.said = CONTROL_SAID_FAULT;
    gf_member_enter(member, (finding.may_go_on && !member->fault.ends) ? GF_MEMBER_FAILED
                                                                       : GF_MEMBER_ENDED);
}

static void refusal_take(struct gf_member *member, struct gf_get *get)
{
    struct control_refusal refusal = {0};
    gf_frame_refusal_walk(&(struct gf_walk){.get = get}, &refusal);
    bool is_rank = (refusal.peer == GF_RANK_NONE) || (refusal.peer < member->setup.id_count);
    get->bad = get->bad || !is_rank;
    if (get->bad) return;
    member->refusal = refusal;
    if (!refusal.may_retry || ((int32_t)refusal.code >= 0))
        gf_member_end(member, ((int32_t)refusal.code < 0) ? (gf_status)refusal.code : GF_ERR_PEER,
                      refusal.peer, "%s", refusal.text);
}

/* It has closed, or said READY as one that leaves; it may have been listed once more meanwhile. */
static bool may_leave(const struct gf_member *member)
{
    bool is_ready = (member->state == GF_MEMBER_READY) || (member->state == GF_MEMBER_LISTED);
    return (member->state == GF_MEMBER_CLOSING) ||
           (is_ready && (member->standing.said == CONTROL_SAID_READY) && member->ready.leaves);
}

static void waiting_take(struct gf_member *member, struct gf_get *get)
{
    struct control_waiting waiting = {.awaited = GF_RANK_NONE};
    gf_frame_waiting_walk(&(struct gf_walk){.get = get}, &waiting);
    if (get->bad) return;
    if ((waiting.refused[0] != '\0') && (strcmp(waiting.refused, member->awaits.refused) != 0))
        gf_log_line(&member->setup.log, GF_LOG_WARN,
                    "rank %u waits for all ranks to join, and the coordinator at %s has refused "
                    "one: %s",
                    member->setup.id, member->setup.address, waiting.refused);
    member->awaits = waiting;
}

static void patience_take(struct gf_member *member, struct gf_get *get)
{
    uint64_t patience_ns = gf_get_u64_bytes(get, 8);
    uint64_t from = gf_get_u64_bytes(get, 8);
    if (!get->bad)
        (void)gf_patience_take(&member->patience, member->now_ns,
                               member->setup.terms.exchange_timeout_ns, patience_ns, from);
}

static void ask_take(struct gf_member *member, struct gf_get *get)
{
    uint32_t inquiry = gf_get_u32(get);
    if (get->bad || member_is_over(member)) return;
    member->inquiry = inquiry;
    member->pending |= 1u << CONTROL_POSITION;
}

static void closed_take(struct gf_member *member, struct gf_get *get)
{
    struct control_closed closed = {.rank = GF_RANK_NONE};
    gf_frame_closed_walk(&(struct gf_walk){.get = get}, &closed);
    if (!get->bad && (closed.rank < member->generation.world)) member->closed = closed;
}

static void all_gone_take(struct gf_member *member, struct gf_get *get)
{
    (void)get;
    if (may_leave(member)) gf_member_enter(member, GF_MEMBER_GONE);
}

static void frame_take(struct gf_member *member, const struct gf_channel_event *event)
{
    static void (*const takes[CONTROL_FRAME_COUNT])(struct gf_member *, struct gf_get *) = {
        [CONTROL_LIST] = list_take,         [CONTROL_GO] = go_take,
        [CONTROL_REFUSED] = refusal_take,   [CONTROL_WAITING] = waiting_take,
        [CONTROL_PATIENCE] = patience_take, [CONTROL_ASK] = ask_take,
        [CONTROL_ERROR] = finding_take,     [CONTROL_ALL_GONE] = all_gone_take,
        [CONTROL_CLOSED] = closed_take};
    struct gf_get get = {.at = event->payload, .left = event->size_bytes};
    uint32_t kind = event->frame_kind;
    member->heard_ns = member->now_ns;
    if (kind != CONTROL_REFUSED) {
        member->taken = member->taken_here = true;
        member->refusal.text[0] = '\0';
    }
    if ((kind < CONTROL_FRAME_COUNT) && (takes[kind] != NULL))
        takes[kind](member, &get);
    else
        get.bad = true;
    if (get.bad)
        gf_member_end(member, GF_ERR_PEER, member_coordinator_rank(member),
                      "the coordinator at %s sent a frame that is malformed (kind %u, %u bytes)",
                      member->setup.address, event->frame_kind, event->size_bytes);
}

/* ---- the connection ---- */

static void connected_take(struct gf_member *member)
{
    member->connected = true;
    member->heard_ns = member->now_ns; /* it has answered the handshake */
    member->unsent = member->taken_here = false;
    member->awaits.count = 0;
    member->dials = member->died = false;
    member->go_rank = member->go_at = 0;
    member->endpoint_sent = 0;
    member->pending |= 1u << CONTROL_OFFER;
    member->pending &= ~(1u << CONTROL_POSITION); /* the question was of the connection before */
    switch (member->state) {
    case GF_MEMBER_LISTED:
        if (!member->endpoint_due) member->pending |= 1u << CONTROL_ENDPOINT;
        /* A coordinator that was begun anew knows nothing of the list. */
        if (member->standing.said == CONTROL_SAID_READY) member->pending |= 1u << CONTROL_READY;
        break;
    case GF_MEMBER_FAILED:
        if (!member->found) member->pending |= 1u << CONTROL_FAULT;
        break;
    case GF_MEMBER_READY: member->pending |= 1u << CONTROL_READY; break;
    case GF_MEMBER_CLOSING: member->pending |= 1u << CONTROL_BYE; break;
    default: break;
    }
    /* Said in whatever state; the coordinator may not have heard it. */
    if (member->fault.ends && (member->state < GF_MEMBER_CLOSING))
        member->pending |= 1u << CONTROL_FAULT;
}

static void ended_take(struct gf_member *member, const struct gf_channel_event *event)
{
    /* One that was only refused, or heard nothing, does not count. */
    if (member->connected && member->taken_here) member->lost_ns = member->now_ns;
    if (!member->connected) member->refusal.text[0] = '\0'; /* nobody is there to refuse it */
    member->taken_here = false;
    member->connected = member->dials = false;
    member->died = (event->end == GF_CHANNEL_DIED);
    (void)snprintf(member->how, sizeof member->how, "%.159s", event->text);
    member->random = member->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    member->dial_ns = member->now_ns + MEMBER_REDIAL_NS + (member->random >> 33) % MEMBER_REDIAL_NS;
    if (member_is_over(member)) return;
    if (member->state == GF_MEMBER_CLOSING) {
        gf_member_enter(member,
                        GF_MEMBER_GONE); /* who said BYE and loses the coordinator has ended well */
        return;
    }
    if (member->died && (member->setup.host_id != GF_RANK_NONE) && (member->generation.number != 0))
        gf_member_end(
            member, GF_ERR_PEER, member->setup.host_id,
            "rank %u has ended, in whose process the coordinator of the job ran: the job ends with "
            "it. With rendezvous.coordinator = \"separate\" (gf-run sets that) it would go on",
            member->setup.host_id);
}

void gf_member_events_take(struct gf_member *member)
{
    struct gf_channel_event event;
    for (uint32_t i = 0; i < EVENTS_MAX; i++) {
        if (!member->channel->driver->poll(member->channel, member->now_ns, &event)) {
            const struct gf_fault *fault = &member->channel->fault;
            if (fault->code < 0)
                gf_member_end(member, fault->code, GF_RANK_NONE, "%s", fault->text);
            return;
        }
        switch (event.kind) {
        case GF_CHANNEL_CONNECTED: connected_take(member); break;
        case GF_CHANNEL_FRAME: frame_take(member, &event); break;
        case GF_CHANNEL_ENDED: ended_take(member, &event); break;
        }
    }
}
