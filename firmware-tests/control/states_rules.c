/* The program of each process, and the rules that hold after each step. */
#include "firmware-tests/control/states.h"

#include "drivers/base/fnv.h"

#define EXCHANGE_NS UINT64_C(2000000000)

void states_rule(bool holds, const char *text)
{
    if (!holds && (states->broken == NULL)) states->broken = text;
}

static struct gf_member *member_of(uint32_t at)
{
    return (struct gf_member *)states_member(at);
}

gf_member_state states_state(uint32_t proc)
{
    return gf_member_current_state(member_of(proc));
}

/* ---- the program ---- */

static const struct gf_generation *generation_of(uint32_t at)
{
    return gf_member_generation(member_of(at));
}

/* A step of a generation ends where all of its members have voted for it, in that generation. */
static bool all_have_voted(uint32_t own, uint32_t *waiting_out)
{
    uint32_t found = 0;
    *waiting_out = 0;
    for (uint32_t i = 0; i < states->proc_count; i++) {
        const struct states_proc *proc = &states->procs[i];
        if ((proc->number != states->procs[own].number) ||
            (proc->voted <= states->procs[own].steps))
            continue;
        found++; /* a vote that was sent stays, whoever has died since */
        if (proc->vote_waiting > *waiting_out) *waiting_out = proc->vote_waiting;
    }
    return found >= generation_of(own)->world;
}

static uint32_t proc_at(uint32_t own, uint32_t rank)
{
    size_t bytes;
    uint64_t process;
    memcpy(&process, gf_member_endpoint(member_of(own), rank, &bytes), sizeof process);
    return (uint32_t)(process - 100);
}

static bool is_cut_off(uint32_t own)
{
    for (uint32_t rank = 0; rank < generation_of(own)->world; rank++)
        if ((states->edges[states->procs[own].id] & (1u << states->procs[proc_at(own, rank)].id)) !=
            0)
            return true;
    return false;
}

/* Steps are few, but where something waits for one to end, or for none to. */
static bool wants_step(uint32_t own)
{
    const struct states_proc *proc = &states->procs[own];
    if (states_state(own) != GF_MEMBER_WORKS) return false;
    if (proc->steps < 2u * proc->number) return true;
    if ((gf_member_joiner_count(member_of(own)) > 0) || is_cut_off(own)) return true;
    for (uint32_t rank = 0; rank < generation_of(own)->world; rank++) {
        const struct states_proc *other = &states->procs[proc_at(own, rank)];
        if ((other->number == proc->number) &&
            (other->leaves || (other->alive && other->stopped) || (other->voted > proc->steps)))
            return true;
    }
    return false;
}

bool states_rules_want_steps(void)
{
    for (uint32_t i = 0; i < states->proc_count; i++)
        if (states->procs[i].alive && wants_step(i)) return true;
    return false;
}

/* Another process of its id lives, or was begun by a launcher that has said it was reaped. */
static bool is_replaced(uint32_t own)
{
    for (uint32_t i = 0; i < states->proc_count; i++)
        if ((i != own) && (states->procs[i].id == states->procs[own].id) &&
            (states->procs[i].alive || ((i > own) && states->procs[i].rejoins)))
            return true;
    return false;
}

/* Nobody lives that was of a generation before: the job is begun anew. */
static bool is_alone(void)
{
    for (uint32_t i = 0; i < states->proc_count; i++) {
        const struct states_proc *proc = &states->procs[i];
        if (proc->alive && (proc->number != 0) && !is_replaced(i) && !proc->stopped &&
            (states_state(i) < GF_MEMBER_GONE))
            return false;
    }
    return true;
}

static void state_begin(struct states_proc *proc, const struct gf_generation *generation,
                        uint64_t *state)
{
    bool lags =
        !proc->has_state || generation->comes_in || (proc->steps != generation->progress.steps);
    bool first = !generation->lags && !generation->comes_in && (generation->progress.steps == 0);
    if (first) proc->state = 7; /* the job begins: all have drawn the same weights */
    proc->has_state = first || !lags;
    proc->steps = generation->progress.steps;
    if (proc->has_state && (*state == 0)) *state = proc->state;
    if (proc->has_state)
        states_rule(*state == proc->state, "members that are as far have the same weights");
}

static void generation_begin(uint32_t own)
{
    struct states_proc *proc = &states->procs[own];
    const struct gf_generation *generation = generation_of(own);
    uint32_t number = generation->number % STATES_NUMBERS;
    uint64_t list = GF_FNV_START;
    bool alone = is_alone();
    if (alone) memset(states->begun, 0, sizeof states->begun);
    for (uint32_t i = 0; alone && (i < states->proc_count); i++)
        states->procs[i].is_old = (states->procs[i].number != 0) || is_replaced(i);
    states_rule(generation->number > proc->number, "the numbers of a process grow");
    uint32_t ids = 0;
    for (uint32_t rank = 0; rank < generation->world; rank++) {
        uint32_t bit = 1u << states->procs[proc_at(own, rank)].id;
        states_rule((ids & bit) == 0, "of an id one process is in a generation");
        ids |= bit;
        list = gf_fnv_word(list, proc_at(own, rank));
    }
    states_rule(proc_at(own, generation->rank) == own, "a process has its own rank");
    /* A process whose launcher has said that it was reaped, and that was stopped meanwhile, may
     * still find the GO of the job before: it is alone in that, and votes of the others are old. */
    bool is_before = proc->is_old && is_replaced(own);
    bool is_old = proc->is_old || is_replaced(own);
    uint64_t *begun = is_before ? &list : &states->begun[number].list;
    states_rule((*begun == 0) || (*begun == list), "a number has one list");
    *begun = list;
    states_rule(alone || is_old || (proc->steps <= generation->progress.steps + 1),
                "a generation loses no more than the step that was under way");
    proc->number = generation->number;
    proc->is_old = is_before;
    proc->voted = generation->progress.steps;
    proc->vote_waiting = 0;
    proc->stuck_ns = states->now_ns;
    state_begin(proc, generation, is_before ? &proc->state : &states->begun[number].state);
}

/* The lead broadcasts what is common; a vote is cast once a process has it. */
static void state_copy(uint32_t own)
{
    struct states_proc *proc = &states->procs[own];
    uint32_t at = proc_at(own, generation_of(own)->lead);
    const struct states_proc *lead = &states->procs[at];
    if (!lead->alive || (lead->number != proc->number) || !lead->has_state ||
        (lead->steps != proc->steps))
        return;
    proc->state = lead->state;
    proc->has_state = true;
}

static void ready_say(uint32_t own, bool planned)
{
    const struct states_proc *proc = &states->procs[own];
    const struct control_ready ready = {
        .planned = planned,
        .leaves = proc->leaves,
        .progress = {.steps = proc->steps, .applied = 1, .partial = proc->has_state ? 0 : 1}};
    gf_member_ready(member_of(own), &ready);
}

/* After one member has begun a later generation, in this one only that step ends for which all had
 * voted already. */
static void end_look(const struct states_proc *proc)
{
    for (uint32_t i = 0; i < states->proc_count; i++) {
        const struct states_proc *other = &states->procs[i];
        if (!other->alive || other->is_old || (other->number <= proc->number) || proc->is_old)
            continue;
        const struct gf_generation *later = generation_of(i);
        states_rule(later->comes_in || (later->number != other->number) ||
                        (proc->steps <= later->progress.steps + 1),
                    "no step but the last one ends in a generation that was left");
    }
}

static void step_go(uint32_t own)
{
    uint32_t waiting;
    struct states_proc *proc = &states->procs[own];
    struct control_report *report = gf_member_report(member_of(own));
    const struct gf_generation *generation = generation_of(own);
    report->waits_for = (generation->rank + 1) % generation->world;
    if (!proc->has_state) {
        state_copy(own);
        report->waits_for = generation->lead;
        return;
    }
    if (!wants_step(own)) {
        proc->stuck_ns = states->now_ns;
        return;
    }
    if (proc->voted == proc->steps) {
        proc->voted++;
        proc->vote_waiting = gf_member_joiner_count(member_of(own)) + (proc->leaves ? 1u : 0u);
        report->sequence++;
        proc->stuck_ns = states->now_ns;
    }
    if (!all_have_voted(own, &waiting) || is_cut_off(own)) return;
    proc->steps++;
    end_look(proc);
    proc->state = gf_fnv_word(gf_fnv_word(proc->state, proc->number), proc->steps);
    report->step = proc->steps;
    proc->stuck_ns = states->now_ns;
    if (waiting > 0) ready_say(own, true);
}

static void works(uint32_t own)
{
    struct states_proc *proc = &states->procs[own];
    struct gf_error seen = {.code = GF_ERR_TIMEOUT,
                            .peer = GF_RANK_NONE,
                            .step = proc->steps,
                            .tensor = GF_TENSOR_NONE,
                            .text = "no step ends"};
    if (generation_of(own)->number != proc->number) generation_begin(own);
    step_go(own);
    if (states_state(own) != GF_MEMBER_WORKS) return;
    const struct control_closed *closed = gf_member_closed(member_of(own));
    bool is_left = (closed != NULL) && (closed->step <= proc->steps);
    if (is_left || (states->now_ns - proc->stuck_ns > EXCHANGE_NS))
        gf_member_fault(member_of(own), &seen, false);
}

void states_program(uint32_t proc)
{
    struct gf_generation listed;
    uint64_t endpoint = 100 + proc;
    switch (states_state(proc)) {
    case GF_MEMBER_LISTED:
        if (!gf_member_list_due(member_of(proc), &listed)) return;
        gf_member_endpoint_set(member_of(proc), &endpoint, sizeof endpoint);
        break;
    case GF_MEMBER_WORKS: works(proc); break;
    case GF_MEMBER_FAILED:
        if (gf_member_is_found(member_of(proc))) ready_say(proc, false);
        break;
    default: return;
    }
    (void)gf_member_poll(member_of(proc), states->now_ns);
}

/* ---- when a job may end ---- */

bool states_steady(void)
{
    uint32_t works = 0;
    if (!states->lives || (states->coordinator->state != GF_COORDINATOR_RUN)) return false;
    for (uint32_t i = 0; i < states->proc_count; i++) {
        const struct states_proc *proc = &states->procs[i];
        if (!proc->alive || (proc->number != states->coordinator->number)) continue;
        works += (states_state(i) == GF_MEMBER_WORKS) && !proc->stopped && !proc->leaves;
    }
    return works == states->coordinator->world;
}

/* A coordinator that is begun anew goes on while no member has changed. */
void states_may_end(void)
{
    if (states->is_down || states->halted || states->limits.fixed) states->is_over = true;
}

static void down_look(void)
{
    if (!states->is_down || !states->lives) return;
    if ((states->coordinator->number != 0) && (states->coordinator->state == GF_COORDINATOR_RUN))
        states->is_down = false;
}

/* Each rank that the job begins with has a process that is not disturbed. */
static bool all_come(void)
{
    uint32_t ids = 0;
    for (uint32_t i = 0; i < states->proc_count; i++) {
        const struct states_proc *proc = &states->procs[i];
        if (proc->alive && !proc->stopped && !proc->excused &&
            (states_state(i) < GF_MEMBER_CLOSING))
            ids |= 1u << proc->id;
    }
    uint32_t all = (1u << states->limits.ids) - 1;
    return (ids & all) == all;
}

void states_rules_step(void)
{
    bool is_held = false;
    bool begun = false;
    down_look();
    for (uint32_t i = 0; i < states->proc_count; i++) {
        const struct states_proc *proc = &states->procs[i];
        begun = begun || (proc->number != 0);
        if (!proc->alive || proc->stopped || (states_state(i) >= GF_MEMBER_CLOSING)) continue;
        bool host = states->limits.hosted && (proc->id == 0);
        is_held = is_held || (proc->has_state && !proc->leaves && (!proc->excused || host) &&
                              (proc->number != 0));
    }
    /* Who waits for a word of a coordinator that is stopped for so long ends and names it. */
    bool is_mute = states->halted && (states->now_ns - states->halted_ns >= UINT64_C(4000000000));
    for (uint32_t i = 0; is_mute && (i < states->proc_count); i++)
        if (states->procs[i].alive && (states_state(i) != GF_MEMBER_WORKS))
            states->procs[i].excused = true;
    if (begun && !is_held) states->is_over = true;
    if (!begun && !all_come()) states->is_over = true;
    states_rule(states->passes < 60, "the job goes on, or ends");
}

void states_rules_end(void)
{
    for (uint32_t i = 0; i < states->proc_count; i++) {
        const struct states_proc *proc = &states->procs[i];
        if (!proc->alive) continue;
        gf_member_state state = states_state(i);
        if (state == GF_MEMBER_WORKS) continue;
        if (state == GF_MEMBER_ENDED)
            states_rule(gf_member_error(member_of(i))->text[0] != '\0', "who ends hears why");
        states_rule(states->is_over || proc->excused || proc->leaves, "nobody ends without need");
    }
}
