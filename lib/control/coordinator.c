/* The coordinator's states, and its poll. The states' parts are in files of their own: GATHER in
 * list.c, generation.c and first_join.c, INQUIRE in inquiry.c. What comes in is in
 * coordinator_take.c, what goes out in coordinator_send.c.
 *
 *     GATHER              before the first generation (control_has_begun()): ranks join, or a
 *                         coordinator that was begun anew awaits the members of a generation;
 *                         after that a list is out
 *     GATHER  -> RUN      all endpoints are here, or a generation was taken over
 *     RUN     -> INQUIRE  a member says FAULT
 *     RUN     -> REGROUP  a process has ended, or a regroup is planned: somebody waits or leaves
 *     INQUIRE -> REGROUP  a process has ended, or there is a finding
 *     REGROUP -> INQUIRE  a member says FAULT in a planned one
 *     REGROUP -> GATHER   the next list is made
 *     GATHER  -> GATHER   a process of the list has ended or is late: a new list, and a number is
 *                         spent. Such an end is no finding, and nobody is told ERROR
 *     any     -> OVER     all have closed, or a finding is final: always, where the job is not
 *                         elastic */
#include "lib/control/coordinator_state.h"

static const char *const state_names[] = {[GF_COORDINATOR_GATHER] = "gathers",
                                          [GF_COORDINATOR_RUN] = "runs",
                                          [GF_COORDINATOR_INQUIRE] = "inquires",
                                          [GF_COORDINATOR_REGROUP] = "regroups",
                                          [GF_COORDINATOR_OVER] = "is over"};
_Static_assert(sizeof state_names / sizeof state_names[0] == GF_COORDINATOR_OVER + 1,
               "each state of the coordinator has a name");

static uint32_t member_count(const struct gf_coordinator *c)
{
    uint32_t count = 0;
    for (uint32_t id = 0; id < c->setup.id_count; id++) count += c->rows[id].member ? 1u : 0u;
    return count;
}

uint32_t gf_coordinator_joiner_count(const struct gf_coordinator *c)
{
    uint32_t count = 0;
    if (!control_has_begun(c)) return 0; /* they wait for the first generation, or for a takeover */
    for (uint32_t id = 0; id < c->setup.id_count; id++) count += c->rows[id].waits ? 1u : 0u;
    return count;
}

void gf_coordinator_enter(struct gf_coordinator *c, gf_coordinator_state state)
{
    if ((c->state != state) && control_has_begun(c))
        gf_log_line(&c->setup.log, GF_LOG_DEBUG, "the coordinator of generation %u %s", c->number,
                    state_names[state]);
    if (c->state == GF_COORDINATOR_RUN) c->left_ns = c->now_ns;
    if (c->state != state) c->since_ns = c->now_ns;
    c->state = state;
}

/* ---- RUN and REGROUP ---- */

static void run_poll(struct gf_coordinator *c)
{
    bool planned = false;
    gf_coordinator_silent_leave(c);
    if (gf_coordinator_end_if_closed(c) || gf_coordinator_deaths_check(c)) return;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        control_row_state state = control_row_state_of(row);
        planned = planned || (state == CONTROL_ROW_READY) || (state == CONTROL_ROW_LEAVES);
        if (!control_is_active(row) || (row->connection != CONTROL_NONE)) continue;
        if (c->now_ns - row->broke_ns < c->terms.join_timeout_ns) continue;
        struct gf_error error = gf_coordinator_error(c, GF_ERR_PEER, row->rank);
        gf_coordinator_loss_describe(c, row, "is cut off", &error);
        row->out = true;
        gf_coordinator_decide(c, &error, false);
        return;
    }
    if (!planned) return;
    gf_log_line(&c->setup.log, GF_LOG_INFO, "a regroup begins: ranks wait to come in, or leave");
    gf_coordinator_enter(c, GF_COORDINATOR_REGROUP);
}

/* For whom a regroup waits, and how long: README.md, rule 3. */
static void regroup_poll(struct gf_coordinator *c)
{
    (void)gf_coordinator_deaths_check(
        c); /* of a planned one the others may still be in the step before it */
    uint64_t age_ns = c->now_ns - c->since_ns;
    uint64_t part_ns = c->terms.join_timeout_ns / 4;
    uint64_t broken_ns = c->terms.keepalive_ns + CONTROL_BROKEN_NS;
    uint32_t ready = 0;
    bool awaited = false;
    bool may_live = false;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        if (!control_is_awaited(row)) continue;
        if (row->said == CONTROL_SAID_READY) ready++;
        if ((row->said == CONTROL_SAID_READY) && (row->connection != CONTROL_NONE)) continue;
        may_live = true;
        if (row->out) continue;
        if (id == c->setup.host_id) {
            if (gf_coordinator_end_if_host_is_late(c)) return;
            awaited = true;
        } else if (row->connection != CONTROL_NONE)
            awaited = awaited || (age_ns < part_ns) || (c->now_ns < row->patience_ns);
        else
            awaited = awaited || (age_ns < broken_ns);
    }
    if ((2 * ready < member_count(c)) && may_live) awaited = awaited || (age_ns < part_ns);
    if ((c->state == GF_COORDINATOR_REGROUP) && !awaited) gf_coordinator_list_make(c);
}

/* ---- the poll ---- */

static void clock_go(struct gf_coordinator *c, uint64_t now_ns)
{
    uint64_t gap_ns = now_ns - c->polled_ns;
    c->now_ns += (gap_ns < CONTROL_NAP_NS) ? gap_ns : CONTROL_NAP_NS;
    c->polled_ns = now_ns;
    c->before_ns = c->kernel_ns;
    c->kernel_ns = now_ns + c->away_ns;
}

void gf_coordinator_away(struct gf_coordinator *c, uint64_t away_ns)
{
    c->away_ns = away_ns;
}

/* Those that wait for all ranks to join hear at once that one cannot, and each reason once: whoever
 * is refused may try again and again. */
static void refusals_announce(struct gf_coordinator *c)
{
    const char *text = c->channel->refused_text;
    if (control_has_begun(c) || (c->state != GF_COORDINATOR_GATHER)) return;
    if (strcmp(text, c->refused) == 0) return;
    memcpy(c->refused, text, sizeof c->refused);
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        gf_coordinator_post(&c->rows[id], CONTROL_WAITING);
}

/* Who waits for a word hears that the coordinator is there. One that was not polled says so at
 * once, since for those who wait that time went on. */
static void alive_say(struct gf_coordinator *c)
{
    uint32_t waiting = gf_coordinator_joiner_count(c);
    bool changed = (waiting != c->waiting);
    if (!changed && (c->kernel_ns - c->alive_ns < CONTROL_ALIVE_NS)) return;
    c->alive_ns = c->kernel_ns;
    c->waiting = waiting;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        bool hangs = row->waits || (row->said == CONTROL_SAID_READY) ||
                     (row->said == CONTROL_SAID_FAULT) || control_is_listed(c, row) ||
                     (row->said == CONTROL_SAID_BYE);
        if ((row->connection != CONTROL_NONE) && (changed || hangs))
            gf_coordinator_post(row, CONTROL_WAITING);
    }
}

/* A member that dials again shall hear what has ended the job. So shall a rank that is still on its
 * way to a join that has failed: it would find nobody, and wait. Who has missed the deadline is not
 * awaited once more. */
static bool is_anybody_away(const struct gf_coordinator *c)
{
    const uint64_t age_ns = c->now_ns - c->since_ns;
    const bool joins = !control_has_begun(c) && !c->is_well && (c->error.code != GF_ERR_TIMEOUT) &&
                       (age_ns < c->terms.join_timeout_ns / 2);
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        if (row->has_heard || control_has_ended(row) || (row->connection != CONTROL_NONE)) continue;
        if (control_is_active(row) && (age_ns < CONTROL_BROKEN_NS)) return true;
        if (joins && (id < c->setup.world)) return true;
    }
    return false;
}

static gf_status over_poll(struct gf_coordinator *c)
{
    if (gf_coordinator_has_pending(c) || !c->channel->driver->flushed(c->channel)) return GF_AGAIN;
    if (is_anybody_away(c)) return GF_AGAIN;
    return c->is_well ? GF_OK : c->error.code;
}

static void state_poll(struct gf_coordinator *c)
{
    gf_coordinator_resets_check(c);
    switch (c->state) {
    case GF_COORDINATOR_GATHER:
        if (!gf_coordinator_end_if_closed(c)) gf_coordinator_gather_poll(c);
        break;
    case GF_COORDINATOR_RUN: run_poll(c); break;
    case GF_COORDINATOR_INQUIRE:
        if (!gf_coordinator_end_if_closed(c) && !gf_coordinator_deaths_check(c))
            gf_coordinator_inquiry_poll(c);
        break;
    case GF_COORDINATOR_REGROUP:
        if (!gf_coordinator_end_if_closed(c)) regroup_poll(c);
        break;
    case GF_COORDINATOR_OVER: break;
    }
}

gf_status gf_coordinator_poll(struct gf_coordinator *c, uint64_t now_ns)
{
    gf_status status;
    bool more;
    clock_go(c, now_ns);
    status = gf_coordinator_events(c, &more);
    if (status < 0) return status;
    if (!more) c->done_ns = c->now_ns;
    more = more && (c->now_ns - c->done_ns < CONTROL_BEHIND_NS);
    if (!more) state_poll(c); /* events go before deadlines */
    alive_say(c);
    refusals_announce(c);
    gf_coordinator_flush(c);
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
    for (uint32_t id = 0; id < setup->id_count; id++) {
        c->rows[id].connection = CONTROL_NONE;
        c->rows[id].report.waits_for = GF_RANK_NONE;
        c->rows[id].report.tensor = GF_TENSOR_NONE;
    }
    c->before_ns = c->kernel_ns = c->polled_ns = now_ns;
    c->closed.rank = GF_RANK_NONE;
    return c;
}

void gf_coordinator_status_fill(const struct gf_coordinator *c, struct control_status *shown_out)
{
    struct gf_coordinator_status status;
    gf_coordinator_status(c, &status);
    *shown_out = (struct control_status){.state = status.state,
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
                                                 .waiting = gf_coordinator_joiner_count(c),
                                                 .error = c->last};
    if (c->is_well) status_out->error.code = GF_OK;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        bool waits = row->waits && (row->connection != CONTROL_NONE);
        status_out->connected += (row->connection != CONTROL_NONE) ? 1u : 0u;
        status_out->here += control_is_here(row) ? 1u : 0u;
        status_out->present += (waits || control_is_here(row)) ? 1u : 0u;
    }
}

uint32_t gf_coordinator_closed(const struct gf_coordinator *c, uint32_t first, uint32_t count)
{
    uint32_t closed = 0;
    for (uint32_t id = first; (id < first + count) && (id < c->setup.id_count); id++)
        closed += (control_row_state_of(&c->rows[id]) == CONTROL_ROW_CLOSED) ? 1u : 0u;
    return closed;
}

void gf_coordinator_end(struct gf_coordinator *c)
{
    gf_coordinator_end_job(c, GF_ERR_STATE, GF_RANK_NONE, "the job has ended");
}
