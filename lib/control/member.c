/* A member's states.
 *
 *     JOINING -> LISTED -> WORKS -> FAILED -> READY -> LISTED -> WORKS ..      any -> ENDED
 *                            |        planned: WORKS -> READY
 *                            \-> CLOSING -> GONE
 *
 * A connection that breaks is dialled again; the member then offers itself and repeats its last
 * word, and so does the coordinator. No step needs the coordinator, so a member that works goes on
 * meanwhile. */
#include "lib/control/member_state.h"

#include "drivers/link.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define STATUS_NS UINT64_C(100000000) /* at most so often, where something has changed */
#define ALIVE_NS UINT64_C(250000000)  /* so often where nothing has */
#define SILENCE_NS UINT64_C(4000000000)
#define REDIAL_NS UINT64_C(50000000) /* and up to twice as long, drawn anew each time */
#define NAP_NS UINT64_C(250000000)   /* of a gap between two polls at most this counts */
#define EVENTS_MAX 256u

static bool is_over(const struct gf_member *member)
{
    return member->state >= GF_MEMBER_GONE;
}

static void enter(struct gf_member *member, gf_member_state state)
{
    member->state = state;
    member->since_ns = member->now_ns;
}

/* ---- the end ---- */

__attribute__((format(printf, 4, 5))) static void end(struct gf_member *member, gf_status code,
                                                      uint32_t peer, const char *format, ...)
{
    va_list arguments;
    if (is_over(member)) return;
    member->error = (struct gf_error){.code = code,
                                      .rank = member->generation.rank,
                                      .peer = peer,
                                      .operation = (gf_operation)member->report.operation,
                                      .step = member->report.step,
                                      .tensor = GF_TENSOR_NONE};
    va_start(arguments, format);
    (void)vsnprintf(member->error.text, sizeof member->error.text, format, arguments);
    va_end(arguments);
    member->found = member->lost = true;
    enter(member, GF_MEMBER_ENDED);
}

/* Whom a text names: the rank that hosts the coordinator, or the coordinator. */
static uint32_t coordinator_rank(const struct gf_member *member)
{
    return member->setup.host_id; /* GF_RANK_NONE where it is a process of its own */
}

/* ---- what comes in ---- */

static void list_take(struct gf_member *member, struct gf_get *get)
{
    struct control_list list = {0};
    gf_control_list_walk(&(struct gf_walk){.get = get}, &list);
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
        if (!member->endpoint_due) member->owed |= 1u << CONTROL_ENDPOINT;
        return;
    }
    member->endpoint_due = true;
    member->owed &= ~(1u << CONTROL_ENDPOINT | 1u << CONTROL_READY);
    enter(member, GF_MEMBER_LISTED);
}

static void generation_begin(struct gf_member *member, const struct control_go *go)
{
    member->generation = member->listed;
    member->generation.lead = go->lead;
    member->generation.lags = go->lags;
    member->generation.progress = go->progress;
    member->standing = (struct control_standing){.generation = go->number,
                                                 .rank = member->listed.rank,
                                                 .world = member->listed.world,
                                                 .list = go->list,
                                                 .listed = go->number};
    member->found = false;
    member->inquiry = member->awaits.count = 0;
    member->awaits.awaited = GF_RANK_NONE;
    member->error = (struct gf_error){.peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    member->report = (struct control_report){.waits_for = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    member->owed &= 1u << CONTROL_OFFER;
    member->beat_ns = member->spent_ns = 0;
    member->moved_ns = member->now_ns;
    member->patience = (struct control_patience){0};
    member->fault = (struct control_fault){.error.peer = GF_RANK_NONE};
    member->moved = member->reported = member->report;
    member->closed.rank = GF_RANK_NONE;
    enter(member, GF_MEMBER_WORKS);
}

static void go_take(struct gf_member *member, struct gf_get *get)
{
    struct control_go go = {0};
    gf_control_go_walk(&(struct gf_walk){.get = get}, &go);
    if (get->bad || (member->state != GF_MEMBER_LISTED) || (go.number != member->listed.number))
        return;
    if (go.lead >= member->listed.world) {
        get->bad = true;
        return;
    }
    while (get->left > 0) {
        struct control_piece piece = {0};
        gf_control_piece_walk(&(struct gf_walk){.get = get}, &piece);
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
    gf_control_finding_walk(&(struct gf_walk){.get = get}, &finding);
    if (get->bad) return;
    if (member->generation.number != 0) location_mend(member, &finding.error);
    if ((member->state == GF_MEMBER_CLOSING) && !finding.may_go_on) {
        enter(member, GF_MEMBER_GONE); /* what others do after that is not its end */
        return;
    }
    bool works = (member->state == GF_MEMBER_WORKS) ||
                 ((member->state == GF_MEMBER_FAILED) && !member->found);
    if (!works && finding.may_go_on) return; /* the list changes, and nothing else */
    if (is_over(member)) return;
    /* What it gave up for it knows best. */
    member->error = member->fault.ends ? member->fault.error : finding.error;
    member->error.rank = member->generation.rank;
    member->found = true;
    member->owed &= ~(1u << CONTROL_FAULT);
    if (member->standing.said < CONTROL_SAID_FAULT) member->standing.said = CONTROL_SAID_FAULT;
    enter(member, (finding.may_go_on && !member->fault.ends) ? GF_MEMBER_FAILED : GF_MEMBER_ENDED);
}

static void refusal_take(struct gf_member *member, struct gf_get *get)
{
    struct control_refusal refusal = {0};
    gf_control_refusal_walk(&(struct gf_walk){.get = get}, &refusal);
    bool is_rank = (refusal.peer == GF_RANK_NONE) || (refusal.peer < member->setup.id_count);
    get->bad = get->bad || !is_rank;
    if (get->bad) return;
    member->refusal = refusal;
    if (!refusal.may_retry || ((int32_t)refusal.code >= 0))
        end(member, ((int32_t)refusal.code < 0) ? (gf_status)refusal.code : GF_ERR_PEER,
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
    gf_control_waiting_walk(&(struct gf_walk){.get = get}, &waiting);
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
        (void)gf_control_patience_take(&member->patience, member->now_ns,
                                       member->setup.terms.exchange_timeout_ns, patience_ns, from);
}

static void ask_take(struct gf_member *member, struct gf_get *get)
{
    uint32_t inquiry = gf_get_u32(get);
    if (get->bad || is_over(member)) return;
    member->inquiry = inquiry;
    member->owed |= 1u << CONTROL_POSITION;
}

static void closed_take(struct gf_member *member, struct gf_get *get)
{
    struct control_closed closed = {.rank = GF_RANK_NONE};
    gf_control_closed_walk(&(struct gf_walk){.get = get}, &closed);
    if (!get->bad && (closed.rank < member->generation.world)) member->closed = closed;
}

static void all_gone_take(struct gf_member *member, struct gf_get *get)
{
    (void)get;
    if (may_leave(member)) enter(member, GF_MEMBER_GONE);
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
    if (kind != CONTROL_REFUSED) member->taken = member->taken_here = true;
    if ((kind < CONTROL_FRAME_COUNT) && (takes[kind] != NULL))
        takes[kind](member, &get);
    else
        get.bad = true;
    if (get.bad)
        end(member, GF_ERR_PEER, coordinator_rank(member),
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
    member->owed |= 1u << CONTROL_OFFER;
    member->owed &= ~(1u << CONTROL_POSITION); /* the question was of the connection before */
    switch (member->state) {
    case GF_MEMBER_LISTED:
        if (!member->endpoint_due) member->owed |= 1u << CONTROL_ENDPOINT;
        /* A coordinator that was begun anew knows nothing of the list. */
        if (member->standing.said == CONTROL_SAID_READY) member->owed |= 1u << CONTROL_READY;
        break;
    case GF_MEMBER_FAILED:
        if (!member->found) member->owed |= 1u << CONTROL_FAULT;
        break;
    case GF_MEMBER_READY: member->owed |= 1u << CONTROL_READY; break;
    case GF_MEMBER_CLOSING: member->owed |= 1u << CONTROL_BYE; break;
    default: break;
    }
}

static void ended_take(struct gf_member *member, const struct gf_channel_event *event)
{
    /* One that was only refused, or heard nothing, does not count. */
    if (member->connected && member->taken_here) member->lost_ns = member->now_ns;
    member->taken_here = false;
    member->connected = member->dials = false;
    member->died = (event->end == GF_CHANNEL_DIED);
    (void)snprintf(member->how, sizeof member->how, "%.159s", event->text);
    member->random = member->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    member->dial_ns = member->now_ns + REDIAL_NS + (member->random >> 33) % REDIAL_NS;
    if (is_over(member)) return;
    if (member->state == GF_MEMBER_CLOSING) {
        enter(member, GF_MEMBER_GONE); /* who said BYE and loses the coordinator has ended well */
        return;
    }
    if (member->died && (member->setup.host_id != GF_RANK_NONE) && (member->generation.number != 0))
        end(member, GF_ERR_PEER, member->setup.host_id,
            "rank %u has ended, in whose process the coordinator of the job ran: the job ends with "
            "it. With rendezvous.coordinator = \"separate\" (gf-run sets that) it would go on",
            member->setup.host_id);
}

static void events_take(struct gf_member *member)
{
    struct gf_channel_event event;
    for (uint32_t i = 0; i < EVENTS_MAX; i++) {
        if (!member->channel->driver->poll(member->channel, member->now_ns, &event)) {
            const struct gf_fault *fault = &member->channel->fault;
            if (fault->code < 0) end(member, fault->code, GF_RANK_NONE, "%s", fault->text);
            return;
        }
        switch (event.kind) {
        case GF_CHANNEL_CONNECTED: connected_take(member); break;
        case GF_CHANNEL_FRAME: frame_take(member, &event); break;
        case GF_CHANNEL_ENDED: ended_take(member, &event); break;
        }
    }
}

static void dial(struct gf_member *member)
{
    if (member->connected || member->dials || is_over(member)) return;
    if (member->now_ns < member->dial_ns) return;
    member->dials = true;
    member->channel->driver->dial(member->channel, member->now_ns);
}

/* ---- deadlines ---- */

static void time_look(struct gf_member *member)
{
    uint64_t join_ns = member->setup.terms.join_timeout_ns;
    uint64_t silence_ns = member->setup.terms.exchange_timeout_ns;
    uint64_t lost_ns = member->now_ns - member->lost_ns;
    bool waits = (member->state == GF_MEMBER_READY) || (member->state == GF_MEMBER_LISTED) ||
                 ((member->state == GF_MEMBER_FAILED) && !member->found) ||
                 ((member->state == GF_MEMBER_JOINING) && member->taken_here);
    if (silence_ns < SILENCE_NS) silence_ns = SILENCE_NS;
    if (is_over(member)) return;
    if ((member->state == GF_MEMBER_CLOSING) &&
        (member->now_ns - (member->connected ? member->heard_ns : member->lost_ns) >= silence_ns) &&
        (member->now_ns - member->since_ns >= silence_ns)) {
        enter(member, GF_MEMBER_GONE);
        return;
    }
    /* one that it has reached says first what it waits for */
    if (!member->taken_here && (lost_ns >= join_ns + (member->connected ? silence_ns : 0))) {
        if (member->refusal.text[0] != '\0')
            end(member, (gf_status)member->refusal.code, GF_RANK_NONE, "%s", member->refusal.text);
        else /* of the first join the deadline has passed */
            end(member, (member->generation.number == 0) ? GF_ERR_TIMEOUT : GF_ERR_PEER,
                coordinator_rank(member), "the coordinator at %s cannot be reached, for %.1f s%s%s",
                member->setup.address, (double)lost_ns / 1e9, (member->how[0] != '\0') ? ": " : "",
                member->how);
        return;
    }
    if (waits && member->connected && (member->now_ns - member->heard_ns >= silence_ns) &&
        (member->now_ns - member->since_ns >= silence_ns))
        end(member, GF_ERR_PEER, coordinator_rank(member),
            "the coordinator at %s says nothing, for %.1f s", member->setup.address,
            (double)(member->now_ns - member->heard_ns) / 1e9);
}

/* ---- what goes out ---- */

static bool same_location(const struct control_report *a, const struct control_report *b)
{
    return (a->step == b->step) && (a->sequence == b->sequence) && (a->operation == b->operation);
}

/* Its own clock is the evidence that it did not poll while the others waited. Of an answer it
 * counts for a quarter of exchange.timeout: who computed as long, but before the others began to
 * wait, is not late. */
static void away_look(struct gf_member *member, uint64_t gap_ns)
{
    if (gap_ns < member->setup.terms.exchange_timeout_ns / 4 * 3) return;
    member->away_ns = member->now_ns;
    member->away_for_ns = gap_ns;
}

static uint64_t unpolled_ns(const struct gf_member *member)
{
    uint64_t since_ns = member->now_ns - member->away_ns;
    return (since_ns <= member->setup.terms.exchange_timeout_ns / 4) ? member->away_for_ns : 0;
}

static void moved_look(struct gf_member *member)
{
    if (member->report.waits_for != GF_RANK_NONE) member->waited_ns = member->now_ns;
    if (same_location(&member->report, &member->moved)) return;
    member->moved = member->report;
    member->moved_ns = member->now_ns;
}

/* One coordinator hears them all, so in a large job each says less; but whoever says less than four
 * times in exchange.timeout would be taken for one that is silent. */
static void status_owe(struct gf_member *member)
{
    bool changed = !same_location(&member->report, &member->reported) ||
                   (member->report.calls.count != member->reported.calls.count) ||
                   (member->beat_ns > member->status_ns);
    uint64_t rest_ns = STATUS_NS + member->generation.world * UINT64_C(1000000);
    uint64_t most_ns = member->setup.terms.exchange_timeout_ns / 4;
    uint64_t age_ns = member->now_ns - member->status_ns;
    if (!changed) rest_ns += ALIVE_NS;
    if (rest_ns > most_ns) rest_ns = most_ns;
    if (!member->connected || (member->state != GF_MEMBER_WORKS) || (age_ns < rest_ns)) return;
    member->owed |= 1u << CONTROL_STATUS;
}

/* Once it has moved, its heartbeat has done what it was for. */
static uint64_t patience_own(const struct gf_member *member)
{
    uint64_t since_ns = member->now_ns - member->beat_ns;
    if ((member->beat_ns == 0) || (member->beat_ns < member->moved_ns)) return 0;
    return (since_ns < member->beat_for_ns) ? member->beat_for_ns - since_ns : 0;
}

static uint64_t first_unbegun(const struct gf_member *member)
{
    return (member->setup.begun == NULL) ? 0 : member->setup.begun(member->setup.edges_of);
}

/* What its link says now, and what it has failed for: a link that has no more to say may have said
 * it then. */
static void edges_ask(const struct gf_member *member, const struct gf_error *seen,
                      struct control_edges *edges)
{
    edges->count = 0;
    edges->code = GF_OK;
    if (member->setup.edges != NULL) member->setup.edges(member->setup.edges_of, edges);
    bool of_link = (seen->code == GF_ERR_LINK) && (seen->peer < member->generation.world) &&
                   (seen->peer != member->generation.rank);
    bool is_known = !of_link;
    for (uint32_t i = 0; i < edges->count; i++)
        is_known = is_known || (edges->peers[i] == seen->peer);
    if (!is_known && (edges->count < CONTROL_EDGES_MAX))
        edges->peers[edges->count++] = (uint16_t)seen->peer;
    if ((edges->code != GF_OK) || (!of_link && (seen->code != GF_ERR_SYSTEM))) return;
    edges->code = seen->code;
    edges->peer = seen->peer;
    edges->foreign_code = seen->foreign_code;
    memcpy(edges->foreign_call, seen->foreign_call, sizeof edges->foreign_call);
    (void)snprintf(edges->text, sizeof edges->text, "%.239s", seen->text);
}

static void report_put(struct gf_member *member, struct gf_put *put, uint32_t inquiry)
{
    struct control_report report = member->report;
    const struct gf_member_setup *setup = &member->setup;
    const char *name = NULL;
    report.inquiry = inquiry;
    report.unmoved_ns = member->now_ns - member->moved_ns;
    report.free_ns = member->now_ns - member->waited_ns;
    report.unpolled_ns = unpolled_ns(member);
    report.patience_ns = patience_own(member);
    report.patience_from = (report.patience_ns == 0) ? 0 : first_unbegun(member);
    if ((setup->tensor_name != NULL) && (report.tensor != GF_TENSOR_NONE))
        name = setup->tensor_name(setup->edges_of, report.tensor);
    (void)snprintf(report.tensor_name, sizeof report.tensor_name, "%.31s",
                   (name == NULL) ? "" : name);
    if (inquiry != 0) edges_ask(member, &member->fault.error, &report.edges);
    gf_control_report_walk(&(struct gf_walk){.put = put}, &report);
}

static void endpoint_put(struct gf_member *member, struct gf_put *put)
{
    size_t room = put->left - CONTROL_PIECE_BYTES;
    size_t left = member->endpoint_bytes - member->endpoint_sent;
    struct control_piece piece = {.rank = member->listed.rank,
                                  .total = (uint32_t)member->endpoint_bytes,
                                  .at = (uint32_t)member->endpoint_sent,
                                  .bytes = (uint32_t)((left < room) ? left : room)};
    gf_control_piece_walk(&(struct gf_walk){.put = put}, &piece);
    gf_put_bytes(put, member->own + piece.at, piece.bytes);
}

static void offer_put(struct gf_member *member, struct gf_put *put)
{
    struct control_offer offer = {.id = member->setup.id,
                                  .id_count = member->setup.id_count,
                                  .first_world = member->setup.world,
                                  .rejoins = member->setup.rejoins && !member->taken,
                                  .process = member->setup.process,
                                  .standing = member->standing,
                                  .terms = member->setup.terms,
                                  .values = member->setup.values};
    gf_control_offer_walk(&(struct gf_walk){.put = put}, &offer);
}

/* The number of the generation, or the list, that a word is of, then the word. */
static void word_put(struct gf_member *member, control_frame frame, struct gf_put *put)
{
    struct gf_walk walk = {.put = put};
    if (frame == CONTROL_OFFER) {
        offer_put(member, put);
        return;
    }
    gf_put_u32(put,
               (frame == CONTROL_ENDPOINT) ? member->listed.number : member->standing.generation);
    switch (frame) {
    case CONTROL_ENDPOINT: endpoint_put(member, put); break;
    case CONTROL_STATUS: report_put(member, put, 0); break;
    case CONTROL_POSITION: report_put(member, put, member->inquiry); break;
    case CONTROL_FAULT: gf_control_fault_walk(&walk, &member->fault); break;
    case CONTROL_READY: gf_control_ready_walk(&walk, &member->ready); break;
    default: gf_walk_u64(&walk, &member->report.step); break; /* BYE */
    }
}

static bool word_send(struct gf_member *member, control_frame frame)
{
    struct gf_put put = {member->scratch, sizeof member->scratch};
    size_t before = member->endpoint_sent;
    word_put(member, frame, &put);
    if (frame == CONTROL_ENDPOINT) {
        size_t head = CONTROL_PIECE_BYTES + sizeof(uint32_t);
        member->endpoint_sent += sizeof member->scratch - put.left - head;
    }
    gf_status status = member->channel->driver->send(member->channel, 0, frame, member->scratch,
                                                     (uint32_t)(sizeof member->scratch - put.left));
    if (status != GF_OK) {
        member->unsent = (status < 0);
        member->endpoint_sent = before;
        return false;
    }
    member->channel->sent_bytes += sizeof member->scratch - put.left;
    if (frame == CONTROL_STATUS) {
        member->status_ns = member->now_ns;
        member->reported = member->report;
    }
    if ((frame != CONTROL_ENDPOINT) || (member->endpoint_sent == member->endpoint_bytes))
        member->owed &= ~(1u << frame);
    return true;
}

static void flush(struct gf_member *member)
{
    while (member->connected && (member->owed != 0))
        if (!word_send(member, (control_frame)__builtin_ctz(member->owed))) return;
}

/* ---- calls ---- */

/* Time in which it was not polled does not count against the coordinator. */
static void clock_go(struct gf_member *member, uint64_t now_ns)
{
    uint64_t gap_ns = (now_ns > member->now_ns) ? now_ns - member->now_ns : 0;
    uint64_t nap_ns = (gap_ns > NAP_NS) ? gap_ns - NAP_NS : 0;
    member->lost_ns += nap_ns;
    member->heard_ns += nap_ns;
    member->since_ns += nap_ns;
    member->now_ns = now_ns;
    away_look(member, gap_ns);
    moved_look(member);
}

gf_member_state gf_member_poll(struct gf_member *member, uint64_t now_ns)
{
    clock_go(member, now_ns);
    events_take(member);
    time_look(member);
    dial(member);
    status_owe(member);
    flush(member);
    return member->state;
}

gf_member_state gf_member_stands(const struct gf_member *member)
{
    return member->state;
}

bool gf_member_list_due(const struct gf_member *member, struct gf_generation *generation_out)
{
    if ((member->state != GF_MEMBER_LISTED) || !member->endpoint_due) return false;
    *generation_out = member->listed;
    return true;
}

void gf_member_endpoint_set(struct gf_member *member, const void *endpoint, size_t endpoint_bytes)
{
    GF_ASSERT((member->state == GF_MEMBER_LISTED) && member->endpoint_due);
    GF_ASSERT(endpoint_bytes <= member->setup.endpoint_bytes_max);
    if (endpoint_bytes > 0) memcpy(member->own, endpoint, endpoint_bytes);
    member->endpoint_bytes = endpoint_bytes;
    member->endpoint_sent = 0;
    member->endpoint_due = false;
    if (member->connected) member->owed |= 1u << CONTROL_ENDPOINT;
}

const struct gf_generation *gf_member_generation(const struct gf_member *member)
{
    return &member->generation;
}

const void *gf_member_endpoint(const struct gf_member *member, uint32_t rank, size_t *bytes_out)
{
    GF_ASSERT(rank < member->generation.world);
    *bytes_out = member->sizes[rank];
    return member->endpoints + rank * member->setup.endpoint_bytes_max;
}

struct control_report *gf_member_report(struct gf_member *member)
{
    return &member->report;
}

uint32_t gf_member_joiner_count(const struct gf_member *member)
{
    return member->awaits.count;
}

const char *gf_member_waits_for(const struct gf_member *member, uint32_t *rank_out)
{
    *rank_out = member->awaits.awaited;
    return (*rank_out == GF_RANK_NONE) ? "" : member->awaits.location;
}

void gf_member_call(struct gf_member *member, gf_operation operation, gf_type type, uint32_t root,
                    uint64_t elem_count)
{
    gf_calls_add(&member->report.calls, operation, type, root, elem_count);
}

void gf_member_fault(struct gf_member *member, const struct gf_error *seen, bool ends)
{
    if (is_over(member) || (member->state == GF_MEMBER_CLOSING)) return;
    member->fault = (struct control_fault){.ends = ends, .error = *seen};
    edges_ask(member, seen, &member->fault.edges);
    member->owed |= 1u << CONTROL_FAULT;
    member->standing.said = CONTROL_SAID_FAULT;
    if (member->state == GF_MEMBER_WORKS) enter(member, GF_MEMBER_FAILED);
    flush(member);
}

const struct control_closed *gf_member_closed(const struct gf_member *member)
{
    return (member->closed.rank == GF_RANK_NONE) ? NULL : &member->closed;
}

bool gf_member_is_found(const struct gf_member *member)
{
    return member->found;
}

const struct gf_error *gf_member_error(const struct gf_member *member)
{
    return &member->error;
}

bool gf_member_is_lost(const struct gf_member *member)
{
    return member->lost;
}

bool gf_member_has_ended(const struct gf_member *member)
{
    return is_over(member) || member->fault.ends;
}

void gf_member_ready(struct gf_member *member, const struct control_ready *ready)
{
    GF_ASSERT((member->state == GF_MEMBER_WORKS) || (member->state == GF_MEMBER_FAILED));
    member->ready = *ready;
    member->standing.said = CONTROL_SAID_READY;
    member->owed |= 1u << CONTROL_READY;
    enter(member, GF_MEMBER_READY);
    flush(member);
}

void gf_member_bye(struct gf_member *member)
{
    if (is_over(member) || (member->state == GF_MEMBER_CLOSING)) return;
    /* Its last calls are compared, too. */
    if ((member->state == GF_MEMBER_WORKS) && member->connected)
        member->owed |= 1u << CONTROL_STATUS;
    member->standing.said = CONTROL_SAID_BYE;
    member->owed |= 1u << CONTROL_BYE;
    enter(member, GF_MEMBER_CLOSING);
    flush(member);
}

/* A program that hangs in a loop of heartbeats is found out. It is told once in each place: the
 * error of the others says that this rank computes, which its program may have said all the
 * time. */
static bool patience_is_spent(struct gf_member *member)
{
    uint64_t limit_ns = member->setup.patience_ns;
    if ((limit_ns == 0) || (member->now_ns - member->moved_ns <= limit_ns)) return false;
    if (member->spent_ns == member->moved_ns) return true;
    member->spent_ns = member->moved_ns;
    if (member->generation.world > 1)
        gf_log_line(&member->setup.log, GF_LOG_WARN,
                    "rank %u: gf_heartbeat() counts no more, as no operation has begun here for "
                    "exchange.patience (%.1f s): who waits for this rank gives up exchange.timeout "
                    "later",
                    member->generation.rank, (double)limit_ns / 1e9);
    return true;
}

void gf_member_heartbeat(struct gf_member *member, uint64_t now_ns, uint64_t patience_ns)
{
    uint64_t timeout_ns = member->setup.terms.exchange_timeout_ns;
    clock_go(member, now_ns);
    if (member->state != GF_MEMBER_WORKS) return;
    if (patience_is_spent(member)) return;
    member->beat_ns = (now_ns > 0) ? now_ns : 1;
    member->beat_for_ns = (patience_ns < timeout_ns) ? patience_ns : timeout_ns;
    (void)gf_control_patience_take(&member->patience, now_ns, timeout_ns, member->beat_for_ns,
                                   first_unbegun(member));
    if (!member->connected || (now_ns - member->status_ns < STATUS_NS)) return;
    member->owed |= 1u << CONTROL_STATUS;
    flush(member);
}

uint64_t gf_member_patience(const struct gf_member *member, uint64_t now_ns, uint64_t *from_out)
{
    *from_out = member->patience.from;
    return gf_control_patience_left(&member->patience, now_ns);
}

bool gf_member_flushed(const struct gf_member *member)
{
    return !member->connected || member->unsent ||
           ((member->owed == 0) && member->channel->driver->flushed(member->channel));
}

/* ---- open ---- */

size_t gf_member_state_bytes(const struct gf_member_setup *setup)
{
    size_t endpoint_bytes = setup->endpoint_bytes_max;
    return sizeof(struct gf_member) + setup->id_count * (sizeof(uint32_t) + endpoint_bytes) +
           endpoint_bytes;
}

struct gf_member *gf_member_open(const struct gf_member_setup *setup, void *state,
                                 struct gf_channel *channel, uint64_t now_ns)
{
    struct gf_member *member = state;
    GF_ASSERT((setup->id < setup->id_count) && (setup->process != 0));
    memset(member, 0, sizeof *member);
    member->setup = *setup;
    member->channel = channel;
    member->random = setup->process;
    member->sizes = (uint32_t *)(member + 1);
    member->own = (unsigned char *)(member->sizes + setup->id_count);
    member->endpoints = member->own + setup->endpoint_bytes_max;
    member->report.waits_for = GF_RANK_NONE;
    member->report.tensor = GF_TENSOR_NONE;
    member->moved = member->reported = member->report;
    member->fault.error.peer = member->awaits.awaited = GF_RANK_NONE;
    member->moved_ns = now_ns;
    member->closed.rank = GF_RANK_NONE;
    member->error = (struct gf_error){.peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    member->now_ns = member->since_ns = member->lost_ns = member->heard_ns = now_ns;
    return member;
}
