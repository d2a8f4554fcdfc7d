/* The search of states.h, as far as it goes in seconds, and each schedule that ever broke a rule.
 * More: make check-states.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/control/states.h"

#define CONTINUATIONS 2000u
#define STEPS 30u

static void *world_saved, *end_saved;

/* Goes on at random; of all bits of the world then. */
static uint64_t goes_on(uint64_t seed)
{
    struct states_choice choices[STATES_CHOICES];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    states_restore(world_saved);
    for (uint32_t i = 0; i < STEPS; i++) {
        uint32_t count = states_choices(choices);
        if ((count == 0) || states_is_far()) break;
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        states_step(&choices[(seed >> 33) % count]);
    }
    size_t bytes = states_save(end_saved);
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        uint64_t word;
        memcpy(&word, (const unsigned char *)end_saved + at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
    }
    return hash;
}

TEST(a_world_that_is_restored_goes_on_bit_by_bit)
{
    static uint64_t ends[CONTINUATIONS];
    const struct states_limits limits = {.ids = 3, .id_count = 4, STATES_ANY};
    world_saved = malloc(states_saved_max());
    end_saved = malloc(states_saved_max());
    assert_true((world_saved != NULL) && (end_saved != NULL));
    states_open(&limits);
    (void)states_save(world_saved);
    (void)goes_on(7);
    (void)states_save(world_saved); /* something is under way in it */
    for (uint32_t i = 0; i < CONTINUATIONS; i++) ends[i] = goes_on(i);
    for (uint32_t i = CONTINUATIONS; i-- > 0;) assert_true(goes_on(i) == ends[i]);
    free(world_saved);
    free(end_saved);
}

/* ---- the search ---- */

static void expect_none(const struct states_found *found, const char *what)
{
    print_message("%s: %llu transitions, %llu states\n", what,
                  (unsigned long long)found->transitions, (unsigned long long)found->states);
    if (found->broken == NULL) return;
    states_found_show();
    fail_msg("%s: %s", what, found->broken);
}

TEST(no_schedule_of_the_quick_jobs_breaks_a_rule)
{
    for (uint32_t i = 0; i < states_jobs_count; i++) {
        const struct states_job *job = &states_jobs[i];
        if (!job->is_quick) continue;
        struct states_found found = states_search(&job->limits, job->deviations, UINT64_MAX);
        expect_none(&found, job->name);
        assert_true(found.ended);
    }
}

TEST(no_random_schedule_breaks_a_rule)
{
    struct states_found found = states_walk(1, 500000);
    expect_none(&found, "random schedules");
}

/* ---- what was found ---- */

static const struct {
    const char *name;
    struct states_limits limits;
    const char *steps[60];
} rows[] = {
    /* 0's connection is half-open twice, a second each, while it waits for the first generation */
    {"silence counts while a member is connected",
     {.ids = 2, .id_count = 2, STATES_ANY},
     {"pass 0 0", "deliver 0>c", "deliver 1>c", "deliver 0<c", "half 0 0", "deliver 1<c",
      "deliver 0>c", "deliver 1>c", "pass 0 0", "deliver 0<c", "deliver 1<c", "pass 0 0",
      "deliver 0>c", "deliver 1<c", "deliver 0>c", "half 0 0"}},
    /* 0's connection breaks without a word just before it is asked */
    {"who does not answer is left out, and comes in again",
     {.ids = 2, .id_count = 2, STATES_ANY},
     {"pass 0 0", "deliver 0>c", "deliver 1>c", "deliver 0<c", "deliver 1<c", "deliver 0>c",
      "half 0 1", "deliver 1>c", "deliver 0<c", "deliver 1<c", "ask 1 0"}},
    /* 1 is on the list before, and is still told of it as the next one is made without it */
    {"an old list is told no more",
     {.ids = 2, .id_count = 2, STATES_ANY},
     {"pass 0 0",    "deliver 0>c", "deliver 1>c", "deliver 0<c", "deliver 1<c", "deliver 0>c",
      "deliver 1>c", "half 1 0",    "deliver 0<c", "ask 0 0",     "deliver 1>c", "deliver 0<c",
      "deliver 0>c", "deliver 0<c", "deliver 0>c", "pass 0 0",    "deliver 1<c", "deliver 0<c",
      "pass 0 0",    "deliver 1>c", "deliver 0<c", "deliver 1>c", "deliver 1<c", "deliver 0>c",
      "deliver 1<c", "deliver 1>c", "half 1 1"}},
    /* 1 closes before the coordinator begun anew has taken over, and 0 hears CLOSED after that */
    {"who closed before a takeover is told after it",
     {.ids = 2, .id_count = 2, STATES_ANY},
     {"pass 0 0",    "deliver 0>c",  "deliver 1>c", "deliver 0<c", "deliver 1<c", "deliver 0>c",
      "deliver 1<c", "deliver 1>c",  "crash 0 0",   "deliver 0<c", "stop 0 0",    "deliver 1<c",
      "deliver 1<c", "deliver 1<c",  "pass 0 0",    "bye 1 0",     "begin 0 0",   "pass 0 0",
      "deliver 1>c", "deliver 1>c",  "deliver 1<c", "pass 0 0",    "deliver 1<c", "pass 0 0",
      "deliver 1<c", "pass 0 0",     "deliver 1<c", "pass 0 0",    "deliver 1<c", "pass 0 0",
      "deliver 1<c", "continue 0 0", "deliver 0<c", "deliver 0<c", "pass 0 0",    "deliver 0>c"}},
    /* 0 closes while there is no coordinator, and loses the one begun anew between its offer and
     * its BYE */
    {"an offer that says BYE counts as BYE",
     {.ids = 2, .id_count = 2, STATES_ANY},
     {"pass 0 0",    "deliver 0>c", "deliver 1>c", "deliver 0<c", "deliver 1<c", "deliver 0>c",
      "deliver 1<c", "deliver 1>c", "deliver 0<c", "deliver 1<c", "crash 0 0",   "deliver 0<c",
      "deliver 1<c", "deliver 0<c", "deliver 1<c", "pass 0 0",    "bye 0 0",     "begin 0 0",
      "pass 0 0",    "deliver 1>c", "deliver 0>c", "cut 0 0"}},
    /* 0 hosts and has closed, and 1, the one member of the generation after that, gives up while 3
     * waits */
    {"who waits hears that nobody is left",
     {.ids = 2, .id_count = 4, .hosted = true, .starts = 2, .halves = 1, .byes = 1, .gives_up = 2},
     {"pass 0 0",    "deliver 0>c", "deliver 1>c", "deliver 0<c", "deliver 1<c", "deliver 0>c",
      "deliver 1<c", "start 3 0",   "deliver 1>c", "deliver 0<c", "bye 0 0",     "deliver 1<c",
      "deliver 0<c", "deliver 0>c", "deliver 1<c", "deliver 1>c", "deliver 0<c", "deliver 0<c",
      "deliver 1<c", "deliver 0>c", "deliver 1>c", "deliver 1<c", "deliver 1>c", "deliver 1<c",
      "deliver 1>c", "deliver 1<c", "deliver 1<c", "pass 0 0",    "deliver 1>c", "half 0 0",
      "deliver 2>c", "deliver 0>c", "deliver 1<c", "deliver 2<c", "give up 1 0", "deliver 1>c",
      "deliver 1>c", "deliver 1<c", "deliver 2<c", "deliver 1>c", "deliver 2>c"}},
};

TEST(schedules_that_broke_a_rule_break_none)
{
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const char *broken = states_replay(&rows[i].limits, rows[i].steps);
        if (broken != NULL) fail_msg("%s: %s", rows[i].name, broken);
    }
}

TEST(a_kept_schedule_with_a_step_that_cannot_be_taken_fails)
{
    static const char *const steps[] = {"kill 1 0", "kill 1 0", NULL};
    const struct states_limits limits = {.ids = 2, .id_count = 2, STATES_ANY};
    assert_string_equal(states_replay(&limits, steps), "a step cannot be taken: kill 1 0");
}
