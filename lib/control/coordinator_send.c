/* What the coordinator sends. It queues no frame. A process has a bit for each frame that it is
 * to get, and the coordinator writes the frame from its own state once the channel has room for
 * it: such a frame is "pending". */
#include "lib/control/coordinator_state.h"

#define COORDINATOR_FRAMES                                                               \
    (1u << CONTROL_LIST | 1u << CONTROL_GO | 1u << CONTROL_WAITING | 1u << CONTROL_ASK | \
     1u << CONTROL_ERROR | 1u << CONTROL_ALL_GONE | 1u << CONTROL_CLOSED | 1u << CONTROL_PATIENCE)

void gf_coordinator_post(struct control_row *row, control_frame frame)
{
    GF_ASSERT(((1u << frame) & COORDINATOR_FRAMES) != 0);
    if (row->connection == CONTROL_NONE) return;
    row->pending |= 1u << frame;
}

void gf_coordinator_post_members(struct gf_coordinator *c, control_frame frame)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        if (control_is_here(&c->rows[id])) gf_coordinator_post(&c->rows[id], frame);
}

bool gf_coordinator_has_pending(const struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++)
        if ((c->rows[id].connection != CONTROL_NONE) && (c->rows[id].pending != 0)) return true;
    return false;
}

static void list_put(struct gf_coordinator *c, uint32_t id, struct gf_put *put)
{
    const struct control_row *row = &c->rows[id];
    struct control_list list = {.number = c->next,
                                .rank = row->next_rank,
                                .world = c->next_world,
                                .network = c->network,
                                .comes_in = row->waits && control_has_begun(c)};
    gf_frame_list_walk(&(struct gf_walk){.put = put}, &list);
}

/* As much of the endpoints as a frame holds; the row's place in them goes on once it is sent. */
static void go_put(const struct gf_coordinator *c, struct gf_put *put, uint32_t *rank, uint32_t *at)
{
    struct control_go go = c->go;
    gf_frame_go_walk(&(struct gf_walk){.put = put}, &go);
    while ((*rank < c->world) && (put->left > CONTROL_PIECE_BYTES)) {
        uint32_t id = c->rank_ids[*rank];
        uint32_t total = c->rows[id].total;
        size_t room = put->left - CONTROL_PIECE_BYTES;
        struct control_piece piece = {.rank = *rank, .total = total, .at = *at};
        piece.bytes = (total - *at < room) ? total - *at : (uint32_t)room;
        gf_frame_piece_walk(&(struct gf_walk){.put = put}, &piece);
        gf_put_bytes(put, control_endpoint(c, false, id) + *at, piece.bytes);
        *at += piece.bytes;
        if (*at < total) continue;
        *at = 0;
        *rank += 1;
    }
}

/* What a member is told of a failure: of its own generation what was found, of one that has ended
 * that it was left out. */
static void finding_put(const struct gf_coordinator *c, const struct control_row *row,
                        struct gf_put *put)
{
    static const struct gf_error left_out = {
        .code = GF_ERR_PEER,
        .peer = GF_RANK_NONE,
        .tensor = GF_TENSOR_NONE,
        .text = "the other ranks went on without this one, as nothing was heard of it"};
    static const struct gf_error was_cut = {
        .code = GF_ERR_PEER,
        .peer = GF_RANK_NONE,
        .tensor = GF_TENSOR_NONE,
        .text = "the other ranks went on without this one: a connection to it was broken, or it "
                "lagged behind"};
    bool is_member = control_is_member(row);
    bool banned = (row->banned == row->process);
    bool known = c->is_final || (is_member && (c->error.code != GF_OK));
    struct control_finding finding = {.may_go_on = !c->is_final && !control_has_ended(row) &&
                                                   !banned && !(is_member && row->cut),
                                      .error = known    ? c->error
                                               : banned ? was_cut
                                                        : left_out};
    gf_frame_finding_walk(&(struct gf_walk){.put = put}, &finding);
}

/* For whom a rank that has closed waits: the lowest that has not. */
static void waiting_put(const struct gf_coordinator *c, const struct control_row *to,
                        struct gf_put *put)
{
    struct control_waiting waiting = {
        .number = c->number, .count = c->waiting, .awaited = GF_RANK_NONE};
    memcpy(waiting.refused, c->refused, sizeof waiting.refused);
    for (uint32_t rank = 0; (to->said == CONTROL_SAID_BYE) && (rank < c->world); rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if (!control_is_awaited(row)) continue;
        if (waiting.awaited_count++ > 0) continue;
        waiting.awaited = rank;
        gf_coordinator_location(&row->report, waiting.location);
    }
    gf_frame_waiting_walk(&(struct gf_walk){.put = put}, &waiting);
}

/* One of the pending frames; false: there was no room, or nothing is left. */
static bool frame_send(struct gf_coordinator *c, uint32_t id, control_frame frame)
{
    struct control_row *row = &c->rows[id];
    struct gf_put put = {c->scratch, sizeof c->scratch};
    uint32_t rank = row->go_rank;
    uint32_t at = row->go_at;
    switch (frame) {
    case CONTROL_LIST: list_put(c, id, &put); break;
    case CONTROL_GO: go_put(c, &put, &rank, &at); break;
    case CONTROL_WAITING: waiting_put(c, row, &put); break;
    case CONTROL_PATIENCE:
        gf_put_u64(&put, gf_patience_left(&c->patience, c->now_ns));
        gf_put_u64(&put, c->patience.from);
        break;
    case CONTROL_ASK: gf_put_u32(&put, c->inquiry); break;
    case CONTROL_ERROR: finding_put(c, row, &put); break;
    case CONTROL_CLOSED: gf_frame_closed_walk(&(struct gf_walk){.put = &put}, &c->closed); break;
    case CONTROL_ALL_GONE: break; /* has no payload */
    case CONTROL_OFFER:
    case CONTROL_ENDPOINT:
    case CONTROL_REFUSED: /* sent with the end of its connection: coordinator_offer.c */
    case CONTROL_STATUS:
    case CONTROL_FAULT:
    case CONTROL_POSITION:
    case CONTROL_READY:
    case CONTROL_BYE:
    case CONTROL_STATUS_QUERY:
    case CONTROL_STATUS_ANSWER: /* sent at once */
    case CONTROL_FRAME_COUNT: GF_ASSERT(false);
    }
    if (c->channel->driver->send(c->channel, row->connection, frame, c->scratch,
                                 (uint32_t)(sizeof c->scratch - put.left)) != GF_OK)
        return false;
    c->channel->sent_bytes += sizeof c->scratch - put.left;
    row->go_rank = rank;
    row->go_at = at;
    if ((frame == CONTROL_ERROR) || (frame == CONTROL_ALL_GONE)) row->has_heard = true;
    if ((frame != CONTROL_GO) || (rank == c->world)) row->pending &= ~(1u << frame);
    return true;
}

void gf_coordinator_flush(struct gf_coordinator *c)
{
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        bool room = (row->connection != CONTROL_NONE) && (row->pending != 0);
        /* A frame for which there is no room holds up those after it: they speak of what it
         * says. */
        for (uint32_t frame = 1; room && (frame < CONTROL_FRAME_COUNT); frame++)
            while (room && ((row->pending & (1u << frame)) != 0))
                room = frame_send(c, id, (control_frame)frame);
    }
}
