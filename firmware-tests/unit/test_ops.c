/* Element ops of an exchange: every version this CPU runs, and the dispatching table, against loops written from the
 * words in ops.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/ops_areas.h"
#include "ops/element/host/half.h"

/* With chunks: of the listed ones. */
static void cast_case(const struct turn *t, gf_type dst_type, bool in_place, const struct gf_chunks *chunks)
{
    struct gf_check got = {3, 7000000}, want = got, *check = t->finite ? NULL : &got;
    uint64_t base = 1000000 + t->count;
    struct range src = range_filled(t, SOURCE, t->offset, t->type);
    struct range dst = in_place ? src : range_empty(OUT, chunks ? 4 : t->offset, dst_type);
    struct span span;
    gf_status status;
    if (chunks == NULL)
        status = t->ops->cast(NULL, mem(dst), dst_type, mem(src), t->type, t->count, t->scale, base, check);
    else
        status = gf_sparse_ops(t->ops)->cast_chunks(NULL, mem(dst), dst_type, mem(src), t->type, chunks, t->scale, base,
                                                    check);
    assert_int_equal(status, GF_OK);
    for (uint32_t n = 0; span_at(t, chunks, n, &span); n++) {
        for (uint64_t i = 0; i < span.count; i++) {
            set(dst, span.dst + i, at(src, span.src + i) * t->scale);
            if (!t->finite) count_bad(&want, at(dst, span.dst + i), base + span.src + i);
        }
    }
    if ((chunks == NULL) && !same_bits(dst)) {
        same(t, "cast", dst);
        fail_msg("cast %s: the bits of a NaN differ (types %d, %d)", t->ops->name, dst_type, t->type);
    }
    same(t, "cast", dst);
    same(t, "cast's source", src);
    same_check(t, "cast", &got, &want);
}

static void cast_cases(const struct turn *t)
{
    for (uint32_t d = 0; d < 3; d++) cast_case(t, types[d], false, NULL);
    cast_case(t, t->type, true, NULL);
}

static void sum_case(const struct turn *t, bool doubled)
{
    struct gf_check got = {0, UINT64_MAX}, want = got;
    struct range dst = range_filled(t, OUT, t->offset, t->type), other = range_filled(t, SOURCE, 4, t->type);
    struct range src = doubled ? dst : other;
    assert_int_equal(t->ops->sum(NULL, mem(dst), mem(src), t->type, t->count, 5, t->finite ? NULL : &got), GF_OK);
    for (uint64_t i = 0; i < t->count; i++) {
        set(dst, i, at(dst, i) + at(src, i));
        if (!t->finite) count_bad(&want, at(dst, i), 5 + i);
    }
    same(t, "sum", dst);
    same(t, "sum's source", other);
    same_check(t, "sum", &got, &want);
}

static void sum_cases(const struct turn *t)
{
    sum_case(t, false);
    sum_case(t, true);
}

/* Sources at offsets of their own; the first `in_place` destinations are sources, the others hold nothing. */
static void sum_n_case(const struct turn *t, uint32_t src_count, uint32_t dst_count, uint32_t in_place)
{
    static const uint32_t sources[] = {SOURCE, OTHER, WEIGHT, MOMENTUM}, others[] = {OUT, OUT_TOO, HALF};
    struct gf_check got = {0, UINT64_MAX}, want = got, got_sources = got, want_sources = got;
    struct range from[4], to[4];
    gf_mem src[4], dst[4];
    for (uint32_t s = 0; s < src_count; s++) {
        from[s] = range_filled(t, sources[s], 4 * s, t->type);
        src[s] = mem(from[s]);
    }
    for (uint32_t d = 0; d < dst_count; d++) {
        to[d] = (d < in_place) ? from[d] : range_empty(others[d - in_place], t->offset, t->type);
        dst[d] = mem(to[d]);
    }
    assert_int_equal(gf_node_ops(t->ops)->sum_n(NULL, dst, dst_count, src, src_count, t->type, t->count, 11,
                                                t->finite ? NULL : &got, t->finite ? NULL : &got_sources), GF_OK);
    for (uint64_t i = 0; i < t->count; i++) {
        float value = at(from[0], i);
        uint8_t rounded[4];
        for (uint32_t s = 0; !t->finite && (s < src_count); s++)
            count_bad(&want_sources, at(from[s], i), ((uint64_t)s << GF_SOURCE_SHIFT) + 11 + i);
        for (uint32_t s = 1; s < src_count; s++) value += at(from[s], i);
        put(rounded, t->type, 0, value);
        if (!t->finite) count_bad(&want, get(rounded, t->type, 0), 11 + i);
        for (uint32_t d = 0; d < dst_count; d++) set(to[d], i, value);
    }
    for (uint32_t d = 0; d < dst_count; d++) same(t, "sum_n", to[d]);
    for (uint32_t s = 0; s < src_count; s++) same(t, "sum_n's source", from[s]);
    same_check(t, "sum_n", &got, &want);
    same_check(t, "sum_n's sources", &got_sources, &want_sources);
}

static void sum_n_cases(const struct turn *t)
{
    sum_n_case(t, 1, 1, 0);
    sum_n_case(t, 2, 2, 2);
    sum_n_case(t, 2, 2, 0);
    sum_n_case(t, 3, 1, 1);
    sum_n_case(t, 4, 4, 4);
    sum_n_case(t, 3, 4, 2);
}

static void check_cases(const struct turn *t)
{
    struct gf_check got = {0, UINT64_MAX}, want = got;
    struct range src = range_filled(t, SOURCE, t->offset, t->type);
    for (uint64_t base = 1000; base != 0; base -= 500) { /* the later call has the lower indices */
        assert_int_equal(t->ops->check(NULL, mem(src), t->type, t->count, base, &got), GF_OK);
        for (uint64_t i = 0; i < t->count; i++) count_bad(&want, at(src, i), base + i);
    }
    same_check(t, "check", &got, &want);
    same(t, "check's source", src);
    if (t->finite) assert_int_equal(got.bad_count, 0);
}

static float tree_of(const float lanes[64])
{
    float sums[64];
    memcpy(sums, lanes, sizeof sums);
    for (int half = 32; half >= 1; half /= 2) {
        for (int l = 0; l < half; l++) sums[l] = sums[l] + sums[l + half];
    }
    return sums[0];
}

static float ordered_sum(const uint8_t *base, gf_type type, uint64_t count, bool squares)
{
    float lanes[64] = {0};
    for (uint64_t i = 0; i < count; i++) {
        float value = get(base, type, i);
        lanes[i % 64] += squares ? value * value : fabsf(value);
    }
    return tree_of(lanes);
}

static float range_sum(struct range r, uint64_t first, uint64_t count, bool squares)
{
    return ordered_sum(wanted_base(r) + first * size_of(r.type), r.type, count, squares);
}

static uint64_t run_elems(uint64_t left) { return (left < GF_RUN_ELEMS) ? left : GF_RUN_ELEMS; }

static void score_cases(const struct turn *t)
{
    const uint64_t chunks[] = {1, 63, 64, 65, 1000, t->count + 1};
    struct range src;
    if (t->type != GF_TYPE_F32) return;
    src = range_filled(t, SOURCE, t->offset, t->type);
    for (uint32_t c = 0; c < LENGTH(chunks); c++) {
        uint64_t scored = 0, piece = chunks[(c + t->count) % 6]; /* a piece of a chunk, or all of it */
        struct range out = range_empty(OUT, 4, GF_TYPE_F32);
        for (uint64_t first = 0; first < t->count; first += chunks[c]) {
            uint64_t end = (t->count - first < chunks[c]) ? t->count : first + chunks[c];
            float sum = 0;
            for (uint64_t from = first; from < end; from += piece) {
                uint64_t to = (end - from < piece) ? end : from + piece;
                float part = 0;
                for (uint64_t run = from; run < to; run += GF_RUN_ELEMS)
                    part += range_sum(src, run, run_elems(to - run), false);
                sum += part;
            }
            set(out, scored++, sum);
        }
        assert_int_equal(gf_sparse_ops(t->ops)->score(NULL, mem(out), mem(src), t->count, chunks[c], piece), GF_OK);
        same_count(t, "score", out, scored);
    }
}

static void norm_cases(const struct turn *t)
{
    const struct turn one = {.ops = t->ops, .count = 1, .finite = true};
    float lanes[64] = {0};
    uint64_t run = 0;
    struct range src = range_filled(t, SOURCE, t->offset, t->type), out = range_filled(&one, OUT, 0, GF_TYPE_F32);
    for (uint64_t first = 0; first < t->count; first += GF_RUN_ELEMS, run++)
        lanes[run % 64] += range_sum(src, first, run_elems(t->count - first), true);
    set(out, 0, at(out, 0) + tree_of(lanes));
    const struct gf_norm norm = {mem(out), mem(src), t->count};
    assert_int_equal(gf_optimizer_ops(t->ops)->norm(NULL, 0, t->type, &norm, 1), GF_OK);
    same(&one, "norm", out);
}

/* With chunks: of the listed ones. u: the momentum; it is read, and stored where that is asked for. */
static void accumulate_case(const struct turn *t, const struct gf_chunks *chunks, bool with_u, bool store_u,
                            bool with_weight, bool in_place)
{
    struct range src = range_filled(t, SOURCE, t->offset, t->type), h = range_filled(t, OTHER, 4, GF_TYPE_F32);
    struct range u = range_filled(t, MOMENTUM, t->offset, GF_TYPE_F32), w = range_filled(t, WEIGHT, 0, GF_TYPE_F32);
    struct range out_h = in_place ? h : range_empty(OUT, 4, GF_TYPE_F32);
    struct range out_u = in_place ? u : range_empty(OUT_TOO, t->offset, GF_TYPE_F32);
    const struct gf_accumulate some = {
        mem(out_h), mem(h), store_u ? mem(out_u) : 0, with_u ? mem(u) : 0, mem(src), t->type, with_weight ? mem(w) : 0,
        t->scale, 0.9f, 0.7f, 0.01f};
    struct span span;
    if (chunks != NULL) assert_int_equal(gf_sparse_ops(t->ops)->accumulate_chunks(NULL, &some, chunks), GF_OK);
    else assert_int_equal(gf_sparse_ops(t->ops)->accumulate(NULL, &some, t->count), GF_OK);
    for (uint32_t n = 0; span_at(t, chunks, n, &span); n++) {
        for (uint64_t i = 0; i < span.count; i++) {
            float g = t->scale * at(src, span.src + i), momentum = 0;
            if (with_weight) g = g + 0.01f * at(w, span.src + i);
            if (with_u) momentum = 0.9f * at(u, span.src + i) + g;
            if (store_u) set(out_u, span.dst + i, momentum);
            if (with_u) g = 0.7f * momentum + g;
            set(out_h, span.dst + i, at(h, span.src + i) + g);
        }
    }
    same(t, "accumulate's h", out_h);
    same(t, "accumulate's u", out_u);
    same(t, "accumulate's source", src);
    same(t, "accumulate's weight", w);
}

static void accumulate_cases(const struct turn *t)
{
    for (uint32_t mask = 0; mask < 16; mask++) {
        if ((mask & 2) && !(mask & 1)) continue; /* no u, nothing to store */
        if ((t->count > 2000) && (mask != 15) && (mask != 7)) continue;
        accumulate_case(t, NULL, mask & 1, mask & 2, mask & 4, mask & 8);
    }
}

static void chunks_cases(const struct turn *t)
{
    static const uint64_t sizes[] = {1, 7, 64, 129};
    for (uint32_t c = 0; c < 4; c++) {
        uint64_t chunk_elems = sizes[c] + t->count / 500;
        struct gf_chunks chunks;
        struct range out;
        for (uint32_t mask = 0; mask < 4; mask++) {
            bool full = (c + mask) % 2 == 0;
            chunks = chunks_make(t->count, chunk_elems, mask & 1, mask & 2);
            cast_case(t, types[(c + mask) % 3], false, &chunks);
            accumulate_case(t, &chunks, full, full, full, false);
        }
        chunks = chunks_make(t->count, chunk_elems, true, true);
        out = range_filled(t, OUT, t->offset, t->type);
        assert_int_equal(gf_sparse_ops(t->ops)->zero_chunks(NULL, mem(out), t->type, &chunks), GF_OK);
        for (uint32_t n = 0; n < chunks.count; n++)
            for (uint64_t i = dst_list[n] * chunk_elems; (i < (dst_list[n] + 1) * chunk_elems) && (i < t->count); i++)
                set(out, i, 0);
        same(t, "zero_chunks", out);
    }
}

TEST(test_cast) { each_version(cast_cases); }
TEST(test_sum) { each_version(sum_cases); }
TEST(test_sum_n) { each_version(sum_n_cases); }
TEST(test_check) { each_version(check_cases); }
TEST(test_score) { each_version(score_cases); }
TEST(test_norm) { each_version(norm_cases); }
TEST(test_accumulate) { each_version(accumulate_cases); }
TEST(test_chunks) { each_version(chunks_cases); }

/* A run of 1 and two of half a unit in its last place: they count only if they meet before they meet the 1, as the runs
 * 32 and 96 do in their lane. */
TEST(test_norm_adds_runs_in_lanes)
{
    uint64_t elem_count = 97ull * GF_RUN_ELEMS;
    uint16_t *values = calloc(elem_count, sizeof *values);
    assert_non_null(values);
    values[5] = gf_f16_of_f32(1);
    values[32ull * GF_RUN_ELEMS] = values[97ull * GF_RUN_ELEMS - 1] = gf_f16_of_f32(0x1p-12f);
    for (uint32_t v = 0; v < gf_element_ops_variant_count; v++) {
        float square = 0;
        if (!gf_element_ops_variants[v].supported()) continue;
        const struct gf_norm norm = {(gf_mem)(uintptr_t)&square, (gf_mem)(uintptr_t)values, elem_count};
        assert_int_equal(gf_optimizer_ops(gf_element_ops_variants[v].ops)->norm(NULL, 0, GF_TYPE_F16, &norm, 1), GF_OK);
        assert_int_equal(gf_f32_bits(square), 0x3f800001);
    }
    free(values);
}

/* More than 64 runs, so that lanes of the second level get several. */
TEST(test_a_norm_of_many_runs)
{
    uint64_t elem_count = 128ull * GF_RUN_ELEMS + 77;
    uint16_t *from = malloc(elem_count * sizeof *from);
    float lanes[64] = {0};
    assert_non_null(from);
    areas_whole();
    for (uint64_t i = 0; i < elem_count; i++) put((uint8_t *)from, GF_TYPE_F16, i, (float)(next() % 4096) / 4096);
    for (uint64_t run = 0; run * GF_RUN_ELEMS < elem_count; run++) {
        uint64_t first = run * GF_RUN_ELEMS, left = elem_count - first;
        lanes[run % 64] += ordered_sum((const uint8_t *)(from + first), GF_TYPE_F16, run_elems(left), true);
    }
    for (uint32_t v = 0; v < gf_element_ops_variant_count; v++) {
        float square = 0;
        if (!gf_element_ops_variants[v].supported()) continue;
        const struct gf_norm norm = {(gf_mem)(uintptr_t)&square, (gf_mem)(uintptr_t)from, elem_count};
        assert_int_equal(gf_optimizer_ops(gf_element_ops_variants[v].ops)->norm(NULL, 0, GF_TYPE_F16, &norm, 1), GF_OK);
        assert_int_equal(gf_f32_bits(square), gf_f32_bits(tree_of(lanes)));
    }
    free(from);
}

/* A cast whose result goes past the cache, `offset` bytes behind a line; two results are infinite. */
static void long_cast(const struct gf_element_ops *ops, uint8_t *to, uint32_t offset, gf_type dst_type, uint8_t *from,
                      gf_type src_type, uint64_t elem_count)
{
    uint64_t dst_bytes = (dst_type == GF_TYPE_F32) ? 4 : 2, early = 40, late = elem_count - 2;
    uint8_t *dst = to + GF_LINE_BYTES + offset, want[4];
    float early_was = get(from, src_type, early), late_was = get(from, src_type, late);
    struct gf_check check = {0, UINT64_MAX};
    put(from, src_type, early, INFINITY);
    put(from, src_type, late, -INFINITY);
    memset(to, 0xa5, 4 * GF_LINE_BYTES + elem_count * dst_bytes);
    assert_int_equal(ops->cast(NULL, (gf_mem)(uintptr_t)dst, dst_type, (gf_mem)(uintptr_t)from, src_type, elem_count,
                               0.5f, 9, &check), GF_OK);
    assert_int_equal(check.bad_count, 2);
    assert_int_equal(check.bad_first, 9 + early);
    assert_int_equal(dst[-1], 0xa5);
    assert_int_equal(dst[elem_count * dst_bytes], 0xa5);
    for (uint64_t i = 0; i < elem_count; i++) {
        put(want, dst_type, 0, get(from, src_type, i) * 0.5f);
        if (memcmp(want, dst + i * dst_bytes, dst_bytes) != 0)
            fail_msg("%s: types %d and %d, offset %u: element %llu is wrong", ops->name, (int)dst_type, (int)src_type,
                     offset, (unsigned long long)i);
    }
    put(from, src_type, early, early_was);
    put(from, src_type, late, late_was);
}

TEST(test_casts_past_the_cache)
{
    /* On a line's first byte; with some elements before the next line; with no element on a line's first byte. */
    static const struct { gf_type dst, src; uint32_t offsets[2]; } cases[] = {
        {GF_TYPE_BF16, GF_TYPE_F32, {6, 23}}, {GF_TYPE_F16, GF_TYPE_F32, {0, 62}},
        {GF_TYPE_F32, GF_TYPE_F16, {60, 22}}, {GF_TYPE_F32, GF_TYPE_BF16, {4, 0}},
    };
    uint64_t most = GF_STREAM_BYTES / 2 + 1001;
    uint8_t *from = malloc(most * 4), *to = aligned_alloc(GF_LINE_BYTES, GF_STREAM_BYTES + 8192);
    assert_non_null(from);
    assert_non_null(to);
    for (uint32_t c = 0; c < LENGTH(cases); c++) {
        uint64_t elem_count = GF_STREAM_BYTES / (cases[c].dst == GF_TYPE_F32 ? 4 : 2) + 1001 - 997 * (c % 2);
        for (uint64_t i = 0; i < elem_count; i++) put(from, cases[c].src, i, (float)(next() % 4096) / 4096);
        for (uint32_t turn = 0; turn < LENGTH(cases[c].offsets) * gf_element_ops_variant_count; turn++) {
            uint32_t v = turn % gf_element_ops_variant_count;
            const struct gf_element_ops_variant *variant = &gf_element_ops_variants[v];
            uint32_t offset = cases[c].offsets[turn / gf_element_ops_variant_count];
            if (variant->supported()) long_cast(variant->ops, to, offset, cases[c].dst, from, cases[c].src, elem_count);
        }
    }
    free(from);
    free(to);
}

TEST(test_copy_and_zero)
{
    const struct turn all = {.ops = gf_element_ops_best(), .count = ELEMS_MAX};
    areas_whole();
    for (uint32_t size = 0; size < 300; size += 7) {
        struct range src = range_filled(&all, SOURCE, 0, GF_TYPE_F32), dst = range_empty(OUT, 0, GF_TYPE_F32);
        assert_int_equal(gf_element_ops_best()->copy(NULL, mem(dst) + 1, mem(src) + 3, size), GF_OK);
        memcpy(wanted_base(dst) + 1, wanted_base(src) + 3, size);
        assert_true(same_bits(dst));
        assert_int_equal(gf_element_ops_best()->copy(NULL, mem(dst) + 1, mem(dst) + 1, size), GF_OK);
        assert_int_equal(gf_element_ops_best()->zero(NULL, mem(dst) + 5, size / 2), GF_OK);
        memset(wanted_base(dst) + 5, 0, size / 2);
        assert_true(same_bits(dst) && same_bits(src));
    }
}
