/* The search of states.h: depth first over all schedules that deviate from the default one so often,
 * and random walks. The default schedule takes the first of what may come next, clocks last, and no
 * fault. A deviation is a fault, or that what comes next is held: its connection, or its process,
 * until nothing else is left but that. So a slow link or a stopped process costs one. */
#include "firmware-tests/states/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 2000u
#define VISITED_BITS 24u
#define WALK_MAX 400u

#define GOES_WRONG                                                                           \
    .crashes = 3, .starts = 3, .cuts = 2, .changes = 2, .leaves = 1, .asks = 1, .views = 12, \
    .epochs = 6
const struct states_limits states_jobs[] = {
    {.ids = 3, .members = 3, .listed = true, GOES_WRONG},
    {.ids = 3, .members = 3, GOES_WRONG},
    {.ids = 3, .members = 2, .listed = true, .spare = true, GOES_WRONG},
    {.ids = 3, .members = 2, .spare = true, GOES_WRONG},
    {.ids = 4, .members = 4, .listed = true, GOES_WRONG},
    {.ids = 4, .members = 4, GOES_WRONG},
    {.ids = 4, .members = 3, .listed = true, GOES_WRONG},
    {.ids = 4, .members = 3, GOES_WRONG},
};
const uint32_t states_jobs_count = sizeof states_jobs / sizeof states_jobs[0];

/* ---- the schedule that is tried ---- */

static struct {
    struct states_limits limits;
    uint32_t count;
    struct states_choice steps[DEPTH_MAX];
} schedule;

/* ---- what is held ---- */

/* A bit for each pair of ids and direction, and for each process. */
static uint64_t source_of(const struct states_choice *choice)
{
    const struct states_conn *conn = &states->conns[choice->a % STATES_CONNS];
    uint32_t bit = 32u + choice->a;
    if ((choice->kind == STATES_DELIVER) || (choice->kind == STATES_LOSE)) {
        uint32_t pair = states_id(conn->dialler) * STATES_IDS_MAX + states_id(conn->acceptor);
        bit = 2 * pair + choice->b;
    } else if ((choice->kind == STATES_CONNECT) || (choice->kind == STATES_REFUSE)) {
        bit = 48u + choice->a;
    }
    return UINT64_C(1) << bit;
}

/* The first that is not held and no fault; where all are, none is held any more. `count` where there
 * is none. */
static uint32_t default_find(const struct states_choice *choices, uint32_t count, uint64_t *held)
{
    for (;;) {
        for (uint32_t i = 0; i < count; i++)
            if (!choices[i].is_fault && ((source_of(&choices[i]) & *held) == 0)) return i;
        if (*held == 0) return count;
        *held = 0;
    }
}

/* ---- depth first ---- */

/* States that were seen, each with how many deviations were left; of this search, or as good as
 * none. */
static struct seen {
    uint64_t hash;
    uint32_t left, search;
} * seen;
#define SEEN_MAX ((UINT64_C(7) << VISITED_BITS) / 8)
static uint64_t seen_count;
static uint32_t search_number;

static bool is_new(uint64_t hash, uint32_t left)
{
    uint64_t mask = (UINT64_C(1) << VISITED_BITS) - 1;
    uint64_t at = (hash >> 20) & mask;
    while ((seen[at].search == search_number) && (seen[at].hash != hash)) at = (at + 1) & mask;
    bool is_here = (seen[at].search == search_number);
    if (is_here && (seen[at].left >= left)) return false;
    if (!is_here) seen_count++;
    seen[at] = (struct seen){hash, left, search_number};
    return true;
}

struct node {
    uint32_t count,
        next;       /* choices; the one that is tried next; `count`: to hold what comes next */
    uint32_t first; /* by the default schedule; `count`: nothing is left to do */
    uint32_t left;  /* deviations; of STATES_ALL there are always more */
    uint64_t held;
    size_t saved_at, saved_end;
    struct states_choice choices[STATES_CHOICES];
};
static struct node nodes[DEPTH_MAX];
static unsigned char *saved;
#define SAVED_BYTES (UINT64_C(1) << 30)

/* The world as it stands. False: it was looked at before, or goes no further. */
static bool node_enter(struct node *node, size_t saved_at, uint32_t left, uint64_t held)
{
    node->count = states_choices(node->choices);
    node->first = default_find(node->choices, node->count, &held);
    node->next = 0;
    node->left = left;
    node->held = held;
    if (!is_new(states_hash() ^ (held * UINT64_C(0xD6E8FEB86659FD93)), left)) return false;
    if (states_is_far()) return false;
    if (node->first == node->count) states_rules_end();
    GF_ASSERT(saved_at + STATES_SAVED_MAX <= SAVED_BYTES);
    node->saved_at = saved_at;
    node->saved_end = saved_at + states_save(saved + saved_at);
    return true;
}

/* How many deviations it costs; false: it cannot be had. */
static bool has_cost(const struct node *node, uint32_t i, uint32_t *cost_out)
{
    bool all = (node->left == STATES_ALL);
    *cost_out = (all || (i == node->first)) ? 0 : 1;
    if (i == node->count) return !all && (node->left > 0) && (node->first < node->count);
    if (all || (i == node->first)) return true;
    return node->choices[i].is_fault && (node->left > 0);
}

static void memory_open(void)
{
    if (seen == NULL) {
        seen = calloc(UINT64_C(1) << VISITED_BITS, sizeof *seen);
        saved = malloc(SAVED_BYTES);
    }
    GF_ASSERT((seen != NULL) && (saved != NULL));
    search_number++;
    seen_count = 0;
}

struct states_found states_search(const struct states_limits *limits, uint32_t deviations,
                                  uint64_t transitions_max)
{
    struct states_found found = {.ended = true};
    uint32_t depth = 0;
    memory_open();
    states_open(limits);
    schedule.limits = *limits;
    (void)node_enter(&nodes[0], 0, deviations, 0);
    while (states->broken == NULL) {
        struct node *node = &nodes[depth];
        uint32_t i = node->next++;
        uint32_t cost;
        uint64_t held = node->held;
        if (i > node->count) {
            if (depth-- == 0) break;
            continue;
        }
        if (!has_cost(node, i, &cost)) continue;
        found.ended = (found.transitions < transitions_max) && (depth + 1 < DEPTH_MAX) &&
                      (seen_count < SEEN_MAX);
        if (!found.ended) break;
        states_restore(saved + node->saved_at);
        schedule.steps[depth] = (struct states_choice){.kind = STATES_KINDS};
        schedule.count = depth + 1;
        if (i == node->count) {
            held |= source_of(&node->choices[node->first]);
        } else {
            schedule.steps[depth] = node->choices[i];
            states_step(&node->choices[i]);
            found.transitions++;
        }
        if (states->broken != NULL) break;
        if (!node_enter(&nodes[depth + 1], node->saved_end, node->left - cost, held)) continue;
        depth++;
        if (depth > found.deepest) found.deepest = depth;
    }
    found.broken = states->broken;
    found.states = seen_count;
    return found;
}

/* ---- what all hear of costs no deadline ---- */

/* The default schedule to its end, and what may happen there; false where a clock had to go on. */
static bool goes_to_the_end(struct states_choice *choices, uint32_t *count_out, bool kept)
{
    bool at_once = true;
    for (uint32_t i = 0; i < WALK_MAX; i++) {
        uint64_t held = 0;
        if (states_is_far()) return at_once; /* the rules have no room for more */
        *count_out = states_choices(choices);
        uint32_t first = default_find(choices, *count_out, &held);
        if (first == *count_out) {
            states_rules_end();
            return at_once;
        }
        at_once = at_once && (choices[first].kind != STATES_TICK);
        if (kept) schedule.steps[schedule.count++] = choices[first];
        states_step(&choices[first]);
    }
    return false;
}

static bool is_heard_of(const struct states_choice *choice)
{
    return (choice->kind == STATES_CRASH) || (choice->kind == STATES_START) ||
           (choice->kind == STATES_LEAVE) || (choice->is_fault && (choice->kind == STATES_CHANGE));
}

/* The last one may also be a link that is cut, or a rank that asks: then clocks go on. */
static bool is_next(const struct states_choice *choice, uint32_t faults)
{
    return is_heard_of(choice) ||
           ((faults == 1) && ((choice->kind == STATES_CUT) || (choice->kind == STATES_ASK)));
}

#define PROMPT_FAULTS 4u
static unsigned char prompt_saved[PROMPT_FAULTS][STATES_SAVED_MAX];

static const char *prompt_after(uint32_t faults, bool started);

/* Each of what may happen next; `starts`: a process only. */
static const char *prompt_each(const struct states_choice *choices, uint32_t count, uint32_t faults,
                               bool starts)
{
    (void)states_save(prompt_saved[faults - 1]);
    for (uint32_t i = 0; i < count; i++) {
        if (starts ? (choices[i].kind != STATES_START) : !is_next(&choices[i], faults)) continue;
        states_restore(prompt_saved[faults - 1]);
        schedule.steps[schedule.count++] = choices[i];
        states_step(&choices[i]);
        if (prompt_after(faults - 1, choices[i].kind == STATES_START) != NULL)
            return states->broken;
        schedule.count--;
    }
    states_restore(prompt_saved[faults - 1]);
    return NULL;
}

/* Up to so many deaths, starts, departures and planned changes, each once what came before has ended;
 * a process may also be started right after another one. */
static const char *prompt_after(uint32_t faults, bool started)
{
    struct states_choice choices[STATES_CHOICES];
    uint32_t kept = schedule.count;
    uint32_t count = states_choices(choices);
    bool may_wait = (states->cuts + states->asks > 0);
    if (started && (faults > 0) && (prompt_each(choices, count, faults, true) != NULL))
        return states->broken;
    may_wait = goes_to_the_end(choices, &count, true) || may_wait;
    if (states->broken == NULL && !may_wait) states->broken = "what all hear of costs no deadline";
    if (states->broken != NULL) return states->broken;
    if ((faults > 0) && (prompt_each(choices, count, faults, false) != NULL)) return states->broken;
    schedule.count = kept;
    return NULL;
}

const char *states_prompt(const struct states_limits *limits)
{
    states_open(limits);
    schedule.limits = *limits;
    schedule.count = 0;
    return prompt_after((limits->ids == 3) ? PROMPT_FAULTS : PROMPT_FAULTS - 1, false);
}

/* ---- random walks ---- */

static uint32_t draw(uint64_t *seed, uint32_t below)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (uint32_t)((*seed >> 11) % below);
}

static struct states_limits limits_draw(uint64_t *seed)
{
    struct states_limits limits = {.ids = (uint8_t)(2 + draw(seed, 3)),
                                   .listed = draw(seed, 2) == 0,
                                   .spare = draw(seed, 2) == 0,
                                   .crashes = (uint8_t)draw(seed, 5),
                                   .starts = (uint8_t)draw(seed, 4),
                                   .cuts = (uint8_t)draw(seed, 4),
                                   .changes = (uint8_t)draw(seed, 4),
                                   .leaves = (uint8_t)(draw(seed, 4) / 2),
                                   .asks = (uint8_t)draw(seed, 3),
                                   .views = STATES_VIEWS - 1,
                                   .epochs = STATES_EPOCHS - 1};
    limits.members = (uint8_t)(1 + draw(seed, limits.ids));
    return limits;
}

/* How a walk chooses: of 256 each. */
struct habits {
    uint32_t fault, hold, release, tick;
};

static uint32_t pick(const struct states_choice *choices, uint32_t count,
                     const struct habits *habits, uint64_t *held, uint64_t *seed)
{
    uint32_t fits[STATES_CHOICES];
    uint32_t fit_count = 0;
    bool faulty = draw(seed, 256) < habits->fault;
    if (draw(seed, 256) < habits->release) *held = 0;
    uint32_t first = default_find(choices, count, held);
    if ((first < count) && (draw(seed, 256) < habits->hold)) {
        *held |= source_of(&choices[first]);
        first = default_find(choices, count, held);
    }
    if (first == count) faulty = (draw(seed, 8) > 0); /* it ends here, or something happens */
    bool ticks = (first < count) &&
                 ((choices[first].kind == STATES_TICK) || (draw(seed, 256) < habits->tick));
    for (uint32_t i = 0; i < count; i++) {
        bool is_held = !choices[i].is_fault && ((source_of(&choices[i]) & *held) != 0);
        bool is_tick = (choices[i].kind == STATES_TICK);
        if (choices[i].is_fault ? faulty : (!faulty && !is_held && (is_tick == ticks)))
            fits[fit_count++] = i;
    }
    return (fit_count == 0) ? first : fits[draw(seed, fit_count)];
}

static uint64_t walk(uint64_t seed)
{
    struct states_choice choices[STATES_CHOICES];
    const struct states_limits limits = limits_draw(&seed);
    const struct habits habits = {4u << draw(&seed, 4), 4u << draw(&seed, 5), 1u << draw(&seed, 5),
                                  1u << draw(&seed, 5)};
    uint64_t held = 0;
    states_open(&limits);
    schedule.limits = limits;
    for (schedule.count = 0; (schedule.count < WALK_MAX) && !states_is_far(); schedule.count++) {
        uint32_t count = states_choices(choices);
        uint32_t i = pick(choices, count, &habits, &held, &seed);
        if (i == count) {
            states_rules_end();
            break;
        }
        schedule.steps[schedule.count] = choices[i];
        states_step(&choices[i]);
        if (states->broken != NULL) {
            schedule.count++;
            break;
        }
    }
    return schedule.count;
}

struct states_found states_walk(uint64_t seed, uint64_t transitions_max)
{
    struct states_found found = {.ended = false};
    while ((found.transitions < transitions_max) && (found.broken == NULL)) {
        found.transitions += walk((seed + found.states) * UINT64_C(0x9E3779B97F4A7C15) + 1) + 1;
        found.broken = states->broken;
        found.states++;
    }
    return found;
}

/* ---- a schedule that is known ---- */

static const char *replay(const struct states_limits *limits, const char *const *steps, bool whole)
{
    static char missed[STATES_TEXT_BYTES + 32];
    struct states_choice choices[STATES_CHOICES];
    char text[STATES_TEXT_BYTES];
    uint32_t count;
    states_open(limits);
    for (; (*steps != NULL) && (states->broken == NULL); steps++) {
        uint32_t i = 0;
        for (count = states_choices(choices); i < count; i++) {
            states_text(&choices[i], text);
            if (strcmp(text, *steps) == 0) break;
        }
        if (i < count) {
            states_step(&choices[i]);
        } else if (whole) {
            (void)snprintf(missed, sizeof missed, "a step cannot be taken: %s", *steps);
            return missed;
        }
    }
    if (states->broken == NULL) (void)goes_to_the_end(choices, &count, false);
    return states->broken;
}

const char *states_replay(const struct states_limits *limits, const char *const *steps)
{
    return replay(limits, steps, true);
}

/* Without each step that it does not need to break this rule, or that cannot be taken. */
static uint32_t shorten(const char **steps, uint32_t count, const char *rule)
{
    for (uint32_t i = count; i-- > 0;) {
        const char *step = steps[i];
        memmove(&steps[i], &steps[i + 1], (count - i) * sizeof *steps);
        if (replay(&schedule.limits, steps, false) == rule) {
            count--;
            continue;
        }
        memmove(&steps[i + 1], &steps[i], (count - i) * sizeof *steps);
        steps[i] = step;
    }
    return count;
}

void states_found_show(void)
{
    static char texts[DEPTH_MAX][STATES_TEXT_BYTES];
    static const char *steps[DEPTH_MAX + 1];
    const struct states_limits *limits = &schedule.limits;
    uint32_t count = 0;
    states_open(limits);
    for (uint32_t i = 0; i < schedule.count; i++) {
        if (schedule.steps[i].kind == STATES_KINDS) continue; /* it was held */
        states_text(&schedule.steps[i], texts[count]);
        steps[count] = texts[count];
        states_step(&schedule.steps[i]);
        count++;
    }
    steps[count] = NULL;
    const char *rule = replay(limits, steps, false);
    if (rule != NULL)
        for (uint32_t before = count + 1; count < before;) {
            before = count;
            count = shorten(steps, count, rule);
        }
    printf("{.ids = %u, .members = %u, .listed = %d, .spare = %d}: %s\n", limits->ids,
           limits->members, limits->listed, limits->spare, states_replay(limits, steps));
    for (uint32_t i = 0; i < count; i++) printf("\"%s\", ", steps[i]);
    printf("\n");
    (void)fflush(stdout);
}
