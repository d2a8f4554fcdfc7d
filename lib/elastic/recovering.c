/* A process that was started anew is RECOVERING: it has the member id of one that has ended, and none of its promises. It
 * rejoins at the coordinator, which compares what it was given with its own and lets it wait; the vote of a step tells all
 * ranks that somebody waits (verdict.c). Then the epoch ends by agreement, and the proposal takes along who waits. A view
 * change for another reason does, too.
 *
 * It is a member once COMMIT has reached it over the connection on which it waited. Until then a try that fails begins
 * anew; who refuses it says why. */
#include "lib/membership/members_state.h"

#include <stdio.h>

bool gf_view_of_no_epoch(uint32_t kind)
{
    return (kind >= MEMBERS_DO_VIEW_CHANGE) && (kind < MEMBERS_FRAME_COUNT);
}

/* ---- the joiner ---- */

void gf_view_rejoin_again(struct gf_members *members)
{
    struct members_view *view = &members->view;
    view->state = VIEW_SEEK;
    view->coordinator = view->star = GF_RANK_NONE;
    for (uint32_t id = 0; id < members->id_count; id++) members->table[id] = (struct member){.rank = GF_RANK_NONE};
    (void)members->rendezvous->driver->reform(members->rendezvous, members->now_ns, GF_RANK_NONE, "");
}

void gf_members_rejoin(struct gf_members *members, uint64_t now_ns, uint64_t settle_ns)
{
    struct members_view *view = &members->view;
    members->now_ns = now_ns;
    members->state = MEMBERS_FAILED; /* as between two epochs */
    members->setup.rank = members->member_id;
    members->setup.world = members->setup.offer.world = members->id_count;
    memset(view, 0, sizeof *view);
    view->rejoins = true;
    view->settle_ns = view->away_ns = settle_ns;
    view->own = (struct gf_members_standing){.applied = 1, .torn = 1};
    gf_view_rejoin_again(members);
}

/* ---- the others ---- */

uint32_t gf_view_waiting(const struct gf_members *members)
{
    uint32_t count = 0;
    for (uint32_t id = 0; (id < members->id_count) && members_coordinates(members); id++)
        count += (members->table[id].connected && (members->table[id].state == MEMBER_WAITS)) ? 1u : 0u;
    return count;
}

static void refuse(struct gf_members *members, uint32_t id, gf_status code, const char *text)
{
    struct gf_put put = {members->scratch, sizeof members->scratch};
    struct view_proposal none = {.lead = 0};
    gf_put_u32(&put, (uint32_t)code);
    gf_put_u32(&put, 0);
    gf_view_proposal_put(&put, &none, members->id_count);
    gf_put_text(&put, text, 160);
    members->table[id].state = MEMBER_RECOVERING;
    gf_log_line(&members->setup.log, GF_LOG_WARN, "a restarted process for rank %u of the first epoch was rejected: %s", id,
                text);
    (void)members->rendezvous->driver->send(members->rendezvous, id, MEMBERS_COMMIT, members->scratch,
                                            (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left));
}

void gf_view_rejoin_take(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    uint32_t epoch, id_count = gf_get_u32(get);
    struct gf_offer offer;
    char difference[240];
    if (!gf_members_offer_get(get, &offer, &epoch)) return;
    if (members->table[id].state < MEMBER_RECOVERING) {
        get->bad = true;
        return;
    }
    if (id_count != members->id_count) {
        (void)snprintf(difference, sizeof difference, "the job began with %u ranks, it was told %u", members->id_count,
                       id_count);
        refuse(members, id, GF_ERR_MISMATCH, difference);
        return;
    }
    if (members->view.epoch.epoch == 0) {
        refuse(members, id, GF_ERR_STATE, "the job has not begun yet: expected rendezvous.rejoin = false");
        return;
    }
    if (members->leaving || (members->state == MEMBERS_GONE)) {
        refuse(members, id, GF_ERR_STATE, "the job is ending");
        return;
    }
    offer.world = members->setup.offer.world; /* of this epoch */
    if (gf_members_offer_difference(members, &offer, members->setup.epoch, id, difference, sizeof difference)) {
        refuse(members, id, GF_ERR_MISMATCH, difference);
        return;
    }
    members->table[id].standing = (struct gf_members_standing){.applied = 1, .torn = 1};
    members->table[id].state = MEMBER_WAITS;
    gf_log_line(&members->setup.log, GF_LOG_INFO, "rank %u of the first epoch was started anew and waits to come in", id);
}

void gf_view_turn_away(struct gf_members *members, const char *reason)
{
    for (uint32_t id = 0; id < members->id_count; id++)
        if ((members->table[id].state >= MEMBER_RECOVERING) && members->table[id].connected)
            refuse(members, id, GF_ERR_STATE, reason);
}

void gf_members_admit(struct gf_members *members, uint64_t now_ns, const struct gf_members_standing *own,
                      uint64_t settle_ns, uint64_t away_ns)
{
    members->error = (struct gf_error){.code = GF_ERR_PEER, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    gf_members_shrink(members, now_ns, GF_RANK_NONE, own, settle_ns);
    members->view.admits = true;
    if (away_ns < settle_ns) members->view.away_ns = away_ns;
}

/* While this rank collects, others may still be in the last step of the epoch. Should it not end there, because another
 * rank has died or does not come, nobody else would tell them. */
void gf_view_admit_event(struct gf_members *members, const struct gf_rendezvous_event *event)
{
    const struct members_view *view = &members->view;
    uint32_t kind = event->frame_kind & ((1u << MEMBERS_KIND_BITS) - 1u), rank = members->table[event->rank].rank;
    bool ended = (event->kind == GF_RENDEZVOUS_ENDED);
    if (!view->admits || (view->state != VIEW_COLLECT) || (rank == GF_RANK_NONE)) return;
    if ((members->table[event->rank].state >= MEMBER_RECOVERING) || (!ended && (kind != MEMBERS_BLAME) && (kind != MEMBERS_TELL))) return;
    members->tell = (struct gf_error){.code = GF_ERR_PEER, .peer = ended ? rank : GF_RANK_NONE,
                                      .operation = GF_OPERATION_SHRINK, .tensor = GF_TENSOR_NONE};
    (void)snprintf(members->tell.text, sizeof members->tell.text, "%s %u %s", ended ? "rank" : "epoch",
                   ended ? rank : members->setup.epoch,
                   ended ? "died while a restarted rank was let in" : "has ended, so that a restarted rank can come in");
    for (uint32_t other = 1; other < members->setup.world; other++) {
        const struct member *member = &members->table[members->id_of[other]];
        if (member->connected && (member->state == MEMBER_EXPECTED) && (other != rank || !ended)) gf_members_owe(members, other, MEMBERS_VERDICT);
    }
}
