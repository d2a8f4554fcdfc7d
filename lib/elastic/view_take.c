/* Frames of a view change, as they come in: the table of view.c, a function for each. */
#include "lib/membership/members_state.h"

#include <stdio.h>

/* Of all proposals for the next epoch that this rank hears of, the one with the highest view. */
__attribute__((noinline)) static bool proposal_note(struct gf_members *members, uint32_t number, struct gf_get *get)
{
    struct members_view *view = &members->view;
    struct view_proposal proposal;
    if (!gf_view_proposal_get(get, members->id_count, &proposal)) return false;
    if (number <= view->accepted_view) return true;
    if (proposal.list.epoch != view->epoch.epoch + 1) {
        get->bad = true;
        return false;
    }
    view->accepted = proposal;
    view->accepted_view = number;
    return true;
}

static void report_take(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct members_view *view = &members->view;
    struct member *member = &members->table[id];
    struct view_report report;
    struct members_list list; /* one at a time: they are large */
    if (!gf_view_report_get(get, members->id_count, &report)) return;
    if (!gf_view_list_get(get, members->id_count, &list)) return;
    if ((list.epoch == 0) || (members->view.epoch.epoch == 0)) return; /* of no epoch */
    if (list.epoch < view->epoch.epoch) {
        if (members->state != MEMBERS_FAILED || (view->state == VIEW_COLLECT) || (view->state == VIEW_PROPOSED))
            gf_members_owe_id(members, id, MEMBERS_COMMIT);
        return;
    }
    if (list.epoch > view->epoch.epoch) {
        if (!gf_view_list_is_mine(members, &list)) {
            gf_view_excluded(members, list.epoch);
            return;
        }
        gf_view_epoch_take(members, &list);
        memset(&view->current, 0, sizeof view->current);
        view->current.list = list;
        if ((view->state == VIEW_COLLECT) || (view->state == VIEW_PROPOSED)) {
            uint32_t number = (report.view > 0) ? report.view : 1;
            while (gf_view_coordinator(members, number) != members->member_id) number++;
            gf_view_lead(members, number);
        }
    }
    if (memcmp(list.bits, view->epoch.bits, sizeof list.bits) != 0) {
        get->bad = true;
        return;
    }
    if (!proposal_note(members, report.accepted_view, get)) return;
    member->state = MEMBER_REPORTED;
    member->view = report.view;
    member->progress = report.progress;
    member->leaves = report.leaves;
    if (((view->state == VIEW_COLLECT) || (view->state == VIEW_PROPOSED)) && (report.view < view->view))
        gf_members_owe_id(members, id, MEMBERS_START_VIEW);
    if ((view->state == VIEW_PROPOSED) && (report.view == view->view)) gf_members_owe_id(members, id, MEMBERS_PREPARE);
    if ((view->state == VIEW_PROPOSED) && (report.view > view->view) &&
        (gf_view_coordinator(members, report.view) == members->member_id)) gf_view_lead(members, report.view);
    if ((members->state != MEMBERS_JOINING) && (members->state != MEMBERS_MEMBER)) return;
    if (!report.planned)
        gf_members_failf(members, GF_ERR_PEER, GF_RANK_NONE, "rank %u has failed and asks for a new epoch",
                         member->rank);
}

static void prepare_take(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct members_view *view = &members->view;
    uint32_t number = gf_get_u32(get);
    if ((view->state != VIEW_SEEK) || view->joins || (id != view->coordinator) || (number != view->view)) number = 0;
    if (proposal_note(members, number, get) && (number > 0)) /* else late or malformed */
        gf_members_owe_id(members, id, MEMBERS_ACCEPT);
}

static void commit_take(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct members_view *view = &members->view;
    char reason[VIEW_REASON_BYTES], first[GF_CONTROL_ADDRESS_BYTES];
    const unsigned char *used;
    gf_status code = (gf_status)(int32_t)gf_get_u32(get);
    uint32_t number = gf_get_u32(get);
    struct view_proposal proposal;
    const struct members_list *list = &proposal.list;
    bool awaited = (view->state == VIEW_SEEK) && (id == view->coordinator);
    if ((view->state >= VIEW_COMMITTED) || !gf_view_proposal_get(get, members->id_count, &proposal)) return;
    gf_get_text(get, first, sizeof first);
    used = gf_get_bytes(get, (members->id_count + 7) / 8);
    gf_get_text(get, reason, sizeof reason);
    if (reason[0] == 0) (void)snprintf(reason, sizeof reason, "the coordinator gave no reason");
    if (get->bad || view->excluded) return;
    if ((code == GF_OK) && (list->epoch > view->epoch.epoch) && !gf_view_list_is_mine(members, list)) {
        gf_view_excluded(members, list->epoch);
        return;
    }
    if (!awaited) return;
    if ((code == GF_ERR_QUORUM) && view->joins) { /* that one goes no further, but others may */
        gf_view_join_again(members);
        return;
    }
    if (code != GF_OK) {
        gf_view_fail(members, (code < 0) ? code : GF_ERR_QUORUM, "%s", reason);
        return;
    }
    if (list->epoch <= view->epoch.epoch) return; /* old news */
    view->current = proposal;
    for (uint32_t i = 0; i < (members->id_count + 7) / 8; i++) view->used[i] |= used[i];
    if (members->table[list->first].address[0] == 0) memcpy(members->table[list->first].address, first, sizeof first);
    if (number == 0) {
        gf_view_committed(members);
        return;
    }
    gf_view_epoch_take(members, list); /* the coordinator is on its way to the epoch after that */
    view->view = number;
    gf_members_owe_id(members, id, MEMBERS_DO_VIEW_CHANGE);
}

/* START_VIEW and ACCEPT: of which view; 0: of another epoch, or malformed. */
static uint32_t number_take(const struct gf_members *members, struct gf_get *get)
{
    uint32_t epoch = gf_get_u32(get), number = gf_get_u32(get);
    return (get->bad || (epoch != members->view.epoch.epoch) || (number > VIEW_MAX)) ? 0 : number;
}

static void start_take(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct members_view *view = &members->view;
    uint32_t number = number_take(members, get);
    if ((view->state != VIEW_SEEK) || (id != view->coordinator) || (number <= view->view)) return;
    view->view = number;
    gf_members_owe_id(members, id, MEMBERS_DO_VIEW_CHANGE);
}

static void accept_take(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct member *member = &members->table[id];
    uint32_t number = number_take(members, get);
    if ((members->view.state != VIEW_PROPOSED) || (number != members->view.view)) return;
    if ((member->state == MEMBER_REPORTED) && (member->view == number)) member->state = MEMBER_ACCEPTED;
}

bool gf_view_frame(struct gf_members *members, uint32_t id, uint32_t kind, struct gf_get *get)
{
    switch (kind) {
    case MEMBERS_DO_VIEW_CHANGE: report_take(members, id, get); break;
    case MEMBERS_START_VIEW: start_take(members, id, get); break;
    case MEMBERS_PREPARE: prepare_take(members, id, get); break;
    case MEMBERS_ACCEPT: accept_take(members, id, get); break;
    case MEMBERS_COMMIT: commit_take(members, id, get); break;
    case MEMBERS_JOIN: gf_view_join_take(members, id, get); break;
    default: break;
    }
    return !get->bad;
}
