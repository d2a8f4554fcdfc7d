/* The view change (Viewstamped Replication Revisited, Liskov and Cowling 2012, whose state is one proposal here). What
 * is done with the agreement (the link and the region anew, the state made common) is in epoch.c.
 *
 *     state      what comes                     what is done
 *     NONE       the epoch fails, or is to end  promise the next view whose coordinator may answer -> SEEK or COLLECT
 *     SEEK       connected, START_VIEW          DO_VIEW_CHANGE to the coordinator
 *                PREPARE of this view           accept it, ACCEPT
 *                COMMIT of the next epoch -> COMMITTED; where this rank is not of it: LEFT, as it wished, else FAILED
 *                the coordinator ends, or time  promise the next view
 *     COLLECT    DO_VIEW_CHANGE of this view    note it; of a higher one: promise that, START_VIEW to all
 *                all who may come are here, or time   a quorum: PREPARE to those that are here -> PROPOSED; else where
 *                                              a list names the ended, look for who is not on it -> SEEK; else FAILED
 *     PROPOSED   ACCEPT                         a quorum: COMMIT to all -> COMMITTED or LEFT
 *                too few are left, or time      promise the next view that this rank leads, START_VIEW -> COLLECT
 *     any        DO_VIEW_CHANGE of an older epoch     COMMIT of this rank's
 *                DO_VIEW_CHANGE of a newer epoch      that is this rank's now -> COLLECT; or it is not of it: FAILED
 *
 * Why two sides can never both go on: a proposal is committed when a quorum of the epoch has accepted it, and made
 * after a quorum has promised its view. Two quorums share a member that runs (quorum.c). Where the later view's
 * promise of that member came first, it did not accept the earlier proposal; else it told the later coordinator of it,
 * which proposed the same again, the one with the highest view of all that it was told. A process that was started
 * anew has lost its promises, a new one has none: it takes part only once a commit holds it, and that commit shuts out
 * any other process of its member id. No time and no guess about who is dead enters this; both decide only how soon.
 * firmware-tests/sim/membership.pml is the same for SPIN.
 *
 * The common state is that of the member that is furthest: steps are transactional, so members differ by at most one
 * step (a vote that reached some of them) or by one gf_update(). The lowest rank among the furthest leads. */
#include "lib/membership/members_state.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- ending without an epoch ---- */

void gf_view_fail(struct gf_members *members, gf_status code, const char *format, ...)
{
    va_list arguments;
    char text[sizeof members->error.text]; /* the arguments may be the last error's text */
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    members->error = (struct gf_error){.code = code, .rank = members->setup.rank, .peer = GF_RANK_NONE,
                                       .operation = GF_OPERATION_SHRINK, .step = members->view.own.steps,
                                       .tensor = GF_TENSOR_NONE};
    memcpy(members->error.text, text, sizeof text);
    members->state = MEMBERS_FAILED;
    members->view.state = VIEW_FAILED;
}

static void gf_view_excluded_fail(struct gf_members *members)
{
    gf_view_fail(members, GF_ERR_QUORUM, "the other ranks went on without rank %u: epoch %u is closed, epoch %u has "
                 "begun", members->setup.rank, members->view.epoch.epoch, members->view.excluded_epoch);
}

void gf_view_excluded(struct gf_members *members, uint32_t epoch)
{
    struct members_view *view = &members->view;
    bool ended = (view->state == VIEW_NONE) || (view->state == VIEW_FAILED);
    if (view->leaves && !ended) {
        view->plan = (struct gf_members_plan){.epoch = epoch};
        view->state = VIEW_LEFT;
        return;
    }
    view->excluded = true;
    view->excluded_epoch = epoch;
    if (ended && (members->state == MEMBERS_FAILED)) return; /* its error sticks; gf_members_change() will say it */
    gf_view_excluded_fail(members);
}

/* ---- views ---- */

uint32_t gf_view_coordinator(const struct gf_members *members, uint32_t number)
{
    const struct members_list *list = &members->view.epoch;
    uint32_t id = list->first;
    for (uint32_t i = (number - 1) % gf_view_list_count(list, members->id_count); i > 0; i--)
        id = gf_view_list_next(list, id, members->id_count);
    return id;
}

static gf_status reform(struct gf_members *members, uint32_t id)
{
    const struct gf_rendezvous_driver *driver = members->rendezvous->driver;
    const char *address = members->table[id].address;
    if (driver->reform == NULL) return (id == members->id_of[0]) ? GF_OK : GF_ERR_STATE;
    if ((id != members->member_id) && (address[0] == 0)) return GF_ERR_STATE;
    return driver->reform(members->rendezvous, members->now_ns, id, address);
}

/* What members said of lower views counts no more; of whom a process rejoins or whose connection stands is still
 * known. */
static void reports_forget(struct gf_members *members)
{
    for (uint32_t id = 0; id < members->id_count; id++) {
        struct member *member = &members->table[id];
        member->owed &= ~MEMBERS_VIEW_FRAMES | (1u << MEMBERS_COMMIT); /* of this epoch, to one that has not heard */
        if (member->state == MEMBER_ACCEPTED) member->state = MEMBER_EXPECTED;
        if (member->state == MEMBER_INVITED) member->state = MEMBER_WAITS;
    }
}

void gf_view_lead(struct gf_members *members, uint32_t number)
{
    struct members_view *view = &members->view;
    reports_forget(members);
    view->view = number;
    view->sought = GF_RANK_NONE;
    view->coordinator = members->member_id;
    view->state = VIEW_COLLECT;
    view->since_ns = members->now_ns;
    for (uint32_t id = 0; id < members->id_count; id++) {
        const struct member *member = &members->table[id];
        if ((member->state == MEMBER_REPORTED) && (member->view < number))
            gf_members_owe_id(members, id, MEMBERS_START_VIEW);
    }
}

/* Where views stand around another member, connections to the one before are closed. */
static void star_moved(struct gf_members *members, uint32_t id)
{
    if (id == members->view.star) return;
    members->view.star = id;
    for (uint32_t other = 0; other < members->id_count; other++) {
        struct member *member = &members->table[other];
        member->connected = false;
        member->owed = 0;
        bool is_dead = gf_member_is_recovering(member) || (member->state == MEMBER_DEAD);
        member->state = is_dead ? MEMBER_DEAD : MEMBER_EXPECTED;
    }
}

gf_status gf_view_turn(struct gf_members *members, uint32_t id)
{
    gf_status status = reform(members, id);
    if (status >= 0) star_moved(members, id);
    return status;
}

/* Promises the next view whose coordinator may answer (view->sought: only that one); comes to this rank at the latest.
 * A rank that no epoch in use has told addresses looks for the coordinator where the job's address is. */
void gf_view_next(struct gf_members *members)
{
    struct members_view *view = &members->view;
    if (!members->was_member && (members->rendezvous->driver->reform != NULL)) {
        view->state = VIEW_SEEK;
        view->since_ns = members->now_ns;
        view->coordinator = view->star;
        if ((view->star != GF_RANK_NONE) && members->table[view->star].connected) {
            gf_members_owe_id(members, view->star, MEMBERS_DO_VIEW_CHANGE);
            return;
        }
        view->coordinator = view->star = GF_RANK_NONE;
        (void)members->rendezvous->driver->reform(members->rendezvous, members->now_ns, GF_RANK_NONE, "");
        return;
    }
    for (;;) {
        uint32_t id = (view->view == 0) ? view->epoch.first
                                        : gf_view_list_next(&view->epoch, view->coordinator, members->id_count);
        struct member *member = &members->table[id];
        gf_status status;
        view->view++;
        view->coordinator = id;
        bool may_answer = (member->state != MEMBER_DEAD) && !gf_member_is_recovering(member) && !member->suspected &&
                          ((view->sought == GF_RANK_NONE) || (view->sought == id));
        if ((id != members->member_id) && !may_answer) continue;
        status = gf_view_turn(members, id);
        if ((status < 0) && (id != members->member_id)) {
            member->suspected = true;
            continue;
        }
        if (status < 0) {
            gf_view_fail(members, GF_ERR_SYSTEM, "rank %u cannot coordinate: %.160s", members->setup.rank,
                      (members->rendezvous->driver->reform == NULL) ? "its control channel has no such part"
                                                                    : members->rendezvous->fault.text);
            return;
        }
        if (id == members->member_id) {
            gf_view_lead(members, view->view);
            return;
        }
        reports_forget(members);
        view->state = VIEW_SEEK;
        view->since_ns = members->now_ns;
        if (status == GF_OK) gf_members_owe_id(members, id, MEMBERS_DO_VIEW_CHANGE);
        return;
    }
}

void gf_view_lead_again(struct gf_members *members)
{
    gf_view_lead(members, members->view.view + gf_view_list_count(&members->view.epoch, members->id_count));
}

void gf_view_event(struct gf_members *members, const struct gf_rendezvous_event *event)
{
    struct member *member = &members->table[event->rank];
    struct members_view *view = &members->view;
    if (!members->was_member && (view->state == VIEW_SEEK) && (event->kind == GF_RENDEZVOUS_CONNECTED))
        view->coordinator = view->star = event->rank; /* whoever it is */
    bool seeks = (view->state == VIEW_SEEK) && (event->rank == view->coordinator);
    if (event->kind == GF_RENDEZVOUS_CONNECTED) {
        member->connected = true;
        member->owed = 0;
        member->state = event->rejoins ? MEMBER_RECOVERING : MEMBER_EXPECTED;
        if (seeks) gf_members_owe_id(members, event->rank, view->joins ? MEMBERS_JOIN : MEMBERS_DO_VIEW_CHANGE);
    } else if (event->kind == GF_RENDEZVOUS_ENDED) {
        gf_view_admit_event(members, event);
        member->connected = false;
        member->owed = 0;
        member->state = (gf_member_is_recovering(member) || !event->lives) ? MEMBER_DEAD : MEMBER_TURNED;
        if (!seeks) return;
        if (view->joins) {
            gf_view_join_again(members);
            return;
        }
        member->suspected = members->was_member;
        gf_view_next(members);
    }
}

/* ---- running ---- */

void gf_members_ended(struct gf_members *members, const unsigned char *bits, uint32_t id_count)
{
    struct members_view *view = &members->view;
    view->told = (bits != NULL);
    memset(&view->ended, 0, sizeof view->ended);
    for (uint32_t id = 0; (bits != NULL) && (id < id_count) && (id < members->id_count); id++) {
        struct member *member = &members->table[id];
        if ((((bits[id / 8] >> (id % 8)) & 1) == 0) || (id == members->member_id)) continue;
        gf_view_list_add(&view->ended, id);
        if (!member->connected && !gf_member_is_recovering(member)) member->state = MEMBER_DEAD;
    }
}

void gf_members_change(struct gf_members *members, uint64_t now_ns, const struct gf_members_reason *reason)
{
    struct members_view *view = &members->view;
    gf_members_touch(members, now_ns);
    members->state = MEMBERS_FAILED; /* as between two epochs */
    view->joins = members->setup.joins && (view->epoch.epoch == 0);
    view->own = reason->own;
    view->silent_ns = reason->silent_ns;
    view->away_ns = reason->away_ns;
    view->planned = reason->planned;
    view->leaves = reason->leaves;
    view->refusal = GF_OK;
    view->sought = GF_RANK_NONE;
    if (view->joins) {
        gf_view_join_again(members);
        return;
    }
    if (reason->planned)
        members->error = (struct gf_error){.code = GF_ERR_PEER, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    if (reason->culprit == members->setup.rank) {
        gf_view_fail(members, GF_ERR_QUORUM, "the other ranks go on without this one: %.200s", members->error.text);
        return;
    }
    if (reason->culprit < members->setup.world) members->table[members->id_of[reason->culprit]].suspected = true;
    if (view->excluded) {
        gf_view_excluded_fail(members);
        return;
    }
    if (view->epoch.epoch == 0) {
        view->state = VIEW_FAILED;
        members->error.code = GF_ERR_QUORUM;
        return;
    }
    gf_view_next(members);
}

/* The lower one looks for the higher one for less time than that looks for it: they cannot miss each other for ever. */
static uint64_t seek_ns(const struct gf_members *members)
{
    const struct members_view *view = &members->view;
    bool lower = (view->sought != GF_RANK_NONE) && (members->member_id < view->sought);
    return lower ? view->silent_ns / 2 : view->silent_ns + view->away_ns;
}

/* What each state does by itself; frames: view_take.c, connections: gf_view_event(). */
static void view_time(struct gf_members *members)
{
    struct members_view *view = &members->view;
    switch (view->state) {
    case VIEW_SEEK:
        if (view->joins || (members->now_ns - view->since_ns < seek_ns(members))) return;
        if (view->coordinator != GF_RANK_NONE) members->table[view->coordinator].suspected = members->was_member;
        if (!members->was_member) star_moved(members, GF_RANK_NONE);
        gf_view_next(members);
        return;
    case VIEW_COLLECT:
        gf_view_collect(members);
        if (view->state == VIEW_PROPOSED) gf_view_accepted(members);
        return;
    case VIEW_PROPOSED: gf_view_accepted(members); return;
    case VIEW_NONE:
    case VIEW_COMMITTED:
    case VIEW_LEFT:
    case VIEW_FAILED: return;
    }
}

gf_status gf_members_change_poll(struct gf_members *members, uint64_t now_ns, struct gf_members_plan *plan_out)
{
    struct members_view *view = &members->view;
    gf_members_touch(members, now_ns);
    gf_members_flush(members); /* the last ERROR may still have to go out */
    for (uint32_t i = 0; (i < MEMBERS_EVENTS_MAX) && (members->id_count > 1); i++) {
        struct gf_rendezvous_event event = {0};
        struct gf_get get;
        uint32_t kind;
        gf_status status = members->rendezvous->driver->poll(members->rendezvous, now_ns, &event);
        if (status == GF_AGAIN) break;
        if (status < 0) {
            gf_view_fail(members, status, "%.200s", members->rendezvous->fault.text);
            break;
        }
        if (event.kind == GF_RENDEZVOUS_REFUSED) continue;
        gf_view_event(members, &event);
        kind = event.frame_kind & ((1u << MEMBERS_KIND_BITS) - 1u);
        get = (struct gf_get){.at = event.payload, .left = event.size_bytes};
        if ((event.kind == GF_RENDEZVOUS_FRAME) && gf_view_of_no_epoch(kind))
            (void)gf_view_frame(members, event.rank, kind, &get);
        else if (event.kind == GF_RENDEZVOUS_FRAME)
            gf_view_admit_event(members, &event);
        if (view->state >= VIEW_COMMITTED) break;
    }
    view_time(members);
    gf_members_flush(members);
    if (view->state == VIEW_FAILED) return members->error.code;
    if ((view->state != VIEW_COMMITTED) && (view->state != VIEW_LEFT)) return GF_AGAIN;
    if ((view->state == VIEW_LEFT) && gf_members_owes(members, MEMBERS_VIEW_FRAMES)) return GF_AGAIN;
    *plan_out = view->plan;
    return GF_OK;
}
