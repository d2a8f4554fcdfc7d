/* Rounding to the 16-bit types and widening from them, in every version of the cast this CPU runs
 * (the first is that of half.h's functions), against values made by double arithmetic and
 * nearbyint(). Every finite 16-bit value, every tie between two and both neighbours of each tie. */
#include "firmware-tests/support/suite.h"
#include "ops/element/host/half.h"
#include "ops/element/host/ops_host.h"

#define HALVES 65536u
#define FLOATS_MAX (HALVES * 4u + 100000u)

static float floats[FLOATS_MAX];
static uint16_t halves[FLOATS_MAX];
static uint32_t float_count;

static const struct half_kind {
    const char *name;
    gf_type type;
    int mantissa_bits, exponent_min, exponent_max; /* exponents of normal values */
} kinds[] = {
    {"fp16", GF_TYPE_F16, 10, -14, 15},
    {"bf16", GF_TYPE_BF16, 7, -126, 127},
};

static double half_value(const struct half_kind *k, uint16_t half)
{
    int mantissa = half & ((1 << k->mantissa_bits) - 1);
    int exponent = (half & 0x7fff) >> k->mantissa_bits;
    double value;
    if (exponent == k->exponent_max - k->exponent_min + 2) {
        value = mantissa ? (double)NAN : (double)INFINITY;
    } else if (exponent == 0) {
        value = ldexp(mantissa, k->exponent_min - k->mantissa_bits);
    } else {
        value = ldexp(mantissa + (1 << k->mantissa_bits),
                      exponent - 1 + k->exponent_min - k->mantissa_bits);
    }
    return (half & 0x8000) ? -value : value;
}

static double rounded(const struct half_kind *k, double value)
{
    if ((value == 0) || !isfinite(value)) return value;
    int exponent = ilogb(value) < k->exponent_min ? k->exponent_min : ilogb(value);
    double unit = ldexp(1, exponent - k->mantissa_bits);
    double result = nearbyint(value / unit) * unit;
    return (fabs(result) >= ldexp(1, k->exponent_max + 1)) ? copysign((double)INFINITY, value)
                                                           : result;
}

static void both_signs(float value)
{
    floats[float_count++] = value;
    floats[float_count++] = -value;
}

static void floats_fill(const struct half_kind *k)
{
    uint32_t random = 12345;
    float_count = 0;
    for (uint16_t half = 0; isfinite(half_value(k, half)); half++) {
        /* The last one's successor is infinity; its tie is where overflow begins. */
        double low = half_value(k, half);
        double high = half_value(k, (uint16_t)(half + 1));
        double tie = isfinite(high) ? (low + high) / 2
                                    : low + (low - half_value(k, (uint16_t)(half - 1))) / 2;
        both_signs((float)low);
        both_signs((float)tie);
        both_signs(nextafterf((float)tie, 0));
        both_signs(nextafterf((float)tie, INFINITY));
    }
    both_signs(INFINITY);
    both_signs(0x1.fffffep127f);
    both_signs(0x1p-149f);
    while (float_count < FLOATS_MAX - 1) {
        random = random * 1664525u + 1013904223u;
        float value = gf_f32_of_bits(random);
        if (!isnan(value)) floats[float_count++] = value;
    }
}

static void narrow(const struct gf_element_ops *ops, gf_type type, uint32_t count)
{
    assert_int_equal(ops->cast(NULL, (gf_mem)(uintptr_t)halves, type, (gf_mem)(uintptr_t)floats,
                               GF_TYPE_F32, count, 1, 0, NULL),
                     GF_OK);
}

static void widen(const struct gf_element_ops *ops, gf_type type, uint32_t count)
{
    assert_int_equal(ops->cast(NULL, (gf_mem)(uintptr_t)floats, GF_TYPE_F32,
                               (gf_mem)(uintptr_t)halves, type, count, 1, 0, NULL),
                     GF_OK);
}

static void narrowing_rounds_to_nearest_even(const struct gf_element_ops *ops,
                                             const struct half_kind *k)
{
    floats_fill(k);
    narrow(ops, k->type, float_count);
    for (uint32_t i = 0; i < float_count; i++) {
        double want = rounded(k, (double)floats[i]);
        double got = half_value(k, halves[i]);
        if ((want != got) || ((signbit(floats[i]) != 0) != (halves[i] >> 15))) {
            fail_msg("%s %s: %a became 0x%04x (%a), not %a", ops->name, k->name, (double)floats[i],
                     halves[i], got, want);
        }
    }
}

static void widening_is_exact_and_comes_back(const struct gf_element_ops *ops,
                                             const struct half_kind *k)
{
    for (uint32_t i = 0; i < HALVES; i++) halves[i] = (uint16_t)i;
    widen(ops, k->type, HALVES);
    for (uint32_t i = 0; i < HALVES; i++) {
        double want = half_value(k, (uint16_t)i);
        if (isnan(want)) {
            uint32_t payload = (i & (uint32_t)((1 << k->mantissa_bits) - 1))
                               << (23 - k->mantissa_bits);
            assert_int_equal(gf_f32_bits(floats[i]), ((i & 0x8000u) << 16) | 0x7fc00000u | payload);
        } else if (((double)floats[i] != want) || ((signbit(floats[i]) != 0) != (i >= 0x8000))) {
            fail_msg("%s %s: 0x%04x became %a, not %a", ops->name, k->name, i, (double)floats[i],
                     want);
        }
    }
    narrow(ops, k->type, HALVES);
    for (uint32_t i = 0; i < HALVES; i++) {
        uint32_t quiet = isnan(half_value(k, (uint16_t)i)) ? 1u << (k->mantissa_bits - 1) : 0;
        assert_int_equal(halves[i], i | quiet);
    }
}

static void nan_stays_nan_with_its_top_payload(const struct gf_element_ops *ops,
                                               const struct half_kind *k)
{
    static const uint32_t nans[] = {0x7f800001, 0xff800001, 0x7fc00000, 0xffc00000,
                                    0x7fffffff, 0xffffffff, 0x7f802000, 0x7f810000,
                                    0xffabcdef, 0x7fbfffff, 0x7fff8000, 0xffffe000};
    uint32_t count = 3 * LENGTH(nans); /* in whole vectors, too */
    for (uint32_t i = 0; i < count; i++)
        memcpy(&floats[i], &nans[i % LENGTH(nans)], sizeof floats[i]);
    narrow(ops, k->type, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bits = nans[i % LENGTH(nans)];
        uint32_t payload = ((bits | 0x400000u) & 0x7fffffu) >> (23 - k->mantissa_bits);
        uint32_t infinity = 0x7fffu & ~((1u << k->mantissa_bits) - 1);
        assert_int_equal(halves[i], ((bits >> 16) & 0x8000u) | infinity | payload);
    }
}

static void each_version(void (*check)(const struct gf_element_ops *ops, const struct half_kind *k))
{
    for (uint32_t v = 0; v < gf_element_ops_variant_count; v++) {
        if (!gf_element_ops_supported(gf_element_ops_variants[v])) {
            print_message("%s: skipped, this CPU lacks it\n", gf_element_ops_variants[v]->name);
            continue;
        }
        for (size_t k = 0; k < LENGTH(kinds); k++) check(gf_element_ops_variants[v], &kinds[k]);
    }
}

TEST(test_narrowing)
{
    each_version(narrowing_rounds_to_nearest_even);
}

TEST(test_widening)
{
    each_version(widening_is_exact_and_comes_back);
}

TEST(test_nan)
{
    each_version(nan_stays_nan_with_its_top_payload);
}
