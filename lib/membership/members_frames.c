/* What goes out: a bit for each frame that a member is owed, and the frames themselves, to bytes and
 * back. */
#include "lib/membership/members_state.h"

/* ---- bytes ---- */

#define COUNT(fields) (sizeof(fields) / sizeof((fields)[0]))

static void error_walk(struct gf_walk *walk, struct gf_error *error)
{
    static const struct gf_field fields[] = {
        GF_FIELD(gf_error, code),         GF_FIELD(gf_error, peer),
        GF_FIELD(gf_error, operation),    GF_FIELD(gf_error, tensor),
        GF_FIELD(gf_error, step),         GF_FIELD(gf_error, foreign_code),
        GF_FIELD(gf_error, foreign_call), GF_FIELD(gf_error, text)};
    gf_walk_fields(walk, error, fields, COUNT(fields));
}

void gf_members_error_get(struct gf_get *get, struct gf_error *error_out)
{
    struct gf_error error = {0};
    error_walk(&(struct gf_walk){.get = get}, &error);
    if (error.text[0] == 0) memcpy(error.text, "no reason was given", sizeof "no reason was given");
    if ((int32_t)error.code >= 0) get->bad = true;
    if (!get->bad) *error_out = error;
}

static void told_walk(struct gf_walk *walk, struct members_told *told)
{
    static const struct gf_field fields[] = {GF_FIELD(members_told, position.step),
                                             GF_FIELD(members_told, position.sequence),
                                             GF_FIELD(members_told, position.operation),
                                             GF_FIELD(members_told, position.buffer),
                                             GF_FIELD(members_told, position.tensor),
                                             GF_FIELD(members_told, position.waits_for),
                                             GF_FIELD(members_told, unmoved_ns),
                                             GF_FIELD(members_told, position.unpolled_ns),
                                             GF_FIELD(members_told, patience_ns),
                                             GF_FIELD(members_told, patience_from),
                                             GF_FIELD(members_told, calls),
                                             GF_FIELD(members_told, call.hash),
                                             GF_FIELD(members_told, call.elem_count),
                                             GF_FIELD(members_told, call.what),
                                             GF_FIELD(members_told, call.root)};
    gf_walk_fields(walk, told, fields, COUNT(fields));
}

void gf_members_told_get(struct gf_get *get, struct members_told *told_out)
{
    struct members_told told = {0};
    told_walk(&(struct gf_walk){.get = get}, &told);
    if (!get->bad) *told_out = told;
}

static void wait_walk(struct gf_walk *walk, struct gf_wait *wait)
{
    static const struct gf_field fields[] = {GF_FIELD(gf_wait, order),   GF_FIELD(gf_wait, posted),
                                             GF_FIELD(gf_wait, lacked),  GF_FIELD(gf_wait, from),
                                             GF_FIELD(gf_wait, to),      GF_FIELD(gf_wait, memory),
                                             GF_FIELD(gf_wait, still_ns)};
    gf_walk_fields(walk, wait, fields, COUNT(fields));
}

static void unreached_walk(struct gf_walk *walk, struct gf_unreached *unreached)
{
    static const struct gf_field fields[] = {
        GF_FIELD(gf_unreached, code), GF_FIELD(gf_unreached, peer),
        GF_FIELD(gf_unreached, foreign_code), GF_FIELD(gf_unreached, text)};
    bool any = unreached->any;
    gf_walk_bool(walk, &any);
    unreached->any = any;
    if (!any) return; /* once the connections stand, always */
    gf_walk_fields(walk, unreached, fields, COUNT(fields));
    gf_walk_bytes(walk, unreached->ranks, sizeof unreached->ranks);
}

static void waits_walk(struct gf_walk *walk, struct gf_waits *waits)
{
    static const struct gf_field fields[] = {
        GF_FIELD(gf_waits, taken),  GF_FIELD(gf_waits, still_ns),    GF_FIELD(gf_waits, quiet_ns),
        GF_FIELD(gf_waits, age_ns), GF_FIELD(gf_waits, large_bytes), GF_FIELD(gf_waits, large_to),
        GF_FIELD(gf_waits, count)};
    gf_walk_fields(walk, waits, fields, COUNT(fields));
    for (uint32_t i = 0; (i < waits->count) && (i < GF_WAITS_MAX); i++)
        wait_walk(walk, &waits->rows[i]);
    unreached_walk(walk, &waits->unreached);
}

#define CUT_IS_FINAL 1u
#define CUT_WAS_SILENT 2u

static void cut_walk(struct gf_walk *walk, struct members_cut *cut)
{
    uint32_t how = (cut->is_final ? CUT_IS_FINAL : 0) | (cut->was_silent ? CUT_WAS_SILENT : 0);
    gf_walk_u32(walk, &how);
    gf_walk_u32(walk, &cut->count);
    for (uint32_t i = 0; (i < cut->count) && (i < MEMBERS_CUT_MAX); i++)
        gf_walk_u16(walk, &cut->ranks[i]);
    cut->is_final = (how & CUT_IS_FINAL) != 0;
    cut->was_silent = (how & CUT_WAS_SILENT) != 0;
}

bool gf_members_cut_get(const struct gf_members *members, struct gf_get *get,
                        struct members_cut *cut_out)
{
    struct members_cut cut = {.told = (get->left > 0)};
    if (cut.told) cut_walk(&(struct gf_walk){.get = get}, &cut);
    if (get->bad || (cut.count > MEMBERS_CUT_MAX)) return false;
    for (uint32_t i = 0; i < cut.count; i++)
        if (cut.ranks[i] >= members->setup.world) return false;
    *cut_out = cut;
    return true;
}

static bool is_rank(const struct gf_members *members, uint32_t rank)
{
    return (rank < members->setup.world) || (rank == GF_RANK_NONE);
}

/* What a rank may say of the connections that it cannot make: it ends all ranks with this. */
static bool unreached_valid(const struct gf_members *members, const struct gf_unreached *unreached)
{
    const gf_status code = unreached->code;
    return is_rank(members, unreached->peer) &&
           ((code == GF_OK) || (code == GF_ERR_LINK) || (code == GF_ERR_SYSTEM));
}

bool gf_members_waits_get(const struct gf_members *members, struct gf_get *get,
                          struct gf_waits *waits_out)
{
    struct gf_waits waits = {0};
    waits_walk(&(struct gf_walk){.get = get}, &waits);
    if (get->bad || (waits.count > GF_WAITS_MAX) || !is_rank(members, waits.large_to) ||
        !unreached_valid(members, &waits.unreached))
        return false;
    for (uint32_t i = 0; i < waits.count; i++) {
        const struct gf_wait *row = &waits.rows[i];
        if (!is_rank(members, row->from) || !is_rank(members, row->to) ||
            !is_rank(members, row->memory))
            return false;
    }
    *waits_out = waits;
    return true;
}

static void offer_walk(struct gf_walk *walk, struct gf_offer *offer)
{
    static const struct gf_field fields[] = {
        GF_FIELD(gf_offer, version),     GF_FIELD(gf_offer, world),
        GF_FIELD(gf_offer, epoch),       GF_FIELD(gf_offer, tensor_count),
        GF_FIELD(gf_offer, config_hash), GF_FIELD(gf_offer, tensors_hash),
        GF_FIELD(gf_offer, elem_count),  GF_FIELD(gf_offer, network),
        GF_FIELD(gf_offer, fabric),      GF_FIELD(gf_offer, node),
        GF_FIELD(gf_offer, summary)};
    gf_walk_fields(walk, offer, fields, COUNT(fields));
}

void gf_members_offer_put(struct gf_put *put, struct gf_members *members)
{
    members->setup.offer.epoch = members->setup.epoch;
    offer_walk(&(struct gf_walk){.put = put}, &members->setup.offer);
}

bool gf_members_offer_get(struct gf_get *get, struct gf_offer *offer_out)
{
    offer_walk(&(struct gf_walk){.get = get}, offer_out);
    return !get->bad;
}

/* As many pieces of endpoint addresses as fit: { rank, size of the endpoint address, offset, size
 * of the piece, bytes }. A rank sends its own endpoint address, the coordinator all of them; both
 * walk on from where the peer's cursor is. */
#define ENDPOINT_PIECE_BYTES 16u

static bool endpoints_put(struct gf_put *put, struct gf_members *members, struct member *to)
{
    uint32_t first = members_coordinates(members) ? 0 : members->setup.rank;
    uint32_t end = members_coordinates(members) ? members->setup.world : members->setup.rank + 1;
    if (to->said.endpoint_rank < first) to->said.endpoint_rank = first;
    while ((to->said.endpoint_rank < end) && (put->left > ENDPOINT_PIECE_BYTES)) {
        const struct member *of = gf_members_of(members, to->said.endpoint_rank);
        uint32_t piece = of->said.endpoint_bytes - to->said.endpoint_at;
        if (piece > put->left - ENDPOINT_PIECE_BYTES)
            piece = (uint32_t)(put->left - ENDPOINT_PIECE_BYTES);
        gf_put_u32(put, to->said.endpoint_rank);
        gf_put_u32(put, of->said.endpoint_bytes);
        gf_put_u32(put, to->said.endpoint_at);
        gf_put_u32(put, piece);
        gf_put_bytes(put,
                     members_endpoint_at(members, to->said.endpoint_rank) + to->said.endpoint_at,
                     piece);
        to->said.endpoint_at += piece;
        if (to->said.endpoint_at < of->said.endpoint_bytes) continue;
        to->said.endpoint_rank++;
        to->said.endpoint_at = 0;
    }
    return to->said.endpoint_rank < end;
}

bool gf_members_endpoints_take(struct gf_members *members, uint32_t from, struct gf_get *get)
{
    while ((get->left > 0) && !get->bad) {
        uint32_t rank = gf_get_u32(get);
        uint32_t size = gf_get_u32(get);
        uint32_t at = gf_get_u32(get);
        uint32_t piece = gf_get_u32(get);
        const unsigned char *bytes = gf_get_bytes(get, piece);
        if ((bytes == NULL) || (rank >= members->setup.world)) return false;
        if (size > members->setup.endpoint_bytes_max) return false;
        if (members_coordinates(members) ? (rank != from) : (from != 0)) return false;
        if (rank == members->setup.rank) continue; /* our own comes back with the others */
        struct member *peer = gf_members_at(members, rank);
        if ((at != peer->said.endpoint_have) || (piece > size - at)) return false;
        if ((at > 0) && (size != peer->said.endpoint_bytes)) return false;
        if (piece > 0) memcpy(members_endpoint_at(members, rank) + at, bytes, piece);
        peer->said.endpoint_bytes = size;
        peer->said.endpoint_have += piece;
        if ((peer->said.endpoint_have == size) && (size < GF_CONTROL_ADDRESS_BYTES)) return false;
        if (peer->said.endpoint_have == size) peer->state = MEMBER_JOINED;
    }
    return !get->bad;
}

static uint32_t frame_put(struct gf_members *members, struct member *to, members_frame frame,
                          bool *more_out)
{
    struct gf_put put = {members->scratch, sizeof members->scratch};
    struct gf_walk walk = {.put = &put};
    *more_out = false;
    switch (frame) {
    case MEMBERS_OFFER: gf_members_offer_put(&put, members); break;
    case MEMBERS_ENDPOINTS: *more_out = endpoints_put(&put, members, to); break;
    case MEMBERS_ASK: gf_put_u32(&put, members->inquiry); break;
    case MEMBERS_LINK: gf_put_u32(&put, members->link_network); break;
    case MEMBERS_FAULT: error_walk(&walk, &members->seen); break;
    case MEMBERS_STATUS:
    case MEMBERS_POSITION:
        gf_put_u32(&put, (frame == MEMBERS_POSITION) ? members->inquiry : 0);
        told_walk(&walk, gf_members_told_own(members));
        if (frame == MEMBERS_POSITION) waits_walk(&walk, gf_members_waits_own(members));
        break;
    case MEMBERS_NEWS: gf_members_news_walk(&walk, members); break;
    case MEMBERS_GIVES_UP: error_walk(&walk, &members->tell); break;
    case MEMBERS_ERROR:
        error_walk(&walk, &members->tell);
        if (members->cut.told) cut_walk(&walk, &members->cut);
        break;
    default: break; /* a word that says all */
    }
    return (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left);
}

/* ---- what is owed to whom ---- */

void gf_members_owe_id(struct gf_members *members, uint32_t id, members_frame frame)
{
    members->table[id].owed |= 1u << frame;
    members->owes = true;
}

void gf_members_owe(struct gf_members *members, uint32_t rank, members_frame frame)
{
    GF_ASSERT(rank < members->setup.world);
    gf_members_owe_id(members, members_id(members, rank), frame);
}

void gf_members_owe_all(struct gf_members *members, members_frame frame)
{
    for (uint32_t rank = 0; rank < members->setup.world; rank++)
        if (gf_members_here(members, rank)) gf_members_owe(members, rank, frame);
}

bool gf_members_owes(const struct gf_members *members, uint32_t frames)
{
    bool any = false;
    for (uint32_t id = 0; members->owes && (id < members->id_count); id++)
        any = any || ((members->table[id].owed & frames) != 0);
    return any;
}

static void member_flush(struct gf_members *members, uint32_t id)
{
    struct member *member = &members->table[id];
    for (uint32_t i = 0; (i < MEMBERS_FRAMES_MAX) && (member->owed != 0); i++) {
        members_frame frame = (members_frame)__builtin_ctz(member->owed);
        bool more = false, of_an_epoch = !members_is_of_a_view((uint32_t)frame);
        uint32_t endpoint_rank = member->said.endpoint_rank;
        uint32_t endpoint_at = member->said.endpoint_at;
        uint32_t bytes = of_an_epoch ? frame_put(members, member, frame, &more)
                                     : gf_view_frame_put(members, (uint32_t)frame);
        uint32_t epoch = of_an_epoch ? members->setup.epoch & MEMBERS_EPOCH_MASK : 0;
        gf_status status = members->rendezvous->driver->send(
            members->rendezvous, id, (uint32_t)frame | (epoch << MEMBERS_KIND_BITS),
            members->scratch, bytes);
        if (status == GF_AGAIN) {
            member->said.endpoint_rank = endpoint_rank; /* nothing was taken */
            member->said.endpoint_at = endpoint_at;
            return;
        }
        if (status != GF_OK)
            member->owed = 0; /* the end of the connection is on its way to us */
        else if (!more)
            member->owed &= ~(1u << frame);
    }
}

void gf_members_flush(struct gf_members *members)
{
    uint32_t first = members->flush_first;
    if (!members->owes) return;
    for (uint32_t i = 0; i < members->id_count; i++)
        member_flush(members, (first + i) % members->id_count);
    members->owes = gf_members_owes(members, ~0u);
    members->flush_first = (first + 1) % members->id_count;
}
