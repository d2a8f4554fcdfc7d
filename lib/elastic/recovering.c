/* A process that was started anew is RECOVERING: it has the member id of one that has ended, and
 * none of its promises; or a member id that nobody had (growth), which the commit that takes it in
 * gives to it for good. It joins at the coordinator, which compares what it was given with its own
 * and lets it wait; the vote of a step tells all ranks that somebody waits (lib/core/vote.c). Then
 * the epoch ends by agreement, and the proposal takes along who waits. A view change for another
 * reason does, too.
 *
 * A commit names processes, not ids: whoever coordinates when the one that it took in comes tells
 * it so, also where another had invited it and died. It is a member once COMMIT has reached it.
 * Until then a try that fails begins anew; who refuses it says why. */
#include "lib/membership/members_state.h"

#include <stdio.h>

#define ANOTHERS_TEXT "member id %u was used before: a new process takes one that never was"

static void refuse(struct gf_members *members, uint32_t id, gf_status code, const char *text)
{
    struct gf_put put = {members->scratch, sizeof members->scratch};
    struct view_proposal none = {0};
    gf_put_u32(&put, (uint32_t)code);
    gf_put_u32(&put, 0);
    gf_view_commit_put(&put, members, &none, text);
    members->table[id].state = MEMBER_RECOVERING;
    gf_log_line(&members->setup.log, GF_LOG_WARN, "a process of member id %u was rejected: %s", id,
                text);
    (void)members->rendezvous->driver->send(members->rendezvous, id, MEMBERS_COMMIT,
                                            members->scratch,
                                            (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left));
}

/* A new process claims an id that was given to another. */
static bool is_anothers(const struct gf_members *members, uint32_t id)
{
    const struct member *member = &members->table[id];
    return member->is_new && gf_view_has(members->view.used, id) &&
           (member->given != member->incarnation);
}

/* What a process that asks to come in says. */
struct join {
    uint32_t id_count;
    uint32_t first_world;
    bool is_new;
    struct gf_offer offer;
    uint32_t incarnation; /* this and what follows: of the same version */
    uint32_t asked_epoch; /* it answers START_VIEW of this view; 0: of none */
    uint32_t asked_view;
};

/* False: malformed. */
static bool join_get(const struct gf_members *members, struct gf_get *get, struct join *join_out)
{
    *join_out = (struct join){.id_count = gf_get_u32(get)};
    join_out->first_world = gf_get_u32(get);
    join_out->is_new = gf_get_u32(get) != 0;
    if (!gf_members_offer_get(get, &join_out->offer)) return false;
    if (join_out->offer.version != members->setup.offer.version) return true;
    join_out->incarnation = gf_get_u32(get);
    join_out->asked_epoch = gf_get_u32(get);
    join_out->asked_view = gf_get_u32(get);
    return !get->bad;
}

/* Why a process cannot come in; GF_OK where it can. */
static gf_status join_check(const struct gf_members *members, uint32_t id, const struct join *join,
                            char *why_out, size_t bytes)
{
    struct gf_offer offer = join->offer;
    offer.world = members->setup.offer.world; /* of this epoch */
    offer.epoch = members->setup.epoch;
    if ((join->id_count != members->id_count) || (join->first_world != members->first_world)) {
        (void)snprintf(why_out, bytes,
                       "the job began with %u ranks and has at most %u, it was told %u and %u",
                       members->first_world, members->id_count, join->first_world, join->id_count);
        return GF_ERR_MISMATCH;
    }
    if (members->view.epoch.epoch == 0)
        (void)snprintf(why_out, bytes, "the job has not begun yet%s",
                       join->is_new ? "" : ": expected rendezvous.rejoin = false");
    else if (is_anothers(members, id))
        (void)snprintf(why_out, bytes, ANOTHERS_TEXT, id);
    else if (members->leaving || (members->state == MEMBERS_GONE))
        (void)snprintf(why_out, bytes, "the job is ending");
    else if (gf_members_offer_difference(members, &offer, id, why_out, bytes))
        return GF_ERR_MISMATCH;
    else
        return GF_OK;
    return GF_ERR_STATE;
}

/* Members that were left out say on the connection that they have that they are another process
 * from here on. A member of the epoch under way has heard of no later one; but the process that its
 * commit took in may not have heard of that yet. */
static bool is_in_use(const struct gf_members *members, uint32_t id, uint32_t incarnation)
{
    bool is_taken = (gf_view_list_took(&members->view.epoch, id) == incarnation);
    return (members->view.state == VIEW_NONE) && (members->state != MEMBERS_FAILED) &&
           (gf_members_rank(members, id) != GF_RANK_NONE) &&
           !(is_taken && (members->state == MEMBERS_JOINING));
}

void gf_view_join(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    char why[240];
    struct join join;
    struct member *member = &members->table[id];
    if (!join_get(members, get, &join)) return;
    if (!gf_member_is_recovering(member)) {
        /* a commit has taken it in, and it had answered before it heard */
        bool again = (join.incarnation == member->incarnation);
        get->bad = (join.incarnation == 0) || (!again && is_in_use(members, id, join.incarnation));
        if (get->bad || again) return;
        gf_view_waiting_drop(members, id);
        member->answered = member->excluded = member->passed_over = false;
        member->state = MEMBER_RECOVERING;
    }
    member->is_new = join.is_new;
    member->incarnation = join.incarnation;
    member->view = (join.asked_epoch == members->view.epoch.epoch) ? join.asked_view : 0;
    gf_status status = join_check(members, id, &join, why, sizeof why);
    if (status != GF_OK) {
        refuse(members, id, status, why);
        return;
    }
    member->progress = (struct gf_members_progress){.applied = 1, .partial = 1};
    if (member->state != MEMBER_WAITS)
        gf_log_line(&members->setup.log, GF_LOG_INFO, "member id %u waits to come in", id);
    member->state = MEMBER_WAITS;
    gf_view_admit(members);
}

bool gf_view_waits_for(const struct gf_members *members, const struct members_list *list,
                       uint32_t id)
{
    return (members->table[id].state == MEMBER_WAITS) &&
           (members->table[id].incarnation == gf_view_list_took(list, id));
}

void gf_view_admit(struct gf_members *members)
{
    const struct members_view *view = &members->view;
    char why[96];
    bool leads = (view->state == VIEW_COLLECT) || (view->state == VIEW_PROPOSED);
    for (uint32_t id = 0;
         (leads || (members->state == MEMBERS_JOINING)) && (id < members->id_count); id++) {
        struct member *member = &members->table[id];
        if (gf_view_waits_for(members, &view->epoch, id)) {
            member->state = MEMBER_EXPECTED;
            gf_members_owe_id(members, id, MEMBERS_COMMIT);
        } else if ((member->state == MEMBER_WAITS) && is_anothers(members, id)) {
            (void)snprintf(why, sizeof why, ANOTHERS_TEXT, id);
            refuse(members, id, GF_ERR_STATE, why);
        }
    }
}

void gf_view_turn_away(struct gf_members *members, const char *reason)
{
    for (uint32_t id = 0; id < members->id_count; id++)
        if (gf_member_is_recovering(&members->table[id])) refuse(members, id, GF_ERR_STATE, reason);
}

/* While this rank collects, others may still be in the last step of the epoch. Should it not end
 * there, because another rank has died or does not come, nobody else would tell them. */
void gf_view_warn(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    const struct member *from = &members->table[id];
    uint32_t rank = gf_members_rank(members, id);
    bool ended = !from->connected;
    (void)get;
    if (!members->view.reason.planned || (rank == GF_RANK_NONE) || gf_member_is_recovering(from))
        return;
    members->tell = (struct gf_error){.code = GF_ERR_PEER,
                                      .peer = ended ? rank : GF_RANK_NONE,
                                      .operation = GF_OPERATION_SHRINK,
                                      .tensor = GF_TENSOR_NONE};
    if (ended)
        (void)snprintf(members->tell.text, sizeof members->tell.text,
                       "rank %u %s on the way into the next epoch", rank,
                       gf_members_fate(from->end));
    else
        (void)snprintf(members->tell.text, sizeof members->tell.text,
                       "epoch %u has ended as planned: ranks come in or leave",
                       members->setup.epoch);
    for (uint32_t other = 1; other < members->setup.world; other++) {
        const struct member *to = gf_members_of(members, other);
        if (to->connected && (to->state <= MEMBER_JOINED))
            gf_members_owe(members, other, MEMBERS_ERROR);
    }
}
