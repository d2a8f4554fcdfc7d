/* The view change (Viewstamped Replication Revisited, Liskov and Cowling 2012, whose state is one
 * proposal here): its table, which is that of README.md line by line, and what brings events to it.
 * What is done with the agreement (the link and the region anew, the state made common) is in
 * epoch.c.
 *
 * Why two sides can never both go on is in lib/DESIGN.md; firmware-tests/states/ searches this code,
 * firmware-tests/sim/membership.pml is a model of it. No time and no guess about who is dead enters
 * it; both decide only how soon.
 *
 * The common state is that of the member that is furthest: steps are transactional, so members
 * differ by at most one step (a vote that reached some of them) or by one gf_update(). The lowest
 * rank among the furthest leads. */
#include "lib/membership/members_state.h"

#include <stdarg.h>
#include <stdio.h>

typedef enum view_event {
    CHANGE, /* the epoch fails, or is to end; a process comes in */
    CONNECTED,
    ENDED,          /* a connection */
    FAULT,          /* somebody says that the epoch has failed */
    TIME,           /* at each poll */
    DO_VIEW_CHANGE, /* from here on frames, in the order of members_frame */
    START_VIEW,
    PREPARE,
    ACCEPT,
    COMMIT,
    JOIN
} view_event;
_Static_assert(JOIN - DO_VIEW_CHANGE == MEMBERS_JOIN - MEMBERS_DO_VIEW_CHANGE, "the same order");

enum { /* sets of states */
       NONE = 1u << VIEW_NONE,
       SEEK = 1u << VIEW_SEEK,
       COLLECT = 1u << VIEW_COLLECT,
       PROPOSED = 1u << VIEW_PROPOSED,
       COMMITTED = 1u << VIEW_COMMITTED,
       LEFT = 1u << VIEW_LEFT,
       FAILED = 1u << VIEW_FAILED,
       SAME = 1u << 31
};

/* `from`: whose events these are. The first row that fits is taken, an event without a row changes
 * nothing and is not read. The state afterwards is one of `then`: each step is held against
 * that, and a rank that finds its table wrong fails by itself; the others can go on without it. */
static const struct view_rule {
    uint32_t states;
    view_event event;
    enum { ANYBODY, COORDINATOR, ITSELF } from;
    void (*act)(struct gf_members *members, uint32_t id, struct gf_get *get);
    uint32_t then;
} rules[] = {
    {NONE | COMMITTED, CHANGE, ITSELF, gf_view_begin, SEEK | COLLECT | FAILED},
    {SEEK, CONNECTED, COORDINATOR, gf_view_report, SEEK},
    {SEEK, START_VIEW, COORDINATOR, gf_view_promise, SEEK},
    {SEEK, PREPARE, COORDINATOR, gf_view_accept, SEEK},
    {SEEK, COMMIT, COORDINATOR, gf_view_begin_epoch, SEEK | COMMITTED | LEFT | FAILED},
    {SEEK, ENDED, COORDINATOR, gf_view_lost, SEEK | COLLECT | FAILED},
    {SEEK, TIME, ITSELF, gf_view_late, SEEK | COLLECT | FAILED},
    {COLLECT, TIME, ITSELF, gf_view_collect, SEEK | COLLECT | PROPOSED | COMMITTED | LEFT | FAILED},
    {COLLECT, ENDED, ANYBODY, gf_view_warn, COLLECT},
    {COLLECT, FAULT, ANYBODY, gf_view_warn, COLLECT},
    {PROPOSED, ACCEPT, ANYBODY, gf_view_accepted, PROPOSED},
    {PROPOSED, TIME, ITSELF, gf_view_commit, SEEK | COLLECT | PROPOSED | COMMITTED | LEFT | FAILED},
    {NONE | SEEK, DO_VIEW_CHANGE, ANYBODY, gf_view_note, SAME | LEFT | FAILED},
    {COLLECT | PROPOSED, DO_VIEW_CHANGE, ANYBODY, gf_view_answer,
     SAME | SEEK | COLLECT | LEFT | FAILED},
    {NONE | SEEK | COLLECT | PROPOSED, COMMIT, ANYBODY, gf_view_be_out,
     SAME | SEEK | LEFT | FAILED},
    {NONE | SEEK | COLLECT | PROPOSED | FAILED, JOIN, ANYBODY, gf_view_join, SAME},
};

void gf_view_hold(struct gf_members *members, uint32_t event, view_state before, uint32_t then)
{
    uint32_t after = members->view.state;
    if ((then & (1u << after)) != 0) return;
    if ((after == before) && ((then & SAME) != 0)) return;
    gf_view_fail(members, GF_ERR_SYSTEM,
                 VIEW_BROKEN ": event %u in state %u has led to state %u, which its row does not "
                             "allow: a defect of the library",
                 event, before, after);
}

static void step(struct gf_members *members, view_event event, uint32_t id, struct gf_get *get)
{
    view_state before = members->view.state;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const struct view_rule *rule = &rules[i];
        if ((rule->event != event) || ((rule->states & (1u << before)) == 0)) continue;
        if ((rule->from == COORDINATOR) && (id != members->view.coordinator)) continue;
        rule->act(members, id, get);
        gf_view_hold(members, event, before, rule->then);
        return;
    }
}

bool gf_view_frame(struct gf_members *members, uint32_t id, uint32_t kind, struct gf_get *get)
{
    step(members, (view_event)(DO_VIEW_CHANGE + (kind - MEMBERS_DO_VIEW_CHANGE)), id, get);
    return !get->bad;
}

bool gf_view_event(struct gf_members *members, const struct gf_rendezvous_event *event,
                   struct gf_get *get)
{
    struct members_view *view = &members->view;
    uint32_t kind = members_kind(event);
    bool begun = (event->kind == GF_RENDEZVOUS_CONNECTED);
    /* whoever */
    bool anybody = !members->was_member || (view->coordinator == GF_RANK_NONE);
    if (event->kind != GF_RENDEZVOUS_FRAME) {
        if (begun && anybody && (view->state == VIEW_SEEK)) view->coordinator = event->rank;
        step(members, begun ? CONNECTED : ENDED, event->rank, NULL);
        return false;
    }
    if (members_is_of_a_view(kind)) return gf_view_frame(members, event->rank, kind, get);
    if ((kind == MEMBERS_FAULT) || (kind == MEMBERS_GIVES_UP))
        step(members, FAULT, event->rank, NULL);
    return false;
}

/* ---- what the caller says ---- */

void gf_view_fail(struct gf_members *members, gf_status code, const char *format, ...)
{
    va_list arguments;
    char text[sizeof members->error.text]; /* the arguments may be the last error's text */
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    members->error = (struct gf_error){.code = code,
                                       .rank = members->setup.rank,
                                       .peer = GF_RANK_NONE,
                                       .operation = GF_OPERATION_SHRINK,
                                       .step = members->view.reason.own.steps,
                                       .tensor = GF_TENSOR_NONE};
    memcpy(members->error.text, text, sizeof text);
    members->state = MEMBERS_FAILED;
    members->view.state = VIEW_FAILED;
}

void gf_view_ended(struct gf_members *members, const unsigned char *bits, uint32_t id_count)
{
    struct view_noted *noted = &members->view.noted;
    *noted = (struct view_noted){.told = (bits != NULL)};
    for (uint32_t id = 0; id < members->id_count; id++) {
        struct member *member = &members->table[id];
        bool ended = (bits != NULL) && (id < id_count) && gf_view_has(bits, id);
        if (member->state == MEMBER_WAITS) gf_view_add(noted->waiting, id);
        if (!ended || (id == members->member_id)) continue;
        gf_view_add(noted->ended, id);
        if (!member->connected && !gf_member_is_recovering(member)) member->state = MEMBER_DEAD;
    }
}

/* ---- who is to go ---- */

/* A rank that was silent lives, as it reads this: it asks the others, which are tried before it, and
 * comes in again if they have gone on. One that is cut for another reason hands over as one that
 * leaves does: it answers until the others have decided. */
static void own_cut(struct gf_members *members)
{
    if (members->cut.was_silent)
        members->table[members->member_id].passed_over = true;
    else
        members->view.is_cut = members->view.reason.leaves = true;
}

/* The coordinator has told all ranks the same. */
static void cut_take(struct gf_members *members)
{
    const struct members_cut *cut = &members->cut;
    for (uint32_t i = 0; i < cut->count; i++) {
        if (cut->ranks[i] == members->setup.rank)
            own_cut(members);
        else
            gf_members_at(members, cut->ranks[i])->excluded = true;
    }
}

/* Only its connection has ended, and no kernel says that the process has: it may come all the same. */
static bool is_only_lost(const struct gf_members *members, const struct member *member)
{
    return member->lost && (member->end != GF_END_GONE) && (members->error.code == GF_ERR_PEER);
}

/* Nobody has told a cut, and this rank's error names a rank. One that may live is tried after the
 * others, and counts if it answers; so does this rank where it reads that it was silent itself. */
static void culprit_take(struct gf_members *members, uint32_t culprit)
{
    struct member *member = gf_members_at(members, culprit);
    bool was_silent = (culprit == members->setup.rank) && (members->error.code == GF_ERR_TIMEOUT);
    if (was_silent || is_only_lost(members, member))
        member->passed_over = true;
    else
        member->excluded = true;
}

/* Ranks are those of an epoch: a process of none excludes nobody. */
static void exclude(struct gf_members *members, uint32_t culprit)
{
    if (gf_view_joins(members)) return;
    if (members->cut.told)
        cut_take(members);
    else if (culprit < members->setup.world)
        culprit_take(members, culprit);
}

void gf_view_change(struct gf_members *members, uint64_t now_ns,
                    const struct gf_members_reason *reason)
{
    struct members_view *view = &members->view;
    gf_members_touch(members, now_ns);
    members->state = MEMBERS_FAILED; /* as between two epochs */
    view->reason = *reason;
    view->rounds = view->here_count = 0;
    view->refusal = GF_OK;
    view->sought = GF_RANK_NONE;
    if (reason->planned)
        members->error =
            (struct gf_error){.code = GF_ERR_PEER, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    exclude(members, reason->culprit);
    step(members, CHANGE, members->member_id, NULL);
}

gf_status gf_view_poll(struct gf_members *members, uint64_t now_ns,
                       struct gf_members_plan *plan_out)
{
    const struct members_view *view = &members->view;
    const struct view_proposal *next = &view->current;
    gf_members_touch(members, now_ns);
    gf_members_flush(members); /* the last ERROR may still have to go out */
    gf_status status = gf_members_events(members);
    if (status < 0) gf_view_fail(members, status, "%.200s", members->rendezvous->fault.text);
    step(members, TIME, members->member_id, NULL);
    gf_members_flush(members);
    if (view->state == VIEW_FAILED) return members->error.code;
    if ((view->state != VIEW_COMMITTED) && (view->state != VIEW_LEFT)) return GF_AGAIN;
    if ((view->state == VIEW_LEFT) && gf_members_owes(members, MEMBERS_VIEW_FRAMES))
        return GF_AGAIN;
    *plan_out = (struct gf_members_plan){.epoch = view->gone_on.epoch}; /* LEFT */
    if (view->state == VIEW_LEFT) return GF_OK;
    *plan_out =
        (struct gf_members_plan){.epoch = next->list.epoch,
                                 .lead = next->lead,
                                 .lags = next->lags,
                                 .left_out = view->rejoins,
                                 .progress = next->progress,
                                 .world = gf_view_list_count(&next->list, members->id_count),
                                 .rank = gf_view_list_rank(&next->list, members->member_id)};
    return GF_OK;
}
