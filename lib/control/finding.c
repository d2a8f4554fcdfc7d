/* What the coordinator has found: all members hear it, and the job goes on without those that are
 * cut, or ends. */
#include "lib/control/coordinator_state.h"

#include <stdio.h>

struct gf_error gf_coordinator_error(const struct gf_coordinator *c, gf_status code, uint32_t peer)
{
    uint64_t step = 0;
    for (uint32_t rank = 0; rank < c->world; rank++)
        if (c->rows[c->rank_ids[rank]].report.step > step)
            step = c->rows[c->rank_ids[rank]].report.step;
    return (struct gf_error){.code = code,
                             .peer = peer,
                             .step = step,
                             .operation = GF_OPERATION_NONE,
                             .tensor = GF_TENSOR_NONE};
}

void gf_coordinator_decide(struct gf_coordinator *c, const struct gf_error *error, bool is_final)
{
    bool is_first = (c->error.code == GF_OK); /* of this generation */
    c->error = *error;
    if (!c->is_well) c->last = *error;
    c->is_final = is_final || !c->terms.elastic;
    gf_log_line(&c->setup.log, c->is_well ? GF_LOG_INFO : GF_LOG_WARN,
                "coordinator, generation %u: %s", c->number, error->text);
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        row->pending &= ~(1u << CONTROL_ASK);
        row->has_heard = false; /* of this finding */
        if ((row->connection == CONTROL_NONE) || (!control_is_member(row) && !c->is_final))
            continue;
        if ((row->said >= CONTROL_SAID_READY) && !row->cut && !c->is_final) continue;
        if ((row->pending & 1u << CONTROL_ALL_GONE) != 0) continue; /* it has ended well */
        gf_coordinator_post(row, CONTROL_ERROR);
    }
    gf_coordinator_enter(c, c->is_final ? GF_COORDINATOR_OVER : GF_COORDINATOR_REGROUP);
    /* In a planned regroup nobody knew of a failure. What fails after the first one gives nobody
     * more time: else deaths, one after the other, would keep all waiting for one that is
     * stopped. */
    if (is_first) c->since_ns = c->now_ns;
}

void gf_coordinator_end_job(struct gf_coordinator *c, gf_status code, uint32_t rank,
                            const char *text)
{
    struct gf_error error = gf_coordinator_error(c, code, rank);
    error.operation = GF_OPERATION_JOIN;
    (void)snprintf(error.text, sizeof error.text, "%s", text);
    gf_coordinator_decide(c, &error, true);
}

/* Of this generation somebody has closed, or nothing has failed: the host of the coordinator may
 * have closed in one before it. */
static bool has_ended_well(const struct gf_coordinator *c)
{
    bool failed = (c->error.code != GF_OK);
    for (uint32_t rank = 0; rank < c->world; rank++) {
        control_row_state state = control_row_state_of(&c->rows[c->rank_ids[rank]]);
        if (state == CONTROL_ROW_CLOSED) return true;
        failed = failed || (state == CONTROL_ROW_DIED);
    }
    return !failed;
}

/* Each member that lives has closed in good order. Who was reset and has not dialled again is not
 * waited for: at the end of a job that is a process that has ended with words unread. */
bool gf_coordinator_end_if_closed(struct gf_coordinator *c)
{
    if (!control_has_begun(c) || (gf_coordinator_closed(c, 0, c->setup.id_count) == 0))
        return false;
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        const struct control_row *row = &c->rows[id];
        if (control_is_awaited(row)) return false;
    }
    if (!has_ended_well(c)) return false; /* it ends as one that nobody has closed */
    c->is_well = true;
    gf_coordinator_end_job(c, GF_ERR_STATE, GF_RANK_NONE, "the job has ended");
    for (uint32_t id = 0; id < c->setup.id_count; id++) {
        struct control_row *row = &c->rows[id];
        if (!control_has_closed(row)) continue;
        row->pending = 0;
        if (row->connection != CONTROL_NONE) gf_coordinator_post(row, CONTROL_ALL_GONE);
    }
    return true;
}

/* The coordinator goes with its host, so nobody goes on without it. True: the job has ended. */
bool gf_coordinator_end_if_host_is_late(struct gf_coordinator *c)
{
    char text[160];
    uint32_t rank = c->rows[c->setup.host_id].rank;
    if (c->now_ns - c->left_ns < c->terms.join_timeout_ns) return false;
    (void)snprintf(
        text, sizeof text,
        "rank %u, in whose process the coordinator runs, did not begin the regroup within "
        "%.1f s",
        rank, (double)c->terms.join_timeout_ns / 1e9);
    gf_coordinator_end_job(c, GF_ERR_TIMEOUT, rank, text);
    return true;
}
