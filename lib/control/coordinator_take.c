/* What the coordinator receives: connections, offers and the frames of members. */
#include "lib/control/coordinator_state.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- offers ---- */

/* The end of a connection that is of nobody: it hears why, and may come again. */
__attribute__((format(printf, 5, 6))) static void refuse(struct gf_coordinator *c,
                                                         uint32_t connection, gf_status code,
                                                         bool may_retry, const char *format, ...)
{
    bool has_failed = (c->state == GF_COORDINATOR_OVER) && (c->number == 0) && !c->is_well;
    struct control_refusal refusal = {.code = (uint32_t)code,
                                      .may_retry = may_retry,
                                      .peer = has_failed ? c->error.peer : GF_RANK_NONE};
    struct gf_put put = {c->scratch, sizeof c->scratch};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(refusal.text, sizeof refusal.text, format, arguments);
    va_end(arguments);
    gf_control_refusal_walk(&(struct gf_walk){.put = &put}, &refusal);
    if (!may_retry) { /* else it comes many times a second */
        gf_log_line(&c->setup.log, GF_LOG_WARN, "a process was refused: %s", refusal.text);
        c->channel->refused_count++;
        (void)snprintf(c->channel->refused_text, sizeof c->channel->refused_text, "%.159s",
                       refusal.text);
    }
    (void)c->channel->driver->send(c->channel, connection, CONTROL_REFUSED, c->scratch,
                                   (uint32_t)(sizeof c->scratch - put.left));
    c->channel->driver->drop(c->channel, connection);
}

/* What the others must equal: the lowest id's of those that are of a generation, where there is
 * one, else the lowest id's. */
static const struct control_row *reference_of(const struct gf_coordinator *c)
{
    const struct control_row *reference = NULL;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        if ((row->process == 0) || (!row->waits && !control_is_member(row))) continue;
        if (row->offer.standing.generation != 0) return row;
        if (reference == NULL) reference = row;
    }
    return reference;
}

/* Before a takeover: somebody who is here was of a generation, so the job runs, and what is wrong
 * with a process that is of none ends that one alone. */
static bool job_may_run(const struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        if (c->rows[id].waits && (c->rows[id].offer.standing.generation != 0)) return true;
    return false;
}

/* May this process have the id? False: it was told why not. */
static bool id_is_free(struct gf_coordinator *c, uint32_t connection,
                       const struct control_offer *offer)
{
    struct control_row *row = &c->rows[offer->id];
    bool lives = (row->process != 0) && (row->process != offer->process) && !row->ended;
    bool fresh =
        (row->connection != CONTROL_NONE) || (c->now_ns - row->broke_ns < c->terms.keepalive_ns);
    if (!lives || offer->rejoins || !fresh) return true;
    if (row->refused != offer->process)
        gf_log_line(&c->setup.log, GF_LOG_WARN, "a second process of rank %u is refused",
                    offer->id);
    row->refused = offer->process;
    refuse(c, connection, GF_ERR_STATE, true,
           "rank %u is in use by another process of this job (set GF_REJOIN=1 where that has "
           "ended), or "
           "by another context of this process: each wants a job.id of its own",
           offer->id);
    return false;
}

/* The process before it, if there is one, has ended: its launcher says so, or nothing has been
 * heard of it for long. */
static void row_take(struct gf_coordinator *c, uint32_t connection,
                     const struct control_offer *offer)
{
    struct control_row *row = &c->rows[offer->id];
    if ((row->connection != CONTROL_NONE) && (row->connection != connection)) {
        c->connection_ids[row->connection] = CONTROL_NONE;
        c->channel->driver->drop(c->channel, row->connection);
    }
    if (row->process != offer->process) {
        if ((row->process != 0) && !row->ended)
            (void)snprintf(row->how, sizeof row->how, "another process has come in its place");
        row->ended = row->waits = row->closes = row->has_heard = false;
        row->answered = 0;
        row->listed = 0; /* another process was on the list */
        if (!row->member) row->said = CONTROL_SAID_NOTHING;
    }
    if (row->is_presumed) row->ended = false;
    row->is_reset = row->is_presumed = false;
    /* What it had said to the coordinator before this one; READY it says again. */
    if (c->number == 0) {
        bool works = (offer->standing.said == CONTROL_SAID_NOTHING);
        bool bye = (offer->standing.said == CONTROL_SAID_BYE);
        row->said = works ? CONTROL_SAID_NOTHING : bye ? CONTROL_SAID_BYE : CONTROL_SAID_FAULT;
    }
    row->process = offer->process;
    row->connection = connection;
    row->offer = *offer;
    row->owed = 0;
    row->heard_ns = row->back_ns = c->now_ns;
    row->go_rank = row->go_at = 0;
    c->connection_ids[connection] = offer->id;
}

/* The coordinator repeats its last word. */
static void word_repeat(struct gf_coordinator *c, struct control_row *row)
{
    gf_log_line(&c->setup.log, GF_LOG_INFO, "rank %u is connected again", row->offer.id);
    if (gf_control_patience_left(&c->patience, c->now_ns) > 0)
        gf_control_owe(row, CONTROL_PATIENCE);
    if (c->closed.rank != GF_RANK_NONE) gf_control_owe(row, CONTROL_CLOSED);
    if (c->state == GF_COORDINATOR_OVER) {
        gf_control_owe(row, (c->is_well && (row->said == CONTROL_SAID_BYE)) ? CONTROL_ALL_GONE
                                                                            : CONTROL_ERROR);
        return;
    }
    if (row->offer.standing.generation < c->number)
        gf_control_owe(row, CONTROL_GO); /* it was on the way */
    if (control_is_listed(c, row)) {
        row->endpoint_for = 0;
        gf_control_owe(row, CONTROL_LIST);
    } else if ((c->error.code != GF_OK) && ((row->said < CONTROL_SAID_READY) || row->cut)) {
        gf_control_owe(row, CONTROL_ERROR);
    } else if (c->state == GF_COORDINATOR_INQUIRE) {
        gf_control_owe(row, CONTROL_ASK);
    }
    gf_control_owe(row, CONTROL_WAITING);
}

/* The lower rank is named first, whoever came first. */
static bool has_difference(const struct control_row *reference, const struct control_row *row,
                           char *text_out, size_t bytes)
{
    if (!gf_offer_difference(&reference->offer, &row->offer, text_out, bytes)) return false;
    if (row->offer.id < reference->offer.id)
        (void)gf_offer_difference(&row->offer, &reference->offer, text_out, bytes);
    return true;
}

/* A process that was given other things than the job which runs: it is refused. */
static void newcomer_refuse(struct gf_coordinator *c, struct control_row *row, const char *text)
{
    uint32_t connection = row->connection;
    if (connection != CONTROL_NONE) c->connection_ids[connection] = CONTROL_NONE;
    row->connection = CONTROL_NONE;
    row->process = 0;
    row->waits = false;
    if (connection != CONTROL_NONE) refuse(c, connection, GF_ERR_MISMATCH, false, "%s", text);
}

/* The first process here that is of a generation: what those that came before it were given is
 * compared with this one's. */
static void newcomers_look(struct gf_coordinator *c, const struct control_row *first)
{
    char text[240];
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (!row->waits || (row->offer.standing.generation != 0)) continue;
        if (has_difference(first, row, text, sizeof text)) newcomer_refuse(c, row, text);
    }
    c->terms = first->offer.terms;
}

/* A process that is of no generation here: it waits, if it was given what the others were. */
static void waits_take(struct gf_coordinator *c, struct control_row *row)
{
    char text[240];
    bool is_new = (row->offer.standing.generation == 0);
    if ((c->number == 0) && !is_new && !job_may_run(c)) newcomers_look(c, row);
    const struct control_row *reference = reference_of(c);
    if (row->banned == row->process) {
        row->waits = false;
        gf_control_owe(row, CONTROL_ERROR);
        return;
    }
    if ((reference != NULL) && (reference != row) &&
        has_difference(reference, row, text, sizeof text)) {
        if ((c->number != 0) || (is_new && job_may_run(c))) {
            newcomer_refuse(c, row, text);
            return;
        }
        struct gf_error error = gf_coordinator_error(c, GF_ERR_MISMATCH, row->offer.id);
        error.operation = GF_OPERATION_JOIN;
        (void)snprintf(error.text, sizeof error.text, "%s", text);
        row->waits = true; /* it hears it, too */
        gf_control_decide(c, &error, true);
        return;
    }
    if (reference == NULL) {
        c->terms = row->offer.terms;
        /* The others have as long as this one from here on. */
        if (c->number == 0) c->since_ns = c->now_ns;
    }
    if (!row->waits)
        gf_log_line(&c->setup.log, GF_LOG_INFO,
                    (c->number == 0) ? "rank %u is here" : "rank %u waits to come in",
                    row->offer.id);
    row->waits = true;
    gf_control_owe(row, CONTROL_WAITING); /* it has reached the coordinator */
    if (control_is_listed(c, row)) {
        row->endpoint_for = 0; /* its connection broke after LIST */
        gf_control_owe(row, CONTROL_LIST);
    }
}

/* ---- a coordinator begun anew takes a generation over ---- */

/* A process of another generation than the one under way waits once it is READY: it may still work,
 * and hears that it was left out. */
static void left_out_tell(struct control_row *row)
{
    if (control_is_member(row) || (row->offer.standing.generation == 0)) return;
    row->waits = false;
    gf_control_owe(row, CONTROL_ERROR);
}

/* Is each process of the generation of this standing connected, and says the same? Then rank_ids[]
 * has them. */
static bool is_complete(struct gf_coordinator *c, const struct control_standing *of)
{
    uint32_t here = 0;
    uint64_t list = CONTROL_LIST_START;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        const struct control_standing *standing = &row->offer.standing;
        /* Who has said so to this coordinator and then ended has begun no later generation. */
        bool is_known = (row->connection != CONTROL_NONE) || row->ended;
        if (!is_known || (standing->generation != of->generation)) continue;
        if ((standing->list != of->list) || (standing->rank != here)) continue;
        c->rank_ids[here++] = id;
        list = gf_control_list_hash(list, id, row->process);
    }
    return (here == of->world) && (list == of->list);
}

/* Somebody is READY after a failure that the others may not have heard of: another coordinator had
 * told it, or it is the first to be here again. */
static void failure_look(struct gf_coordinator *c)
{
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!control_is_member(row) || (row->said != CONTROL_SAID_READY) || row->planned) continue;
        struct gf_error error = gf_coordinator_error(c, GF_ERR_PEER, GF_RANK_NONE);
        (void)snprintf(error.text, sizeof error.text, "rank %u begins a regroup after a failure",
                       row->rank);
        gf_control_decide(c, &error, false);
        return;
    }
}

/* The others hear who has closed; a step that it did not end can't end. */
static void closed_tell(struct gf_coordinator *c, const struct control_row *row)
{
    if ((c->closed.rank != GF_RANK_NONE) && (c->closed.step <= row->report.step)) return;
    c->closed = (struct control_closed){.rank = row->rank, .step = row->report.step};
    gf_control_owe_members(c, CONTROL_CLOSED);
}

static void take_over(struct gf_coordinator *c, const struct control_standing *of)
{
    c->number = of->generation;
    c->world = of->world;
    c->list = of->list;
    c->go = (struct control_go){.number = c->number, .list = c->list};
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        row->member = true;
        row->waits = false;
        row->member_process = row->process;
        row->rank = rank;
    }
    gf_log_line(&c->setup.log, GF_LOG_INFO, "generation %u of %u ranks was taken over", c->number,
                c->world);
    gf_control_enter(c, GF_COORDINATOR_RUN);
    failure_look(c);
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        if (c->rows[id].said != CONTROL_SAID_READY) left_out_tell(&c->rows[id]); /* else it waits */
    if (c->is_fault_pending && (c->state == GF_COORDINATOR_RUN) && (c->seen_by < c->world))
        gf_control_inquire(c, c->seen_by, &c->seen);
    /* Who had closed before said so to this coordinator, which could not tell it yet. */
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (control_is_member(row) && row->closes) closed_tell(c, row);
    }
}

/* With this offer, is its generation whole? A process that names a later one was let into it, and
 * no member of this one was: it has no weights of its own yet, so it comes in as one that waits. */
static void takeover_look(struct gf_coordinator *c, const struct control_row *row)
{
    const struct control_standing standing = row->offer.standing;
    if ((standing.generation != 0) && is_complete(c, &standing)) take_over(c, &standing);
}

/* Who comes too late hears what the others did. */
static void over_tell(struct gf_coordinator *c, uint32_t connection)
{
    bool joins = (c->number == 0) && (c->error.code < 0);
    if (c->is_well || (c->error.text[0] == '\0'))
        refuse(c, connection, GF_ERR_STATE, false, "the job has ended");
    else
        refuse(c, connection, joins ? c->error.code : GF_ERR_STATE, false, "%s%.200s",
               joins ? "" : "the job has ended: ", c->error.text);
}

/* Where a process says that it stands comes from the network. */
static bool standing_is_possible(const struct gf_coordinator *c,
                                 const struct control_standing *standing)
{
    if ((standing->generation > CONTROL_NUMBER_MAX) || (standing->listed > CONTROL_NUMBER_MAX))
        return false;
    return (standing->generation == 0) ||
           ((standing->world <= c->setup.id_count) && (standing->rank < standing->world));
}

/* So do the times that it was given: no sum of some of them passes the end of a clock. */
static bool terms_are_possible(const struct control_terms *terms)
{
    return (terms->join_timeout_ns <= CONTROL_TIME_NS_MAX) &&
           (terms->keepalive_ns <= CONTROL_TIME_NS_MAX) &&
           (terms->exchange_timeout_ns <= CONTROL_TIME_NS_MAX);
}

/* Of a job of this size? False: it was told why not. */
static bool size_is_equal(struct gf_coordinator *c, uint32_t connection,
                          const struct control_offer *offer)
{
    bool fits = (offer->id < c->setup.id_count) && (offer->id_count == c->setup.id_count);
    if (offer->first_world != c->setup.world)
        refuse(c, connection, GF_ERR_MISMATCH, false,
               "rank %u has job.world %u, the coordinator of this job has %u", offer->id,
               offer->first_world, c->setup.world);
    else if (!fits)
        refuse(c, connection, GF_ERR_MISMATCH, false,
               "rank %u of job.world_max %u: this job has ranks below %u", offer->id,
               offer->id_count, c->setup.id_count);
    return fits && (offer->first_world == c->setup.world);
}

/* May it be connected? False: it was told why not. Once the job has ended, its members may. */
static bool may_come(struct gf_coordinator *c, uint32_t connection,
                     const struct control_offer *offer)
{
    struct control_row *row = &c->rows[offer->id];
    if (c->state != GF_COORDINATOR_OVER) return id_is_free(c, connection, offer);
    if (row->member && (row->member_process == offer->process)) return true;
    over_tell(c, connection);
    if (c->number == 0) row->has_heard = true;
    return false;
}

static void offer_take(struct gf_coordinator *c, uint32_t connection, struct gf_get *get)
{
    struct control_offer offer = {0};
    gf_control_offer_walk(&(struct gf_walk){.get = get}, &offer);
    if (get->bad || !standing_is_possible(c, &offer.standing) ||
        !terms_are_possible(&offer.terms)) {
        refuse(c, connection, GF_ERR_MISMATCH, false,
               "a process offered itself with values that no rank of this job can have: is it of "
               "another version of the library?");
        return;
    }
    if (!size_is_equal(c, connection, &offer)) return;
    /* No number is given twice: a list that another coordinator had told is known to some member of
     * the generation that this one goes on with, since each list has one. */
    if (offer.standing.listed > c->used) c->used = offer.standing.listed;
    if (!may_come(c, connection, &offer)) return;
    struct control_row *row = &c->rows[offer.id];
    row_take(c, connection, &offer);
    if (c->number == 0) {
        waits_take(c, row);
        if (c->state == GF_COORDINATOR_GATHER) takeover_look(c, row);
    } else if (control_is_member(row)) {
        word_repeat(c, row);
    } else {
        waits_take(c, row);
        left_out_tell(row);
    }
}

/* ---- the words of a member ---- */

/* Pieces of an endpoint; false: malformed. */
static bool endpoint_take(struct gf_coordinator *c, uint32_t id, struct gf_get *get)
{
    struct control_row *row = &c->rows[id];
    unsigned char *to = control_endpoint(c, true, id);
    while (get->left > 0) {
        struct control_piece piece = {0};
        gf_control_piece_walk(&(struct gf_walk){.get = get}, &piece);
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
    gf_control_report_walk(&(struct gf_walk){.get = get}, &report);
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
    if (c->number == 0) return true;
    row->heard_report_ns = (c->now_ns > 0) ? c->now_ns : 1;
    /* Nobody is awaited for longer than one that says nothing. */
    uint64_t timeout_ns = c->terms.exchange_timeout_ns;
    row->patience_ns =
        c->now_ns + ((report.patience_ns < timeout_ns) ? report.patience_ns : timeout_ns);
    if (gf_control_patience_take(&c->patience, c->now_ns, timeout_ns, report.patience_ns,
                                 report.patience_from))
        gf_control_owe_members(c, CONTROL_PATIENCE);
    if (!keeps) gf_calls_compare(c, row);
    return true;
}

/* What ends a rank: the others hear that it gave up, and why. What the vote has told all ranks is
 * the same on each. */
static void gave_up_tell(struct gf_coordinator *c, struct control_row *row,
                         const struct gf_error *seen)
{
    struct gf_error error = *seen;
    bool joins = (c->number == 0) && (row->offer.standing.generation == 0);
    uint32_t rank = joins ? row->offer.id : row->rank;
    if (error.code != GF_ERR_NUMERIC) {
        error.code = GF_ERR_PEER;
        error.peer = rank;
        (void)snprintf(error.text, sizeof error.text, "rank %u gave up: %.230s", rank, seen->text);
    }
    gf_control_decide(c, &error, joins || !control_may_be_cut(c, row->offer.id));
}

static bool fault_take(struct gf_coordinator *c, struct control_row *row, struct gf_get *get)
{
    struct control_fault fault = {0};
    gf_control_fault_walk(&(struct gf_walk){.get = get}, &fault);
    if (get->bad) return false;
    if (row->said < CONTROL_SAID_FAULT) row->said = CONTROL_SAID_FAULT;
    row->report.edges = fault.edges;
    if (fault.ends) {
        row->ended = row->gives_up = true; /* for its generation it is as one that has ended */
        (void)snprintf(row->how, sizeof row->how, "%.55s", fault.error.text);
        bool is_new = (c->number == 0) && (row->offer.standing.generation == 0);
        bool joins = is_new && !job_may_run(c);
        bool works = (c->state == GF_COORDINATOR_RUN) || (c->state == GF_COORDINATOR_INQUIRE);
        gf_control_owe(row, CONTROL_ERROR);
        if (is_new && !joins) row->waits = false;
        if (!works && (!joins || (c->state != GF_COORDINATOR_GATHER))) return true;
        row->cut = true;
        gave_up_tell(c, row, &fault.error);
        return true;
    }
    if (c->number == 0) { /* looked at once the generation is taken over */
        c->seen = fault.error;
        c->seen_by = row->offer.standing.rank;
        c->is_fault_pending = true;
        return true;
    }
    bool is_known = (c->state == GF_COORDINATOR_REGROUP) && (c->error.code != GF_OK);
    /* A list is out, and it is not on it: so it hears at once. */
    if (c->state == GF_COORDINATOR_GATHER) gf_control_owe(row, CONTROL_ERROR);
    if ((c->state == GF_COORDINATOR_OVER) || (c->state == GF_COORDINATOR_GATHER)) return true;
    if (!is_known) gf_control_inquire(c, row->rank, &fault.error);
    return true;
}

static bool ready_take(struct gf_coordinator *c, struct control_row *row, struct gf_get *get)
{
    struct control_ready ready = {0};
    gf_control_ready_walk(&(struct gf_walk){.get = get}, &ready);
    if (get->bad) return false;
    if ((row->said == CONTROL_SAID_BYE) || row->cut) return true;
    row->said = CONTROL_SAID_READY;
    row->planned = ready.planned;
    row->leaves = ready.leaves && control_may_be_cut(c, row->offer.id);
    row->progress = ready.progress;
    /* An inquiry waits for no answer of it; a planned regroup begins with the first READY. */
    row->answered = c->inquiry;
    if (!ready.planned && (c->state == GF_COORDINATOR_RUN)) failure_look(c);
    return true;
}

static bool bye_take(struct gf_coordinator *c, struct control_row *row, struct gf_get *get)
{
    uint64_t step = gf_get_u64_bytes(get, 8);
    if (get->bad) return false;
    row->said = CONTROL_SAID_BYE;
    row->report.step = step;
    row->closes = true;
    gf_log_line(&c->setup.log, GF_LOG_INFO, "rank %u has closed after %llu steps", row->offer.id,
                (unsigned long long)step);
    if (c->number != 0) closed_tell(c, row);
    if ((c->number != 0) || (row->offer.standing.generation != 0)) return true;
    row->ended = true; /* it joins no more */
    row->waits = false;
    row->said = CONTROL_SAID_NOTHING;
    gf_control_owe(row, CONTROL_ALL_GONE);
    return true;
}

/* A word of a generation that has ended, of a process that is of none: it hears so, and waits once
 * it is READY. False: malformed. */
static bool stranger_take(struct gf_coordinator *c, struct control_row *row, uint32_t kind,
                          struct gf_get *get)
{
    struct control_ready ready = {0};
    if (kind == CONTROL_READY) gf_control_ready_walk(&(struct gf_walk){.get = get}, &ready);
    if (get->bad) return false;
    bool goes = (kind == CONTROL_BYE) || ((kind == CONTROL_READY) && ready.leaves);
    if (goes && !control_may_be_cut(c, row->offer.id)) { /* the host waits for all others */
        row->waits = false;
        row->said = CONTROL_SAID_BYE;
    } else if (goes) {
        row->waits = false;
        gf_control_owe(row, CONTROL_ALL_GONE);
    } else if (row->waits) {
        return true;
    } else if (kind == CONTROL_READY)
        waits_take(c, row);
    else if ((kind == CONTROL_FAULT) || (kind == CONTROL_STATUS))
        gf_control_owe(row, CONTROL_ERROR);
    return true;
}

/* False: malformed, or it cannot come now. */
static bool word_take(struct gf_coordinator *c, uint32_t id, uint32_t kind, struct gf_get *get)
{
    struct control_row *row = &c->rows[id];
    uint32_t number = gf_get_u32(get);
    row->heard_ns = c->now_ns;
    if (kind == CONTROL_ENDPOINT) {
        bool is_due = control_is_listed(c, row) && (number == c->next);
        return !is_due || endpoint_take(c, id, get);
    }
    if ((c->number != 0) && !control_is_member(row)) return stranger_take(c, row, kind, get);
    if ((c->number != 0) && (number != c->number)) return number < c->number; /* before GO */
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
static void look_answer(struct gf_coordinator *c, uint32_t connection)
{
    struct control_shown shown;
    struct gf_put put = {c->scratch, sizeof c->scratch};
    gf_control_shown(c, &shown);
    gf_control_shown_walk(&(struct gf_walk){.put = &put}, &shown);
    (void)c->channel->driver->send(c->channel, connection, CONTROL_SHOWN, c->scratch,
                                   (uint32_t)(sizeof c->scratch - put.left));
    c->channel->driver->drop(c->channel, connection);
}

static void frame_take(struct gf_coordinator *c, const struct gf_channel_event *event)
{
    struct gf_get get = {.at = event->payload, .left = event->size_bytes};
    uint32_t id = c->connection_ids[event->connection];
    if ((event->frame_kind == CONTROL_OFFER) || (event->frame_kind == CONTROL_LOOK)) {
        if (id != CONTROL_NONE) return;
        if (event->frame_kind == CONTROL_OFFER)
            offer_take(c, event->connection, &get);
        else
            look_answer(c, event->connection);
        return;
    }
    if (id == CONTROL_NONE) { /* a member says first who it is */
        c->channel->driver->drop(c->channel, event->connection);
        return;
    }
    if (word_take(c, id, event->frame_kind, &get)) return;
    gf_log_line(
        &c->setup.log, GF_LOG_WARN,
        "rank %u sent a frame that is malformed (kind %u, %u bytes): its connection is closed", id,
        event->frame_kind, event->size_bytes);
    c->channel->driver->drop(c->channel, event->connection);
    gf_control_lost(c, &c->rows[id]);
}

static void end_take(struct gf_coordinator *c, const struct gf_channel_event *event)
{
    uint32_t id = c->connection_ids[event->connection];
    struct control_row *row;
    c->connection_ids[event->connection] = CONTROL_NONE;
    if (id == CONTROL_NONE) return;
    row = &c->rows[id];
    const char *text = (event->text == NULL) ? "" : event->text;
    if (!row->ended) {
        row->is_reset = (event->end == GF_CHANNEL_RESET);
        row->ended = !row->is_reset && (event->end != GF_CHANNEL_BROKE);
        (void)snprintf(row->how, sizeof row->how, "%.55s", text);
        if ((row->said != CONTROL_SAID_BYE) && !row->closes)
            gf_log_line(&c->setup.log, GF_LOG_INFO,
                        row->ended ? "rank %u has ended: %s"
                                   : "the connection of rank %u broke: %s",
                        row->offer.id, text);
    }
    gf_control_lost(c, row);
}

gf_status gf_control_events(struct gf_coordinator *c, bool *more_out)
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
