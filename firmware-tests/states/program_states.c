/* The search of states.h for SECONDS of the processor, its walks from SEED on; ends with 1 and the schedule
 * where a rule does not hold. program_states [SECONDS [SEED [walks]]] */
#include "firmware-tests/states/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double began_s;

static double now_s(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9 - began_s;
}

static bool tell(const char *what, const struct states_found *found)
{
    printf("%-32s %10llu transitions, %9llu states, depth %4u, %6.1f s%s%s%s\n", what,
           (unsigned long long)found->transitions, (unsigned long long)found->states,
           found->deepest, now_s(), found->ended ? "" : ", not to its end",
           (found->broken != NULL) ? ": does not hold: " : "",
           (found->broken != NULL) ? found->broken : "");
    (void)fflush(stdout);
    if (found->broken != NULL) states_found_show();
    return found->broken == NULL;
}

static bool searched(const struct states_limits *job, uint32_t deviations)
{
    char what[64];
    struct states_found found = states_search(job, deviations, UINT64_MAX);
    int at = snprintf(what, sizeof what, "%u of %u ids%s, ", job->members, job->ids,
                      job->listed ? ", a list" : "");
    if (deviations == STATES_ALL)
        (void)snprintf(what + at, sizeof what - (size_t)at, "all");
    else
        (void)snprintf(what + at, sizeof what - (size_t)at, "%u deviations", deviations);
    return tell(what, &found);
}

static bool walked(double until_s, uint64_t *seed)
{
    while (now_s() < until_s) {
        struct states_found found = states_walk(*seed, 1000000);
        *seed += found.states;
        if (!tell("walks", &found)) return false;
    }
    return true;
}

/* Jobs of 2 ids, whole. */
#define WITH .ids = 2, .crashes = 1, .starts = 1, .changes = 1, .views = 4, .epochs = 4
static const struct states_limits two[] = {
    {.members = 1, .cuts = 1, .leaves = 1, WITH},
    {.members = 1, .listed = true, .cuts = 1, .leaves = 1, WITH},
    {.members = 2, .cuts = 1, .leaves = 1, WITH},
    {.members = 2, .listed = true, WITH},
};
#define TWO (sizeof two / sizeof two[0])

/* Bounds of `make check-states`: 2 ids whole; 3 and 4 ids up to so many deviations as end in time. */
static bool searched_widely(double until_s)
{
    for (size_t i = 0; i < TWO; i++)
        if (!searched(&two[i], STATES_ALL)) return false;
    for (uint32_t i = 0; (i < states_jobs_count) && (now_s() < until_s); i++)
        if (!searched(&states_jobs[i], 3)) return false;
    for (uint32_t i = 0; (i < states_jobs_count) && (now_s() < until_s); i++)
        if ((states_jobs[i].ids == 3) && !searched(&states_jobs[i], 4)) return false;
    return true;
}

/* Of a mutant: what finds most in least time comes first. */
static bool searched_shortly(double seconds, uint64_t *seed)
{
    struct states_found found = states_walk(*seed, 200000);
    *seed += found.states;
    if (!tell("walks", &found)) return false;
    for (size_t i = 0; i < TWO; i++) {
        found = states_search(&two[i], STATES_ALL, 50000);
        if (!tell("2 ids, the first 50,000", &found)) return false;
    }
    for (uint32_t i = 0; i < states_jobs_count; i++)
        if ((states_jobs[i].ids == 3) && !searched(&states_jobs[i], 2)) return false;
    return walked(seconds, seed);
}

int main(int count, char **arguments)
{
    double seconds = (count > 1) ? strtod(arguments[1], NULL) : 60;
    uint64_t seed = (count > 2) ? strtoull(arguments[2], NULL, 10) : 1;
    for (uint32_t i = 0; i < states_jobs_count; i++) {
        struct states_found found = {.broken = states_prompt(&states_jobs[i]), .ended = true};
        if (!tell("what all hear of", &found)) return 1;
    }
    for (uint32_t i = 0; i < states_jobs_count; i++)
        if (!searched(&states_jobs[i], 1)) return 1;
    if (count <= 3 && seconds < 60) return searched_shortly(seconds, &seed) ? 0 : 1;
    for (uint32_t i = 0; i < states_jobs_count; i++)
        if (!searched(&states_jobs[i], 2)) return 1;
    if (count > 3) return walked(seconds, &seed) ? 0 : 1;
    return (searched_widely(seconds / 2) && walked(seconds, &seed)) ? 0 : 1;
}
