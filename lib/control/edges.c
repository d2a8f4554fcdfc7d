/* Broken edges between ranks, and which ranks must leave so that none is left. */
#include "lib/control/coordinator_state.h"

#include <stdio.h>

/* Its edges count: it is neither cut, nor has it ended, closed or fallen silent. Of a rank that
 * says nothing no edge is known to be broken: its host may be gone, and it may come in again. */
static bool has_edges(const struct gf_coordinator *c, const struct control_row *row)
{
    return control_is_awaited(row) && !gf_coordinator_is_silent(c, row);
}

static bool edge_is_reported(const struct control_row *row, uint32_t peer)
{
    for (uint32_t i = 0; i < row->report.edges.count; i++)
        if (row->report.edges.peers[i] == peer) return true;
    return false;
}

/* Counts the broken edges of each rank; either end may say one. Returns a rank at the other end of
 * one of `of`. */
static uint32_t edges_count(struct gf_coordinator *c, uint32_t of)
{
    uint32_t other = GF_RANK_NONE;
    for (uint32_t id = 0; id < c->setup.id_count; id++) c->rows[id].edges = 0; /* of all */
    for (uint32_t a = 0; a < c->world; a++) {
        struct control_row *row_a = &c->rows[c->rank_ids[a]];
        const struct control_edges *reported = &row_a->report.edges;
        for (uint32_t i = 0; has_edges(c, row_a) && (i < reported->count); i++) {
            uint32_t b = reported->peers[i];
            if ((b >= c->world) || (b == a)) continue;
            struct control_row *row_b = &c->rows[c->rank_ids[b]];
            if (!has_edges(c, row_b) || ((b < a) && edge_is_reported(row_b, a))) continue;
            if (a == of) other = b;
            if (b == of) other = a;
            row_a->edges++;
            row_b->edges++;
        }
    }
    return other;
}

uint32_t gf_coordinator_edges_known(struct gf_coordinator *c, bool *even_out)
{
    uint32_t ends = 0;
    *even_out = false;
    (void)edges_count(c, GF_RANK_NONE);
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        const struct control_edges *reported = &row->report.edges;
        ends += row->edges;
        for (uint32_t i = 0; has_edges(c, row) && (i < reported->count); i++) {
            if ((reported->peers[i] >= c->world) || (reported->peers[i] == rank)) continue;
            const struct control_row *peer = &c->rows[c->rank_ids[reported->peers[i]]];
            *even_out = *even_out || (has_edges(c, peer) && (peer->edges == row->edges));
        }
    }
    return ends / 2;
}

/* What a link said of an edge of this rank; of several the one with what the kernel says. */
static const struct control_row *reporter_of(const struct gf_coordinator *c, uint32_t culprit)
{
    const struct control_row *best = NULL;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        const struct control_edges *reported = &row->report.edges;
        bool is_of = (rank == culprit) || (reported->peer == culprit);
        if (!control_is_active(row) || !is_of || (reported->code == GF_OK)) continue;
        if ((best == NULL) ||
            ((best->report.edges.foreign_code == 0) && (reported->foreign_code != 0)))
            best = row;
    }
    return best;
}

/* A link's text names both ends; where it does not, the rank that said it. */
static void reported_take(const struct control_row *row, struct gf_error *error_out)
{
    const struct control_edges *reported = &row->report.edges;
    bool is_named = (strncmp(reported->text, "rank ", 5) == 0);
    error_out->code = reported->code;
    error_out->foreign_code = reported->foreign_code;
    memcpy(error_out->foreign_call, reported->foreign_call, sizeof error_out->foreign_call);
    if (is_named)
        (void)snprintf(error_out->text, sizeof error_out->text, "%s", reported->text);
    else
        (void)snprintf(error_out->text, sizeof error_out->text, "rank %u: %.220s", row->rank,
                       reported->text);
}

static void edge_text(const struct gf_coordinator *c, uint32_t other, struct gf_error *error_out)
{
    const struct control_row *reporter = reporter_of(c, error_out->peer);
    error_out->code = GF_ERR_LINK;
    if (reporter != NULL)
        reported_take(reporter, error_out);
    else
        (void)snprintf(error_out->text, sizeof error_out->text,
                       "the connection between ranks %u and %u is broken: %.150s", other,
                       error_out->peer, c->seen.text);
}

static void others_text(const struct gf_coordinator *c, uint32_t cut, struct gf_error *error)
{
    size_t used = strlen(error->text);
    char more[32] = "";
    char started[CONTROL_STARTED_BYTES];
    if (!c->terms.elastic) return; /* nobody goes on */
    if (cut > 1) (void)snprintf(more, sizeof more, " and %u more", cut - 1);
    (void)snprintf(error->text + used, sizeof error->text - used, "; rank %u%s%s is to go",
                   error->peer, gf_coordinator_started(&c->rows[c->rank_ids[error->peer]], started),
                   more);
}

/* A rank that lacks something itself, as descriptors, is the culprit, whatever the others see. */
bool gf_coordinator_shortage_find(struct gf_coordinator *c, struct gf_error *error_out,
                                  bool *is_final_out)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!has_edges(c, row) || (row->report.edges.code != GF_ERR_SYSTEM)) continue;
        bool is_host = !control_may_be_cut(c, c->rank_ids[rank]);
        if ((count++ == 0) || is_host) {
            error_out->peer = rank;
            reported_take(row, error_out);
        }
        if (is_host)
            *is_final_out = true;
        else
            control_cut(row);
    }
    return count > 0;
}

/* Nobody else was there before this generation: the weights would go with it. */
static bool is_last_of_old(const struct gf_coordinator *c, const struct control_row *row)
{
    if (row->comes_in) return false;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *other = &c->rows[c->rank_ids[rank]];
        if ((other != row) && has_edges(c, other) && !other->comes_in) return false;
    }
    return true;
}

/* Who has most broken edges, then who came in with this generation, then the higher rank. */
static bool is_cut_before(const struct control_row *row, const struct control_row *other)
{
    if (row->edges != other->edges) return row->edges > other->edges;
    if (row->comes_in != other->comes_in) return row->comes_in;
    return row->rank > other->rank;
}

static const struct control_row *culprit_of(const struct gf_coordinator *c)
{
    const struct control_row *culprit = NULL;
    for (uint32_t a = 0; a < c->world; a++) {
        const struct control_row *row = &c->rows[c->rank_ids[a]];
        if ((row->edges == 0) || !control_may_be_cut(c, c->rank_ids[a])) continue;
        if ((culprit != NULL) && !is_cut_before(row, culprit)) continue;
        if (!is_last_of_old(c, row)) culprit = row;
    }
    return culprit;
}

/* The edges of a culprit go with it, until none is left. The host of the coordinator can't be cut:
 * if it has most of them the job ends. */
bool gf_coordinator_edges_find(struct gf_coordinator *c, struct gf_error *error_out,
                               bool *is_final_out)
{
    for (uint32_t cut = 0;; cut++) {
        uint32_t host_has = 0;
        (void)edges_count(c, GF_RANK_NONE);
        const struct control_row *first = culprit_of(c);
        const uint32_t culprit = (first != NULL) ? first->rank : GF_RANK_NONE;
        const uint32_t most = (first != NULL) ? first->edges : 0;
        if (c->setup.host_id != GF_RANK_NONE) host_has = c->rows[c->setup.host_id].edges;
        if (culprit == GF_RANK_NONE) {
            if (cut > 0) others_text(c, cut, error_out);
            return cut > 0;
        }
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
