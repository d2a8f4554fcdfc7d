/* gf_identity_get(): each launcher's names, and what is refused. */
#include "firmware-tests/support/suite.h"
#include "drivers/identity.h"

static const char *const names[] = {"GF_RANK",
                                    "GF_WORLD",
                                    "GF_JOB",
                                    "GF_ADDRESS",
                                    "GF_COORDINATOR",
                                    "GF_ELASTIC",
                                    "SLURM_PROCID",
                                    "SLURM_NTASKS",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_ID",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "PMIX_NAMESPACE",
                                    "OMPI_MCA_ess_base_jobid",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "PMI_JOBID",
                                    "RANK",
                                    "GF_LOCAL_RANK",
                                    "SLURM_LOCALID",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "MPI_LOCALRANKID",
                                    "LOCAL_RANK",
                                    "WORLD_SIZE",
                                    "TORCHELASTIC_RUN_ID",
                                    "MASTER_ADDR",
                                    "MASTER_PORT",
                                    "LOCAL_WORLD_SIZE",
                                    "PMIX_RANK",
                                    "SLURM_STEP_NUM_TASKS",
                                    "FLUX_TASK_RANK",
                                    "FLUX_JOB_SIZE",
                                    "HOROVOD_RANK",
                                    "JOB_COMPLETION_INDEX"};

enum { NO_LAUNCHER = 1 };

static const struct identity_case {
    const char *name;
    const char *set[8]; /* "NAME=value" */
    int expect;         /* GF_OK, NO_LAUNCHER or GF_ERR_CONFIG */
    uint32_t rank, world;
    bool has_job;
    const char *source;
    const char *text; /* in the message */
} cases[] = {
    {"nothing_set_is_no_launcher", {0}, NO_LAUNCHER, 0, 0, false, NULL, NULL},
    {"own_names", {"GF_RANK=2", "GF_WORLD=4"}, GF_OK, 2, 4, false, "GF_RANK", NULL},
    {"own_names_come_first",
     {"GF_RANK=1", "GF_WORLD=2", "SLURM_PROCID=5", "SLURM_NTASKS=9", "RANK=7", "WORLD_SIZE=8"},
     GF_OK,
     1,
     2,
     false,
     "GF_RANK",
     NULL},
    {"own_job_id",
     {"GF_RANK=0", "GF_WORLD=1", "GF_JOB=18446744073709551615"},
     GF_OK,
     0,
     1,
     true,
     "GF_RANK",
     NULL},
    {"own_job_id_for_a_foreign_launcher",
     {"PMI_RANK=0", "PMI_SIZE=2", "GF_JOB=5"},
     GF_OK,
     0,
     2,
     true,
     "PMI_RANK",
     NULL},
    {"slurm",
     {"SLURM_PROCID=3", "SLURM_NTASKS=8", "SLURM_JOB_ID=1", "SLURM_STEP_ID=2"},
     GF_OK,
     3,
     8,
     true,
     "SLURM_PROCID",
     NULL},
    {"open_mpi_5",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=host-123@1"},
     GF_OK,
     1,
     2,
     true,
     "OMPI_COMM_WORLD_RANK",
     NULL},
    {"open_mpi_4",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_MCA_ess_base_jobid=77"},
     GF_OK,
     1,
     2,
     true,
     "OMPI_COMM_WORLD_RANK",
     NULL},
    {"open_mpi_without_a_job",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "PMI_RANK=0", "PMI_SIZE=1"},
     GF_OK,
     1,
     2,
     false,
     "OMPI_COMM_WORLD_RANK",
     NULL},
    {"pmi", {"PMI_RANK=1", "PMI_SIZE=2"}, GF_OK, 1, 2, false, "PMI_RANK", NULL},
    {"torchrun",
     {"RANK=1", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=x"},
     GF_OK,
     1,
     2,
     true,
     "RANK",
     NULL},
    {"torchrun_under_srun",
     {"RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "SLURM_PROCID=1", "SLURM_NTASKS=2",
      "SLURM_LOCALID=0"},
     GF_OK,
     5,
     8,
     false,
     "RANK",
     NULL},
    {"mpirun_in_a_batch_script",
     {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_LOCALID=0"},
     GF_OK,
     1,
     2,
     false,
     "OMPI_COMM_WORLD_RANK",
     NULL},
    {"mpich_in_a_batch_script",
     {"PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1", "SLURM_PROCID=0", "SLURM_NTASKS=2",
      "SLURM_LOCALID=0"},
     GF_OK,
     1,
     2,
     false,
     "PMI_RANK",
     NULL},
    {"srun_that_speaks_pmi",
     {"PMI_RANK=1", "PMI_SIZE=2", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=0"},
     GF_OK,
     1,
     2,
     false,
     "SLURM_PROCID",
     NULL},
    {"a_world_that_a_script_exports",
     {"WORLD_SIZE=8", "SLURM_PROCID=1", "SLURM_NTASKS=2"},
     GF_OK,
     1,
     2,
     false,
     "SLURM_PROCID",
     NULL},
    {"own_rank_alone_is_no_slurm",
     {"GF_RANK=1", "SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_LOCALID=0"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_RANK is set and GF_WORLD is not"},
    {"largest_world", {"GF_RANK=8191", "GF_WORLD=8192"}, GF_OK, 8191, 8192, false, "GF_RANK", NULL},
    {"an_empty_value_is_not_set",
     {"GF_RANK=", "GF_WORLD=", "PMI_RANK=1", "PMI_SIZE=2"},
     GF_OK,
     1,
     2,
     false,
     "PMI_RANK",
     NULL},
    {"pmix_with_srun",
     {"PMIX_RANK=1", "PMIX_NAMESPACE=slurm.pmix.7.0", "SLURM_STEP_NUM_TASKS=4"},
     GF_OK,
     1,
     4,
     true,
     "PMIX_RANK",
     NULL},
    {"pmix_of_mpirun_is_open_mpis",
     {"PMIX_RANK=1", "PMIX_NAMESPACE=77", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"},
     GF_OK,
     1,
     2,
     true,
     "OMPI_COMM_WORLD_RANK",
     NULL},
    {"pmix_without_a_size_is_no_launcher",
     {"PMIX_RANK=1", "PMIX_NAMESPACE=77"},
     NO_LAUNCHER,
     0,
     0,
     false,
     NULL,
     NULL},
    {"a_script_for_sbatch",
     {"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0", "SLURM_JOB_ID=7"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "SLURM_STEP_ID is not: this is the batch script itself, and srun starts the ranks"},
    {"a_script_for_sbatch_of_a_later_slurm",
     {"SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_JOB_ID=7", "SLURM_STEP_ID=4294967291"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "this is the batch script itself"},
    {"a_script_for_sbatch_without_a_size",
     {"SLURM_PROCID=0", "SLURM_JOB_ID=7"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "SLURM_PROCID is set and SLURM_NTASKS is not; expected both or neither: in a script for "
     "sbatch, or in salloc, srun starts the ranks"},
    {"rank_without_world",
     {"GF_RANK=1"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_RANK is set and GF_WORLD is not"},
    {"world_without_rank",
     {"GF_WORLD=1"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_WORLD is set and GF_RANK is not"},
    {"rank_is_no_number",
     {"GF_RANK=one", "GF_WORLD=2"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_RANK='one'"},
    {"rank_is_negative",
     {"GF_RANK=-1", "GF_WORLD=2"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_RANK='-1'"},
    {"rank_has_a_tail",
     {"GF_RANK=1 ", "GF_WORLD=2"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "from 0 to 1"},
    {"rank_is_the_world",
     {"GF_RANK=2", "GF_WORLD=2"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "from 0 to 1"},
    {"rank_wraps_in_64_bits",
     {"GF_RANK=18446744073709551617", "GF_WORLD=2"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_RANK='18446744073709551617'"},
    {"world_is_zero",
     {"GF_RANK=0", "GF_WORLD=0"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_WORLD='0'"},
    {"world_is_too_large",
     {"GF_RANK=0", "GF_WORLD=8193"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "from 1 to 8192"},
    {"slurm_rank_is_malformed",
     {"SLURM_PROCID=x", "SLURM_NTASKS=2"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "SLURM_PROCID='x'"},
    {"job_is_a_name",
     {"GF_RANK=0", "GF_WORLD=1", "GF_JOB=abc.0"},
     GF_OK,
     0,
     1,
     true,
     "GF_RANK",
     NULL},
    {"job_is_a_word_for_none",
     {"GF_RANK=0", "GF_WORLD=1", "GF_JOB=None"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_JOB='None': expected a number of 64 bits, or a name"},
    {"job_has_a_blank",
     {"GF_RANK=0", "GF_WORLD=1", "GF_JOB=12 "},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_JOB='12 '"},
    {"elastic_is_no_truth",
     {"GF_RANK=0", "GF_WORLD=1", "GF_ELASTIC=yes"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_ELASTIC='yes': expected 0 or 1"},
    {"coordinator_is_no_place",
     {"GF_RANK=0", "GF_WORLD=1", "GF_COORDINATOR=rank1"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_COORDINATOR='rank1': expected rank0 or separate"},
    {"job_is_too_large",
     {"GF_RANK=0", "GF_WORLD=1", "GF_JOB=18446744073709551616"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "64 bits"},
};

static int identity_get(struct gf_identity *identity_out, struct gf_fault *fault_out)
{
    if (gf_identity_get(identity_out, fault_out)) return GF_OK;
    return (fault_out->code == GF_OK) ? NO_LAUNCHER : (int)fault_out->code;
}

static void environment_set(const char *const *set)
{
    char name[64];
    for (size_t i = 0; i < LENGTH(names); i++) assert_int_equal(unsetenv(names[i]), 0);
    for (size_t i = 0; (i < 8) && (set[i] != NULL); i++) {
        size_t length = strcspn(set[i], "=");
        memcpy(name, set[i], length);
        name[length] = 0;
        assert_int_equal(setenv(name, set[i] + length + 1, 1), 0);
    }
}

TEST(each_launcher_and_each_refusal)
{
    for (size_t i = 0; i < LENGTH(cases); i++) {
        const struct identity_case *c = &cases[i];
        struct gf_identity identity = {.rank = 77, .world = 78};
        struct gf_fault fault = {0};
        environment_set(c->set);
        int status = identity_get(&identity, &fault);
        if (status != c->expect) print_error("%s: %s\n", c->name, fault.text);
        assert_int_equal(status, c->expect);
        if (status == GF_OK) {
            assert_int_equal(identity.rank, c->rank);
            assert_int_equal(identity.world, c->world);
            assert_int_equal(identity.job_id != 0, c->has_job);
            assert_string_equal(identity.source, c->source);
        } else {
            assert_int_equal(identity.rank, 77); /* outputs are written on success only */
            assert_int_equal(identity.world, 78);
        }
        if (c->text != NULL) {
            if (strstr(fault.text, c->text) == NULL) print_error("%s: '%s'\n", c->name, fault.text);
            assert_non_null(strstr(fault.text, c->text));
        }
    }
}

TEST(the_place_in_the_node_is_the_launchers_word_or_the_rank)
{
    static const char *const rows[][8] = {
        {"GF_RANK=3", "GF_WORLD=4", "GF_LOCAL_RANK=1"},
        {"SLURM_PROCID=3", "SLURM_NTASKS=4", "SLURM_LOCALID=1", "LOCAL_RANK=2"},
        {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_RANK=1"},
        {"PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1"},
        {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1"},
        /* a job that a rank of a larger one has begun */
        {"GF_RANK=0", "GF_WORLD=1", "GF_LOCAL_RANK=1"},
    };
    static const char *const bare[8] = {"GF_RANK=3", "GF_WORLD=4"};
    static const char *const wrong[8] = {"RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=8192"};
    struct gf_identity identity;
    struct gf_fault fault = {0};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        environment_set(rows[i]);
        assert_int_equal(identity_get(&identity, &fault), GF_OK);
        assert_int_equal(identity.local, 1);
        assert_int_equal(gf_identity_local(9), 1);
    }
    environment_set(bare);
    assert_int_equal(gf_identity_local(9), 3);
    environment_set(wrong);
    assert_int_equal(identity_get(&identity, &fault), GF_ERR_CONFIG);
    assert_non_null(strstr(fault.text, "LOCAL_RANK='8192': expected a local rank from 0 to 8191"));
    environment_set((const char *const[8]){NULL});
    assert_int_equal(gf_identity_local(9), 9);
}

static uint64_t job_of(const char *a, const char *b)
{
    const char *set[8] = {"SLURM_PROCID=0", "SLURM_NTASKS=1", a, b};
    struct gf_identity identity;
    struct gf_fault fault = {0};
    environment_set(set);
    assert_int_equal(identity_get(&identity, &fault), GF_OK);
    return identity.job_id;
}

TEST(the_place_of_the_coordinator_is_said_or_left_to_the_configuration)
{
    static const char *const rows[][8] = {
        {"GF_RANK=0", "GF_WORLD=2"},
        {"GF_RANK=0", "GF_WORLD=2", "GF_COORDINATOR="},
        {"GF_RANK=0", "GF_WORLD=2", "GF_COORDINATOR=rank0", "GF_ELASTIC=0"},
        {"SLURM_PROCID=0", "SLURM_NTASKS=2", "GF_COORDINATOR=separate", "GF_ELASTIC=1"},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct gf_identity identity;
        struct gf_fault fault = {0};
        environment_set(rows[i]);
        assert_int_equal(identity_get(&identity, &fault), GF_OK);
        assert_int_equal(identity.coordinator_set, i >= 2);
        assert_int_equal(identity.is_separate, i == 3);
        assert_int_equal(identity.elastic, i == 3);
    }
}

TEST(a_job_is_a_number_or_the_hash_of_a_name)
{
    char longest[102];
    memset(longest, 'x', sizeof longest);
    longest[101] = '\0';
    assert_true(gf_identity_job("7") == 7);
    assert_true(gf_identity_job("18446744073709551615") == UINT64_MAX);
    assert_true(gf_identity_job("18446744073709551616") == 0);
    assert_true(gf_identity_job("12.0") == UINT64_C(0x2f144587d49f5bd1));
    assert_true(gf_identity_job("12.0") != gf_identity_job("12.1"));
    assert_true(gf_identity_job(longest) == 0);
    assert_true(gf_identity_job(longest + 1) != 0);
    assert_true(gf_identity_job("a\n") == 0);
    assert_true(gf_identity_job("0") == 0);
    assert_true(gf_identity_job("") == 0);
}

TEST(job_ids_tell_jobs_and_steps_apart)
{
    uint64_t first = job_of("SLURM_JOB_ID=12", "SLURM_STEP_ID=3");
    /* FNV-1a of "12\xff3\xff": in every build */
    assert_true(first == UINT64_C(0x4240be8bd6b5f971));
    assert_true(first == job_of("SLURM_JOB_ID=12", "SLURM_STEP_ID=3"));
    assert_true(first != job_of("SLURM_JOB_ID=12", "SLURM_STEP_ID=4"));
    assert_true(first != job_of("SLURM_JOB_ID=13", "SLURM_STEP_ID=3"));
    assert_true(first != job_of("SLURM_JOB_ID=1", "SLURM_STEP_ID=23"));
}

static struct gf_identity identity_of(const char *const *set)
{
    struct gf_identity identity;
    struct gf_fault fault = {0};
    environment_set(set);
    if (identity_get(&identity, &fault) != GF_OK) fail_msg("%s", fault.text);
    return identity;
}

/* ---- two launchers in one environment ---- */

/* Rows of gradientflow.cfg(5), inner ones first. */
static const struct row {
    const char *rank, *world, *local, *wants;
} rows_read[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", NULL},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", NULL},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", NULL},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", NULL},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "PMIX_NAMESPACE"},
};
enum { ROW_OMPI = 1, ROW_SLURM = 3, ROW_PMIX = 4 };

typedef enum taken { FIRST, LATER, LATER_OVER, NEITHER } taken; /* OVER: with a warning */

/* What two rows say, and which is read. */
static const struct pair_case {
    const char *first_rank, *first_world, *later_rank, *later_world;
    bool first_local, later_local, is_script;
    taken expect;
    bool is_doubted; /* gf_identity_alone() */
} pair_cases[] = {
    /* the inner launcher has a local rank: the one around it says nothing */
    {"1", "4", "1", "4", true, true, false, FIRST, false},
    {"5", "8", "1", "2", true, true, false, FIRST, false},
    {"1", "4", "0", "1", true, true, false, FIRST, false},
    {"1", "4", "0", "4", true, true, true, FIRST, false},
    {"0", "1", "2", "4", true, true, false, FIRST, true},
    {"0", "1", "0", "4", true, true, true, FIRST, false},
    {"0", "1", "0", "1", true, true, false, FIRST, false},
    /* it has none: a script has set it, or left it */
    {"1", "4", "1", "4", false, true, false, LATER, false},
    {"1", "4", "1", "4", false, false, false, FIRST, false},
    {"1", "2", "0", "1", false, true, false, FIRST, false},
    {"0", "2", "0", "1", false, true, false, FIRST, false},
    {"1", "2", "0", "1", false, false, false, FIRST, false},
    {"1", "4", "0", "4", false, true, true, FIRST, false},
    {"0", "4", "0", "4", false, true, true, FIRST, false},
    {"0", "1", "2", "4", false, true, false, LATER, false},
    {"0", "1", "2", "4", false, false, false, LATER, false},
    {"0", "4", "2", "4", false, true, false, LATER_OVER, false},
    {"1", "2", "1", "4", false, true, false, LATER_OVER, false},
    {"1", "2", "1", "4", false, false, false, NEITHER, false},
    {"0", "2", "3", "4", false, false, false, NEITHER, false},
    {"x", "2", "1", "2", false, true, false, LATER_OVER, false},
};

static void row_set(const struct row *row, const char *rank, const char *world, bool has_local)
{
    assert_int_equal(setenv(row->rank, rank, 1), 0);
    assert_int_equal(setenv(row->world, world, 1), 0);
    if (has_local) assert_int_equal(setenv(row->local, "0", 1), 0);
    if (row->wants != NULL) assert_int_equal(setenv(row->wants, "a.job", 1), 0);
}

static void over_check(const struct pair_case *c, const struct row *first, const struct row *later)
{
    char expect[240];
    char text[GF_IDENTITY_SIGN_BYTES];
    assert_int_equal(gf_identity_over(text), c->expect == LATER_OVER);
    if (c->expect != LATER_OVER) return;
    (void)snprintf(expect, sizeof expect,
                   "%s=%s and %s=%s are set, and %s=%s and %s=%s, with a local rank, were read",
                   first->rank, c->first_rank, first->world, c->first_world, later->rank,
                   c->later_rank, later->world, c->later_world);
    assert_string_equal(text, expect);
}

static void pair_check(const struct pair_case *c, const struct row *first, const struct row *later)
{
    struct gf_identity identity = {.rank = 77};
    struct gf_fault fault = {0};
    char both[240];
    char sign[GF_IDENTITY_SIGN_BYTES];
    environment_set((const char *const[8]){NULL});
    row_set(first, c->first_rank, c->first_world, c->first_local);
    row_set(later, c->later_rank, c->later_world, c->later_local);
    if (c->is_script) assert_int_equal(setenv("SLURM_JOB_ID", "7", 1), 0);
    int status = identity_get(&identity, &fault);
    if (c->expect == NEITHER) {
        (void)snprintf(both, sizeof both, "%s=%s and %s=%s are set, and %s=%s and %s=%s, too",
                       first->rank, c->first_rank, first->world, c->first_world, later->rank,
                       c->later_rank, later->world, c->later_world);
        assert_int_equal(status, GF_ERR_CONFIG);
        if (strstr(fault.text, both) == NULL) fail_msg("'%s', not '%s'", fault.text, both);
    } else {
        const struct row *read = (c->expect == FIRST) ? first : later;
        if (status != GF_OK) fail_msg("%s", fault.text);
        assert_string_equal(identity.source, read->rank);
        assert_int_equal(identity.rank, atoi(getenv(read->rank)));
        assert_int_equal(identity.world, atoi(getenv(read->world)));
    }
    assert_int_equal(gf_identity_alone(sign), c->is_doubted);
    if (c->is_doubted) assert_non_null(strstr(sign, later->world));
    over_check(c, first, later);
}

TEST(of_two_launchers_one_row_is_read_or_none)
{
    for (size_t first = 0; first < LENGTH(rows_read); first++)
        for (size_t later = first + 1; later < LENGTH(rows_read); later++)
            for (size_t i = 0; i < LENGTH(pair_cases); i++) {
                const struct pair_case *c = &pair_cases[i];
                /* PMIx has its size and local rank of these two */
                if ((later == ROW_PMIX) && ((first == ROW_OMPI) || (first == ROW_SLURM))) continue;
                if (c->is_script && (later != ROW_SLURM)) continue;
                pair_check(c, &rows_read[first], &rows_read[later]);
            }
}

/* Rows that disagree, in jobs as they are started. */
TEST(of_launchers_that_disagree_the_one_with_a_local_rank_is_read)
{
    static const struct {
        const char *set[8];
        const char *source; /* NULL: refused */
        uint32_t rank, world;
        const char *over; /* NULL: no warning */
    } rows[] = {
        /* a script for sbatch has exported its own SLURM_PROCID and SLURM_NTASKS by these names */
        {{"RANK=0", "WORLD_SIZE=8", "SLURM_PROCID=1", "SLURM_NTASKS=8", "SLURM_LOCALID=1",
          "SLURM_STEP_ID=0", "SLURM_JOB_ID=5"},
         "SLURM_PROCID",
         1,
         8,
         "RANK=0 and WORLD_SIZE=8 are set, and SLURM_PROCID=1 and"},
        {{"RANK=0", "WORLD_SIZE=8", "SLURM_PROCID=0", "SLURM_NTASKS=8", "SLURM_LOCALID=0",
          "SLURM_STEP_ID=0", "SLURM_JOB_ID=5"},
         "SLURM_PROCID",
         0,
         8,
         NULL},
        /* the same by srun --mpi=pmi2, which says no local rank by PMI's names */
        {{"RANK=0", "WORLD_SIZE=8", "PMI_RANK=1", "PMI_SIZE=8", "SLURM_PROCID=1", "SLURM_NTASKS=8",
          "SLURM_LOCALID=1", "SLURM_STEP_ID=0"},
         "SLURM_PROCID",
         1,
         8,
         "RANK=0 and WORLD_SIZE=8 are set, and SLURM_PROCID=1 and"},
        /* mpirun in a pod that has a rank of its own */
        {{"RANK=0", "WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4",
          "OMPI_COMM_WORLD_LOCAL_RANK=0", "MASTER_ADDR=a", "MASTER_PORT=23456"},
         "OMPI_COMM_WORLD_RANK",
         0,
         4,
         "RANK=0 and WORLD_SIZE=2 are set, and OMPI_COMM_WORLD_RANK"},
        /* not N jobs of one rank: by an allocation of one task, or by the batch script */
        {{"RANK=1", "WORLD_SIZE=2", "SLURM_PROCID=0", "SLURM_NTASKS=1", "SLURM_LOCALID=0",
          "SLURM_STEP_ID=0", "SLURM_JOB_ID=5"},
         "RANK",
         1,
         2,
         NULL},
        {{"RANK=1", "WORLD_SIZE=2", "SLURM_PROCID=0", "SLURM_NTASKS=4", "SLURM_LOCALID=0",
          "SLURM_JOB_ID=5"},
         "RANK",
         1,
         2,
         NULL},
        {{"RANK=0", "WORLD_SIZE=8", "PMI_RANK=1", "PMI_SIZE=8"}, NULL, 0, 0, NULL},
    };
    char text[GF_IDENTITY_SIGN_BYTES];
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct gf_identity identity = {0};
        struct gf_fault fault = {0};
        environment_set(rows[i].set);
        int status = identity_get(&identity, &fault);
        assert_int_equal(status, (rows[i].source != NULL) ? GF_OK : GF_ERR_CONFIG);
        if (rows[i].source != NULL) assert_string_equal(identity.source, rows[i].source);
        assert_int_equal(identity.rank, rows[i].rank);
        assert_int_equal(identity.world, rows[i].world);
        assert_int_equal(gf_identity_over(text), rows[i].over != NULL);
        if (rows[i].over != NULL) assert_non_null(strstr(text, rows[i].over));
    }
}

/* RANK of a script that mpirun has started by its own numbers, in salloc's shell of 4 tasks. */
TEST(of_three_launchers_the_innermost_with_a_local_rank_is_read)
{
    static const char *const set[8] = {"RANK=1",
                                       "WORLD_SIZE=2",
                                       "OMPI_COMM_WORLD_RANK=1",
                                       "OMPI_COMM_WORLD_SIZE=2",
                                       "OMPI_COMM_WORLD_LOCAL_RANK=1",
                                       "SLURM_PROCID=0",
                                       "SLURM_NTASKS=4",
                                       "SLURM_LOCALID=0"};
    struct gf_identity identity;
    struct gf_fault fault = {0};
    environment_set(set);
    assert_int_equal(identity_get(&identity, &fault), GF_OK);
    assert_string_equal(identity.source, "OMPI_COMM_WORLD_RANK");
}

/* Flux, or pods of a job, in an allocation of one task: that launcher's numbers are read, and are
 * those of somebody else. */
TEST(one_of_one_is_doubted_where_something_else_says_several)
{
    static const struct {
        const char *set[8];
        const char *text; /* NULL: no doubt */
    } rows[] = {
        {{"SLURM_PROCID=0", "SLURM_NTASKS=1", "FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=4"},
         "FLUX_TASK_RANK=0 is set, and SLURM_PROCID=0 and SLURM_NTASKS=1 were read"},
        {{"RANK=0", "WORLD_SIZE=1", "JOB_COMPLETION_INDEX=1"}, "JOB_COMPLETION_INDEX=1 is set"},
        {{"PMI_RANK=0", "PMI_SIZE=1", "HOROVOD_RANK=1"}, "HOROVOD_RANK=1 is set"},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=1", "PMIX_RANK=1"}, "PMIX_RANK=1 is set"},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=1", "LOCAL_RANK=1"}, "LOCAL_RANK=1 is set"},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=1", "FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=1"}, NULL},
        {{"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "JOB_COMPLETION_INDEX=0"}, NULL},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=1", "GF_JOB=5", "GF_ADDRESS=10.0.0.1:7117"}, NULL},
        {{"SLURM_PROCID=0", "SLURM_NTASKS=2", "FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=4"}, NULL},
        {{"GF_RANK=0", "GF_WORLD=1", "SLURM_PROCID=1", "SLURM_NTASKS=2", "FLUX_TASK_RANK=1"}, NULL},
        {{NULL}, NULL},
    };
    char text[GF_IDENTITY_SIGN_BYTES];
    for (size_t i = 0; i < LENGTH(rows); i++) {
        environment_set(rows[i].set);
        assert_int_equal(gf_identity_alone(text), rows[i].text != NULL);
        if ((rows[i].text != NULL) && (strstr(text, rows[i].text) == NULL)) fail_msg("'%s'", text);
    }
}

/* torchrun says "none" in each job that was given no --rdzv-id: then where its store is tells jobs
 * apart. All ranks of a job are told that alike. */
TEST(words_that_are_no_id_are_none)
{
    static const char *const words[] = {"TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RUN_ID=None",
                                        "TORCHELASTIC_RUN_ID=0",
                                        "TORCHELASTIC_RUN_ID=", "TORCHELASTIC_RUN_ID=000"};
    for (size_t i = 0; i < LENGTH(words); i++) {
        const char *first[8] = {"RANK=0", "WORLD_SIZE=2", words[i], "MASTER_ADDR=a",
                                "MASTER_PORT=29501"};
        const char *again[8] = {"RANK=1",        "WORLD_SIZE=2",      words[i],
                                "MASTER_ADDR=a", "MASTER_PORT=29501", "LOCAL_RANK=1"};
        const char *other[8] = {"RANK=1", "WORLD_SIZE=2", words[i], "MASTER_ADDR=a",
                                "MASTER_PORT=29502"};
        const char *bare[8] = {"RANK=1", "WORLD_SIZE=2", words[i]};
        uint64_t id = identity_of(first).job_id;
        assert_true((id != 0) && !identity_of(first).nameless);
        assert_true(id == identity_of(again).job_id);
        assert_true(id != identity_of(other).job_id);
        assert_true((identity_of(bare).job_id == 0) && identity_of(bare).nameless);
    }
}

/* --rdzv-id=100, out of a tutorial, in two jobs. */
TEST(an_id_that_a_user_chose_is_not_all)
{
    static const char *const one[8] = {"RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=100",
                                       "MASTER_PORT=29501"};
    static const char *const two[8] = {"RANK=0", "WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=100",
                                       "MASTER_PORT=29502"};
    assert_true(identity_of(one).job_id != identity_of(two).job_id);
}

TEST(no_id_is_seen_with_each_launcher)
{
    static const char *const rows[][8] = {
        {"PMI_RANK=0", "PMI_SIZE=2"},
        {"PMI_RANK=0", "PMI_SIZE=2", "PMI_JOBID=none"},
        {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_NAMESPACE=0"},
        {"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=0", "SLURM_STEP_ID=3"},
    };
    static const char *const own[8] = {"GF_RANK=0", "GF_WORLD=2"};
    static const char *const alone[8] = {"PMI_RANK=0", "PMI_SIZE=1"};
    static const char *const zero[8] = {"SLURM_PROCID=1", "SLURM_NTASKS=2", "SLURM_JOB_ID=12",
                                        "GF_JOB=0"};
    for (size_t i = 0; i < LENGTH(rows); i++)
        assert_true((identity_of(rows[i]).job_id == 0) && identity_of(rows[i]).nameless);
    assert_false(identity_of(own).nameless); /* a bare start: its address is its own */
    assert_false(identity_of(alone).nameless);
    assert_true(identity_of(zero).job_id != 0);
}

TEST(signs_of_launchers_that_are_not_read)
{
    static const struct {
        const char *set[8];
        const char *text;
    } rows[] = {
        {{"PMIX_RANK=1"}, "PMIX_RANK=1 is of PMIx, without a size, which is not read: set GF_RANK"},
        {{"FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=4"},
         "FLUX_TASK_RANK=1 is of Flux, which is not read: set GF_RANK and GF_WORLD, the latter to "
         "FLUX_JOB_SIZE"},
        {{"HOROVOD_RANK=1"}, "HOROVOD_RANK=1 is of horovodrun"},
        {{"JOB_COMPLETION_INDEX=1"}, "JOB_COMPLETION_INDEX=1 is of an indexed job of Kubernetes"},
        {{"LOCAL_RANK=1"}, "LOCAL_RANK=1 is of a launcher of PyTorch"},
        {{"GF_ADDRESS=10.0.0.1:7117"}, "GF_ADDRESS=10.0.0.1:7117 is of a rank of this library"},
        {{"MASTER_ADDR=node7", "MASTER_PORT=29500"}, "MASTER_ADDR=node7 is of a launcher of PyT"},
    };
    static const char *const no_signs[][8] = {
        {NULL}, {"MASTER_ADDR=localhost"}, {"MASTER_ADDR=127.0.0.1"}, {"MASTER_ADDR=::1"}};
    char text[GF_IDENTITY_SIGN_BYTES];
    struct gf_identity identity;
    struct gf_fault fault = {0};
    for (size_t i = 0; i < LENGTH(rows); i++) {
        environment_set(rows[i].set);
        assert_int_equal(identity_get(&identity, &fault), NO_LAUNCHER);
        assert_true(gf_identity_sign(text));
        if (strstr(text, rows[i].text) == NULL) fail_msg("'%s'", text);
    }
    for (size_t i = 0; i < LENGTH(no_signs); i++) {
        environment_set(no_signs[i]);
        assert_false(gf_identity_sign(text));
    }
}

TEST(who_was_started_as_one_of_several_is_seen)
{
    static const char *const two[8] = {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"};
    static const char *const own[8] = {"GF_RANK=1", "GF_WORLD=2", "OMPI_COMM_WORLD_RANK=1",
                                       "OMPI_COMM_WORLD_SIZE=4"};
    static const char *const no[][8] = {
        {NULL},
        {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1"},
        {"GF_RANK=0", "GF_WORLD=1", "OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE=2"},
        {"GF_LOCAL_RANK=1"}, /* a rank that begins a job of its own */
        {"SLURM_PROCID=0", "SLURM_NTASKS=2", "SLURM_JOB_ID=7"}, /* a script for sbatch */
    };
    char text[GF_IDENTITY_SIGN_BYTES];
    environment_set(two);
    assert_true(gf_identity_around(text));
    assert_string_equal(text, "OMPI_COMM_WORLD_RANK=1 and OMPI_COMM_WORLD_SIZE=2 are set");
    environment_set(own);
    assert_true(gf_identity_around(text));
    assert_string_equal(text, "GF_RANK=1 and GF_WORLD=2 are set");
    for (size_t i = 0; i < LENGTH(no); i++) {
        environment_set(no[i]);
        assert_false(gf_identity_around(text));
    }
}

TEST(the_address_is_copied_or_refused_when_too_long)
{
    char text[8 + 3 + 200] = "GF_ADDRESS=10.0.0.1:7117";
    const char *set[8] = {"GF_RANK=0", "GF_WORLD=1", text};
    struct gf_identity identity;
    struct gf_fault fault = {0};
    environment_set(set);
    assert_int_equal(identity_get(&identity, &fault), GF_OK);
    assert_string_equal(identity.address, "10.0.0.1:7117");
    memset(text + 11, 'x', sizeof text - 12);
    environment_set(set);
    assert_int_equal(identity_get(&identity, &fault), GF_ERR_CONFIG);
    assert_non_null(strstr(fault.text, "GF_ADDRESS"));
}

/* At its store's port the library cannot listen: another is made of it, the same on all ranks. */
TEST(torchruns_address_has_another_port)
{
    const char *far[8] = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500",
                          "LOCAL_WORLD_SIZE=1"};
    const char *here[8] = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=node.example",
                           "MASTER_PORT=29500", "LOCAL_WORLD_SIZE=2"};
    const char *v6[8] = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=fd00::1", "MASTER_PORT=29500"};
    struct gf_identity identity = identity_of(far);
    char first[GF_TEXT_MAX];
    assert_string_equal(identity.address, "");
    assert_memory_equal(identity.master, "10.0.0.1:2", 10);
    assert_string_equal(gf_identity_address(&identity, ""), identity.master);
    assert_string_equal(gf_identity_address(&identity, "127.0.0.1:5"), "127.0.0.1:5");
    memcpy(first, identity.master, sizeof first);
    far[0] = "RANK=1";
    assert_string_equal(identity_of(far).master, first);
    far[3] = "MASTER_PORT=29501";
    assert_string_not_equal(identity_of(far).master, first);
    far[5] = "GF_ADDRESS=10.0.0.1:7117";
    identity = identity_of(far);
    assert_string_equal(gf_identity_address(&identity, "127.0.0.1:5"), "10.0.0.1:7117");
    /* all were started by one agent, so they are here, whatever the host is called */
    assert_memory_equal(identity_of(here).master, "127.0.0.1:2", 11);
    assert_memory_equal(identity_of(v6).master, "[fd00::1]:2", 11);
}

TEST(torchruns_address_is_never_its_stores)
{
    char port[32];
    const char *set[8] = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", port};
    for (unsigned i = GF_MASTER_PORT_FIRST; i <= GF_MASTER_PORT_LAST; i += 7) {
        (void)snprintf(port, sizeof port, "MASTER_PORT=%u", i);
        unsigned long other = strtoul(identity_of(set).master + 2, NULL, 10);
        assert_true((other != i) && (other >= GF_MASTER_PORT_FIRST) &&
                    (other <= GF_MASTER_PORT_LAST));
    }
}

TEST(a_port_of_torchruns_that_is_none)
{
    const char *set[8] = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=70000"};
    struct gf_identity identity;
    struct gf_fault fault = {0};
    environment_set(set);
    assert_int_equal(identity_get(&identity, &fault), GF_ERR_CONFIG);
    assert_non_null(strstr(fault.text, "MASTER_PORT='70000': expected a port from 1 to 65535"));
}
