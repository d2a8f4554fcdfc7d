/* Whether all ranks make the same requests. A broadcast in which one rank names another root may
 * end well on all ranks, with other values: no rank waits for a message that is missing. So each
 * rank keeps a running hash of its requests, and its reports carry some of these hashes. The
 * coordinator makes no requests itself: for each request number the first report is what the
 * other ranks must equal. */
#include "drivers/base/fnv.h"
#include "lib/control/coordinator_state.h"
#include "lib/settings/settings.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- of a member ---- */

static const uint32_t mark_shifts[CONTROL_CALLS_MARKS] = {6, 10, 14};

void gf_calls_add(struct control_calls *calls, gf_operation operation, gf_type type, uint32_t root,
                  uint64_t elem_count)
{
    uint64_t hash = (calls->count == 0) ? CONTROL_CALLS_START
                                        : calls->last[calls->count % CONTROL_CALLS_LAST].hash;
    uint64_t number = ++calls->count;
    struct control_call *call = &calls->last[number % CONTROL_CALLS_LAST];
    call->what = (uint32_t)operation | ((uint32_t)type << 8);
    call->root = root;
    call->elem_count = elem_count;
    /* by words: byte by byte it took a sixth of a small request's time */
    hash = gf_fnv_word(hash, ((uint64_t)root << 32) | call->what);
    call->hash = gf_fnv_word(hash, elem_count);
    if (number % (1u << mark_shifts[0]) != 0) return; /* the others are multiples of it */
    for (uint32_t i = 0; i < CONTROL_CALLS_MARKS; i++)
        if (number % (UINT64_C(1) << mark_shifts[i]) == 0) calls->marks[i] = *call;
}

uint64_t gf_calls_number(const struct control_calls *calls, uint32_t i)
{
    if (i < CONTROL_CALLS_LAST) /* the oldest one first */
        return (calls->count + i + 1 > CONTROL_CALLS_LAST)
                   ? calls->count + i + 1 - CONTROL_CALLS_LAST
                   : 0;
    uint32_t shift = mark_shifts[i - CONTROL_CALLS_LAST];
    return calls->count >> shift << shift;
}

/* ---- of the coordinator ---- */

static void call_text(char *text_out, size_t bytes, const struct control_call *call)
{
    uint32_t type = call->what >> 8;
    gf_operation operation = (gf_operation)(call->what & 0xffu);
    int wrote = snprintf(text_out, bytes, "%s of %" PRIu64 " %s", gf_operation_name(operation),
                         call->elem_count,
                         (type < GF_TYPE_COUNT) ? gf_type_names[type] : "elements of no type");
    if ((wrote < 0) || ((size_t)wrote >= bytes)) return;
    if (operation == GF_OPERATION_BROADCAST)
        (void)snprintf(text_out + wrote, bytes - (size_t)wrote, " from rank %u", call->root);
    if ((operation == GF_OPERATION_ALLREDUCE) && (call->root != GF_REDUCTION_SUM))
        (void)snprintf(text_out + wrote, bytes - (size_t)wrote, " by %s",
                       gf_reduction_name(call->root));
}

/* One that was told before, by another rank. */
struct differing {
    uint64_t number;
    const struct control_seen_call *first;
    const struct control_call *call;
};

static void difference_say(struct gf_coordinator *c, const struct control_row *row,
                           const struct differing *found)
{
    char first_text[64];
    char text[64];
    const struct control_call *first = &found->first->call;
    struct gf_error error = gf_coordinator_error(c, GF_ERR_MISMATCH, row->rank);
    error.step = row->report.step;
    error.operation = (gf_operation)row->report.operation;
    call_text(first_text, sizeof first_text, first);
    call_text(text, sizeof text, found->call);
    if ((first->what != found->call->what) || (first->root != found->call->root) ||
        (first->elem_count != found->call->elem_count))
        (void)snprintf(error.text, sizeof error.text,
                       "calls differ: request %" PRIu64 " is %s at rank %u, %s at rank %u",
                       found->number, first_text, found->first->rank, text, row->rank);
    else
        (void)snprintf(error.text, sizeof error.text,
                       "calls differ between ranks %u and %u: one of the requests %" PRIu64
                       " to %" PRIu64 " (the next one is %s on both)",
                       found->first->rank, row->rank, row->calls_same + 1, found->number - 1, text);
    gf_coordinator_decide(c, &error, true);
}

/* The others' word on the request with this number; NULL: this is the first, or too long ago. */
static const struct control_seen_call *seen_of(struct gf_coordinator *c,
                                               const struct control_row *row, uint32_t answer,
                                               uint64_t number, const struct control_call *call)
{
    bool is_mark = (answer >= CONTROL_CALLS_LAST);
    uint32_t level = is_mark ? answer - CONTROL_CALLS_LAST + 1 : 0;
    uint64_t slot = is_mark ? number >> mark_shifts[level - 1] : number;
    struct control_seen_call *seen = &c->calls[level][slot % CONTROL_CALLS_SEEN];
    if (seen->number == number) return seen;
    if (seen->number < number)
        *seen = (struct control_seen_call){.number = number, .rank = row->rank, .call = *call};
    return NULL;
}

/* Whoever does otherwise is named, with the first request that is known to differ. */
void gf_coordinator_calls_compare(struct gf_coordinator *c, struct control_row *row)
{
    const struct control_calls *calls = &row->report.calls;
    struct differing found = {.number = UINT64_MAX};
    uint64_t same = row->calls_same;
    if ((c->state != GF_COORDINATOR_RUN) && (c->state != GF_COORDINATOR_INQUIRE)) return;
    for (uint32_t i = 0; i < CONTROL_CALLS_TOLD; i++) {
        uint64_t number = gf_calls_number(calls, i);
        if (number == 0) continue;
        const struct control_call *call = (i < CONTROL_CALLS_LAST)
                                              ? &calls->last[number % CONTROL_CALLS_LAST]
                                              : &calls->marks[i - CONTROL_CALLS_LAST];
        const struct control_seen_call *first = seen_of(c, row, i, number, call);
        if (first == NULL) continue;
        if (first->call.hash == call->hash)
            same = (number > same) ? number : same;
        else if (number < found.number)
            found = (struct differing){.number = number, .first = first, .call = call};
    }
    row->calls_same = same;
    if (found.first != NULL) difference_say(c, row, &found);
}
