/* Who is in the world: what comes in, and what it changes. members_run.c polls. */
#include "lib/membership/members_state.h"

#include "drivers/fnv.h"

#include <stdarg.h>
#include <stdio.h>

size_t gf_members_state_bytes(uint32_t id_count, size_t endpoint_bytes_max)
{
    return sizeof(struct gf_members) + id_count * (sizeof(struct member) + sizeof(uint32_t) +
                                                   GF_CONTROL_ADDRESS_BYTES + endpoint_bytes_max);
}

/* Where this rank could be reached if it had to coordinate travels in front of its endpoint
 * address. */
static void own_address(struct gf_members *members)
{
    char *address = (char *)members_endpoint_at(members, members->setup.rank);
    if (members->rendezvous->driver->address != NULL)
        members->rendezvous->driver->address(members->rendezvous, address);
}

bool gf_members_of_no_epoch(uint32_t kind)
{
    return (kind >= MEMBERS_DO_VIEW_CHANGE) && (kind < MEMBERS_FRAME_COUNT);
}

struct member *gf_members_at(const struct gf_members *members, uint32_t rank)
{
    return (struct member *)&members->table[members_id(members, rank)];
}

bool gf_members_here(const struct gf_members *members, uint32_t rank)
{
    return gf_member_is_here(gf_members_of(members, rank));
}

const uint32_t *gf_members_ids(const struct gf_members *members)
{
    return members->id_of;
}
uint32_t gf_members_rank(const struct gf_members *members, uint32_t id)
{
    return members->table[id].epoch_rank;
}

uint32_t gf_members_waiting(const struct gf_members *members)
{
    uint32_t count = 0;
    for (uint32_t id = 0; (id < members->id_count) && members_coordinates(members); id++)
        count += (members->table[id].state == MEMBER_WAITS) ? 1u : 0u;
    return count;
}

void gf_members_epoch_begin(struct gf_members *members, const void *endpoint, size_t endpoint_bytes,
                            uint64_t now_ns)
{
    const struct gf_members_setup *setup = &members->setup;
    unsigned char *own = members_endpoint_at(members, setup->rank);
    GF_ASSERT(GF_CONTROL_ADDRESS_BYTES + endpoint_bytes <= setup->endpoint_bytes_max);
    for (uint32_t id = 0; id < members->id_count; id++) {
        struct member *member = &members->table[id];
        if (member->state <= MEMBER_ACCEPTED) member->state = MEMBER_EXPECTED;
        member->leaves = false;
        member->owed &= MEMBERS_VIEW_FRAMES;
        memset(&member->said, 0, sizeof member->said);
    }
    members->state = MEMBERS_JOINING;
    members->go = members->link_due = members->leaving = members->leave_asks = false;
    members->inquiring = members->asked = false;
    members->join_fails_ns = 0;
    members->flush_first = members->seen_by = 0;
    members->call_count = 0;
    members->calls[0] = (struct members_call){.hash = GF_FNV_START};
    members->now_ns = members->opened_ns = members->connected_ns = members->moved_ns =
        members->status_ns = now_ns;
    members->position = (struct gf_position){.step = members->position.step,
                                             .operation = GF_OPERATION_NONE,
                                             .tensor = GF_TENSOR_NONE,
                                             .waits_for = GF_RANK_NONE};
    members->moved = members->position;
    gf_members_at(members, setup->rank)->said = (struct member_said){
        .endpoint_bytes = (uint32_t)(GF_CONTROL_ADDRESS_BYTES + endpoint_bytes),
        .node = setup->offer.node,
        .network = setup->offer.network,
        .fabric = setup->offer.fabric};
    memset(own, 0, GF_CONTROL_ADDRESS_BYTES);
    own_address(members);
    if (endpoint_bytes > 0) memcpy(own + GF_CONTROL_ADDRESS_BYTES, endpoint, endpoint_bytes);
    if (setup->world > 1) return;
    members->state = MEMBERS_MEMBER;
    gf_view_epoch_begun(members);
}

struct gf_members *gf_members_open(const struct gf_members_setup *setup, void *state,
                                   struct gf_rendezvous *rendezvous, const void *endpoint,
                                   size_t endpoint_bytes, uint64_t now_ns)
{
    struct gf_members *members = state;
    GF_ASSERT((setup->world > 0) && (setup->world <= setup->id_count) &&
              (endpoint_bytes <= setup->endpoint_bytes_max));
    GF_ASSERT(setup->rank < (setup->joins ? setup->id_count : setup->world));
    memset(members, 0, sizeof *members + setup->id_count * sizeof members->table[0]);
    members->setup = *setup;
    members->setup.endpoint_bytes_max += GF_CONTROL_ADDRESS_BYTES;
    members->rendezvous = rendezvous;
    members->member_id = setup->rank;
    members->id_count = setup->id_count;
    members->first_world = setup->world;
    members->incarnation =
        (uint32_t)gf_fnv_u64(gf_fnv_u64(GF_FNV_START, setup->offer.node), now_ns) | 1u;
    /* until an epoch has it */
    if (setup->joins) members->setup.world = members->setup.offer.world = setup->id_count;
    members->id_of = (uint32_t *)&members->table[setup->id_count];
    members->endpoints = (unsigned char *)(members->id_of + setup->id_count);
    for (uint32_t id = 0; id < setup->id_count; id++) {
        members_rank_set(members, id, id);
        if ((id >= setup->world) || setup->joins) members_rank_set(members, id, GF_RANK_NONE);
    }
    members->position.operation = GF_OPERATION_NONE;
    gf_members_epoch_begin(members, endpoint, endpoint_bytes, now_ns);
    return members;
}

/* ---- what is owed to whom ---- */

void gf_members_owe_id(struct gf_members *members, uint32_t id, members_frame frame)
{
    members->table[id].owed |= 1u << frame;
    members->owes = true;
}

void gf_members_owe(struct gf_members *members, uint32_t rank, members_frame frame)
{
    GF_ASSERT(rank < members->setup.world);
    gf_members_owe_id(members, members_id(members, rank), frame);
}

void gf_members_owe_all(struct gf_members *members, members_frame frame)
{
    for (uint32_t rank = 0; rank < members->setup.world; rank++)
        if (gf_members_here(members, rank)) gf_members_owe(members, rank, frame);
}

bool gf_members_owes(const struct gf_members *members, uint32_t frames)
{
    bool any = false;
    for (uint32_t id = 0; members->owes && (id < members->id_count); id++)
        any = any || ((members->table[id].owed & frames) != 0);
    return any;
}

static void member_flush(struct gf_members *members, uint32_t id)
{
    struct member *member = &members->table[id];
    for (uint32_t i = 0; (i < MEMBERS_FRAMES_MAX) && (member->owed != 0); i++) {
        members_frame frame = (members_frame)__builtin_ctz(member->owed);
        bool more = false, of_an_epoch = !gf_members_of_no_epoch((uint32_t)frame);
        uint32_t endpoint_rank = member->said.endpoint_rank;
        uint32_t endpoint_at = member->said.endpoint_at;
        uint32_t bytes = of_an_epoch ? gf_members_frame_put(members, member, frame, &more)
                                     : gf_view_frame_put(members, (uint32_t)frame);
        uint32_t epoch = of_an_epoch ? members->setup.epoch & MEMBERS_EPOCH_MASK : 0;
        gf_status status = members->rendezvous->driver->send(
            members->rendezvous, id, (uint32_t)frame | (epoch << MEMBERS_KIND_BITS),
            members->scratch, bytes);
        if (status == GF_AGAIN) {
            member->said.endpoint_rank = endpoint_rank; /* nothing was taken */
            member->said.endpoint_at = endpoint_at;
            return;
        }
        if (status != GF_OK)
            member->owed = 0; /* the end of the connection is on its way to us */
        else if (!more)
            member->owed &= ~(1u << frame);
    }
}

void gf_members_flush(struct gf_members *members)
{
    uint32_t first = members->flush_first;
    if (!members->owes) return;
    for (uint32_t i = 0; i < members->id_count; i++)
        member_flush(members, (first + i) % members->id_count);
    members->owes = gf_members_owes(members, ~0u);
    members->flush_first = (first + 1) % members->id_count;
}

/* ---- failing ---- */

void gf_members_fail(struct gf_members *members, const struct gf_error *error,
                     const struct gf_error *told)
{
    if (members_over(members)) return;
    GF_ASSERT(error->code < 0);
    members->tell = *told;
    members->error = *error;
    members->error.rank = members->setup.rank;
    members->state = MEMBERS_FAILED;
    for (uint32_t rank = 0; rank < members->setup.world; rank++)
        gf_members_at(members, rank)->owed &= MEMBERS_VIEW_FRAMES;
    if (members_coordinates(members)) gf_members_owe_all(members, MEMBERS_ERROR);
}

void gf_members_fail_and_tell(struct gf_members *members, const struct gf_error *error,
                              const struct gf_error *told)
{
    if (members_over(members)) return;
    gf_members_fail(members, error, told);
    if (!members_coordinates(members) && gf_members_here(members, 0))
        gf_members_owe(members, 0, MEMBERS_GIVES_UP);
}

const struct gf_position gf_members_join_place = {.operation = GF_OPERATION_JOIN,
                                                  .tensor = GF_TENSOR_NONE};

void gf_members_fail_in(struct gf_members *members, gf_status code, uint32_t peer,
                        const struct gf_position *at, const char *format, ...)
{
    bool joins = (members->state == MEMBERS_JOINING), of_the_join = (at == &gf_members_join_place);
    va_list arguments;
    if (members_over(members) || (of_the_join && (!joins || (members->join_fails_ns != 0)))) return;
    if (at == NULL) at = joins ? &gf_members_join_place : &members->position;
    struct gf_error error = {.code = code,
                             .peer = peer,
                             .tensor = at->tensor,
                             .step =
                                 (at == &gf_members_join_place) ? members->position.step : at->step,
                             .operation = (gf_operation)at->operation};
    va_start(arguments, format);
    (void)vsnprintf(error.text, sizeof error.text, format, arguments);
    va_end(arguments);
    of_the_join = of_the_join && members_coordinates(members);
    if (of_the_join && gf_members_rejected(members, &error)) return;
    if (!of_the_join) {
        gf_members_fail_and_tell(members, &error, &error);
        return;
    }
    /* Ranks that are still on their way would find nobody that listens: they get a moment to come
     * and hear of it. */
    members->error = error;
    members->join_fails_ns = members->now_ns + MEMBERS_GRACE_NS;
}

struct gf_error gf_members_gave_up(uint32_t from, const struct gf_error *error)
{
    struct gf_error told = *error;
    /* what the vote has told all ranks: the same on each */
    if (error->code == GF_ERR_NUMERIC) return told;
    told.code = GF_ERR_PEER;
    told.peer = from;
    (void)snprintf(told.text, sizeof told.text, "rank %u gave up: %.230s", from, error->text);
    return told;
}

static void rank_died(struct gf_members *members, uint32_t rank, const char *how)
{
    const struct member *peer = gf_members_of(members, rank);
    const struct gf_position *told = &peer->said.told.position;
    if (members->state == MEMBERS_JOINING)
        gf_members_join_failf(members, GF_ERR_PEER, rank,
                              "rank %u died while ranks were joining: %s", rank, how);
    else if (peer->said.heard_ns != 0)
        gf_members_fail_in(members, GF_ERR_PEER, rank, told,
                           "rank %u died: %.80s in %s (as of %.1f s ago)", rank, how,
                           gf_members_place(told).text,
                           (double)(members->now_ns - peer->said.heard_ns) / 1e9);
    else
        gf_members_failf(members, GF_ERR_PEER, rank, "rank %u died: %.80s while rank %u was in %s",
                         rank, how, members->setup.rank, gf_members_place(&members->position).text);
}

/* ---- what comes in ---- */

static void on_connected(struct gf_members *members, uint32_t rank)
{
    if (members_coordinates(members)) {
        if (members->state == MEMBERS_FAILED) gf_members_owe(members, rank, MEMBERS_ERROR);
        return;
    }
    members->connected_ns = members->now_ns;
    own_address(members); /* it is known now */
    gf_members_owe(members, 0, MEMBERS_OFFER);
    gf_members_endpoint_again(members); /* all of it: it may be the second time */
}

static void on_told(struct gf_members *members, struct member *peer, struct gf_get *get)
{
    uint32_t inquiry = gf_get_u32(get);
    gf_members_told_get(get, &peer->said.told);
    if (get->bad) return;
    peer->said.heard_ns = (members->now_ns > 0) ? members->now_ns : 1;
    if (inquiry != 0) peer->said.answered = inquiry;
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
        error = gf_members_gave_up(from, &error);
        if (!gf_members_rejected(members, &error)) gf_members_fail(members, &error, &error);
        break;
    case MEMBERS_BYE: peer->leaves = true; return !get->bad && (members->state != MEMBERS_JOINING);
    default: return false;
    }
    return !get->bad;
}

/* Frames that the coordinator sends. */
static bool rank_frame(struct gf_members *members, uint32_t kind, struct gf_get *get)
{
    struct gf_error error = {0};
    switch (kind) {
    case MEMBERS_ENDPOINTS:
        gf_members_join_endpoints(members, 0, get);
        return members->state == MEMBERS_JOINING;
    case MEMBERS_GO: gf_members_join_go(members); break;
    case MEMBERS_LINK: return gf_members_link_take(members, get);
    case MEMBERS_ASK:
        members->inquiry = gf_get_u32(get);
        if (!get->bad) gf_members_owe(members, 0, MEMBERS_POSITION);
        break;
    case MEMBERS_ERROR:
        gf_members_error_get(get, &error);
        if (!get->bad) gf_members_fail(members, &error, &error);
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
    if (gf_members_of_no_epoch(kind)) epoch = own; /* malformed: of no epoch */
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

static void event_take(struct gf_members *members, const struct gf_rendezvous_event *event)
{
    struct gf_get get = {.at = event->payload, .left = event->size_bytes};
    bool begun = (event->kind == GF_RENDEZVOUS_CONNECTED),
         ended = (event->kind == GF_RENDEZVOUS_ENDED);
    /* two epochs */
    bool between = (members->view.state != VIEW_NONE) && (members->view.state != VIEW_FAILED);
    if (event->kind == GF_RENDEZVOUS_REFUSED) {
        if (members->view.epoch.epoch == 0) gf_members_join_refused(members, event);
        return;
    }
    GF_ASSERT((event->rank < members->id_count) && (event->rank != members->member_id));
    struct member *member = &members->table[event->rank];
    uint32_t rank = gf_members_rank(members, event->rank);
    bool waits = gf_member_is_recovering(member); /* it is of no epoch, nor is its end */
    if (begun || ended) {
        member->connected = begun;
        member->answered = false;
        member->owed = 0;
        gf_view_waiting_drop(members, event->rank);
        if (begun && event->rejoins) member->excluded = member->passed_over = false;
        if (begun)
            member->state = event->rejoins ? MEMBER_RECOVERING : MEMBER_EXPECTED;
        else
            member->state = (waits || !event->lives) ? MEMBER_DEAD : MEMBER_DISCONNECTED;
    }
    if (!(ended && waits)) gf_view_event(members, event);
    if (!begun && !ended && gf_members_of_no_epoch(members_kind(event)) &&
        gf_view_frame(members, event->rank, members_kind(event), &get))
        return;
    if (!begun && !ended && (rank == GF_RANK_NONE) && (members_kind(event) == MEMBERS_OFFER))
        gf_members_offer_refuse(members, event->rank, &get);
    if (waits || gf_member_is_recovering(member) || between || (rank == GF_RANK_NONE)) return;
    if (begun)
        on_connected(members, rank);
    else if (!ended)
        on_frame(members, rank, event, &get);
    else if (!members_over(members) && !member->leaves)
        rank_died(members, rank, event->text);
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
