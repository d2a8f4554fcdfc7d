/* The search of states.h for SECONDS of the processor: program_states [SECONDS [FIRST [SEED]]]:
 * jobs from the FIRST on, and where time is left random schedules from SEED on. Ends with 1 and the
 * schedule where a rule does not hold.
 * program_states parts JOB COUNT FIRST STEP: of a job, by its number, the parts FIRST, FIRST + STEP
 * and so on of COUNT, each to its end, and a line for each. */
#include "firmware-tests/control/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEEN_BITS 27u     /* 1 GB: a longer search meets more states than that of make check */
#define PARTS_BITS 28u    /* 2 GB: no state of a part is dropped */
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

static bool parts(uint32_t job_at, uint32_t count, uint32_t first, uint32_t step)
{
    char name[96];
    if ((job_at >= states_jobs_count) || (step == 0)) {
        (void)fprintf(stderr, "JOB is a number below %u, STEP at least 1\n", states_jobs_count);
        return false;
    }
    const struct states_job *job = &states_jobs[job_at];
    states_seen_bits = PARTS_BITS;
    for (uint32_t i = first; i < count; i += step) {
        struct states_found found = states_search_part(job, i, count);
        (void)snprintf(name, sizeof name, "%s, part %u of %u, %llu dropped", job->name, i, count,
                       (unsigned long long)found.dropped);
        if (!tell(name, &found)) return false;
    }
    return true;
}

static uint32_t number(const char *text)
{
    return (uint32_t)strtoul(text, NULL, 10);
}

int main(int count, char **arguments)
{
    if ((count == 6) && (strcmp(arguments[1], "parts") == 0))
        return parts(number(arguments[2]), number(arguments[3]), number(arguments[4]),
                     number(arguments[5]))
                   ? 0
                   : 1;
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
