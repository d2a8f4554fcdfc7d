/* A generation begins: the common state of its members is chosen, and each row begins anew. */
#include "lib/control/coordinator_state.h"

#include <string.h>

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
    if (!control_has_begun(c)) return;
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

/* What the row of the generation that ends says decides what its process hears, and whether it
 * waits: it was late, and comes in as one that waits. */
static void row_leave(struct gf_coordinator *c, uint32_t id)
{
    struct control_row *row = &c->rows[id];
    char name[CONTROL_NAME_BYTES]; /* as it was known in that generation */
    bool listed = (row->listed == c->next);
    bool was_ready = control_is_awaited(row) && (row->said == CONTROL_SAID_READY) && !row->leaves;
    bool closed = control_has_closed(row);
    /* The host of the coordinator has closed, and waits for all others. */
    bool stays = closed && !control_may_be_cut(c, id);
    bool is_told = control_is_member(row) && !listed && !closed;
    (void)gf_coordinator_name(row, name);
    if (row->cut) c->nobody_step = 0; /* that inquiry may have missed it */
    row->comes_in = listed && row->waits && control_has_begun(c);
    row->waits = !listed && (row->waits || was_ready) && (row->connection != CONTROL_NONE);
    row->said = stays ? CONTROL_SAID_BYE : CONTROL_SAID_NOTHING;
    if (listed) return;
    if ((row->pending & 1u << CONTROL_GO) != 0) { /* it has had a part of the one before */
        c->channel->driver->drop(c->channel, row->connection);
        gf_coordinator_lost(c, row);
    }
    if (closed && !stays) gf_coordinator_post(row, CONTROL_ALL_GONE);
    if (is_told && !row->waits)
        gf_coordinator_post(row, CONTROL_ERROR); /* it may not know it yet */
    if (is_told) gf_log_line(&c->setup.log, GF_LOG_INFO, "%s was left out", name);
}

/* The row of the generation that begins: a process of the list is a member of it. */
static void row_enter(struct gf_coordinator *c, uint32_t id)
{
    struct control_row *row = &c->rows[id];
    row->member = (row->listed == c->number);
    row->listed = 0;
    row->cut = row->out = row->leaves = row->planned = row->closes = row->gives_up = false;
    row->progress = (struct gf_control_progress){0};
    row->report = (struct control_report){.waits_for = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    row->patience_ns = 0;
    row->answered = 0;
    row->heard_report_ns = row->calls_same = 0;
    row->pending &= ~(1u << CONTROL_LIST);
    if (!row->member) return;
    row->total = row->endpoint_total;
    row->member_process = row->process;
    row->rank = row->next_rank;
    gf_coordinator_hear(c, row);
    row->go_rank = row->go_at = 0;
    c->rank_ids[row->rank] = id;
    gf_coordinator_post(row, CONTROL_GO);
    gf_coordinator_post(row, CONTROL_WAITING);
}

void gf_coordinator_generation_begin(struct gf_coordinator *c)
{
    uint64_t list = CONTROL_LIST_START;
    common_state_choose(c);
    for (uint32_t rank = 0; rank < c->next_world; rank++)
        list = gf_frame_list_hash(list, c->next_ids[rank], c->rows[c->next_ids[rank]].process);
    for (uint32_t id = 0; id < c->setup.id_count; id++) row_leave(c, id);
    c->go.list_hash = c->list_hash = list;
    c->number = c->next;
    c->side = 1 - c->side;
    c->closed.rank = GF_RANK_NONE;
    c->patience = (struct control_patience){0};
    memset(c->calls, 0, sizeof c->calls);
    c->world = c->next_world;
    for (uint32_t id = 0; id < c->setup.id_count; id++) row_enter(c, id);
    c->error.code = GF_OK;
    gf_log_line(&c->setup.log, GF_LOG_INFO, "generation %u has begun with %u ranks", c->number,
                c->world);
    c->listing = false;
    gf_coordinator_enter(c, GF_COORDINATOR_RUN);
}
