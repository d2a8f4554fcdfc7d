/* What the coordinator tells without being asked: who has closed its context, and for how long a
 * rank asks the others for patience (gf_heartbeat()).
 *
 * A rank that closes says where it is with its BYE. Operations have one order on all ranks, so one
 * that has begun more of them than that rank will wait for it in vain: the coordinator says so to
 * all as soon as it knows of it, and nobody waits for a deadline. */
#include "lib/membership/members_state.h"

#include <inttypes.h>

/* ---- who has closed ---- */

void gf_members_closed_note(struct gf_members *members, uint32_t rank, const struct gf_position *at)
{
    struct members_closed *closed = &members->closed;
    if ((closed->rank != GF_RANK_NONE) && (closed->sequence <= at->sequence)) return;
    *closed = (struct members_closed){.rank = rank, .step = at->step, .sequence = at->sequence};
    /* Once, where all close in good order: all have begun as many. */
    gf_members_owe_all(members, MEMBERS_NEWS);
}

static const struct gf_position *position_of(const struct gf_members *members, uint32_t rank)
{
    if (rank == members->setup.rank) return &members->position;
    return &gf_members_of(members, rank)->said.told.position;
}

void gf_members_closed_look(struct gf_members *members)
{
    const struct members_closed *closed = &members->closed;
    if ((closed->rank == GF_RANK_NONE) || (members->state != MEMBERS_MEMBER) ||
        !members_coordinates(members))
        return;
    for (uint32_t rank = 0; rank < members->setup.world; rank++) {
        const struct gf_position *at = position_of(members, rank);
        if (at->sequence <= closed->sequence) continue;
        gf_members_fail_in(members, GF_ERR_PEER, closed->rank, at,
                           "rank %u closed its context behind step %" PRIu64
                           ", and rank %u is in %s",
                           closed->rank, closed->step, rank, gf_members_place(members, at).text);
        return;
    }
}

bool gf_members_closed_is_due(const struct gf_members *members)
{
    return (members->closed.rank != GF_RANK_NONE) &&
           (members->position.sequence > members->closed.sequence) &&
           (members->status_position.sequence <= members->closed.sequence);
}

/* ---- patience ---- */

/* The first operation that this rank has not begun. What it has begun gf_heartbeat() moves: there
 * it is a message that does not come, and no patience helps. */
static uint64_t first_unbegun(const struct gf_members *members)
{
    const struct gf_members_setup *setup = &members->setup;
    return (setup->begun == NULL) ? 0 : setup->begun(setup->waits_of);
}

/* Each heartbeat asks for as long as a rank without one is awaited. A program that hangs in a loop
 * of heartbeats is found out: they count no more once it has stood in one place for so long. */
uint64_t gf_members_patience_own(const struct gf_members *members, uint64_t *from_out)
{
    const struct gf_members_setup *setup = &members->setup;
    uint64_t since_ns = members->now_ns - members->beat_ns;
    if ((members->beat_ns == 0) || (members->beat_ns < members->moved_ns)) return 0;
    if (members->beat_ns - members->moved_ns > setup->patience_ns) return 0;
    if (since_ns >= setup->silent_ns) return 0;
    *from_out = first_unbegun(members);
    return setup->silent_ns - since_ns;
}

/* Once in each place: the error of the others says that this rank computes, which its program may
 * have said all the time. */
void gf_members_patience_spent(struct gf_members *members)
{
    const struct gf_members_setup *setup = &members->setup;
    if ((members->state != MEMBERS_MEMBER) || (members->id_count == 1)) return;
    if ((members->beat_ns < members->moved_ns) ||
        (members->beat_ns - members->moved_ns <= setup->patience_ns) ||
        (members->spent_ns == members->moved_ns))
        return;
    members->spent_ns = members->moved_ns;
    gf_log_line(&setup->log, GF_LOG_WARN,
                "rank %u: gf_heartbeat() counts no more, as no operation has begun here for "
                "exchange.patience (%.1f s): who waits for this rank gives up exchange.timeout "
                "later",
                setup->rank, (double)setup->patience_ns / 1e9);
}

/* Of two ranks that ask the one that has begun less asks for all that the other one does. It is the
 * one to follow until it has asked for nothing for half of the timeout; what it asked for holds
 * longer. The others hear of it when it is worth a frame to each: an eighth of the timeout more. */
void gf_members_patience_take(struct gf_members *members, uint64_t patience_ns, uint64_t from)
{
    uint64_t timeout_ns = members->setup.silent_ns;
    if (patience_ns > timeout_ns) patience_ns = timeout_ns;
    uint64_t until_ns = members->now_ns + patience_ns;
    uint64_t least_ns = members->patient_ns + ((from > members->patient_from) ? timeout_ns / 2 : 0);
    if ((patience_ns == 0) || (until_ns <= least_ns)) return;
    members->patient_ns = until_ns;
    members->patient_from = from;
    if (!members_coordinates(members) || (members->state != MEMBERS_MEMBER) ||
        (until_ns < members->patient_told_ns + timeout_ns / 8))
        return;
    members->patient_told_ns = until_ns;
    gf_members_owe_all(members, MEMBERS_NEWS);
}

uint64_t gf_members_patience(const struct gf_members *members, uint64_t now_ns, uint64_t *from_out)
{
    *from_out = members->patient_from;
    return (members->patient_ns > now_ns) ? members->patient_ns - now_ns : 0;
}

/* ---- the frame ---- */

void gf_members_news_walk(struct gf_walk *walk, struct gf_members *members)
{
    static const struct gf_field fields[] = {GF_FIELD(members_closed, rank),
                                             GF_FIELD(members_closed, step),
                                             GF_FIELD(members_closed, sequence)};
    struct members_closed closed = members->closed;
    uint64_t from;
    uint64_t patience_ns = gf_members_patience(members, members->now_ns, &from);
    gf_walk_fields(walk, &closed, fields, sizeof fields / sizeof fields[0]);
    gf_walk_u64(walk, &patience_ns);
    gf_walk_u64(walk, &from);
    if ((walk->get == NULL) || walk->get->bad) return;
    members->closed = closed;
    gf_members_patience_take(members, patience_ns, from);
}
