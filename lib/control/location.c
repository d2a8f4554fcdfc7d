/* The texts that say which process is meant, and where ranks were when something failed. */
#include "lib/control/coordinator_state.h"

#include <inttypes.h>
#include <stdio.h>

/* Launchers, and gf-coordinator --status, know a process by the rank that it was started as. */
const char *gf_coordinator_started(const struct control_row *row,
                                   char text_out[CONTROL_STARTED_BYTES])
{
    text_out[0] = '\0';
    if (row->offer.id != row->rank)
        (void)snprintf(text_out, CONTROL_STARTED_BYTES, " (started as rank %u)", row->offer.id);
    return text_out;
}

const char *gf_coordinator_name(const struct control_row *row, char text_out[CONTROL_NAME_BYTES])
{
    if (control_is_member(row))
        (void)snprintf(text_out, CONTROL_NAME_BYTES, "member %u (rank %u)", row->offer.id,
                       row->rank);
    else
        (void)snprintf(text_out, CONTROL_NAME_BYTES, "member %u", row->offer.id);
    return text_out;
}

void gf_coordinator_location(const struct control_report *report,
                             char text_out[CONTROL_LOCATION_BYTES])
{
    bool runs = (report->operation != GF_OPERATION_NONE);
    int wrote = snprintf(text_out, CONTROL_LOCATION_BYTES, "step %" PRIu64 ", %s%s", report->step,
                         runs ? "operation " : "between operations",
                         runs ? gf_operation_name((gf_operation)report->operation) : "");
    if (!runs || (report->tensor == GF_TENSOR_NONE) || (wrote < 0)) return;
    size_t used = (size_t)wrote;
    wrote = snprintf(text_out + used, CONTROL_LOCATION_BYTES - used, ", buffer %u, tensor %u",
                     report->buffer, report->tensor);
    if ((report->tensor_name[0] == '\0') || (wrote < 0)) return;
    used += (size_t)wrote;
    (void)snprintf(text_out + used, CONTROL_LOCATION_BYTES - used, " \"%.31s\"",
                   report->tensor_name);
}

/* Of the members that are left the one that is furthest; NULL: none has told where it is. */
static const struct control_row *furthest_of(const struct gf_coordinator *c,
                                             const struct control_row *but)
{
    const struct control_row *furthest = NULL;
    for (uint32_t rank = 0; rank < c->world; rank++) {
        const struct control_row *row = &c->rows[c->rank_ids[rank]];
        if ((row == but) || !control_is_member(row) || (row->heard_report_ns == 0)) continue;
        if ((furthest == NULL) || (row->report.step > furthest->report.step)) furthest = row;
    }
    return furthest;
}

void gf_coordinator_loss_describe(const struct gf_coordinator *c, const struct control_row *row,
                                  const char *fate, struct gf_error *error_out)
{
    char location[CONTROL_LOCATION_BYTES];
    char text[CONTROL_STARTED_BYTES];
    const char *started = gf_coordinator_started(row, text);
    const struct control_row *other = furthest_of(c, row);
    const bool reported = (row->heard_report_ns != 0);
    /* Each step ends by all votes: it was in that of the others. */
    const bool is_stale = (other != NULL) && (other->report.step > row->report.step);
    const struct control_row *at = (is_stale || (!reported && (other != NULL))) ? other : row;
    error_out->step = at->report.step;
    error_out->operation = (gf_operation)at->report.operation;
    error_out->tensor = at->report.tensor;
    gf_coordinator_location(&at->report, location);
    if (at != row)
        (void)snprintf(error_out->text, sizeof error_out->text,
                       "rank %u%s %s%s%.55s; rank %u was in %s", row->rank, started, fate,
                       (row->how[0] == '\0') ? "" : ": ", row->how, at->rank, location);
    else if (reported)
        (void)snprintf(error_out->text, sizeof error_out->text,
                       "rank %u%s %s%s%.55s in %s (as of %.1f s ago)", row->rank, started, fate,
                       (row->how[0] == '\0') ? "" : ": ", row->how, location,
                       (double)(c->now_ns - row->heard_report_ns) / 1e9);
    else
        (void)snprintf(error_out->text, sizeof error_out->text, "rank %u%s %s%s%.55s", row->rank,
                       started, fate, (row->how[0] == '\0') ? "" : ": ", row->how);
}
