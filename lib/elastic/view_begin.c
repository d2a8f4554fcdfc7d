/* An epoch begins without this rank, or with it: it is agreed, its members join it, and once all
 * have, it is in use. */
#include "drivers/fnv.h"
#include "lib/membership/members_state.h"

static void used_add(struct members_view *view)
{
    for (size_t i = 0; i < sizeof view->used; i++) view->used[i] |= view->epoch.bits[i];
}

void gf_view_epoch_take(struct gf_members *members)
{
    struct members_view *view = &members->view;
    view->epoch = view->current.list;
    used_add(view);
    view->view = view->accepted_view = view->asked_view = 0;
    memset(&view->accepted, 0, sizeof view->accepted);
    for (uint32_t id = 0; id < members->id_count; id++) {
        struct member *member = &members->table[id];
        uint32_t taken = gf_view_list_took(&view->epoch, id);
        bool may_come = (taken != 0) && !member->connected;
        if (taken != 0) {
            member->given = taken;
            member->address[0] = 0; /* that of the process before it */
        }
        if (may_come || (member->state == MEMBER_REPORTED)) member->state = MEMBER_EXPECTED;
        member->excluded = member->passed_over = member->lost = false;
        member->view = 0; /* views are counted anew: what waits has answered in none of these */
    }
    gf_view_admit(members);
}

void gf_view_committed(struct gf_members *members)
{
    gf_view_epoch_take(members);
    members->view.refusal = GF_OK;
    members->view.state = VIEW_COMMITTED;
}

#define GONE_ON_TEXT \
    "the other ranks went on without rank %u: epoch %u is closed, epoch %u has begun"

void gf_view_fail_cut(struct gf_members *members)
{
    gf_view_fail(members, GF_ERR_QUORUM, "this rank is not to be of the next epoch: %.200s",
                 members->error.text);
}

void gf_view_excluded(struct gf_members *members, const struct members_list *list)
{
    struct members_view *view = &members->view;
    view->gone_on = *list;
    if (view->state == VIEW_NONE) /* it comes in again once its caller begins a change */
        gf_members_failf(members, GF_ERR_PEER, GF_RANK_NONE, GONE_ON_TEXT, members->setup.rank,
                         view->epoch.epoch, list->epoch);
    else if (view->is_cut)
        gf_view_fail_cut(members);
    else if (view->reason.leaves)
        view->state = VIEW_LEFT;
    else
        gf_view_rejoin(members);
}

/* What this process has promised and accepted was for an epoch that is closed, and nobody may count
 * it any more: so it is another process from here on, of no epoch. */
static void forget(struct gf_members *members)
{
    struct members_view *view = &members->view;
    view->epoch = view->gone_on;
    view->epoch.epoch = 0;
    memset(&view->gone_on, 0, sizeof view->gone_on);
    memset(&view->accepted, 0, sizeof view->accepted);
    view->view = view->accepted_view = view->asked_view = view->asked_epoch = 0;
    view->sought = GF_RANK_NONE;
    view->rejoins = true;
    members->setup.is_new = false;
    members->incarnation =
        (uint32_t)gf_fnv_u64(gf_fnv_u64(GF_FNV_START, members->incarnation), members->now_ns) | 1u;
    for (uint32_t id = 0; id < members->id_count; id++) {
        struct member *member = &members->table[id];
        bool unknown = (id != view->epoch.first) && (gf_view_list_took(&view->epoch, id) != 0);
        if (unknown) member->address[0] = 0; /* that of the process before it */
        member->excluded = member->passed_over = false;
        member->owed = 0;
    }
}

void gf_view_rejoin(struct gf_members *members)
{
    struct members_view *view = &members->view;
    uint32_t begun = view->gone_on.epoch;
    uint32_t coordinator = view->coordinator;
    if (gf_view_has(view->gone_on.bits, members->member_id)) {
        gf_view_fail(members, GF_ERR_QUORUM, GONE_ON_TEXT ", with another process of its id",
                     members->setup.rank, view->epoch.epoch, begun);
        return;
    }
    gf_log_line(&members->setup.log, GF_LOG_WARN, GONE_ON_TEXT "; it waits to come in again",
                members->setup.rank, view->epoch.epoch, begun);
    bool stands = (view->state == VIEW_SEEK) && (coordinator < members->id_count) &&
                  members->table[coordinator].connected;
    forget(members);
    gf_view_enter(members, VIEW_SEEK);
    if (stands) {
        gf_members_owe_id(members, coordinator, MEMBERS_JOIN);
        return;
    }
    /* the first of the list is asked before all others: it coordinates */
    view->coordinator = GF_RANK_NONE;
    gf_view_next(members);
}

bool gf_view_is_left_out(const struct gf_members *members)
{
    return members->view.rejoins && gf_view_joins(members);
}

bool gf_view_left_ended(const struct gf_members *members)
{
    const struct members_list *next = &members->view.epoch;
    /* of an epoch that it was left out of it knows who was there, and not who came after it */
    bool all = !members->view.rejoins && (next->epoch == members->setup.epoch + 1);
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        uint32_t id = members_id(members, rank);
        bool stays = gf_view_has(next->bits, id) && !gf_view_list_took(next, id);
        all = all && (stays || gf_view_has(members->view.noted.ended, id));
    }
    return all;
}

/* The list of the ended was noted before this epoch, and the next change may follow without another
 * one: of an id that the commit took in, a process runs again. */
static void ended_outdate(struct gf_members *members, const struct members_list *list)
{
    for (uint32_t id = 0; id < members->id_count; id++)
        if (gf_view_list_took(list, id) != 0) gf_view_remove(members->view.noted.ended, id);
}

/* Ranks follow the order of the ids, behind the first. */
static void ranks_number(struct gf_members *members, const struct members_list *list)
{
    uint32_t next = 1;
    for (uint32_t id = 0; id < members->id_count; id++) {
        uint32_t rank = GF_RANK_NONE;
        if (id == list->first)
            rank = 0;
        else if (gf_view_has(list->bits, id))
            rank = next++;
        members_rank_set(members, id, rank);
    }
    members->setup.rank = gf_members_rank(members, members->member_id);
    GF_ASSERT(members->setup.rank < next);
    members->setup.world = members->setup.offer.world = next;
    members->setup.epoch = list->epoch;
}

/* With whom this rank needs a connection: rank 0 with all others, the others with rank 0. */
static bool is_needed(const struct gf_members *members, uint32_t rank)
{
    if (rank == members->setup.rank) return false;
    return members_coordinates(members) || (rank == 0);
}

/* A connection of the agreement that has ended since comes not again. */
static void lost_find(struct gf_members *members, const struct members_list *list)
{
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        /* one that the commit took in may have been invited by another coordinator, and come yet */
        bool may_come = (gf_view_list_took(list, members_id(members, rank)) != 0);
        if (!is_needed(members, rank) || gf_members_here(members, rank) || may_come) continue;
        gf_members_failf(members, GF_ERR_PEER, rank,
                         "rank %u went away while epoch %u was agreed upon", rank, list->epoch);
    }
}

/* The members stand around the coordinator of the agreement, and stay there if it is the first of
 * the new epoch. Else it has left, or was taken over from: that first one listens from here on, the
 * others come to it as they came to rank 0 at open, and offer once they are connected. */
void gf_view_epoch_join(struct gf_members *members, const void *endpoint, size_t endpoint_bytes,
                        uint64_t now_ns)
{
    const struct members_list *list = &members->view.epoch;
    bool stands = (members->view.coordinator == list->first);
    ended_outdate(members, list);
    GF_ASSERT(members->view.state == VIEW_COMMITTED);
    /* where nobody can be contacted, whoever is not here is lost */
    if (!stands) stands = (gf_view_turn(members, list->first) < 0);
    ranks_number(members, list);
    members->setup.join_timeout_ns = members->view.reason.away_ns;
    members->view.state = VIEW_NONE;
    gf_members_epoch_begin(members, endpoint, endpoint_bytes, now_ns);
    if (stands) lost_find(members, list);
    if (members_coordinates(members) || (members->state != MEMBERS_JOINING) ||
        !gf_members_here(members, 0))
        return;
    gf_members_owe(members, 0, MEMBERS_OFFER);
    gf_members_owe(members, 0, MEMBERS_ENDPOINTS);
}

/* All of the epoch have joined it. */
void gf_view_epoch_begun(struct gf_members *members)
{
    struct members_view *view = &members->view;
    if (view->epoch.epoch != members->setup.epoch) { /* the first */
        memset(&view->epoch, 0, sizeof view->epoch);
        view->epoch.epoch = members->setup.epoch;
        view->epoch.first = members_id(members, 0);
        for (uint32_t rank = 0; rank < members->setup.world; rank++)
            gf_view_add(view->epoch.bits, members_id(members, rank));
        used_add(view);
    }
    view->state = VIEW_NONE;
    view->coordinator = members_id(members, 0);
    view->reason.leaves = view->rejoins = false;
    members->was_member = true;
    for (uint32_t id = 0; id < members->id_count; id++)
        members->table[id].excluded = members->table[id].passed_over = members->table[id].lost =
            false;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        struct member *member = gf_members_at(members, rank);
        memcpy(member->address, members_endpoint_at(members, rank), sizeof member->address);
        member->address[sizeof member->address - 1] = 0;
    }
}
