/* gf-perf without ranks: its check finds each wrong element of each operation and type; where its
 * limits lie. */

#include "firmware-tests/support/suite.h"
#include "tools/perf/perf_tune.h"
#include "tools/perf/perf_values.h"

#define ELEMS 23u /* no multiple of any world below */

static const gf_operation operations[] = {GF_OPERATION_ALLREDUCE, GF_OPERATION_BROADCAST,
                                          GF_OPERATION_REDUCE_SCATTER, GF_OPERATION_ALLGATHER};
/* from 43 on sums of sevens would not be exact in bf16 */
static const uint32_t worlds[] = {2, 3, 4, 43, 64};

/* A float's value in whichever type; values here are whole and small. */
static float value_of(const unsigned char *data, gf_type type, uint64_t i)
{
    uint32_t bits = 0;
    float value;
    memcpy(&bits, data + i * gf_type_size_bytes(type), gf_type_size_bytes(type));
    if (type == GF_TYPE_BF16) bits <<= 16;
    if (type == GF_TYPE_F16) /* whole numbers are normal */
        bits = (bits == 0) ? 0 : (((bits >> 10) + 127 - 15) << 23) | ((bits & 0x3ffu) << 13);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void value_put(unsigned char *data, gf_type type, uint64_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (type == GF_TYPE_BF16) bits >>= 16;
    if (type == GF_TYPE_F16)
        bits = (bits == 0) ? 0 : (((bits >> 23) - 127 + 15) << 10) | ((bits >> 13) & 0x3ffu);
    memcpy(data + i * gf_type_size_bytes(type), &bits, gf_type_size_bytes(type));
}

static unsigned char filled[64][ELEMS * 4], result[ELEMS * 4];

/* What the operation leaves on rank 1, from what all ranks filled in. */
static struct perf_values operation_do(gf_operation operation, gf_type type, uint32_t world,
                                       uint64_t first_elem)
{
    struct perf_values values = {.elem_count = ELEMS,
                                 .first_elem = first_elem,
                                 .type = type,
                                 .operation = operation,
                                 .world = world};
    size_t size = gf_type_size_bytes(type);
    for (values.rank = 0; values.rank < world; values.rank++) {
        values.data = filled[values.rank];
        perf_values_fill(&values);
    }
    values.data = result;
    values.rank = 1;
    for (uint64_t i = 0; i < ELEMS; i++) {
        uint32_t owner = (uint32_t)(i / ((ELEMS + world - 1) / world));
        float sum = 0;
        if (operation == GF_OPERATION_BROADCAST) owner = 0;
        for (uint32_t rank = 0; rank < world; rank++) sum += value_of(filled[rank], type, i);
        if ((operation == GF_OPERATION_BROADCAST) || (operation == GF_OPERATION_ALLGATHER))
            memcpy(result + i * size, filled[owner] + i * size, size);
        else
            value_put(result, type, i, sum);
    }
    return values;
}

TEST(right_results_pass)
{
    for (size_t o = 0; o < LENGTH(operations); o++)
        for (gf_type type = 0; type < GF_TYPE_COUNT; type++)
            for (size_t w = 0; w < LENGTH(worlds); w++)
                for (uint64_t first = 0; first < 9; first += 4) {
                    struct perf_values values = operation_do(operations[o], type, worlds[w], first);
                    assert_int_equal(perf_values_wrong(&values), 0);
                }
}

/* One bit in one element; with reduce-scatter only in the rank's own block, the rest is
 * undefined. */
TEST(each_wrong_bit_is_found)
{
    for (size_t o = 0; o < LENGTH(operations); o++)
        for (gf_type type = 0; type < GF_TYPE_COUNT; type++)
            for (uint64_t bit = 0; bit < ELEMS * gf_type_size_bytes(type) * 8; bit++) {
                struct perf_values values = operation_do(operations[o], type, 3, 0);
                uint64_t elem = bit / 8 / gf_type_size_bytes(type);
                uint64_t first;
                uint64_t count;
                bool counts = true;
                gf_block(ELEMS, 3, 1, &first, &count);
                if (operations[o] == GF_OPERATION_REDUCE_SCATTER)
                    counts = (elem >= first) && (elem < first + count);
                values.data[bit / 8] ^= (unsigned char)(1u << bit % 8);
                assert_int_equal(perf_values_wrong(&values), counts ? 1 : 0);
            }
}

/* Of each reduction, by the sums of what all filled in. */
TEST(reductions_are_told_apart)
{
    for (gf_reduction made = 0; made < GF_REDUCTION_COUNT; made++)
        for (gf_reduction asked = 0; asked < GF_REDUCTION_COUNT; asked++) {
            struct perf_values values = {.elem_count = ELEMS,
                                         .type = GF_TYPE_F32,
                                         .operation = GF_OPERATION_ALLREDUCE,
                                         .reduction = made,
                                         .world = 4};
            for (values.rank = 0; values.rank < 4; values.rank++) {
                values.data = filled[values.rank];
                perf_values_fill(&values);
            }
            for (uint64_t i = 0; i < ELEMS; i++) {
                float result_of = value_of(filled[0], GF_TYPE_F32, i);
                for (uint32_t rank = 1; rank < 4; rank++) {
                    float value = value_of(filled[rank], GF_TYPE_F32, i);
                    if (made == GF_REDUCTION_MIN)
                        result_of = fminf(result_of, value);
                    else if (made == GF_REDUCTION_MAX)
                        result_of = fmaxf(result_of, value);
                    else
                        result_of += value;
                }
                value_put(result, GF_TYPE_F32, i, result_of);
            }
            values.data = result;
            values.reduction = asked;
            if ((perf_values_wrong(&values) == 0) != (made == asked))
                fail_msg("made %u, asked %u", made, asked);
        }
}

TEST(an_operation_that_did_nothing_is_found)
{
    for (size_t o = 0; o < LENGTH(operations); o++)
        for (gf_type type = 0; type < GF_TYPE_COUNT; type++) {
            struct perf_values values = operation_do(operations[o], type, 4, 0);
            perf_values_fill(&values);
            assert_true(perf_values_wrong(&values) > 0);
        }
}

/* A vector that is one element out of place is wrong, not a coincidence. */
TEST(shifted_results_are_found)
{
    for (gf_type type = 0; type < GF_TYPE_COUNT; type++) {
        struct perf_values values = operation_do(GF_OPERATION_ALLREDUCE, type, 3, 0);
        size_t size = gf_type_size_bytes(type);
        memmove(result, result + size, (ELEMS - 1) * size);
        assert_true(perf_values_wrong(&values) > 0);
    }
}

TEST(limits_are_where_auto_loses_least)
{
    static const struct tuning_case {
        const char *name;
        double time_us[6][PERF_TUNE_COUNT]; /* doubling, halving, ring at 1, 2, 4, 8, 16, 32 KiB */
        uint64_t before[2], after[2];       /* up to where doubling, halving */
    } cases[] = {
        {"all_three",
         {{1, 2, 3}, {2, 3, 4}, {5, 4, 5}, {9, 6, 7}, {20, 12, 10}, {40, 25, 18}},
         {1, 1},
         {2048, 8192}},
        {"from_above",
         {{1, 2, 3}, {2, 3, 4}, {5, 4, 5}, {9, 6, 7}, {20, 12, 10}, {40, 25, 18}},
         {65536, 65536},
         {2048, 8192}},
        {"noise_at_the_limit",
         {{1, 2, 3}, {2, 1.9, 4}, {3, 4, 5}, {9, 6, 7}, {20, 12, 10}, {40, 25, 18}},
         {4096, 8192},
         {4096, 8192}},
        {"one_row_alone",
         {{1, 2, 3}, {2, 3, 4}, {5, 4, 5}, {9, 6, 7}, {20, 12, 10}, {40, 25, 18}},
         {2048, 4096},
         {2048, 4096}},
        {"a_row_of_100_times_noise",
         {{900, 2, 3}, {2, 3, 4}, {3, 4, 5}, {9, 6, 7}, {20, 12, 10}, {40, 25, 18}},
         {1, 1},
         {4096, 4096}},
        {"noise_beside_the_truth",
         {{1, 2, 3}, {2, 3, 4}, {5, 4, 5}, {900, 600, 7}, {20, 12, 18}, {40, 18, 25}},
         {1, 1},
         {2048, 32768}},
        {"ring_always",
         {{3, 2, 1}, {3, 2, 1}, {3, 2, 1}, {3, 2, 1}, {3, 2, 1}, {3, 2, 1}},
         {2048, 8192},
         {1, 1}},
        {"doubling_always",
         {{1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}},
         {1, 1},
         {32768, 32768}},
        {"never_halving",
         {{1, 9, 3}, {1, 9, 3}, {1, 9, 3}, {4, 9, 3}, {5, 9, 3}, {6, 9, 3}},
         {1, 1},
         {4096, 4096}},
        {"nothing_to_gain",
         {{1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {4, 4, 4}, {5, 5, 5}, {6, 6, 6}},
         {3000, 9000},
         {3000, 9000}},
    };
    for (size_t c = 0; c < LENGTH(cases); c++) {
        struct perf_tuning tuning = {.size_count = 6};
        uint64_t doubling_max = cases[c].before[0];
        uint64_t halving_max = cases[c].before[1];
        for (uint32_t i = 0; i < 6; i++) {
            tuning.bytes[i] = 1024u << i;
            memcpy(tuning.time_us[i], cases[c].time_us[i], sizeof tuning.time_us[i]);
        }
        bool moved = perf_tune_limits(&tuning, &doubling_max, &halving_max);
        if ((doubling_max != cases[c].after[0]) || (halving_max != cases[c].after[1]) ||
            (moved != (memcmp(cases[c].before, cases[c].after, sizeof cases[c].after) != 0)))
            fail_msg("%s: %llu, %llu", cases[c].name, (unsigned long long)doubling_max,
                     (unsigned long long)halving_max);
    }
}

/* Of six ranks auto has halving up to a 32nd of the limit, of three never; no limit is more than
 * its key may be. */
TEST(limits_are_those_of_the_worlds_auto)
{
    static const struct {
        uint32_t world;
        uint64_t least_bytes, doubling_max, halving_max;
    } cases[] = {{4, 1024, 2048, 8192},
                 {6, 1024, 2048, 32 * 8192},
                 {3, 1024, 8192, 8192},
                 {8, 1u << 29, 1u << 30, 1u << 30},
                 {6, 1u << 24, 1u << 25, 1u << 30}};
    static const double ring[] = {3, 4, 6, 8, 10, 18};
    static const double doubling[] = {1, 2, 5, 7, 20, 40};
    for (size_t c = 0; c < LENGTH(cases); c++) {
        struct perf_tuning tuning = {.size_count = 6, .world = cases[c].world};
        uint64_t doubling_max = 1;
        uint64_t halving_max = 1;
        for (uint32_t i = 0; i < 6; i++) {
            const double us[PERF_TUNE_COUNT] = {doubling[i], (i < 4) ? 4 : 25, ring[i]};
            tuning.bytes[i] = cases[c].least_bytes << i;
            memcpy(tuning.time_us[i], us, sizeof us);
        }
        (void)perf_tune_limits(&tuning, &doubling_max, &halving_max);
        if ((doubling_max != cases[c].doubling_max) || (halving_max != cases[c].halving_max))
            fail_msg("%u ranks: %llu, %llu", cases[c].world, (unsigned long long)doubling_max,
                     (unsigned long long)halving_max);
    }
}

/* Whatever one row says, limits that are the best for all others stay. */
TEST(no_row_alone_moves_a_limit)
{
    static const double factors[] = {0.001, 0.5, 0.9, 1, 1.1, 2, 1000};
    for (uint32_t row = 0; row < 8; row++)
        for (uint32_t noise = 0; noise < 343; noise++) {
            struct perf_tuning tuning = {.size_count = 8};
            uint64_t doubling_max = 4096;
            uint64_t halving_max = 16384;
            for (uint32_t i = 0; i < 8; i++) {
                const double us[PERF_TUNE_COUNT] = {1 << i,
                                                    (i < 3) ? 1.2 * (1 << i) : 0.8 * (1 << i),
                                                    (i < 5) ? 1.4 * (1 << i) : 0.6 * (1 << i)};
                tuning.bytes[i] = 1024u << i;
                memcpy(tuning.time_us[i], us, sizeof us);
            }
            tuning.time_us[row][0] *= factors[noise % 7];
            tuning.time_us[row][1] *= factors[noise / 7 % 7];
            tuning.time_us[row][2] *= factors[noise / 49];
            assert_false(perf_tune_limits(&tuning, &doubling_max, &halving_max));
            assert_int_equal(doubling_max, 4096);
            assert_int_equal(halving_max, 16384);
        }
}
