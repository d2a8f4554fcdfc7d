/* GATHER: the list of the next generation. Who may be on it, who leaves as it is made, and how long
 * the endpoints of its processes are awaited. */
#include "lib/control/coordinator_state.h"

#include "drivers/link.h"

/* ---- who may be listed ---- */

/* Ready for the next generation, or waiting for it. Who is on the list that is out stays on it
 * while its connection is dialled again. */
static bool may_be_listed(const struct gf_coordinator *c, const struct control_row *row)
{
    if ((row->connection == CONTROL_NONE) && !control_is_listed(c, row)) return false;
    /* The first list has the ranks that the job begins with. */
    if (!control_has_begun(c) && (row->offer.id >= c->setup.world)) return false;
    return row->waits || (control_row_state_of(row) == CONTROL_ROW_READY);
}

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

/* Left out for its silence, and READY since. Who owes its endpoint is no help; who owed it for
 * another list of this regroup is asked again until join_timeout, and not for ever. */
static bool may_return(const struct gf_coordinator *c, const struct control_row *row)
{
    bool was_asked = (row->asked_ns >= c->left_ns); /* else it was of no list of this regroup */
    bool is_out = (control_row_state_of(row) == CONTROL_ROW_OUT);
    if (was_asked && (c->now_ns - c->left_ns >= c->terms.join_timeout_ns)) return false;
    return is_out && (row->said == CONTROL_SAID_READY) && (row->connection != CONTROL_NONE) &&
           !control_is_listed(c, row);
}

/* Nobody else has whole weights: those that were left out and are READY are as the others. */
static void outs_return(struct gf_coordinator *c)
{
    if (!control_has_begun(c) || (holding_of(c) == HOLDS_WEIGHTS)) return;
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        if (may_return(c, &c->rows[id])) c->rows[id].out = false;
}

/* A member that could still become one of them; of those that leave none, unless `leavers`: then
 * one that is away, and would hand its whole weights over. */
static bool may_still_come(const struct gf_coordinator *c, const struct control_row *row,
                           bool leavers)
{
    bool may_live = control_is_awaited(row) ||
                    (control_is_presumed(row) && !row->cut && (row->said != CONTROL_SAID_BYE));
    bool hands_over = leavers && (row->connection == CONTROL_NONE) && (row->progress.partial == 0);
    return may_live && (row->leaves ? hands_over : !may_be_listed(c, row));
}

static bool is_anybody_awaited(const struct gf_coordinator *c, bool leavers)
{
    if (c->now_ns - c->left_ns >= c->terms.join_timeout_ns) return false;
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        if (may_still_come(c, &c->rows[id], leavers)) return true;
    return false;
}

/* False: the generation cannot go on with those that are here. Others are awaited, or this has
 * ended the job. */
static bool end_unless_enough(struct gf_coordinator *c)
{
    holding holds = !control_has_begun(c) ? HOLDS_WEIGHTS : holding_of(c);
    if (holds == HOLDS_WEIGHTS) return true;
    if (is_anybody_awaited(c, true)) return false;
    if (holds == HOLDS_NOBODY)
        gf_coordinator_end_job(
            c, GF_ERR_PEER, GF_RANK_NONE,
            "nobody of the generation under way is left: start the job anew from its checkpoint");
    else
        gf_coordinator_end_job(
            c, GF_ERR_DATA, GF_RANK_NONE,
            "all ranks that held whole weights have ended: start the job anew from its checkpoint");
    return false;
}

/* ---- who leaves ---- */

/* Leavers are in order: they may go. */
static void leavers_go(struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (!control_is_here(row) || !row->leaves || (row->said != CONTROL_SAID_READY)) continue;
        char name[CONTROL_NAME_BYTES];
        row->said = CONTROL_SAID_BYE;
        gf_coordinator_post(row, CONTROL_ALL_GONE);
        gf_log_line(&c->setup.log, GF_LOG_INFO, "%s leaves", gf_coordinator_name(row, name));
    }
}

/* Nobody but leavers has whole weights. One of them stays for a generation, if there is anybody to
 * hand its weights to; else all of them go. */
static void leaver_keep(struct gf_coordinator *c)
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
    else if (!is_anybody_awaited(c, false))
        leavers_go(c);
}

/* ---- a list is made ---- */

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

/* The process is asked for its endpoint. One that was asked for the list before, and has not
 * answered, keeps its deadline: else deaths, one after the other, would keep all waiting for a
 * process that says nothing. */
static void endpoint_ask(const struct gf_coordinator *c, struct control_row *row)
{
    if (!control_is_listed(c, row) || control_endpoint_is_here(c, row)) row->asked_ns = c->now_ns;
}

void gf_coordinator_list_make(struct gf_coordinator *c)
{
    uint32_t world = 0;
    outs_return(c);
    if (control_has_begun(c)) leaver_keep(c);
    if (gf_coordinator_end_if_closed(c) || !end_unless_enough(c)) return;
    leavers_go(c);
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (may_be_listed(c, row)) c->next_ids[world++] = id;
    }
    for (uint32_t rank = 0; rank < world; rank++) endpoint_ask(c, &c->rows[c->next_ids[rank]]);
    c->next = ++c->used;
    c->listing = true;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        c->rows[id].listed = 0;
        c->rows[id].pending &= ~(1u << CONTROL_LIST); /* of the list before */
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        struct control_row *row = &c->rows[c->next_ids[rank]];
        row->listed = c->next;
        row->next_rank = rank;
        row->endpoint_for = 0;
        row->pending &= ~(1u << CONTROL_GO | 1u << CONTROL_ERROR);
        gf_coordinator_post(row, CONTROL_LIST);
    }
    c->next_world = world;
    c->network = network_choose(c);
    /* If the first list is given up, all are awaited as long once more; after another one they are
     * not: else a rank that ends on each of them would keep all waiting, and never be named. */
    if (!control_has_begun(c) && !c->has_listed) c->since_ns = c->now_ns;
    c->has_listed = true;
    gf_coordinator_enter(c, GF_COORDINATOR_GATHER);
}

/* ---- a list is out ---- */

/* How long an endpoint is awaited. */
static uint64_t endpoint_ns(const struct gf_coordinator *c)
{
    uint64_t part_ns = c->terms.join_timeout_ns / 4;
    uint64_t broken_ns = c->terms.keepalive_ns + CONTROL_BROKEN_NS;
    if (!control_has_begun(c)) return c->terms.join_timeout_ns;
    return (part_ns < broken_ns) ? broken_ns : part_ns;
}

static bool endpoint_is_late(const struct gf_coordinator *c, const struct control_row *row)
{
    return control_is_listed(c, row) && !control_endpoint_is_here(c, row) &&
           (c->now_ns - row->asked_ns >= endpoint_ns(c));
}

/* Who is late is left out, unless nobody else has whole weights: then the list stands. */
static bool late_leave(struct gf_coordinator *c)
{
    const uint32_t host = c->setup.host_id;
    if ((host != GF_RANK_NONE) && endpoint_is_late(c, &c->rows[host])) {
        (void)gf_coordinator_end_if_host_is_late(c); /* it is awaited, or the job ends */
        return false;
    }
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (endpoint_is_late(c, row)) row->out = row->member;
    }
    outs_return(c);
    bool is_whole =
        (holding_of(c) == HOLDS_WEIGHTS) || (c->now_ns - c->left_ns >= c->terms.join_timeout_ns);
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (!endpoint_is_late(c, row)) continue;
        if (!is_whole) row->out = false;
        if (!is_whole || !row->waits) continue;
        if (row->connection != CONTROL_NONE) {
            c->channel->driver->drop(c->channel, row->connection);
            gf_coordinator_lost(c, row);
        }
        row->waits = false;
    }
    return is_whole;
}

/* Of the list some have ended, or are late: a new one without them, which costs a number. */
static void list_again(struct gf_coordinator *c, bool late)
{
    if (!late || late_leave(c)) gf_coordinator_list_make(c);
}

void gf_coordinator_gather_poll(struct gf_coordinator *c)
{
    if (!control_has_begun(c) &&
        (gf_coordinator_takeover_try(c) || gf_coordinator_end_if_first_died(c)))
        return;
    if (!c->listing) { /* the first list */
        if (gf_coordinator_first_is_whole(c))
            gf_coordinator_list_make(c);
        else if (c->now_ns - c->since_ns >= c->terms.join_timeout_ns)
            gf_coordinator_end_first_join(c);
        return;
    }
    uint32_t lack = 0;
    bool late = false;
    bool ended = false;
    for (uint32_t rank = 0; rank < c->next_world; rank++) {
        const struct control_row *row = &c->rows[c->next_ids[rank]];
        if (!control_is_listed(c, row) || !(row->waits || control_is_active(row))) ended = true;
        lack += control_endpoint_is_here(c, row) ? 0u : 1u;
        late = late || endpoint_is_late(c, row);
    }
    if ((lack == 0) && !ended)
        gf_coordinator_generation_begin(c);
    else if (!control_has_begun(c) && ended)
        c->listing = false; /* all are awaited once more */
    else if (!control_has_begun(c) && late)
        gf_coordinator_end_first_join(c);
    else if (ended || late)
        list_again(c, late);
}
