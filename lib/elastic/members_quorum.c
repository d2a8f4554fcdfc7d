/* Lists of ranks by seat, and which of them may go on. See members_shrink.c. */
#include "lib/membership/members_state.h"

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
    gf_put_u32(put, list->first);
    gf_put_bytes(put, list->bits, (seat_count + 7) / 8);
}

bool gf_members_list_get(struct gf_get *get, uint32_t seat_count, struct members_list *list_out)
{
    const unsigned char *bits;
    memset(list_out, 0, sizeof *list_out);
    list_out->epoch = gf_get_u32(get);
    list_out->first = gf_get_u32(get);
    bits = gf_get_bytes(get, (seat_count + 7) / 8);
    if (get->bad) return false;
    memcpy(list_out->bits, bits, (seat_count + 7) / 8);
    if ((list_out->epoch != 0) &&
        ((list_out->first >= seat_count) || !gf_members_list_has(list_out, list_out->first))) get->bad = true;
    return !get->bad;
}

uint32_t gf_members_list_place(const struct members_list *list, uint32_t seat)
{
    uint32_t place = (list->first > seat) ? 1 : 0; /* the first goes before all */
    if (seat == list->first) return 0;
    for (uint32_t other = 0; other < seat; other++) place += gf_members_list_has(list, other) ? 1u : 0u;
    return place;
}

uint32_t gf_members_list_seat(const struct members_list *list, uint32_t place, uint32_t seat_count)
{
    if (place == 0) return list->first;
    for (uint32_t seat = 0; seat < seat_count; seat++) {
        if ((seat == list->first) || !gf_members_list_has(list, seat)) continue;
        if (--place == 0) return seat;
    }
    return GF_RANK_NONE;
}

bool gf_members_list_same(const struct members_list *a, const struct members_list *b)
{
    return (a->epoch == b->epoch) && (memcmp(a->bits, b->bits, sizeof a->bits) == 0);
}

static bool quorum(const struct gf_members *members, const struct members_list *of, const struct members_list *list)
{
    uint32_t alive = 0, here = 0, lowest = GF_RANK_NONE;
    bool newest = (of->epoch == members->shrink.base.epoch); /* there a seat is a process that may have a successor */
    for (uint32_t seat = members->seat_count; seat-- > 0;) {
        const struct members_seat *of_seat = &members->seats[seat];
        bool dead = of_seat->dead && !of_seat->doubtful;
        if (!gf_members_list_has(of, seat) || dead || (newest && of_seat->reborn)) continue;
        alive++;
        here += gf_members_list_has(list, seat) ? 1u : 0u;
        if (lowest != of->first) lowest = seat;
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
