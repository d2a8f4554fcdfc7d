/* Whose fault a failure is. The coordinator asks every member where it is and which of its edges
 * are broken, and decides by that evidence, in the order of README.md, "Whose fault". A process
 * whose kernel has said that it has ended is found before any member is asked (deaths.c). */
#include "lib/control/coordinator_state.h"

#include <inttypes.h>
#include <stdio.h>

void gf_coordinator_inquire(struct gf_coordinator *c, uint32_t by, const struct gf_error *seen)
{
    if (c->state == GF_COORDINATOR_INQUIRE) return;
    c->inquiry++;
    c->seen = *seen;
    c->seen_by = by;
    c->inquiry_ns = c->now_ns;
    gf_coordinator_rounds_begin(c);
    gf_coordinator_post_members(c, CONTROL_ASK);
    gf_coordinator_enter(c, GF_COORDINATOR_INQUIRE);
}

static bool has_answered(const struct gf_coordinator *c, const struct control_row *row)
{
    return row->answered >= c->inquiry_first;
}

/* It was asked and does not answer. It may compute, or be stopped, or its connection may have
 * broken without a word: no evidence tells these apart, so it may come in again. */
bool gf_coordinator_is_silent(const struct gf_coordinator *c, const struct control_row *row)
{
    return !has_answered(c, row) && (c->now_ns >= row->patience_ns);
}

/* ---- who has closed ---- */

/* It has said BYE, and others are in a step after that. */
static bool closed_find(const struct gf_coordinator *c, struct gf_error *error_out)
{
    char location[CONTROL_LOCATION_BYTES];
    const struct control_row *row = &c->rows[c->rank_ids[c->seen_by]];
    if ((c->closed.rank == GF_RANK_NONE) || (c->closed.step > c->seen.step)) return false;
    gf_coordinator_location(&row->report, location);
    error_out->code = GF_ERR_PEER;
    error_out->peer = c->closed.rank;
    (void)snprintf(error_out->text, sizeof error_out->text,
                   "rank %u closed its context after %" PRIu64 " steps, and rank %u is in %s",
                   c->closed.rank, c->closed.step, row->rank, location);
    return true;
}

/* ---- silence and lag ---- */

static void location_take(const struct control_row *row, struct gf_error *error_out)
{
    error_out->peer = row->rank;
    error_out->step = row->report.step;
    error_out->operation = (gf_operation)row->report.operation;
    error_out->tensor = row->report.tensor;
}

static void silent_text(const struct gf_coordinator *c, const struct control_row *row,
                        uint32_t count, struct gf_error *error_out)
{
    char location[CONTROL_LOCATION_BYTES] = "it has not said where";
    char others[40] = "";
    char started[CONTROL_STARTED_BYTES];
    if (row->heard_report_ns != 0) gf_coordinator_location(&row->report, location);
    if (count > 1) (void)snprintf(others, sizeof others, "; silent ranks: %u", count);
    error_out->code = GF_ERR_TIMEOUT;
    location_take(row, error_out);
    (void)snprintf(error_out->text, sizeof error_out->text,
                   "rank %u%s does not answer (asked %.1f s ago): it is stopped or does not poll; "
                   "last heard of %.1f s ago in %s%s",
                   row->rank, gf_coordinator_started(row, started),
                   (double)(c->now_ns - c->inquiry_ns) / 1e9,
                   (double)(c->now_ns - row->heard_ns) / 1e9, location, others);
}

static bool silent_find(struct gf_coordinator *c, struct gf_error *error_out)
{
    const struct control_row *first = NULL; /* silent longest; of equals the lowest */
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!control_is_active(row) || !gf_coordinator_is_silent(c, row)) continue;
        if (!control_may_be_cut(c, c->rank_ids[rank])) continue;
        row->out = true;
        count++;
        if ((first == NULL) || (row->heard_ns < first->heard_ns)) first = row;
    }
    if (first != NULL) silent_text(c, first, count, error_out);
    return first != NULL;
}

static void lag_text(const struct gf_coordinator *c, const struct control_row *row,
                     struct gf_error *error_out)
{
    char location[CONTROL_LOCATION_BYTES];
    char waits[64] = "computing";
    char started[CONTROL_STARTED_BYTES];
    gf_coordinator_location(&row->report, location);
    error_out->code = GF_ERR_TIMEOUT;
    location_take(row, error_out);
    if (c->closed.rank != GF_RANK_NONE)
        (void)snprintf(waits, sizeof waits, "it has not closed its context, rank %u has",
                       c->closed.rank);
    (void)snprintf(error_out->text, sizeof error_out->text,
                   "rank %u%s is behind in %s: %s; last moved %.1f s ago (rank %u asked)",
                   row->rank, gf_coordinator_started(row, started), location, waits,
                   (double)row->report.unmoved_ns / 1e9, c->seen_by);
}

/* Nobody was cut in this step before, either. */
static bool is_again(struct gf_coordinator *c)
{
    bool again = (c->nobody_step == c->seen.step + 1);
    c->nobody_step = c->seen.step + 1;
    return again;
}

/* It has waited for nobody while the others waited; who was let go on a moment ago has not. */
static bool has_computed(const struct gf_coordinator *c, const struct control_row *row)
{
    return row->report.free_ns >= c->terms.exchange_timeout_ns / 2;
}

/* Of those that computed the one that is furthest behind, if another is further. */
static bool lag_find(struct gf_coordinator *c, struct gf_error *error_out, bool *is_final_out)
{
    struct control_row *behind = NULL;
    uint64_t furthest = 0;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!control_is_at_work(row) || !has_answered(c, row)) continue;
        if (row->report.sequence > furthest) furthest = row->report.sequence;
        bool computes = has_computed(c, row);
        if (!computes || (c->now_ns < row->patience_ns)) continue;
        if ((behind == NULL) || (row->report.sequence < behind->report.sequence)) behind = row;
    }
    if ((behind == NULL) || (behind->report.sequence >= furthest)) return false;
    /* where the coordinator runs all go on with it once, as if nobody were at fault */
    if (control_may_be_cut(c, (uint32_t)(behind - c->rows)))
        control_cut(behind);
    else
        *is_final_out = is_again(c);
    lag_text(c, behind, error_out);
    return true;
}

/* It did not poll in nearly all of the time in which it was asked again and again. */
static bool slow_find(struct gf_coordinator *c, struct gf_error *error_out)
{
    struct control_row *late = gf_coordinator_slow_find(c);
    if (late == NULL) return false;
    control_cut(late);
    lag_text(c, late, error_out);
    return true;
}

/* ---- nobody ---- */

/* "0 for 1, 1 for 2": as far as it fits. */
static void waits_text(const struct gf_coordinator *c, char *text_out, size_t bytes)
{
    size_t used = 0;
    text_out[0] = '\0';
    for (uint32_t rank = 0; (rank < c->world) && (used + 24 < bytes); rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!control_is_active(row) || (row->report.waits_for == GF_RANK_NONE)) continue;
        used += (size_t)snprintf(text_out + used, bytes - used, "%s%u for %u",
                                 (used > 0) ? ", " : "", rank, row->report.waits_for);
    }
}

/* Nobody is at fault that is known: all go on together, and the second time in one step the job
 * ends. What a link saw, of no rank, is told as it is. */
static bool nobody_find(struct gf_coordinator *c, struct gf_error *error_out)
{
    char waits[120];
    bool again = is_again(c);
    error_out->code = (c->seen.code < 0) ? c->seen.code : GF_ERR_TIMEOUT;
    waits_text(c, waits, sizeof waits);
    if (error_out->code != GF_ERR_TIMEOUT)
        (void)snprintf(error_out->text, sizeof error_out->text, "rank %u: %.220s", c->seen_by,
                       c->seen.text);
    else
        (void)snprintf(error_out->text, sizeof error_out->text,
                       "ranks wait for each other%s, and no way is known to be cut (rank %u "
                       "asked; %s)",
                       again ? ", in this step for the second time" : "", c->seen_by, waits);
    return again;
}

/* ---- the decision ---- */

static void decide(struct gf_coordinator *c)
{
    struct gf_error error = {.peer = GF_RANK_NONE,
                             .operation = c->seen.operation,
                             .step = c->seen.step,
                             .tensor = c->seen.tensor};
    bool is_final = false;
    /* Calls that differ were found as they were told. */
    bool known = closed_find(c, &error) || gf_coordinator_shortage_find(c, &error, &is_final);
    if (!known && gf_coordinator_edges_pending(c)) return;
    if (!known && !gf_coordinator_edges_find(c, &error, &is_final) && !silent_find(c, &error) &&
        !lag_find(c, &error, &is_final)) {
        if ((c->inquiry_phase == CONTROL_INQUIRY_ASKED) && gf_coordinator_rounds_go_on(c)) return;
        if (!slow_find(c, &error)) is_final = nobody_find(c, &error);
    }
    gf_coordinator_decide(c, &error, is_final);
}

void gf_coordinator_inquiry_poll(struct gf_coordinator *c)
{
    uint64_t age_ns = c->now_ns - c->inquiry_ns;
    uint64_t answer_ns = c->terms.exchange_timeout_ns / 4;
    /* Whoever dials again and again does not keep all others waiting. */
    uint64_t most_ns = c->terms.exchange_timeout_ns + c->terms.keepalive_ns + CONTROL_BROKEN_NS;
    bool all = true;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!control_is_active(row) || has_answered(c, row)) continue;
        all = false;
        /* Its patience is awaited, but not for ever. */
        if ((c->now_ns < row->patience_ns) && (age_ns < c->terms.exchange_timeout_ns)) return;
        /* It was heard of, and dials again. */
        bool is_away = (row->connection == CONTROL_NONE) &&
                       (c->now_ns - row->heard_ns < c->terms.exchange_timeout_ns) &&
                       (c->now_ns - row->broke_ns < c->terms.keepalive_ns + CONTROL_BROKEN_NS);
        bool is_back = (row->connection != CONTROL_NONE) && (row->back_ns > c->inquiry_ns) &&
                       (c->now_ns - row->back_ns < answer_ns);
        if ((is_away || is_back) && (age_ns < most_ns)) return;
    }
    switch (c->inquiry_phase) {
    case CONTROL_INQUIRY_ASKED:
        if (all || (age_ns >= answer_ns + answer_ns / 2)) decide(c);
        break;
    case CONTROL_INQUIRY_ROUNDS:
        if (!gf_coordinator_rounds_go_on(c)) decide(c);
        break;
    case CONTROL_INQUIRY_OVER: decide(c); break;
    }
}
