/* Lists of member ids, and who may decide on the next epoch. */
#include "lib/membership/members_state.h"

bool gf_view_has(const unsigned char *bits, uint32_t id)
{
    return (bits[id / 8] & (1u << (id % 8))) != 0;
}

void gf_view_add(unsigned char *bits, uint32_t id)
{
    bits[id / 8] |= (unsigned char)(1u << (id % 8));
}

uint32_t gf_view_list_took(const struct members_list *list, uint32_t id)
{
    for (uint32_t i = 0; i < list->taken_count; i++)
        if (list->taken[i] == id) return list->incarnation[i];
    return 0;
}

uint32_t gf_view_list_count(const struct members_list *list, uint32_t id_count)
{
    uint32_t count = 0;
    for (uint32_t byte = 0; byte < (id_count + 7) / 8; byte++)
        count += (uint32_t)__builtin_popcount(list->bits[byte]);
    return count;
}

uint32_t gf_view_list_next(const struct members_list *list, uint32_t id, uint32_t id_count)
{
    for (uint32_t i = 1; i < id_count; i++)
        if (gf_view_has(list->bits, (id + i) % id_count)) return (id + i) % id_count;
    return id;
}

uint32_t gf_view_list_rank(const struct members_list *list, uint32_t id)
{
    uint32_t rank = (id < list->first) ? 1 : 0; /* the first goes before all */
    for (uint32_t lower = 0; (lower < id) && (id != list->first); lower++)
        rank += gf_view_has(list->bits, lower) ? 1u : 0u;
    return rank;
}

void gf_view_list_walk(struct gf_walk *walk, struct members_list *list, uint32_t id_count)
{
    uint32_t bytes = (id_count + 7) / 8;
    gf_walk_u32(walk, &list->epoch);
    gf_walk_u32(walk, &list->first);
    gf_walk_u32(walk, &list->taken_count);
    if ((walk->get != NULL) && (list->taken_count > VIEW_TAKES_MAX)) walk->get->bad = true;
    for (uint32_t i = 0; (i < list->taken_count) && (i < VIEW_TAKES_MAX); i++) {
        gf_walk_u16(walk, &list->taken[i]);
        gf_walk_u32(walk, &list->incarnation[i]);
    }
    gf_walk_bytes(walk, list->bits, bytes);
    if (walk->get == NULL) return;
    bool first_fits = (list->first < id_count) && gf_view_has(list->bits, list->first);
    memset(list->bits + bytes, 0, sizeof list->bits - bytes);
    if ((id_count % 8 != 0) && ((list->bits[bytes - 1] >> (id_count % 8)) != 0))
        walk->get->bad = true;
    if ((list->epoch != 0) && !first_fits) walk->get->bad = true;
}

/* A process that waits is of what takes it in. A member is of the next epoch if that holds its
 * member id for itself, and not for a process that was started after it; what comes later has gone
 * on without it. */
bool gf_view_list_is_mine(const struct gf_members *members, const struct members_list *list)
{
    uint32_t took = gf_view_list_took(list, members->member_id);
    if (!gf_view_has(list->bits, members->member_id)) return false;
    if (took != 0) return took == members->incarnation;
    return !gf_view_joins(members) && (list->epoch == members->view.epoch.epoch + 1);
}

/* Any two sets that are half of the epoch share a member, and a member that has promised a view
 * acknowledges nothing below it. Where everybody is left who is here, nobody else can decide, now
 * or later: each other member id has no process, or one that waits here and is of no epoch. More
 * than half of the members that have not ended would not do: the ended may have decided something
 * with one that is not here (firmware-tests/sim/membership.pml, -DREST). */
bool gf_view_quorum(const struct gf_members *members, const unsigned char *here)
{
    const struct members_view *view = &members->view;
    uint32_t count = 0;
    uint32_t of = 0;
    uint32_t lowest = GF_RANK_NONE;
    bool everybody = true;
    for (uint32_t id = members->id_count; id-- > 0;) {
        const struct member *member = &members->table[id];
        bool is_here = gf_view_has(here, id);
        bool waits = (member->state == MEMBER_WAITS);
        everybody = everybody && (is_here || waits || gf_view_has(view->ended, id));
        if (!gf_view_has(view->epoch.bits, id)) continue;
        of++;
        count += is_here ? 1u : 0u;
        lowest = id;
    }
    return everybody || (2 * count > of) || ((2 * count == of) && gf_view_has(here, lowest));
}
