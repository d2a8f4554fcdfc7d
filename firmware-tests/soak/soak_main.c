/* soak SECONDS: the jobs of the corpus, then random ones from seeds that the clock begins, one in
 * LARGER_EACH of them without SOAK_SMALL. soak SECONDS SEED [JOBS]: that job, which may be one of
 * the corpus (soak_seed.c), and those of the seeds after it; SEED may be "corpus": those alone. A
 * failure shows the job, what its ranks logged and how to run it again. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"

#include <malloc.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define REPORT_S 10.0
#define LARGER_EACH 8
#define HEAP_BYTES (32 << 20)
#define JOB_SECONDS 60 /* of a core: a job that takes longer has hung outside of virtual time */

static struct soak_job job;
static struct soak_seed seed;
static uint64_t jobs, job_count = UINT64_MAX;
static bool corpus_first = true; /* and seeds of the clock */
static double seconds;
static uint64_t generations, rejoins, grown, leaves;

static double wall_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static const char *const kinds[] = {"none",  "harmless",    "kill",    "stop",  "cut",
                                    "abort", "close",       "drop",    "error", "short",
                                    "many",  "elastic one", "elastic", "growth"};
#define KINDS (LENGTH(kinds))

static uint64_t counts[KINDS], met[KINDS];

static void report(double since_s)
{
    (void)printf("soak: %llu jobs, %.0f/s; faults met of drawn:", (unsigned long long)jobs,
                 (double)jobs / (wall_s() - since_s));
    for (size_t k = 1; k < KINDS; k++)
        (void)printf(" %s %llu/%llu", kinds[k], (unsigned long long)met[k],
                     (unsigned long long)counts[k]);
    (void)printf("; %llu generations begun anew, %llu ranks came back, %llu were new, %llu left\n",
                 (unsigned long long)generations, (unsigned long long)rejoins,
                 (unsigned long long)grown, (unsigned long long)leaves);
    (void)fflush(stdout);
}

static void failure_show(void)
{
    soak_job_print(&job, stdout);
    char text[SOAK_SEED_BYTES];
    (void)printf("soak: this seed fails, after %llu jobs; the same job again: make soak SEED=%s\n",
                 (unsigned long long)jobs, soak_seed_text(&seed, text, sizeof text));
    (void)fflush(stdout);
}

/* The program ends here, so what is not safe in a signal handler may at worst spoil the report. */
static void on_alarm(int number)
{
    static uint64_t jobs_before = UINT64_MAX;
    if (jobs_before != jobs) {
        jobs_before = jobs;
        return;
    }
    (void)printf("soak: a job has taken %d s of a core\n", JOB_SECONDS);
    failure_show();
    _exit(1);
}

static void job_run(void)
{
    soak_run_seed(&job, &seed);
    jobs++;
    generations +=
        job.plan.elastic && (job.model.generation_count > 0) ? job.model.generation_count - 1 : 0;
    rejoins += job.rejoins;
    grown += job.grown;
    leaves += job.leaves;
    for (size_t k = 0; k < KINDS; k++) {
        if (strcmp(kinds[k], job.plan.what) != 0) continue;
        counts[k]++;
        met[k] += job.met ? 1 : 0;
    }
}

static void jobs_hold(void **state)
{
    double begin_s = wall_s();
    double reported_s = begin_s;
    const struct soak_seed first = seed;
    FILE *corpus = NULL;
    if (corpus_first) assert_non_null(corpus = fopen("firmware-tests/soak/corpus", "re"));
    while ((corpus != NULL) && soak_corpus_next(corpus, &seed)) job_run();
    if (corpus != NULL) (void)fclose(corpus);
    seed = first;
    for (uint64_t i = 0; (i < job_count) && ((i == 0) || (wall_s() - begin_s < seconds)); i++) {
        if (i > 0) seed = (struct soak_seed){.seed = first.seed + i};
        if (corpus_first && (i % LARGER_EACH != 0)) seed.seed |= SOAK_SMALL;
        job_run();
        if (wall_s() - reported_s < REPORT_S) continue;
        reported_s = wall_s();
        report(begin_s);
    }
    if (jobs == 1)
        soak_plan_print(&job.plan, stdout);
    else
        report(begin_s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(jobs_hold)};
    const char *which = (argc > 2) ? argv[2] : "";
    const struct itimerval timer = {.it_value.tv_sec = JOB_SECONDS,
                                    .it_interval.tv_sec = JOB_SECONDS};
    struct timespec now;
    seconds = (argc > 1) ? atof(argv[1]) : 60;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    seed.seed = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    if (strcmp(which, "corpus") == 0) {
        job_count = 0;
    } else if (which[0] != '\0') {
        corpus_first = false;
        job_count = (argc > 3) ? strtoull(argv[3], NULL, 0) : 1;
        if (!soak_seed_read(which, &seed)) {
            (void)fprintf(
                stderr,
                "soak: SEED is a number, as in firmware-tests/soak/corpus, or \"corpus\"\n");
            return 2;
        }
    }
    (void)signal(SIGPROF, on_alarm);
    (void)setitimer(ITIMER_PROF, &timer, NULL);
    /* the kernel would clear the same pages for each job */
    (void)mallopt(M_MMAP_THRESHOLD, HEAP_BYTES);
    (void)mallopt(M_TRIM_THRESHOLD, HEAP_BYTES);
    if (cmocka_run_group_tests(tests, NULL, NULL) == 0) return 0;
    failure_show();
    return 1;
}
