/* A member's half of a view: on the way to the coordinator, and what comes from there. */
#include "lib/membership/members_state.h"

#include <stdio.h>

/* ---- the way to the coordinator ---- */

void gf_view_begin(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct members_view *view = &members->view;
    if (gf_view_joins(members)) {
        gf_view_next(members);
    } else if (members->table[id].excluded) {
        gf_view_fail_cut(members);
    } else if (view->gone_on.epoch != 0) {
        gf_view_rejoin(members);
    } else if (view->epoch.epoch == 0) {
        view->state = VIEW_FAILED;
        members->error.code = GF_ERR_QUORUM;
    } else if (!members->was_member && members->table[view->coordinator].connected) {
        gf_view_enter(members, VIEW_SEEK);
        gf_view_report(members, view->coordinator, get);
    } else {
        gf_view_next(members);
    }
}

void gf_view_report(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    (void)get;
    gf_members_owe_id(members, id, gf_view_joins(members) ? MEMBERS_JOIN : MEMBERS_DO_VIEW_CHANGE);
}

void gf_view_lost(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    (void)get;
    struct member *member = (id != GF_RANK_NONE) ? &members->table[id] : NULL;
    bool left = (member != NULL) && member->lost && (member->end == GF_END_LEFT);
    if ((member != NULL) && !left) member->passed_over = members->was_member;
    gf_view_next(members);
}

#define SOUGHT_NS UINT64_C(2500000000)
/* A coordinator that collects says so four times as often. Doubled, twice at most, by each that was
 * silent before: the network or the machine may be slow. */
#define QUIET_NS UINT64_C(1000000000)

static uint64_t quiet_ns(const struct gf_members *members)
{
    uint32_t silent = 0;
    for (uint32_t id = 0; (id < members->id_count) && (silent < 2); id++)
        silent += members->table[id].passed_over;
    return QUIET_NS << silent;
}

/* One that has not begun to collect may be busy. Whoever is sought may look for others itself, and
 * the lower one looks for the higher one for less time than that looks for it: they cannot miss each
 * other for ever. Who joins waits until its caller's deadline; one that knows where the members are
 * asks each. */
uint64_t gf_view_awaited_ns(const struct gf_members *members)
{
    const struct members_view *view = &members->view;
    bool knows = (view->coordinator < members->id_count);
    const struct member *to = knows ? &members->table[view->coordinator] : NULL;
    bool collects = (view->asked_epoch == view->epoch.epoch) && (view->asked_view == view->view);
    uint64_t most_ns = view->reason.silent_ns + view->reason.away_ns;
    uint64_t sought_ns = (most_ns < SOUGHT_NS) ? most_ns : SOUGHT_NS;
    if (gf_view_joins(members))
        return (knows && view->rejoins && !to->connected) ? sought_ns : UINT64_MAX;
    /* who names the ended may say so while it is tried */
    if (knows && (to->state == MEMBER_DEAD)) return 0;
    if (view->is_cut) return sought_ns; /* the others may do without it */
    if (view->sought != GF_RANK_NONE)
        return (members->member_id < view->sought) ? sought_ns / 2 : sought_ns;
    return collects ? quiet_ns(members) : most_ns;
}

void gf_view_late(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    (void)id;
    if (members->now_ns - members->view.since_ns >= gf_view_awaited_ns(members))
        gf_view_lost(members, members->view.coordinator, get);
}

/* ---- what comes ---- */

/* Of all proposals for the next epoch that this rank hears of, the one with the highest view. */
static bool proposal_note(struct gf_members *members, uint32_t number, struct gf_get *get)
{
    struct members_view *view = &members->view;
    struct view_proposal proposal = {0};
    gf_view_proposal_walk(&(struct gf_walk){.get = get}, &proposal, members->id_count);
    if (get->bad || (number <= view->accepted_view)) return !get->bad;
    if (proposal.list.epoch != view->epoch.epoch + 1) {
        get->bad = true;
        return false;
    }
    view->accepted = proposal;
    view->accepted_view = number;
    return true;
}

/* False: it is not of this epoch. */
static bool report_take(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct members_view *view = &members->view;
    struct member *member = &members->table[id];
    bool leads = (view->state == VIEW_COLLECT) || (view->state == VIEW_PROPOSED);
    struct view_report report = {0};
    struct members_list list = {0}; /* one at a time: they are large */
    struct gf_walk walk = {.get = get};
    gf_view_report_walk(&walk, &report, members->id_count);
    gf_view_list_walk(&walk, &list, members->id_count);
    if (get->bad || (list.epoch == 0) || (view->epoch.epoch == 0)) return false; /* of no epoch */
    if (list.epoch < view->epoch.epoch) {
        if ((members->state != MEMBERS_FAILED) || leads)
            gf_members_owe_id(members, id, MEMBERS_COMMIT);
        return false;
    }
    if (list.epoch > view->epoch.epoch) {
        if (!gf_view_list_is_mine(members, &list)) {
            gf_view_excluded(members, &list);
            return false;
        }
        view->current = (struct view_proposal){.list = list};
        gf_view_epoch_take(members);
        if (leads) {
            uint32_t number = (report.view > 0) ? report.view : 1;
            while (gf_view_coordinator(members, number) != members->member_id) number++;
            gf_view_lead(members, number);
        }
    }
    if (memcmp(list.bits, view->epoch.bits, sizeof list.bits) != 0) {
        get->bad = true;
        return false;
    }
    if (!proposal_note(members, report.accepted_view, get)) return false;
    member->state = MEMBER_REPORTED;
    member->view = report.view;
    member->answered = report.asked;
    member->progress = report.progress;
    member->leaves = report.leaves;
    if (!report.planned)
        gf_members_failf(members, GF_ERR_PEER, GF_RANK_NONE,
                         "rank %u has failed and asks for a new epoch",
                         gf_members_rank(members, id));
    return true;
}

void gf_view_note(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    (void)report_take(members, id, get);
}

void gf_view_answer(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    const struct members_view *view = &members->view;
    const struct member *member = &members->table[id];
    if (!report_take(members, id, get)) return;
    gf_view_lead_higher(members);
    if ((member->view < view->view) || !member->answered)
        gf_members_owe_id(members, id, MEMBERS_START_VIEW);
    else if ((view->state == VIEW_PROPOSED) && (member->view == view->view))
        gf_members_owe_id(members, id, MEMBERS_PREPARE);
}

/* START_VIEW: nothing below it is acknowledged any more. A process that waits says that it does. It
 * comes again while the coordinator collects, and is answered once. */
void gf_view_promise(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct members_view *view = &members->view;
    uint32_t epoch = gf_get_u32(get);
    uint32_t number = gf_get_u32(get);
    bool joins = gf_view_joins(members);
    if (get->bad || (number == 0) || (number > VIEW_MAX)) return;
    if (!joins && ((epoch != view->epoch.epoch) || (number < view->view))) return;
    if (!joins) view->view = number;
    view->since_ns = members->now_ns; /* the coordinator lives, and waits itself from now on */
    if ((view->asked_epoch == epoch) && (view->asked_view == number)) return;
    view->asked_epoch = epoch;
    view->asked_view = number;
    gf_view_report(members, id, get);
}

void gf_view_accept(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    uint32_t number = gf_get_u32(get);
    if (number != members->view.view) number = 0;
    if (proposal_note(members, number, get) && (number > 0)) /* else late or malformed */
        gf_members_owe_id(members, id, MEMBERS_ACCEPT);
}

void gf_view_accepted(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct member *member = &members->table[id];
    const struct members_view *view = &members->view;
    uint32_t epoch = gf_get_u32(get);
    uint32_t number = gf_get_u32(get);
    if (get->bad || (epoch != view->epoch.epoch) || (number != view->view)) return;
    if (member->state == MEMBER_REPORTED) member->state = MEMBER_ACCEPTED; /* in what view: who() */
}

struct commit {
    gf_status code;
    /* the view in which its sender is, on its way to the epoch after that; 0: none */
    uint32_t number;
    struct view_proposal proposal;
    const unsigned char *used;
    char first[GF_CONTROL_ADDRESS_BYTES], reason[VIEW_REASON_BYTES];
};

/* Where the first of its epoch is reached, who may be another process than this rank knew. */
static void first_address_take(struct gf_members *members, const struct commit *commit)
{
    struct member *first = &members->table[commit->proposal.list.first];
    if (commit->first[0] != 0) memcpy(first->address, commit->first, sizeof commit->first);
}

/* False: malformed, or it has begun without this rank. */
static bool commit_get(struct gf_members *members, struct gf_get *get, struct commit *commit_out)
{
    const struct members_list *list = &commit_out->proposal.list;
    commit_out->code = (gf_status)(int32_t)gf_get_u32(get);
    commit_out->number = gf_get_u32(get);
    memset(&commit_out->proposal, 0, sizeof commit_out->proposal);
    gf_view_proposal_walk(&(struct gf_walk){.get = get}, &commit_out->proposal, members->id_count);
    gf_get_text(get, commit_out->first, sizeof commit_out->first);
    commit_out->used = gf_get_bytes(get, (members->id_count + 7) / 8);
    gf_get_text(get, commit_out->reason, sizeof commit_out->reason);
    if (get->bad || (members->view.gone_on.epoch != 0)) return false;
    if ((commit_out->code != GF_OK) || (list->epoch <= members->view.epoch.epoch)) return true;
    if (gf_view_list_is_mine(members, list)) return true;
    if (gf_view_joins(members)) return false; /* it did not take this process in */
    first_address_take(members, commit_out);
    gf_view_excluded(members, list);
    return false;
}

void gf_view_be_out(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct commit commit;
    (void)id;
    (void)commit_get(members, get, &commit);
}

void gf_view_begin_epoch(struct gf_members *members, uint32_t id, struct gf_get *get)
{
    struct members_view *view = &members->view;
    struct commit commit;
    struct member *first;
    if (!commit_get(members, get, &commit)) return;
    /* that one goes no further, but others may */
    if ((commit.code == GF_ERR_QUORUM) && gf_view_joins(members)) {
        gf_view_next(members);
        return;
    }
    if (commit.code != GF_OK) {
        gf_view_fail(members, (commit.code < 0) ? commit.code : GF_ERR_QUORUM, "%s",
                     (commit.reason[0] != 0) ? commit.reason : "the coordinator gave no reason");
        return;
    }
    if (commit.proposal.list.epoch <= view->epoch.epoch) return; /* old news */
    first = &members->table[commit.proposal.list.first];
    view->current = commit.proposal;
    for (uint32_t i = 0; i < (members->id_count + 7) / 8; i++) view->used[i] |= commit.used[i];
    if (first->address[0] == 0) first_address_take(members, &commit);
    if (commit.number == 0) {
        gf_view_committed(members);
        return;
    }
    gf_view_epoch_take(members);
    view->view = commit.number;
    view->since_ns = members->now_ns;
    gf_members_owe_id(members, id, MEMBERS_DO_VIEW_CHANGE);
}
