/* Frames of a view change, to bytes and back.
 *
 *     DO_VIEW_CHANGE  a promise: view, the accepted proposal with its view, progress, the epoch
 *     START_VIEW      the coordinator is in a higher view: asks for DO_VIEW_CHANGE
 *     PREPARE         its proposal
 *     ACCEPT          a member has it
 *     COMMIT          the next epoch has begun; or, with an error, this attempt or this process goes no further */
#include "lib/membership/members_state.h"

static void progress_put(struct gf_put *put, const struct gf_members_progress *progress)
{
    gf_put_u32(put, progress->applied | (progress->partial << 1));
    gf_put_u64(put, progress->steps);
    gf_put_u64(put, progress->requests);
}

static void progress_get(struct gf_get *get, struct gf_members_progress *standing_out)
{
    uint32_t flags = gf_get_u32(get);
    *standing_out = (struct gf_members_progress){.applied = flags & 1u, .partial = (flags >> 1) & 1u};
    standing_out->steps = gf_get_u64(get);
    standing_out->requests = gf_get_u64(get);
}

void gf_view_proposal_put(struct gf_put *put, const struct view_proposal *proposal, uint32_t id_count)
{
    gf_put_u32(put, proposal->lead);
    gf_put_u32(put, proposal->lags ? 1 : 0);
    progress_put(put, &proposal->progress);
    gf_view_list_put(put, &proposal->list, id_count);
}

bool gf_view_proposal_get(struct gf_get *get, uint32_t id_count, struct view_proposal *proposal_out)
{
    proposal_out->lead = gf_get_u32(get);
    proposal_out->lags = gf_get_u32(get) != 0;
    progress_get(get, &proposal_out->progress);
    if (!gf_view_list_get(get, id_count, &proposal_out->list)) return false;
    if ((proposal_out->list.epoch != 0) && (proposal_out->lead >= gf_view_list_count(&proposal_out->list, id_count)))
        get->bad = true;
    return !get->bad;
}

bool gf_view_report_get(struct gf_get *get, uint32_t id_count, struct view_report *report_out)
{
    uint32_t count = gf_get_u32(get);
    report_out->view = gf_get_u32(get);
    report_out->accepted_view = gf_get_u32(get);
    report_out->planned = gf_get_u32(get) != 0;
    report_out->leaves = gf_get_u32(get) != 0;
    progress_get(get, &report_out->progress);
    if ((count != id_count) || (report_out->view > VIEW_MAX) || (report_out->accepted_view > report_out->view))
        get->bad = true;
    return !get->bad;
}

static void report_put(struct gf_put *put, const struct gf_members *members)
{
    const struct members_view *view = &members->view;
    gf_put_u32(put, members->id_count);
    gf_put_u32(put, view->view);
    gf_put_u32(put, view->accepted_view);
    gf_put_u32(put, view->planned ? 1 : 0);
    gf_put_u32(put, view->leaves ? 1 : 0);
    progress_put(put, &view->own);
    gf_view_list_put(put, &view->epoch, members->id_count);
    gf_view_proposal_put(put, &view->accepted, members->id_count);
}
_Static_assert(2 * (12 + 2 * VIEW_TAKES_MAX + GF_WORLD_MAX / 8) + 128 <= GF_FRAME_PAYLOAD_MAX, "a report fits");

/* What a process that comes in knows nothing of: where the first rank is, and which member ids were used. */
void gf_view_commit_put(struct gf_put *put, const struct gf_members *members, const struct view_proposal *proposal,
                        const char *reason)
{
    bool has_first = (proposal->list.epoch != 0);
    gf_view_proposal_put(put, proposal, members->id_count);
    gf_put_text(put, has_first ? members->table[proposal->list.first].address : "", GF_CONTROL_ADDRESS_BYTES);
    gf_put_bytes(put, members->view.used, (members->id_count + 7) / 8);
    gf_put_text(put, reason, VIEW_REASON_BYTES);
}

uint32_t gf_view_frame_put(struct gf_members *members, uint32_t kind)
{
    const struct members_view *view = &members->view;
    struct gf_put put = {members->scratch, sizeof members->scratch};
    switch (kind) {
    case MEMBERS_DO_VIEW_CHANGE: report_put(&put, members); break;
    case MEMBERS_START_VIEW:
    case MEMBERS_ACCEPT:
        gf_put_u32(&put, view->epoch.epoch);
        gf_put_u32(&put, view->view);
        break;
    case MEMBERS_PREPARE:
        gf_put_u32(&put, view->view);
        gf_view_proposal_put(&put, &view->accepted, members->id_count);
        break;
    case MEMBERS_COMMIT:
        gf_put_u32(&put, (uint32_t)view->refusal);
        gf_put_u32(&put, ((view->state == VIEW_COLLECT) || (view->state == VIEW_PROPOSED)) ? view->view : 0);
        gf_view_commit_put(&put, members, &view->current, (view->refusal < 0) ? members->error.text : "");
        break;
    case MEMBERS_JOIN:
        gf_put_u32(&put, members->id_count);
        gf_put_u32(&put, members->first_world);
        gf_put_u32(&put, members->setup.is_new ? 1 : 0);
        gf_members_offer_put(&put, members);
        break;
    default: break;
    }
    return (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left);
}
