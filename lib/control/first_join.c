/* The first join: all ranks that a job begins with are awaited, and the missing ones are named. */
#include "lib/control/coordinator_state.h"

#include <stdio.h>

/* All ranks are here, and nobody has been of a generation before. Others may live that dial this
 * coordinator, where a rank has come in place of a process that has ended, or ids from `world` on
 * may be those of a generation: they are awaited, from its begin on. */
bool gf_coordinator_first_is_whole(const struct gf_coordinator *c)
{
    const uint64_t away_ns = c->terms.keepalive_ns + CONTROL_BROKEN_NS;
    bool may_live = !c->setup.is_first && (c->setup.id_count > c->setup.world);
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        bool is_away = (row->process != 0) && !control_has_ended(row) &&
                       (row->connection == CONTROL_NONE) && (c->now_ns - row->broke_ns < away_ns);
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
    /* One whose connection broke may still wait, of a list that was given up. */
    bool is_away = !row->waits || (row->connection == CONTROL_NONE);
    return c->listing ? !control_endpoint_is_here(c, row) : is_away;
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

void gf_coordinator_end_first_join(struct gf_coordinator *c)
{
    char text[240];
    if (gf_coordinator_end_takeover(c)) return;
    char missing[100];
    char how[136] = "";
    uint32_t named = missing_text(c, missing, sizeof missing);
    const struct control_row *row = (named == GF_RANK_NONE) ? NULL : &c->rows[named];
    const char *address = c->setup.address;
    if ((row != NULL) && control_has_ended(row))
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
    gf_coordinator_end_job(c, GF_ERR_TIMEOUT, named, text);
}

/* Before the first generation a process has ended. An elastic job awaits the one that its launcher
 * may start in its place; another one ends, unless it runs: then that process was of none. */
bool gf_coordinator_end_if_first_died(struct gf_coordinator *c)
{
    if (gf_coordinator_job_may_run(c)) return false;
    for (uint32_t id = 0; id < c->setup.world; id++) {
        const struct control_row *row = &c->rows[id];
        char text[200];
        bool died = control_has_ended(row) && (row->process != 0);
        if (!died || (row->offer.standing.generation != 0) || row->offer.terms.elastic) continue;
        if (row->closes)
            (void)snprintf(text, sizeof text, "rank %u closed before all ranks had joined", id);
        else
            (void)snprintf(text, sizeof text, "rank %u died while ranks were joining: %.55s", id,
                           row->how);
        gf_coordinator_end_job(c, GF_ERR_PEER, id, text);
        return true;
    }
    return false;
}
