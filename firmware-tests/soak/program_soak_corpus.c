/* program_soak_corpus random|guided JOBS [SEED [FILE]]: jobs of the soak, and how many edges of the
 * library they reach. random: one seed after the other. guided: half of the jobs are such, half
 * change draws of a job that reached an edge, or reached one more often, than those before. FILE: a
 * corpus, read first; what has to be kept of it and of what was found, so that all edges are
 * reached, is written there. For a library compiled with -fsanitize-coverage=inline-8bit-counters:
 * `make soak-corpus`. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak_dice.h"

#define POOL_MAX 20000u
#define REPORTS 10u

void __sanitizer_cov_8bit_counters_init(uint8_t *begin, uint8_t *end);
static uint8_t *counters, *counters_end;

void __sanitizer_cov_8bit_counters_init(uint8_t *begin, uint8_t *end)
{
    counters = begin;
    counters_end = end;
}

static struct kept {
    struct soak_seed seed;
    uint32_t rolls;
    uint8_t *edges; /* a bit for each */
} pool[POOL_MAX];
static uint32_t pool_count;

static struct soak_job job;
static struct soak_seed seed;
static struct dice dice;
static uint64_t job_count;
static bool guided, whole;
static const char *path;
static uint8_t *classes; /* of each edge: a bit for each class of counts it was met with */
static uint64_t edges_met;

/* How often an edge was met, in classes: 1, 2, 3, 4, 8, 16, 32, 128 and more. */
static uint8_t class_of(uint8_t count)
{
    static const uint8_t from[] = {128, 32, 16, 8, 4, 3, 2, 1};
    for (uint8_t i = 0; i < LENGTH(from); i++)
        if (count >= from[i]) return (uint8_t)(1u << i);
    return 0;
}

/* Whether the job met an edge, or met it in another class, than those before; only edges where
 * `edges_alone`. */
static bool job_is_new(bool edges_alone)
{
    bool is_new = false;
    for (size_t i = 0, count = (size_t)(counters_end - counters); i < count; i++) {
        uint8_t class = class_of(counters[i]);
        if ((class & ~classes[i]) == 0) continue;
        if (classes[i] == 0) edges_met++;
        if ((classes[i] == 0) || !edges_alone) is_new = true;
        classes[i] |= class;
    }
    return is_new;
}

static void pool_add(void)
{
    size_t count = (size_t)(counters_end - counters);
    struct kept *kept = &pool[pool_count];
    if (pool_count == POOL_MAX) return;
    kept->seed = seed;
    kept->rolls = soak_rolls();
    kept->edges = calloc(1, count / 8 + 1);
    assert_non_null(kept->edges);
    for (size_t i = 0; i < count; i++)
        if (counters[i] != 0) kept->edges[i / 8] |= (uint8_t)(1u << i % 8);
    pool_count++;
}

static void job_run(void)
{
    memset(counters, 0, (size_t)(counters_end - counters));
    soak_run_seed(&job, &seed);
}

/* The newer ones oftener. */
static void seed_change(void)
{
    uint32_t a = below(&dice, pool_count);
    uint32_t b = below(&dice, pool_count);
    const struct kept *kept = &pool[(a > b) ? a : b];
    seed = kept->seed;
    for (uint32_t i = between(&dice, 1, 3); i > 0; i--) {
        struct soak_change change = {.index = below(&dice, kept->rolls), .value = roll(&dice)};
        uint32_t at = seed.change_count;
        for (uint32_t k = 0; k < seed.change_count; k++)
            if (seed.changes[k].index == change.index) at = k;
        if (at == SOAK_CHANGES_MAX)
            at = below(&dice, SOAK_CHANGES_MAX);
        else if (at == seed.change_count)
            seed.change_count++;
        seed.changes[at] = change;
    }
}

static void corpus_read(void)
{
    FILE *from = (path != NULL) ? fopen(path, "re") : NULL;
    while ((from != NULL) && soak_corpus_next(from, &seed)) {
        job_run();
        if (job_is_new(true)) pool_add();
    }
    if (from != NULL) (void)fclose(from);
}

/* From the newest on, what has an edge that none of those kept so far has. */
static void corpus_write(void)
{
    size_t bytes = (size_t)(counters_end - counters) / 8 + 1;
    uint8_t *have = calloc(1, bytes);
    char text[SOAK_SEED_BYTES];
    uint32_t kept_count = 0;
    FILE *to = (path != NULL) ? fopen(path, "we") : NULL;
    if (path != NULL) assert_non_null(to);
    if (to != NULL)
        (void)fprintf(to, "# Jobs that reach all edges found so far: `make soak-corpus`.\n");
    for (uint32_t k = pool_count; (k > 0) && (have != NULL); k--) {
        const struct kept *kept = &pool[k - 1];
        bool is_new = false;
        for (size_t i = 0; i < bytes; i++) {
            if ((kept->edges[i] & ~have[i]) != 0) is_new = true;
            have[i] |= kept->edges[i];
        }
        kept_count += is_new ? 1 : 0;
        if (is_new && (to != NULL))
            (void)fprintf(to, "%s\n", soak_seed_text(&kept->seed, text, sizeof text));
    }
    if (to != NULL) (void)fclose(to);
    free(have);
    (void)printf("soak-corpus: %u jobs reach all of them\n", kept_count);
}

static void jobs_hold(void **state)
{
    uint64_t next;
    corpus_read();
    if (pool_count > 0)
        (void)printf("soak-corpus: %llu edges by a corpus of %u\n", (unsigned long long)edges_met,
                     pool_count);
    next = seed.seed = dice.state;
    for (uint64_t i = 1; i <= job_count; i++) {
        bool changed = guided && (pool_count > 0) && percent(&dice, 50);
        if (changed)
            seed_change();
        else
            seed = (struct soak_seed){.seed = next++};
        job_run();
        if (job_is_new(!guided)) pool_add();
        if ((i % (job_count / REPORTS + 1) != 0) && (i != job_count)) continue;
        (void)printf("soak-corpus: %llu jobs, %llu of %llu edges, %u kept\n", (unsigned long long)i,
                     (unsigned long long)edges_met, (unsigned long long)(counters_end - counters),
                     pool_count);
        (void)fflush(stdout);
    }
    corpus_write();
    whole = true;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(jobs_hold)};
    char text[SOAK_SEED_BYTES];
    guided = (argc > 1) && (strcmp(argv[1], "guided") == 0);
    job_count = (argc > 2) ? strtoull(argv[2], NULL, 0) : 0;
    dice.state = (argc > 3) ? strtoull(argv[3], NULL, 0) : 1;
    path = (argc > 4) ? argv[4] : NULL;
    if ((argc < 3) || (counters == NULL)) {
        (void)fprintf(stderr,
                      (argc < 3)
                          ? "usage: program_soak_corpus random|guided JOBS [SEED [FILE]]\n"
                          : "skipped: this library was not compiled for it: make soak-corpus\n");
        return (argc < 3) ? 2 : 77;
    }
    classes = calloc(1, (size_t)(counters_end - counters));
    assert_non_null(classes);
    if ((cmocka_run_group_tests(tests, NULL, NULL) == 0) && whole) return 0;
    soak_job_print(&job, stdout);
    (void)printf("soak-corpus: this job fails; again: make soak SEED=%s\n",
                 soak_seed_text(&seed, text, sizeof text));
    return 1;
}
