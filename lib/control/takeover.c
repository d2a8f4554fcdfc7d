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

/* The process of this row that was in that generation is connected, or has ended since it said so
 * to this coordinator: then it has begun no later one. */
static bool is_accounted_for(const struct control_row *row, uint32_t generation)
{
    bool has_ended = control_has_ended(row) || (row->process != row->member_process);
    return (row->stood.generation == generation) &&
           ((row->connection != CONTROL_NONE) || has_ended);
}

/* Is each process of the generation of this standing accounted for, and has said the same? Then
 * rank_ids[] has them. */
static bool is_complete(struct gf_coordinator *c, const struct control_standing *of)
{
    uint32_t here = 0;
    uint64_t list = CONTROL_LIST_START;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        if (!is_accounted_for(row, of->generation)) continue;
        if ((row->stood.list_hash != of->list_hash) || (row->stood.rank != here)) continue;
        c->rank_ids[here++] = id;
        list = gf_frame_list_hash(list, id, row->member_process);
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

/* After a takeover: who waits is told that it is of no generation, or that it has closed well. */
static void others_tell(struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        bool is_same = (row->process == row->member_process); /* else that one has ended */
        if (!row->member && !is_same) row->said = CONTROL_SAID_NOTHING;
        if (!row->member && (row->said == CONTROL_SAID_BYE)) { /* nobody waits for it */
            row->said = CONTROL_SAID_NOTHING;
            row->waits = false;
            gf_coordinator_post(row, CONTROL_ALL_GONE);
        } else if (!is_same || (row->said != CONTROL_SAID_READY)) {
            gf_coordinator_left_out_tell(row); /* else it waits */
        }
        if (row->connection == CONTROL_NONE) row->waits = false; /* it was on that list */
    }
}

/* What members said before the takeover is looked at now. Of their FAULTs the last one is known,
 * unless a process of another generation has said one after it. */
static void faults_hear(struct gf_coordinator *c)
{
    const struct control_row *by = NULL;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        bool is_last = (c->seen_in == c->number) && (c->seen_by == rank);
        if (control_is_member(row) && (row->failed != 0) && ((by == NULL) || is_last)) by = row;
    }
    if ((by == NULL) || (c->state != GF_COORDINATOR_RUN)) return;
    struct gf_error seen = c->seen;
    if ((c->seen_in != c->number) || (c->seen_by != by->rank)) {
        seen = gf_coordinator_error(c, GF_ERR_TIMEOUT, GF_RANK_NONE);
        seen.step = by->failed - 1;
        (void)snprintf(seen.text, sizeof seen.text,
                       "it failed before the coordinator was begun anew");
    }
    gf_coordinator_inquire(c, by->rank, &seen);
}

static void take_over(struct gf_coordinator *c, const struct control_standing *of)
{
    c->number = of->generation;
    c->world = of->world;
    c->list_hash = of->list_hash;
    c->go = (struct control_go){.number = c->number, .list_hash = c->list_hash};
    c->listing = false; /* of a job that was to begin: a member came after it was made */
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        row->member = true;
        row->rank = rank;
        if (control_is_member(row)) row->waits = false; /* else another process has come since */
    }
    gf_log_line(&c->setup.log, GF_LOG_INFO, "generation %u of %u ranks was taken over", c->number,
                c->world);
    gf_coordinator_enter(c, GF_COORDINATOR_RUN);
    gf_coordinator_failure_check(c);
    others_tell(c);
    faults_hear(c);
    /* Who had closed before said so to this coordinator, which could not tell it yet. */
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (row->closes) gf_coordinator_closed_tell(c, row);
    }
}

/* Is the generation of somebody who waits here whole? More than an offer may make it so: a process
 * of it has ended, or counts as ended, or another one has come in its place. A process that names a
 * later one was let into it, and no member of this one was: it has no weights of its own yet, so it
 * comes in as one that waits. */
bool gf_coordinator_takeover_try(struct gf_coordinator *c)
{
    struct control_standing of = {0};
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        const struct control_standing *stood = &row->stood;
        bool is_tried = (stood->generation == of.generation) && (stood->list_hash == of.list_hash);
        if (!row->waits || !control_is_same(c, row) || (stood->generation == 0) || is_tried)
            continue;
        of = *stood;
        if (!is_complete(c, &of)) continue;
        take_over(c, &of);
        return true;
    }
    return false;
}

/* ---- the deadline ---- */

static bool is_rank_accounted_for(const struct gf_coordinator *c, uint32_t generation,
                                  uint32_t rank)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        if (is_accounted_for(&c->rows[id], generation) && (c->rows[id].stood.rank == rank))
            return true;
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

/* Where a process stands that waits: in the generation that most of them are of, and the first of
 * those. A process alone may name a later one, which it was let into as the coordinator ended. */
static struct control_standing standing_choose(const struct gf_coordinator *c)
{
    struct control_standing of = {0};
    uint32_t most = 0;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        uint32_t count = row->waits ? standing_count(c, row->offer.standing.generation) : 0;
        if ((count < most) || (count == 0)) continue;
        if ((count == most) && (row->offer.standing.generation >= of.generation)) continue;
        most = count;
        of = row->offer.standing;
    }
    return of;
}

/* One that was begun anew can't know who has ended meanwhile: it takes a generation over from all
 * of its processes, or ends the job. */
bool gf_coordinator_end_takeover(struct gf_coordinator *c)
{
    char text[240];
    char why[120];
    uint32_t missing = 0;
    uint32_t lowest = GF_RANK_NONE;
    const struct control_standing of = standing_choose(c);
    const double waited_s = (double)c->terms.join_timeout_ns / 1e9;
    if (of.generation == 0) return false;
    for (uint32_t rank = of.world; rank-- > 0;) {
        if (is_rank_accounted_for(c, of.generation, rank)) continue;
        lowest = rank;
        missing++;
    }
    if (missing > 0)
        (void)snprintf(
            why, sizeof why,
            "not connected after %.1f s: %u of the %u ranks of generation %u, rank %u first",
            waited_s, missing, of.world, of.generation, lowest);
    else
        (void)snprintf(why, sizeof why,
                       "the %u ranks of generation %u do not say that it is of the same processes",
                       of.world, of.generation);
    (void)snprintf(text, sizeof text,
                   "the coordinator was begun anew and cannot know who has ended: %s. Begin the "
                   "job anew from its checkpoint",
                   why);
    gf_coordinator_end_job(c, GF_ERR_PEER, lowest, text);
    return true;
}
