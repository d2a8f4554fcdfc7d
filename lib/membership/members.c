/* Who is in the world, as the core sees it: opening, beginning an epoch, polling, leaving. What comes
 * in is in members_events.c, what goes out in members_frames.c. */
#include "drivers/fnv.h"
#include "lib/membership/members_state.h"

/* ---- the table ---- */

size_t gf_members_state_bytes(uint32_t id_count, size_t endpoint_bytes_max)
{
    return sizeof(struct gf_members) + id_count * (sizeof(struct member) + sizeof(uint32_t) +
                                                   GF_CONTROL_ADDRESS_BYTES + endpoint_bytes_max);
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

bool gf_members_joined(const struct gf_members *members)
{
    return (members != NULL) && (members->state == MEMBERS_MEMBER);
}

bool gf_members_is_final(const struct gf_members *members)
{
    return members->cut.is_final;
}

const struct gf_error *gf_members_error(const struct gf_members *members)
{
    return &members->error;
}

const void *gf_members_endpoint(const struct gf_members *members, uint32_t rank, size_t *bytes_out)
{
    GF_ASSERT(rank < members->setup.world);
    GF_ASSERT(gf_members_of(members, rank)->said.endpoint_bytes >= GF_CONTROL_ADDRESS_BYTES);
    *bytes_out = gf_members_of(members, rank)->said.endpoint_bytes - GF_CONTROL_ADDRESS_BYTES;
    return members_endpoint_at(members, rank) + GF_CONTROL_ADDRESS_BYTES;
}

struct gf_position *gf_members_position(struct gf_members *members)
{
    return &members->position;
}

/* ---- the beginning ---- */

/* Where this rank could be reached if it had to coordinate travels in front of its endpoint
 * address. */
void gf_members_own_address(struct gf_members *members)
{
    char *address = (char *)members_endpoint_at(members, members->setup.rank);
    if (members->rendezvous->driver->address != NULL)
        members->rendezvous->driver->address(members->rendezvous, address);
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
    members->inquiry_ns = 0;
    members->cut = (struct members_cut){.told = false};
    members->join_fails_ns = 0;
    members->flush_first = members->seen_by = 0;
    members->closed = (struct members_closed){.rank = GF_RANK_NONE};
    members->beat_ns = members->patient_ns = members->patient_from = members->patient_told_ns = 0;
    members->spent_ns = 0;
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
    gf_members_own_address(members);
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

/* ---- each poll ---- */

static bool same_place(const struct gf_position *a, const struct gf_position *b)
{
    return (a->step == b->step) && (a->sequence == b->sequence) && (a->operation == b->operation);
}

void gf_members_touch(struct gf_members *members, uint64_t now_ns)
{
    struct gf_position *position = &members->position;
    members->now_ns = now_ns;
    if (same_place(position, &members->moved)) return;
    members->moved = *position;
    members->moved_ns = now_ns;
}

static void status_send(struct gf_members *members)
{
    const struct gf_position *now = &members->position;
    const struct gf_position *sent = &members->status_position;
    /* a heartbeat that it has not told is a change, too */
    bool changed = !same_place(now, sent) || (members->beat_ns > members->status_ns);
    uint64_t age_ns = members->now_ns - members->status_ns;
    /* The coordinator hears them all. */
    uint64_t rest_ns = MEMBERS_STATUS_NS + members->setup.world * UINT64_C(1000000);
    if (members_coordinates(members) || members_over(members) || !gf_members_here(members, 0))
        return;
    if ((age_ns < (changed ? rest_ns : MEMBERS_ALIVE_NS + rest_ns)) &&
        !gf_members_closed_is_due(members))
        return;
    members->status_ns = members->now_ns;
    members->status_position = *now;
    gf_members_owe(members, 0, MEMBERS_STATUS);
}

static void channel_failed(struct gf_members *members, const struct gf_fault *fault,
                           gf_status status)
{
    struct gf_error error = {.code = status,
                             .peer = fault->peer,
                             .operation = GF_OPERATION_JOIN,
                             .step = members->position.step,
                             .tensor = GF_TENSOR_NONE};
    if (members_over(members)) return;
    if (members->state != MEMBERS_JOINING)
        error.operation = (gf_operation)members->position.operation;
    gf_error_take(&error, fault);
    gf_members_fail(members, &error, &error);
}

void gf_members_pump(struct gf_members *members)
{
    const struct gf_rendezvous_driver *driver = members->rendezvous->driver;
    if (members->id_count == 1) return;
    gf_status status = gf_members_events(members);
    if (status < 0) channel_failed(members, &members->rendezvous->fault, status);
    gf_members_join_time(members);
    gf_members_closed_look(members);
    gf_members_inquiry_time(members);
    status_send(members);
    gf_members_flush(members);
    /* The coordinator joins last: once its word to go is out, nobody depends on when it polls
     * next. */
    if (members_coordinates(members) && (members->state == MEMBERS_JOINING) && members->go &&
        !gf_members_owes(members, ~MEMBERS_VIEW_FRAMES) && driver->flushed(members->rendezvous))
        members->state = MEMBERS_MEMBER;
}

gf_status gf_members_poll(struct gf_members *members, uint64_t now_ns)
{
    gf_members_touch(members, now_ns);
    gf_members_pump(members);
    if (members->state == MEMBERS_FAILED) return members->error.code;
    return (members->state == MEMBERS_JOINING) ? GF_AGAIN : GF_OK;
}

void gf_members_heartbeat(struct gf_members *members, uint64_t now_ns)
{
    uint64_t from = 0;
    uint64_t patience_ns;
    gf_members_touch(members, now_ns);
    members->beat_ns = now_ns;
    patience_ns = gf_members_patience_own(members, &from);
    gf_members_patience_take(members, patience_ns, from);
    gf_members_patience_spent(members);
    status_send(members);
    gf_members_flush(members);
}

/* ---- the end ---- */

gf_status gf_members_leave(struct gf_members *members, uint64_t now_ns)
{
    gf_members_touch(members, now_ns);
    if (members->state == MEMBERS_JOINING) {
        const struct gf_error error = {.code = GF_ERR_ABORTED,
                                       .peer = GF_RANK_NONE,
                                       .tensor = GF_TENSOR_NONE,
                                       .operation = GF_OPERATION_JOIN,
                                       .text = "closed before all ranks had joined"};
        gf_members_tell(members, &error);
        return GF_OK;
    }
    if (!members->leaving && (members->state == MEMBERS_MEMBER) && !members_coordinates(members)) {
        gf_members_owe(members, 0, MEMBERS_STATUS); /* where it left: the others may be further */
        gf_members_owe(members, 0, MEMBERS_BYE);
    }
    if (!members->leaving && (members->state == MEMBERS_MEMBER) && members_coordinates(members))
        gf_members_closed_note(members, 0, &members->position);
    members->leaving = true;
    gf_members_pump(members);
    if (members->state == MEMBERS_FAILED) return members->error.code;
    if (members_coordinates(members) && (members->state == MEMBERS_MEMBER)) {
        for (uint32_t rank = 1; rank < members->setup.world; rank++) {
            if (!gf_members_of(members, rank)->leaves) return GF_AGAIN;
        }
        gf_members_owe_all(members, MEMBERS_ALL_GONE);
        members->state = MEMBERS_GONE;
        gf_members_flush(members);
        gf_view_turn_away(members, "the job has ended: no step comes at which it could be let in");
    }
    if (members->state != MEMBERS_GONE) return GF_AGAIN;
    return (!members->owes && members->rendezvous->driver->flushed(members->rendezvous)) ? GF_OK
                                                                                         : GF_AGAIN;
}
