/* The SIMT emulator: what is right runs in every order, and each mistake is an error that says which. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/cuda/simt_kernels.h"

static int setup(void **state)
{
    gf_simt_add(&gf_simt_kernel_reverse);
    gf_simt_add(&gf_simt_kernel_count);
    gf_simt_add(&gf_simt_kernel_broken);
    return 0;
}

static int launch(const char *kernel, uint32_t blocks, uint32_t threads, void *args)
{
    void *list[] = {args};
    return gf_simt_launch(kernel, blocks, threads, 0, list);
}

TEST(test_a_kernel_is_found_by_its_name)
{
    assert_ptr_equal(gf_simt_find("gf_kernel_reverse"), &gf_simt_kernel_reverse);
    assert_int_equal(gf_simt_kernel_reverse.args_bytes, sizeof(struct gf_reverse_args));
    assert_non_null(gf_simt_find("gf_kernel_cast_bf16_f16"));
    assert_null(gf_simt_find("gf_kernel_cas"));
    assert_int_equal(launch("gf_kernel_cas", 1, 1, NULL), -1);
    assert_non_null(strstr(gf_simt_error(), "no kernel"));
    assert_int_equal(launch("gf_kernel_reverse", 0, 1, NULL), -1);
    assert_int_equal(launch("gf_kernel_reverse", 1, 0, NULL), -1);
    assert_int_equal(launch("gf_kernel_reverse", 1, GF_SIMT_THREADS_MAX + 1, NULL), -1);
}

TEST(test_shared_memory_and_a_barrier)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        uint32_t data[3 * 96];
        struct gf_reverse_args args = {(uint64_t)(uintptr_t)data, 1};
        for (uint32_t i = 0; i < 3 * 96; i++) data[i] = i;
        gf_simt_seed(seed);
        assert_int_equal(launch("gf_kernel_reverse", 3, 96, &args), 0);
        for (uint32_t i = 0; i < 3 * 96; i++) assert_int_equal(data[i], i / 96 * 96 + 95 - i % 96);
    }
}

TEST(test_a_missing_barrier_is_a_conflict)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        uint32_t data[96] = {0};
        struct gf_reverse_args args = {(uint64_t)(uintptr_t)data, 0};
        gf_simt_seed(seed);
        assert_int_equal(launch("gf_kernel_reverse", 1, 96, &args), -1);
        assert_non_null(strstr(gf_simt_error(), "conflict"));
        assert_non_null(strstr(gf_simt_error(), "shared"));
    }
}

TEST(test_atomics_and_seeded_orders)
{
    uint32_t orders[3][64], differ = 0;
    for (uint32_t run = 0; run < 3; run++) {
        unsigned long long counter = 0;
        struct gf_count_args args = {(uint64_t)(uintptr_t)&counter, (uint64_t)(uintptr_t)orders[run], 0};
        gf_simt_seed((run == 2) ? 8 : 7);
        assert_int_equal(launch("gf_kernel_count", 1, 64, &args), 0);
        assert_int_equal(counter, 64);
        for (uint32_t i = 0; i < 64; i++) differ += orders[run][i] != i;
    }
    assert_true(differ > 64);
    assert_memory_equal(orders[0], orders[1], sizeof orders[0]);
    assert_memory_not_equal(orders[0], orders[2], sizeof orders[0]);
}

TEST(test_a_plain_read_of_an_atomic_is_a_conflict)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        uint32_t order[64];
        unsigned long long counter = 0;
        struct gf_count_args args = {(uint64_t)(uintptr_t)&counter, (uint64_t)(uintptr_t)order, 1};
        gf_simt_seed(seed);
        assert_int_equal(launch("gf_kernel_count", 1, 64, &args), -1);
        assert_non_null(strstr(gf_simt_error(), "conflict"));
    }
}

static const struct broken_case {
    const char *name;
    uint32_t what, blocks;
    const char *error; /* NULL: none */
} broken_cases[] = {
    {"blocks that write the same place", BROKEN_BLOCKS_MEET, 2, "another block"},
    {"one block alone may", BROKEN_BLOCKS_MEET, 1, NULL},
    {"a thread that misses the barrier", BROKEN_BARRIER, 1, "divergent"},
    {"a shuffle that names a thread which has ended", BROKEN_SHUFFLE, 1, "has ended"},
    {"an address that is not a multiple", BROKEN_ALIGNMENT, 1, "not a multiple"},
    {"nothing wrong", BROKEN_NOTHING, 4, NULL},
    {"what the neighbour writes is read", BROKEN_READ_THEN_WRITE, 1, "conflict"},
    {"and across blocks", BROKEN_READ_THEN_WRITE, 4, "conflict"},
};

TEST(test_mistakes)
{
    for (size_t c = 0; c < LENGTH(broken_cases); c++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            const struct broken_case *row = &broken_cases[c];
            uint32_t data[4 * 8 + 1] = {0};
            struct gf_broken_args args = {(uint64_t)(uintptr_t)data, row->what};
            int want = (row->error == NULL) ? 0 : -1;
            gf_simt_seed(seed);
            if (launch("gf_kernel_broken", row->blocks, 8, &args) != want)
                fail_msg("%s: %s", row->name, (want == 0) ? gf_simt_error() : "no error");
            if ((want != 0) && (strstr(gf_simt_error(), row->error) == NULL))
                fail_msg("%s: the error is \"%s\"", row->name, gf_simt_error());
        }
}

static bool below(void *user, const void *address, size_t size_bytes, bool is_write)
{
    return (const char *)address + size_bytes <= (const char *)user;
}

TEST(test_what_is_not_allowed_is_refused)
{
    uint32_t data[64] = {0};
    struct gf_broken_args args = {(uint64_t)(uintptr_t)data, BROKEN_NOTHING};
    gf_simt_allow(below, data + 64);
    assert_int_equal(launch("gf_kernel_broken", 1, 64, &args), 0);
    gf_simt_allow(below, data + 63);
    assert_int_equal(launch("gf_kernel_broken", 1, 64, &args), -1);
    assert_non_null(strstr(gf_simt_error(), "thread 63 may not write"));
    gf_simt_allow(NULL, NULL);
}

TEST_AROUND(setup, NULL)
