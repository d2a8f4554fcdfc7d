/* The coordinator's states. What comes in with an offer is in coordinator_take.c, whose fault a
 * failure is in inquiry.c, what goes out in coordinator_send.c.
 *
 *     GATHER  -> RUN      all endpoints are here, or a generation was taken over
 *     RUN     -> INQUIRE  a member says FAULT
 *     RUN     -> REGROUP  a process has ended, or a regroup is planned: somebody waits or leaves
 *     INQUIRE -> REGROUP  a process has ended, or there is a finding
 *     REGROUP -> INQUIRE  a member says FAULT in a planned one
 *     REGROUP -> GATHER   the next list is made
 *     any     -> OVER     all have closed, or a finding is final: always, where the job is not
 *                         elastic */
#include "lib/control/coordinator_state.h"

#include "drivers/link.h"

#include <stdio.h>

static const char *const state_names[] = {[GF_COORDINATOR_GATHER] = "gathers",
                                          [GF_COORDINATOR_RUN] = "runs",
                                          [GF_COORDINATOR_INQUIRE] = "inquires",
                                          [GF_COORDINATOR_REGROUP] = "regroups",
                                          [GF_COORDINATOR_OVER] = "is over"};

/* ---- small questions ---- */

static uint32_t member_count(const struct gf_coordinator *c)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < c->setup.id_count; id++) count += c->rows[id].member ? 1u : 0u;
    return count;
}

/* Ready for the next generation, or waiting for it. Who is on the list that is out stays on it
 * while its connection is dialled again. */
static bool may_be_listed(const struct gf_coordinator *c, const struct control_row *row)
{
    if (row->ended || ((row->connection == CONTROL_NONE) && !control_is_listed(c, row)))
        return false;
    /* The first list has the ranks that the job begins with. */
    if ((c->number == 0) && (row->offer.id >= c->setup.world)) return false;
    if (row->waits) return true;
    return control_is_member(row) && (row->said == CONTROL_SAID_READY) && !row->leaves &&
           !row->cut && !row->out;
}

void gf_control_lost(struct gf_coordinator *c, struct control_row *row)
{
    if (row->connection != CONTROL_NONE) c->connection_ids[row->connection] = CONTROL_NONE;
    row->connection = CONTROL_NONE;
    row->owed = 0;
    row->broke_ns = c->now_ns;
    if (row->waits) row->waits = !row->ended && control_is_listed(c, row);
}

uint32_t gf_control_joiner_count(const struct gf_coordinator *c)
{
    uint32_t count = 0;
    if (c->number == 0) return 0; /* they wait for the first generation, or for a takeover */
    for (uint32_t id = 0; id < c->setup.id_count; id++) count += c->rows[id].waits ? 1u : 0u;
    return count;
}

void gf_control_enter(struct gf_coordinator *c, gf_coordinator_state state)
{
    if ((c->state != state) && (c->number != 0))
        gf_log_line(&c->setup.log, GF_LOG_DEBUG, "the coordinator of generation %u %s", c->number,
                    state_names[state]);
    if (c->state == GF_COORDINATOR_RUN) c->left_ns = c->now_ns;
    if (c->state != state) c->since_ns = c->now_ns;
    c->state = state;
}

/* ---- a finding ---- */

struct gf_error gf_coordinator_error(const struct gf_coordinator *c, gf_status code, uint32_t peer)
{
    uint64_t step = 0;
    for (uint32_t rank = 0; rank < c->world; rank++)
        if (c->rows[c->rank_ids[rank]].report.step > step)
            step = c->rows[c->rank_ids[rank]].report.step;
    return (struct gf_error){.code = code,
                             .peer = peer,
                             .step = step,
                             .operation = GF_OPERATION_NONE,
                             .tensor = GF_TENSOR_NONE};
}

void gf_control_decide(struct gf_coordinator *c, const struct gf_error *error, bool is_final)
{
    bool is_first = (c->error.code == GF_OK); /* of this generation */
    c->error = *error;
    if (!c->is_well) c->last = *error;
    c->is_final = is_final || !c->terms.elastic;
    gf_log_line(&c->setup.log, c->is_well ? GF_LOG_INFO : GF_LOG_WARN,
                "coordinator, generation %u: %s", c->number, error->text);
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        row->owed &= ~(1u << CONTROL_ASK);
        row->has_heard = false; /* of this finding */
        if ((row->connection == CONTROL_NONE) || (!control_is_member(row) && !c->is_final))
            continue;
        if ((row->said >= CONTROL_SAID_READY) && !row->cut && !c->is_final) continue;
        gf_control_owe(row, CONTROL_ERROR);
    }
    gf_control_enter(c, c->is_final ? GF_COORDINATOR_OVER : GF_COORDINATOR_REGROUP);
    /* In a planned regroup nobody knew of a failure. What fails after the first one gives nobody
     * more time: else deaths, one after the other, would keep all waiting for one that is
     * stopped. */
    if (is_first) c->since_ns = c->now_ns;
}

static void end(struct gf_coordinator *c, gf_status code, uint32_t rank, const char *text)
{
    struct gf_error error = gf_coordinator_error(c, code, rank);
    error.operation = GF_OPERATION_JOIN;
    (void)snprintf(error.text, sizeof error.text, "%s", text);
    gf_control_decide(c, &error, true);
}

/* Each member that lives has closed in good order. */
static bool all_gone_look(struct gf_coordinator *c)
{
    uint32_t byes = 0;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        byes += (row->member && (row->said == CONTROL_SAID_BYE)) ? 1u : 0u;
        bool is_gone = (row->said == CONTROL_SAID_BYE) || control_has_died(row) || row->cut;
        if (row->member && !is_gone) return false;
    }
    if (byes == 0) return false;
    c->is_well = true;
    end(c, GF_ERR_STATE, GF_RANK_NONE, "the job has ended");
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        bool is_other = row->member && !control_is_member(row); /* of that id, after it */
        if ((row->said != CONTROL_SAID_BYE) || is_other) continue;
        row->owed = 0;
        if (row->connection != CONTROL_NONE) gf_control_owe(row, CONTROL_ALL_GONE);
    }
    return true;
}

/* ---- the list of the next generation ---- */

/* What those that may be listed have: one of them must hold whole weights, which those that wait
 * are given. */
typedef enum holding { HOLDS_NOBODY, HOLDS_NOTHING, HOLDS_WEIGHTS } holding;

static holding holding_of(const struct gf_coordinator *c)
{
    holding holds = HOLDS_NOBODY;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        if (row->waits || !may_be_listed(c, row)) continue;
        if (row->progress.partial == 0) return HOLDS_WEIGHTS;
        holds = HOLDS_NOTHING;
    }
    return holds;
}

/* A member that could still become one of them. */
static bool is_anybody_missed(const struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        if (control_is_member(row) && !row->ended && !row->cut && !row->leaves &&
            (row->said != CONTROL_SAID_BYE) && !may_be_listed(c, row))
            return true;
    }
    return false;
}

/* False: the generation cannot go on with those that are here. Others are awaited, or this has
 * ended the job. */
static bool end_unless_enough(struct gf_coordinator *c)
{
    holding holds = (c->number == 0) ? HOLDS_WEIGHTS : holding_of(c);
    if (holds == HOLDS_WEIGHTS) return true;
    if (is_anybody_missed(c) && (c->now_ns - c->left_ns < c->terms.join_timeout_ns)) return false;
    if (holds == HOLDS_NOBODY)
        end(c, GF_ERR_PEER, GF_RANK_NONE,
            "nobody of the generation under way is left: start the job anew from its checkpoint");
    else
        end(c, GF_ERR_DATA, GF_RANK_NONE,
            "all ranks that held whole weights have ended: start the job anew from its checkpoint");
    return false;
}

/* Leavers are in order: they may go. */
static void leavers_go(struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (!control_is_here(row) || !row->leaves || (row->said != CONTROL_SAID_READY)) continue;
        row->said = CONTROL_SAID_BYE;
        gf_control_owe(row, CONTROL_ALL_GONE);
        gf_log_line(&c->setup.log, GF_LOG_INFO, "rank %u leaves", id);
    }
}

/* Nobody but leavers has whole weights. One of them stays for a generation, if there is anybody to
 * hand its weights to; else all of them go. */
static void leavers_look(struct gf_coordinator *c)
{
    struct control_row *leaver = NULL;
    bool is_taken = false;
    if (holding_of(c) == HOLDS_WEIGHTS) return;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        is_taken = is_taken || may_be_listed(c, row);
        if (!control_is_here(row) || !row->leaves || (row->said != CONTROL_SAID_READY)) continue;
        if ((leaver == NULL) && !row->cut && (row->progress.partial == 0)) leaver = row;
    }
    if (leaver == NULL) return;
    if (is_taken)
        leaver->leaves = false;
    else if (!is_anybody_missed(c))
        leavers_go(c);
}

/* A fabric where all have one, else sockets; nothing where all ranks are on one node. */
static uint32_t network_choose(const struct gf_coordinator *c)
{
    bool one_node = true;
    bool known = false; /* a link that shares nothing has its network, and no node */
    uint32_t network = GF_NETWORK_FABRIC;
    const struct gf_offer *first = &c->rows[c->next_ids[0]].offer.values;
    for (uint32_t rank = 0; rank < c->next_world; rank++) {
        const struct gf_offer *values = &c->rows[c->next_ids[rank]].offer.values;
        known = known || (values->node != 0);
        one_node = one_node && (values->node == first->node);
        if (values->fabric != GF_FABRIC_FOUND) network = GF_NETWORK_LINK;
    }
    if (!known) return first->network;
    return one_node ? (uint32_t)GF_NETWORK_NONE : network;
}

static bool endpoint_is_here(const struct gf_coordinator *c, const struct control_row *row)
{
    return (row->endpoint_for == c->next) && (row->connection != CONTROL_NONE) &&
           (row->endpoint_have == row->endpoint_total);
}

/* It is asked for its endpoint. Who owes it since the list before is as late as it was: else
 * deaths, one after the other, would keep all waiting for one that says nothing. */
static void endpoint_ask(const struct gf_coordinator *c, struct control_row *row)
{
    if (!control_is_listed(c, row) || endpoint_is_here(c, row)) row->asked_ns = c->now_ns;
}

static void list_make(struct gf_coordinator *c)
{
    uint32_t world = 0;
    if (c->number != 0) leavers_look(c);
    if (all_gone_look(c) || !end_unless_enough(c)) return;
    leavers_go(c);
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (may_be_listed(c, row)) c->next_ids[world++] = id;
    }
    for (uint32_t id = 0; id < c->setup.id_count; id++) endpoint_ask(c, &c->rows[id]);
    c->next = ++c->used;
    c->listing = true;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        c->rows[id].listed = 0;
        c->rows[id].owed &= ~(1u << CONTROL_LIST); /* of the list before */
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        struct control_row *row = &c->rows[c->next_ids[rank]];
        row->listed = c->next;
        row->next_rank = rank;
        row->endpoint_for = 0;
        row->owed &= ~(1u << CONTROL_GO | 1u << CONTROL_ERROR);
        gf_control_owe(row, CONTROL_LIST);
    }
    c->next_world = world;
    c->network = network_choose(c);
    /* If the first list is given up, all are awaited as long once more; after another one they are
     * not: else a rank that ends on each of them would keep all waiting, and never be named. */
    if ((c->number == 0) && !c->has_listed) c->since_ns = c->now_ns;
    c->has_listed = true;
    gf_control_enter(c, GF_COORDINATOR_GATHER);
}

/* ---- a generation begins ---- */

static bool is_behind(const struct gf_control_progress *a, const struct gf_control_progress *b)
{
    return (a->steps != b->steps) ? (a->steps < b->steps) : (a->applied < b->applied);
}

/* The state of the lowest rank among those that are furthest is the common one. Who waits has
 * none. */
static void common_state_choose(struct gf_coordinator *c)
{
    const struct control_row *lead = NULL;
    c->go = (struct control_go){.number = c->next};
    if (c->number == 0) return;
    for (uint32_t rank = 0; rank < c->next_world; rank++) {
        const struct control_row *row = &c->rows[c->next_ids[rank]];
        if (row->waits || (row->progress.partial != 0)) continue;
        if ((lead == NULL) || is_behind(&lead->progress, &row->progress)) lead = row;
    }
    GF_ASSERT(lead != NULL); /* end_unless_enough() */
    c->go.lead = lead->next_rank;
    c->go.progress = lead->progress;
    for (uint32_t rank = 0; rank < c->next_world; rank++) {
        const struct control_row *row = &c->rows[c->next_ids[rank]];
        c->go.lags = c->go.lags || row->waits || (row->progress.partial != 0) ||
                     is_behind(&row->progress, &lead->progress);
    }
}

static void row_begin(struct gf_coordinator *c, uint32_t id)
{
    struct control_row *row = &c->rows[id];
    bool was_ready = control_is_member(row) && (row->said == CONTROL_SAID_READY) && !row->leaves;
    bool listed = (row->listed == c->next);
    bool closed = control_is_member(row) && (row->said == CONTROL_SAID_BYE);
    bool is_told = control_is_member(row) && !listed && !closed;
    row->comes_in = listed && row->waits && (c->go.number > 1);
    /* It was late: it comes in as one that waits. */
    row->waits =
        !listed && (row->waits || (was_ready && !row->cut)) && (row->connection != CONTROL_NONE);
    row->member = listed;
    row->listed = 0;
    row->cut = row->out = row->leaves = row->planned = row->closes = row->gives_up = false;
    /* The host of the coordinator has closed, and waits for all others. */
    bool stays = closed && !control_may_be_cut(c, id);
    row->said = stays ? CONTROL_SAID_BYE : CONTROL_SAID_NOTHING;
    row->progress = (struct gf_control_progress){0};
    row->report = (struct control_report){.waits_for = GF_RANK_NONE};
    row->patience_ns = 0;
    row->answered = 0;
    row->heard_report_ns = row->calls_same = 0;
    row->owed &= ~(1u << CONTROL_LIST);
    if (!listed &&
        ((row->owed & 1u << CONTROL_GO) != 0)) { /* it has had a part of the one before */
        c->channel->driver->drop(c->channel, row->connection);
        gf_control_lost(c, row);
    }
    if (closed && !listed && !stays) gf_control_owe(row, CONTROL_ALL_GONE);
    if (is_told && !row->waits) gf_control_owe(row, CONTROL_ERROR); /* it may not know it yet */
    if (is_told) gf_log_line(&c->setup.log, GF_LOG_INFO, "rank %u was left out", id);
    if (!listed) return;
    row->total = row->endpoint_total;
    row->member_process = row->process;
    row->rank = row->next_rank;
    row->heard_ns = c->now_ns;
    row->go_rank = row->go_at = 0;
    c->rank_ids[row->rank] = id;
    gf_control_owe(row, CONTROL_GO);
    gf_control_owe(row, CONTROL_WAITING);
}

static void generation_begin(struct gf_coordinator *c)
{
    uint64_t list = CONTROL_LIST_START;
    common_state_choose(c);
    for (uint32_t rank = 0; rank < c->next_world; rank++)
        list = gf_control_list_hash(list, c->next_ids[rank], c->rows[c->next_ids[rank]].process);
    c->go.list = c->list = list;
    c->number = c->next;
    c->side = 1 - c->side;
    c->closed.rank = GF_RANK_NONE;
    c->patience = (struct control_patience){0};
    memset(c->calls, 0, sizeof c->calls);
    c->world = c->next_world;
    for (uint32_t id = 0; id < c->setup.id_count; id++) row_begin(c, id);
    c->error.code = GF_OK;
    gf_log_line(&c->setup.log, GF_LOG_INFO, "generation %u has begun with %u ranks", c->number,
                c->world);
    c->listing = false;
    gf_control_enter(c, GF_COORDINATOR_RUN);
}

/* ---- GATHER ---- */

/* All ranks are here, and nobody has been of a generation before. Others may live that dial this
 * coordinator, where a rank has come in place of a process that has ended, or ids from `world` on
 * may be those of a generation: they are awaited, from its begin on. */
static bool first_is_whole(const struct gf_coordinator *c)
{
    const uint64_t away_ns = c->terms.keepalive_ns + CONTROL_BROKEN_NS;
    bool may_live = !c->setup.is_first && (c->setup.id_count > c->setup.world);
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        bool is_away = (row->process != 0) && !row->ended && (row->connection == CONTROL_NONE) &&
                       (c->now_ns - row->broke_ns < away_ns);
        /* One whose connection broke may still wait, of a list that was given up. */
        if ((id < c->setup.world) && (!row->waits || (row->connection == CONTROL_NONE)))
            return false;
        if ((row->waits || is_away) && (row->offer.standing.generation != 0)) return false;
        may_live = may_live || (row->waits && row->offer.rejoins);
    }
    /* The coordinator before this one had a rank's process, and all others have ended with it. */
    if (c->setup.host_id != GF_RANK_NONE) return true;
    return !may_live || (c->now_ns >= away_ns);
}

static bool is_missing(const struct gf_coordinator *c, uint32_t id)
{
    const struct control_row *row = &c->rows[id];
    return c->listing ? !endpoint_is_here(c, row) : !row->waits;
}

/* "2-4, 7" into text_out; returns the lowest one, or GF_RANK_NONE. */
static uint32_t missing_text(const struct gf_coordinator *c, char *text_out, size_t bytes)
{
    size_t used = 0;
    uint32_t lowest = GF_RANK_NONE;
    text_out[0] = '\0';
    for (uint32_t id = 0; id < c->setup.world; id++) {
        uint32_t last = id;
        if (!is_missing(c, id)) continue;
        if (lowest == GF_RANK_NONE) lowest = id;
        while ((last + 1 < c->setup.world) && is_missing(c, last + 1)) last++;
        if (used + 28 > bytes) {
            (void)snprintf(text_out + used, bytes - used, ", ..");
            break;
        }
        used += (size_t)snprintf(text_out + used, bytes - used, "%s%u", (used > 0) ? ", " : "", id);
        if (last > id) used += (size_t)snprintf(text_out + used, bytes - used, "-%u", last);
        id = last;
    }
    return lowest;
}

static bool stands_here(const struct gf_coordinator *c, uint32_t generation, uint32_t rank)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_standing *its = &c->rows[id].offer.standing;
        if (c->rows[id].waits && (its->generation == generation) && (its->rank == rank))
            return true;
    }
    return false;
}

/* Processes that wait and were of that generation; 0 for none. */
static uint32_t standing_count(const struct gf_coordinator *c, uint32_t generation)
{
    uint32_t count = 0;
    for (uint32_t id = 0; (generation != 0) && (id < c->setup.id_count); id++)
        if (c->rows[id].waits && (c->rows[id].offer.standing.generation == generation)) count++;
    return count;
}

/* One that was begun anew can't know who has ended meanwhile: it takes a generation over from all
 * of its processes, or ends the job. */
static bool end_takeover(struct gf_coordinator *c)
{
    char text[240];
    uint32_t missing = 0;
    uint32_t lowest = GF_RANK_NONE;
    uint32_t most = 0;
    struct control_standing of = {0};
    /* A process alone may name a later one, which it was let into as the coordinator ended. */
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        uint32_t count = row->waits ? standing_count(c, row->offer.standing.generation) : 0;
        if ((count < most) || (count == 0)) continue;
        if ((count == most) && (row->offer.standing.generation >= of.generation)) continue;
        most = count;
        of = row->offer.standing;
    }
    if (of.generation == 0) return false;
    for (uint32_t rank = of.world; rank-- > 0;) {
        if (stands_here(c, of.generation, rank)) continue;
        lowest = rank;
        missing++;
    }
    (void)snprintf(
        text, sizeof text,
        "the coordinator was begun anew and cannot know who has ended: %u of the %u "
        "ranks of generation %u, rank %d first, did not dial it within %.1f s. Begin the "
        "job anew from its checkpoint",
        missing, of.world, of.generation, (int)lowest, (double)c->terms.join_timeout_ns / 1e9);
    end(c, GF_ERR_PEER, lowest, text);
    return true;
}

static void end_first_join(struct gf_coordinator *c)
{
    char text[240];
    if (end_takeover(c)) return;
    char missing[100];
    char how[136] = "";
    uint32_t named = missing_text(c, missing, sizeof missing);
    const struct control_row *row = (named == GF_RANK_NONE) ? NULL : &c->rows[named];
    const char *address = c->setup.address;
    if ((row != NULL) && row->ended)
        (void)snprintf(how, sizeof how, ": rank %u ended while ranks were joining (%.55s)", named,
                       row->how);
    else if (c->channel->refused_count > 0)
        (void)snprintf(how, sizeof how, "; a process was refused: %.100s",
                       c->channel->refused_text);
    if (row == NULL)
        (void)snprintf(text, sizeof text, "nobody is missing, and there is no first generation");
    else
        (void)snprintf(text, sizeof text, "rank %s of %u did not join within %.1f s%s%.60s%s",
                       missing, c->setup.world, (double)c->terms.join_timeout_ns / 1e9,
                       (address == NULL) ? "" : " at ", (address == NULL) ? "" : address, how);
    end(c, GF_ERR_TIMEOUT, named, text);
}

/* Before the first generation a process has ended. An elastic job awaits the one that its launcher
 * may start in its place; another one ends. */
static bool first_death_look(struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.world; id++) {
        const struct control_row *row = &c->rows[id];
        char text[200];
        bool died = row->ended && (row->process != 0);
        if (!died || (row->offer.standing.generation != 0) || row->offer.terms.elastic) continue;
        if (row->closes)
            (void)snprintf(text, sizeof text, "rank %u closed before all ranks had joined", id);
        else
            (void)snprintf(text, sizeof text, "rank %u died while ranks were joining: %.55s", id,
                           row->how);
        end(c, GF_ERR_PEER, id, text);
        return true;
    }
    return false;
}

/* The coordinator goes with its host, so nobody goes on without it. True: the job has ended. */
static bool end_if_host_is_late(struct gf_coordinator *c)
{
    char text[160];
    uint32_t rank = c->rows[c->setup.host_id].rank;
    if (c->now_ns - c->left_ns < c->terms.join_timeout_ns) return false;
    (void)snprintf(
        text, sizeof text,
        "rank %u, in whose process the coordinator runs, did not begin the regroup within "
        "%.1f s",
        rank, (double)c->terms.join_timeout_ns / 1e9);
    end(c, GF_ERR_TIMEOUT, rank, text);
    return true;
}

/* How long an endpoint is awaited. */
static uint64_t endpoint_ns(const struct gf_coordinator *c)
{
    uint64_t part_ns = c->terms.join_timeout_ns / 4;
    uint64_t broken_ns = c->terms.keepalive_ns + CONTROL_BROKEN_NS;
    if (c->number == 0) return c->terms.join_timeout_ns;
    return (part_ns < broken_ns) ? broken_ns : part_ns;
}

static bool endpoint_is_late(const struct gf_coordinator *c, const struct control_row *row)
{
    return control_is_listed(c, row) && !endpoint_is_here(c, row) &&
           (c->now_ns - row->asked_ns >= endpoint_ns(c));
}

/* Who is late is left out, unless nobody else has whole weights: then the list stands. */
static bool late_leave(struct gf_coordinator *c)
{
    const uint32_t host = c->setup.host_id;
    if ((host != GF_RANK_NONE) && endpoint_is_late(c, &c->rows[host])) {
        (void)end_if_host_is_late(c); /* it is awaited, or the job ends */
        return false;
    }
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (endpoint_is_late(c, row)) row->out = row->member;
    }
    bool is_whole =
        (holding_of(c) == HOLDS_WEIGHTS) || (c->now_ns - c->left_ns >= c->terms.join_timeout_ns);
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (!endpoint_is_late(c, row)) continue;
        if (!is_whole) row->out = false;
        if (!is_whole || !row->waits) continue;
        if (row->connection != CONTROL_NONE) {
            c->channel->driver->drop(c->channel, row->connection);
            gf_control_lost(c, row);
        }
        row->waits = false;
    }
    return is_whole;
}

/* Of the list some have ended, or are late: a new one without them, which costs a number. */
static void list_again(struct gf_coordinator *c, bool late)
{
    if (!late || late_leave(c)) list_make(c);
}

static void gather_poll(struct gf_coordinator *c)
{
    if ((c->number == 0) && first_death_look(c)) return;
    if (!c->listing) { /* the first list */
        if (first_is_whole(c))
            list_make(c);
        else if (c->now_ns - c->since_ns >= c->terms.join_timeout_ns)
            end_first_join(c);
        return;
    }
    uint32_t lack = 0;
    bool late = false;
    bool ended = false;
    for (uint32_t rank = 0; rank < c->next_world; rank++) {
        const struct control_row *row = &c->rows[c->next_ids[rank]];
        bool goes_on = row->waits || (control_is_member(row) && (row->said != CONTROL_SAID_BYE));
        if (row->ended || !control_is_listed(c, row) || !goes_on) ended = true;
        lack += endpoint_is_here(c, row) ? 0u : 1u;
        late = late || endpoint_is_late(c, row);
    }
    if ((lack == 0) && !ended)
        generation_begin(c);
    else if ((c->number == 0) && ended)
        c->listing = false; /* all are awaited once more */
    else if ((c->number == 0) && late)
        end_first_join(c);
    else if (ended || late)
        list_again(c, late);
}

/* ---- connections that were reset ---- */

/* How long one whose connection was reset may take to dial again. Who polls has dialled by
 * CONTROL_RESET_NS, as its tries are 1.6 s apart at most. A kernel gives a connection up after
 * `keepalive` without a word: where nothing was heard for so long, its process may live and
 * compute, and it dials once it polls. A reset sooner than that is of a process that has ended, or
 * polls. */
static uint64_t reset_ns(const struct gf_coordinator *c, const struct control_row *row)
{
    bool may_compute = control_is_member(row) && (row->said < CONTROL_SAID_READY) &&
                       (row->broke_ns - row->heard_ns >= c->terms.keepalive_ns);
    bool is_longer = may_compute && (c->terms.exchange_timeout_ns > CONTROL_RESET_NS);
    return is_longer ? c->terms.exchange_timeout_ns : CONTROL_RESET_NS;
}

/* Who lives dials again. Who comes after that was left out, as one that was silent. */
static void resets_look(struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (!row->is_reset || row->ended || (row->connection != CONTROL_NONE)) continue;
        if (c->now_ns - row->broke_ns < reset_ns(c, row)) continue;
        row->ended = row->is_presumed = true;
        row->waits = false;
        if (row->said != CONTROL_SAID_BYE)
            gf_log_line(&c->setup.log, GF_LOG_INFO,
                        "rank %u counts as ended: its connection was reset, and it did not dial "
                        "again within %.1f s",
                        id, (double)reset_ns(c, row) / 1e9);
    }
}

/* ---- RUN and REGROUP ---- */

/* A process of the generation has ended: nothing needs to be asked. */
static bool deaths_look(struct gf_coordinator *c)
{
    struct gf_error error = gf_coordinator_error(c, GF_ERR_PEER, GF_RANK_NONE);
    uint32_t count = 0;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        bool may_live = control_is_member(row) && row->is_presumed;
        if (!control_has_died(row) || row->cut || (may_live && row->out)) continue;
        if (may_live)
            row->out = true;
        else
            row->cut = true;
        if (count++ > 0) continue;
        error.peer = row->rank;
        gf_control_fate_tell(c, row,
                             row->gives_up ? "gave up"
                             : may_live    ? "died, or is cut off"
                                           : "died",
                             &error);
    }
    if (count == 0) return false;
    if (count > 1) {
        size_t used = strlen(error.text);
        (void)snprintf(error.text + used, sizeof error.text - used, ", and %u more ranks",
                       count - 1);
    }
    /* that of the process which hosts the coordinator ends it, too: this is another's */
    gf_control_decide(c, &error, false);
    return true;
}

/* Where all others have closed, who says nothing is not waited for: it is stopped, or computes for
 * longer than an exchange may take and needs nobody. */
static void silent_leave(struct gf_coordinator *c)
{
    uint64_t most_ns = c->terms.exchange_timeout_ns;
    if (most_ns < CONTROL_SILENCE_NS) most_ns = CONTROL_SILENCE_NS;
    if (c->closed.rank == GF_RANK_NONE) return;
    for (uint32_t cuts = 0; cuts < 2; cuts++) /* first: is it so of all of them? */
        for (uint32_t rank = 0; rank < c->world; rank++) {
            struct control_row *row = &c->rows[c->rank_ids[rank]];
            if (!control_is_asked(row) || row->cut) continue;
            bool silent = (c->now_ns - row->heard_ns >= most_ns) && (c->now_ns >= row->patience_ns);
            if (!silent) return;
            if (cuts == 0) continue;
            row->cut = true;
            gf_log_line(&c->setup.log, GF_LOG_WARN,
                        "rank %u has not closed and says nothing, for %.1f s: all others have "
                        "closed, and do not wait for it",
                        rank, (double)(c->now_ns - row->heard_ns) / 1e9);
        }
}

static void run_poll(struct gf_coordinator *c)
{
    bool planned = false;
    silent_leave(c);
    if (all_gone_look(c) || deaths_look(c)) return;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        planned = planned || (control_is_member(row) && (row->said == CONTROL_SAID_READY));
        if (!control_is_member(row) || (row->connection != CONTROL_NONE) ||
            (row->said == CONTROL_SAID_BYE))
            continue;
        if (c->now_ns - row->broke_ns < c->terms.join_timeout_ns) continue;
        struct gf_error error = gf_coordinator_error(c, GF_ERR_PEER, row->rank);
        gf_control_fate_tell(c, row, "is cut off", &error);
        row->out = true;
        gf_control_decide(c, &error, false);
        return;
    }
    if (!planned) return;
    gf_log_line(&c->setup.log, GF_LOG_INFO, "a regroup begins: ranks wait to come in, or leave");
    gf_control_enter(c, GF_COORDINATOR_REGROUP);
}

/* For whom a regroup waits, and how long: README.md, rule 3. */
static void regroup_poll(struct gf_coordinator *c)
{
    (void)deaths_look(c); /* of a planned one the others may still be in the step before it */
    uint64_t age_ns = c->now_ns - c->since_ns;
    uint64_t part_ns = c->terms.join_timeout_ns / 4;
    uint64_t broken_ns = c->terms.keepalive_ns + CONTROL_BROKEN_NS;
    uint32_t ready = 0;
    bool awaited = false;
    bool may_live = false;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        if (!row->member || row->cut || control_has_died(row)) continue;
        if (row->said == CONTROL_SAID_BYE) continue;
        if (row->said == CONTROL_SAID_READY) ready++;
        if ((row->said == CONTROL_SAID_READY) && (row->connection != CONTROL_NONE)) continue;
        may_live = true;
        if (row->out) continue;
        if (id == c->setup.host_id) {
            if (end_if_host_is_late(c)) return;
            awaited = true;
        } else if (row->connection != CONTROL_NONE)
            awaited = awaited || (age_ns < part_ns) || (c->now_ns < row->patience_ns);
        else
            awaited = awaited || (age_ns < broken_ns);
    }
    if ((2 * ready < member_count(c)) && may_live) awaited = awaited || (age_ns < part_ns);
    if ((c->state == GF_COORDINATOR_REGROUP) && !awaited) list_make(c);
}

/* ---- the poll ---- */

static void clock_go(struct gf_coordinator *c, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - c->polled_ns;
    c->now_ns += (gap_ns < CONTROL_NAP_NS) ? gap_ns : CONTROL_NAP_NS;
    c->polled_ns = now_ns;
}

/* Those that wait for all ranks to join hear at once that one cannot, and each reason once: whoever
 * is refused may try again and again. */
static void refusals_look(struct gf_coordinator *c)
{
    const char *text = c->channel->refused_text;
    if ((c->number != 0) || (c->state != GF_COORDINATOR_GATHER)) return;
    if (strcmp(text, c->refused) == 0) return;
    memcpy(c->refused, text, sizeof c->refused);
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        gf_control_owe(&c->rows[id], CONTROL_WAITING);
}

/* Who waits for a word hears that the coordinator is there. */
static void alive_say(struct gf_coordinator *c)
{
    uint32_t waiting = gf_control_joiner_count(c);
    bool changed = (waiting != c->waiting);
    if (!changed && (c->now_ns - c->alive_ns < CONTROL_ALIVE_NS)) return;
    c->alive_ns = c->now_ns;
    c->waiting = waiting;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        bool hangs = row->waits || (row->said == CONTROL_SAID_READY) ||
                     (row->said == CONTROL_SAID_FAULT) || control_is_listed(c, row) ||
                     (row->said == CONTROL_SAID_BYE);
        if ((row->connection != CONTROL_NONE) && (changed || hangs))
            gf_control_owe(row, CONTROL_WAITING);
    }
}

/* A member that dials again shall hear what has ended the job. So shall a rank that is still on its
 * way to a join that has failed: it would find nobody, and wait. Who has missed the deadline is not
 * awaited once more. */
static bool is_anybody_away(const struct gf_coordinator *c)
{
    const uint64_t age_ns = c->now_ns - c->since_ns;
    const bool joins = (c->number == 0) && !c->is_well && (c->error.code != GF_ERR_TIMEOUT) &&
                       (age_ns < c->terms.join_timeout_ns / 2);
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        if (row->has_heard || row->ended || (row->connection != CONTROL_NONE)) continue;
        if (control_is_asked(row) && (age_ns < CONTROL_BROKEN_NS)) return true;
        if (joins && (id < c->setup.world)) return true;
    }
    return false;
}

static gf_status over_poll(struct gf_coordinator *c)
{
    if (gf_control_owes(c) || !c->channel->driver->flushed(c->channel)) return GF_AGAIN;
    if (is_anybody_away(c)) return GF_AGAIN;
    return c->is_well ? GF_OK : c->error.code;
}

static void state_poll(struct gf_coordinator *c)
{
    resets_look(c);
    switch (c->state) {
    case GF_COORDINATOR_GATHER:
        if ((c->number == 0) || !all_gone_look(c)) gather_poll(c);
        break;
    case GF_COORDINATOR_RUN: run_poll(c); break;
    case GF_COORDINATOR_INQUIRE:
        if (!all_gone_look(c) && !deaths_look(c)) gf_control_inquiry_poll(c);
        break;
    case GF_COORDINATOR_REGROUP:
        if (!all_gone_look(c)) regroup_poll(c);
        break;
    case GF_COORDINATOR_OVER: break;
    }
}

gf_status gf_coordinator_poll(struct gf_coordinator *c, uint64_t now_ns)
{
    gf_status status;
    bool more;
    clock_go(c, now_ns);
    status = gf_control_events(c, &more);
    if (status < 0) return status;
    if (!more) c->done_ns = c->now_ns;
    more = more && (c->now_ns - c->done_ns < CONTROL_BEHIND_NS);
    if (!more) state_poll(c); /* events go before deadlines */
    alive_say(c);
    refusals_look(c);
    gf_control_flush(c);
    return (c->state == GF_COORDINATOR_OVER) ? over_poll(c) : GF_AGAIN;
}

/* ---- open ---- */

size_t gf_coordinator_state_bytes(const struct gf_coordinator_setup *setup)
{
    size_t row_bytes = sizeof(struct control_row) + 2 * setup->endpoint_bytes_max;
    size_t numbers = 2 * (size_t)setup->id_count + GF_COORDINATOR_CONNECTIONS(setup->id_count);
    return sizeof(struct gf_coordinator) + setup->id_count * row_bytes + numbers * sizeof(uint32_t);
}

struct gf_coordinator *gf_coordinator_open(const struct gf_coordinator_setup *setup, void *state,
                                           struct gf_channel *channel, uint64_t now_ns)
{
    struct gf_coordinator *c = state;
    GF_ASSERT((setup->world > 0) && (setup->world <= setup->id_count));
    GF_ASSERT(channel->connections_max <= GF_COORDINATOR_CONNECTIONS(setup->id_count));
    memset(c, 0, sizeof *c + setup->id_count * sizeof c->rows[0]);
    c->setup = *setup;
    c->terms.join_timeout_ns = setup->join_timeout_ns;
    c->channel = channel;
    c->rank_ids = (uint32_t *)&c->rows[setup->id_count];
    c->next_ids = c->rank_ids + setup->id_count;
    c->connection_ids = c->next_ids + setup->id_count;
    c->endpoints =
        (unsigned char *)(c->connection_ids + GF_COORDINATOR_CONNECTIONS(setup->id_count));
    for (uint32_t i = 0; i < channel->connections_max; i++) c->connection_ids[i] = CONTROL_NONE;
    for (uint32_t id = 0; id < setup->id_count; id++) c->rows[id].connection = CONTROL_NONE;
    c->polled_ns = now_ns;
    c->closed.rank = GF_RANK_NONE;
    return c;
}

void gf_control_shown(const struct gf_coordinator *c, struct control_shown *shown_out)
{
    struct gf_coordinator_status status;
    gf_coordinator_status(c, &status);
    *shown_out = (struct control_shown){.state = status.state,
                                        .generation = status.generation,
                                        .world = status.world,
                                        .here = status.here,
                                        .waiting = status.waiting,
                                        .id_count = c->setup.id_count,
                                        .error = status.error,
                                        .refused_count = c->channel->refused_count};
    memcpy(shown_out->refused_text, c->channel->refused_text, sizeof shown_out->refused_text);
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        if (control_is_here(&c->rows[id]) || c->rows[id].waits)
            shown_out->present[id / 8] |= (unsigned char)(1u << (id % 8));
}

void gf_coordinator_status(const struct gf_coordinator *c, struct gf_coordinator_status *status_out)
{
    *status_out = (struct gf_coordinator_status){.state = c->state,
                                                 .generation = c->number,
                                                 .world = c->world,
                                                 .waiting = gf_control_joiner_count(c),
                                                 .error = c->last};
    if (c->is_well) status_out->error.code = GF_OK;
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        status_out->here += control_is_here(&c->rows[id]) ? 1u : 0u;
}
