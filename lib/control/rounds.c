/* Before an inquiry ends without a culprit the coordinator asks all members in further rounds, for
 * three quarters of exchange.timeout and for 1.5 s at least:
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

#define ROUNDS 24u
#define ROUNDS_SLOW 18u /* of them */
#define ROUNDS_LAST 4u  /* once a link knows something: others may, a moment later */
#define ROUNDS_MIN_NS UINT64_C(1500000000)
#define ROUND_EDGES_NS UINT64_C(250000000) /* from one question for edges to the next */

void gf_coordinator_rounds_begin(struct gf_coordinator *c)
{
    c->inquiry_phase = CONTROL_INQUIRY_ASKED;
    c->rounds_left = ROUNDS;
    c->round_ns = c->edges_ns = c->now_ns;
    c->edges_known = 0;
    c->inquiry_first = c->inquiry;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        row->slow_replies = 0;
        row->replied = true;
    }
}

static bool is_asked(const struct gf_coordinator *c, const struct control_row *row)
{
    return control_is_at_work(row) && (row->connection != CONTROL_NONE) &&
           (c->now_ns >= row->patience_ns);
}

bool gf_coordinator_rounds_go_on(struct gf_coordinator *c)
{
    uint64_t span_ns = c->terms.exchange_timeout_ns / 4 * 3;
    bool is_known = false;
    if (span_ns < ROUNDS_MIN_NS) span_ns = ROUNDS_MIN_NS;
    bool is_round = (c->inquiry_phase == CONTROL_INQUIRY_ROUNDS);
    if (is_round && (c->now_ns - c->round_ns < span_ns / ROUNDS)) return true;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (is_asked(c, row) && !row->replied) row->slow_replies++;
        row->replied = false;
        is_known = is_known || (row->report.edges.count > 0);
    }
    if (c->rounds_left == 0) {
        c->inquiry_phase = CONTROL_INQUIRY_OVER;
        return false;
    }
    c->inquiry_phase = CONTROL_INQUIRY_ROUNDS;
    c->rounds_left--;
    if (is_known && (c->rounds_left > ROUNDS_LAST)) c->rounds_left = ROUNDS_LAST;
    c->round_ns = c->now_ns;
    c->inquiry++;
    gf_coordinator_post_members(c, CONTROL_ASK);
    return true;
}

bool gf_coordinator_edges_pending(struct gf_coordinator *c)
{
    bool even = false;
    uint32_t known = gf_coordinator_edges_known(c, &even);
    uint64_t most_ns = c->terms.exchange_timeout_ns;
    if (!c->terms.elastic || (c->world < 3))
        return false; /* nobody goes on, or it is the one edge */
    if (most_ns < 2 * ROUNDS_MIN_NS) most_ns = 2 * ROUNDS_MIN_NS;
    if (known > c->edges_known) c->edges_ns = c->now_ns;
    c->edges_known = known;
    if (!even || (c->now_ns - c->edges_ns >= ROUNDS_MIN_NS)) return false;
    if (c->now_ns - c->inquiry_ns >= most_ns) return false;
    if (c->now_ns - c->round_ns < ROUND_EDGES_NS) return true;
    c->round_ns = c->now_ns;
    c->inquiry++;
    gf_coordinator_post_members(c, CONTROL_ASK);
    return true;
}

struct control_row *gf_coordinator_slow_find(struct gf_coordinator *c)
{
    struct control_row *latest = NULL;
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!is_asked(c, row) || (row->slow_replies < ROUNDS_SLOW)) continue;
        count++;
        if (!control_may_be_cut(c, c->rank_ids[rank])) continue;
        if ((latest == NULL) || (row->slow_replies > latest->slow_replies)) latest = row;
    }
    return (count <= c->world / 2) ? latest : NULL;
}
