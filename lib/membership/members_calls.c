/* Whether all ranks make the same requests. A broadcast in which one rank names another root may
 * end well on all of them, with other values: nobody waits for a message that is missing. So each
 * rank chains a hash over its requests, says with its position how many there were and what the
 * last one was, and the coordinator compares with its own. */
#include "drivers/fnv.h"
#include "lib/membership/members_state.h"
#include "lib/settings/settings.h"

#include <inttypes.h>
#include <stdio.h>

void gf_members_call(struct gf_members *members, gf_operation operation, gf_type type,
                     uint32_t root, uint64_t elem_count)
{
    uint64_t hash = members->calls[members->call_count % MEMBERS_CALLS].hash;
    struct members_call call = {.what = (uint32_t)operation | ((uint32_t)type << 8),
                                .root = root,
                                .elem_count = elem_count};
    /* by words: byte by byte it took a sixth of a small request's time */
    hash = gf_fnv_word(hash, ((uint64_t)root << 32) | call.what);
    call.hash = gf_fnv_word(hash, elem_count);
    members->calls[++members->call_count % MEMBERS_CALLS] = call;
}

static void call_text(char *text_out, size_t bytes, const struct members_call *call)
{
    uint32_t type = call->what >> 8;
    gf_operation operation = (gf_operation)(call->what & 0xffu);
    int wrote = snprintf(text_out, bytes, "%s of %" PRIu64 " %s", gf_operation_name(operation),
                         call->elem_count,
                         (type < GF_TYPE_COUNT) ? gf_type_names[type] : "elements of no type");
    if ((operation == GF_OPERATION_BROADCAST) && (wrote > 0) && ((size_t)wrote < bytes))
        (void)snprintf(text_out + wrote, bytes - (size_t)wrote, " from rank %u", call->root);
    if ((operation == GF_OPERATION_ALLREDUCE) && (call->root != GF_REDUCTION_SUM) &&
        ((size_t)wrote < bytes))
        (void)snprintf(text_out + wrote, bytes - (size_t)wrote, " by %s",
                       gf_reduction_name(call->root));
}

/* What this rank did as the peer's last request is remembered for a while; if it was longer ago, a
 * later word tells. */
bool gf_members_calls_differ(struct gf_members *members, uint32_t rank, char *text_out,
                             size_t bytes)
{
    struct member *peer = gf_members_at(members, rank);
    uint64_t count = peer->said.told.calls;
    const struct members_call *theirs = &peer->said.told.call;
    const struct members_call *ours;
    char our_text[64];
    char their_text[64];
    if ((count == 0) || (count > members->call_count) ||
        (members->call_count - count >= MEMBERS_CALLS))
        return false;
    ours = &members->calls[count % MEMBERS_CALLS];
    if (ours->hash == theirs->hash) {
        peer->said.calls_same = count;
        return false;
    }
    call_text(our_text, sizeof our_text, ours);
    call_text(their_text, sizeof their_text, theirs);
    if ((ours->what != theirs->what) || (ours->root != theirs->root) ||
        (ours->elem_count != theirs->elem_count))
        (void)snprintf(text_out, bytes,
                       "calls differ: request %" PRIu64 " is %s at rank %u, %s at rank %u", count,
                       our_text, members->setup.rank, their_text, rank);
    else
        (void)snprintf(text_out, bytes,
                       "calls differ between ranks %u and %u: one of the requests %" PRIu64
                       " to %" PRIu64 " (the next one is %s on both)",
                       members->setup.rank, rank, peer->said.calls_same + 1, count - 1, our_text);
    return true;
}

void gf_members_calls_compare(struct gf_members *members, uint32_t rank)
{
    char text[240];
    if (!members_coordinates(members) || (members->state != MEMBERS_MEMBER)) return;
    if (gf_members_calls_differ(members, rank, text, sizeof text))
        gf_members_failf(members, GF_ERR_MISMATCH, rank, "%s", text);
}
