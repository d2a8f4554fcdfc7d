/* The search of states.h for SECONDS, from SEED on; ends with 1 and the schedule where a rule does not
 * hold. program_states [SECONDS [SEED]] */
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

int main(int count, char **arguments)
{
    double seconds = (count > 1) ? strtod(arguments[1], NULL) : 60;
    uint64_t seed = (count > 2) ? strtoull(arguments[2], NULL, 10) : 1;
    char what[64];
    for (uint32_t deviations = 1; deviations <= 3; deviations++)
        for (uint32_t i = 0; i < states_jobs_count; i++) {
            const struct states_limits *job = &states_jobs[i];
            struct states_found found = states_search(job, deviations, UINT64_MAX);
            (void)snprintf(what, sizeof what, "%u of %u ids%s, %u deviations", job->members,
                           job->ids, job->listed ? ", a list" : "", deviations);
            if (!tell(what, &found)) return 1;
        }
    while (now_s() < seconds) {
        struct states_found found = states_walk(seed, 1000000);
        seed += found.states;
        if (!tell("walks", &found)) return 1;
    }
    return 0;
}
