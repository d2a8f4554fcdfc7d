/* Whose fault it is. The coordinator asks everybody where it is and which of its edges are broken,
 * and decides by evidence, in the order of README.md, "Whose fault". A process of which a kernel has
 * said that it has ended is found before anybody is asked (coordinator.c). */
#include "lib/control/coordinator_state.h"

#include <inttypes.h>
#include <stdio.h>

void control_inquire(struct gf_coordinator *c, const struct gf_error *seen)
{
    if (c->state == GF_COORDINATOR_INQUIRE) return;
    c->inquiry++;
    c->seen = *seen;
    c->inquiry_ns = c->now_ns;
    control_owe_members(c, CONTROL_ASK);
    control_enter(c, GF_COORDINATOR_INQUIRE);
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

/* ---- broken edges ---- */

static bool edge_is_told(const struct control_row *row, uint32_t peer)
{
    for (uint32_t i = 0; i < row->report.edges.count; i++)
        if (row->report.edges.peers[i] == peer) return true;
    return false;
}

/* Either end says that the edge between two ranks, neither of them cut, is broken. */
static bool edge_is_broken(const struct gf_coordinator *c, uint32_t a, uint32_t b)
{
    const struct control_row *row_a = &c->rows[c->rank_ids[a]];
    const struct control_row *row_b = &c->rows[c->rank_ids[b]];
    if ((a == b) || row_a->cut || row_b->cut) return false;
    if (control_has_died(row_a) || control_has_died(row_b)) return false;
    return edge_is_told(row_a, b) || edge_is_told(row_b, a);
}

/* Who has most broken edges, then the higher rank; never the host of the coordinator. Its edges go
 * with it, until none is left. */
static bool edges_find(struct gf_coordinator *c, struct gf_error *error_out)
{
    uint32_t cut = 0;
    uint32_t other = GF_RANK_NONE;
    while (cut + 1 < c->world) {
        uint32_t most = 0;
        uint32_t culprit = GF_RANK_NONE;
        for (uint32_t a = 0; a < c->world; a++) {
            uint32_t count = 0;
            for (uint32_t b = 0; b < c->world; b++) count += edge_is_broken(c, a, b) ? 1u : 0u;
            if ((count == 0) || (count < most) || !control_may_be_cut(c, c->rank_ids[a])) continue;
            most = count;
            culprit = a;
        }
        if (culprit == GF_RANK_NONE) break;
        for (uint32_t b = 0; (cut == 0) && (b < c->world); b++)
            if (edge_is_broken(c, culprit, b)) other = b;
        if (cut == 0) error_out->peer = culprit;
        c->rows[c->rank_ids[culprit]].cut = true;
        cut++;
    }
    if (cut == 0) return false;
    error_out->code = GF_ERR_LINK;
    (void)snprintf(error_out->text, sizeof error_out->text,
                   "the connection between ranks %u and %u is broken: %.180s", other,
                   error_out->peer, c->seen.text);
    return true;
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
        if (unheard_ns < c->terms.exchange_timeout_ns) continue;
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
    behind->cut = true;
    error_out->code = GF_ERR_TIMEOUT;
    error_out->peer = behind->rank;
    error_out->step = behind->report.step;
    (void)snprintf(error_out->text, sizeof error_out->text,
                   "rank %u is behind: it is in step %" PRIu64 " and waits for nobody (computing)",
                   behind->rank, behind->report.step);
    return true;
}

/* ---- calls ---- */

static bool calls_find(struct gf_coordinator *c, struct gf_error *error_out)
{
    const struct control_row *first = NULL;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!is_asked(row) || !has_answered(c, row) || (row->report.calls == 0)) continue;
        if (first == NULL) first = row;
        if ((row->report.calls != first->report.calls) ||
            (row->report.calls_hash == first->report.calls_hash))
            continue;
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
    if (!edges_find(c, &error) && !silent_find(c, &error) && !lag_find(c, &error)) {
        is_final = calls_find(c, &error);
        if (!is_final) is_final = nobody_find(c, &error);
    }
    control_decide(c, &error, is_final);
}

void control_inquiry_poll(struct gf_coordinator *c)
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
    }
    if (all || (age_ns >= answer_ns + answer_ns / 2)) decide(c);
}
