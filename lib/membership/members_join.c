/* Joining: endpoint addresses are collected and handed to everybody. What differs, or who is missing,
 * is told to all ranks that are there. */
#include "lib/membership/members_state.h"

#include <stdio.h>

/* ---- who is there ---- */

/* At least as far as this state, and not away again. */
static bool has_come(const struct gf_members *members, uint32_t rank, member_state state)
{
    const struct member *member = gf_members_of(members, rank);
    return (member->state >= state) && (member->state < MEMBER_DISCONNECTED);
}

/* "1, 3-5 and 12 more": the ranks that are not there. */
static uint32_t missing_text(const struct gf_members *members, char *text_out, size_t bytes)
{
    uint32_t total = 0;
    uint32_t shown = 0;
    uint32_t first_missing = GF_RANK_NONE;
    size_t at = 0;
    text_out[0] = 0;
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        if (has_come(members, rank, MEMBER_JOINED)) continue;
        if (first_missing == GF_RANK_NONE) first_missing = rank;
        uint32_t last = rank;
        while ((last + 1 < members->setup.world) && !has_come(members, last + 1, MEMBER_JOINED))
            last++;
        total += last - rank + 1;
        if (at + 32 < bytes) {
            const char *comma = (at > 0) ? ", " : "";
            int wrote = (last == rank)
                            ? snprintf(text_out + at, bytes - at, "%s%u", comma, rank)
                            : snprintf(text_out + at, bytes - at, "%s%u-%u", comma, rank, last);
            at += (size_t)wrote;
            shown += last - rank + 1;
        }
        rank = last;
    }
    if (total > shown) (void)snprintf(text_out + at, bytes - at, " and %u more", total - shown);
    return first_missing;
}

static void coordinator_deadline(struct gf_members *members)
{
    char missing[112];
    double seconds = (double)(members->now_ns - members->opened_ns) / 1e9;
    uint32_t first = missing_text(members, missing, sizeof missing);
    if ((first != GF_RANK_NONE) && (members->claim.code != GF_OK)) {
        uint32_t peer = (members->claim.peer == GF_RANK_NONE) ? first : members->claim.peer;
        gf_members_failf(members, members->claim.code, peer,
                         "rank %s of %u did not join within %.1f s; %.150s", missing,
                         members->setup.world, seconds, members->claim.text);
    } else if (first == GF_RANK_NONE) {
        gf_members_failf(
            members, GF_ERR_TIMEOUT, GF_RANK_NONE,
            "all ranks are there, but their addresses could not be handed out within %.1f s",
            seconds);
    } else {
        gf_members_failf(members, GF_ERR_TIMEOUT, first,
                         "rank %s of %u did not join within %.1f s at %.80s", missing,
                         members->setup.world, seconds, members->setup.address);
    }
}

/* Everybody who can still come is there. */
static bool join_is_full(const struct gf_members *members, bool count_ended)
{
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        const struct member *peer = gf_members_of(members, rank);
        bool ended = (peer->state == MEMBER_DISCONNECTED) || (peer->state == MEMBER_DEAD);
        if ((rank == members->setup.rank) || has_come(members, rank, MEMBER_JOINED)) continue;
        if (!count_ended || (!ended && !peer->connected)) return false;
    }
    return true;
}

void gf_members_join_time(struct gf_members *members)
{
    uint64_t now_ns = members->now_ns;
    uint64_t timeout_ns = members->setup.join_timeout_ns;
    if (members->state != MEMBERS_JOINING) return;
    if (!members_coordinates(members)) {
        /* The coordinator began no later than it took this connection, so by then it has spoken.
         * Until there is a connection the rendezvous driver has the deadline of the first join,
         * this the one of each later epoch. */
        bool is_here = gf_members_here(members, 0);
        if (!is_here && (members->view.epoch.epoch != 0) &&
            (now_ns - members->opened_ns >= timeout_ns))
            gf_members_failf(members, GF_ERR_TIMEOUT, 0,
                             "rank 0 of epoch %u was not reached within %.1f s",
                             members->setup.epoch, (double)timeout_ns / 1e9);
        else if (is_here && (now_ns - members->connected_ns >= timeout_ns + 2 * MEMBERS_GRACE_NS)) {
            gf_members_failf(members, GF_ERR_TIMEOUT, 0,
                             "joined rank 0 at %.80s, which then said nothing for %.1f s",
                             members->setup.address,
                             (double)(now_ns - members->connected_ns) / 1e9);
        }
        return;
    }
    if (members->join_fails_ns != 0) {
        if (join_is_full(members, true) || (now_ns >= members->join_fails_ns) ||
            (now_ns - members->opened_ns >= timeout_ns))
            gf_members_fail(members, &members->error, &members->error);
        return;
    }
    if (now_ns - members->opened_ns >= timeout_ns) coordinator_deadline(members);
}

/* Anybody may say anything: the join waits for the right process, and tells of this one if none
 * came. What differs says more than that a connection ended. */
static void claim_keep(struct gf_members *members, gf_status code, uint32_t rank, const char *text)
{
    struct gf_error *claim = &members->claim;
    if ((claim->code == GF_ERR_MISMATCH) || (claim->code == code)) return;
    *claim = (struct gf_error){
        .code = code, .peer = rank, .operation = GF_OPERATION_JOIN, .tensor = GF_TENSOR_NONE};
    (void)snprintf(claim->text, sizeof claim->text, "a process that proved nothing: %.200s", text);
    gf_log_line(&members->setup.log, GF_LOG_WARN, "%s; the join goes on without it", claim->text);
}

bool gf_members_rejected(struct gf_members *members, const struct gf_error *error)
{
    const struct gf_rendezvous_driver *driver = members->rendezvous->driver;
    bool first_join = (members->state == MEMBERS_JOINING) && (members->view.epoch.epoch == 0);
    if (!first_join || !members_coordinates(members) || (error->peer >= members->setup.world))
        return false;
    if ((driver->reject == NULL) ||
        !driver->reject(members->rendezvous, members_id(members, error->peer), error->text))
        return false;
    struct member *member = gf_members_at(members, error->peer);
    member->state = MEMBER_EXPECTED;
    member->connected = member->leaves = false;
    member->owed = 0;
    memset(&member->said, 0, sizeof member->said);
    claim_keep(members, error->code, error->peer, error->text);
    return true;
}

void gf_members_join_refused(struct gf_members *members, const struct gf_rendezvous_event *event)
{
    if ((members->state != MEMBERS_JOINING) || !members_coordinates(members)) return;
    if (event->unproven) {
        claim_keep(members, GF_ERR_MISMATCH, event->rank, event->text);
        return;
    }
    if ((event->rank > 0) && (event->rank < members->setup.world) &&
        !gf_members_of(members, event->rank)->connected)
        gf_members_at(members, event->rank)->state = MEMBER_DISCONNECTED; /* it will not come */
    gf_members_join_failf(members, GF_ERR_MISMATCH, event->rank, "ranks differ: %s", event->text);
}

/* ---- what joins ---- */

void gf_members_join_offer(struct gf_members *members, uint32_t from, struct gf_get *get)
{
    struct gf_offer offer;
    char difference[240];
    if (!gf_members_offer_get(get, &offer) ||
        (gf_members_of(members, from)->state != MEMBER_EXPECTED)) {
        gf_members_join_failf(members, GF_ERR_PEER, from, "rank %u sent a malformed offer", from);
        return;
    }
    struct member *member = gf_members_at(members, from);
    member->state = MEMBER_OFFERED;
    member->said.node = offer.node;
    member->said.network = offer.network;
    member->said.fabric = offer.fabric;
    if (!gf_members_offer_difference(members, &offer, from, difference, sizeof difference)) return;
    gf_members_join_failf(members, GF_ERR_MISMATCH, from, "%s", difference);
}

void gf_members_join_endpoints(struct gf_members *members, uint32_t from, struct gf_get *get)
{
    if (!gf_members_endpoints_take(members, from, get)) {
        gf_members_join_failf(members, GF_ERR_PEER, from, "rank %u sent a malformed address", from);
        return;
    }
    if (members_coordinates(members)) gf_members_join_full(members);
}

void gf_members_endpoint_again(struct gf_members *members)
{
    struct member *coordinator = gf_members_at(members, 0);
    coordinator->said.endpoint_rank = coordinator->said.endpoint_at = 0;
    gf_members_owe(members, 0, MEMBERS_ENDPOINTS);
}

void gf_members_join_full(struct gf_members *members)
{
    if ((members->join_fails_ns != 0) || !join_is_full(members, false) ||
        !gf_members_links_fit(members))
        return;
    members->go = true;
    if (members->rendezvous->driver->joined != NULL)
        members->rendezvous->driver->joined(members->rendezvous);
    gf_view_epoch_begun(members);
    for (uint32_t rank = 1; rank < members->setup.world; rank++) {
        gf_members_at(members, rank)->said.endpoint_rank = 0;
        gf_members_at(members, rank)->said.endpoint_at = 0;
        gf_members_owe(members, rank, MEMBERS_ENDPOINTS);
        gf_members_owe(members, rank, MEMBERS_GO);
    }
}

void gf_members_join_go(struct gf_members *members)
{
    if (join_is_full(members, false)) {
        members->state = MEMBERS_MEMBER;
        gf_view_epoch_begun(members);
        return;
    }
    gf_members_failf(members, GF_ERR_PEER, 0,
                     "rank 0 ended the join before all addresses were here");
}
