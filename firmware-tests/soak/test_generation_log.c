/* The log of generations that the soak keeps: each of its rules can be broken, and what is valid
 * breaks none. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/generation_log.h"

static struct generation_log generations; /* it is large */

/* What happens, in this order: a process's generation and its members. */
enum { END = 0, KNOWS, DIES, GOES, STARTS };
struct happens {
    int what;
    uint32_t id;
    struct generation_seen seen;
};

static const struct row {
    const char *name, *error; /* NULL: valid */
    struct happens all[10];
} rows[] = {
    {"one_survivor_is_enough",
     NULL,
     {{KNOWS, 0, {1, 7}}, {KNOWS, 1, {1, 7}}, {KNOWS, 2, {1, 7}}, {KNOWS, 2, {2, 4}}}},
    {"a_number_may_be_left_out",
     NULL,
     {{KNOWS, 0, {1, 3}}, {KNOWS, 1, {1, 3}}, {KNOWS, 0, {4, 3}}, {KNOWS, 1, {4, 3}}}},
    {"two_lists_of_a_number",
     "which runs",
     {{KNOWS, 0, {1, 3}}, {KNOWS, 1, {1, 3}}, {KNOWS, 0, {2, 1}}, {KNOWS, 1, {2, 2}}}},
    {"the_same_where_who_began_one_is_dead",
     NULL,
     {{KNOWS, 0, {1, 3}},
      {KNOWS, 1, {1, 3}},
      {KNOWS, 0, {2, 1}},
      {DIES, 0, {0, 0}},
      {KNOWS, 1, {2, 2}}}},
    {"back_to_an_older_one", "back to", {{KNOWS, 0, {4, 7}}, {KNOWS, 0, {3, 7}}}},
    {"another_list_of_the_same_number", "changed", {{KNOWS, 0, {1, 7}}, {KNOWS, 0, {1, 3}}}},
    {"it_is_lost", "has lost", {{KNOWS, 0, {1, 7}}, {KNOWS, 0, {0, 0}}}},
    {"one_that_it_is_not_of", "is in generation 1", {{KNOWS, 0, {1, 6}}}},
    {"begun_anew_beside_those_that_live",
     "has nobody of",
     {{KNOWS, 0, {1, 3}},
      {KNOWS, 1, {1, 3}},
      {KNOWS, 0, {2, 1}},
      {STARTS, 1, {0, 0}},
      {KNOWS, 1, {3, 2}}}},
    {"the_one_that_took_it_on_has_died_and_the_other_has_left",
     NULL,
     {{KNOWS, 0, {1, 3}},
      {KNOWS, 1, {1, 3}},
      {GOES, 1, {0, 0}},
      {DIES, 0, {0, 0}},
      {KNOWS, 3, {2, 9}}}},
    {"begun_anew_beside_one_that_lives_while_another_has_left",
     "has nobody of",
     {{KNOWS, 0, {1, 3}}, {KNOWS, 1, {1, 3}}, {GOES, 1, {0, 0}}, {KNOWS, 3, {2, 8}}}},
    {"a_new_process_comes_in",
     NULL,
     {{KNOWS, 0, {1, 3}},
      {KNOWS, 1, {1, 3}},
      {DIES, 1, {0, 0}},
      {STARTS, 1, {0, 0}},
      {KNOWS, 1, {2, 3}},
      {KNOWS, 0, {2, 3}}}},
};

TEST(each_rule_can_be_broken)
{
    for (size_t i = 0; i < LENGTH(rows); i++) {
        bool holds = true;
        generation_log_open(&generations);
        for (const struct happens *at = rows[i].all; holds && (at->what != END); at++) {
            if (at->what == DIES)
                generation_log_died(&generations, at->id);
            else if (at->what == GOES)
                generation_log_gone(&generations, at->id);
            else if (at->what == STARTS)
                generation_log_started(&generations, at->id);
            else
                holds = generation_log_note(&generations, at->id, &at->seen);
        }
        if ((holds != (rows[i].error == NULL)) ||
            (!holds && (strstr(generations.error, rows[i].error) == NULL)))
            fail_msg("%s: %s", rows[i].name, generations.error);
    }
}
