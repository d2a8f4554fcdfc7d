/* Whose fault it is. The coordinator asks everybody where it is and which of its edges are broken,
 * and decides by evidence, in the order of README.md, "Whose fault". A process of which a kernel
 * has said that it has ended is found before anybody is asked (coordinator.c). */
#include "lib/control/coordinator_state.h"

#include <inttypes.h>
#include <stdio.h>

void gf_control_inquire(struct gf_coordinator *c, const struct gf_error *seen)
{
    if (c->state == GF_COORDINATOR_INQUIRE) return;
    c->inquiry++;
    c->seen = *seen;
    c->inquiry_ns = c->now_ns;
    gf_control_owe_members(c, CONTROL_ASK);
    gf_control_enter(c, GF_COORDINATOR_INQUIRE);
}

static bool has_answered(const struct gf_coordinator *c, const struct control_row *row)
{
    return row->answered == c->inquiry;
}

/* A member that can be waited for. */
static bool is_asked(const struct control_row *row)
{
    return control_is_member(row) && !row->ended && (row->said != CONTROL_SAID_BYE);
}

/* It would do the same harm again: its process ends, and does not come in again. */
static void control_cut(struct control_row *row)
{
    row->cut = true;
    row->banned = row->process;
}

/* ---- who has closed ---- */

/* It has said BYE, and others are in a step after that. */
static bool closed_find(const struct gf_coordinator *c, struct gf_error *error_out)
{
    if ((c->closed.rank == GF_RANK_NONE) || (c->closed.step > c->seen.step)) return false;
    error_out->code = GF_ERR_PEER;
    error_out->peer = c->closed.rank;
    (void)snprintf(error_out->text, sizeof error_out->text,
                   "rank %u closed after %" PRIu64 " steps, and others went on", c->closed.rank,
                   c->closed.step);
    return true;
}

/* ---- broken edges ---- */

static bool edge_is_told(const struct control_row *row, uint32_t peer)
{
    for (uint32_t i = 0; i < row->report.edges.count; i++)
        if (row->report.edges.peers[i] == peer) return true;
    return false;
}

/* Its edges count: it is neither cut, nor has it ended or closed. */
static bool has_edges(const struct control_row *row)
{
    return is_asked(row) && !row->cut;
}

/* Counts the broken edges of each rank; either end may say one. Returns a rank at the other end of
 * one of `of`. */
static uint32_t edges_count(struct gf_coordinator *c, uint32_t of)
{
    uint32_t other = GF_RANK_NONE;
    for (uint32_t a = 0; a < c->world; a++) c->rows[c->rank_ids[a]].edges = 0;
    for (uint32_t a = 0; a < c->world; a++) {
        struct control_row *row_a = &c->rows[c->rank_ids[a]];
        const struct control_edges *told = &row_a->report.edges;
        for (uint32_t i = 0; has_edges(row_a) && (i < told->count); i++) {
            uint32_t b = told->peers[i];
            if ((b >= c->world) || (b == a)) continue;
            struct control_row *row_b = &c->rows[c->rank_ids[b]];
            if (!has_edges(row_b) || ((b < a) && edge_is_told(row_b, a))) continue;
            if (a == of) other = b;
            if (b == of) other = a;
            row_a->edges++;
            row_b->edges++;
        }
    }
    return other;
}

static void edge_text(const struct gf_coordinator *c, uint32_t other, struct gf_error *error_out)
{
    error_out->code = GF_ERR_LINK;
    (void)snprintf(error_out->text, sizeof error_out->text,
                   "the connection between ranks %u and %u is broken: %.180s", other,
                   error_out->peer, c->seen.text);
}

/* Who has most broken edges, then the higher rank. Its edges go with it, until none is left. The
 * host of the coordinator can't be cut: if it has most of them the job ends. */
static bool edges_find(struct gf_coordinator *c, struct gf_error *error_out, bool *is_final_out)
{
    for (uint32_t cut = 0;; cut++) {
        uint32_t most = 0;
        uint32_t host_has = 0;
        uint32_t culprit = GF_RANK_NONE;
        (void)edges_count(c, GF_RANK_NONE);
        for (uint32_t a = 0; a < c->world; a++) {
            const struct control_row *row = &c->rows[c->rank_ids[a]];
            if (!control_may_be_cut(c, c->rank_ids[a])) host_has = row->edges;
            if ((row->edges == 0) || (row->edges < most)) continue;
            if (!control_may_be_cut(c, c->rank_ids[a])) continue;
            most = row->edges;
            culprit = a;
        }
        if (culprit == GF_RANK_NONE) return cut > 0;
        if (host_has > most) {
            error_out->peer = c->rows[c->setup.host_id].rank;
            edge_text(c, edges_count(c, error_out->peer), error_out);
            *is_final_out = true;
            return true;
        }
        if (cut == 0) {
            error_out->peer = culprit;
            edge_text(c, edges_count(c, culprit), error_out);
        }
        control_cut(&c->rows[c->rank_ids[culprit]]);
    }
}

/* ---- silence and lag ---- */

/* It does not answer, and nothing was heard of it for as long as an exchange may take. */
static bool silent_find(struct gf_coordinator *c, struct gf_error *error_out)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        uint64_t unheard_ns = c->now_ns - row->heard_ns;
        if (!is_asked(row) || has_answered(c, row) || (c->now_ns < row->patience_ns)) continue;
        /* nor does its connection come again */
        bool is_away = (row->connection == CONTROL_NONE);
        if (!is_away && (unheard_ns < c->terms.exchange_timeout_ns)) continue;
        if (!control_may_be_cut(c, c->rank_ids[rank])) continue;
        row->out = true;
        if (count++ > 0) continue;
        error_out->code = GF_ERR_TIMEOUT;
        error_out->peer = rank;
        (void)snprintf(error_out->text, sizeof error_out->text,
                       "rank %u does not answer: nothing was heard of it for %.1f s", rank,
                       (double)unheard_ns / 1e9);
    }
    return count > 0;
}

/* Of those that wait for nobody the one that is furthest behind, if another is further; or who does
 * not answer although it was heard of. */
static bool lag_find(struct gf_coordinator *c, struct gf_error *error_out)
{
    struct control_row *behind = NULL;
    uint64_t furthest = 0;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!is_asked(row) || (row->said == CONTROL_SAID_READY)) continue;
        if (has_answered(c, row) && (row->report.sequence > furthest))
            furthest = row->report.sequence;
        bool computes = !has_answered(c, row) || (row->report.waits_for == GF_RANK_NONE);
        if (!computes || (c->now_ns < row->patience_ns)) continue;
        if (!control_may_be_cut(c, c->rank_ids[rank])) continue;
        if ((behind == NULL) || (row->report.sequence < behind->report.sequence)) behind = row;
    }
    if ((behind == NULL) || (has_answered(c, behind) && (behind->report.sequence >= furthest)))
        return false;
    control_cut(behind);
    error_out->code = GF_ERR_TIMEOUT;
    error_out->peer = behind->rank;
    error_out->step = behind->report.step;
    (void)snprintf(error_out->text, sizeof error_out->text,
                   "rank %u is behind: it is in step %" PRIu64 " and waits for nobody (computing)",
                   behind->rank, behind->report.step);
    return true;
}

/* ---- calls ---- */

static bool has_called(const struct gf_coordinator *c, const struct control_row *row)
{
    return is_asked(row) && has_answered(c, row) && (row->report.calls != 0);
}

/* The lowest rank that has posted as many; NULL: this one has not answered. */
static const struct control_row *first_of(const struct gf_coordinator *c,
                                          const struct control_row *of)
{
    for (uint32_t rank = 0; has_called(c, of) && (rank < c->world); rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (has_called(c, row) && (row->report.calls == of->report.calls)) return row;
    }
    return NULL;
}

static bool calls_find(struct gf_coordinator *c, struct gf_error *error_out)
{
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        const struct control_row *first = first_of(c, row);
        if ((first == NULL) || (row->report.calls_hash == first->report.calls_hash)) continue;
        error_out->code = GF_ERR_MISMATCH;
        error_out->peer = rank;
        (void)snprintf(error_out->text, sizeof error_out->text,
                       "calls differ between ranks %u and %u, up to request %" PRIu64, first->rank,
                       rank, row->report.calls);
        return true;
    }
    return false;
}

/* Nobody is at fault that is known: all go on together, and the second time in one step the job
 * ends. */
static bool nobody_find(struct gf_coordinator *c, struct gf_error *error_out)
{
    bool again = (c->nobody_step == c->seen.step + 1);
    c->nobody_step = c->seen.step + 1;
    error_out->code = (c->seen.code < 0) ? c->seen.code : GF_ERR_TIMEOUT;
    (void)snprintf(error_out->text, sizeof error_out->text,
                   "the ranks waited for each other, and nobody is known to be at fault: %.150s",
                   c->seen.text);
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
    if (!closed_find(c, &error) && !edges_find(c, &error, &is_final) && !silent_find(c, &error) &&
        !lag_find(c, &error)) {
        is_final = calls_find(c, &error);
        if (!is_final) is_final = nobody_find(c, &error);
    }
    gf_control_decide(c, &error, is_final);
}

void gf_control_inquiry_poll(struct gf_coordinator *c)
{
    uint64_t age_ns = c->now_ns - c->inquiry_ns;
    uint64_t answer_ns = c->terms.exchange_timeout_ns / 4;
    bool all = true;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!is_asked(row) || has_answered(c, row)) continue;
        all = false;
        /* Its patience is awaited, but not for ever. */
        if ((c->now_ns < row->patience_ns) && (age_ns < c->terms.exchange_timeout_ns)) return;
        /* It was heard of, and dials again. */
        bool is_away = (row->connection == CONTROL_NONE) &&
                       (c->now_ns - row->heard_ns < c->terms.exchange_timeout_ns) &&
                       (c->now_ns - row->broke_ns < c->terms.keepalive_ns + CONTROL_BROKEN_NS);
        bool is_back = (row->connection != CONTROL_NONE) && (row->back_ns > c->inquiry_ns) &&
                       (c->now_ns - row->back_ns < answer_ns);
        if (is_away || is_back) return;
    }
    if (all || (age_ns >= answer_ns + answer_ns / 2)) decide(c);
}
