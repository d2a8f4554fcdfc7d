/* Processes that have ended, as far as the coordinator knows: by the end of a connection, by a
 * connection that was reset and is not dialled again, or by silence while all others close. */
#include "lib/control/coordinator_state.h"

#include <stdio.h>
#include <string.h>

/* What a poll finds may have come at any time since the poll before. */
void gf_coordinator_hear(const struct gf_coordinator *c, struct control_row *row)
{
    row->heard_ns = c->now_ns;
    row->came_ns = c->before_ns;
}

void gf_coordinator_lost(struct gf_coordinator *c, struct control_row *row)
{
    if (row->connection != CONTROL_NONE) c->connection_ids[row->connection] = CONTROL_NONE;
    row->connection = CONTROL_NONE;
    row->pending = 0;
    row->broke_ns = c->now_ns;
    row->quiet_ns = c->kernel_ns - row->came_ns;
    if (row->waits) row->waits = !control_has_ended(row) && control_is_listed(c, row);
}

/* ---- connections that were reset ---- */

/* How long one whose connection was reset may take to dial again. Who polls has dialled by
 * CONTROL_RESET_NS, as its tries are 1.6 s apart at most. A kernel gives a connection up after
 * `keepalive` without a word: where nothing was heard for so long, its process may live and
 * compute, and it dials once it polls. A reset sooner than that is of a process that has ended, or
 * polls. Time in which the coordinator was not polled counts here: for that kernel it went on. */
static uint64_t reset_ns(const struct gf_coordinator *c, const struct control_row *row)
{
    bool is_of_one = control_has_begun(c) || (row->stood.generation != 0);
    bool may_compute = control_is_same(c, row) && is_of_one && (row->said < CONTROL_SAID_READY) &&
                       (row->quiet_ns >= c->terms.keepalive_ns);
    bool is_longer = may_compute && (c->terms.exchange_timeout_ns > CONTROL_RESET_NS);
    return is_longer ? c->terms.exchange_timeout_ns : CONTROL_RESET_NS;
}

/* Who lives dials again. Who comes after that was left out, as one that was silent. */
void gf_coordinator_resets_check(struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        char name[CONTROL_NAME_BYTES];
        if (row->process_state != CONTROL_PROCESS_RESET) continue;
        if (c->now_ns - row->broke_ns < reset_ns(c, row)) continue;
        row->process_state = CONTROL_PROCESS_PRESUMED;
        row->waits = false;
        if (row->said != CONTROL_SAID_BYE)
            gf_log_line(&c->setup.log, GF_LOG_INFO,
                        "%s counts as ended: its connection was reset, and it did not dial "
                        "again within %.1f s",
                        gf_coordinator_name(row, name), (double)reset_ns(c, row) / 1e9);
    }
}

/* ---- members that have ended ---- */

/* A process of the generation has ended: nothing needs to be asked. */
bool gf_coordinator_deaths_check(struct gf_coordinator *c)
{
    struct gf_error error = gf_coordinator_error(c, GF_ERR_PEER, GF_RANK_NONE);
    uint32_t count = 0;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        bool may_live = control_is_presumed(row);
        if (control_row_state_of(row) != CONTROL_ROW_DIED) continue;
        if (may_live)
            row->out = true;
        else
            row->cut = true;
        if (count++ > 0) continue;
        error.peer = row->rank;
        gf_coordinator_loss_describe(c, row,
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
    gf_coordinator_decide(c, &error, false);
    return true;
}

/* Who has closed waits for the others: the host of the coordinator also for those of generations
 * that began after it closed. Where none of them says anything they are not waited for: each is
 * stopped, or computes for longer than an exchange may take and needs nobody. */
void gf_coordinator_silent_leave(struct gf_coordinator *c)
{
    uint64_t most_ns = c->terms.exchange_timeout_ns;
    if (most_ns < CONTROL_SILENCE_NS) most_ns = CONTROL_SILENCE_NS;
    if (gf_coordinator_closed(c, 0, c->setup.id_count) == 0) return;
    for (uint32_t cuts = 0; cuts < 2; cuts++) /* first: is it so of all of them? */
        for (uint32_t rank = 0; rank < c->world; rank++) {
            struct control_row *row = &c->rows[c->rank_ids[rank]];
            char name[CONTROL_NAME_BYTES];
            if (!control_is_awaited(row)) continue;
            bool silent = (c->now_ns - row->heard_ns >= most_ns) && (c->now_ns >= row->patience_ns);
            if (!silent) return;
            if (cuts == 0) continue;
            row->cut = true;
            gf_log_line(&c->setup.log, GF_LOG_WARN,
                        "%s has not closed and says nothing, for %.1f s: all others have "
                        "closed, and do not wait for it",
                        gf_coordinator_name(row, name), (double)(c->now_ns - row->heard_ns) / 1e9);
        }
}
