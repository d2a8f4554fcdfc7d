/* Element ops of the host: every width that this CPU runs has the bytes of the definition, a vector
 * of one. That is held against the kernels, which are written from the same words in ops.h, by
 * test_simt_ops; what neither tells stands here as numbers. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/ops_pair.h"
#include "ops/element/host/half.h"
#include "ops/element/host/ops_host.h"

#define MANY_ELEMS (130u * GF_RUN_ELEMS + 77u) /* lanes of a norm's second level get several runs */

static const struct gf_element_ops *variant(uint32_t v)
{
    if (gf_element_ops_supported(gf_element_ops_variants[v])) return gf_element_ops_variants[v];
    print_message("%s: skipped, this CPU lacks it\n", gf_element_ops_variants[v]->name);
    return NULL;
}

static void upload(struct ops_pair *pair, gf_mem dst, const void *src, uint64_t size_bytes)
{
    memcpy((void *)(uintptr_t)dst, src, size_bytes);
}

static void download(struct ops_pair *pair, void *dst, gf_mem src, uint64_t size_bytes)
{
    memcpy(dst, (const void *)(uintptr_t)src, size_bytes);
}

/* Every width on `count` elements, in ranges that begin on no boundary at all, too. */
static void widths_run(uint64_t elems_max, uint64_t count, uint32_t turn)
{
    for (uint32_t v = 1; v < gf_element_ops_variant_count; v++) {
        struct ops_pair pair = {.ops = variant(v),
                                .reference = gf_element_ops_variants[0],
                                .elems_max = elems_max,
                                .skew_bytes = turn % 4,
                                .upload = upload,
                                .download = download};
        void *memory = malloc(ops_pair_bytes(elems_max));
        assert_non_null(memory);
        pair.device = (gf_mem)(uintptr_t)memory;
        ops_pair_begin(&pair);
        if ((pair.ops != NULL) && !ops_pair_run(&pair, count, turn * 7 % 9, turn + v))
            fail_msg("%s: %u elements", pair.ops->name, (unsigned)count);
        ops_pair_end(&pair);
        free(memory);
    }
}

TEST(every_width_has_the_bytes_of_the_definition)
{
    for (uint32_t turn = 0; turn <= 130; turn += (turn < 70) ? 1 : 3) widths_run(130, turn, turn);
}

TEST(many_elements_have_them_too)
{
    static const uint64_t counts[] = {1000, 4097, 32768, 65537, MANY_ELEMS};
    for (uint32_t i = 0; i < LENGTH(counts); i++) widths_run(counts[i], counts[i], i);
}

TEST(a_trust_ratio_is_that_of_the_paper)
{
    static const struct ratio_row {
        double weight_square, gradient_square;
        float scale, decay, epsilon, want;
    } rows[] = {
        {4, 16, 1, 0, 0, 0.5f * 2 / 4},
        {4, 16, 0.25f, 0.5f, 2, 0.5f * 2 / (1 + 1 + 2)},
        {0, 16, 1, 0.5f, 1, 1}, /* nothing is known of a tensor that is zero, or does not move */
        {4, 0, 1, 0.5f, 1, 1},
        {NAN, 16, 1, 0.5f, 1, 1},
        {2, 3, 1, 0.1f, 1e-9f, 0}, /* below */
        /* squares that fp32 does not hold, of norms that it holds */
        {1e-60, 4e-60, 1, 0, 0, 0.25f},
        {1e60, 4e60, 1, 0, 0, 0.25f},
        {1, 1e72, 1, 0, 0, 0.5e-36f},
    };
    for (uint32_t row = 0; row < LENGTH(rows) * gf_element_ops_variant_count; row++) {
        const struct ratio_row *r = &rows[row % LENGTH(rows)];
        const struct gf_element_ops *ops = variant(row / LENGTH(rows));
        float got = -1;
        float want = r->want;
        double w = sqrt(2);
        double g = sqrt(3);
        double d = (double)0.1f * w;
        struct gf_ratio ratio = {(gf_mem)(uintptr_t)&got,
                                 (gf_mem)(uintptr_t)&r->weight_square,
                                 (gf_mem)(uintptr_t)&r->gradient_square,
                                 r->scale,
                                 0.5f,
                                 r->decay,
                                 r->epsilon};
        if (ops == NULL) continue;
        if (want == 0)
            want = (float)(0.5 * w / ((g + d) + (double)1e-9f)); /* in the written order */
        assert_int_equal(ops->ratio(NULL, &ratio, 1), GF_OK);
        assert_int_equal(gf_f32_bits(got), gf_f32_bits(want));
    }
}

/* A run of 2^20 and two of half a unit in its last place as a double: they count only if they meet
 * before they meet that, as the runs 32 and 96 do in their lane. */
TEST(a_norm_adds_runs_in_lanes)
{
    uint64_t elem_count = 97ull * GF_RUN_ELEMS;
    uint16_t *values = calloc(elem_count, sizeof *values);
    assert_non_null(values);
    values[5] = gf_f16_of_f32(0x1p10f);
    for (uint64_t run = 32; run < 97; run += 64) /* two squares of 2^-34 in a lane */
        values[run * GF_RUN_ELEMS] = values[run * GF_RUN_ELEMS + GF_LANES] =
            gf_f16_of_f32(0x1p-17f);
    for (uint32_t v = 0; v < gf_element_ops_variant_count; v++) {
        double square = 0;
        const struct gf_norm norm = {(gf_mem)(uintptr_t)&square, (gf_mem)(uintptr_t)values,
                                     elem_count};
        if (variant(v) == NULL) continue;
        assert_int_equal(variant(v)->norm(NULL, 0, GF_TYPE_F16, &norm, 1), GF_OK);
        assert_true(square == 0x1p20 + 0x1p-32);
    }
    free(values);
}

/* Of finite values that a finite norm has: no square overflows, and none is lost. */
TEST(a_norm_holds_the_square_of_any_finite_value)
{
    static const struct norm_row {
        gf_type type;
        uint32_t bits;
        double value;
    } rows[] = {{GF_TYPE_F32, 0x7f7fffff, 0x1.fffffep127},
                {GF_TYPE_F32, 1, 0x1p-149},
                {GF_TYPE_F32, 0x20000000, 0x1p-63},
                {GF_TYPE_F32, 0xe0000000, -0x1p65},
                {GF_TYPE_BF16, 0x7f7f, 0x1.fep127},
                {GF_TYPE_BF16, 1, 0x1p-133},
                {GF_TYPE_F16, 0x7bff, 65504},
                {GF_TYPE_F16, 1, 0x1p-24}};
    enum { ELEMS = 3 * GF_RUN_ELEMS + 5, AT_EACH = 64 };
    static uint32_t values[ELEMS];
    for (uint32_t row = 0; row < LENGTH(rows) * gf_element_ops_variant_count; row++) {
        const struct norm_row *r = &rows[row % LENGTH(rows)];
        const struct gf_element_ops *ops = variant(row / LENGTH(rows));
        uint64_t bytes = gf_type_bytes(r->type);
        uint64_t count = 0;
        double square = 0;
        const struct gf_norm norm = {(gf_mem)(uintptr_t)&square, (gf_mem)(uintptr_t)values, ELEMS};
        memset(values, 0, sizeof values);
        for (uint64_t i = 5; i < ELEMS; i += AT_EACH, count++)
            memcpy((uint8_t *)values + i * bytes, &r->bits, bytes);
        if (ops == NULL) continue;
        assert_int_equal(ops->norm(NULL, 0, r->type, &norm, 1), GF_OK);
        assert_true(fabs(square / ((double)count * r->value * r->value) - 1) < 1e-14);
    }
}

/* A result that goes past the cache is that of casts that do not. On a line's first byte; with some
 * elements before the next line; with no element on a line's first byte. */
TEST(casts_past_the_cache_have_the_bytes_of_short_ones)
{
    static const struct {
        gf_type dst, src;
        uint32_t offsets[2];
    } cases[] = {{GF_TYPE_BF16, GF_TYPE_F32, {6, 23}},
                 {GF_TYPE_F16, GF_TYPE_F32, {0, 62}},
                 {GF_TYPE_F32, GF_TYPE_F16, {60, 22}},
                 {GF_TYPE_F32, GF_TYPE_BF16, {4, 0}}};
    enum { SHORT = 4096, MOST = GF_STREAM_BYTES / 2 + 1001, BYTES = GF_STREAM_BYTES + 8192 };
    uint8_t *from = malloc(MOST * sizeof(float));
    uint8_t *to = aligned_alloc(GF_LINE_BYTES, BYTES);
    uint8_t *want = malloc(BYTES);
    assert_true((from != NULL) && (to != NULL) && (want != NULL));
    for (uint32_t row = 0; row < LENGTH(cases) * 2 * gf_element_ops_variant_count; row++) {
        gf_type dst = cases[row / 2 % LENGTH(cases)].dst;
        gf_type src = cases[row / 2 % LENGTH(cases)].src;
        const struct gf_element_ops *ops = variant(row / 2 / LENGTH(cases));
        uint64_t at = GF_LINE_BYTES + cases[row / 2 % LENGTH(cases)].offsets[row % 2];
        uint64_t size = gf_type_size_bytes(dst);
        uint64_t elem_count = GF_STREAM_BYTES / size + 1001 - 997 * (row / 2 % 2);
        uint64_t bad[] = {40, elem_count - 2};
        struct gf_check check = {0, UINT64_MAX};
        if (ops == NULL) continue;
        for (uint64_t i = 0; i < elem_count; i++) { /* finite in each type */
            uint32_t bits = (uint32_t)i * 2654435761u & 0xbfffbfffu;
            memcpy(from + i * gf_type_size_bytes(src), &bits, gf_type_size_bytes(src));
        }
        for (uint32_t i = 0; i < 2; i++) {
            uint32_t infinite = (src == GF_TYPE_F16)    ? 0x7c00u
                                : (src == GF_TYPE_BF16) ? 0x7f80u
                                                        : 0x7f800000u;
            memcpy(from + bad[i] * gf_type_size_bytes(src), &infinite, gf_type_size_bytes(src));
        }
        memset(to, 0xa5, BYTES);
        memset(want, 0xa5, BYTES);
        for (uint64_t i = 0; i < elem_count; i += SHORT)
            assert_int_equal(ops->cast(NULL, (gf_mem)(uintptr_t)(want + at + i * size), dst,
                                       (gf_mem)(uintptr_t)(from + i * gf_type_size_bytes(src)), src,
                                       (elem_count - i < SHORT) ? elem_count - i : SHORT, 0.5f, 0,
                                       NULL),
                             GF_OK);
        assert_int_equal(ops->cast(NULL, (gf_mem)(uintptr_t)(to + at), dst, (gf_mem)(uintptr_t)from,
                                   src, elem_count, 0.5f, 9, &check),
                         GF_OK);
        assert_memory_equal(to, want, BYTES);
        assert_int_equal(check.bad_first, 9 + bad[0]);
        /* else some of the others are, too */
        if (dst != GF_TYPE_F16) assert_int_equal(check.bad_count, 2);
    }
    free(from);
    free(to);
    free(want);
}

/* What fills the last vector is no element: it is not counted, whatever the scale makes of it. */
TEST(a_cast_counts_elements_alone)
{
    const float scales[] = {INFINITY, NAN};
    float from[40] = {0};
    float to[40];
    for (uint32_t turn = 0; turn < LENGTH(from) * LENGTH(scales) * gf_element_ops_variant_count;
         turn++) {
        const struct gf_element_ops *ops = variant(turn / LENGTH(from) / LENGTH(scales));
        struct gf_check check = {0, UINT64_MAX};
        if (ops == NULL) continue;
        assert_int_equal(ops->cast(NULL, (gf_mem)(uintptr_t)to, GF_TYPE_F16,
                                   (gf_mem)(uintptr_t)from, GF_TYPE_F32, turn % LENGTH(from) + 1,
                                   scales[turn / LENGTH(from) % 2], 0, &check),
                         GF_OK);
        assert_int_equal(check.bad_count, turn % LENGTH(from) + 1);
        assert_int_equal(check.bad_first, 0);
    }
}

TEST(copies_and_zeroes_keep_to_their_range)
{
    uint8_t src[400];
    uint8_t dst[400];
    uint8_t want[400];
    const gf_mem from = (gf_mem)(uintptr_t)(src + 3);
    const gf_mem to = (gf_mem)(uintptr_t)(dst + 1);
    for (uint32_t i = 0; i < sizeof src; i++) src[i] = (uint8_t)(i * 37);
    for (uint32_t size = 0; size < 300; size += 7) {
        memset(dst, 0xa5, sizeof dst);
        memset(want, 0xa5, sizeof want);
        assert_int_equal(gf_element_ops_best()->copy(NULL, to, from, size), GF_OK);
        memcpy(want + 1, src + 3, size);
        assert_memory_equal(dst, want, sizeof dst);
        assert_int_equal(gf_element_ops_best()->copy(NULL, to, to, size), GF_OK);
        assert_int_equal(gf_element_ops_best()->zero(NULL, (gf_mem)(uintptr_t)(dst + 5), size / 2),
                         GF_OK);
        memset(want + 5, 0, size / 2);
        assert_memory_equal(dst, want, sizeof dst);
    }
}
