/* Frames of a view change, to bytes and back.
 *
 *     DO_VIEW_CHANGE  a promise: view, the accepted proposal with its view, progress, the epoch;
 *                     counted is one that answers START_VIEW
 *     START_VIEW      asks for DO_VIEW_CHANGE, or JOIN, of this view
 *     PREPARE         its proposal
 *     ACCEPT          a member has it
 *     COMMIT          the next epoch has begun; or, with an error, this attempt or this process
 *                     goes no further */
#include "lib/membership/members_state.h"

static void progress_walk(struct gf_walk *walk, struct gf_members_progress *progress)
{
    uint32_t flags = progress->applied | (progress->partial << 1);
    gf_walk_u32(walk, &flags);
    progress->applied = flags & 1u;
    progress->partial = (flags >> 1) & 1u;
    gf_walk_u64(walk, &progress->steps);
    gf_walk_u64(walk, &progress->requests);
}

void gf_view_proposal_walk(struct gf_walk *walk, struct view_proposal *proposal, uint32_t id_count)
{
    const struct members_list *list = &proposal->list;
    gf_walk_u32(walk, &proposal->lead);
    gf_walk_bool(walk, &proposal->lags);
    progress_walk(walk, &proposal->progress);
    gf_view_list_walk(walk, &proposal->list, id_count);
    if ((walk->get != NULL) && (list->epoch != 0) &&
        (proposal->lead >= gf_view_list_count(list, id_count)))
        walk->get->bad = true;
}

void gf_view_report_walk(struct gf_walk *walk, struct view_report *report, uint32_t id_count)
{
    uint32_t count = id_count;
    gf_walk_u32(walk, &count);
    gf_walk_u32(walk, &report->view);
    gf_walk_u32(walk, &report->accepted_view);
    gf_walk_bool(walk, &report->asked);
    gf_walk_bool(walk, &report->planned);
    gf_walk_bool(walk, &report->leaves);
    progress_walk(walk, &report->progress);
    bool fits = (count == id_count) && (report->view <= VIEW_MAX) &&
                (report->accepted_view <= report->view);
    if ((walk->get != NULL) && !fits) walk->get->bad = true;
}

static void report_put(struct gf_put *put, struct gf_members *members)
{
    struct members_view *view = &members->view;
    struct view_report report = {.view = view->view,
                                 .accepted_view = view->accepted_view,
                                 .asked = (view->asked_view == view->view),
                                 .planned = view->reason.planned,
                                 .leaves = view->reason.leaves,
                                 .progress = view->reason.own};
    struct gf_walk walk = {.put = put};
    gf_view_report_walk(&walk, &report, members->id_count);
    gf_view_list_walk(&walk, &view->epoch, members->id_count);
    gf_view_proposal_walk(&walk, &view->accepted, members->id_count);
}
_Static_assert(2 * (12 + 6 * VIEW_TAKES_MAX + GF_WORLD_MAX / 8) + 128 <= GF_FRAME_PAYLOAD_MAX,
               "a report fits");

/* What a process that comes in knows nothing of: where the first rank is, and which member ids were
 * used. */
void gf_view_commit_put(struct gf_put *put, const struct gf_members *members,
                        struct view_proposal *proposal, const char *reason)
{
    bool has_first = (proposal->list.epoch != 0);
    gf_view_proposal_walk(&(struct gf_walk){.put = put}, proposal, members->id_count);
    gf_put_text(put, has_first ? members->table[proposal->list.first].address : "",
                GF_CONTROL_ADDRESS_BYTES);
    gf_put_bytes(put, members->view.used, (members->id_count + 7) / 8);
    gf_put_text(put, reason, VIEW_REASON_BYTES);
}

uint32_t gf_view_frame_put(struct gf_members *members, uint32_t kind)
{
    struct members_view *view = &members->view;
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
        gf_view_proposal_walk(&(struct gf_walk){.put = &put}, &view->accepted, members->id_count);
        break;
    case MEMBERS_COMMIT:
        gf_put_u32(&put, (uint32_t)view->refusal);
        gf_put_u32(&put, ((view->state == VIEW_COLLECT) || (view->state == VIEW_PROPOSED))
                             ? view->view
                             : 0);
        gf_view_commit_put(&put, members, &view->current,
                           (view->refusal < 0) ? members->error.text : "");
        break;
    case MEMBERS_JOIN:
        gf_put_u32(&put, members->id_count);
        gf_put_u32(&put, members->first_world);
        gf_put_u32(&put, members->setup.is_new ? 1 : 0);
        gf_members_offer_put(&put, members);
        gf_put_u32(&put, members->incarnation);
        gf_put_u32(&put, view->asked_epoch);
        gf_put_u32(&put, view->asked_view);
        break;
    default: break;
    }
    return (uint32_t)(GF_FRAME_PAYLOAD_MAX - put.left);
}
