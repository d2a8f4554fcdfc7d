/* A member's states.
 *
 *     JOINING -> LISTED -> WORKS -> FAILED -> READY -> LISTED -> WORKS ..      any -> ENDED
 *                            |        planned: WORKS -> READY
 *                            \-> CLOSING -> GONE
 *
 * A connection that breaks is dialled again; the member then offers itself and repeats its last
 * word, and so does the coordinator. No step needs the coordinator, so a member that works goes on
 * meanwhile. */
#include "lib/control/member_state.h"

#include <stdarg.h>
#include <stdio.h>

#define SILENCE_NS UINT64_C(4000000000)
#define NAP_NS UINT64_C(250000000) /* of a gap between two polls at most this counts */

void gf_member_enter(struct gf_member *member, gf_member_state state)
{
    member->state = state;
    member->since_ns = member->now_ns;
}

/* ---- the end ---- */

void gf_member_end(struct gf_member *member, gf_status code, uint32_t peer, const char *format, ...)
{
    va_list arguments;
    if (member_is_over(member)) return;
    member->error = (struct gf_error){.code = code,
                                      .rank = member->generation.rank,
                                      .peer = peer,
                                      .operation = (gf_operation)member->report.operation,
                                      .step = member->report.step,
                                      .tensor = GF_TENSOR_NONE};
    va_start(arguments, format);
    (void)vsnprintf(member->error.text, sizeof member->error.text, format, arguments);
    va_end(arguments);
    member->found = member->lost = true;
    gf_member_enter(member, GF_MEMBER_ENDED);
}

/* ---- deadlines ---- */

static void dial(struct gf_member *member)
{
    if (member->connected || member->dials || member_is_over(member)) return;
    if (member->now_ns < member->dial_ns) return;
    member->dials = true;
    member->channel->driver->dial(member->channel, member->now_ns);
}

static void deadlines_check(struct gf_member *member)
{
    uint64_t join_ns = member->setup.terms.join_timeout_ns;
    uint64_t silence_ns = member->setup.terms.exchange_timeout_ns;
    uint64_t lost_ns = member->now_ns - member->lost_ns;
    bool waits = (member->state == GF_MEMBER_READY) || (member->state == GF_MEMBER_LISTED) ||
                 ((member->state == GF_MEMBER_FAILED) && !member->found) ||
                 ((member->state == GF_MEMBER_JOINING) && member->taken_here);
    const char *how = member->connected ? "it takes connections, and says nothing" : member->how;
    if (silence_ns < SILENCE_NS) silence_ns = SILENCE_NS;
    if (member_is_over(member)) return;
    if ((member->state == GF_MEMBER_CLOSING) &&
        (member->now_ns - (member->connected ? member->heard_ns : member->lost_ns) >= silence_ns) &&
        (member->now_ns - member->since_ns >= silence_ns)) {
        gf_member_enter(member, GF_MEMBER_GONE);
        return;
    }
    /* one that it has reached says first what it waits for */
    if (!member->taken_here && (lost_ns >= join_ns + (member->connected ? silence_ns : 0))) {
        if (member->refusal.text[0] != '\0')
            gf_member_end(member, (gf_status)member->refusal.code, GF_RANK_NONE, "%s",
                          member->refusal.text);
        else /* of the first join the deadline has passed */
            gf_member_end(member, (member->generation.number == 0) ? GF_ERR_TIMEOUT : GF_ERR_PEER,
                          member_coordinator_rank(member),
                          "the coordinator at %s cannot be reached, for %.1f s%s%s",
                          member->setup.address, (double)lost_ns / 1e9,
                          (how[0] != '\0') ? ": " : "", how);
        return;
    }
    if (waits && member->connected && (member->now_ns - member->heard_ns >= silence_ns) &&
        (member->now_ns - member->since_ns >= silence_ns))
        gf_member_end(member, GF_ERR_PEER, member_coordinator_rank(member),
                      "the coordinator at %s says nothing, for %.1f s", member->setup.address,
                      (double)(member->now_ns - member->heard_ns) / 1e9);
}

/* ---- calls ---- */

/* Time in which it was not polled does not count against the coordinator, nor as time in which this
 * member waited for nobody. */
static void clock_go(struct gf_member *member, uint64_t now_ns)
{
    uint64_t gap_ns = (now_ns > member->now_ns) ? now_ns - member->now_ns : 0;
    uint64_t nap_ns = (gap_ns > NAP_NS) ? gap_ns - NAP_NS : 0;
    member->lost_ns += nap_ns;
    member->heard_ns += nap_ns;
    member->since_ns += nap_ns;
    member->waited_ns += nap_ns;
    member->now_ns = now_ns;
    gf_member_report_follow(member);
}

gf_member_state gf_member_poll(struct gf_member *member, uint64_t now_ns)
{
    clock_go(member, now_ns);
    gf_member_events_take(member);
    deadlines_check(member);
    dial(member);
    gf_member_status_post(member);
    gf_member_flush(member);
    return member->state;
}

gf_member_state gf_member_current_state(const struct gf_member *member)
{
    return member->state;
}

bool gf_member_list_due(const struct gf_member *member, struct gf_generation *generation_out)
{
    if ((member->state != GF_MEMBER_LISTED) || !member->endpoint_due) return false;
    *generation_out = member->listed;
    return true;
}

void gf_member_endpoint_set(struct gf_member *member, const void *endpoint, size_t endpoint_bytes)
{
    GF_ASSERT((member->state == GF_MEMBER_LISTED) && member->endpoint_due);
    GF_ASSERT(endpoint_bytes <= member->setup.endpoint_bytes_max);
    if (endpoint_bytes > 0) memcpy(member->own, endpoint, endpoint_bytes);
    member->endpoint_bytes = endpoint_bytes;
    member->endpoint_sent = 0;
    member->endpoint_due = false;
    if (member->connected) member->pending |= 1u << CONTROL_ENDPOINT;
}

const struct gf_generation *gf_member_generation(const struct gf_member *member)
{
    return &member->generation;
}

const void *gf_member_endpoint(const struct gf_member *member, uint32_t rank, size_t *bytes_out)
{
    GF_ASSERT(rank < member->generation.world);
    *bytes_out = member->sizes[rank];
    return member->endpoints + rank * member->setup.endpoint_bytes_max;
}

struct control_report *gf_member_report(struct gf_member *member)
{
    return &member->report;
}

uint32_t gf_member_joiner_count(const struct gf_member *member)
{
    return member->awaits.count;
}

const char *gf_member_waits_for(const struct gf_member *member, uint32_t *rank_out)
{
    *rank_out = member->awaits.awaited;
    return (*rank_out == GF_RANK_NONE) ? "" : member->awaits.location;
}

void gf_member_call(struct gf_member *member, gf_operation operation, gf_type type, uint32_t root,
                    uint64_t elem_count)
{
    gf_calls_add(&member->report.calls, operation, type, root, elem_count);
}

void gf_member_fault(struct gf_member *member, const struct gf_error *seen, bool ends)
{
    if (member_is_over(member) || (member->state == GF_MEMBER_CLOSING)) return;
    member->fault = (struct control_fault){.ends = ends, .error = *seen};
    gf_member_edges_ask(member, seen, &member->fault.edges);
    member->pending |= 1u << CONTROL_FAULT;
    member->standing.said = CONTROL_SAID_FAULT;
    if (member->state == GF_MEMBER_WORKS) gf_member_enter(member, GF_MEMBER_FAILED);
    gf_member_flush(member);
}

const struct control_closed *gf_member_closed(const struct gf_member *member)
{
    return (member->closed.rank == GF_RANK_NONE) ? NULL : &member->closed;
}

bool gf_member_is_found(const struct gf_member *member)
{
    return member->found;
}

const struct gf_error *gf_member_error(const struct gf_member *member)
{
    return &member->error;
}

bool gf_member_is_lost(const struct gf_member *member)
{
    return member->lost;
}

bool gf_member_has_ended(const struct gf_member *member)
{
    return member_is_over(member) || member->fault.ends;
}

void gf_member_ready(struct gf_member *member, const struct control_ready *ready)
{
    GF_ASSERT((member->state == GF_MEMBER_WORKS) || (member->state == GF_MEMBER_FAILED));
    member->ready = *ready;
    member->standing.said = CONTROL_SAID_READY;
    member->pending |= 1u << CONTROL_READY;
    gf_member_enter(member, GF_MEMBER_READY);
    gf_member_flush(member);
}

void gf_member_bye(struct gf_member *member)
{
    if (member_is_over(member) || (member->state == GF_MEMBER_CLOSING)) return;
    /* Its last calls are compared, too. */
    if ((member->state == GF_MEMBER_WORKS) && member->connected)
        member->pending |= 1u << CONTROL_STATUS;
    member->standing.said = CONTROL_SAID_BYE;
    member->standing.closed_step = member->report.step;
    member->pending |= 1u << CONTROL_BYE;
    gf_member_enter(member, GF_MEMBER_CLOSING);
    gf_member_flush(member);
}

void gf_member_heartbeat(struct gf_member *member, uint64_t now_ns, uint64_t patience_ns)
{
    uint64_t timeout_ns = member->setup.terms.exchange_timeout_ns;
    clock_go(member, now_ns);
    if (member->state != GF_MEMBER_WORKS) return;
    member->beat_ns = (now_ns > 0) ? now_ns : 1;
    member->beat_for_ns = (patience_ns < timeout_ns) ? patience_ns : timeout_ns;
    (void)gf_patience_take(&member->patience, now_ns, timeout_ns, member->beat_for_ns,
                           gf_member_first_unbegun(member));
    if (!member->connected || (now_ns - member->status_ns < MEMBER_STATUS_NS)) return;
    member->pending |= 1u << CONTROL_STATUS;
    gf_member_flush(member);
}

uint64_t gf_member_patience(const struct gf_member *member, uint64_t now_ns, uint64_t *from_out)
{
    *from_out = member->patience.from;
    return gf_patience_left(&member->patience, now_ns);
}

bool gf_member_flushed(const struct gf_member *member)
{
    return !member->connected || member->unsent ||
           ((member->pending == 0) && member->channel->driver->flushed(member->channel));
}

/* ---- open ---- */

size_t gf_member_state_bytes(const struct gf_member_setup *setup)
{
    size_t endpoint_bytes = setup->endpoint_bytes_max;
    return sizeof(struct gf_member) + setup->id_count * (sizeof(uint32_t) + endpoint_bytes) +
           endpoint_bytes;
}

struct gf_member *gf_member_open(const struct gf_member_setup *setup, void *state,
                                 struct gf_channel *channel, uint64_t now_ns)
{
    struct gf_member *member = state;
    GF_ASSERT((setup->id < setup->id_count) && (setup->process != 0));
    memset(member, 0, sizeof *member);
    member->setup = *setup;
    member->channel = channel;
    member->random = setup->process;
    member->sizes = (uint32_t *)(member + 1);
    member->own = (unsigned char *)(member->sizes + setup->id_count);
    member->endpoints = member->own + setup->endpoint_bytes_max;
    member->report.waits_for = GF_RANK_NONE;
    member->report.tensor = GF_TENSOR_NONE;
    member->moved = member->reported = member->report;
    member->fault.error.peer = member->awaits.awaited = GF_RANK_NONE;
    member->closed.rank = GF_RANK_NONE;
    member->error = (struct gf_error){.peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    member->now_ns = member->since_ns = member->lost_ns = member->heard_ns = now_ns;
    member->moved_ns = member->waited_ns = now_ns;
    return member;
}
