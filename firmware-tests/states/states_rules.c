/* What must hold after each step, whatever the library believes (lib/DESIGN.md, "Who may decide on the
 * next epoch"):
 *
 *     one list a number    of two processes that live, and have begun an epoch of the same number, the
 *                          lists are the same, processes by processes
 *     two answers meet     who proposes has the promise, and who decides the ACCEPT, of a majority of
 *                          the epoch's processes in its view; or, where a list is given, that of each
 *                          id whose process is of the epoch: of the others none lived as the list was
 *                          read that the view began with, or it was of no epoch and has answered
 *     no two sides         there are not two epochs, each with all of its processes, in use
 *     numbers grow         epochs of a process do, and the views that it promises in one; it is of
 *                          none again once another has begun without it, and then another process
 *     one plan             the places of an epoch go by ids; its common state is that of the lowest of
 *                          the furthest, and it is said whether anybody lags
 *     room for who waits   those of an epoch that were not taken in are a quorum of it; and nobody waits
 *                          for whom there is room
 *     who has ended        of the epoch before nobody lives that this one leaves out, where it says so
 *     nothing goes wrong   then nothing fails. And as long as no link is cut, no rank asks and no clock
 *                          hastens, nobody that lives is left out
 *     who is cut           leaves; and whoever hears that others have gone on is of no epoch, or ends
 *     who has ended        as its kernel or the list said, or is the culprit, is not asked to coordinate
 *     connections          are known as they stand, and who has said something has one
 *     an id is given once  no two new processes are taken in with one id, as far as anybody lives
 *                          who knows
 *
 * And once nothing more goes wrong the newest epoch is in use; where a list is given, by all that live.
 * Who was cut for its silence has not ended by itself where others have gone on.
 * Those of it that were enough to go on have not all ended by themselves. */
#include "firmware-tests/states/states.h"

#include <string.h>

static void broken(const char *rule)
{
    if (states->broken == NULL) states->broken = rule;
}

static uint32_t process_of(uint32_t incarnation)
{
    uint32_t proc = 0;
    while ((proc < STATES_PROCS) && (states->procs[proc].incarnation != incarnation)) proc++;
    return proc;
}

/* Which list it is: its number's members, and the processes that its commit took in. */
static uint32_t digest(const struct members_list *list)
{
    uint32_t digest = list->bits[0] + 256u * list->first + 1;
    for (uint32_t i = 0; i < list->taken_count; i++) digest = digest * 31u + list->incarnation[i];
    return digest;
}

/* ---- two answers meet ---- */

static bool has(uint32_t procs, uint32_t id)
{
    return (procs & states_of_id(id)) != 0;
}

static bool is_majority(const struct members_list *list, uint32_t answers)
{
    uint32_t of = 0;
    uint32_t count = 0;
    uint32_t lowest = STATES_NOBODY;
    for (uint32_t id = 0; id < states->limits.ids; id++) {
        if (((list->bits[0] >> id) & 1u) == 0) continue;
        if (lowest == STATES_NOBODY) lowest = id;
        of++;
        count += has(answers, id) ? 1u : 0u;
    }
    return (2 * count > of) || ((2 * count == of) && has(answers, lowest));
}

static bool is_everybody(const struct states_proc *self, uint32_t answers, uint32_t joins)
{
    for (uint32_t id = 0; id < states->limits.ids; id++) {
        uint32_t lived = self->led.lived & states_of_id(id);
        if (has(answers, id) || (lived == 0)) continue;
        if ((lived & ~(joins & self->led.outside)) != 0) return false;
    }
    return states->limits.listed;
}

/* The process goes on to what follows the epoch with this list, with these answers beside its own. */
static void answers_check(uint32_t proc, const struct members_list *list, uint32_t answers,
                          uint32_t joins)
{
    answers |= 1u << proc;
    if (!is_majority(list, answers) && !is_everybody(&states->procs[proc], answers, joins))
        broken("two answers meet");
}

static struct states_said said_in(uint32_t epoch, uint32_t view)
{
    if ((epoch < STATES_EPOCHS) && (view < STATES_VIEWS)) return states->said[epoch][view];
    return (struct states_said){0, 0, 0};
}

/* It has decided in this view. */
static void decision_check(uint32_t proc, const struct members_list *list, uint32_t view)
{
    struct states_said said = said_in(list->epoch, view);
    states->decided |= (uint16_t)(1u << (list->epoch + 1));
    answers_check(proc, list, said.accepts, said.joins);
}

/* ---- one list a number, numbers grow, an id is given once ---- */

static void given_note(uint32_t proc, const struct members_list *list)
{
    for (uint32_t i = 0; i < list->taken_count; i++) {
        uint32_t taken = process_of(list->incarnation[i]);
        if ((taken == STATES_PROCS) || !states->procs[taken].is_new) continue;
        states->procs[proc].knows |= (uint16_t)(1u << taken);
        for (uint32_t other = 0; other < STATES_PROCS; other++) {
            uint32_t before = states->procs[other].knows & states_of_id(list->taken[i]);
            if (states_lives(other) && ((before & ~(1u << taken)) != 0))
                broken("an id is given once");
        }
    }
}

static void epoch_begun(uint32_t proc, const struct members_list *list)
{
    struct states_proc *self = &states->procs[proc];
    uint32_t own = digest(list);
    if (list->epoch < self->epoch) broken("numbers grow: an epoch");
    uint32_t took = gf_view_list_took(list, states_id(proc));
    bool is_own = (took == 0) || (took == self->members->incarnation);
    if (!is_own || (((list->bits[0] >> states_id(proc)) & 1u) == 0))
        broken("a process begins its own epochs");
    for (uint32_t other = 0; other < STATES_PROCS; other++) {
        uint32_t theirs = states->procs[other].begun[list->epoch];
        if (states_lives(other) && (theirs != 0) && (theirs != own)) broken("one list a number");
    }
    self->begun[list->epoch] = own;
    states->decided |= (uint16_t)(1u << list->epoch);
    self->epoch = list->epoch;
    self->view = 0;
    given_note(proc, list);
}

/* It needs no answer but its own: so it may begin to lead and decide in one poll. */
static bool decides_alone(uint32_t proc)
{
    const struct states_proc *self = &states->procs[proc];
    bool lives_alone = (self->noted.lived & ~(1u << proc)) == 0;
    return is_majority(&self->last, 1u << proc) || (states->limits.listed && lives_alone);
}

static bool leads(view_state state)
{
    return (state == VIEW_COLLECT) || (state == VIEW_PROPOSED);
}

/* It still knows where those are that were not taken in since. */
static void addresses_check(uint32_t proc, uint32_t known_before)
{
    const struct gf_members *members = states->procs[proc].members;
    const struct members_list *list = &members->view.epoch;
    for (uint32_t id = 0; id < states->limits.ids; id++)
        if ((((known_before & list->bits[0]) >> id) & 1u) && (gf_view_list_took(list, id) == 0) &&
            (members->table[id].address[0] == 0))
            broken("who is left out knows where the others are");
}

/* It is as if it had ended and another had been started. */
static void left_out(uint32_t proc, const struct states_before *before)
{
    struct states_proc *self = &states->procs[proc];
    bool led = leads(before->state);
    bool decided = (states->decided >> (self->epoch + 1)) != 0;
    if (!states->hasty && !states->lossy) broken("who was not silent is not left out");
    if (!decided && led)
        decision_check(proc, &self->last, before->view);
    else if (!decided && !decides_alone(proc))
        broken("a process is of no epoch again where others have decided on a later one");
    if (self->incarnation == self->members->incarnation) broken("then it is another process");
    addresses_check(proc, before->known);
    memset(self->begun, 0, sizeof self->begun);
    memset(&self->last, 0, sizeof self->last);
    self->epoch = self->view = self->knows = 0;
    self->is_new = false;
    self->incarnation = self->members->incarnation;
}

/* ---- after a poll ---- */

void states_rules_noted(uint32_t proc)
{
    struct states_noted noted = {0, 0};
    for (uint32_t other = 0; other < STATES_PROCS; other++) {
        if (!states_lives(other)) continue;
        noted.lived |= (uint16_t)(1u << other);
        if (states->procs[other].epoch == 0) noted.outside |= (uint16_t)(1u << other);
    }
    states->procs[proc].noted = noted;
}

/* Who has said something is connected; what was said before the connection ended is forgotten. */
static void connected_check(uint32_t proc, uint32_t waits_before)
{
    const struct gf_members *members = states->procs[proc].members;
    uint32_t connected = states_connected(proc);
    for (uint32_t id = 0; id < states->limits.ids; id++) {
        const struct member *member = &members->table[id];
        bool says = (member->state >= MEMBER_REPORTED) && (member->state != MEMBER_DISCONNECTED) &&
                    (member->state != MEMBER_DEAD);
        if (member->connected != (((connected >> id) & 1u) != 0))
            broken("a connection is known as it stands");
        if ((member->owed != 0) && !member->connected)
            broken("who is told something has a connection");
        /* nobody has found fault with the process that comes in */
        bool comes_in = (((waits_before >> id) & 1u) != 0) && (member->state == MEMBER_EXPECTED) &&
                        member->connected;
        if (comes_in && (member->excluded || member->passed_over))
            broken("who comes in is not the one that was cut");
        if (says && !member->connected) broken("who has said something has a connection");
    }
}

static void seek_check(uint32_t proc, uint32_t dials_before)
{
    const struct states_proc *self = &states->procs[proc];
    const struct members_view *view = &self->members->view;
    bool seeks = (view->state != VIEW_NONE) && (view->state < VIEW_COMMITTED);
    if (view->is_cut && (seeks ? !view->reason.leaves : (view->state <= VIEW_COMMITTED)))
        broken("who is cut leaves");
    if (!seeks) return;
    if (view->gone_on.epoch != 0) broken("who hears that others have gone on is of no epoch");
    if ((self->dials == dials_before) || (self->dials >= STATES_PROCS)) return;
    if (gf_view_joins(self->members)) return; /* it asks all that it knows */
    const struct member *to = &self->members->table[states_id(self->dials)];
    if ((to->state == MEMBER_DEAD) || to->excluded) broken("who has ended is not asked");
}

void states_rules_failed(uint32_t proc)
{
    if (!states->hasty && !states->lossy && (states->crashes == 0) &&
        !gf_view_joins(states->procs[proc].members))
        broken("nothing fails where nothing goes wrong");
}

/* How far: whoever comes in has nothing. */
static uint32_t reached(const struct gf_members_progress *own)
{
    return (own->partial != 0) ? 0 : 1 + 2 * (uint32_t)own->steps + own->applied;
}

void states_rules_change(uint32_t proc, const struct gf_members_progress *own)
{
    uint32_t epoch = states->procs[proc].epoch;
    if (epoch < STATES_EPOCHS) states->procs[proc].reached[epoch] = reached(own);
}

/* Those that stay can go on without those that come in; one alone takes in one. */
static bool is_room(const struct members_list *list)
{
    uint32_t stay = 0;
    for (uint32_t id = 0; id < states->limits.ids; id++)
        if ((((list->bits[0] >> id) & 1u) != 0) && (gf_view_list_took(list, id) == 0))
            stay |= 1u << (id * STATES_LIVES);
    return is_majority(list, stay) || ((list->taken_count == 1) && (__builtin_popcount(stay) == 1));
}

/* A new proposal takes in all that wait, as far as there is room. */
static void room_check(uint32_t proc, const struct members_view *view)
{
    const struct gf_members *members = states->procs[proc].members;
    for (uint32_t lower = 0; lower < view->view; lower++)
        if (said_in(view->epoch.epoch, lower).accepts != 0) return; /* it may be an older one */
    for (uint32_t id = 0; id < states->limits.ids; id++) {
        struct members_list more = view->accepted.list;
        if ((members->table[id].state != MEMBER_WAITS) || gf_view_has(more.bits, id)) continue;
        gf_view_add(more.bits, id);
        more.incarnation[more.taken_count] = members->table[id].incarnation;
        more.taken[more.taken_count++] = (uint16_t)id;
        if (is_room(&more)) broken("who waits comes in where there is room");
    }
}

void states_rules_poll(uint32_t proc, const struct states_before *before)
{
    struct states_proc *self = &states->procs[proc];
    if (!states_lives(proc)) return;
    const struct members_view *view = &self->members->view;
    const struct members_list list = view->epoch;
    bool led = leads(before->state) && (self->coordinator == states_id(proc));
    if (list.epoch >= STATES_EPOCHS) {
        states->decided |= (uint16_t)(1u << STATES_EPOCHS); /* others may hear of that */
        return;
    }
    /* .. and is not of it */
    bool is_out = (view->state == VIEW_LEFT) || (view->state == VIEW_FAILED);
    if (led && is_out && (view->current.list.epoch == list.epoch + 1))
        decision_check(proc, &list, before->view);
    if (view->rejoins && (list.epoch == 0) && (self->epoch != 0)) left_out(proc, before);
    if (list.epoch != self->epoch) {
        /* who led decided, unless it still leads, or has failed: then it has heard of what others
         * decided */
        bool decided = led && !leads(view->state) && (view->state != VIEW_FAILED) &&
                       (list.epoch == before->epoch + 1);
        struct members_list last = self->last;
        epoch_begun(proc, &list);
        /* or it has led again, with a newer list, and decided alone */
        if (decided && !decides_alone(proc)) decision_check(proc, &last, before->view);
        self->last = list;
        self->reached[list.epoch] = reached(&view->reason.own); /* on the way to the one after it */
    }
    if (view->view < self->view) broken("numbers grow: a view");
    if ((view->state == VIEW_COLLECT) &&
        ((before->state != VIEW_COLLECT) || (view->view != self->view)))
        self->led = self->noted;
    struct states_said said = said_in(list.epoch, view->view);
    bool proposes = (before->state != VIEW_PROPOSED) || (before->view != view->view);
    if ((view->state == VIEW_PROPOSED) && proposes) {
        answers_check(proc, &list, said.promises, said.joins);
        room_check(proc, view);
    }
    connected_check(proc, before->waits);
    seek_check(proc, before->dials);
    self->view = view->view;
    if (view->view >= STATES_VIEWS) return;
    if ((view->asked_view == view->view) && (view->asked_epoch == list.epoch))
        states->said[list.epoch][view->view].promises |= (uint16_t)(1u << proc);
    if ((view->accepted_view != 0) && (view->accepted_view == view->view))
        states->said[list.epoch][view->view].accepts |= (uint16_t)(1u << proc);
    if (gf_view_joins(self->members) && (view->asked_epoch < STATES_EPOCHS) &&
        (view->asked_view < STATES_VIEWS) && (view->asked_view != 0))
        states->said[view->asked_epoch][view->asked_view].joins |= (uint16_t)(1u << proc);
}

/* Places in an epoch go by ids, behind the coordinator's. */
static uint32_t place_of(const struct members_list *list, uint32_t id)
{
    uint32_t place = (id < list->first) ? 1 : 0;
    for (uint32_t lower = 0; (id != list->first) && (lower < id); lower++)
        place += (list->bits[0] >> lower) & 1u;
    return place;
}

/* Memory of the epoch before is kept where nobody is left that could write to it: each process of that
 * which this one leaves out has ended. */
static bool has_left_one(uint32_t proc, const struct members_list *list)
{
    for (uint32_t other = 0; other < STATES_PROCS; other++) {
        uint32_t id = states_id(other);
        bool stays = (((list->bits[0] >> id) & 1u) != 0) && (gf_view_list_took(list, id) == 0);
        if ((other != proc) && states_lives(other) && !stays &&
            (states->procs[other].begun[list->epoch - 1] != 0))
            return true;
    }
    return false;
}

/* The process of this id that is of the epoch with this list, and was of the one before; NULL: it is
 * not known any more. */
static const struct states_proc *stayed(const struct members_list *list, uint32_t id)
{
    for (uint32_t proc = (id + 1) * STATES_LIVES; proc-- > id * STATES_LIVES;) /* the last one */
        if (states->procs[proc].begun[list->epoch - 1] != 0) return &states->procs[proc];
    return NULL;
}

/* The common state is that of the lowest of those that are furthest, and who lags is said. */
static void common_check(const struct gf_members_plan *plan, const struct members_list *list)
{
    uint32_t most = 0;
    uint32_t least = UINT32_MAX;
    uint32_t lead = GF_RANK_NONE;
    for (uint32_t id = 0; id < states->limits.ids; id++) {
        if (((list->bits[0] >> id) & 1u) == 0) continue;
        bool is_new = (gf_view_list_took(list, id) != 0);
        const struct states_proc *proc = is_new ? NULL : stayed(list, id);
        if (!is_new && (proc == NULL)) return;
        uint32_t own = is_new ? 0 : proc->reached[list->epoch - 1];
        if (own > most) lead = place_of(list, id);
        if (own > most) most = own;
        if (own < least) least = own;
    }
    if ((plan->lead != lead) || (reached(&plan->progress) != most))
        broken("the furthest state is the common one");
    if (plan->lags != (least != most)) broken("who lags is said");
}

/* Whoever the epoch leaves out was on the list as it was read last. */
static bool are_named(uint32_t proc, const struct members_list *list)
{
    const struct states_proc *self = &states->procs[proc];
    for (uint32_t id = 0; id < states->limits.ids; id++) {
        bool stays = (((list->bits[0] >> id) & 1u) != 0) && (gf_view_list_took(list, id) == 0);
        bool named = ((self->told >> id) & 1u) != 0;
        if ((((self->last.bits[0] >> id) & 1u) != 0) && !stays && !named) return false;
    }
    return !self->members->view.rejoins && (self->epoch == self->members->setup.epoch) &&
           (list->epoch == self->epoch + 1);
}

void states_rules_plan(uint32_t proc, const struct gf_members_plan *plan)
{
    const struct members_view *view = &states->procs[proc].members->view;
    const struct members_list *list = &view->epoch;
    if (list->epoch >= STATES_EPOCHS) return; /* a step may go one epoch further than the search */
    if ((plan->epoch != list->epoch) || (plan->rank != place_of(list, states_id(proc))) ||
        (plan->world != (uint32_t)__builtin_popcount(list->bits[0])))
        broken("all are told the same of an epoch");
    if (!is_room(list)) broken("who stays is a quorum of the new list");
    if (gf_view_left_ended(states->procs[proc].members) && has_left_one(proc, list))
        broken("who is said to have ended has");
    if (states->limits.listed && !gf_view_left_ended(states->procs[proc].members) &&
        are_named(proc, list))
        broken("it is said that all have ended whom the list names");
    common_check(plan, list);
}

/* ---- after a step, and at the end ---- */

/* Do all processes of its epoch use it, as this one does? */
static bool is_in_use(uint32_t proc)
{
    const struct states_proc *self = &states->procs[proc];
    if (self->state != STATES_MEMBER) return false;
    for (uint32_t id = 0; id < states->limits.ids; id++) {
        bool uses = ((self->last.bits[0] >> id) & 1u) == 0;
        for (uint32_t other = id * STATES_LIVES; other < (id + 1) * STATES_LIVES; other++)
            uses = uses || ((states->procs[other].state == STATES_MEMBER) &&
                            (states->procs[other].epoch == self->epoch));
        if (!uses) return false;
    }
    return true;
}

void states_rules_step(void)
{
    const struct states_proc *side = NULL;
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        const struct states_proc *self = &states->procs[proc];
        if (!states_lives(proc) || !is_in_use(proc)) continue;
        if ((side != NULL) && (side->epoch != self->epoch)) broken("no two sides");
        side = self;
    }
}

/* Without a list a process that was started while the one before it lives may end others. */
static bool starts_are_known(void)
{
    return states->limits.listed || (states->starts == 0);
}

/* All that were of the newest epoch, and that nobody has killed, have ended by themselves, though they
 * were enough to go on, no deadline has passed before its time, and who led had not met ranks alone
 * that leave. */
static void somebody_check(void)
{
    uint32_t newest = 0;
    uint32_t enough = 0;
    const struct members_list *list = NULL;
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        const struct states_proc *self = &states->procs[proc];
        if ((!states_lives(proc) && !self->gave_up) || (self->epoch < newest)) continue;
        if (self->epoch > newest) enough = 0;
        newest = self->epoch;
        enough |= 1u << proc;
        list = &self->last;
    }
    if (states->hasty || states->all_left || (newest == 0) ||
        ((states->decided >> (newest + 1)) != 0))
        return;
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++)
        if (((enough >> proc) & 1u) != 0 && states_lives(proc)) return;
    if (starts_are_known() && is_majority(list, enough)) broken("who lives goes on");
}

/* One that was cut for its silence has heard of that, so it lives. It asks those of the epoch that it
 * knows; where none of them has gone on it ends, as any other. */
static void silent_check(void)
{
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        const struct states_proc *self = &states->procs[proc];
        if (!self->gave_up || !self->was_silent || !starts_are_known()) continue;
        for (uint32_t other = 0; other < STATES_PROCS; other++)
            if ((states->procs[other].epoch > self->epoch) && is_in_use(other) &&
                (states->procs[other].begun[self->epoch] == self->begun[self->epoch]))
                broken("who was silent comes in again");
    }
}

/* A process that was left out may wait until its caller's deadline, and let others wait for it. */
void states_rules_end(void)
{
    uint32_t newest = 0;
    bool is_left_out = false;
    somebody_check();
    silent_check();
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++)
        if (states_lives(proc) && (states->procs[proc].epoch > newest))
            newest = states->procs[proc].epoch;
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        uint32_t epoch = states->procs[proc].epoch;
        is_left_out = is_left_out || (states_lives(proc) && (epoch > 0) && (epoch < newest));
    }
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        const struct states_proc *self = &states->procs[proc];
        bool must_come = states->limits.listed && !is_left_out && (newest > 0);
        if (!states_lives(proc) || ((self->epoch < newest) && !must_come)) continue;
        if ((newest > 0) && !is_in_use(proc))
            broken("whoever lives goes on once nothing goes wrong");
    }
}
