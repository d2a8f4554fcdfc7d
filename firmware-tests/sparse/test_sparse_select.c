/* The choice of chunks: against a plain sort, and the share that is kept, step by step. */
#include "firmware-tests/support/suite.h"
#include "lib/sparse/sparse.h"

#include <float.h>

#define COUNT_MAX 10000u
#define GUARD UINT32_C(0xdeadbeef)

static uint64_t random_state;

static uint32_t random_next(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33);
}

/* ---- gf_sparse_select ---- */

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float any_value(void)
{
    return from_bits(random_next() % 0x7f800000u);
}
static float one_value(void)
{
    return 2.5f;
}
static float zero_value(void)
{
    return (random_next() % 2 == 0) ? 0.0f : -0.0f;
}
static float few_values(void)
{
    return (float)(random_next() % 4);
}
static float mostly_zero(void)
{
    return (random_next() % 20 == 0) ? any_value() : 0.0f;
}
/* some normal ones, too */
static float denormal_value(void)
{
    return from_bits(random_next() % 0x00900000u);
}
static float low_byte_differs(void)
{
    return from_bits(0x3f800000u + random_next() % 3);
}
static float extreme_value(void)
{
    static const float values[] = {0.0f, FLT_MIN, FLT_MAX, 0x1p-149f, 1.0f, INFINITY};
    return values[random_next() % LENGTH(values)];
}

static const struct score_case {
    const char *name;
    float (*value)(void);
} score_cases[] = {
    {"any", any_value},
    {"all equal", one_value},
    {"zeros of both signs", zero_value},
    {"many ties", few_values},
    {"mostly zero", mostly_zero},
    {"denormals", denormal_value},
    {"low bytes", low_byte_differs},
    {"extremes", extreme_value},
};

static const float *sorted_scores;

/* Larger first, ties by the lower index. */
static int by_score(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    if (sorted_scores[left] != sorted_scores[right])
        return (sorted_scores[left] > sorted_scores[right]) ? -1 : 1;
    return (left < right) ? -1 : 1;
}

static int by_index(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a;
    uint32_t right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

static void expect_selection(const char *name, const float *scores, const uint32_t *order,
                             uint32_t count, uint32_t kept)
{
    static uint32_t expected[COUNT_MAX];
    static uint32_t selected[COUNT_MAX + 1];
    memcpy(expected, order, kept * sizeof *expected);
    qsort(expected, kept, sizeof *expected, by_index);
    for (uint32_t i = 0; i <= kept; i++) selected[i] = GUARD;
    gf_sparse_select(scores, count, kept, selected);
    for (uint32_t i = 0; i < kept; i++)
        if (selected[i] != expected[i])
            fail_msg("%s, %u of %u: place %u holds %u, expected %u", name, kept, count, i,
                     selected[i], expected[i]);
    assert_int_equal(selected[kept], GUARD);
}

TEST(the_largest_are_taken_ties_to_the_lower_index)
{
    static const uint32_t counts[] = {1, 2, 3, 7, 64, 255, 256, 257, 1000, COUNT_MAX};
    static float scores[COUNT_MAX];
    static uint32_t order[COUNT_MAX];
    random_state = 1;
    for (size_t c = 0; c < LENGTH(score_cases); c++) {
        for (size_t n = 0; n < LENGTH(counts); n++) {
            uint32_t count = counts[n];
            for (uint32_t i = 0; i < count; i++) {
                scores[i] = score_cases[c].value();
                order[i] = i;
            }
            sorted_scores = scores;
            qsort(order, count, sizeof *order, by_score);
            for (uint32_t kept = 0; kept <= count; kept += (count <= 257) ? 1 : 1 + count / 37)
                expect_selection(score_cases[c].name, scores, order, count, kept);
            expect_selection(score_cases[c].name, scores, order, count, count);
            expect_selection(score_cases[c].name, scores, order, count, count - 1);
        }
    }
}

/* ---- gf_sparse_kept ---- */

static struct gf_config config_of(float share, uint64_t warmup, uint64_t ramp)
{
    return (struct gf_config){
        .sparse = {
            .enabled = true, .keep_share = share, .warmup_steps = warmup, .ramp_steps = ramp}};
}

static const struct share_case {
    float share;
    uint32_t count, kept;
} share_cases[] = {
    {0.15f, 100, 15},
    {0.15f, 20, 3},
    {0.15f, 780, 117},
    {0.15f, 1, 1},
    {0.15f, 10, 2},
    {0.1f, 1000, 100},
    {0.1f, 1001, 101},
    {0.3f, 10, 3},
    {0.7f, 10, 7},
    {1e-9f, 5000, 1},
    {0.5f, 3, 2},
    {0.25f, 4, 1},
    {0.999f, 10, 10},
    {1.0f, 12345, 12345},
    {1.0f, GF_SPARSE_CHUNKS_MAX, GF_SPARSE_CHUNKS_MAX},
    {0.15f, GF_SPARSE_CHUNKS_MAX, 629146},
};

TEST(the_share_is_rounded_up_to_whole_chunks)
{
    for (size_t i = 0; i < LENGTH(share_cases); i++) {
        const struct share_case *c = &share_cases[i];
        struct gf_config config = config_of(c->share, 0, 0);
        if (gf_sparse_kept(&config, c->count, 1) != c->kept)
            fail_msg("%g of %u: %u, expected %u", (double)c->share, c->count,
                     gf_sparse_kept(&config, c->count, 1), c->kept);
    }
}

TEST(warm_up_sends_all_then_a_ramp_falls_to_the_share)
{
    static const uint64_t warmups[] = {0, 1, 7};
    static const uint64_t ramps[] = {0, 1, 2, 10, 99, 1000};
    static const uint32_t counts[] = {1, 2, 7, 100, 781};
    static const float shares[] = {1e-6f, 0.15f, 0.5f, 0.999f, 1.0f};
    for (uint32_t row = 0; row < LENGTH(warmups) * LENGTH(ramps) * LENGTH(counts) * LENGTH(shares);
         row++) {
        uint64_t warmup = warmups[row % 3];
        uint64_t ramp = ramps[row / 3 % LENGTH(ramps)];
        uint32_t count = counts[row / 18 % LENGTH(counts)];
        uint32_t before = count;
        uint32_t target;
        struct gf_config config = config_of(shares[row / 90], warmup, ramp);
        struct gf_config now = config;
        now.sparse.warmup_steps = now.sparse.ramp_steps = 0;
        target = gf_sparse_kept(&now, count, 1);
        for (uint64_t step = 1; step <= warmup + ramp + 3; step++) {
            uint32_t kept = gf_sparse_kept(&config, count, step);
            /* falls, and never below the target, which is at least 1 */
            assert_in_range(kept, target, before);
            if (step <= warmup) assert_int_equal(kept, count);
            if (step > warmup + ramp)
                assert_int_equal(kept, target);
            else if ((step > warmup) && (count - target > ramp)) /* on its way */
                assert_in_range(kept, target + 1, count - 1);
            before = kept;
        }
        assert_true(target >= 1);
    }
}

TEST(the_longest_ramp_does_not_overflow)
{
    struct gf_config config = config_of(0.15f, 5, INT64_MAX);
    assert_int_equal(gf_sparse_kept(&config, 100, 6), 100);
    /* nearly the end of 9e18 steps */
    assert_in_range(gf_sparse_kept(&config, 100, INT64_MAX), 15, 16);
    assert_int_equal(gf_sparse_kept(&config, 100, UINT64_MAX), 15);
    config = config_of(0.15f, INT64_MAX, 5);
    assert_int_equal(gf_sparse_kept(&config, 100, INT64_MAX), 100);
    assert_int_equal(gf_sparse_kept(&config, 100, (uint64_t)INT64_MAX + 6), 15);
}
