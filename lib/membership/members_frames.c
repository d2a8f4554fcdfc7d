/* Frames of the membership protocol, to bytes and back. */
#include "lib/membership/members_state.h"

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

uint32_t gf_members_frame_put(struct gf_members *members, struct member *to, members_frame frame,
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
        break;
    case MEMBERS_GIVES_UP:
    case MEMBERS_ERROR: error_walk(&walk, &members->tell); break;
    default: break; /* a word that says all */
    }
    return (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left);
}
