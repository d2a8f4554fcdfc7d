/* The end of the job, or of an epoch, on this rank: what is told here and what is told to others. */
#include "lib/membership/members_state.h"

#include <stdarg.h>
#include <stdio.h>

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

static void fail_and_tell(struct gf_members *members, const struct gf_error *error,
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
        fail_and_tell(members, &error, &error);
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

void gf_members_tell(struct gf_members *members, const struct gf_error *error)
{
    struct gf_error told = members_coordinates(members) ? gf_members_gave_up(0, error) : *error;
    fail_and_tell(members, error, &told);
    gf_members_flush(members);
}
