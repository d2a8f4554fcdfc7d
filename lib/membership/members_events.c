/* What comes in from the control channel, and what it changes. */
#include "lib/membership/members_state.h"

#include <stdio.h>

const char *gf_members_fate(gf_rendezvous_end end)
{
    switch (end) {
    case GF_END_GONE: break;
    case GF_END_LEFT: return "left";
    case GF_END_SILENT: return "says nothing";
    case GF_END_CUT: return "is cut off";
    case GF_END_RESET: return "lost its connection";
    }
    return "died";
}

static void rank_lost(struct gf_members *members, uint32_t rank, gf_rendezvous_end end,
                      const char *how)
{
    const char *fate = gf_members_fate(end);
    const struct member *peer = gf_members_of(members, rank);
    const struct gf_position *told = &peer->said.told.position;
    const bool is_stale = told->step < members->position.step;
    if (members->state == MEMBERS_JOINING)
        gf_members_join_failf(members, GF_ERR_PEER, rank, "rank %u %s while ranks were joining: %s",
                              rank, fate, how);
    else if (is_stale) /* each step ends by all votes: it was in this one */
        gf_members_failf(members, GF_ERR_PEER, rank, "rank %u %s: %.80s; rank %u was in %s", rank,
                         fate, how, members->setup.rank,
                         gf_members_place(members, &members->position).text);
    else if (peer->said.heard_ns != 0)
        gf_members_fail_in(members, GF_ERR_PEER, rank, told,
                           "rank %u %s: %.80s in %s (as of %.1f s ago)", rank, fate, how,
                           gf_members_place(members, told).text,
                           (double)(members->now_ns - peer->said.heard_ns) / 1e9);
    else
        gf_members_failf(members, GF_ERR_PEER, rank, "rank %u %s: %.80s while rank %u was in %s",
                         rank, fate, how, members->setup.rank,
                         gf_members_place(members, &members->position).text);
}

static void on_connected(struct gf_members *members, uint32_t rank)
{
    if (members_coordinates(members)) {
        if (members->state == MEMBERS_FAILED) gf_members_owe(members, rank, MEMBERS_ERROR);
        return;
    }
    members->connected_ns = members->now_ns;
    gf_members_own_address(members); /* it is known now */
    gf_members_owe(members, 0, MEMBERS_OFFER);
    gf_members_endpoint_again(members); /* all of it: it may be the second time */
}

static void on_told(struct gf_members *members, struct member *peer, struct gf_get *get)
{
    uint32_t inquiry = gf_get_u32(get);
    gf_members_told_get(get, &peer->said.told);
    if (get->bad) return;
    if ((inquiry != 0) && !gf_members_waits_get(members, get, &peer->said.waits)) {
        get->bad = true;
        return;
    }
    peer->said.heard_ns = (members->now_ns > 0) ? members->now_ns : 1;
    gf_members_patience_take(members, peer->said.told.patience_ns, peer->said.told.patience_from);
    if (inquiry == 0) return;
    peer->said.answered = inquiry;
    peer->said.answer_ns = gf_members_inquiry_age(members);
}

/* Does a rank give up because this one, which coordinates, did not answer, and is that so? Then the
 * others hear it as it is. Of two ranks only this one can go on, whoever is named. */
static bool was_away(const struct gf_members *members, const struct gf_error *error)
{
    return (error->code == GF_ERR_TIMEOUT) && (error->peer == members->setup.rank) &&
           (members->setup.world > 2) &&
           (members->position.unpolled_ns >= members->setup.answer_ns);
}

/* Frames that a rank sends to the coordinator. False: it may not come now, or it is malformed. */
static bool coordinator_frame(struct gf_members *members, uint32_t from, uint32_t kind,
                              struct gf_get *get)
{
    struct gf_error error = {0};
    struct member *peer = gf_members_at(members, from);
    bool offers = (members->state == MEMBERS_JOINING) && (peer->state < MEMBER_OFFERED);
    if (offers && (kind != MEMBERS_OFFER) && (kind != MEMBERS_GIVES_UP)) return false;
    switch (kind) {
    case MEMBERS_OFFER:
        gf_members_join_offer(members, from, get);
        return members->state == MEMBERS_JOINING;
    case MEMBERS_ENDPOINTS:
        gf_members_join_endpoints(members, from, get);
        return members->state == MEMBERS_JOINING;
    case MEMBERS_STATUS:
    case MEMBERS_POSITION:
        on_told(members, peer, get);
        if (!get->bad) gf_members_calls_compare(members, from);
        break;
    case MEMBERS_FAULT:
        gf_members_error_get(get, &error);
        if (!get->bad) gf_members_inquiry_begin(members, from, &error);
        break;
    case MEMBERS_GIVES_UP:
        gf_members_error_get(get, &error);
        if (get->bad) break;
        if (!was_away(members, &error)) error = gf_members_gave_up(from, &error);
        if (!gf_members_rejected(members, &error)) gf_members_fail(members, &error, &error);
        break;
    case MEMBERS_BYE:
        peer->leaves = true;
        if (members->state == MEMBERS_JOINING) return false;
        gf_members_closed_note(members, from, &peer->said.told.position);
        break;
    default: return false;
    }
    return !get->bad;
}

/* Frames that the coordinator sends. */
static bool rank_frame(struct gf_members *members, uint32_t kind, struct gf_get *get)
{
    struct gf_error error = {0};
    struct members_cut cut;
    switch (kind) {
    case MEMBERS_ENDPOINTS:
        gf_members_join_endpoints(members, 0, get);
        return members->state == MEMBERS_JOINING;
    case MEMBERS_GO: gf_members_join_go(members); break;
    case MEMBERS_LINK: return gf_members_link_take(members, get);
    case MEMBERS_NEWS: gf_members_news_walk(&(struct gf_walk){.get = get}, members); break;
    case MEMBERS_ASK:
        members->inquiry = gf_get_u32(get);
        gf_members_inquiry_note(members);
        if (!get->bad) gf_members_owe(members, 0, MEMBERS_POSITION);
        break;
    case MEMBERS_ERROR:
        gf_members_error_get(get, &error);
        if (get->bad || !gf_members_cut_get(members, get, &cut)) return false;
        if (!members_over(members)) members->cut = cut;
        gf_members_fail(members, &error, &error);
        break;
    case MEMBERS_ALL_GONE:
        if (!members->leaving) return false;
        members->state = MEMBERS_GONE;
        break;
    default: return false;
    }
    return !get->bad;
}

static void on_frame(struct gf_members *members, uint32_t rank,
                     const struct gf_rendezvous_event *event, struct gf_get *get)
{
    uint32_t epoch = event->frame_kind >> MEMBERS_KIND_BITS;
    uint32_t kind = members_kind(event);
    uint32_t own = members->setup.epoch & MEMBERS_EPOCH_MASK;
    bool good = false;
    if (members_over(members)) return;
    if (members_is_of_a_view(kind)) epoch = own; /* malformed: of no epoch */
    /* Of an epoch that has ended. A first offer is looked at whatever it says, to be refused by its
     * values. */
    bool first =
        ((kind == MEMBERS_OFFER) || (kind == MEMBERS_ERROR)) && (members->view.epoch.epoch == 0);
    if ((epoch != own) && !first) return;
    if (members_coordinates(members))
        good = coordinator_frame(members, rank, kind, get);
    else if (rank == 0)
        good = rank_frame(members, kind, get);
    if (good || (members->state == MEMBERS_FAILED)) return;
    struct gf_error error = {.code = GF_ERR_PEER, .peer = rank};
    (void)snprintf(error.text, sizeof error.text,
                   "rank %u sent a frame that cannot come now or is malformed "
                   "(kind %u, %u bytes)",
                   rank, kind, event->size_bytes);
    if (!gf_members_rejected(members, &error))
        gf_members_failf(members, GF_ERR_PEER, rank, "%s", error.text);
}

/* ---- an event, by the process that it is of ---- */

/* Of what a process with a connection is. */
typedef enum process {
    PROCESS_WAITS,    /* of no epoch: it rejoins, or is new */
    PROCESS_OUTSIDE,  /* its member id is none of this epoch */
    PROCESS_BETWEEN,  /* a member, while this rank is between two epochs */
    PROCESS_OF_EPOCH, /* a member of the epoch under way */
    PROCESS_COUNT
} process;

static process process_of(const struct gf_members *members, const struct gf_rendezvous_event *event)
{
    view_state state = members->view.state;
    if (event->rejoins || gf_member_is_recovering(&members->table[event->rank]))
        return PROCESS_WAITS;
    if (gf_members_rank(members, event->rank) == GF_RANK_NONE) return PROCESS_OUTSIDE;
    return ((state == VIEW_NONE) || (state == VIEW_FAILED)) ? PROCESS_OF_EPOCH : PROCESS_BETWEEN;
}

/* Who hears of an event: the view change, whose frames nobody else reads unless they are malformed;
 * then the epoch under way, or who looks at what processes say that it does not expect. The end of a
 * process that waits is of no view. */
enum { VIEW = 1, EPOCH = 2, OFFERS = 4 };
static const unsigned char hears[PROCESS_COUNT][GF_RENDEZVOUS_REFUSED] = {
    /* CONNECTED, FRAME, ENDED */
    [PROCESS_WAITS] = {VIEW, VIEW, 0},
    [PROCESS_OUTSIDE] = {VIEW, VIEW | OFFERS, VIEW},
    [PROCESS_BETWEEN] = {VIEW, VIEW, VIEW},
    [PROCESS_OF_EPOCH] = {VIEW | EPOCH, VIEW | EPOCH, VIEW | EPOCH},
};

/* The row of a member whose connection has begun or ended: nothing is owed on it, and what was
 * answered was answered on the one before. */
static void connection_note(struct gf_members *members, const struct gf_rendezvous_event *event)
{
    struct member *member = &members->table[event->rank];
    bool waits = gf_member_is_recovering(member);
    bool reported = (member->state == MEMBER_REPORTED) || (member->state == MEMBER_ACCEPTED);
    if (reported) member->leaves = false; /* it has not left: nobody has decided yet */
    member->connected = (event->kind == GF_RENDEZVOUS_CONNECTED);
    member->lost = !member->connected;
    member->answered = false;
    member->owed = 0;
    gf_view_waiting_drop(members, event->rank);
    if (!member->connected) {
        bool gone = waits || (event->end == GF_END_GONE);
        member->state = gone ? MEMBER_DEAD : MEMBER_DISCONNECTED;
        member->end = event->end;
    } else if (!event->rejoins) {
        member->state = MEMBER_EXPECTED;
        member->incarnation = 0; /* it says it again, if it waits */
    } else {
        member->state = MEMBER_RECOVERING;
        member->excluded = member->passed_over = false; /* that was the process before it */
    }
}

static void epoch_event(struct gf_members *members, const struct gf_rendezvous_event *event,
                        struct gf_get *get)
{
    uint32_t rank = gf_members_rank(members, event->rank);
    bool is_over = members_over(members) || members->table[event->rank].leaves;
    if (event->kind == GF_RENDEZVOUS_CONNECTED)
        on_connected(members, rank);
    else if (event->kind == GF_RENDEZVOUS_FRAME)
        on_frame(members, rank, event, get);
    else if (!is_over)
        rank_lost(members, rank, event->end, event->text);
}

static void event_take(struct gf_members *members, const struct gf_rendezvous_event *event)
{
    struct gf_get get = {.at = event->payload, .left = event->size_bytes};
    if (event->kind == GF_RENDEZVOUS_REFUSED) { /* it has no row: nobody has let it in */
        if (members->view.epoch.epoch == 0) gf_members_join_refused(members, event);
        return;
    }
    GF_ASSERT((event->rank < members->id_count) && (event->rank != members->member_id));
    uint32_t who = hears[process_of(members, event)][event->kind];
    if (event->kind != GF_RENDEZVOUS_FRAME) connection_note(members, event);
    if (((who & VIEW) != 0) && gf_view_event(members, event, &get)) return;
    if ((who & EPOCH) != 0) epoch_event(members, event, &get);
    /* an offer says what it was told; of a process that is not expected it can only differ */
    if (((who & OFFERS) != 0) && (members_kind(event) == MEMBERS_OFFER))
        gf_members_offer_refuse(members, event->rank, &get);
}

gf_status gf_members_events(struct gf_members *members)
{
    const view_state before = members->view.state;
    for (uint32_t i = 0; (i < MEMBERS_EVENTS_MAX) && (members->id_count > 1); i++) {
        struct gf_rendezvous_event event = {0};
        gf_status status =
            members->rendezvous->driver->poll(members->rendezvous, members->now_ns, &event);
        if (status != GF_OK) return (status == GF_AGAIN) ? GF_OK : status;
        event_take(members, &event);
        if ((members->view.state != before) && (members->view.state >= VIEW_COMMITTED)) break;
    }
    return GF_OK;
}
