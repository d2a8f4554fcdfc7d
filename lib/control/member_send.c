/* What a member sends: where it is, what its link knows, and its words. Like the coordinator it
 * queues no frame: a bit says which frames the coordinator is to get, and each is written from the
 * member's state once there is room for it. */
#include "lib/control/member_state.h"

#include <stdio.h>

#define ALIVE_NS UINT64_C(250000000) /* STATUS: so often where nothing has changed */

/* ---- where it is ---- */

static bool same_location(const struct control_report *a, const struct control_report *b)
{
    return (a->step == b->step) && (a->sequence == b->sequence) && (a->operation == b->operation);
}

void gf_member_report_follow(struct gf_member *member)
{
    if (member->report.waits_for != GF_RANK_NONE) member->waited_ns = member->now_ns;
    if (same_location(&member->report, &member->moved)) return;
    member->moved = member->report;
    member->moved_ns = member->now_ns;
}

/* One coordinator hears them all, so in a large job each says less; but whoever says less than four
 * times in exchange.timeout would be taken for one that is silent. */
void gf_member_status_post(struct gf_member *member)
{
    bool changed = !same_location(&member->report, &member->reported) ||
                   (member->report.calls.count != member->reported.calls.count) ||
                   (member->beat_ns > member->status_ns);
    uint64_t rest_ns = MEMBER_STATUS_NS + member->generation.world * UINT64_C(1000000);
    uint64_t most_ns = member->setup.terms.exchange_timeout_ns / 4;
    uint64_t age_ns = member->now_ns - member->status_ns;
    if (!changed) rest_ns += ALIVE_NS;
    if (rest_ns > most_ns) rest_ns = most_ns;
    if (!member->connected || (member->state != GF_MEMBER_WORKS) || (age_ns < rest_ns)) return;
    member->pending |= 1u << CONTROL_STATUS;
}

/* Once it has moved, its heartbeat has done what it was for. */
static uint64_t patience_own(const struct gf_member *member)
{
    uint64_t since_ns = member->now_ns - member->beat_ns;
    if ((member->beat_ns == 0) || (member->beat_ns < member->moved_ns)) return 0;
    return (since_ns < member->beat_for_ns) ? member->beat_for_ns - since_ns : 0;
}

uint64_t gf_member_first_unbegun(const struct gf_member *member)
{
    return (member->setup.begun == NULL) ? 0 : member->setup.begun(member->setup.edges_of);
}

/* What its link says now, and what it has failed for: a link that has no more to say may have said
 * it then. */
void gf_member_edges_ask(const struct gf_member *member, const struct gf_error *seen,
                         struct control_edges *edges)
{
    edges->count = 0;
    edges->code = GF_OK;
    if (member->setup.edges != NULL) member->setup.edges(member->setup.edges_of, edges);
    bool of_link = (seen->code == GF_ERR_LINK) && (seen->peer < member->generation.world) &&
                   (seen->peer != member->generation.rank);
    bool is_known = !of_link;
    for (uint32_t i = 0; i < edges->count; i++)
        is_known = is_known || (edges->peers[i] == seen->peer);
    if (!is_known && (edges->count < CONTROL_EDGES_MAX))
        edges->peers[edges->count++] = (uint16_t)seen->peer;
    if ((edges->code != GF_OK) || (!of_link && (seen->code != GF_ERR_SYSTEM))) return;
    edges->code = seen->code;
    edges->peer = seen->peer;
    edges->foreign_code = seen->foreign_code;
    memcpy(edges->foreign_call, seen->foreign_call, sizeof edges->foreign_call);
    (void)snprintf(edges->text, sizeof edges->text, "%.239s", seen->text);
}

/* ---- frames ---- */

static void report_put(struct gf_member *member, struct gf_put *put, uint32_t inquiry)
{
    struct control_report report = member->report;
    const struct gf_member_setup *setup = &member->setup;
    const char *name = NULL;
    report.inquiry = inquiry;
    report.unmoved_ns = member->now_ns - member->moved_ns;
    report.free_ns = member->now_ns - member->waited_ns;
    report.patience_ns = patience_own(member);
    report.patience_from = (report.patience_ns == 0) ? 0 : gf_member_first_unbegun(member);
    if ((setup->tensor_name != NULL) && (report.tensor != GF_TENSOR_NONE))
        name = setup->tensor_name(setup->edges_of, report.tensor);
    (void)snprintf(report.tensor_name, sizeof report.tensor_name, "%.31s",
                   (name == NULL) ? "" : name);
    if (inquiry != 0) gf_member_edges_ask(member, &member->fault.error, &report.edges);
    gf_frame_report_walk(&(struct gf_walk){.put = put}, &report);
}

static void endpoint_put(struct gf_member *member, struct gf_put *put)
{
    size_t room = put->left - CONTROL_PIECE_BYTES;
    size_t left = member->endpoint_bytes - member->endpoint_sent;
    struct control_piece piece = {.rank = member->listed.rank,
                                  .total = (uint32_t)member->endpoint_bytes,
                                  .at = (uint32_t)member->endpoint_sent,
                                  .bytes = (uint32_t)((left < room) ? left : room)};
    gf_frame_piece_walk(&(struct gf_walk){.put = put}, &piece);
    gf_put_bytes(put, member->own + piece.at, piece.bytes);
}

static void offer_put(struct gf_member *member, struct gf_put *put)
{
    struct control_offer offer = {.id = member->setup.id,
                                  .id_count = member->setup.id_count,
                                  .first_world = member->setup.world,
                                  .rejoins = member->setup.rejoins && !member->taken,
                                  .process = member->setup.process,
                                  .standing = member->standing,
                                  .terms = member->setup.terms,
                                  .values = member->setup.values};
    gf_frame_offer_walk(&(struct gf_walk){.put = put}, &offer);
}

/* The number of the generation, or the list, that a word is of, then the word. */
static void word_put(struct gf_member *member, control_frame frame, struct gf_put *put)
{
    struct gf_walk walk = {.put = put};
    if (frame == CONTROL_OFFER) {
        offer_put(member, put);
        return;
    }
    gf_put_u32(put,
               (frame == CONTROL_ENDPOINT) ? member->listed.number : member->standing.generation);
    switch (frame) {
    case CONTROL_ENDPOINT: endpoint_put(member, put); break;
    case CONTROL_STATUS: report_put(member, put, 0); break;
    case CONTROL_POSITION: report_put(member, put, member->inquiry); break;
    case CONTROL_FAULT: gf_frame_fault_walk(&walk, &member->fault); break;
    case CONTROL_READY: gf_frame_ready_walk(&walk, &member->ready); break;
    case CONTROL_BYE: gf_walk_u64(&walk, &member->report.step); break;
    case CONTROL_OFFER: /* above */
    case CONTROL_LIST:
    case CONTROL_GO:
    case CONTROL_REFUSED:
    case CONTROL_WAITING:
    case CONTROL_ASK:
    case CONTROL_ERROR:
    case CONTROL_ALL_GONE:
    case CONTROL_CLOSED:
    case CONTROL_PATIENCE:
    case CONTROL_STATUS_QUERY:
    case CONTROL_STATUS_ANSWER:
    case CONTROL_FRAME_COUNT: GF_ASSERT(false);
    }
}

static bool word_send(struct gf_member *member, control_frame frame)
{
    struct gf_put put = {member->scratch, sizeof member->scratch};
    size_t before = member->endpoint_sent;
    word_put(member, frame, &put);
    if (frame == CONTROL_ENDPOINT) {
        size_t head = CONTROL_PIECE_BYTES + sizeof(uint32_t);
        member->endpoint_sent += sizeof member->scratch - put.left - head;
    }
    gf_status status = member->channel->driver->send(member->channel, 0, frame, member->scratch,
                                                     (uint32_t)(sizeof member->scratch - put.left));
    if (status != GF_OK) {
        member->unsent = (status < 0);
        member->endpoint_sent = before;
        return false;
    }
    member->channel->sent_bytes += sizeof member->scratch - put.left;
    if (frame == CONTROL_STATUS) {
        member->status_ns = member->now_ns;
        member->reported = member->report;
    }
    if ((frame != CONTROL_ENDPOINT) || (member->endpoint_sent == member->endpoint_bytes))
        member->pending &= ~(1u << frame);
    return true;
}

void gf_member_flush(struct gf_member *member)
{
    while (member->connected && (member->pending != 0))
        if (!word_send(member, (control_frame)__builtin_ctz(member->pending))) return;
}
