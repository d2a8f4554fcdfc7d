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

void gf_view_remove(unsigned char *bits, uint32_t id)
{
    bits[id / 8] &= (unsigned char)~(1u << (id % 8));
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

void gf_view_waiting_drop(struct gf_members *members, uint32_t id)
{
    gf_view_remove(members->view.noted.waiting, id);
    gf_view_remove(members->view.led.waiting, id);
}

bool gf_view_is_majority(const struct gf_members *members, const unsigned char *here)
{
    const struct members_list *list = &members->view.epoch;
    uint32_t count = 0;
    uint32_t of = 0;
    bool has_lowest = false;
    for (uint32_t id = members->id_count; id-- > 0;) { /* the last one is the lowest */
        if (!gf_view_has(list->bits, id)) continue;
        of++;
        has_lowest = gf_view_has(here, id);
        count += has_lowest ? 1u : 0u;
    }
    return (2 * count > of) || ((2 * count == of) && has_lowest);
}

/* Nobody else can decide, or has: each id has its member on `here`, or had no process, or one that
 * waited here. `all_answer`: also one that waits and has not answered yet. */
static bool is_everybody(const struct gf_members *members, const unsigned char *here,
                         const struct view_noted *noted, bool all_answer)
{
    for (uint32_t id = 0; id < members->id_count; id++) {
        const struct member *member = &members->table[id];
        bool waits = gf_view_has(noted->waiting, id) && (member->state == MEMBER_WAITS);
        bool answers = waits && (all_answer || (member->view == members->view.view));
        if (!gf_view_has(here, id) && !gf_view_has(noted->ended, id) && !answers) return false;
    }
    return noted->told;
}

bool gf_view_quorum(const struct gf_members *members, const unsigned char *here)
{
    return gf_view_is_majority(members, here) ||
           is_everybody(members, here, &members->view.led, false);
}

bool gf_view_may_be_quorum(const struct gf_members *members, const unsigned char *here)
{
    return gf_view_is_majority(members, here) ||
           is_everybody(members, here, &members->view.led, true);
}

bool gf_view_is_outdated(const struct gf_members *members, const unsigned char *here)
{
    return !gf_view_may_be_quorum(members, here) &&
           is_everybody(members, here, &members->view.noted, true);
}
