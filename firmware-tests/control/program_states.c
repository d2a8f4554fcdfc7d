/* The search of states.h for SECONDS of the processor: program_states [SECONDS [FIRST [SEED]]]:
 * jobs from the FIRST on, and where time is left random schedules from SEED on. Ends with 1 and the
 * schedule where a rule does not hold. */
#include "firmware-tests/control/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define SEEN_BITS 27u     /* 1 GB: a longer search meets more states than that of make check */
#define A_SECOND 600000.0 /* transitions, on the machine that it was written on */

static double now_s(void)
{
    struct timespec at;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static bool tell(const char *what, const struct states_found *found)
{
    printf("%-44s %10llu transitions, %9llu states, depth %4u, %6.1f s%s%s%s\n", what,
           (unsigned long long)found->transitions, (unsigned long long)found->states,
           found->deepest, now_s(), found->ended ? "" : ", not to its end",
           (found->broken != NULL) ? ": does not hold: " : "",
           (found->broken != NULL) ? found->broken : "");
    (void)fflush(stdout);
    if (found->broken != NULL) states_found_show();
    return found->broken == NULL;
}

static bool walked(double until_s, uint64_t seed)
{
    while (now_s() < until_s) {
        struct states_found found = states_walk(seed, 1000000);
        seed += found.states;
        if (!tell("random schedules", &found)) return false;
    }
    return true;
}

int main(int count, char **arguments)
{
    double seconds = (count > 1) ? strtod(arguments[1], NULL) : 60;
    uint32_t first = (count > 2) ? (uint32_t)strtoul(arguments[2], NULL, 10) : 0;
    uint64_t seed = (count > 3) ? strtoull(arguments[3], NULL, 10) : 1;
    states_seen_bits = SEEN_BITS;
    for (uint32_t i = first; (i < states_jobs_count) && (now_s() < seconds); i++) {
        const struct states_job *job = &states_jobs[i];
        struct states_found found = states_search(&job->limits, job->deviations,
                                                  (uint64_t)((seconds - now_s()) * A_SECOND));
        if (!tell(job->name, &found)) return 1;
    }
    return walked(seconds, seed) ? 0 : 1;
}
