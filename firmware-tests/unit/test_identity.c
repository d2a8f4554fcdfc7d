/* gf_identity_get(): each launcher's names, and what is refused. */
#include "firmware-tests/support/suite.h"
#include "drivers/identity.h"

#include <sys/mman.h>
#include <unistd.h>

static const char *const names[] = {"GF_RANK",
                                    "GF_WORLD",
                                    "GF_JOB",
                                    "GF_ADDRESS",
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
                                    "MASTER_PORT"};

static const struct identity_case {
    const char *name;
    const char *set[8]; /* "NAME=value" */
    gf_status expect;
    uint32_t rank, world;
    bool has_job;
    const char *source;
    const char *text; /* in the message */
} cases[] = {
    {"nothing_set_is_no_launcher", {0}, GF_AGAIN, 0, 0, false, NULL, NULL},
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
    {"job_is_no_number",
     {"GF_RANK=0", "GF_WORLD=1", "GF_JOB=abc"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "GF_JOB='abc'"},
    {"job_is_too_large",
     {"GF_RANK=0", "GF_WORLD=1", "GF_JOB=18446744073709551616"},
     GF_ERR_CONFIG,
     0,
     0,
     false,
     NULL,
     "64 bits"},
};

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
        gf_status status = gf_identity_get(&identity, &fault);
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
        assert_int_equal(gf_identity_get(&identity, &fault), GF_OK);
        assert_int_equal(identity.local, 1);
        assert_int_equal(gf_identity_local(9), 1);
    }
    environment_set(bare);
    assert_int_equal(gf_identity_local(9), 3);
    environment_set(wrong);
    assert_int_equal(gf_identity_get(&identity, &fault), GF_ERR_CONFIG);
    assert_non_null(
        strstr(fault.text, "LOCAL_RANK='8192': expected a place in the node from 0 to 8191"));
    environment_set((const char *const[8]){NULL});
    assert_int_equal(gf_identity_local(9), 9);
}

static uint64_t job_of(const char *a, const char *b)
{
    const char *set[8] = {"SLURM_PROCID=0", "SLURM_NTASKS=1", a, b};
    struct gf_identity identity;
    struct gf_fault fault = {0};
    environment_set(set);
    assert_int_equal(gf_identity_get(&identity, &fault), GF_OK);
    return identity.job_id;
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

TEST(the_address_is_copied_or_refused_when_too_long)
{
    char text[8 + 3 + 200] = "GF_ADDRESS=10.0.0.1:7117";
    const char *set[8] = {"GF_RANK=0", "GF_WORLD=1", text};
    struct gf_identity identity;
    struct gf_fault fault = {0};
    environment_set(set);
    assert_int_equal(gf_identity_get(&identity, &fault), GF_OK);
    assert_string_equal(identity.address, "10.0.0.1:7117");
    memset(text + 11, 'x', sizeof text - 12);
    environment_set(set);
    assert_int_equal(gf_identity_get(&identity, &fault), GF_ERR_CONFIG);
    assert_non_null(strstr(fault.text, "GF_ADDRESS"));
}

/* Another file may have the number of a descriptor that a program in between has closed. */
TEST(deaths_are_read_from_the_launchers_own_file_alone)
{
    int theirs = memfd_create("gf-ended", 0);
    int other = memfd_create("gf-ended-not", 0);
    unsigned char bits[4];
    assert_true((theirs >= 0) && (other >= 0));
    assert_int_equal(write(theirs, "\1", 1), 1);
    assert_int_equal(write(other, "\1", 1), 1);
    assert_true(gf_identity_ended_read(theirs, bits, sizeof bits));
    assert_memory_equal(bits, "\1\0\0\0", sizeof bits);
    assert_false(gf_identity_ended_read(other, bits, sizeof bits));
    assert_int_equal(close(theirs), 0);
    assert_int_equal(dup2(other, theirs), theirs);
    assert_false(gf_identity_ended_read(theirs, bits, sizeof bits));
    assert_memory_equal(bits, "\0\0\0\0", sizeof bits);
}

/* Where torchrun's own store listens the library cannot. */
TEST(the_address_of_torchrun_is_not_taken)
{
    const char *set[8] = {"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=10.0.0.1", "MASTER_PORT=29500"};
    struct gf_identity identity;
    struct gf_fault fault = {0};
    environment_set(set);
    assert_int_equal(gf_identity_get(&identity, &fault), GF_OK);
    assert_string_equal(identity.address, "");
    set[4] = "GF_ADDRESS=10.0.0.1:7117";
    environment_set(set);
    assert_int_equal(gf_identity_get(&identity, &fault), GF_OK);
    assert_string_equal(identity.address, "10.0.0.1:7117");
}
