/* A process that was started anew comes back to the seat it had. It knocks at the coordinator, which compares what it was
 * given with its own and lets it wait; the verdict of a step tells all ranks that somebody waits (verdict.c). Then the
 * epoch ends by agreement, everybody reports, and the proposal names the survivors and those that wait: all behind it
 * is the shrink of members_shrink.c. A shrink for another reason takes along who waits by then.
 *
 * Until it has heard GO the newcomer is of no epoch. If a try fails it knocks again; who refuses it says why. */
#include "lib/membership/members_state.h"

#include <stdio.h>

bool gf_members_of_no_epoch(uint32_t kind)
{
    return (kind == MEMBERS_REPORT) || (kind == MEMBERS_PROPOSE) || (kind == MEMBERS_KNOCK);
}

/* ---- the newcomer ---- */

uint32_t gf_members_knock_put(struct gf_members *members)
{
    struct gf_put put = {members->scratch, sizeof members->scratch};
    gf_put_u32(&put, members->seat_count);
    gf_put_u32(&put, members->shrink.epoch_last);
    gf_members_offer_put(&put, members);
    return (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left);
}

void gf_members_knock_again(struct gf_members *members)
{
    struct members_shrink *shrink = &members->shrink;
    shrink->state = MEMBERS_SHRINK_SEEK;
    shrink->coordinator = GF_RANK_NONE;
    shrink->report = false;
    for (uint32_t seat = 0; seat < members->seat_count; seat++) members->seats[seat].up = false;
    (void)members->rendezvous->driver->reform(members->rendezvous, members->now_ns, GF_RANK_NONE, "");
}

void gf_members_knock(struct gf_members *members, uint64_t now_ns, uint64_t settle_ns)
{
    struct members_shrink *shrink = &members->shrink;
    members->now_ns = now_ns;
    members->state = MEMBERS_FAILED; /* as between two epochs */
    members->setup.rank = members->seat;
    members->setup.world = members->setup.offer.world = members->seat_count;
    for (uint32_t seat = 0; seat < members->seat_count; seat++) members->seats[seat].rank = GF_RANK_NONE;
    shrink->knocks = true;
    shrink->prepared.epoch = 0;
    shrink->settle_ns = shrink->away_ns = settle_ns;
    shrink->own = (struct gf_members_standing){.applied = 1, .torn = 1};
    gf_members_knock_again(members);
}

/* ---- the others ---- */

uint32_t gf_members_knocking(const struct gf_members *members)
{
    uint32_t count = 0;
    for (uint32_t seat = 0; (seat < members->seat_count) && members_coordinates(members); seat++)
        count += (members->seats[seat].joins && members->seats[seat].reported && members->seats[seat].up) ? 1u : 0u;
    return count;
}

static void refuse(struct gf_members *members, uint32_t seat, gf_status code, const char *text)
{
    uint32_t bytes = gf_members_answer_put(members, code, text);
    members->seats[seat].reported = false;
    gf_log_line(&members->setup.log, GF_LOG_WARN, "a restarted process for rank %u of the first epoch was turned away: "
                "%s", seat, text);
    (void)members->rendezvous->driver->send(members->rendezvous, seat, MEMBERS_PROPOSE, members->scratch, bytes);
}

void gf_members_knock_take(struct gf_members *members, uint32_t seat, struct gf_get *get)
{
    uint32_t epoch, seat_count = gf_get_u32(get), epoch_last = gf_get_u32(get);
    struct gf_offer offer;
    char difference[240];
    if (!gf_members_offer_get(get, &offer, &epoch)) return;
    if (!members->seats[seat].joins) {
        get->bad = true;
        return;
    }
    if (seat_count != members->seat_count) {
        (void)snprintf(difference, sizeof difference, "the job began with %u ranks, it was told %u",
                       members->seat_count, seat_count);
        refuse(members, seat, GF_ERR_MISMATCH, difference);
        return;
    }
    if (members->shrink.base.epoch == 0) {
        refuse(members, seat, GF_ERR_STATE, "the job has not begun yet: expected rendezvous.rejoin = false");
        return;
    }
    if (members->leaving || (members->state == MEMBERS_GONE)) {
        refuse(members, seat, GF_ERR_STATE, "the job is ending");
        return;
    }
    offer.world = members->setup.offer.world; /* of this epoch */
    if (gf_members_offer_difference(members, &offer, members->setup.epoch, seat, difference, sizeof difference)) {
        refuse(members, seat, GF_ERR_MISMATCH, difference);
        return;
    }
    if (epoch_last > members->shrink.epoch_last) members->shrink.epoch_last = epoch_last;
    members->seats[seat].standing = (struct gf_members_standing){.applied = 1, .torn = 1};
    members->seats[seat].reported = true;
    gf_log_line(&members->setup.log, GF_LOG_INFO, "rank %u of the first epoch was started anew and waits to come in",
                seat);
}

void gf_members_turn_away(struct gf_members *members, const char *reason)
{
    for (uint32_t seat = 0; seat < members->seat_count; seat++)
        if (members->seats[seat].joins && members->seats[seat].up) refuse(members, seat, GF_ERR_STATE, reason);
}

void gf_members_admit(struct gf_members *members, uint64_t now_ns, const struct gf_members_standing *own,
                      uint64_t settle_ns, uint64_t away_ns)
{
    members->error = (struct gf_error){.code = GF_ERR_PEER, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    gf_members_shrink(members, now_ns, GF_RANK_NONE, own, settle_ns);
    members->shrink.admits = true;
    if (away_ns < settle_ns) members->shrink.away_ns = away_ns;
}

/* While this rank collects, others may still be in the last step of the epoch. Should it not end there, because another
 * rank has died or does not come, nobody else would tell them. */
void gf_members_admit_event(struct gf_members *members, const struct gf_rendezvous_event *event)
{
    const struct members_shrink *shrink = &members->shrink;
    uint32_t kind = event->frame_kind & ((1u << MEMBERS_KIND_BITS) - 1u), rank = members->seats[event->rank].rank;
    bool ended = (event->kind == GF_RENDEZVOUS_ENDED);
    if (!shrink->admits || (shrink->state != MEMBERS_SHRINK_COLLECT) || (rank == GF_RANK_NONE)) return;
    if (members->seats[event->rank].joins || (!ended && (kind != MEMBERS_BLAME) && (kind != MEMBERS_TELL))) return;
    members->tell = (struct gf_error){.code = GF_ERR_PEER, .peer = ended ? rank : GF_RANK_NONE,
                                      .operation = GF_OPERATION_SHRINK, .tensor = GF_TENSOR_NONE};
    (void)snprintf(members->tell.text, sizeof members->tell.text, "%s %u %s", ended ? "rank" : "epoch",
                   ended ? rank : members->setup.epoch,
                   ended ? "died while a restarted rank was let in" : "has ended, so that a restarted rank can come in");
    for (uint32_t other = 1; other < members->setup.world; other++) {
        const struct members_seat *seat = &members->seats[members->seat_of[other]];
        if (seat->up && !seat->reported && (other != rank || !ended)) gf_members_owe(members, other, MEMBERS_VERDICT);
    }
}
