/* Groups of 8 bits and of 1: every version this CPU runs against the words of ops.h, computed in
 * float64. */

#include "firmware-tests/support/suite.h"
#include "ops/element/host/ops_host.h"

#define ELEMS_MAX 1200u
#define GUARD 0xa5

static const struct gf_groups forms[] = {{32, 8}, {64, 8}, {256, 1}, {512, 1}};
static uint32_t seed = 1;

static gf_mem at(void *memory)
{
    return (gf_mem)(uintptr_t)memory;
}

static float noise(void)
{
    seed = seed * 1664525u + 1013904223u;
    return ((float)(seed >> 8) - 8388608.0f) * 0x1p-24f;
}

/* Value i of the groups as they lie, in float64. */
static double given(const uint8_t *groups, const struct gf_groups *form, uint64_t i)
{
    const uint8_t *group = groups + i / form->elems * gf_group_bytes(form);
    float scale;
    memcpy(&scale, group, sizeof scale);
    i %= form->elems;
    if (form->bits == 8) return (double)(int8_t)group[4 + i] * (double)scale;
    return ((group[4 + i / 8] >> i % 8) & 1) ? -(double)scale : (double)scale;
}

/* The scale, and that each value is the nearest there is; the error is what is missing. */
static void expect(const struct gf_element_ops *ops, const uint8_t *groups,
                   const struct gf_groups *form, const float *before, const float *after,
                   uint64_t count)
{
    for (uint64_t first = 0; first < count; first += form->elems) {
        uint64_t end = (count - first < form->elems) ? count : first + form->elems;
        double most = 0;
        double sum = 0;
        double scale;
        float found;
        for (uint64_t i = first; i < end; i++) {
            most = fmax(most, fabs((double)before[i]));
            sum += fabs((double)before[i]);
        }
        scale = (form->bits == 8) ? most / 127 : sum / (double)(end - first);
        memcpy(&found, groups + first / form->elems * gf_group_bytes(form), sizeof found);
        if (fabs((double)found - scale) > 1e-6 * scale)
            fail_msg("%s, %u bits: scale %g, not %g", ops->name, form->bits, (double)found, scale);
        for (uint64_t i = first; i < end; i++) {
            double value = given(groups, form, i);
            double missing = (double)before[i] - value;
            double least = fabs(fabs((double)before[i]) - scale) * 1.00001 + 1e-6 * scale;
            double allowed = (form->bits == 8) ? scale * 0.50001 : least;
            if ((fabs(missing) > allowed) || (fabs((double)after[i] - missing) > 1e-6 * most))
                fail_msg("%s, %u bits, %llu of %llu: %g became %g, error %g", ops->name, form->bits,
                         (unsigned long long)i, (unsigned long long)count, (double)before[i], value,
                         (double)after[i]);
        }
    }
}

static void each_count(const struct gf_element_ops *ops, const struct gf_groups *form)
{
    static const uint64_t counts[] = {0,   1,   7,   31,  32,  33,  64,  100,
                                      255, 256, 257, 511, 512, 513, 1200};
    static uint8_t groups[ELEMS_MAX * 2 + 2 * GF_GROUP_BYTES_MAX];
    static uint8_t plain[sizeof groups];
    for (size_t c = 0; c < LENGTH(counts); c++) {
        float before[ELEMS_MAX];
        float value[ELEMS_MAX + 1];
        float other[ELEMS_MAX];
        float back[ELEMS_MAX];
        uint64_t count = counts[c];
        uint64_t bytes = gf_group_count(form, count) * gf_group_bytes(form);
        struct gf_check check = {0, UINT64_MAX};
        for (uint64_t i = 0; i < count; i++)
            before[i] = (i % 5 == 3) ? 0.0f : noise() * ((i % 7 == 0) ? 1e-6f : 1.0f);
        memcpy(value, before, count * sizeof(float));
        memcpy(other, before, count * sizeof(float));
        value[count] = 77;
        memset(groups, GUARD, sizeof groups);
        assert_int_equal(ops->quantize(NULL, at(groups), at(value), count, form, 0, &check), GF_OK);
        assert_true((check.bad_count == 0) && (value[count] == 77) && (groups[bytes] == GUARD));
        expect(ops, groups, form, before, value, count);
        assert_int_equal(
            gf_element_ops_scalar.quantize(NULL, at(plain), at(other), count, form, 0, NULL),
            GF_OK);
        assert_memory_equal(groups, plain, bytes);
        assert_memory_equal(value, other, count * sizeof(float));
        for (int add = 0; add < 2; add++) {
            for (uint64_t i = 0; i < count; i++) back[i] = 0.25f;
            assert_int_equal(
                ops->dequantize(NULL, at(back), at(groups), count, form, 0.5f, add != 0), GF_OK);
            for (uint64_t i = 0; i < count; i++)
                assert_true(fabs((double)back[i] - (add ? 0.25 : 0.0) -
                                 0.5 * given(groups, form, i)) < 1e-7);
        }
        /* Bits behind the last value are zero. */
        for (uint64_t i = count; i < gf_group_count(form, count) * form->elems; i++)
            assert_int_equal(
                (groups[bytes - form->elems * form->bits / 8 + i % form->elems * form->bits / 8] >>
                 (form->bits == 8 ? 0 : i % 8)) &
                    (form->bits == 8 ? 255 : 1),
                0);
    }
}

TEST(values_are_the_nearest_that_a_group_has_and_what_is_missing_is_kept)
{
    for (size_t f = 0; f < LENGTH(forms); f++) {
        for (uint32_t v = 0; v < gf_element_ops_variant_count; v++)
            if (gf_element_ops_supported(gf_element_ops_variants[v]))
                each_count(gf_element_ops_variants[v], &forms[f]);
        each_count(gf_element_ops_best(), &forms[f]);
    }
}

/* Too small, too large or no number: the group is zeroes, nothing is lost, and only what is no
 * number is counted. */
TEST(groups_without_a_scale_are_zeroes)
{
    static const struct {
        float value;
        uint32_t bad;
    } rows[] = {{0.0f, 0}, {0x1p-101f, 0}, {0x1p-140f, 0}, {INFINITY, 1}, {NAN, 1}};
    for (size_t f = 0; f < LENGTH(forms); f++)
        for (size_t row = 0; row < LENGTH(rows); row++) {
            float value[512] = {0};
            float before[512];
            uint8_t groups[GF_GROUP_BYTES_MAX];
            struct gf_check check = {0, UINT64_MAX};
            value[17] = rows[row].value;
            memcpy(before, value, sizeof value);
            (void)gf_element_ops_best()->quantize(NULL, at(groups), at(value), forms[f].elems,
                                                  &forms[f], 40, &check);
            for (uint32_t b = 0; b < gf_group_bytes(&forms[f]); b++) assert_int_equal(groups[b], 0);
            assert_memory_equal(value, before, sizeof value);
            assert_int_equal(check.bad_count, rows[row].bad);
            assert_true(check.bad_first == (rows[row].bad ? 57 : UINT64_MAX));
        }
}

/* What error feedback is for: the sum of what was sent follows the sum of what was there, at any
 * number of steps. */
TEST(nothing_is_lost_over_many_steps)
{
    for (size_t f = 0; f < LENGTH(forms); f++) {
        float value[512] = {0};
        double sent[512] = {0};
        double meant[512] = {0};
        uint8_t groups[GF_GROUP_BYTES_MAX];
        for (uint32_t step = 0; step < 300; step++) {
            for (uint32_t i = 0; i < forms[f].elems; i++) {
                float gradient = noise() + ((i % 3 == 0) ? 0.01f : 0.0f);
                meant[i] += (double)gradient;
                value[i] += gradient;
            }
            (void)gf_element_ops_best()->quantize(NULL, at(groups), at(value), forms[f].elems,
                                                  &forms[f], 0, NULL);
            for (uint32_t i = 0; i < forms[f].elems; i++) sent[i] += given(groups, &forms[f], i);
        }
        for (uint32_t i = 0; i < forms[f].elems; i++)
            assert_true(fabs(meant[i] - sent[i] - (double)value[i]) < 1e-3);
    }
}

/* Bytes of fp32: what the wire saves. */
TEST(groups_have_the_sizes_that_are_promised)
{
    static const double shares[] = {0.28125, 0.265625, 0.03515625, 0.033203125};
    for (size_t f = 0; f < LENGTH(forms); f++)
        assert_true((double)gf_group_bytes(&forms[f]) / (4.0 * forms[f].elems) == shares[f]);
}

/* value = what its groups give back. */
static void round_trip(float *value, float *scratch, uint8_t *groups, uint64_t count)
{
    memcpy(scratch, value, count * sizeof(float));
    (void)gf_element_ops_best()->quantize(NULL, at(groups), at(scratch), count, &forms[0], 0, NULL);
    (void)gf_element_ops_best()->dequantize(NULL, at(value), at(groups), count, &forms[0], 1.0f,
                                            false);
}

/* Why partial sums are not quantized: a ring would do so at each hop. The error of a sum of n
 * ranks, over its size. */
TEST(a_ring_that_quantizes_each_hop_loses_more_the_more_ranks_there_are)
{
    enum { COUNT = 1024 };
    static float sum[COUNT];
    static float ring[COUNT];
    static float owner[COUNT];
    static float value[COUNT];
    static float scratch[COUNT];
    static uint8_t groups[COUNT * 2];
    double last = 0;
    for (uint32_t n = 2; n <= 64; n *= 2) {
        double size = 0;
        double of_ring = 0;
        double of_owner = 0;
        for (uint32_t rank = 0; rank < n; rank++) {
            for (uint32_t i = 0; i < COUNT; i++) {
                value[i] = noise();
                sum[i] = (rank > 0) ? sum[i] + value[i] : value[i];
                ring[i] = (rank > 0) ? ring[i] + value[i] : value[i];
            }
            /* on its way to the next rank, and the last one to all */
            round_trip(ring, scratch, groups, COUNT);
            round_trip(value, scratch, groups, COUNT);
            for (uint32_t i = 0; i < COUNT; i++)
                owner[i] = (rank > 0) ? owner[i] + value[i] : value[i];
        }
        round_trip(owner, scratch, groups, COUNT);
        for (uint32_t i = 0; i < COUNT; i++) {
            size += (double)sum[i] * (double)sum[i];
            of_ring += ((double)ring[i] - (double)sum[i]) * ((double)ring[i] - (double)sum[i]);
            of_owner += ((double)owner[i] - (double)sum[i]) * ((double)owner[i] - (double)sum[i]);
        }
        print_message("  %2u ranks: ring %.4f, alltoall %.4f\n", n, sqrt(of_ring / size),
                      sqrt(of_owner / size));
        assert_true((of_ring / size > last) && (of_owner / size < 1e-4));
        last = of_ring / size;
    }
}
