/* The search of states.h, as far as it goes in seconds: a fixed number of transitions, and each schedule
 * that ever broke a rule. More: make check-states. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/states/states.h"

/* ---- a world is saved and restored whole ---- */

#define CONTINUATIONS 10000u
#define STEPS 24u

static unsigned char world[STATES_SAVED_MAX], end[STATES_SAVED_MAX];

/* Goes on at random; of all bits of the world then. */
static uint64_t goes_on(uint64_t seed)
{
    struct states_choice choices[STATES_CHOICES];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    states_restore(world);
    for (uint32_t i = 0; i < STEPS; i++) {
        uint32_t count = states_choices(choices);
        if ((count == 0) || states_is_far()) break;
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        states_step(&choices[(seed >> 33) % count]);
    }
    size_t bytes = states_save(end);
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        uint64_t word;
        memcpy(&word, end + at, sizeof word);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
    }
    return hash;
}

TEST(a_world_that_is_restored_goes_on_bit_by_bit)
{
    static uint64_t ends[CONTINUATIONS];
    const struct states_limits limits = {.ids = 4,
                                         .members = 3,
                                         .listed = true,
                                         .crashes = 3,
                                         .starts = 3,
                                         .cuts = 3,
                                         .changes = 3,
                                         .leaves = 1,
                                         .views = 12,
                                         .epochs = 6};
    states_open(&limits);
    (void)states_save(world);
    (void)goes_on(7);
    (void)states_save(world); /* something is under way in it */
    for (uint32_t i = 0; i < CONTINUATIONS; i++) ends[i] = goes_on(i);
    for (uint32_t i = CONTINUATIONS; i-- > 0;) assert_true(goes_on(i) == ends[i]);
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

TEST(what_all_hear_of_costs_no_deadline)
{
    for (uint32_t i = 0; i < states_jobs_count; i++) {
        struct states_found found = {.broken = states_prompt(&states_jobs[i])};
        expect_none(&found, "deaths, starts, departures");
    }
}

TEST(no_schedule_of_two_deviations_breaks_a_rule)
{
    for (uint32_t i = 0; i < states_jobs_count; i++) {
        struct states_found found = states_search(&states_jobs[i], 2, UINT64_MAX);
        expect_none(&found, "two deviations");
        assert_true(found.ended);
    }
}

TEST(no_random_schedule_breaks_a_rule)
{
    struct states_found found = states_walk(1, 1000000);
    expect_none(&found, "walks");
}

/* ---- what was found ---- */

#define ANY                                                                                  \
    .crashes = 9, .starts = 9, .cuts = 9, .changes = 9, .leaves = 9, .asks = 9, .views = 31, \
    .epochs = 8

static const struct {
    const char *name;
    struct states_limits limits;
    const char *steps[113];
} rows[] = {
    /* 2 hears of epoch 2 from 3, and leads view 7 there; 1b had answered it in view 7 of epoch 1 */
    {"an answer to a view of the epoch before counts in none of this",
     {.ids = 4, .members = 4, .listed = true, ANY},
     {"change 0a",     "change 1a",     "change 2a",     "change 3a",     "deliver 1a>0a",
      "deliver 2a>0a", "deliver 3a>0a", "deliver 0a>1a", "deliver 0a>2a", "deliver 0a>3a",
      "deliver 1a>0a", "deliver 2a>0a", "deliver 3a>0a", "deliver 0a>1a", "deliver 0a>3a",
      "deliver 1a>0a", "deliver 3a>0a", "deliver 0a>3a", "crash 0a",      "crash 1a",
      "lose 0a>2a",    "refuse 2a",     "start 1b",      "connect 1b>2a", "deliver 1b>2a",
      "deliver 2a>1b", "deliver 1b>2a", "tell 2a>0",     "deliver 2a>1b", "deliver 1b>2a",
      "deliver 0a>3a", "refuse 3a",     "tick 3a",       "tick 3a",       "connect 3a>2a",
      "deliver 3a>2a", "deliver 2a>3a", "deliver 3a>2a", "deliver 2a>3a", "deliver 3a>2a"}},
    /* 2 had been left out of epoch 1 and waited at 0, which then heard that epoch 3 has taken it in; it
     * comes to the address that it knows, and nobody else can tell it */
    {"a process that is of the epoch that begins may come and not know it",
     {.ids = 4, .members = 3, .listed = true, .spare = true, ANY},
     {"change 2a",     "start 3a",      "tick 2a",       "tick 2a",       "tick 2a",
      "tick 2a",       "deliver 2a>0a", "connect 3a>0a", "deliver 2a>0a", "deliver 0a>3a",
      "deliver 3a>0a", "deliver 3a>0a", "tick 2a",       "tick 2a",       "deliver 0a>1a",
      "deliver 1a>0a", "deliver 0a>1a", "deliver 1a>0a", "deliver 0a>1a", "deliver 1a>0a",
      "deliver 0a>3a", "deliver 3a>0a", "deliver 0a>1a", "deliver 3a>0a", "deliver 1a>0a",
      "deliver 1a>0a", "deliver 0a>1a", "deliver 0a>1a", "deliver 0a>3a", "deliver 0a>3a",
      "tick 2a",       "tick 2a",       "tick 2a",       "tick 2a",       "tick 2a",
      "connect 2a>0a", "deliver 2a>0a", "deliver 0a>2a", "deliver 2a>0a", "deliver 0a>2a",
      "deliver 2a>0a", "change 0a",     "deliver 0a>2a", "change 3a",     "change 1a",
      "deliver 1a>0a", "deliver 3a>0a", "deliver 0a>3a", "deliver 3a>0a", "tick 1a",
      "deliver 1a>0a", "deliver 0a>3a", "tick 0a",       "deliver 0a>3a", "tick 3a",
      "connect 3a>1a", "deliver 1a>3a", "deliver 3a>1a", "deliver 3a>1a", "deliver 1a>3a",
      "deliver 3a>1a", "lose 3a>0a",    "tick 0a",       "connect 0a>1a", "deliver 0a>1a",
      "deliver 1a>0a", "deliver 0a>1a", "deliver 1a>0a", "deliver 0a>1a", "deliver 1a>0a",
      "deliver 0a>1a", "deliver 1a>0a", "tick 0a",       "deliver 1a>3a", "deliver 1a>3a",
      "tick 0a",       "tick 0a",       "tick 0a",       "deliver 0a>2a", "tick 0a",
      "deliver 0a>2a", "tick 2a",       "tick 2a",       "tick 2a",       "tick 2a",
      "tick 2a",       "tick 3a",       "tick 3a",       "tick 3a",       "tick 2a",
      "tick 2a",       "tick 3a",       "tick 3a",       "tick 3a",       "tick 3a",
      "tick 3a",       "tick 3a",       "tick 3a",       "tick 3a",       "tick 3a",
      "connect 0a>3a", "deliver 0a>3a", "deliver 3a>0a", "deliver 0a>3a", "deliver 3a>0a",
      "deliver 0a>3a", "deliver 3a>0a", "deliver 0a>3a", "deliver 3a>0a", "connect 3a>0a"}},
    /* 2 is cut, loses its connection, and 1 is dead: 0 is too few without what 2 promised */
    {"a rank that is cut goes for its answer once more where its connection was lost",
     {.ids = 3, .members = 3, ANY},
     {"ask 2a", "deliver 2a>0a", "deliver 0a>1a", "deliver 1a>0a", "deliver 0a>2a", "deliver 2a>0a",
      "cut 2a>0a", "crash 1a"}},
    /* 3 was connected to 2 as it began to look for anybody, and had heard of no coordinator */
    {"a process that looks for anybody knows that its connections are closed",
     {.ids = 4, .members = 4, .listed = true, .spare = true, ANY},
     {"leave 0a", "change 1a", "deliver 1a>0a", "deliver 0a>1a", "deliver 1a>0a", "change 3a",
      "deliver 3a>0a", "tick 0a", "deliver 0a>3a", "deliver 3a>0a", "tick 3a", "crash 1a"}},
    /* 1a commits what 0 had proposed: that takes in 1b, which was started while 1a lives */
    {"who leads commits a proposal that takes in another process of its id, and is not of it",
     {.ids = 3, .members = 3, ANY},
     {"start 1b",      "cut 1a>0a",     "deliver 1a>0a", "connect 1b>0a", "deliver 0a>1a",
      "deliver 1b>0a", "deliver 0a>2a", "deliver 0a>1b", "deliver 1b>0a", "deliver 2a>0a",
      "deliver 0a>2a", "deliver 2a>0a", "deliver 0a>2a", "tick 2a",       "tick 2a",
      "tick 2a",       "tick 2a",       "tick 2a",       "tick 1a",       "tick 2a",
      "tick 1a",       "tick 2a",       "tick 2a",       "connect 2a>1a", "deliver 1a>2a",
      "deliver 2a>1a", "deliver 2a>1a", "deliver 1a>2a", "deliver 2a>1a", "deliver 1a>2a",
      "deliver 2a>1a"}},
    /* 0a, 1a and 3a go on without 2a, and then all but 1a have ended, which their epoch 4 had left out.
     * 2a goes on from epoch 1 with new processes: 1a comes into their epoch 3, and its own was another
     * one */
    {"a process that was left out does not say who has ended by the number of an epoch",
     {.ids = 4, .members = 4, .listed = true, ANY},
     {"cut 2a>0a",     "deliver 2a>0a", "deliver 0a>3a", "deliver 3a>0a", "deliver 0a>1a",
      "deliver 0a>2a", "deliver 0a>3a", "deliver 3a>0a", "deliver 1a>0a", "deliver 0a>1a",
      "deliver 1a>0a", "deliver 0a>1a", "deliver 1a>0a", "deliver 0a>3a", "deliver 3a>0a",
      "deliver 0a>1a", "deliver 1a>0a", "deliver 1a>0a", "deliver 0a>3a", "deliver 3a>0a",
      "tick 0a",       "deliver 0a>3a", "deliver 0a>1a", "deliver 1a>0a", "deliver 0a>1a",
      "deliver 1a>0a", "deliver 0a>1a", "deliver 1a>0a", "deliver 0a>1a", "deliver 0a>3a",
      "deliver 1a>0a", "deliver 1a>0a", "tick 1a",       "deliver 1a>0a", "connect 2a>1a",
      "deliver 1a>2a", "deliver 0a>3a", "tick 1a",       "deliver 1a>2a", "deliver 1a>0a",
      "deliver 3a>0a", "deliver 3a>0a", "deliver 0a>3a", "deliver 3a>0a", "change 0a",
      "deliver 0a>3a", "deliver 3a>0a", "deliver 0a>3a", "deliver 3a>0a", "deliver 3a>0a",
      "leave 0a",      "connect 1a>0a", "deliver 0a>1a", "deliver 1a>0a", "deliver 1a>0a",
      "deliver 0a>1a", "tick 3a",       "deliver 3a>0a", "deliver 3a>0a", "tell 2a>0",
      "tell 3a>0",     "deliver 0a>1a", "deliver 0a>1a", "tick 3a",       "start 3b",
      "connect 1a>2a", "deliver 1a>2a", "connect 3b>2a", "deliver 2a>1a", "deliver 3b>2a",
      "deliver 1a>2a", "deliver 2a>3b", "deliver 3b>2a", "deliver 2a>3b", "deliver 3b>2a",
      "start 0b",      "connect 0b>2a", "deliver 2a>0b", "deliver 2a>1a", "deliver 0b>2a",
      "deliver 0b>2a", "deliver 1a>2a", "deliver 2a>0b", "deliver 0b>2a", "deliver 0b>2a",
      "deliver 2a>0b", "change 2a",     "deliver 2a>0b", "ask 0b",        "deliver 0b>2a",
      "deliver 2a>0b", "deliver 2a>3b", "deliver 0b>2a", "deliver 2a>0b", "deliver 0b>2a",
      "deliver 2a>0b", "deliver 0b>2a", "deliver 2a>3b", "tick 3b",       "deliver 2a>0b",
      "deliver 0b>2a", "deliver 0b>2a", "tick 2a",       "deliver 2a>0b", "deliver 0b>2a",
      "tick 3b",       "tick 0b",       "connect 3b>0b", "deliver 0b>2a", "tick 3b",
      "tick 2a",       "lose 2a>1a"}},
};

TEST(schedules_that_broke_a_rule_break_none)
{
    for (size_t i = 0; i < LENGTH(rows); i++) {
        const char *broken = states_replay(&rows[i].limits, rows[i].steps);
        if (broken != NULL) fail_msg("%s: %s", rows[i].name, broken);
    }
}

/* 1 says nothing when 0 asks, and hears of that: it is of the epoch after the one without it. */
TEST(who_was_silent_comes_in_again)
{
    static const char *const steps[] = {"ask 0a", "tick 0a", NULL};
    const struct states_limits limits = {.ids = 2, .members = 2, .listed = true, ANY};
    assert_null(states_replay(&limits, steps));
    assert_int_equal(states->procs[STATES_LIVES].state, STATES_MEMBER);
    assert_int_equal(states->procs[STATES_LIVES].epoch, 3);
}

TEST(a_kept_schedule_with_a_step_that_cannot_be_taken_fails)
{
    static const char *const steps[] = {"crash 1a", "deliver 1a>0a", "deliver 1a>0a", NULL};
    const struct states_limits limits = {.ids = 2, .members = 2, ANY};
    assert_string_equal(states_replay(&limits, steps), "a step cannot be taken: deliver 1a>0a");
}

/* Rank 0 of 2 dies and is started again at once, but needs longer than rank 1 waits for silent ones. */
TEST(a_process_that_the_list_does_not_name_is_awaited)
{
    static const char *const steps[] = {"crash 0a", "start 0b", "deliver 0a>1a", "tick 1a", NULL};
    const struct states_limits limits = {.ids = 2, .members = 2, .listed = true, ANY};
    assert_null(states_replay(&limits, steps));
    assert_int_equal(states->procs[1].state, STATES_MEMBER);
    assert_int_equal(states->procs[STATES_LIVES].state, STATES_MEMBER);
}
