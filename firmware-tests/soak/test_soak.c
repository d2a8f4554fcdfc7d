/* A thousand random jobs, the same each time; make soak runs new ones.
 * suite: slow */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/soak/soak.h"

#define SEEDS 1000u

static struct soak_job job, again;
static bool job_runs;

static void job_run(uint64_t seed)
{
    job_runs = true;
    soak_run(&job, seed);
    job_runs = false;
}

TEST(a_thousand_random_jobs_hold)
{
    uint32_t met = 0;
    uint32_t generations = 0;
    uint32_t rejoins = 0;
    uint32_t grown = 0;
    uint32_t leaves = 0;
    uint32_t wired = 0;
    uint32_t wired_generations = 0;
    uint32_t sparse = 0;
    uint32_t local = 0;
    uint32_t shared = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        job_run(seed);
        met += job.met ? 1 : 0;
        generations += (job.model.generation_count > 1) ? job.model.generation_count - 1 : 0;
        rejoins += job.rejoins;
        grown += job.grown;
        leaves += job.leaves;
        wired += job.on_wire ? 1 : 0;
        wired_generations += job.on_wire ? job.model.generation_count - 1 : 0;
        sparse += job.sparse ? 1 : 0;
        local += job.model.local_begun ? 1 : 0;
        shared += (job.plan.setup.sim.ranks_per_node > 1) ? 1 : 0;
    }
    assert_true(met > SEEDS / 4); /* or the faults come too late */
    assert_true((generations > SEEDS / 10) && (rejoins > SEEDS / 20) && (leaves > SEEDS / 50) &&
                (grown > SEEDS / 50));
    /* device memory straight to the wire */
    assert_true((wired > SEEDS / 10) && (wired_generations > SEEDS / 50));
    assert_true((sparse > SEEDS / 10) && (local > SEEDS / 50) && (shared > SEEDS / 5));
}

/* A late rank's first weights; a history in which everything had cancelled; a rank that declares
 * last what another declares first; one that dies behind its last word; a step that a dead rank
 * alone had applied; one that sought for so long that the others went on and ended; one that had
 * never heard where a rank of its newest proposal is; one that was stopped while it sought the
 * others, whose own time was behind the simulator's; one whose generation was begun again by the
 * other, who was told that it had ended; clipping without an element, on a device; one that came
 * back when others had begun to leave; roundings of what had cancelled over 229 steps; one that
 * came when the coordinator died and was started again; two that came to a job of one rank, which
 * died, before and after it had taken one in; two that a commit had taken in when the coordinator
 * died, who were taken for other processes; two more that nobody told of the commit, as the
 * coordinator that had invited them died before it; one that died behind its last word when the
 * coordinator had waited for the others as long as it may; one that nobody named as ended, as its
 * new start ran by then; a log that was full; one that woke to a commit which was over, and whose
 * coordinator had gone on alone and ended; two that were cut off when they had left, while another
 * waited for what they had sent; one that was given, in the simulator alone, the connection that
 * its last start had begun; a job that is not elastic, in which the other end of the one broken
 * edge is named; one that had closed as another came in. */
TEST(jobs_that_once_failed_hold)
{
    static const uint64_t seeds[] = {
        0x18ea0da9f5a815ea, 0x18ea0daa37b93387, 0x18ea0f1b68ecdbcf, 0x18ea1061c4aeb182,
        0x18ea12fda746985f, 0x18ea138bd5b3b5a4, 0x18ea15312af3fe16, 0x18ea516af04a186e,
        0x18ea5437f109a316, 0x18ea598c307e3364, 0x18ea594ac38ba30a, 0x18ea7a58a4ffcf5f,
        0x18ea59d20a3d2526, 0x18ea662fa0232e7b, 0x18ea68a18db09ca9, 0x98ea8e915e61940b,
        0x98ea915f2077944b, 0x98ea91a66854b920, 0x98ea953ac51d827e, 0x98ea96f5acb34843,
        0x98ea99d69b134368, 0x98ea9f314b7935c6, 0x98eaa098586e1725, 0x18eaa3a4626194af,
        0x98eac1dfbf52dca8, 0x98ec5e6ff359f7c4, 0x98ec5f5ef53504c2};
    for (size_t i = 0; i < LENGTH(seeds); i++) job_run(seeds[i]);
}

TEST(the_same_seed_is_the_same_job)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t hash;
        soak_run(&again, seed);
        hash = again.hash;
        soak_run(&again, seed);
        assert_true(hash == again.hash);
    }
}

/* Jobs that reach edges of the library that others do not: `make soak-corpus` found them. */
TEST(the_corpus_holds)
{
    struct soak_seed seed;
    uint32_t count = 0;
    FILE *corpus = fopen("firmware-tests/soak/corpus", "re");
    assert_non_null(corpus);
    while (soak_corpus_next(corpus, &seed)) {
        job_runs = true;
        soak_run_seed(&job, &seed);
        job_runs = false;
        count++;
    }
    (void)fclose(corpus);
    assert_true(count > 50);
}

/* A job whose checks failed has not come to its end. */
static int job_show(void **state)
{
    if (!job_runs) return 0;
    soak_job_print(&job, stdout);
    (void)printf("the same job again: make soak SEED=0x%llx\n", (unsigned long long)job.plan.seed);
    return 0;
}

TEST_AROUND(NULL, job_show)
