/* Element ops: every version this CPU runs, and the dispatching table, against loops written from the words in ops.h.
 * Where an op meets two NaNs at once, which of them comes out is open; everything else is compared bit by bit. */
#include "firmware-tests/support/suite.h"
#include "ops/element/host/half.h"
#include "ops/element/host/ops_host.h"

#define ELEMS_MAX 70000u
#define GUARD 64u
#define AREA_BYTES (ELEMS_MAX * 4u + 2u * GUARD)

enum { WEIGHT, MOMENTUM, HALF, SOURCE, OTHER, OUT, OUT_TOO, AREAS };
#define MOMENT2 OTHER

/* Each area twice: what the op under test works on, and what the reference works on. */
static uint8_t tested[AREAS][AREA_BYTES], wanted[AREAS][AREA_BYTES];
static const gf_type types[] = {GF_TYPE_F32, GF_TYPE_F16, GF_TYPE_BF16};
static const uint32_t big_counts[] = {1000, 4097, 32768, 65537};
static const float scales[] = {1.0f, 0.25f, -3.1e-3f, 65536.0f, INFINITY};
static uint32_t seed;
static size_t area_bytes; /* of the areas, that the case at hand may touch or must leave alone */

static uint32_t next(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) | (seed << 24);
}

static size_t size_of(gf_type type)
{
    return (type == GF_TYPE_F32) ? 4 : 2;
}

static float get(const uint8_t *base, gf_type type, uint64_t i)
{
    uint32_t bits = 0;
    memcpy(&bits, base + i * size_of(type), size_of(type));
    if (type == GF_TYPE_F16) return gf_f32_of_f16((uint16_t)bits);
    return gf_f32_of_bits((type == GF_TYPE_BF16) ? bits << 16 : bits);
}

static void put(uint8_t *base, gf_type type, uint64_t i, float value)
{
    uint32_t bits = gf_f32_bits(value);
    if (type == GF_TYPE_F16) bits = gf_f16_of_f32(value);
    if (type == GF_TYPE_BF16) bits = gf_bf16_of_f32(value);
    memcpy(base + i * size_of(type), &bits, size_of(type));
}

/* Mostly of the size of gradients; special ones in between. Where a sum is to be looked at, none that is not finite. */
static void fill(uint32_t area, uint32_t offset, gf_type type, uint64_t count, bool finite)
{
    static const uint32_t specials[] = {0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x38800000, 0x33000001,
                                        0x477fe000, 0x477ff000, 0x47800000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff,
                                        0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffabcdef};
    uint8_t *base = tested[area] + GUARD + offset;
    memset(tested[area], 0xa5, area_bytes);
    for (uint64_t i = 0; i < count; i++) {
        uint32_t kind = next() % 16;
        float value = ((float)next() - 2147483648.0f) * 0x1p-33f;
        if (!finite && (kind == 0)) value = gf_f32_of_bits(specials[next() % (LENGTH(specials))]);
        if (!finite && (kind == 1)) value = gf_f32_of_bits(next());
        if (kind == 2) value *= 0x1p-20f;
        if (kind == 3) value = 0;
        put(base, type, i, value);
    }
    memcpy(wanted[area], tested[area], area_bytes);
}

static gf_mem mem(uint32_t area, uint32_t offset)
{
    return (gf_mem)(uintptr_t)(tested[area] + GUARD + offset);
}

static uint8_t *want_at(uint32_t area, uint32_t offset)
{
    return wanted[area] + GUARD + offset;
}

/* Bytes before and behind the elements included. */
static void same_area(const char *op, const struct gf_ops *ops, uint32_t area, uint32_t offset, gf_type type,
                        uint64_t count)
{
    if (memcmp(tested[area], wanted[area], area_bytes) == 0) return;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *base = tested[area] + GUARD + offset;
        float got = get(base, type, i), want = get(want_at(area, offset), type, i);
        if (isnan(got) && isnan(want)) {
            memcpy(want_at(area, offset) + i * size_of(type), base + i * size_of(type), size_of(type));
        } else if (gf_f32_bits(got) != gf_f32_bits(want)) {
            fail_msg("%s %s: element %llu of %llu is %a, not %a (area %u, offset %u, type %d)", op, ops->name,
                     (unsigned long long)i, (unsigned long long)count, (double)got, (double)want, area, offset, type);
        }
    }
    if (memcmp(tested[area], wanted[area], area_bytes) != 0) {
        fail_msg("%s %s: wrote outside of %llu elements (area %u, offset %u)", op, ops->name, (unsigned long long)count,
                 area, offset);
    }
}

static void same_check(const char *op, const struct gf_ops *ops, const struct gf_check *got,
                         const struct gf_check *want)
{
    if ((got->bad_count == want->bad_count) && (got->bad_first == want->bad_first)) return;
    fail_msg("%s %s: %llu bad from %llu, not %llu from %llu", op, ops->name, (unsigned long long)got->bad_count,
             (unsigned long long)got->bad_first, (unsigned long long)want->bad_count,
             (unsigned long long)want->bad_first);
}

static void count_bad(struct gf_check *check, float value, uint64_t index)
{
    if (isfinite(value)) return;
    check->bad_count++;
    if (index < check->bad_first) check->bad_first = index;
}

/* ---- the cases: each is run for every version, count, offset and type ---- */

struct turn {
    const struct gf_ops *ops;
    gf_type type;
    uint64_t count;
    uint32_t offset;
    float scale;
    bool finite;
};

static void cast_case(const struct turn *t, gf_type dst_type, bool in_place)
{
    struct gf_check got = {3, 7000000}, want = got;
    uint64_t base = 1000000 + t->count;
    uint32_t out = in_place ? SOURCE : OUT;
    fill(OUT, t->offset, dst_type, 0, true);
    fill(SOURCE, t->offset, t->type, t->count, t->finite);
    assert_int_equal(t->ops->cast(NULL, mem(out, t->offset), dst_type, mem(SOURCE, t->offset), t->type, t->count,
                                  t->scale, base, t->finite ? NULL : &got), GF_OK);
    for (uint64_t i = 0; i < t->count; i++) {
        put(want_at(out, t->offset), dst_type, i, get(want_at(SOURCE, t->offset), t->type, i) * t->scale);
        if (!t->finite) count_bad(&want, get(want_at(out, t->offset), dst_type, i), base + i);
    }
    if (memcmp(tested[out], wanted[out], area_bytes) != 0) {
        same_area("cast", t->ops, out, t->offset, dst_type, t->count);
        fail_msg("cast %s: the bits of a NaN differ (types %d, %d)", t->ops->name, dst_type, t->type);
    }
    same_area("cast's source", t->ops, SOURCE, t->offset, t->type, t->count);
    same_check("cast", t->ops, &got, &want);
}

static void cast_cases(const struct turn *t)
{
    for (uint32_t d = 0; d < 3; d++) cast_case(t, types[d], false);
    cast_case(t, t->type, true);
}

static void sum_case(const struct turn *t, bool doubled)
{
    struct gf_check got = {0, UINT64_MAX}, want = got;
    uint32_t src = doubled ? OUT : SOURCE;
    fill(OUT, t->offset, t->type, t->count, t->finite);
    fill(SOURCE, 4, t->type, t->count, t->finite);
    assert_int_equal(t->ops->sum(NULL, mem(OUT, t->offset), mem(src, doubled ? t->offset : 4), t->type, t->count, 5,
                                 t->finite ? NULL : &got), GF_OK);
    for (uint64_t i = 0; i < t->count; i++) {
        uint8_t *dst = want_at(OUT, t->offset);
        put(dst, t->type, i, get(dst, t->type, i) + get(want_at(src, doubled ? t->offset : 4), t->type, i));
        if (!t->finite) count_bad(&want, get(dst, t->type, i), 5 + i);
    }
    same_area("sum", t->ops, OUT, t->offset, t->type, t->count);
    same_area("sum's source", t->ops, SOURCE, 4, t->type, t->count);
    same_check("sum", t->ops, &got, &want);
}

static void sum_cases(const struct turn *t)
{
    sum_case(t, false);
    sum_case(t, true);
}

/* Sources at offsets of their own; the first `in_place` destinations are sources, the others areas that hold nothing. */
static void sum_n_case(const struct turn *t, uint32_t src_count, uint32_t dst_count, uint32_t in_place)
{
    static const uint32_t sources[] = {SOURCE, OTHER, WEIGHT, MOMENTUM}, others[] = {OUT, OUT_TOO, HALF};
    struct gf_check got = {0, UINT64_MAX}, want = got, got_sources = got, want_sources = got;
    uint32_t areas[4], offsets[4];
    gf_mem src[4], dst[4];
    for (uint32_t a = 0; a < AREAS; a++) fill(a, 0, t->type, 0, true);
    for (uint32_t s = 0; s < src_count; s++) {
        fill(sources[s], 4 * s, t->type, t->count, t->finite);
        src[s] = mem(sources[s], 4 * s);
    }
    for (uint32_t d = 0; d < dst_count; d++) {
        areas[d] = (d < in_place) ? sources[d] : others[d - in_place];
        offsets[d] = (d < in_place) ? 4 * d : t->offset;
        dst[d] = mem(areas[d], offsets[d]);
    }
    assert_int_equal(t->ops->sum_n(NULL, dst, dst_count, src, src_count, t->type, t->count, 11,
                                   t->finite ? NULL : &got, t->finite ? NULL : &got_sources), GF_OK);
    for (uint64_t i = 0; i < t->count; i++) {
        for (uint32_t s = 0; !t->finite && (s < src_count); s++)
            count_bad(&want_sources, get(want_at(sources[s], 4 * s), t->type, i),
                      ((uint64_t)s << GF_SOURCE_SHIFT) + 11 + i);
        float value = get(want_at(sources[0], 0), t->type, i);
        uint8_t rounded[4];
        for (uint32_t s = 1; s < src_count; s++) value += get(want_at(sources[s], 4 * s), t->type, i);
        put(rounded, t->type, 0, value);
        if (!t->finite) count_bad(&want, get(rounded, t->type, 0), 11 + i);
        for (uint32_t d = 0; d < dst_count; d++) put(want_at(areas[d], offsets[d]), t->type, i, value);
    }
    for (uint32_t d = 0; d < dst_count; d++) same_area("sum_n", t->ops, areas[d], offsets[d], t->type, t->count);
    for (uint32_t s = 0; s < src_count; s++)
        same_area("sum_n's source", t->ops, sources[s], 4 * s, t->type, t->count);
    same_check("sum_n", t->ops, &got, &want);
    same_check("sum_n's sources", t->ops, &got_sources, &want_sources);
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
    fill(SOURCE, t->offset, t->type, t->count, t->finite);
    for (uint64_t base = 1000; base != 0; base -= 500) { /* the later call has the lower indices */
        assert_int_equal(t->ops->check(NULL, mem(SOURCE, t->offset), t->type, t->count, base, &got), GF_OK);
        for (uint64_t i = 0; i < t->count; i++) count_bad(&want, get(want_at(SOURCE, t->offset), t->type, i), base + i);
    }
    same_check("check", t->ops, &got, &want);
    same_area("check's source", t->ops, SOURCE, t->offset, t->type, t->count);
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

static float ordered_sum(const uint8_t *base, gf_type type, uint64_t first, uint64_t count, bool squares)
{
    float lanes[64] = {0};
    for (uint64_t i = 0; i < count; i++) {
        float value = get(base, type, first + i);
        lanes[i % 64] += squares ? value * value : fabsf(value);
    }
    return tree_of(lanes);
}

static void score_cases(const struct turn *t)
{
    const uint64_t chunks[] = {1, 63, 64, 65, 1000, t->count + 1};
    if (t->type != GF_TYPE_F32) return;
    fill(SOURCE, t->offset, t->type, t->count, t->finite);
    for (uint32_t c = 0; c < LENGTH(chunks); c++) {
        uint64_t scored = 0, piece = chunks[(c + t->count) % 6]; /* a piece of a chunk, or all of it */
        fill(OUT, 4, GF_TYPE_F32, 0, true);
        for (uint64_t first = 0; first < t->count; first += chunks[c]) {
            uint64_t end = (t->count - first < chunks[c]) ? t->count : first + chunks[c];
            float sum = 0;
            for (uint64_t at = first; at < end; at += piece)
                sum += ordered_sum(want_at(SOURCE, t->offset), t->type, at, (end - at < piece) ? end - at : piece, false);
            put(want_at(OUT, 4), GF_TYPE_F32, scored++, sum);
        }
        assert_int_equal(t->ops->score(NULL, mem(OUT, 4), mem(SOURCE, t->offset), t->count, chunks[c], piece), GF_OK);
        same_area("score", t->ops, OUT, 4, GF_TYPE_F32, scored);
    }
}

static void norm_cases(const struct turn *t)
{
    float lanes[64] = {0};
    uint64_t run = 0;
    fill(SOURCE, t->offset, t->type, t->count, t->finite);
    fill(OUT, 0, GF_TYPE_F32, 1, true);
    for (uint64_t first = 0; first < t->count; first += GF_NORM_RUN_ELEMS, run++) {
        uint64_t left = t->count - first;
        lanes[run % 64] += ordered_sum(want_at(SOURCE, t->offset), t->type, first,
                                       left < GF_NORM_RUN_ELEMS ? left : GF_NORM_RUN_ELEMS, true);
    }
    put(want_at(OUT, 0), GF_TYPE_F32, 0, get(want_at(OUT, 0), GF_TYPE_F32, 0) + tree_of(lanes));
    assert_int_equal(t->ops->norm(NULL, mem(OUT, 0), 0, mem(SOURCE, t->offset), t->type, t->count), GF_OK);
    same_area("norm", t->ops, OUT, 0, GF_TYPE_F32, 1);
}

static void accumulate_case(const struct turn *t, bool with_u, bool store_u, bool with_weight, bool in_place)
{
    uint32_t out_h = in_place ? OTHER : OUT, out_u = in_place ? MOMENTUM : OUT_TOO;
    fill(SOURCE, t->offset, t->type, t->count, t->finite);
    fill(OTHER, 4, GF_TYPE_F32, t->count, t->finite);
    fill(MOMENTUM, t->offset, GF_TYPE_F32, t->count, t->finite), fill(WEIGHT, 0, GF_TYPE_F32, t->count, t->finite);
    fill(OUT, 4, GF_TYPE_F32, 0, true), fill(OUT_TOO, t->offset, GF_TYPE_F32, 0, true);
    const struct gf_accumulate some = {
        mem(out_h, 4), mem(OTHER, 4), store_u ? mem(out_u, t->offset) : 0, with_u ? mem(MOMENTUM, t->offset) : 0,
        mem(SOURCE, t->offset), t->type, with_weight ? mem(WEIGHT, 0) : 0, t->scale, 0.9f, 0.7f, 0.01f};
    assert_int_equal(t->ops->accumulate(NULL, &some, t->count), GF_OK);
    for (uint64_t i = 0; i < t->count; i++) {
        float g = t->scale * get(want_at(SOURCE, t->offset), t->type, i);
        if (with_weight) g = g + 0.01f * get(want_at(WEIGHT, 0), GF_TYPE_F32, i);
        float u = with_u ? 0.9f * get(want_at(MOMENTUM, t->offset), GF_TYPE_F32, i) + g : 0;
        if (store_u) put(want_at(out_u, t->offset), GF_TYPE_F32, i, u);
        g = with_u ? 0.7f * u + g : g;
        put(want_at(out_h, 4), GF_TYPE_F32, i, get(want_at(OTHER, 4), GF_TYPE_F32, i) + g);
    }
    same_area("accumulate's h", t->ops, out_h, 4, GF_TYPE_F32, t->count);
    same_area("accumulate's u", t->ops, out_u, t->offset, GF_TYPE_F32, t->count);
    same_area("accumulate's source", t->ops, SOURCE, t->offset, t->type, t->count);
    same_area("accumulate's weight", t->ops, WEIGHT, 0, GF_TYPE_F32, t->count);
}

static void accumulate_cases(const struct turn *t)
{
    for (uint32_t mask = 0; mask < 16; mask++) {
        if ((mask & 2) && !(mask & 1)) continue; /* no u, nothing to store */
        if ((t->count > 2000) && (mask != 15) && (mask != 7)) continue;
        accumulate_case(t, mask & 1, mask & 2, mask & 4, mask & 8);
    }
}

/* Chunks from and to all places of two ranges, the last of which is cut short; what is not listed stays. */
#define CHUNKS_MAX 700u
static uint32_t dst_list[CHUNKS_MAX], src_list[CHUNKS_MAX];

static struct gf_chunks chunks_make(uint64_t elem_count, uint64_t chunk_elems, bool list_dst, bool list_src)
{
    uint32_t chunk_count = (uint32_t)((elem_count + chunk_elems - 1) / chunk_elems), taken = 0;
    struct gf_chunks chunks = {.dst_list_u32 = list_dst ? (gf_mem)(uintptr_t)dst_list : 0,
                               .src_list_u32 = list_src ? (gf_mem)(uintptr_t)src_list : 0,
                               .chunk_elems = chunk_elems, .dst_elems = elem_count, .src_elems = elem_count};
    for (uint32_t c = 0; c < chunk_count; c++) /* a selection and what it would be packed to, or all in another order */
        if (!list_dst || !list_src || (next() % 3 != 0)) {
            dst_list[taken] = chunk_count - 1 - c;
            src_list[taken++] = c;
        }
    chunks.count = (list_dst && list_src) ? taken : (chunk_count + 1) / 2;
    return chunks;
}

static void want_chunk(const struct gf_chunks *chunks, uint32_t turn, uint64_t *dst, uint64_t *src, uint64_t *count)
{
    uint64_t dst_left, src_left;
    *dst = ((chunks->dst_list_u32 != 0) ? dst_list[turn] : turn) * chunks->chunk_elems;
    *src = ((chunks->src_list_u32 != 0) ? src_list[turn] : turn) * chunks->chunk_elems;
    dst_left = chunks->dst_elems - *dst;
    src_left = chunks->src_elems - *src;
    *count = (dst_left < src_left) ? dst_left : src_left;
    if (*count > chunks->chunk_elems) *count = chunks->chunk_elems;
}

static void cast_chunks_case(const struct turn *t, gf_type dst_type, uint64_t chunk_elems, bool list_dst, bool list_src)
{
    struct gf_chunks chunks = chunks_make(t->count, chunk_elems, list_dst, list_src);
    struct gf_check got = {3, 7000000}, want = got;
    fill(OUT, 4, dst_type, 0, true);
    fill(SOURCE, t->offset, t->type, t->count, t->finite);
    assert_int_equal(t->ops->cast_chunks(NULL, mem(OUT, 4), dst_type, mem(SOURCE, t->offset), t->type, &chunks, t->scale,
                                         900, t->finite ? NULL : &got), GF_OK);
    for (uint32_t turn = 0; turn < chunks.count; turn++) {
        uint64_t dst, src, count;
        want_chunk(&chunks, turn, &dst, &src, &count);
        for (uint64_t i = 0; i < count; i++) {
            put(want_at(OUT, 4), dst_type, dst + i, get(want_at(SOURCE, t->offset), t->type, src + i) * t->scale);
            if (!t->finite) count_bad(&want, get(want_at(OUT, 4), dst_type, dst + i), 900 + src + i);
        }
    }
    same_area("cast_chunks", t->ops, OUT, 4, dst_type, t->count);
    same_check("cast_chunks", t->ops, &got, &want);
}

static void accumulate_chunks_case(const struct turn *t, uint64_t chunk_elems, bool list_dst, bool list_src, bool full)
{
    struct gf_chunks chunks = chunks_make(t->count, chunk_elems, list_dst, list_src);
    fill(OUT, 4, GF_TYPE_F32, 0, true), fill(OUT_TOO, t->offset, GF_TYPE_F32, 0, true);
    fill(SOURCE, t->offset, t->type, t->count, t->finite);
    fill(OTHER, 0, GF_TYPE_F32, t->count, t->finite);
    fill(MOMENTUM, 8, GF_TYPE_F32, t->count, t->finite), fill(WEIGHT, 4, GF_TYPE_F32, t->count, t->finite);
    const struct gf_accumulate some = {
        mem(OUT, 4), mem(OTHER, 0), full ? mem(OUT_TOO, t->offset) : 0, full ? mem(MOMENTUM, 8) : 0,
        mem(SOURCE, t->offset), t->type, full ? mem(WEIGHT, 4) : 0, t->scale, 0.9f, 0.7f, 0.01f};
    assert_int_equal(t->ops->accumulate_chunks(NULL, &some, &chunks), GF_OK);
    for (uint32_t turn = 0; turn < chunks.count; turn++) {
        uint64_t dst, src, count;
        want_chunk(&chunks, turn, &dst, &src, &count);
        for (uint64_t i = 0; i < count; i++) {
            float g = t->scale * get(want_at(SOURCE, t->offset), t->type, src + i);
            if (full) g = g + 0.01f * get(want_at(WEIGHT, 4), GF_TYPE_F32, src + i);
            float u = full ? 0.9f * get(want_at(MOMENTUM, 8), GF_TYPE_F32, src + i) + g : 0;
            if (full) put(want_at(OUT_TOO, t->offset), GF_TYPE_F32, dst + i, u);
            if (full) g = 0.7f * u + g;
            put(want_at(OUT, 4), GF_TYPE_F32, dst + i, get(want_at(OTHER, 0), GF_TYPE_F32, src + i) + g);
        }
    }
    same_area("accumulate_chunks' h", t->ops, OUT, 4, GF_TYPE_F32, t->count);
    same_area("accumulate_chunks' u", t->ops, OUT_TOO, t->offset, GF_TYPE_F32, t->count);
}

static void chunks_cases(const struct turn *t)
{
    static const uint64_t sizes[] = {1, 7, 64, 129};
    for (uint32_t c = 0; c < 4; c++) {
        uint64_t chunk_elems = sizes[c] + t->count / 500;
        struct gf_chunks chunks;
        for (uint32_t mask = 0; mask < 4; mask++) {
            cast_chunks_case(t, types[(c + mask) % 3], chunk_elems, mask & 1, mask & 2);
            accumulate_chunks_case(t, chunk_elems, mask & 1, mask & 2, (c + mask) % 2 == 0);
        }
        chunks = chunks_make(t->count, chunk_elems, true, true);
        fill(OUT, t->offset, t->type, t->count, true);
        assert_int_equal(t->ops->zero_chunks(NULL, mem(OUT, t->offset), t->type, &chunks), GF_OK);
        for (uint32_t turn = 0; turn < chunks.count; turn++)
            for (uint64_t i = dst_list[turn] * chunk_elems; (i < (dst_list[turn] + 1) * chunk_elems) && (i < t->count); i++)
                put(want_at(OUT, t->offset), t->type, i, 0);
        same_area("zero_chunks", t->ops, OUT, t->offset, t->type, t->count);
    }
}

TEST(test_ratio)
{
    static const struct ratio_row {
        float weight_square, gradient_square, scale, decay, epsilon, want;
    } rows[] = {
        {4, 16, 1, 0, 0, 0.5f * 2 / 4},
        {4, 16, 0.25f, 0.5f, 2, 0.5f * 2 / (1 + 1 + 2)},
        {0, 16, 1, 0.5f, 1, 1}, /* nothing is known of a tensor that is zero, or does not move */
        {4, 0, 1, 0.5f, 1, 1},
        {NAN, 16, 1, 0.5f, 1, 1},
        {2, 3, 1, 0.1f, 1e-9f, 0}, /* below */
    };
    for (uint32_t v = 0; v <= gf_ops_variant_count; v++) {
        const struct gf_ops *ops = (v < gf_ops_variant_count) ? gf_ops_variants[v].ops : &gf_ops_host;
        if ((v < gf_ops_variant_count) && !gf_ops_variants[v].supported()) continue;
        for (uint32_t r = 0; r < LENGTH(rows); r++) {
            struct gf_ratio ratio = {.weight_square_f32 = (gf_mem)(uintptr_t)&rows[r].weight_square,
                                     .gradient_square_f32 = (gf_mem)(uintptr_t)&rows[r].gradient_square,
                                     .gradient_scale = rows[r].scale, .eta = 0.5f, .decay = rows[r].decay,
                                     .epsilon = rows[r].epsilon};
            float got = -1, want = rows[r].want;
            if (r == 5) { /* in the order that is written down */
                float w = sqrtf(2), g = sqrtf(3), d = 0.1f * w;
                want = 0.5f * w / ((g + d) + 1e-9f);
            }
            assert_int_equal(ops->ratio(NULL, (gf_mem)(uintptr_t)&got, &ratio), GF_OK);
            assert_int_equal(gf_f32_bits(got), gf_f32_bits(want));
        }
    }
}

/* chunk_elems 0: flat; else of listed chunks, and what is not listed stays. */
static void update_case(const struct turn *t, bool with_momentum, bool nesterov, const gf_type *half_type,
                        uint64_t chunk_elems)
{
    static bool is_listed[CHUNKS_MAX];
    struct gf_chunks chunks;
    float trust = 0.37f, rate_in = 1.0f, rate_out = 0.1f;
    struct gf_update update = {.gradient_type = t->type, .gradient_scale = t->scale, .momentum = 0.9f, .decay = 5e-4f,
                               .nesterov = nesterov};
    fill(WEIGHT, t->offset, GF_TYPE_F32, t->count, t->finite);
    fill(MOMENTUM, 4, GF_TYPE_F32, t->count, t->finite);
    fill(SOURCE, t->offset, t->type, t->count, t->finite);
    fill(HALF, t->offset, GF_TYPE_F16, 0, true);
    update.weight_f32 = mem(WEIGHT, t->offset);
    update.momentum_f32 = with_momentum ? mem(MOMENTUM, 4) : 0;
    update.half = half_type ? mem(HALF, t->offset) : 0;
    update.half_type = half_type ? *half_type : GF_TYPE_F32;
    update.gradient = mem(SOURCE, t->offset);
    update.ratio_f32 = (t->count % 2 == 0) ? (gf_mem)(uintptr_t)&trust : 0;
    update.rate_in = (t->count % 2 == 0) ? 0.1f : rate_in;
    update.rate_out = (t->count % 2 == 0) ? rate_out = 0.75f : rate_out;
    if (update.ratio_f32 != 0) rate_in = 0.1f * trust;
    memset(is_listed, chunk_elems == 0, sizeof is_listed);
    if (chunk_elems == 0) {
        assert_int_equal(t->ops->update(NULL, &update, t->count), GF_OK);
    } else {
        chunks = chunks_make(t->count, chunk_elems, true, true);
        for (uint32_t turn = 0; turn < chunks.count; turn++) is_listed[dst_list[turn]] = true;
        assert_int_equal(t->ops->update_chunks(NULL, &update, &chunks), GF_OK);
    }
    for (uint64_t i = 0; i < t->count; i++) {
        if (!is_listed[(chunk_elems == 0) ? 0 : i / chunk_elems]) continue;
        float weight = get(want_at(WEIGHT, t->offset), GF_TYPE_F32, i);
        float g = t->scale * get(want_at(SOURCE, t->offset), t->type, i) + 5e-4f * weight, d = g = rate_in * g;
        if (with_momentum) {
            float v = 0.9f * get(want_at(MOMENTUM, 4), GF_TYPE_F32, i) + g;
            put(want_at(MOMENTUM, 4), GF_TYPE_F32, i, v);
            d = nesterov ? 0.9f * v + g : v;
        }
        weight = weight - rate_out * d;
        put(want_at(WEIGHT, t->offset), GF_TYPE_F32, i, weight);
        if (half_type != NULL) put(want_at(HALF, t->offset), *half_type, i, weight);
    }
    same_area("update's weight", t->ops, WEIGHT, t->offset, GF_TYPE_F32, t->count);
    same_area("update's momentum", t->ops, MOMENTUM, 4, GF_TYPE_F32, t->count);
    same_area("update's half", t->ops, HALF, t->offset, half_type ? *half_type : GF_TYPE_F32, half_type ? t->count : 0);
    same_area("update's gradient", t->ops, SOURCE, t->offset, t->type, t->count);
}

static void update_cases(const struct turn *t)
{
    for (uint32_t half = 0; half < 4; half++) {
        const gf_type *half_type = (half < 3) ? &types[half] : NULL;
        update_case(t, true, false, half_type, 0);
        update_case(t, true, half == 0, half_type, 7 + half + t->count / 500);
        if (t->count > 2000) continue;
        update_case(t, true, true, half_type, 0);
        update_case(t, false, false, half_type, 0);
        update_case(t, false, false, half_type, 3 + t->count / 200);
    }
}

/* mask 1: no gradient; 2: r is asked for; 4: a ratio; 8: half weights. */
static void adam_case(const struct turn *t, uint32_t mask)
{
    float trust = 0.37f, rate = 0.1f;
    struct gf_adam adam = {.gradient_type = t->type, .gradient_scale = t->scale, .rate = 0.1f, .decay = 0.01f,
                           .epsilon = 1e-8f, .beta1 = 0.9f, .keep1 = 0.1f, .beta2 = 0.999f, .keep2 = 0.001f,
                           .correct1 = 1.5f, .correct2 = 11.0f};
    fill(WEIGHT, t->offset, GF_TYPE_F32, t->count, t->finite);
    fill(MOMENTUM, 4, GF_TYPE_F32, t->count, t->finite);
    fill(MOMENT2, 4, GF_TYPE_F32, t->count, t->finite);
    fill(SOURCE, t->offset, t->type, t->count, t->finite);
    fill(HALF, t->offset, GF_TYPE_F16, 0, true);
    adam.weight_f32 = mem(WEIGHT, t->offset);
    adam.moment1_f32 = mem(MOMENTUM, 4);
    adam.moment2_f32 = mem(MOMENT2, 4);
    adam.gradient = (mask & 1) ? 0 : mem(SOURCE, t->offset);
    adam.direction_f32 = (mask & 2) ? mem(HALF, t->offset) : 0;
    adam.half = ((mask & 10) == 8) ? mem(HALF, t->offset) : 0;
    adam.half_type = (adam.half != 0) ? GF_TYPE_BF16 : GF_TYPE_F32;
    adam.ratio_f32 = (mask & 4) ? (gf_mem)(uintptr_t)&trust : 0;
    if (adam.ratio_f32 != 0) rate = rate * trust;
    assert_int_equal(t->ops->adam(NULL, &adam, t->count), GF_OK);
    for (uint64_t i = 0; i < t->count; i++) {
        float weight = get(want_at(WEIGHT, t->offset), GF_TYPE_F32, i), r;
        float m = get(want_at(MOMENTUM, 4), GF_TYPE_F32, i), v = get(want_at(MOMENT2, 4), GF_TYPE_F32, i);
        if ((mask & 1) == 0) {
            float g = t->scale * get(want_at(SOURCE, t->offset), t->type, i);
            m = 0.9f * m + 0.1f * g;
            v = 0.999f * v + (0.001f * g) * g;
            put(want_at(MOMENTUM, 4), GF_TYPE_F32, i, m);
            put(want_at(MOMENT2, 4), GF_TYPE_F32, i, v);
        }
        r = (1.5f * m) / (11.0f * sqrtf(v) + 1e-8f) + 0.01f * weight;
        if ((mask & 2) != 0) {
            put(want_at(HALF, t->offset), GF_TYPE_F32, i, r);
            continue;
        }
        weight = weight - rate * r;
        put(want_at(WEIGHT, t->offset), GF_TYPE_F32, i, weight);
        if (adam.half != 0) put(want_at(HALF, t->offset), GF_TYPE_BF16, i, weight);
    }
    same_area("adam's weight", t->ops, WEIGHT, t->offset, GF_TYPE_F32, t->count);
    same_area("adam's first moment", t->ops, MOMENTUM, 4, GF_TYPE_F32, t->count);
    same_area("adam's second moment", t->ops, MOMENT2, 4, GF_TYPE_F32, t->count);
    same_area("adam's half or r", t->ops, HALF, t->offset, (mask & 2) ? GF_TYPE_F32 : GF_TYPE_BF16,
              (mask & 10) ? t->count : 0);
}

static void adam_cases(const struct turn *t)
{
    for (uint32_t mask = 0; mask < 16; mask += (t->count > 2000) ? 5 : 1) adam_case(t, mask);
}

/* ---- walking through them ---- */

static void each_progress(const struct gf_ops *ops, void (*cases)(const struct turn *t))
{
    /* Odd offsets too: addresses need no alignment. 60 and 4 put a vector across cache lines. */
    static const uint32_t offsets[] = {0, 4, 1, 60, 30};
    uint32_t turn = 0;
    seed = 1;
    for (uint32_t type = 0; type < 3; type++) {
        for (uint64_t count = 0; count <= 130; count++, turn++) {
            struct turn t = {ops, types[type], count, offsets[turn % 5], scales[turn / 5 % 5], turn % 3 == 0};
            area_bytes = count * 4 + 2 * GUARD;
            cases(&t);
        }
        for (uint32_t b = 0; b < LENGTH(big_counts); b++, turn++) {
            area_bytes = AREA_BYTES;
            struct turn t = {ops, types[type], big_counts[b], offsets[turn % 5], scales[turn / 5 % 5], turn % 3 == 0};
            cases(&t);
        }
    }
}

static void each_version(void (*cases)(const struct turn *t))
{
    for (uint32_t v = 0; v < gf_ops_variant_count; v++) {
        if (gf_ops_variants[v].supported()) each_progress(gf_ops_variants[v].ops, cases);
        else print_message("%s: skipped, this CPU lacks it\n", gf_ops_variants[v].ops->name);
    }
    each_progress(&gf_ops_host, cases);
}

TEST(test_cast) { each_version(cast_cases); }
TEST(test_sum) { each_version(sum_cases); }
TEST(test_sum_n) { each_version(sum_n_cases); }
TEST(test_check) { each_version(check_cases); }
TEST(test_score) { each_version(score_cases); }
TEST(test_norm) { each_version(norm_cases); }
TEST(test_accumulate) { each_version(accumulate_cases); }
TEST(test_chunks) { each_version(chunks_cases); }
TEST(test_update) { each_version(update_cases); }
TEST(test_adam) { each_version(adam_cases); }

/* A run of 1 and two of half a unit in its last place: they count only if they meet before they meet the 1, as the runs
 * 32 and 96 do in their lane. */
TEST(test_norm_adds_runs_in_lanes)
{
    uint64_t elem_count = 97ull * GF_NORM_RUN_ELEMS;
    uint16_t *values = calloc(elem_count, sizeof *values);
    assert_non_null(values);
    values[5] = gf_f16_of_f32(1);
    values[32ull * GF_NORM_RUN_ELEMS] = values[97ull * GF_NORM_RUN_ELEMS - 1] = gf_f16_of_f32(0x1p-12f);
    for (uint32_t v = 0; v < gf_ops_variant_count; v++) {
        float square = 0;
        if (!gf_ops_variants[v].supported()) continue;
        assert_int_equal(gf_ops_variants[v].ops->norm(NULL, (gf_mem)(uintptr_t)&square, 0,
                                                      (gf_mem)(uintptr_t)values, GF_TYPE_F16, elem_count), GF_OK);
        assert_int_equal(gf_f32_bits(square), 0x3f800001);
    }
    free(values);
}

/* More than 64 runs, so that lanes of the second level get several; and the results of casts that go past the cache. */
TEST(test_large_ranges)
{
    uint64_t norm_elems = 128ull * GF_NORM_RUN_ELEMS + 77, cast_elems = GF_STREAM_BYTES / 2 + 1001;
    uint16_t *from = malloc(cast_elems * sizeof *from + GF_LINE_BYTES), *to = malloc(cast_elems * sizeof *to + 256);
    float lanes[64] = {0}, square = 0;
    assert_true(norm_elems <= cast_elems);
    assert_non_null(from);
    assert_non_null(to);
    seed = 7;
    for (uint64_t i = 0; i < cast_elems; i++) put((uint8_t *)from, GF_TYPE_F16, i, (float)(next() % 4096) / 4096);
    for (uint64_t run = 0; run * GF_NORM_RUN_ELEMS < norm_elems; run++) {
        uint64_t first = run * GF_NORM_RUN_ELEMS, left = norm_elems - first;
        lanes[run % 64] += ordered_sum((const uint8_t *)from, GF_TYPE_F16, first,
                                       left < GF_NORM_RUN_ELEMS ? left : GF_NORM_RUN_ELEMS, true);
    }
    for (uint32_t v = 0; v < gf_ops_variant_count; v++) {
        const struct gf_ops *ops = gf_ops_variants[v].ops;
        if (!gf_ops_variants[v].supported()) continue;
        square = 0;
        assert_int_equal(ops->norm(NULL, (gf_mem)(uintptr_t)&square, 0, (gf_mem)(uintptr_t)from, GF_TYPE_F16,
                                   norm_elems), GF_OK);
        assert_int_equal(gf_f32_bits(square), gf_f32_bits(tree_of(lanes)));
        /* On a line's first byte; with 1, 16 or 29 elements before the next line; with no element on a line's first. */
        static const uint32_t offsets[] = {0, 62, 32, 6, 23};
        for (uint32_t o = 0; o < LENGTH(offsets); o++) {
            struct gf_check check = {0, UINT64_MAX};
            uint8_t *dst = (uint8_t *)(((uintptr_t)to + 127) & ~(uintptr_t)63) + offsets[o];
            uint16_t early = from[40], late = from[cast_elems - 2];
            memset(to, 0xa5, cast_elems * sizeof *to + 256);
            from[cast_elems - 2] = from[40] = 0x7c00;
            assert_int_equal(ops->cast(NULL, (gf_mem)(uintptr_t)dst, GF_TYPE_BF16, (gf_mem)(uintptr_t)from, GF_TYPE_F16,
                                       cast_elems, 0.5f, 9, &check), GF_OK);
            assert_int_equal(check.bad_count, 2);
            assert_int_equal(check.bad_first, 9 + 40);
            assert_int_equal(dst[-1], 0xa5);
            assert_int_equal(dst[cast_elems * 2], 0xa5);
            for (uint64_t i = 0; i < cast_elems; i++) {
                uint16_t want = gf_bf16_of_f32(gf_f32_of_f16(from[i]) * 0.5f), got;
                memcpy(&got, dst + 2 * i, sizeof got);
                if (got == want) continue;
                fail_msg("%s: element %llu is 0x%04x, not 0x%04x", ops->name, (unsigned long long)i, got, want);
            }
            from[40] = early;
            from[cast_elems - 2] = late;
        }
    }
    free(from);
    free(to);
}

TEST(test_copy_and_zero)
{
    area_bytes = AREA_BYTES;
    for (uint32_t size = 0; size < 300; size += 7) {
        fill(SOURCE, 0, GF_TYPE_F32, ELEMS_MAX, false);
        fill(OUT, 0, GF_TYPE_F32, 0, true);
        assert_int_equal(gf_ops_host.copy(NULL, mem(OUT, 1), mem(SOURCE, 3), size), GF_OK);
        memcpy(want_at(OUT, 1), want_at(SOURCE, 3), size);
        assert_memory_equal(tested[OUT], wanted[OUT], AREA_BYTES);
        assert_int_equal(gf_ops_host.copy(NULL, mem(OUT, 1), mem(OUT, 1), size), GF_OK);
        assert_int_equal(gf_ops_host.zero(NULL, mem(OUT, 5), size / 2), GF_OK);
        memset(want_at(OUT, 5), 0, size / 2);
        assert_memory_equal(tested[OUT], wanted[OUT], AREA_BYTES);
        assert_memory_equal(tested[SOURCE], wanted[SOURCE], AREA_BYTES);
    }
}
