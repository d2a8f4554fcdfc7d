/* Lists of ranks by seat, and which of them may go on. See members_shrink.c. */
#include "members_state.h"

bool gf_members_list_has(const struct members_list *list, uint32_t seat)
{
    return (list->bits[seat / 8] & (1u << (seat % 8))) != 0;
}

void gf_members_list_add(struct members_list *list, uint32_t seat)
{
    list->bits[seat / 8] |= (unsigned char)(1u << (seat % 8));
}

void gf_members_list_put(struct gf_put *put, const struct members_list *list, uint32_t seat_count)
{
    gf_put_u32(put, list->epoch);
    gf_put_bytes(put, list->bits, (seat_count + 7) / 8);
}

void gf_members_list_set(struct members_list *list, uint32_t epoch, const unsigned char *bits, uint32_t seat_count)
{
    memset(list, 0, sizeof *list);
    list->epoch = epoch;
    memcpy(list->bits, bits, (seat_count + 7) / 8);
}

bool gf_members_list_same(const struct members_list *a, const struct members_list *b)
{
    return (a->epoch == b->epoch) && (memcmp(a->bits, b->bits, sizeof a->bits) == 0);
}

static bool quorum(const struct gf_members *members, const struct members_list *of, const struct members_list *list)
{
    uint32_t alive = 0, here = 0, lowest = GF_RANK_NONE;
    for (uint32_t seat = members->seat_count; seat-- > 0;) {
        if (!gf_members_list_has(of, seat) || members->seats[seat].dead) continue;
        alive++;
        here += gf_members_list_has(list, seat) ? 1u : 0u;
        lowest = seat;
    }
    return (2 * here > alive) || ((2 * here == alive) && (lowest != GF_RANK_NONE) && gf_members_list_has(list, lowest));
}

bool gf_members_quorum(const struct gf_members *members, const struct members_list *list)
{
    const struct members_shrink *shrink = &members->shrink;
    if (shrink->others_full || !quorum(members, &shrink->base, list)) return false;
    if ((shrink->prepared.epoch > shrink->base.epoch) && !quorum(members, &shrink->prepared, list)) return false;
    for (uint32_t i = 0; i < shrink->other_count; i++)
        if ((shrink->others[i].epoch > shrink->base.epoch) && !quorum(members, &shrink->others[i], list)) return false;
    return true;
}
