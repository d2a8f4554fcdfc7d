/* A coordinator that was begun anew takes the generation under way over from its processes, or ends
 * the job: README.md, rule 9. */
#include "lib/control/coordinator_state.h"

#include <stdio.h>

/* Before a takeover: somebody who is here was of a generation, so the job runs, and what is wrong
 * with a process that is of none ends that one alone. */
bool gf_coordinator_job_may_run(const struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        if (c->rows[id].waits && (c->rows[id].offer.standing.generation != 0)) return true;
    return false;
}

/* A process of another generation than the one under way waits once it is READY: it may still work,
 * and hears that it was left out. */
void gf_coordinator_left_out_tell(struct control_row *row)
{
    if (control_is_member(row) || (row->offer.standing.generation == 0)) return;
    row->waits = false;
    gf_coordinator_post(row, CONTROL_ERROR);
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
        bool is_known = (row->connection != CONTROL_NONE) || control_has_ended(row);
        if (!is_known || (standing->generation != of->generation)) continue;
        if ((standing->list_hash != of->list_hash) || (standing->rank != here)) continue;
        c->rank_ids[here++] = id;
        list = gf_frame_list_hash(list, id, row->process);
    }
    return (here == of->world) && (list == of->list_hash);
}

/* Somebody is READY after a failure that the others may not have heard of: another coordinator had
 * told it, or it is the first to be here again. */
void gf_coordinator_failure_check(struct gf_coordinator *c)
{
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!control_is_member(row) || (row->said != CONTROL_SAID_READY) || row->planned) continue;
        struct gf_error error = gf_coordinator_error(c, GF_ERR_PEER, GF_RANK_NONE);
        (void)snprintf(error.text, sizeof error.text, "rank %u begins a regroup after a failure",
                       row->rank);
        gf_coordinator_decide(c, &error, false);
        return;
    }
}

static void take_over(struct gf_coordinator *c, const struct control_standing *of)
{
    c->number = of->generation;
    c->world = of->world;
    c->list_hash = of->list_hash;
    c->go = (struct control_go){.number = c->number, .list_hash = c->list_hash};
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        row->member = true;
        row->waits = false;
        row->member_process = row->process;
        row->rank = rank;
    }
    gf_log_line(&c->setup.log, GF_LOG_INFO, "generation %u of %u ranks was taken over", c->number,
                c->world);
    gf_coordinator_enter(c, GF_COORDINATOR_RUN);
    gf_coordinator_failure_check(c);
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        if (c->rows[id].said != CONTROL_SAID_READY)
            gf_coordinator_left_out_tell(&c->rows[id]); /* else it waits */
    bool is_fault_of_this =
        c->is_fault_pending && (c->seen_in == c->number) && (c->seen_by < c->world);
    if (is_fault_of_this && (c->state == GF_COORDINATOR_RUN))
        gf_coordinator_inquire(c, c->seen_by, &c->seen);
    /* Who had closed before said so to this coordinator, which could not tell it yet. */
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (control_is_member(row) && row->closes) gf_coordinator_closed_tell(c, row);
    }
}

/* With this offer, is its generation whole? A process that names a later one was let into it, and
 * no member of this one was: it has no weights of its own yet, so it comes in as one that waits. */
void gf_coordinator_takeover_try(struct gf_coordinator *c, const struct control_row *row)
{
    const struct control_standing standing = row->offer.standing;
    if ((standing.generation != 0) && is_complete(c, &standing)) take_over(c, &standing);
}

/* ---- the deadline ---- */

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
bool gf_coordinator_end_takeover(struct gf_coordinator *c)
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
    gf_coordinator_end_job(c, GF_ERR_PEER, lowest, text);
    return true;
}
