/* The search of states.h. A state is a job with what may still happen in it; one that was seen with
 * as many choices left is not gone into again. The last state of a schedule goes on by default to
 * its end, where everybody must work in one generation or know why not. */
#include "firmware-tests/control/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define STATES_LEFT_MAX 7u
#define DEPTH 4000u /* of a schedule that is searched whole; another's is its deviations */

static struct states_found found;
static uint64_t most;
static struct states_choice path[DEPTH];
static uint32_t path_count;
static struct states_limits path_limits;

/* ---- states that were seen ---- */

uint32_t states_seen_bits = 23;
static uint64_t *seen; /* hash, the lowest byte: deviations left + 1 */

static void seen_clear(void)
{
    size_t bytes = sizeof *seen << states_seen_bits; /* which a program sets once */
    if (seen != NULL) (void)munmap(seen, bytes);
    seen = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (seen == MAP_FAILED) abort();
    (void)madvise(seen, bytes, MADV_HUGEPAGE); /* it is read all over */
}

/* True: it is seen with as many left; else it is noted. Where the table is full of others the
 * oldest goes. */
static bool was_seen(uint64_t hash, uint32_t left)
{
    uint64_t mask = (UINT64_C(1) << states_seen_bits) - 1;
    uint64_t key = hash & ~UINT64_C(0xff);
    uint64_t at = (hash >> 20) & mask;
    for (uint32_t i = 0; i < 16; i++) {
        uint64_t *slot = &seen[(at + i) & mask];
        if (*slot == 0) {
            *slot = key | (left + 1 > 255 ? 255 : left + 1);
            found.states++;
            return false;
        }
        if ((*slot & ~UINT64_C(0xff)) != key) continue;
        if ((*slot & 0xff) >= (left + 1 > 255 ? 255 : left + 1)) return true;
        *slot = key | (left + 1 > 255 ? 255 : left + 1);
        return false;
    }
    found.dropped++;
    seen[at] = key | (left + 1 > 255 ? 255 : left + 1);
    found.states++;
    return false;
}

/* ---- going on ---- */

static bool is_at_end(void)
{
    return (found.broken != NULL) || (found.transitions >= most);
}

static void go(const struct states_choice *choice)
{
    if (path_count < DEPTH) path[path_count] = *choice;
    path_count++;
    if (path_count > found.deepest) found.deepest = path_count;
    found.transitions++;
    states_step(choice);
    if (states->broken != NULL) found.broken = states->broken;
}

static unsigned char *saved_at(uint32_t level)
{
    static unsigned char *saved[DEPTH];
    if (saved[level] == NULL) saved[level] = malloc(states_saved_max());
    if (saved[level] == NULL) abort();
    return saved[level];
}

/* Of members that nothing was done to yet, and of ids: the lowest and the highest stand for those
 * in between, which nothing tells apart but the order. */
static bool is_like_another(const struct states_choice *choice)
{
    bool of_proc = (choice->act >= STATES_KILL) && (choice->act != STATES_START) &&
                   (choice->act != STATES_CRASH) && (choice->act != STATES_EDGE);
    if (!of_proc || (states->limits.ids < 4)) return false;
    return (choice->of == 1); /* 2 stands for it */
}

/* The first choice beside the default ones is of part n, counted through: each part is searched by
 * itself, with all that may follow. A state of the default schedule is noted as seen though a part
 * goes on from it with its own choices alone: the other parts do with theirs. */
static uint32_t part, part_count = 1;
static uint64_t firsts;

static void explore(uint32_t left, uint32_t level);

static void alternatives(const struct states_choice *choices, uint32_t count, uint32_t left,
                         uint32_t level)
{
    unsigned char *saved = saved_at(level);
    uint32_t kept = path_count;
    if ((left == 0) || (count < 2) || (level + 1 >= DEPTH)) return;
    (void)states_save(saved);
    for (uint32_t i = 1; (i < count) && !is_at_end(); i++) {
        if (is_like_another(&choices[i])) continue;
        if ((level == 0) && (firsts++ % part_count != part)) continue;
        go(&choices[i]);
        if (!is_at_end()) explore((left == STATES_ALL) ? left : left - 1, level + 1);
        if (found.broken != NULL) return; /* the path shows it */
        path_count = kept;
        states_restore(saved);
    }
}

static uint64_t went[STATES_LEFT_MAX + 1][DEPTH]; /* where explore() is, by what is left */

/* By default alone it comes back to where it was: nobody does anything any more. */
static bool goes_round(uint64_t hash, uint32_t left, uint32_t count)
{
    for (uint32_t i = 0; (left <= STATES_LEFT_MAX) && (i < count); i++)
        if (went[left][i] == hash) return true;
    return false;
}

static void explore(uint32_t left, uint32_t level)
{
    struct states_choice choices[STATES_CHOICES];
    for (uint32_t gone = 0; !is_at_end(); gone++) {
        if (states_is_far()) found.broken = "the numbers of generations do not run away";
        if (is_at_end()) return;
        uint64_t hash = states_hash(left);
        if (was_seen(hash, left)) {
            if (goes_round(hash, left, gone)) found.broken = "the job goes on, or ends";
            return;
        }
        if ((left <= STATES_LEFT_MAX) && (gone < DEPTH)) went[left][gone] = hash;
        uint32_t count = states_choices(choices);
        if (count == 0) {
            states_rules_end();
            if (states->broken != NULL) found.broken = states->broken;
            /* what happens to a job that has nothing more to do matters, too */
            return;
        }
        alternatives(choices, count, left, level);
        if (is_at_end()) return;
        go(&choices[0]);
    }
}

static void begin(const struct states_limits *limits, uint64_t transitions_max)
{
    found = (struct states_found){0};
    most = transitions_max;
    path_count = 0;
    path_limits = *limits;
    states_open(limits);
}

static struct states_found search(const struct states_limits *limits, uint32_t deviations,
                                  uint64_t transitions_max)
{
    firsts = 0;
    seen_clear();
    begin(limits, transitions_max);
    explore(deviations, 0);
    found.ended = (found.broken == NULL) && (found.transitions < most);
    return found;
}

struct states_found states_search(const struct states_limits *limits, uint32_t deviations,
                                  uint64_t transitions_max)
{
    part = 0;
    part_count = 1;
    return search(limits, deviations, transitions_max);
}

struct states_found states_search_part(const struct states_job *job, uint32_t of, uint32_t count)
{
    part = of;
    part_count = count;
    return search(&job->limits, job->deviations, UINT64_MAX);
}

/* ---- what is searched ---- */

const struct states_job states_jobs[] = {
    {"2 members, 2 deviations", {.ids = 2, .id_count = 2, STATES_ANY}, 2, true},
    {"2 members, one hosts, 2 deviations",
     {.ids = 2, .id_count = 2, .hosted = true, STATES_ANY},
     2,
     true},
    {"3 members of a job that is not elastic, 1 deviation",
     {.ids = 3, .id_count = 3, .fixed = true, STATES_ANY},
     1,
     true},
    {"4 members, 1 deviation", {.ids = 4, .id_count = 4, STATES_ANY}, 1, true},
    {"2 members, 1 crash, 1 death, 1 cut, whole",
     {.ids = 2, .id_count = 2, .crashes = 1, .kills = 1, .cuts = 1},
     STATES_ALL,
     true},
    {"2 members of 3 ids, 2 deviations", {.ids = 2, .id_count = 3, STATES_ANY}, 2, false},
    {"3 members, 2 deviations", {.ids = 3, .id_count = 3, STATES_ANY}, 2, false},
    {"4 members, 2 deviations", {.ids = 4, .id_count = 4, STATES_ANY}, 2, false},
    {"2 members, 1 crash, 1 death, 1 start, whole",
     {.ids = 2, .id_count = 2, .crashes = 1, .kills = 1, .starts = 1},
     STATES_ALL,
     false},
    {"2 members, 3 deviations", {.ids = 2, .id_count = 2, STATES_ANY}, 3, false},
    {"4 members, 3 deviations",
     {.ids = 4,
      .id_count = 4,
      .kills = 3,
      .starts = 2,
      .cuts = 3,
      .halves = 3,
      .stops = 2,
      .crashes = 1,
      .lates = 3},
     3,
     false},
    {"3 members, 3 deviations", {.ids = 3, .id_count = 3, STATES_ANY}, 3, false},
};
const uint32_t states_jobs_count = sizeof states_jobs / sizeof states_jobs[0];

/* ---- random schedules ---- */

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33) % below;
}

static struct states_limits limits_draw(void)
{
    struct states_limits limits = {.ids = (uint8_t)(2 + draw(3)), .hosted = (draw(5) == 0)};
    uint8_t *left[] = {&limits.kills, &limits.starts,  &limits.cuts,  &limits.halves,
                       &limits.stops, &limits.crashes, &limits.asks,  &limits.leaves,
                       &limits.halts, &limits.byes,    &limits.edges, &limits.gives_up,
                       &limits.lates};
    limits.id_count = (uint8_t)((draw(3) == 0) ? 4 : limits.ids);
    for (uint32_t i = 0; i < sizeof left / sizeof left[0]; i++)
        *left[i] = (uint8_t)((draw(2) == 0) ? draw(3) : 0);
    limits.starts = (uint8_t)(1 + draw(2));
    return limits;
}

static void walk(void)
{
    struct states_choice choices[STATES_CHOICES];
    const struct states_limits limits = limits_draw();
    path_count = 0;
    path_limits = limits;
    states_open(&limits);
    for (uint32_t i = 0; (i < 600) && !is_at_end() && !states_is_far(); i++) {
        uint32_t count = states_choices(choices);
        if (count == 0) {
            states_rules_end();
            if (states->broken != NULL) found.broken = states->broken;
            return;
        }
        bool deviates = (i < 120) && (draw(6) == 0);
        go(&choices[deviates ? draw(count) : 0]);
    }
}

struct states_found states_walk(uint64_t seed, uint64_t transitions_max)
{
    found = (struct states_found){0};
    most = transitions_max;
    for (; !is_at_end(); found.states++) {
        random_state = (seed + found.states) * UINT64_C(0x9e3779b97f4a7c15) + 1;
        walk();
    }
    return found;
}

/* ---- a schedule ---- */

void states_found_show(void)
{
    static char texts[DEPTH][STATES_TEXT_BYTES];
    uint32_t count = (path_count < DEPTH) ? path_count : DEPTH;
    states_logs = (getenv("GF_TEST_LOG") != NULL);
    states_open(&path_limits);
    for (uint32_t i = 0; i < count; i++) {
        states_text(&path[i], texts[i]);
        if (states_logs) printf("%s\n", texts[i]);
        states_step(&path[i]);
    }
    states_logs = false;
    const struct states_limits *l = &path_limits;
    printf("{.ids = %u, .id_count = %u, .hosted = %d, .kills = %u, .starts = %u, .cuts = %u, "
           ".halves = %u, .stops = %u, .halts = %u, .crashes = %u, .asks = %u, .leaves = %u, .byes "
           "= %u, "
           ".edges = %u, .gives_up = %u, .lates = %u}\n",
           l->ids, l->id_count, l->hosted, l->kills, l->starts, l->cuts, l->halves, l->stops,
           l->halts, l->crashes, l->asks, l->leaves, l->byes, l->edges, l->gives_up, l->lates);
    for (uint32_t i = 0; (i < path_count) && (i < DEPTH); i++)
        printf("\"%s\",%s", texts[i], (i % 6 == 5) ? "\n" : " ");
    printf("\n");
    for (uint32_t i = 0; i < states->proc_count; i++)
        if (states->procs[i].alive)
            printf("process %u of id %u: state %d, generation %u, step %llu: %s\n", i,
                   states->procs[i].id, (int)states_state(i), states->procs[i].number,
                   (unsigned long long)states->procs[i].steps,
                   gf_member_error(states_member(i))->text);
}

const char *states_replay(const struct states_limits *limits, const char *const *schedule)
{
    static char missing[80];
    struct states_choice choices[STATES_CHOICES];
    char text[STATES_TEXT_BYTES];
    begin(limits, UINT64_MAX);
    for (; *schedule != NULL; schedule++) {
        uint32_t count = states_choices(choices);
        uint32_t i = 0;
        for (; i < count; i++) {
            states_text(&choices[i], text);
            if (strcmp(text, *schedule) == 0) break;
        }
        if (i == count) {
            (void)snprintf(missing, sizeof missing, "a step cannot be taken: %s", *schedule);
            return missing;
        }
        go(&choices[i]);
        if (found.broken != NULL) return found.broken;
    }
    while (!is_at_end() && (states_choices(choices) > 0)) go(&choices[0]);
    if (found.broken == NULL) states_rules_end();
    return (found.broken != NULL) ? found.broken : states->broken;
}
