/* The world of states.h: what an appliance does above the members, what may come next, and a world
 * saved, restored and hashed. */
#include "firmware-tests/states/states.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define ENDPOINT "endpoint"
#define ENDPOINT_BYTES 16u
#define POLLS_MAX 16u

/* Nothing else lies there: pointers into a world hold in all of its copies. */
struct states_world *const states = (struct states_world *)UINT64_C(0x500000000000);

__attribute__((constructor)) static void world_map(void)
{
    void *at = mmap(states, sizeof *states, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    GF_ASSERT(at == states);
}

/* ---- a process, as an appliance drives it ---- */

static void proc_open(uint32_t proc, bool rejoins)
{
    struct states_proc *self = &states->procs[proc];
    const struct states_limits *limits = &states->limits;
    uint32_t id = states_id(proc);
    struct gf_members_setup setup = {.rank = id,
                                     .world = limits->members,
                                     .id_count = limits->ids,
                                     .epoch = 1,
                                     .joins = rejoins,
                                     .is_new = rejoins && (id >= limits->members) &&
                                               (limits->spare || (proc % STATES_LIVES == 0)),
                                     .join_timeout_ns = STATES_WAIT_NS,
                                     .answer_ns = STATES_WAIT_NS,
                                     .address = "states",
                                     .offer = {.version = GF_VERSION, .world = limits->members},
                                     .endpoint_bytes_max = ENDPOINT_BYTES};
    GF_ASSERT(gf_members_state_bytes(limits->ids, ENDPOINT_BYTES) <= STATES_MEMBERS_BYTES);
    memset(self, 0, sizeof *self);
    self->was_started = true;
    self->is_new = setup.is_new;
    self->partial = rejoins;
    self->now_ns = STATES_WAIT_NS + proc; /* of which its incarnation is made */
    self->state = STATES_JOINS;
    states_driver_open(proc, rejoins);
    self->members = gf_members_open(&setup, states->members[proc], &self->base, ENDPOINT,
                                    sizeof ENDPOINT, self->now_ns);
    self->incarnation = self->members->incarnation;
}

/* A member may be one step behind the others. Whoever lags has whole weights once its epoch is in
 * use. */
static struct gf_members_progress progress_of(const struct states_proc *self)
{
    uint32_t id = self->members->member_id;
    return (struct gf_members_progress){.steps = self->partial ? 0 : self->steps + 1 - (id & 1u),
                                        .applied = (id != 2) ? 1 : 0,
                                        .partial = self->partial ? 1 : 0};
}

static bool is_cut_for_silence(const struct gf_members *members)
{
    const struct members_cut *cut = &members->cut;
    bool is_cut = false;
    for (uint32_t i = 0; i < cut->count; i++)
        is_cut = is_cut || (cut->ranks[i] == members->setup.rank);
    return cut->told && cut->was_silent && is_cut;
}

static void change_begin(uint32_t proc, bool planned)
{
    struct states_proc *self = &states->procs[proc];
    struct gf_members *members = self->members;
    bool joins = gf_view_joins(members);
    bool names = !planned && !joins;
    const struct gf_members_reason reason = {.own = progress_of(self),
                                             .planned = planned,
                                             .leaves = self->leaves,
                                             .culprit = names ? gf_members_error(members)->peer
                                                              : GF_RANK_NONE,
                                             .silent_ns = STATES_WAIT_NS,
                                             .away_ns = STATES_WAIT_NS};
    self->state = STATES_CHANGES;
    states_rules_change(proc, &reason.own);
    self->was_silent = names && is_cut_for_silence(members);
    gf_view_change(members, self->now_ns, &reason);
}

static void proc_ends(uint32_t proc)
{
    struct states_proc *self = &states->procs[proc];
    self->state = STATES_NONE;
    self->members = NULL;
    self->told = 0;
    memset(states->members[proc], 0, STATES_MEMBERS_BYTES);
    states_driver_died(proc);
}

/* The list of the ended is read at each poll of a change, as under gf-run. */
static void ended_tell(uint32_t proc)
{
    struct states_proc *self = &states->procs[proc];
    unsigned char bits[GF_WORLD_MAX / 8] = {self->told};
    if (!states->limits.listed) return;
    gf_view_ended(self->members, bits, states->limits.ids);
    states_rules_noted(proc);
}

static bool is_behind(const struct states_proc *self, const struct gf_members_plan *plan)
{
    const struct gf_members_progress *own = &self->members->view.reason.own;
    return (own->steps != plan->progress.steps) || (own->applied != plan->progress.applied);
}

static void change_poll(uint32_t proc)
{
    struct states_proc *self = &states->procs[proc];
    struct gf_members_plan plan;
    ended_tell(proc);
    gf_status status = gf_view_poll(self->members, self->now_ns, &plan);
    if (status == GF_AGAIN) return;
    if ((status < 0) || (plan.world == 0)) {
        const char *text = gf_members_error(self->members)->text;
        if (strstr(text, VIEW_BROKEN) != NULL) states->broken = VIEW_BROKEN;
        if (strstr(text, "every rank that is here leaves") != NULL) states->all_left = true;
        self->state = STATES_ENDS;
        self->gave_up = (status < 0) && (status != GF_ERR_DATA) && !self->leaves &&
                        !self->members->table[states_id(proc)].excluded &&
                        (!self->members->view.is_cut || (states->cuts + states->crashes < 3));
        if (self->gave_up && !gf_view_joins(self->members)) states_rules_failed(proc);
        return;
    }
    self->state = STATES_JOINS;
    states_rules_plan(proc, &plan);
    self->partial = self->partial || plan.left_out || is_behind(self, &plan);
    self->steps = plan.progress.steps;
    gf_view_epoch_join(self->members, ENDPOINT, sizeof ENDPOINT, self->now_ns);
}

/* For whom it waits is not said: so who does not answer is cut for its silence, else whoever asked. */
static gf_status ask_poll(struct states_proc *self)
{
    const struct gf_error seen = {
        .code = GF_ERR_TIMEOUT, .peer = GF_RANK_NONE, .tensor = GF_TENSOR_NONE};
    struct gf_error error;
    return gf_members_attribute(self->members, self->now_ns, &seen, &error);
}

static void proc_poll(uint32_t proc)
{
    struct states_proc *self = &states->procs[proc];
    if (self->state == STATES_CHANGES) {
        change_poll(proc);
        return;
    }
    if (self->state == STATES_ASKS) {
        if (ask_poll(self) == GF_OK) change_begin(proc, false);
        return;
    }
    gf_status status = gf_members_poll(self->members, self->now_ns);
    if (status == GF_OK) {
        self->state = STATES_MEMBER;
        self->partial = false;
    }
    if (status >= 0) return;
    states_rules_failed(proc);
    change_begin(proc, false);
}

static struct states_before before_poll(const struct states_proc *self)
{
    const struct gf_members *members = self->members;
    struct states_before before = {.state = members->view.state,
                                   .epoch = members->view.epoch.epoch,
                                   .view = members->view.view,
                                   .dials = self->dials};
    for (uint32_t id = 0; id < states->limits.ids; id++) {
        uint8_t bit = (uint8_t)(1u << id);
        if (members->table[id].state == MEMBER_WAITS) before.waits |= bit;
        if (members->table[id].address[0] != 0) before.known |= bit;
    }
    return before;
}

/* Polls until another poll changes nothing: what would come in between could come before. */
static void turn(uint32_t proc)
{
    struct states_proc *self = &states->procs[proc];
    for (uint32_t i = 0; (i < POLLS_MAX) && states_lives(proc); i++) {
        const struct gf_members *members = self->members;
        const struct states_before before = before_poll(self);
        states_state state = self->state;
        members_state members_before = members->state;
        proc_poll(proc);
        states_rules_poll(proc, &before);
        if (self->state == STATES_ENDS) {
            proc_ends(proc);
            return;
        }
        if ((i > 0) && (self->state == state) && (members->state == members_before) &&
            !members->owes && (members->view.state == before.state) &&
            (members->view.view == before.view) && !states_has_event())
            return;
    }
}

/* ---- time ---- */

/* When the process does something by itself; 0: never, as it stands. */
static uint64_t deadline_of(const struct states_proc *self)
{
    const struct gf_members *members = self->members;
    const struct members_view *view = &members->view;
    uint64_t awaited_ns;
    if (members->owes)
        return self->now_ns + 1; /* it had no room for a frame: the next poll may have */
    if ((self->state == STATES_JOINS) && (members->state == MEMBERS_JOINING)) {
        if (members_coordinates(members))
            return (members->join_fails_ns != 0) ? members->join_fails_ns
                                                 : members->opened_ns + STATES_WAIT_NS;
        if (gf_members_here(members, 0))
            return members->connected_ns + STATES_WAIT_NS + 2 * MEMBERS_GRACE_NS;
        return (view->epoch.epoch != 0) ? members->opened_ns + STATES_WAIT_NS : 0;
    }
    if (members->inquiring && !members_over(members)) return members->inquiry_ns + STATES_WAIT_NS;
    if (self->state == STATES_ASKS)
        return (members->inquiry_ns == 0) ? members->asked_ns + STATES_WAIT_NS
                                          : members->inquiry_ns + 4 * STATES_WAIT_NS;
    if (self->state != STATES_CHANGES) return 0;
    switch (view->state) {
    case VIEW_SEEK:
        awaited_ns = gf_view_awaited_ns(members);
        return (awaited_ns == UINT64_MAX) ? 0 : view->since_ns + awaited_ns;
    case VIEW_COLLECT:
    case VIEW_PROPOSED: return view->since_ns + STATES_WAIT_NS;
    default: return 0;
    }
}

static bool may_tick(uint32_t proc)
{
    const struct states_proc *self = &states->procs[proc];
    return states_lives(proc) && (deadline_of(self) > self->now_ns);
}

/* ---- what may come next ---- */

struct choices {
    struct states_choice *at;
    uint32_t count;
};

static void add(struct choices *choices, states_kind kind, uint32_t a, uint32_t b, bool is_fault)
{
    if (choices->count == STATES_CHOICES) return;
    choices->at[choices->count++] =
        (struct states_choice){(uint8_t)kind, (uint8_t)a, (uint8_t)b, is_fault};
}

static bool id_runs(uint32_t id)
{
    for (uint32_t life = 0; life < STATES_LIVES; life++)
        if (states_lives(id * STATES_LIVES + life)) return true;
    return false;
}

/* Somebody waits, or others have begun to plan: the vote of a step has told all. */
static bool is_planned(const struct states_proc *self)
{
    return (gf_members_waiting(self->members) > 0) ||
           ((((uint32_t)states->planned >> self->members->setup.epoch) & 1u) != 0);
}

/* The step in which all hear of that may not end without a process that has died: who is in it then is
 * told. */
static bool step_ends(const struct states_proc *self)
{
    for (uint32_t id = 0; id < states->limits.ids; id++) {
        bool ends = ((self->last.bits[0] >> id) & 1u) == 0;
        for (uint32_t life = 0; life < STATES_LIVES; life++) {
            const struct states_proc *other = &states->procs[id * STATES_LIVES + life];
            ends = ends || ((other->state != STATES_NONE) && (other->begun[self->epoch] != 0));
        }
        if (!ends) return false;
    }
    return true;
}

static void network_add(struct choices *choices)
{
    for (uint32_t i = 0; i < STATES_CONNS; i++)
        for (uint32_t direction = 0; direction < 2; direction++)
            if (states_may_deliver(&states->conns[i], direction, false))
                add(choices, STATES_DELIVER, i, direction, false);
    for (uint32_t from = 0; from < STATES_PROCS; from++) {
        if (states_may_refuse(from)) add(choices, STATES_REFUSE, from, 0, false);
        for (uint32_t to = 0; to < STATES_PROCS; to++)
            if (states_may_connect(from, to)) add(choices, STATES_CONNECT, from, to, false);
    }
}

static void processes_add(struct choices *choices)
{
    const struct states_limits *limits = &states->limits;
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        const struct states_proc *self = &states->procs[proc];
        for (uint32_t id = 0; id < limits->ids; id++)
            if (limits->listed && (self->state == STATES_CHANGES) && !id_runs(id) &&
                (((self->told >> id) & 1u) == 0))
                add(choices, STATES_TELL, proc, id, false);
        if ((self->state == STATES_MEMBER) && is_planned(self) && step_ends(self))
            add(choices, STATES_CHANGE, proc, 0, false);
    }
}

/* A coordinator that collects says so, which is in no schedule: who is connected to it waits for longer
 * than it does, unless it is stopped. */
static bool is_collecting(uint32_t proc)
{
    const struct members_view *view = &states->procs[proc].members->view;
    return (states->procs[proc].state == STATES_CHANGES) &&
           ((view->state == VIEW_COLLECT) || (view->state == VIEW_PROPOSED));
}

static bool hears_of_it(uint32_t proc)
{
    bool hears = false;
    for (uint32_t i = 0; i < STATES_CONNS; i++) {
        const struct states_conn *conn = &states->conns[i];
        bool stands = conn->used && (conn->dialler == proc) && !conn->pipe[0].closed &&
                      !conn->pipe[1].closed && states_lives(conn->acceptor);
        hears = hears || (stands && is_collecting(conn->acceptor));
    }
    return hears;
}

/* Who comes to its deadline first goes on first. */
static bool is_before(uint32_t proc, uint32_t other)
{
    bool hears = hears_of_it(proc);
    if (hears != hears_of_it(other)) return !hears;
    return deadline_of(&states->procs[proc]) < deadline_of(&states->procs[other]);
}

static void clocks_add(struct choices *choices)
{
    uint32_t first = choices->count;
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        if (!may_tick(proc)) continue;
        add(choices, STATES_TICK, proc, 0, false);
        for (uint32_t i = choices->count - 1; i > first; i--) {
            struct states_choice *at = &choices->at[i];
            const struct states_choice later = at[-1];
            if (!is_before(at->a, later.a)) break;
            at[-1] = at[0];
            at[0] = later;
        }
    }
}

static void faults_add(struct choices *choices)
{
    const struct states_limits *limits = &states->limits;
    for (uint32_t i = 0; i < STATES_CONNS; i++) {
        struct states_conn *conn = &states->conns[i];
        for (uint32_t direction = 0; direction < 2; direction++)
            if (states_may_deliver(conn, direction, true))
                add(choices, STATES_LOSE, i, direction, true);
        if ((states->cuts < limits->cuts) && states_may_cut(conn))
            add(choices, STATES_CUT, i, 0, true);
    }
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        const struct states_proc *self = &states->procs[proc];
        uint32_t id = states_id(proc);
        bool is_next = (proc % STATES_LIVES == 0) || states->procs[proc - 1].was_started;
        if (states_lives(proc) && (states->crashes < limits->crashes))
            add(choices, STATES_CRASH, proc, 0, true);
        if ((self->state == STATES_MEMBER) && !is_planned(self) &&
            (states->changes < limits->changes))
            add(choices, STATES_CHANGE, proc, 0, true);
        if ((self->state == STATES_MEMBER) && (self->members->setup.world > 1) &&
            (states->leaves < limits->leaves))
            add(choices, STATES_LEAVE, proc, 0, true);
        if ((self->state == STATES_MEMBER) && (self->members->setup.world > 1) &&
            (states->asks < limits->asks))
            add(choices, STATES_ASK, proc, 0, true);
        if ((id < limits->ids) && !self->was_started && is_next &&
            (states->starts < limits->starts) && !(limits->listed && id_runs(id)))
            add(choices, STATES_START, proc, 0, true);
    }
}

uint32_t states_choices(struct states_choice *choices_out)
{
    struct choices choices = {choices_out, 0};
    network_add(&choices);
    processes_add(&choices);
    clocks_add(&choices);
    faults_add(&choices);
    return choices.count;
}

/* ---- a step ---- */

/* Could anything come but that time passes, or another clock come to its deadline before? */
static bool is_hasty(uint32_t proc)
{
    struct states_choice choices[STATES_CHOICES];
    return (states_choices(choices) > 0) &&
           ((choices[0].kind != STATES_TICK) || (choices[0].a != proc));
}

static uint32_t reader_of(const struct states_choice *choice)
{
    const struct states_conn *conn = &states->conns[choice->a];
    return (choice->b == STATES_TO_ACCEPTOR) ? conn->acceptor : conn->dialler;
}

static void started(uint32_t proc)
{
    states->starts++;
    states->lossy = states->lossy || id_runs(states_id(proc));
    for (uint32_t other = 0; other < STATES_PROCS; other++)
        states->procs[other].told &= (uint8_t) ~(1u << states_id(proc)); /* the list is true */
    proc_open(proc, true);
    change_begin(proc, false);
}

void states_step(const struct states_choice *choice)
{
    uint32_t proc = choice->a;
    struct states_proc *self = &states->procs[proc % STATES_PROCS];
    switch ((states_kind)choice->kind) {
    case STATES_DELIVER:
    case STATES_LOSE:
        proc = reader_of(choice);
        states->lossy = states->lossy || (choice->kind == STATES_LOSE);
        states_deliver(&states->conns[choice->a], choice->b, choice->kind == STATES_LOSE);
        break;
    case STATES_CONNECT: states_connect(choice->a, choice->b); return;
    case STATES_REFUSE: states_refuse(proc); break;
    case STATES_TELL: self->told |= (uint8_t)(1u << choice->b); break;
    case STATES_LEAVE:
        self->leaves = true;
        states->leaves++;
        states->planned |= (uint16_t)(1u << self->members->setup.epoch);
        change_begin(proc, true);
        break;
    case STATES_CHANGE:
        if (choice->is_fault) states->changes++;
        states->planned |= (uint16_t)(1u << self->members->setup.epoch);
        change_begin(proc, true);
        break;
    case STATES_TICK:
        states->hasty = states->hasty || is_hasty(proc);
        self->now_ns = deadline_of(self);
        break;
    case STATES_ASK:
        states->asks++;
        states->lossy = true;
        self->state = STATES_ASKS;
        break;
    case STATES_CRASH:
        states->crashes++;
        proc_ends(proc);
        return;
    case STATES_START: started(proc); break;
    case STATES_CUT:
        states->cuts++;
        states->lossy = true;
        states_cut(&states->conns[choice->a]);
        return;
    case STATES_KINDS: return;
    }
    turn(proc);
    states_rules_step();
}

void states_open(const struct states_limits *limits)
{
    struct states_choice choices[STATES_CHOICES];
    memset(states, 0, sizeof *states);
    states->limits = *limits;
    for (uint32_t id = 0; id < limits->members; id++) proc_open(id * STATES_LIVES, false);
    for (uint32_t id = 0; id < limits->members; id++) turn(id * STATES_LIVES);
    for (;;) {
        uint32_t count = states_choices(choices);
        if ((count == 0) || choices[0].is_fault || (choices[0].kind == STATES_TICK)) break;
        states_step(&choices[0]);
    }
    for (uint32_t id = 0; id < limits->members; id++)
        GF_ASSERT(states->procs[id * STATES_LIVES].state == STATES_MEMBER);
}

bool states_is_far(void)
{
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        if (!states_lives(proc)) continue;
        const struct members_view *view = &states->procs[proc].members->view;
        if ((view->view > states->limits.views) || (view->epoch.epoch > states->limits.epochs))
            return true;
    }
    return false;
}

/* ---- saved and restored: all of a world but what no process uses ---- */

#define HEAD_BYTES offsetof(struct states_world, frames)

size_t states_save(void *to)
{
    unsigned char *at = to;
    GF_ASSERT(!states_has_event());
    memcpy(at, states, HEAD_BYTES);
    at += HEAD_BYTES;
    for (uint32_t i = 0; i < STATES_FRAMES; i++) {
        const struct states_frame *frame = &states->frames[i];
        size_t bytes = offsetof(struct states_frame, payload) + frame->size_bytes;
        *at++ = frame->used ? 1 : 0;
        if (!frame->used) continue;
        memcpy(at, frame, bytes);
        at += bytes;
    }
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        if (!states_lives(proc)) continue;
        memcpy(at, states->members[proc], STATES_MEMBERS_BYTES);
        at += STATES_MEMBERS_BYTES;
    }
    return (size_t)(at - (unsigned char *)to);
}

void states_restore(const void *from)
{
    const unsigned char *at = from;
    memcpy(states, at, HEAD_BYTES);
    at += HEAD_BYTES;
    for (uint32_t i = 0; i < STATES_FRAMES; i++) {
        struct states_frame *frame = &states->frames[i];
        bool used = (*at++ != 0);
        frame->used = used;
        if (!used) continue;
        memcpy(frame, at, offsetof(struct states_frame, payload));
        at += offsetof(struct states_frame, payload);
        memcpy(frame->payload, at, frame->size_bytes);
        at += frame->size_bytes;
    }
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        if (!states_lives(proc)) continue;
        memcpy(states->members[proc], at, STATES_MEMBERS_BYTES);
        at += STATES_MEMBERS_BYTES;
    }
}

/* ---- hashed: fields, times as what is late, processes instead of incarnations, no texts ---- */

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

static uint64_t incarnation_hash(uint32_t incarnation)
{
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++)
        if ((incarnation != 0) && (states->procs[proc].incarnation == incarnation)) return proc + 1;
    return (incarnation != 0) ? STATES_PROCS + 1u : 0; /* one that was left out, or is gone */
}

static uint64_t list_hash(uint64_t hash, const struct members_list *list)
{
    hash = mix(hash, list->epoch | ((uint64_t)list->first << 16) | ((uint64_t)list->bits[0] << 24) |
                         ((uint64_t)list->taken_count << 32));
    for (uint32_t i = 0; i < list->taken_count; i++)
        hash = mix(hash, list->taken[i] | (incarnation_hash(list->incarnation[i]) << 16));
    return hash;
}

static uint64_t proposal_hash(uint64_t hash, const struct view_proposal *proposal)
{
    hash = mix(hash, proposal->lead | ((uint64_t)proposal->lags << 32));
    hash = mix(hash, proposal->progress.partial | (proposal->progress.applied << 1) |
                         (proposal->progress.steps << 8));
    return list_hash(hash, &proposal->list);
}

static uint64_t view_hash(uint64_t hash, const struct members_view *view)
{
    hash =
        mix(hash, (uint64_t)view->state | ((uint64_t)view->view << 8) |
                      ((uint64_t)view->accepted_view << 24) | ((uint64_t)view->asked_view << 40));
    hash = mix(hash, view->coordinator | ((uint64_t)view->sought << 32));
    hash = mix(hash,
               view->asked_epoch | ((uint64_t)view->gone_on.epoch << 16) |
                   ((uint64_t)view->rejoins << 36) | ((uint64_t)view->is_cut << 37) |
                   ((uint64_t)(view->rounds % 3) << 40) | ((uint64_t)(view->rounds > 0) << 42) |
                   ((uint64_t)view->reason.planned << 32) | ((uint64_t)view->reason.leaves << 33) |
                   ((uint64_t)view->noted.told << 34) | ((uint64_t)view->led.told << 35));
    hash = mix(hash, view->noted.ended[0] | ((uint64_t)view->noted.waiting[0] << 8) |
                         ((uint64_t)view->led.ended[0] << 16) |
                         ((uint64_t)view->led.waiting[0] << 24) | ((uint64_t)view->used[0] << 32));
    hash = mix(hash, (uint32_t)view->refusal);
    hash = list_hash(hash, &view->epoch);
    hash = proposal_hash(hash, &view->current);
    return (view->accepted_view != 0) ? proposal_hash(hash, &view->accepted) : hash;
}

static uint64_t member_hash(uint64_t hash, const struct member *member)
{
    hash = mix(
        hash, (uint64_t)member->state | ((uint64_t)member->connected << 8) |
                  ((uint64_t)member->excluded << 9) | ((uint64_t)member->passed_over << 10) |
                  ((uint64_t)member->leaves << 11) | ((uint64_t)member->is_new << 12) |
                  ((uint64_t)member->answered << 13) | ((uint64_t)(member->address[0] != 0) << 14) |
                  ((uint64_t)member->lost << 60) | ((uint64_t)member->end << 61) |
                  ((uint64_t)member->sought << 59) | ((uint64_t)member->progress.partial << 15) |
                  ((uint64_t)member->view << 16) | ((uint64_t)member->owed << 32));
    hash =
        mix(hash, incarnation_hash(member->incarnation) | (incarnation_hash(member->given) << 8) |
                      ((uint64_t)(uint8_t)member->epoch_rank << 16));
    return mix(hash, member->said.endpoint_rank | ((uint64_t)member->said.endpoint_at << 16) |
                         ((uint64_t)member->said.endpoint_bytes << 32) |
                         ((uint64_t)member->said.endpoint_have << 48));
}

/* At most one in an epoch; a cut has one rank. */
static uint64_t inquiry_hash(uint64_t hash, const struct gf_members *members)
{
    const struct members_cut *cut = &members->cut;
    uint64_t answered = 0;
    for (uint32_t id = 0; id < states->limits.ids; id++)
        answered |= (uint64_t)members->table[id].said.answered << (8 * id);
    hash = mix(hash, answered | ((uint64_t)members->inquiry << 32) |
                         ((uint64_t)members->inquiring << 40) | ((uint64_t)members->asked << 41) |
                         ((uint64_t)(members->inquiry_ns != 0) << 42) |
                         ((uint64_t)(uint8_t)members->seen_by << 48));
    return mix(hash, (uint64_t)cut->told | ((uint64_t)cut->was_silent << 1) |
                         ((uint64_t)cut->count << 2) | ((uint64_t)cut->ranks[0] << 8));
}

static uint64_t proc_hash(uint64_t hash, const struct states_proc *self)
{
    const struct gf_members *members = self->members;
    uint64_t deadline_ns = deadline_of(self);
    hash = mix(hash, (uint64_t)self->state | ((uint64_t)self->coordinator << 8) |
                         ((uint64_t)self->dials << 16) | ((uint64_t)self->rejoins << 24) |
                         ((uint64_t)self->leaves << 25) | ((uint64_t)self->partial << 27) |
                         ((uint64_t)self->was_silent << 26) | ((uint64_t)self->told << 32) |
                         ((uint64_t)(deadline_ns > self->now_ns) << 40));
    hash = mix(hash,
               (uint64_t)members->state | ((uint64_t)members->was_member << 8) |
                   ((uint64_t)members->go << 9) | ((uint64_t)(members->error.peer & 0xff) << 16) |
                   ((uint64_t)(members->join_fails_ns != 0) << 10) |
                   ((uint64_t)members->setup.rank << 32) | ((uint64_t)members->setup.world << 40) |
                   ((uint64_t)members->setup.epoch << 48));
    hash = mix(hash, (uint64_t)(uint32_t)members->error.code |
                         ((uint64_t)(members->tell.peer & 0xff) << 32));
    hash = view_hash(hash, &members->view);
    hash = inquiry_hash(hash, members);
    for (uint32_t id = 0; id < states->limits.ids; id++)
        hash = member_hash(hash, &members->table[id]);
    for (uint32_t epoch = 0; epoch < STATES_EPOCHS; epoch++) hash = mix(hash, self->begun[epoch]);
    hash = mix(hash, self->knows | (self->steps << 16));
    return mix(hash, self->led.lived | ((uint64_t)self->led.outside << 16) |
                         ((uint64_t)self->noted.lived << 32) |
                         ((uint64_t)self->noted.outside << 48));
}

/* Of a frame with a text what goes before that, and the cut behind it; of one that says where a rank
 * is the inquiry; of the others all. */
static uint64_t frame_hash(uint64_t hash, const struct states_frame *frame)
{
    uint32_t kind = frame->kind & ((1u << MEMBERS_KIND_BITS) - 1u);
    bool has_text = (kind == MEMBERS_ERROR) || (kind == MEMBERS_GIVES_UP);
    uint32_t bytes = frame->size_bytes;
    hash = mix(hash, frame->kind | ((uint64_t)bytes << 32));
    if (has_text || (kind == MEMBERS_POSITION)) bytes = 8;
    if (kind == MEMBERS_ERROR) {
        uint64_t
            cut; /* a count of four bytes and a rank of two; zeroes of the text where there is none */
        memcpy(&cut, frame->payload + frame->size_bytes - sizeof cut, sizeof cut);
        hash = mix(hash, cut);
        memcpy(&cut, frame->payload + frame->size_bytes - 10, sizeof cut);
        hash = mix(hash, cut);
    }
    for (uint32_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, frame->payload + at, (bytes - at < 8) ? bytes - at : 8);
        hash = mix(hash, word);
    }
    return hash;
}

static uint64_t conn_hash(const struct states_conn *conn)
{
    uint64_t hash =
        mix(1, conn->dialler | ((uint64_t)conn->acceptor << 8) | ((uint64_t)conn->rejoins << 16));
    for (uint32_t direction = 0; direction < 2; direction++) {
        const struct states_pipe *pipe = &conn->pipe[direction];
        hash = mix(hash, (uint64_t)pipe->opened | ((uint64_t)pipe->closed << 1) |
                             ((uint64_t)pipe->end << 2) | ((uint64_t)pipe->count << 8));
        for (uint32_t i = 0; i < pipe->count; i++)
            hash = frame_hash(hash, &states->frames[pipe->frames[i]]);
    }
    return hash;
}

uint64_t states_hash(void)
{
    uint64_t conns = 0; /* in any order */
    uint64_t hash =
        mix(0, states->crashes | ((uint64_t)states->starts << 8) | ((uint64_t)states->cuts << 16) |
                   ((uint64_t)states->changes << 24) | ((uint64_t)states->leaves << 32) |
                   ((uint64_t)states->planned << 40) | ((uint64_t)states->asks << 56));
    hash = mix(hash, states->decided | ((uint64_t)states->hasty << 32) |
                         ((uint64_t)states->lossy << 33) | ((uint64_t)states->all_left << 34));
    for (uint32_t proc = 0; proc < STATES_PROCS; proc++) {
        hash = mix(hash, states->procs[proc].was_started);
        if (states_lives(proc)) hash = proc_hash(hash, &states->procs[proc]);
    }
    for (uint32_t i = 0; i < STATES_CONNS; i++)
        if (states->conns[i].used) conns += conn_hash(&states->conns[i]);
    for (uint32_t epoch = 0; epoch < STATES_EPOCHS; epoch++)
        for (uint32_t view = 0; view < STATES_VIEWS; view++) {
            const struct states_said *said = &states->said[epoch][view];
            uint64_t all =
                said->promises | ((uint64_t)said->accepts << 16) | ((uint64_t)said->joins << 32);
            if (all != 0) hash = mix(hash, all | ((uint64_t)(view + 32 * epoch) << 48));
        }
    return mix(hash, conns);
}

/* ---- said ---- */

static void proc_text(uint32_t proc, char text_out[4])
{
    (void)snprintf(text_out, 4, "%u%c", states_id(proc) % 10, 'a' + (char)(proc % STATES_LIVES));
}

void states_text(const struct states_choice *choice, char text_out[STATES_TEXT_BYTES])
{
    static const char *const kinds[STATES_KINDS] = {"deliver", "lose",   "connect", "refuse",
                                                    "tell",    "change", "tick",    "leave",
                                                    "ask",     "crash",  "start",   "cut"};
    const struct states_conn *conn = &states->conns[choice->a % STATES_CONNS];
    char a[4];
    char b[4];
    switch ((states_kind)choice->kind) {
    case STATES_DELIVER:
    case STATES_LOSE:
        proc_text((choice->b == STATES_TO_ACCEPTOR) ? conn->dialler : conn->acceptor, a);
        proc_text(reader_of(choice), b);
        break;
    case STATES_CUT:
        proc_text(conn->dialler, a);
        proc_text(conn->acceptor, b);
        break;
    case STATES_CONNECT:
        proc_text(choice->a, a);
        proc_text(choice->b, b);
        break;
    case STATES_TELL:
        proc_text(choice->a, a);
        (void)snprintf(b, sizeof b, "%u", choice->b);
        break;
    default:
        proc_text(choice->a, a);
        b[0] = 0;
        break;
    }
    (void)snprintf(text_out, STATES_TEXT_BYTES, "%s %s%s%s", kinds[choice->kind], a,
                   (b[0] != 0) ? ">" : "", b);
}
