/* The log of commits that the soak keeps: each of its rules can be broken, and what is valid breaks
 * none. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/commit_log.h"

#define ALL 0x1fu
#define IDS 5u

static struct commit_log commits; /* it is large */

/* What happens, in this order: a process's epoch and members, and what it has accepted. */
enum { END = 0, KNOWS, DIES, STARTS };
struct happens {
    int what;
    uint32_t id;
    struct commit_seen seen;
};

static const struct row {
    const char *name, *error; /* NULL: valid */
    struct happens all[16];
} rows[] = {
    {"more_than_half_is_a_quorum",
     NULL,
     {{KNOWS, 0, {1, ALL, 0x07}},
      {KNOWS, 1, {1, ALL, 0x07}},
      {KNOWS, 2, {1, ALL, 0x07}},
      {KNOWS, 0, {2, 0x07, 0}},
      {KNOWS, 1, {2, 0x07, 0}}}},
    {"two_of_five_are_none",
     "no quorum",
     {{KNOWS, 0, {1, ALL, 0x03}},
      {KNOWS, 1, {1, ALL, 0x03}},
      {KNOWS, 2, {1, ALL, 0}},
      {KNOWS, 0, {2, 0x03, 0}}}},
    {"a_list_of_three_that_two_accepted",
     "no quorum",
     {{KNOWS, 0, {1, ALL, 0x07}},
      {KNOWS, 1, {1, ALL, 0x07}},
      {KNOWS, 2, {1, ALL, 0}},
      {KNOWS, 0, {2, 0x07, 0}}}},
    {"nor_if_a_third_accepted_another",
     "no quorum",
     {{KNOWS, 0, {1, ALL, 0x07}},
      {KNOWS, 1, {1, ALL, 0x07}},
      {KNOWS, 2, {1, ALL, 0x0f}},
      {KNOWS, 0, {2, 0x07, 0}}}},
    {"half_with_the_lowest_is_a_quorum",
     NULL,
     {{KNOWS, 0, {1, 0x0f, 0x05}},
      {KNOWS, 1, {1, 0x0f, 0}},
      {KNOWS, 2, {1, 0x0f, 0x05}},
      {KNOWS, 0, {2, 0x05, 0}}}},
    {"half_without_it_is_none",
     "no quorum",
     {{KNOWS, 0, {1, 0x0f, 0}},
      {KNOWS, 1, {1, 0x0f, 0x06}},
      {KNOWS, 2, {1, 0x0f, 0x06}},
      {KNOWS, 1, {2, 0x06, 0}}}},
    {"one_is_left_of_all",
     NULL,
     {{KNOWS, 0, {1, 0x03, 0}},
      {KNOWS, 1, {1, 0x03, 0x02}},
      {DIES, 0, {0, 0, 0}},
      {KNOWS, 1, {2, 0x02, 0}}}},
    {"one_is_left_and_takes_in_who_waits",
     NULL,
     {{KNOWS, 0, {1, 0x03, 0}},
      {KNOWS, 1, {1, 0x03, 0x03}},
      {DIES, 0, {0, 0, 0}},
      {STARTS, 0, {0, 0, 0}},
      {KNOWS, 1, {2, 0x03, 0}},
      {KNOWS, 0, {2, 0x03, 0}}}},
    {"one_is_not_left_while_another_runs",
     "no quorum",
     {{KNOWS, 0, {1, 0x07, 0}},
      {KNOWS, 1, {1, 0x07, 0x02}},
      {KNOWS, 2, {1, 0x07, 0}},
      {DIES, 0, {0, 0, 0}},
      {KNOWS, 1, {2, 0x02, 0}}}},
    {"two_lists_of_a_number",
     "which runs",
     {{KNOWS, 0, {1, 0x07, 0x03}},
      {KNOWS, 1, {1, 0x07, 0x03}},
      {KNOWS, 2, {1, 0x07, 0}},
      {KNOWS, 0, {2, 0x03, 0}},
      {KNOWS, 1, {1, 0x07, 0x06}},
      {KNOWS, 2, {1, 0x07, 0x06}},
      {KNOWS, 1, {2, 0x06, 0}}}},
    {"the_same_where_who_began_one_is_dead",
     NULL,
     {{KNOWS, 0, {1, 0x03, 0x01}},
      {KNOWS, 1, {1, 0x03, 0x02}},
      {KNOWS, 0, {2, 0x01, 0}},
      {DIES, 0, {0, 0, 0}},
      {KNOWS, 1, {2, 0x02, 0}}}},
    {"back_to_an_older_epoch", "back to", {{KNOWS, 0, {4, 0x07, 0}}, {KNOWS, 0, {3, 0x07, 0}}}},
    {"another_list_of_the_same_number",
     "changed",
     {{KNOWS, 0, {1, 0x07, 0}}, {KNOWS, 0, {1, 0x03, 0}}}},
    {"an_epoch_that_it_is_not_of", "is in epoch 1", {{KNOWS, 0, {1, 0x06, 0}}}},
    {"a_new_start_decides",
     "was started anew",
     {{KNOWS, 0, {1, 0x03, 0}},
      {KNOWS, 1, {1, 0x03, 0}},
      {DIES, 0, {0, 0, 0}},
      {STARTS, 0, {0, 0, 0}},
      {KNOWS, 0, {2, 0x03, 0}}}},
    {"a_new_start_accepts",
     "has accepted",
     {{KNOWS, 0, {1, 0x03, 0}},
      {DIES, 0, {0, 0, 0}},
      {STARTS, 0, {0, 0, 0}},
      {KNOWS, 0, {0, 0, 0x03}}}},
    {"two_epochs_in_one_turn",
     NULL,
     {{KNOWS, 0, {1, 0x07, 0x07}},
      {KNOWS, 1, {1, 0x07, 0x07}},
      {KNOWS, 0, {2, 0x07, 0x03}},
      {KNOWS, 1, {3, 0x03, 0}}}},
};

TEST(each_rule_can_be_broken)
{
    for (size_t i = 0; i < LENGTH(rows); i++) {
        bool holds = true;
        commit_log_open(&commits, IDS);
        for (const struct happens *at = rows[i].all; holds && (at->what != END); at++) {
            if (at->what == DIES)
                commit_log_died(&commits, at->id);
            else if (at->what == STARTS)
                commit_log_started(&commits, at->id);
            else
                holds = commit_log_note(&commits, at->id, &at->seen);
        }
        if ((holds != (rows[i].error == NULL)) ||
            (!holds && (strstr(commits.error, rows[i].error) == NULL)))
            fail_msg("%s: %s", rows[i].name, commits.error);
    }
}
