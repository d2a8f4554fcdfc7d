/* See ops_areas.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/ops_areas.h"
#include "ops/element/host/half.h"

#define GUARD 64u
#define AREA_BYTES (ELEMS_MAX * 4u + 2u * GUARD)

const gf_type types[3] = {GF_TYPE_F32, GF_TYPE_F16, GF_TYPE_BF16};
uint32_t dst_list[CHUNKS_MAX], src_list[CHUNKS_MAX];
static uint8_t tested[AREAS][AREA_BYTES], wanted[AREAS][AREA_BYTES];
static uint32_t seed;
static size_t area_bytes; /* of the areas, that the case at hand may touch or must leave alone */

uint32_t next(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) | (seed << 24);
}

uint64_t size_of(gf_type type) { return (type == GF_TYPE_F32) ? 4 : 2; }

float get(const uint8_t *base, gf_type type, uint64_t i)
{
    uint32_t bits = 0;
    memcpy(&bits, base + i * size_of(type), size_of(type));
    if (type == GF_TYPE_F16) return gf_f32_of_f16((uint16_t)bits);
    return gf_f32_of_bits((type == GF_TYPE_BF16) ? bits << 16 : bits);
}

void put(uint8_t *base, gf_type type, uint64_t i, float value)
{
    uint32_t bits = gf_f32_bits(value);
    if (type == GF_TYPE_F16) bits = gf_f16_of_f32(value);
    if (type == GF_TYPE_BF16) bits = gf_bf16_of_f32(value);
    memcpy(base + i * size_of(type), &bits, size_of(type));
}

static uint8_t *tested_at(struct range r) { return tested[r.area] + GUARD + r.offset; }
uint8_t *wanted_base(struct range r) { return wanted[r.area] + GUARD + r.offset; }
gf_mem mem(struct range r) { return (gf_mem)(uintptr_t)tested_at(r); }
float at(struct range r, uint64_t i) { return get(wanted_base(r), r.type, i); }
void set(struct range r, uint64_t i, float value) { put(wanted_base(r), r.type, i, value); }

struct range range_empty(uint32_t area, uint32_t offset, gf_type type)
{
    memset(tested[area], 0xa5, area_bytes);
    memcpy(wanted[area], tested[area], area_bytes);
    return (struct range){area, offset, type};
}

struct range range_filled(const struct turn *t, uint32_t area, uint32_t offset, gf_type type)
{
    static const uint32_t specials[] = {0, 0x80000000, 1, 0x80000001, 0x007fffff, 0x00800000, 0x38800000, 0x33000001,
                                        0x477fe000, 0x477ff000, 0x47800000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff,
                                        0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffabcdef};
    struct range range = range_empty(area, offset, type);
    for (uint64_t i = 0; i < t->count; i++) {
        uint32_t kind = next() % 16;
        float value = ((float)next() - 2147483648.0f) * 0x1p-33f;
        if (!t->finite && (kind == 0)) value = gf_f32_of_bits(specials[next() % (LENGTH(specials))]);
        if (!t->finite && (kind == 1)) value = gf_f32_of_bits(next());
        if (kind == 2) value *= 0x1p-20f;
        if (kind == 3) value = 0;
        put(tested_at(range), type, i, value);
    }
    memcpy(wanted[area], tested[area], area_bytes);
    return range;
}

bool same_bits(struct range r) { return memcmp(tested[r.area], wanted[r.area], area_bytes) == 0; }

void same_count(const struct turn *t, const char *what, struct range r, uint64_t count)
{
    if (same_bits(r)) return;
    for (uint64_t i = 0; i < count; i++) {
        float got = get(tested_at(r), r.type, i), want = at(r, i);
        if (isnan(got) && isnan(want)) {
            memcpy(wanted_base(r) + i * size_of(r.type), tested_at(r) + i * size_of(r.type), size_of(r.type));
        } else if (gf_f32_bits(got) != gf_f32_bits(want)) {
            fail_msg("%s %s: element %llu of %llu is %a, not %a (area %u, offset %u, type %d)", what, t->ops->name,
                     (unsigned long long)i, (unsigned long long)count, (double)got, (double)want, r.area, r.offset,
                     r.type);
        }
    }
    if (!same_bits(r))
        fail_msg("%s %s: wrote outside of %llu elements (area %u, offset %u)", what, t->ops->name,
                 (unsigned long long)count, r.area, r.offset);
}

void same(const struct turn *t, const char *what, struct range r) { same_count(t, what, r, t->count); }

void same_check(const struct turn *t, const char *what, const struct gf_check *got, const struct gf_check *want)
{
    if ((got->bad_count == want->bad_count) && (got->bad_first == want->bad_first)) return;
    fail_msg("%s %s: %llu bad from %llu, not %llu from %llu", what, t->ops->name, (unsigned long long)got->bad_count,
             (unsigned long long)got->bad_first, (unsigned long long)want->bad_count,
             (unsigned long long)want->bad_first);
}

void count_bad(struct gf_check *check, float value, uint64_t index)
{
    if (isfinite(value)) return;
    check->bad_count++;
    if (index < check->bad_first) check->bad_first = index;
}

struct gf_chunks chunks_make(uint64_t elem_count, uint64_t chunk_elems, bool list_dst, bool list_src)
{
    uint32_t chunk_count = (uint32_t)((elem_count + chunk_elems - 1) / chunk_elems), taken = 0;
    struct gf_chunks chunks = {.dst_list_u32 = list_dst ? (gf_mem)(uintptr_t)dst_list : 0,
                               .src_list_u32 = list_src ? (gf_mem)(uintptr_t)src_list : 0,
                               .chunk_elems = chunk_elems, .dst_elems = elem_count, .src_elems = elem_count};
    for (uint32_t c = 0; c < chunk_count; c++)
        if (!list_dst || !list_src || (next() % 3 != 0)) {
            dst_list[taken] = chunk_count - 1 - c;
            src_list[taken++] = c;
        }
    chunks.count = (list_dst && list_src) ? taken : (chunk_count + 1) / 2;
    return chunks;
}

bool span_at(const struct turn *t, const struct gf_chunks *chunks, uint32_t n, struct span *out)
{
    uint64_t dst_left, src_left;
    *out = (struct span){.count = t->count};
    if (chunks == NULL) return n == 0;
    if (n == chunks->count) return false;
    out->dst = ((chunks->dst_list_u32 != 0) ? dst_list[n] : n) * chunks->chunk_elems;
    out->src = ((chunks->src_list_u32 != 0) ? src_list[n] : n) * chunks->chunk_elems;
    dst_left = chunks->dst_elems - out->dst;
    src_left = chunks->src_elems - out->src;
    out->count = (dst_left < src_left) ? dst_left : src_left;
    if (out->count > chunks->chunk_elems) out->count = chunks->chunk_elems;
    return true;
}

/* ---- walking through the cases ---- */

void areas_whole(void)
{
    area_bytes = AREA_BYTES;
    seed = 7;
}

static void each_turn(const struct gf_element_ops *ops, void (*cases)(const struct turn *t))
{
    /* Odd offsets too: addresses need no alignment. 60 and 4 put a vector across cache lines. */
    static const uint32_t offsets[] = {0, 4, 1, 60, 30}, big_counts[] = {1000, 4097, 32768, 65537};
    static const float scales[] = {1.0f, 0.25f, -3.1e-3f, 65536.0f, INFINITY};
    uint32_t turn = 0;
    seed = 1;
    for (uint32_t type = 0; type < LENGTH(types); type++) {
        for (uint64_t i = 0; i <= 130 + LENGTH(big_counts); i++, turn++) {
            uint64_t count = (i <= 130) ? i : big_counts[i - 131];
            struct turn t = {ops, types[type], count, offsets[turn % 5], scales[turn / 5 % 5], turn % 3 == 0};
            area_bytes = (i <= 130) ? count * 4 + 2 * GUARD : AREA_BYTES;
            cases(&t);
        }
    }
}

void each_version(void (*cases)(const struct turn *t))
{
    for (uint32_t v = 0; v < gf_element_ops_variant_count; v++) {
        if (gf_element_ops_variants[v].supported()) each_turn(gf_element_ops_variants[v].ops, cases);
        else print_message("%s: skipped, this CPU lacks it\n", gf_element_ops_variants[v].ops->name);
    }
    each_turn(gf_element_ops_best(), cases);
}
