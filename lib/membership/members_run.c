/* Who is in the world: polling, saying where this rank is, giving up, leaving. */
#include "lib/membership/members_state.h"

#include <stdio.h>

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
    bool changed = !same_place(now, sent);
    uint64_t age_ns = members->now_ns - members->status_ns;
    /* The coordinator hears them all. */
    uint64_t rest_ns = MEMBERS_STATUS_NS + members->setup.world * UINT64_C(1000000);
    if (members_coordinates(members) || (members->state != MEMBERS_MEMBER) ||
        !gf_members_here(members, 0))
        return;
    if (age_ns < (changed ? rest_ns : MEMBERS_STATUS_IDLE_NS + rest_ns)) return;
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

static void pump(struct gf_members *members)
{
    const struct gf_rendezvous_driver *driver = members->rendezvous->driver;
    if (members->id_count == 1) return;
    gf_status status = gf_members_events(members);
    if (status < 0) channel_failed(members, &members->rendezvous->fault, status);
    gf_members_join_time(members);
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
    pump(members);
    if (members->state == MEMBERS_FAILED) return members->error.code;
    return (members->state == MEMBERS_JOINING) ? GF_AGAIN : GF_OK;
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

void gf_members_heartbeat(struct gf_members *members, uint64_t now_ns)
{
    gf_members_touch(members, now_ns);
    status_send(members);
    gf_members_flush(members);
}

gf_status gf_members_attribute(struct gf_members *members, uint64_t now_ns,
                               const struct gf_error *seen, struct gf_error *error_out)
{
    gf_members_touch(members, now_ns);
    if (!members->asked) {
        members->asked = true;
        members->asked_ns = now_ns;
        if (members->setup.world == 1) {
            gf_members_fail(members, seen, seen);
        } else if (members_coordinates(members)) {
            gf_members_inquiry_begin(members, 0, seen);
        } else if ((members->state == MEMBERS_MEMBER) || (members->state == MEMBERS_JOINING)) {
            members->seen = *seen;
            gf_members_owe(members, 0, MEMBERS_FAULT);
        }
    }
    pump(members);
    if ((members->state != MEMBERS_FAILED) && !members_coordinates(members) &&
        (now_ns - members->asked_ns >= members->setup.answer_timeout_ns)) {
        gf_members_failf(members, GF_ERR_TIMEOUT, 0,
                         "rank 0, which coordinates, was asked who is late and did not "
                         "answer for %.1f s: it is stopped or does not poll",
                         (double)(now_ns - members->asked_ns) / 1e9);
        gf_members_flush(members);
    }
    if (members->state == MEMBERS_FAILED)
        *error_out = members->error;
    else if (members->state == MEMBERS_GONE)
        *error_out = *seen;
    else
        return GF_AGAIN;
    return GF_OK;
}

void gf_members_tell(struct gf_members *members, const struct gf_error *error)
{
    struct gf_error told = members_coordinates(members) ? gf_members_gave_up(0, error) : *error;
    gf_members_fail_and_tell(members, error, &told);
    gf_members_flush(members);
}

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
    members->leaving = true;
    pump(members);
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
