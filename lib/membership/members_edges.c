/* What the answers to an inquiry show: messages that were sent and did not come, or a rank that
 * others wait for and that waits for nobody (lib/DESIGN.md). */
#include "lib/membership/members_state.h"

#define EDGES_MAX 128u /* what more there are says nothing new */

struct edge {
    uint32_t from, to;
    uint64_t quiet_ns;
};
struct edges {
    uint32_t count;
    struct edge list[EDGES_MAX];
    /* ranks of which somebody has lacked for long a message that they sent not so long ago */
    bool are_young;
    unsigned char young[GF_WORLD_MAX / 8];
};

static const struct gf_waits *waits_of(const struct gf_members *members, uint32_t rank)
{
    return &gf_members_of(members, rank)->said.waits;
}

/* Has it answered, and is it still there? */
static bool has_said(const struct gf_members *members, uint32_t rank)
{
    const struct member *member = gf_members_of(members, rank);
    if (rank == members->setup.rank) return true;
    return gf_member_is_here(member) && (member->said.answered == members->inquiry);
}

/* NULL: it has ended the operation, or has not begun it. */
static const struct gf_wait *row_of(const struct gf_waits *waits, uint64_t order)
{
    for (uint32_t i = 0; i < waits->count; i++)
        if (waits->rows[i].order == order) return &waits->rows[i];
    return NULL;
}

static bool row_waits(const struct gf_wait *row)
{
    return (row->from != GF_RANK_NONE) || (row->to != GF_RANK_NONE) ||
           (row->memory != GF_RANK_NONE);
}

static bool waits_for_somebody(const struct gf_waits *waits)
{
    for (uint32_t i = 0; i < waits->count; i++)
        if (row_waits(&waits->rows[i])) return true;
    return false;
}

/* ---- a rank that lags ---- */

bool gf_members_has_left(const struct gf_members *members, uint32_t rank)
{
    if (rank == members->setup.rank) return members->leaving;
    return gf_members_of(members, rank)->leaves;
}

/* A rank that was not heard of for long goes before one that lags, and that before one that may only
 * be busy. */
static uint32_t weight_of(const struct gf_members *members, members_cause cause, uint32_t rank)
{
    if (cause == MEMBERS_LAG) return 2;
    if (cause != MEMBERS_SILENT) return 0;
    return gf_members_is_unheard(members, rank) ? 3 : 1;
}

/* Has a begun less than b, or of equals, does it alone wait for nobody? */
static bool is_behind(const struct gf_position *a, const struct gf_position *b)
{
    if (a->step != b->step) return a->step < b->step;
    if (a->sequence != b->sequence) return a->sequence < b->sequence;
    return (a->waits_for == GF_RANK_NONE) && (b->waits_for != GF_RANK_NONE);
}

/* Of equals the one furthest behind. */
static void culprit_note(const struct gf_members *members, members_cause cause, uint32_t rank,
                         struct members_finding *found)
{
    uint32_t weight = weight_of(members, cause, rank);
    uint32_t most = weight_of(members, found->cause, found->culprit);
    if ((weight < most) ||
        ((weight == most) &&
         !is_behind(&gf_members_of(members, rank)->said.told.position,
                    &gf_members_of(members, found->culprit)->said.told.position)))
        return;
    found->cause = cause;
    found->culprit = rank;
}

#define SLEPT_NS UINT64_C(250000000) /* a rank that waits may sleep, on a core that is shared */

/* It did not poll for longer than a connection may be quiet. */
static bool was_away(const struct gf_members *members, uint32_t rank)
{
    uint64_t gap_ns = gf_members_of(members, rank)->said.told.position.unpolled_ns;
    return (gap_ns >= SLEPT_NS) && (gap_ns >= members->setup.grace_ns);
}

/* It has moved nothing of what others wait for as long; else it may just have got what it waited for
 * itself. */
static bool is_still(const struct gf_members *members, uint32_t rank, const struct gf_wait *own)
{
    uint64_t still_ns = (own != NULL) ? own->still_ns : waits_of(members, rank)->still_ns;
    return (still_ns >= members->setup.grace_ns) || was_away(members, rank);
}

/* `row` waits for what `rank` has not done of an operation: if it waits for nobody, it lags. One that
 * does not answer may only compute: it is awaited for long, or not named. */
static void follow(const struct gf_members *members, uint32_t rank, const struct gf_wait *row,
                   struct members_finding *found)
{
    const struct gf_waits *waits = waits_of(members, rank);
    const struct gf_wait *own = row_of(waits, row->order);
    bool has_ended = (row->order < waits->taken) && (own == NULL);
    if (has_said(members, rank)) {
        if (!has_ended && !waits_for_somebody(waits) && is_still(members, rank, own))
            culprit_note(members, MEMBERS_LAG, rank, found);
    } else if (gf_members_has_left(members, rank)) {
        culprit_note(members, MEMBERS_LAG, rank, found);
    } else if (gf_members_is_silent(members, rank) && (row->still_ns >= members->setup.grace_ns)) {
        culprit_note(members, MEMBERS_SILENT, rank, found);
    }
}

/* Who did not poll for longest of late, and longer than a connection may be quiet: what it had posted
 * it may not have sent. Where it is known whose message is lacked, it is one of those. */
static void unpolled_find(const struct gf_members *members, const struct edges *edges,
                          struct members_finding *found)
{
    uint64_t longest_ns = 0;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        uint64_t gap_ns = gf_members_of(members, rank)->said.told.position.unpolled_ns;
        if (!has_said(members, rank) || !was_away(members, rank) || (gap_ns <= longest_ns) ||
            (edges->are_young && !gf_view_has(edges->young, rank)))
            continue;
        longest_ns = gap_ns;
        *found = (struct members_finding){.cause = MEMBERS_LAG, .culprit = rank};
    }
}

/* ---- broken edges ---- */

/* What became of a message at the rank that is to send it. */
typedef enum sending { NOT_SENT, SENT_NOW, SENT_LONG_AGO } sending;

/* Long ago: for `grace` before it failed, if it has, and before the moment of which the row of the
 * rank that lacks it is. That was at the question or later, or `age_ns` before its answer, so not
 * longer before the question; and the sender's answer was here `answer_ns` after the question, or
 * given earlier. */
static sending sending_of(const struct gf_members *members, uint32_t rank, uint64_t order,
                          uint64_t place, uint64_t age_ns)
{
    const struct gf_waits *waits = waits_of(members, rank);
    const struct gf_wait *row = row_of(waits, order);
    uint64_t still_ns = (row != NULL) ? row->still_ns : waits->still_ns;
    uint64_t grace_ns = members->setup.grace_ns;
    uint64_t least_ns = grace_ns + gf_members_of(members, rank)->said.answer_ns + age_ns;
    if ((row != NULL) ? (row->posted <= place) : (order >= waits->taken)) return NOT_SENT;
    bool is_long = (still_ns >= grace_ns) && (still_ns + waits->age_ns >= least_ns);
    return is_long ? SENT_LONG_AGO : SENT_NOW;
}

/* Something comes to a rank that has waited for long: the network is slow, and what does not come at
 * all may be kept by what does. */
static bool network_is_slow(const struct gf_members *members)
{
    uint64_t grace_ns = members->setup.grace_ns;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        const struct gf_waits *waits = waits_of(members, rank);
        if (!has_said(members, rank) || (waits->quiet_ns >= grace_ns)) continue;
        for (uint32_t i = 0; i < waits->count; i++)
            if ((waits->rows[i].from != GF_RANK_NONE) && (waits->rows[i].still_ns >= grace_ns))
                return true;
    }
    return false;
}

/* Each connection once. */
static void edge_add(struct edges *edges, uint32_t from, uint32_t to, uint64_t quiet_ns)
{
    for (uint32_t i = 0; i < edges->count; i++) {
        const struct edge *edge = &edges->list[i];
        if ((edge->from == from) && (edge->to == to)) return;
        if ((edge->from == to) && (edge->to == from)) return;
    }
    if (edges->count < EDGES_MAX) edges->list[edges->count++] = (struct edge){from, to, quiet_ns};
}

static void edge_note(struct edges *edges, sending sent, uint32_t from, uint32_t to,
                      uint64_t quiet_ns)
{
    if (sent == SENT_LONG_AGO) {
        edge_add(edges, from, to, quiet_ns);
        return;
    }
    edges->are_young = true;
    gf_view_add(edges->young, from);
}

static uint32_t edges_of(const struct edges *edges, uint32_t rank)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < edges->count; i++)
        count += (edges->list[i].from == rank) || (edges->list[i].to == rank);
    return count;
}

/* Whoever has most edges; of equals not the coordinator, then the higher one. */
static const struct edge *edges_most(const struct edges *edges, uint32_t *rank_out)
{
    const struct edge *found = NULL;
    uint32_t most = 0;
    *rank_out = 0;
    for (uint32_t i = 0; i < 2 * edges->count; i++) {
        const struct edge *edge = &edges->list[i / 2];
        uint32_t rank = (i % 2 == 0) ? edge->from : edge->to;
        uint32_t count = edges_of(edges, rank);
        if ((count < most) || ((count == most) && (rank <= *rank_out))) continue;
        most = count;
        *rank_out = rank;
        found = edge;
    }
    return found;
}

/* A greedy cover: without the ranks of it no edge is left. The first of them is named. */
static void edges_cover(struct edges *edges, struct members_finding *found)
{
    struct members_cut cut = {.count = 0};
    uint32_t all = edges->count;
    while ((edges->count > 0) && (cut.count < MEMBERS_CUT_MAX)) {
        uint32_t rank;
        uint32_t left = 0;
        const struct edge edge = *edges_most(edges, &rank);
        if (cut.count == 0)
            *found = (struct members_finding){.cause = MEMBERS_EDGE,
                                              .culprit = rank,
                                              .from = edge.from,
                                              .to = edge.to,
                                              .edges = all,
                                              .quiet_ns = edge.quiet_ns};
        cut.ranks[cut.count++] = (uint16_t)rank;
        for (uint32_t i = 0; i < edges->count; i++)
            if ((edges->list[i].from != rank) && (edges->list[i].to != rank))
                edges->list[left++] = edges->list[i];
        edges->count = left;
    }
    found->cut = cut;
}

bool gf_members_may_send(const struct gf_members *members, uint32_t rank)
{
    const struct gf_waits *waits = waits_of(members, rank);
    for (uint32_t i = 0; i < waits->count; i++)
        if ((waits->rows[i].to != GF_RANK_NONE) && !has_said(members, waits->rows[i].to))
            return true;
    return false;
}

/* ---- all together ---- */

static void row_look(const struct gf_members *members, uint32_t rank, const struct gf_wait *row,
                     struct edges *edges, struct members_finding *found)
{
    if (found->cause == MEMBERS_NO_CAUSE) found->cause = MEMBERS_NOBODY;
    if ((row->from != GF_RANK_NONE) && !has_said(members, row->from)) {
        follow(members, row->from, row, found);
    } else if (row->from != GF_RANK_NONE) {
        const struct gf_waits *waits = waits_of(members, rank);
        sending sent = sending_of(members, row->from, row->order, row->lacked, waits->age_ns);
        if (sent == NOT_SENT)
            follow(members, row->from, row, found);
        else if (row->still_ns >= members->setup.grace_ns)
            edge_note(edges, sent, row->from, rank, waits->quiet_ns);
    }
    if (row->to != GF_RANK_NONE) follow(members, row->to, row, found);
    if (row->memory != GF_RANK_NONE) follow(members, row->memory, row, found);
}

/* Rank 0 has closed its context, and waits for those that have not. */
static void closing_look(const struct gf_members *members, struct members_finding *found)
{
    const struct gf_wait closes = {.order = UINT64_MAX, .still_ns = UINT64_MAX};
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        if (!gf_members_here(members, rank) || gf_members_has_left(members, rank)) continue;
        if (found->cause == MEMBERS_NO_CAUSE) found->cause = MEMBERS_NOBODY;
        follow(members, rank, &closes, found);
    }
}

struct members_finding gf_members_find(const struct gf_members *members)
{
    struct members_finding found = {.cause = MEMBERS_NO_CAUSE};
    struct edges edges;
    edges.count = 0;
    edges.are_young = false;
    memset(edges.young, 0, sizeof edges.young);
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        const struct gf_waits *waits = waits_of(members, rank);
        if (!has_said(members, rank)) continue;
        for (uint32_t i = 0; i < waits->count; i++)
            if (row_waits(&waits->rows[i]))
                row_look(members, rank, &waits->rows[i], &edges, &found);
    }
    if (members->leaving && members_coordinates(members)) closing_look(members, &found);
    if (network_is_slow(members)) return found;
    if (edges.count > 0) edges_cover(&edges, &found);
    if (found.cause == MEMBERS_NOBODY) unpolled_find(members, &edges, &found);
    return found;
}

/* ---- connections that could not be made ---- */

static void apart_look(const struct gf_members *members, uint32_t rank, struct edges *edges,
                       struct members_finding *found)
{
    const struct gf_unreached *unreached = &waits_of(members, rank)->unreached;
    for (uint32_t peer = 0; peer < members->setup.world; peer++) {
        if (!gf_view_has(unreached->ranks, peer) || !has_said(members, peer)) continue;
        if (was_away(members, peer))
            culprit_note(members, MEMBERS_LAG, peer, found);
        else if (!was_away(members, rank))
            edge_add(edges, rank, peer, 0);
    }
}

/* Who lacks descriptors, memory or rights can make no connection and take none: it goes before its
 * edges. A peer that does not answer is no end of an edge: it is silent. */
struct members_finding gf_members_find_apart(const struct gf_members *members)
{
    struct members_finding found = {.cause = MEMBERS_NO_CAUSE};
    struct edges edges;
    edges.count = 0;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        if (!has_said(members, rank)) continue;
        if (waits_of(members, rank)->unreached.code == GF_ERR_SYSTEM)
            return (struct members_finding){.cause = MEMBERS_LACKS, .culprit = rank};
        apart_look(members, rank, &edges, &found);
    }
    if (edges.count == 0) return found;
    edges_cover(&edges, &found);
    found.cause = MEMBERS_APART;
    return found;
}
