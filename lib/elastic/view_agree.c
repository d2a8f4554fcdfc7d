/* The coordinator's half of a view: who is here, what is proposed, and when it is committed. */
#include "lib/membership/members_state.h"

static bool further(const struct gf_members_progress *a, const struct gf_members_progress *b)
{
    if (a->partial != b->partial) return b->partial != 0;
    return (a->steps != b->steps) ? (a->steps > b->steps) : (a->applied > b->applied);
}

/* Whose state is the common one: the lowest member among the furthest. */
static void lead_find(const struct gf_members *members, struct view_proposal *next)
{
    const struct gf_members_progress *most = NULL;
    for (uint32_t id = 0; id < members->id_count; id++) {
        const struct gf_members_progress *own = &members->table[id].progress;
        if (id == members->member_id) own = &members->view.reason.own;
        if (!gf_view_has(next->list.bits, id)) continue;
        if (next->progress.requests < own->requests) next->progress.requests = own->requests;
        next->lags = next->lags || (own->partial != 0);
        if (most != NULL) next->lags = next->lags || further(own, most) || further(most, own);
        if ((most != NULL) && !further(own, most)) continue;
        most = own;
        next->lead = gf_view_list_rank(&next->list, id);
    }
    uint64_t requests = next->progress.requests;
    next->progress = *most;
    next->progress.requests = requests;
}

/* Nothing else of this view counts any more. */
static void commit_only(struct gf_members *members, uint32_t id)
{
    members->table[id].owed &= ~MEMBERS_VIEW_FRAMES;
    gf_members_owe_id(members, id, MEMBERS_COMMIT);
}

/* This attempt goes no further, and whoever came for it hears so. */
static void refuse_all(struct gf_members *members)
{
    members->view.refusal = members->error.code;
    for (uint32_t id = 0; id < members->id_count; id++)
        if (members->table[id].connected) commit_only(members, id);
}

/* Those who wait. Those who stay keep a quorum of the new list without them: half of it is enough
 * where the lowest id stays. One rank alone takes in one. */
static void waiting_add(const struct gf_members *members, struct members_list *list, uint32_t stay)
{
    uint32_t room = (stay < VIEW_TAKES_MAX) ? stay : VIEW_TAKES_MAX;
    bool lowest = true;
    for (uint32_t id = 0; (id < members->id_count) && (list->taken_count < room); id++) {
        const struct member *member = &members->table[id];
        if (gf_view_has(list->bits, id)) lowest = false;
        /* so it is of no epoch, and not in the list yet */
        if (member->state != MEMBER_WAITS) continue;
        if (lowest && (room == stay)) room--;
        gf_view_add(list->bits, id);
        list->incarnation[list->taken_count] = member->incarnation;
        list->taken[list->taken_count++] = (uint16_t)id;
    }
}

/* A new proposal of those that are here and stay; false: nobody does, or nobody has whole
 * weights. */
static bool proposal_make(struct gf_members *members, const unsigned char *here)
{
    struct members_view *view = &members->view;
    struct view_proposal *next = &view->accepted; /* all zeroes while accepted_view is 0 */
    uint32_t stay = 0;
    next->list.epoch = view->epoch.epoch + 1;
    for (uint32_t id = members->id_count; id-- > 0;) {
        bool leaves = (id == members->member_id) ? view->reason.leaves : members->table[id].leaves;
        if (!gf_view_has(here, id) || leaves) continue;
        gf_view_add(next->list.bits, id);
        next->list.first = id;
        stay++;
    }
    if (stay == 0) {
        gf_view_fail(members, GF_ERR_QUORUM,
                     "every rank that is here leaves: nobody is left to go on");
        return false;
    }
    if (!view->reason.leaves) next->list.first = members->member_id;
    waiting_add(members, &next->list, stay);
    lead_find(members, next);
    if (next->progress.partial != 0)
        gf_view_fail(members, GF_ERR_DATA,
                     "no survivor holds whole weights: those that they were copied from have died");
    return next->progress.partial == 0;
}

static void propose(struct gf_members *members, const unsigned char *here)
{
    struct members_view *view = &members->view;
    if ((view->accepted_view == 0) && !proposal_make(members, here)) {
        refuse_all(members);
        return;
    }
    view->accepted_view = view->view;
    gf_view_enter(members, VIEW_PROPOSED);
    for (uint32_t id = 0; id < members->id_count; id++)
        if ((members->table[id].state == MEMBER_REPORTED) &&
            (members->table[id].view == view->view))
            gf_members_owe_id(members, id, MEMBERS_PREPARE);
}

/* A process that the epoch's commit took in knows no addresses before all have joined, so it
 * connects as one that rejoins. Until it says which it is, it may be that member. */
static bool is_unheard(const struct gf_members *members, uint32_t id)
{
    return (members->table[id].state == MEMBER_RECOVERING) &&
           (gf_view_list_took(&members->view.epoch, id) != 0);
}

/* Its connection has ended, and it is not known to be busy. */
static bool is_away(const struct member *member)
{
    return member->lost && (member->end != GF_END_SILENT);
}

/* The members that are here: their state in this view is at least `state`; MEMBER_EXPECTED: or that
 * may come. */
static uint32_t who(const struct gf_members *members, member_state state, unsigned char *here_out)
{
    const struct members_view *view = &members->view;
    uint32_t count = 0;
    memset(here_out, 0, GF_WORLD_MAX / 8);
    for (uint32_t id = 0; id < members->id_count; id++) {
        const struct member *member = &members->table[id];
        bool in_view = ((member->state == MEMBER_REPORTED) || (member->state == MEMBER_ACCEPTED)) &&
                       member->answered && (member->view == view->view) && (member->state >= state);
        bool unheard = is_unheard(members, id);
        bool comes = (state == MEMBER_EXPECTED) &&
                     (unheard || ((member->state < MEMBER_DISCONNECTED) && !is_away(member)));
        if (!gf_view_has(view->epoch.bits, id)) continue;
        if (member->excluded && !(in_view && member->leaves)) continue; /* or it hands over */
        if (gf_member_is_recovering(member) && !unheard) continue;
        if ((id != members->member_id) && !in_view && !comes) continue;
        gf_view_add(here_out, id);
        count++;
    }
    return count;
}

/* No proof is there that its process has ended. */
static bool may_live(const struct gf_members *members, uint32_t id)
{
    return gf_view_has(members->view.epoch.bits, id) &&
           ((members->table[id].state < MEMBER_DEAD) || is_unheard(members, id)) &&
           !gf_view_has(members->view.noted.ended, id);
}

/* All that may live, and so might decide with this rank. */
static void all_that_live(const struct gf_members *members, unsigned char *here_out)
{
    memset(here_out, 0, GF_WORLD_MAX / 8);
    for (uint32_t id = 0; id < members->id_count; id++)
        if ((id == members->member_id) || may_live(members, id)) gf_view_add(here_out, id);
}

/* Of those that may live and are not here the lowest that was not silent; at a rank to which nobody
 * has come, also of the higher ones. Where another host is silent its ranks are, but a rank may hang
 * alone; and where others have come, still others may have gone on without them: so each third time
 * all are asked. */
static uint32_t missing_find(const struct gf_members *members, bool alone)
{
    const struct member *table = members->table;
    bool all = (members->view.rounds % 3 == 0);
    for (uint32_t id = 0; id < members->id_count; id++) {
        bool asked = alone || all || (id < members->member_id);
        if ((id == members->member_id) || !asked || !may_live(members, id)) continue;
        if (table[id].connected || table[id].sought) continue;
        if (!all && gf_view_host_is_silent(members, id) && !gf_view_is_near(members, id)) continue;
        return id;
    }
    return GF_RANK_NONE;
}

/* All of them are asked, again. */
static void round_begin(struct gf_members *members)
{
    members->view.rounds++;
    for (uint32_t id = 0; id < members->id_count; id++)
        members->table[id].excluded = members->table[id].passed_over = members->table[id].sought =
            false;
}

/* Too few are here. Whoever may live is looked for, and this rank leads again if it is not found: so
 * all meet at the lowest that answers. False: nobody is awaited. */
static bool missing_seek(struct gf_members *members)
{
    bool alone = true;
    bool awaited = false;
    for (uint32_t id = 0; id < members->id_count; id++) {
        const struct member *member = &members->table[id];
        if ((id == members->member_id) || !gf_view_has(members->view.epoch.bits, id)) continue;
        if (may_live(members, id) && member->connected) alone = false;
        /* who names the ended would have named it: so it runs, or was started again */
        if (!gf_view_has(members->view.noted.ended, id) || (member->state == MEMBER_WAITS))
            awaited = true;
    }
    if (members->view.rounds == 0) round_begin(members);
    uint32_t id = missing_find(members, alone);
    if (id == GF_RANK_NONE) {
        round_begin(members);
        id = missing_find(members, alone);
    }
    members->view.since_ns = members->now_ns;
    if (id == GF_RANK_NONE) return awaited;
    members->table[id].sought = true;
    members->view.sought = id;
    gf_view_next(members);
    return true;
}

void gf_view_lead_higher(struct gf_members *members)
{
    for (uint32_t id = 0; id < members->id_count; id++) {
        const struct member *member = &members->table[id];
        if ((member->state != MEMBER_REPORTED) || (member->view <= members->view.view)) continue;
        if (gf_view_coordinator(members, member->view) == members->member_id)
            gf_view_lead(members, member->view);
    }
}

/* Whoever leads without a quorum looks for others so soon, where it need not wait for any, or has. */
#define LEADS_AGAIN_NS UINT64_C(1000000000)

/* Where something has failed a quorum waits no longer for ranks of a host of which one is silent .. */
#define HOST_PATIENCE_NS UINT64_C(2000000000)
/* .. nor for those that were silent as coordinators before: they may come in again by themselves. */
#define SILENT_PATIENCE_NS UINT64_C(500000000)

/* How long are those awaited that may come and are not here? UINT64_MAX: as long as any. This rank's
 * own host runs, whoever is silent there. */
static uint64_t patience_ns(const struct gf_members *members, const unsigned char *may_come,
                            const unsigned char *here)
{
    uint64_t most_ns = SILENT_PATIENCE_NS;
    bool own_is_silent = gf_view_host_is_silent(members, members->member_id);
    if (members->view.reason.planned) return UINT64_MAX;
    for (uint32_t id = 0; id < members->id_count; id++) {
        if (!gf_view_has(may_come, id) || gf_view_has(here, id)) continue;
        if (members->table[id].passed_over) continue;
        if (own_is_silent || !gf_view_host_is_silent(members, id)) return UINT64_MAX;
        most_ns = HOST_PATIENCE_NS;
    }
    return most_ns;
}

/* Whoever has come hears so often that its coordinator is not silent. */
#define SAYS_NS UINT64_C(250000000)

static void say(struct gf_members *members)
{
    if (members->now_ns - members->view.said_ns >= SAYS_NS) gf_view_ask(members);
}

void gf_view_collect(struct gf_members *members, uint32_t own, struct gf_get *get)
{
    struct members_view *view = &members->view;
    unsigned char here[GF_WORLD_MAX / 8];
    unsigned char may_come[GF_WORLD_MAX / 8];
    uint32_t count;
    uint32_t connected = 0;
    uint64_t waited_ns = members->now_ns - view->since_ns;
    say(members);
    gf_view_lead_higher(members);
    for (uint32_t id = 0; id < members->id_count; id++) {
        const struct member *member = &members->table[id];
        if (!gf_view_has(view->epoch.bits, id)) continue;
        connected +=
            ((member->state <= MEMBER_JOINED) || is_unheard(members, id)) && member->connected;
    }
    uint32_t most = who(members, MEMBER_EXPECTED, may_come);
    bool outdated = gf_view_is_outdated(members, may_come);
    uint64_t most_ns = (connected > 0) ? view->reason.silent_ns : view->reason.away_ns;
    bool late = (waited_ns >= most_ns);
    bool told = view->noted.told;
    for (uint32_t id = 0; late && told && (id < members->id_count); id++)
        members->table[id].excluded = false;
    count = who(members, MEMBER_REPORTED, here);
    view->here_count = count;
    if (gf_view_quorum(members, here)) {
        bool awaits = (most != count) && !late;
        if (awaits && (waited_ns < patience_ns(members, may_come, here))) return;
        propose(members, here);
        if (view->state == VIEW_PROPOSED) gf_view_commit(members, own, get);
        return;
    }
    if (outdated || gf_view_is_outdated(members, here)) {
        gf_view_lead_again(members);
        return;
    }
    bool soon = (connected == 0) && (waited_ns >= LEADS_AGAIN_NS) &&
                ((view->rounds > 0) || (count == 1) || (most == count) ||
                 (waited_ns >= patience_ns(members, may_come, here)));
    all_that_live(members, may_come);
    bool hopes = told || gf_view_may_be_quorum(members, may_come);
    if (hopes && !late && !soon) return;
    if (hopes && missing_seek(members)) return;
    gf_view_too_few(members, "");
    refuse_all(members);
}

bool gf_view_was_led(const struct gf_members *members)
{
    return members->view.here_count > 0;
}

void gf_view_too_few(struct gf_members *members, const char *why)
{
    const struct members_view *view = &members->view;
    gf_view_fail(members, GF_ERR_QUORUM,
                 "%u of the %u ranks of epoch %u are here: too few to go on without proof that the "
                 "others have ended (gf_shrink: ended)%s",
                 view->here_count, gf_view_list_count(&view->epoch, members->id_count),
                 view->epoch.epoch, why);
}

void gf_view_commit(struct gf_members *members, uint32_t own, struct gf_get *get)
{
    struct members_view *view = &members->view;
    unsigned char here[GF_WORLD_MAX / 8];
    (void)own;
    (void)get;
    say(members);
    (void)who(members, MEMBER_ACCEPTED, here);
    if (!gf_view_quorum(members, here)) {
        bool late = (members->now_ns - view->since_ns >= view->reason.silent_ns);
        (void)who(members, MEMBER_REPORTED, here);
        if (late || !gf_view_quorum(members, here)) gf_view_lead_again(members);
        return;
    }
    view->current = view->accepted;
    for (uint32_t id = 0; id < members->id_count; id++) {
        if (gf_member_is_here(&members->table[id]) ||
            gf_view_waits_for(members, &view->current.list, id))
            commit_only(members, id);
    }
    /* another process of this id may have been taken in before this rank led */
    if (gf_view_list_is_mine(members, &view->current.list))
        gf_view_committed(members);
    else
        gf_view_excluded(members, &view->current.list);
}
