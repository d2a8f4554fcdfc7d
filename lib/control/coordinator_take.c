/* What the coordinator receives: the frames of members, and the ends of connections. */
#include "lib/control/coordinator_state.h"

#include <stdio.h>
#include <string.h>

/* ---- the words of a member ---- */

/* The others hear who has closed; a step that it did not end can't end. */
void gf_coordinator_closed_tell(struct gf_coordinator *c, const struct control_row *row)
{
    if ((c->closed.rank != GF_RANK_NONE) && (c->closed.step <= row->report.step)) return;
    c->closed = (struct control_closed){.rank = row->rank, .step = row->report.step};
    gf_coordinator_post_members(c, CONTROL_CLOSED);
}

/* Pieces of an endpoint; false: malformed. */
static bool endpoint_take(struct gf_coordinator *c, uint32_t id, struct gf_get *get)
{
    struct control_row *row = &c->rows[id];
    unsigned char *to = control_endpoint(c, true, id);
    while (get->left > 0) {
        struct control_piece piece = {0};
        gf_frame_piece_walk(&(struct gf_walk){.get = get}, &piece);
        const unsigned char *bytes = gf_get_bytes(get, piece.bytes);
        if ((row->endpoint_for != c->next) || (piece.at == 0)) { /* said again after a reconnect */
            row->endpoint_for = c->next;
            row->endpoint_have = 0;
            row->endpoint_total = piece.total;
        }
        if (get->bad || (piece.total > c->setup.endpoint_bytes_max) ||
            (piece.total != row->endpoint_total) || (piece.at != row->endpoint_have) ||
            (piece.bytes > piece.total - piece.at))
            return false;
        if (piece.bytes > 0) memcpy(to + piece.at, bytes, piece.bytes);
        row->endpoint_have += piece.bytes;
    }
    return !get->bad;
}

static bool report_take(struct gf_coordinator *c, struct control_row *row, struct gf_get *get)
{
    struct control_report report = {0};
    gf_frame_report_walk(&(struct gf_walk){.get = get}, &report);
    if (get->bad) return false;
    /* Its answer is of one moment, and STATUS has no edges. */
    bool keeps = (report.inquiry == 0) && (c->state == GF_COORDINATOR_INQUIRE) &&
                 (row->answered >= c->inquiry_first);
    if (!keeps) row->report = report;
    if (report.inquiry != 0) {
        row->answered =
            (report.inquiry <= c->inquiry) ? report.inquiry : 0; /* of another coordinator */
        row->replied = true;
    }
    if (!control_has_begun(c)) return true;
    row->heard_report_ns = (c->now_ns > 0) ? c->now_ns : 1;
    /* Nobody is awaited for longer than one that says nothing. */
    uint64_t timeout_ns = c->terms.exchange_timeout_ns;
    row->patience_ns =
        c->now_ns + ((report.patience_ns < timeout_ns) ? report.patience_ns : timeout_ns);
    if (gf_patience_take(&c->patience, c->now_ns, timeout_ns, report.patience_ns,
                         report.patience_from))
        gf_coordinator_post_members(c, CONTROL_PATIENCE);
    if (!keeps) gf_coordinator_calls_compare(c, row);
    return true;
}

/* What ends a rank: the others hear that it gave up, and why. What the vote has told all ranks is
 * the same on each. */
static void gave_up_tell(struct gf_coordinator *c, struct control_row *row,
                         const struct gf_error *seen)
{
    struct gf_error error = *seen;
    bool joins = !control_has_begun(c) && (row->offer.standing.generation == 0);
    uint32_t rank = joins ? row->offer.id : row->rank;
    char started[CONTROL_STARTED_BYTES];
    if (error.code != GF_ERR_NUMERIC) {
        error.code = GF_ERR_PEER;
        error.peer = rank;
        (void)snprintf(error.text, sizeof error.text, "rank %u%s gave up: %.200s", rank,
                       joins ? "" : gf_coordinator_started(row, started), seen->text);
    }
    gf_coordinator_decide(c, &error, joins || !control_may_be_cut(c, row->offer.id));
}

/* Why it gave up, but not where: whoever tells of it adds that. */
static void how_take(struct control_row *row, const char *text)
{
    const char *location = strstr(text, " in step ");
    int bytes = (location == NULL) ? (int)sizeof row->how - 1 : (int)(location - text);
    (void)snprintf(row->how, sizeof row->how, "%.*s", bytes, text);
}

/* Its member cannot go on, whatever is decided: for its generation it is as one that has ended. In
 * a regroup that changes the list alone, unless the coordinator ends with it. */
static void end_hear(struct gf_coordinator *c, struct control_row *row, const struct gf_error *seen)
{
    row->process_state = CONTROL_PROCESS_ENDED;
    row->gives_up = true;
    how_take(row, seen->text);
    gf_coordinator_post(row, CONTROL_ERROR);
    switch (c->state) {
    case GF_COORDINATOR_RUN:
    case GF_COORDINATOR_INQUIRE: break;
    case GF_COORDINATOR_GATHER:
        if (!control_has_begun(c) && (row->offer.standing.generation != 0)) return;
        if (!control_has_begun(c)) {
            if (!gf_coordinator_job_may_run(c)) break;
            row->waits = false; /* the job runs without it */
            return;
        }
        if (control_may_be_cut(c, row->offer.id)) return;
        break;
    case GF_COORDINATOR_REGROUP:
        if (control_may_be_cut(c, row->offer.id)) return;
        break;
    case GF_COORDINATOR_OVER: return;
    }
    row->cut = true;
    gave_up_tell(c, row, seen);
}

static void fault_hear(struct gf_coordinator *c, struct control_row *row,
                       const struct gf_error *seen)
{
    switch (c->state) {
    case GF_COORDINATOR_GATHER:
        if (control_has_begun(c)) { /* a list is out, and it is not on it: so it hears at once */
            gf_coordinator_post(row, CONTROL_ERROR);
            return;
        }
        row->failed = seen->step + 1; /* looked at once the generation is taken over */
        c->seen = *seen;
        c->seen_by = row->stood.rank;
        c->seen_in = row->stood.generation;
        return;
    case GF_COORDINATOR_REGROUP:
        if (c->error.code != GF_OK) return; /* the failure is known */
        break;
    case GF_COORDINATOR_RUN:
    case GF_COORDINATOR_INQUIRE: break;
    case GF_COORDINATOR_OVER: return;
    }
    gf_coordinator_inquire(c, row->rank, seen);
}

static bool fault_take(struct gf_coordinator *c, struct control_row *row, struct gf_get *get)
{
    struct control_fault fault = {0};
    gf_frame_fault_walk(&(struct gf_walk){.get = get}, &fault);
    if (get->bad) return false;
    if (row->said < CONTROL_SAID_FAULT) row->said = CONTROL_SAID_FAULT;
    row->report.edges = fault.edges;
    if (fault.ends)
        end_hear(c, row, &fault.error);
    else
        fault_hear(c, row, &fault.error);
    return true;
}

/* A word of the generation before, of a member that has not had GO yet. That it ends it may say no
 * more. False: malformed. */
static bool late_take(struct gf_coordinator *c, struct control_row *row, uint32_t kind,
                      struct gf_get *get)
{
    struct control_fault fault = {0};
    if (kind != CONTROL_FAULT) return true;
    gf_frame_fault_walk(&(struct gf_walk){.get = get}, &fault);
    if (get->bad) return false;
    if (fault.ends) end_hear(c, row, &fault.error);
    return true;
}

static bool ready_take(struct gf_coordinator *c, struct control_row *row, struct gf_get *get)
{
    struct control_ready ready = {0};
    gf_frame_ready_walk(&(struct gf_walk){.get = get}, &ready);
    if (get->bad) return false;
    if ((row->said == CONTROL_SAID_BYE) || row->cut) return true;
    row->said = CONTROL_SAID_READY;
    row->planned = ready.planned;
    row->leaves = ready.leaves && control_may_be_cut(c, row->offer.id);
    row->progress = ready.progress;
    /* An inquiry waits for no answer of it; a planned regroup begins with the first READY. */
    row->answered = c->inquiry;
    if (!ready.planned && (c->state == GF_COORDINATOR_RUN)) gf_coordinator_failure_check(c);
    return true;
}

void gf_coordinator_bye_hear(struct gf_coordinator *c, struct control_row *row, uint64_t step)
{
    char name[CONTROL_NAME_BYTES];
    row->said = CONTROL_SAID_BYE;
    row->report.step = step;
    if (!row->closes)
        gf_log_line(&c->setup.log, GF_LOG_INFO, "%s has closed after %llu steps",
                    gf_coordinator_name(row, name), (unsigned long long)step);
    row->closes = true;
    if (control_has_begun(c)) gf_coordinator_closed_tell(c, row);
}

static bool bye_take(struct gf_coordinator *c, struct control_row *row, struct gf_get *get)
{
    uint64_t step = gf_get_u64_bytes(get, 8);
    if (get->bad) return false;
    gf_coordinator_bye_hear(c, row, step);
    if (control_has_begun(c) || (row->offer.standing.generation != 0)) return true;
    row->process_state = CONTROL_PROCESS_ENDED; /* it joins no more */
    (void)snprintf(row->how, sizeof row->how, "it closed its context");
    row->waits = false;
    row->said = CONTROL_SAID_NOTHING;
    gf_coordinator_post(row, CONTROL_ALL_GONE);
    return true;
}

/* A word of a generation that has ended, of a process that is of none: it hears so, and waits once
 * it is READY. Or its id had a process of a generation that may be taken over, which has ended:
 * what that one said is kept. False: malformed. */
static bool left_out_take(struct gf_coordinator *c, struct control_row *row, uint32_t kind,
                          struct gf_get *get)
{
    struct control_ready ready = {0};
    struct control_fault fault = {0};
    if (kind == CONTROL_READY) gf_frame_ready_walk(&(struct gf_walk){.get = get}, &ready);
    if (kind == CONTROL_FAULT) gf_frame_fault_walk(&(struct gf_walk){.get = get}, &fault);
    if (get->bad) return false;
    if (fault.ends) {
        row->process_state = CONTROL_PROCESS_ENDED;
        row->waits = false;
        how_take(row, fault.error.text);
        gf_coordinator_post(row, CONTROL_ERROR);
        return true;
    }
    bool goes = (kind == CONTROL_BYE) || ((kind == CONTROL_READY) && ready.leaves);
    if (goes && !control_may_be_cut(c, row->offer.id)) { /* the host waits for all others */
        row->waits = false;
        row->said = CONTROL_SAID_BYE;
    } else if (goes) {
        row->waits = false;
        gf_coordinator_post(row, CONTROL_ALL_GONE);
    } else if (row->waits) {
        return true;
    } else if (kind == CONTROL_READY)
        gf_coordinator_waits_take(c, row);
    else if ((kind == CONTROL_FAULT) || (kind == CONTROL_STATUS))
        gf_coordinator_post(row, CONTROL_ERROR);
    return true;
}

/* False: malformed, or it cannot come now. */
static bool word_take(struct gf_coordinator *c, uint32_t id, uint32_t kind, struct gf_get *get)
{
    struct control_row *row = &c->rows[id];
    uint32_t number = gf_get_u32(get);
    gf_coordinator_hear(c, row);
    if (kind == CONTROL_ENDPOINT) {
        bool is_due = control_is_listed(c, row) && (number == c->next);
        return !is_due || endpoint_take(c, id, get);
    }
    if (!control_is_same(c, row)) return left_out_take(c, row, kind, get);
    if (control_has_begun(c) && (number != c->number))
        return (number < c->number) && late_take(c, row, kind, get);
    switch (kind) {
    case CONTROL_STATUS:
    case CONTROL_POSITION: return report_take(c, row, get);
    case CONTROL_FAULT: return fault_take(c, row, get);
    case CONTROL_READY: return ready_take(c, row, get);
    case CONTROL_BYE: return bye_take(c, row, get);
    default: return false;
    }
}

/* ---- events ---- */

/* Once, and no more is wanted of it. */
static void status_answer(struct gf_coordinator *c, uint32_t connection)
{
    struct control_status shown;
    struct gf_put put = {c->scratch, sizeof c->scratch};
    gf_coordinator_status_fill(c, &shown);
    gf_frame_status_walk(&(struct gf_walk){.put = &put}, &shown);
    (void)c->channel->driver->send(c->channel, connection, CONTROL_STATUS_ANSWER, c->scratch,
                                   (uint32_t)(sizeof c->scratch - put.left));
    c->channel->driver->drop(c->channel, connection);
}

static void frame_take(struct gf_coordinator *c, const struct gf_channel_event *event)
{
    struct gf_get get = {.at = event->payload, .left = event->size_bytes};
    uint32_t id = c->connection_ids[event->connection];
    char name[CONTROL_NAME_BYTES];
    if ((event->frame_kind == CONTROL_OFFER) || (event->frame_kind == CONTROL_STATUS_QUERY)) {
        if (id != CONTROL_NONE) return;
        if (event->frame_kind == CONTROL_OFFER)
            gf_coordinator_offer_take(c, event->connection, &get);
        else
            status_answer(c, event->connection);
        return;
    }
    if (id == CONTROL_NONE) { /* a member says first who it is */
        c->channel->driver->drop(c->channel, event->connection);
        return;
    }
    if (word_take(c, id, event->frame_kind, &get)) return;
    gf_log_line(&c->setup.log, GF_LOG_WARN,
                "%s sent a frame that is malformed or comes too early (kind %u, %u bytes): its "
                "connection is "
                "closed",
                gf_coordinator_name(&c->rows[id], name), event->frame_kind, event->size_bytes);
    c->channel->driver->drop(c->channel, event->connection);
    gf_coordinator_lost(c, &c->rows[id]);
}

static void end_take(struct gf_coordinator *c, const struct gf_channel_event *event)
{
    uint32_t id = c->connection_ids[event->connection];
    struct control_row *row;
    char name[CONTROL_NAME_BYTES];
    c->connection_ids[event->connection] = CONTROL_NONE;
    if (id == CONTROL_NONE) return;
    row = &c->rows[id];
    const char *text = (event->text == NULL) ? "" : event->text;
    if (!control_has_ended(row)) {
        row->process_state = (event->end == GF_CHANNEL_RESET)   ? CONTROL_PROCESS_RESET
                             : (event->end == GF_CHANNEL_BROKE) ? CONTROL_PROCESS_LIVES
                                                                : CONTROL_PROCESS_ENDED;
        (void)snprintf(row->how, sizeof row->how, "%.55s", text);
        if ((row->said != CONTROL_SAID_BYE) && !row->closes)
            gf_log_line(&c->setup.log, GF_LOG_INFO,
                        control_has_ended(row) ? "%s has ended: %s"
                                               : "the connection of %s broke: %s",
                        gf_coordinator_name(row, name), text);
    }
    gf_coordinator_lost(c, row);
}

gf_status gf_coordinator_events(struct gf_coordinator *c, bool *more_out)
{
    struct gf_channel_event event;
    *more_out = false;
    for (uint32_t i = 0; i < CONTROL_EVENTS_MAX; i++) {
        if (!c->channel->driver->poll(c->channel, c->polled_ns, &event))
            return c->channel->fault.code;
        GF_ASSERT(event.connection < c->channel->connections_max);
        switch (event.kind) {
        case GF_CHANNEL_CONNECTED: c->connection_ids[event.connection] = CONTROL_NONE; break;
        case GF_CHANNEL_FRAME: frame_take(c, &event); break;
        case GF_CHANNEL_ENDED: end_take(c, &event); break;
        }
    }
    *more_out = true;
    return GF_OK;
}
