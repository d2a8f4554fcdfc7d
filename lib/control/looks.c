/* The coordinator looks longer before an inquiry ends without a culprit. It asks all members
 * again and again, for three quarters of exchange.timeout and for 1.5 s at least:
 *
 *     a link may know by then what it did not know before: TCP retransmits after 0.2, 0.6 and 1.4 s
 *     a rank that does not poll replies late each time; one that computes now and then does not
 *
 * A broken edge may be either end's. A host that loses several others tells of them one at a time,
 * as each has its own timeouts: then the next edge says whose they are. So where an edge's ends
 * have as many broken ones each, all ranks of an elastic job are asked again until no more has come
 * for 1.5 s.
 *
 * A reply counts whichever of the questions it is to, so that a rank far away is not late. */
#include "lib/control/coordinator_state.h"

#define LOOKS 24u
#define LOOKS_LATE 18u /* of them */
#define LOOKS_LAST 4u  /* once a link knows something: others may, a moment later */
#define LOOK_MIN_NS UINT64_C(1500000000)
#define LOOK_EDGES_NS UINT64_C(250000000) /* from one question for edges to the next */

void gf_control_looks_begin(struct gf_coordinator *c)
{
    c->looks = 0;
    c->look_ns = c->edges_ns = c->now_ns;
    c->edges_known = 0;
    c->inquiry_first = c->inquiry;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        row->late = 0;
        row->replied = true;
    }
}

static bool is_looked_at(const struct gf_coordinator *c, const struct control_row *row)
{
    return control_is_asked(row) && (row->said != CONTROL_SAID_READY) &&
           (row->connection != CONTROL_NONE) && (c->now_ns >= row->patience_ns);
}

bool gf_control_looks_on(struct gf_coordinator *c)
{
    uint64_t span_ns = c->terms.exchange_timeout_ns / 4 * 3;
    bool is_known = false;
    if (span_ns < LOOK_MIN_NS) span_ns = LOOK_MIN_NS;
    if (c->looks > LOOKS) return false; /* all are over, and counted */
    if ((c->looks > 0) && (c->now_ns - c->look_ns < span_ns / LOOKS)) return true;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (is_looked_at(c, row) && !row->replied) row->late++;
        row->replied = false;
        is_known = is_known || (row->report.edges.count > 0);
    }
    c->looks++;
    if (c->looks > LOOKS) return false;
    if (is_known && (c->looks < LOOKS - LOOKS_LAST)) c->looks = LOOKS - LOOKS_LAST;
    c->look_ns = c->now_ns;
    c->inquiry++;
    gf_control_owe_members(c, CONTROL_ASK);
    return true;
}

bool gf_control_edges_look(struct gf_coordinator *c)
{
    bool even = false;
    uint32_t known = gf_control_edges_known(c, &even);
    uint64_t most_ns = c->terms.exchange_timeout_ns;
    if (!c->terms.elastic || (c->world < 3))
        return false; /* nobody goes on, or it is the one edge */
    if (most_ns < 2 * LOOK_MIN_NS) most_ns = 2 * LOOK_MIN_NS;
    if (known > c->edges_known) c->edges_ns = c->now_ns;
    c->edges_known = known;
    if (!even || (c->now_ns - c->edges_ns >= LOOK_MIN_NS)) return false;
    if (c->now_ns - c->inquiry_ns >= most_ns) return false;
    if (c->now_ns - c->look_ns < LOOK_EDGES_NS) return true;
    c->look_ns = c->now_ns;
    c->inquiry++;
    gf_control_owe_members(c, CONTROL_ASK);
    return true;
}

struct control_row *gf_control_late(struct gf_coordinator *c)
{
    struct control_row *latest = NULL;
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!is_looked_at(c, row) || (row->late < LOOKS_LATE)) continue;
        count++;
        if (!control_may_be_cut(c, c->rank_ids[rank])) continue;
        if ((latest == NULL) || (row->late > latest->late)) latest = row;
    }
    return (count <= c->world / 2) ? latest : NULL;
}
