/* Offers: a process shows itself to the coordinator, which refuses it, lets it wait, or repeats its
 * last word to a member that has dialled again. */
#include "lib/control/coordinator_state.h"

#include <stdarg.h>
#include <stdio.h>

/* The end of a connection that is of nobody: it hears why, and may come again. */
__attribute__((format(printf, 5, 6))) static void refuse(struct gf_coordinator *c,
                                                         uint32_t connection, gf_status code,
                                                         bool may_retry, const char *format, ...)
{
    bool has_failed = (c->state == GF_COORDINATOR_OVER) && !control_has_begun(c) && !c->is_well;
    struct control_refusal refusal = {.code = (uint32_t)code,
                                      .may_retry = may_retry,
                                      .peer = has_failed              ? c->error.peer
                                              : (code == GF_ERR_PEER) ? c->setup.host_id
                                                                      : GF_RANK_NONE};
    struct gf_put put = {c->scratch, sizeof c->scratch};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(refusal.text, sizeof refusal.text, format, arguments);
    va_end(arguments);
    gf_frame_refusal_walk(&(struct gf_walk){.put = &put}, &refusal);
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

/* May this process have the id? False: it was told why not. */
static bool id_is_free(struct gf_coordinator *c, uint32_t connection,
                       const struct control_offer *offer)
{
    struct control_row *row = &c->rows[offer->id];
    bool lives = (row->process != 0) && (row->process != offer->process) && !control_has_ended(row);
    bool fresh =
        (row->connection != CONTROL_NONE) || (c->now_ns - row->broke_ns < c->terms.keepalive_ns);
    if (!lives || offer->rejoins || !fresh) return true;
    if (row->refused != offer->process)
        gf_log_line(&c->setup.log, GF_LOG_WARN, "a second process of member %u is refused",
                    offer->id);
    row->refused = offer->process;
    refuse(c, connection, GF_ERR_STATE, true,
           "rank %u is in use by another process of this job (set GF_REJOIN=1 where that has "
           "ended), or "
           "by another context of this process: each wants a job.id of its own",
           offer->id);
    return false;
}

/* Before a takeover: what a process had said to the coordinator before this one; READY it says
 * again. One that is of no generation, or of an earlier one than a process of its id which has
 * ended, leaves what is known of that. */
static void standing_take(struct control_row *row, const struct control_offer *offer)
{
    bool works = (offer->standing.said == CONTROL_SAID_NOTHING);
    bool bye = (offer->standing.said == CONTROL_SAID_BYE);
    if (offer->standing.generation < row->stood.generation) return;
    if (row->member_process != offer->process) row->closes = row->gives_up = false;
    row->failed = 0; /* it says so again */
    row->member_process = offer->process;
    row->stood = offer->standing;
    row->said = works ? CONTROL_SAID_NOTHING : bye ? CONTROL_SAID_BYE : CONTROL_SAID_FAULT;
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
        if ((row->process != 0) && !control_has_ended(row))
            (void)snprintf(row->how, sizeof row->how, "another process has come in its place");
        row->process_state = CONTROL_PROCESS_LIVES;
        row->waits = row->has_heard = false;
        row->answered = 0;
        row->listed = 0; /* another process was on the list */
        if (control_has_begun(c)) row->closes = false;
        if (control_has_begun(c) && !row->member) row->said = CONTROL_SAID_NOTHING;
    }
    if (row->process_state != CONTROL_PROCESS_ENDED) row->process_state = CONTROL_PROCESS_LIVES;
    if (!control_has_begun(c)) standing_take(row, offer);
    row->process = offer->process;
    row->connection = connection;
    row->offer = *offer;
    row->pending = 0;
    gf_coordinator_hear(c, row);
    row->back_ns = c->now_ns;
    row->go_rank = row->go_at = 0;
    c->connection_ids[connection] = offer->id;
    /* Who says BYE goes once it has lost the coordinator, and BYE itself may be lost with it. */
    uint32_t number = control_has_begun(c) ? c->number : row->stood.generation;
    bool is_of_this =
        control_is_same(c, row) && (number != 0) && (offer->standing.generation == number);
    if (is_of_this && (offer->standing.said == CONTROL_SAID_BYE))
        gf_coordinator_bye_hear(c, row, offer->standing.closed_step);
}

/* The coordinator repeats its last word. */
static void word_repeat(struct gf_coordinator *c, struct control_row *row)
{
    char name[CONTROL_NAME_BYTES];
    gf_log_line(&c->setup.log, GF_LOG_INFO, "%s is connected again",
                gf_coordinator_name(row, name));
    if (gf_patience_left(&c->patience, c->now_ns) > 0) gf_coordinator_post(row, CONTROL_PATIENCE);
    if (c->closed.rank != GF_RANK_NONE) gf_coordinator_post(row, CONTROL_CLOSED);
    if (c->state == GF_COORDINATOR_OVER) {
        gf_coordinator_post(row, (c->is_well && (row->said == CONTROL_SAID_BYE)) ? CONTROL_ALL_GONE
                                                                                 : CONTROL_ERROR);
        return;
    }
    if (row->offer.standing.generation < c->number)
        gf_coordinator_post(row, CONTROL_GO); /* it was on the way */
    if (control_is_listed(c, row)) {
        row->endpoint_for = 0;
        gf_coordinator_post(row, CONTROL_LIST);
    } else if ((c->error.code != GF_OK) && ((row->said < CONTROL_SAID_READY) || row->cut)) {
        gf_coordinator_post(row, CONTROL_ERROR);
    } else if (c->state == GF_COORDINATOR_INQUIRE) {
        gf_coordinator_post(row, CONTROL_ASK);
    }
    gf_coordinator_post(row, CONTROL_WAITING);
}

/* The lower rank is named first, whoever came first. */
static bool has_difference(const struct control_row *reference, const struct control_row *row,
                           char *text_out, size_t bytes)
{
    if (!gf_coordinator_offer_difference(&reference->offer, &row->offer, text_out, bytes))
        return false;
    if (row->offer.id < reference->offer.id)
        (void)gf_coordinator_offer_difference(&row->offer, &reference->offer, text_out, bytes);
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
static void newcomers_compare(struct gf_coordinator *c, const struct control_row *first)
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
void gf_coordinator_waits_take(struct gf_coordinator *c, struct control_row *row)
{
    char text[240];
    bool is_new = (row->offer.standing.generation == 0);
    if (!control_has_begun(c) && !is_new && !gf_coordinator_job_may_run(c))
        newcomers_compare(c, row);
    const struct control_row *reference = reference_of(c);
    if (row->banned == row->process) {
        row->waits = false;
        gf_coordinator_post(row, CONTROL_ERROR);
        return;
    }
    if ((reference != NULL) && (reference != row) &&
        has_difference(reference, row, text, sizeof text)) {
        if (control_has_begun(c) || (is_new && gf_coordinator_job_may_run(c))) {
            newcomer_refuse(c, row, text);
            return;
        }
        struct gf_error error = gf_coordinator_error(c, GF_ERR_MISMATCH, row->offer.id);
        error.operation = GF_OPERATION_JOIN;
        (void)snprintf(error.text, sizeof error.text, "%s", text);
        row->waits = true; /* it hears it, too */
        gf_coordinator_decide(c, &error, true);
        return;
    }
    if (reference == NULL) {
        c->terms = row->offer.terms;
        /* The others have as long as this one from here on. */
        if (!control_has_begun(c)) c->since_ns = c->now_ns;
    }
    if (!row->waits)
        gf_log_line(&c->setup.log, GF_LOG_INFO,
                    !control_has_begun(c) ? "member %u is here" : "member %u waits to come in",
                    row->offer.id);
    row->waits = true;
    gf_coordinator_post(row, CONTROL_WAITING); /* it has reached the coordinator */
    if (control_is_listed(c, row)) {
        row->endpoint_for = 0; /* its connection broke after LIST */
        gf_coordinator_post(row, CONTROL_LIST);
    }
}

/* ---- which offers are taken ---- */

/* Who comes too late hears what the others did. */
static void over_tell(struct gf_coordinator *c, uint32_t connection)
{
    bool joins = !control_has_begun(c) && (c->error.code < 0);
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
    /* The generation of this process had a member in the process that has ended. */
    bool is_lost = (c->setup.host_id != GF_RANK_NONE) && !control_has_begun(c) &&
                   (c->state != GF_COORDINATOR_OVER) && (offer->standing.generation != 0);
    if (is_lost)
        refuse(c, connection, GF_ERR_PEER, false,
               "rank %u, in whose process the coordinator ran, has ended and was begun anew: begin "
               "the job anew from its checkpoint",
               c->setup.host_id);
    if (is_lost) return false;
    if (c->state != GF_COORDINATOR_OVER) return id_is_free(c, connection, offer);
    if (row->member && (row->member_process == offer->process)) return true;
    over_tell(c, connection);
    if (!control_has_begun(c)) row->has_heard = true;
    return false;
}

void gf_coordinator_offer_take(struct gf_coordinator *c, uint32_t connection, struct gf_get *get)
{
    struct control_offer offer = {0};
    gf_frame_offer_walk(&(struct gf_walk){.get = get}, &offer);
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
    if (!control_has_begun(c)) {
        gf_coordinator_waits_take(c, row); /* the poll looks whether a generation is whole now */
    } else if (control_is_member(row)) {
        word_repeat(c, row);
    } else {
        gf_coordinator_waits_take(c, row);
        gf_coordinator_left_out_tell(row);
    }
}
