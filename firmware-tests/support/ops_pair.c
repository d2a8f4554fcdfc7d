/* Two backends side by side: see ops_pair.h. In each case one area alone holds what is not a
 * number, so that which of two NaNs comes out is never asked. */
#include "firmware-tests/support/ops_pair.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/element/cuda/kernels.h"
#include "ops/element/host/half.h"

enum { A, B, C, D, E, SMALL, SPECIALS = 21, SOURCES_MAX = 9 };
#define SMALL_BYTES (128u << 10)

/* Place of things in SMALL. */
enum {
    AT_CHECK = 0,
    AT_SOURCES = 16,
    AT_SQUARES = 64,
    AT_RATIO = 96,
    AT_LISTS = 1024,
    AT_SCRATCH = 33 << 10
};

struct place {
    gf_mem host, device;
};

struct turn {
    struct ops_pair *pair;
    uint64_t count;
    uint32_t offset;
    bool same;
    bool looks;                    /* values that are not finite are asked for */
    uint32_t shifts[SMALL];        /* of each area, in bytes: what lies unlike in its vectors */
    gf_type types[OPS_PAIR_AREAS]; /* of what lies in each area, as it was placed last */
    const char *op;
    /* with one that is no power of two, multiplying and adding at once rounds otherwise */
    float scale;
};

static uint64_t area_bytes(const struct ops_pair *pair)
{
    return pair->elems_max * 4 + 2 * OPS_PAIR_GUARD + 64;
}

static uint64_t bytes_of(uint32_t area, const struct ops_pair *pair)
{
    return (area == SMALL) ? SMALL_BYTES : area_bytes(pair);
}

static gf_mem device_at(const struct ops_pair *pair, uint32_t area)
{
    if (pair->areas[area] != 0) return pair->areas[area];
    return pair->device + area * ((area_bytes(pair) + 255) / 256 * 256);
}

uint64_t ops_pair_bytes(uint64_t elems_max)
{
    struct ops_pair pair = {.elems_max = elems_max};
    return SMALL * ((area_bytes(&pair) + 255) / 256 * 256) + SMALL_BYTES;
}

uint64_t ops_pair_area_bytes(uint64_t elems_max, uint32_t area)
{
    struct ops_pair pair = {.elems_max = elems_max};
    return bytes_of(area, &pair);
}

uint64_t ops_pair_long_count(uint32_t blocks)
{
    const uint64_t threads = (uint64_t)blocks * GF_KERNEL_THREADS;
    const uint64_t some_threads = threads / 3;
    return threads * GF_KERNEL_PACK_MAX * GF_KERNEL_AHEAD_MAX + some_threads * GF_KERNEL_PACK_MAX +
           5;
}

void ops_pair_begin(struct ops_pair *pair)
{
    if (pair->reference == NULL) pair->reference = gf_element_ops_best();
    for (uint32_t a = 0; a < OPS_PAIR_AREAS; a++)
        if ((pair->host[a] = aligned_alloc(256, (bytes_of(a, pair) + 255) / 256 * 256)) == NULL)
            abort();
}

void ops_pair_end(struct ops_pair *pair)
{
    for (uint32_t a = 0; a < OPS_PAIR_AREAS; a++) free(pair->host[a]);
}

static uint32_t next(struct ops_pair *pair)
{
    pair->seed = pair->seed * 1664525u + 1013904223u;
    return (pair->seed >> 8) | (pair->seed << 24);
}

static void put(uint8_t *base, gf_type type, uint64_t i, float value)
{
    uint32_t bits = gf_f32_bits(value);
    if (type == GF_TYPE_F16) bits = gf_f16_of_f32(value);
    if (type == GF_TYPE_BF16) bits = gf_bf16_of_f32(value);
    memcpy(base + i * gf_type_size_bytes(type), &bits, gf_type_size_bytes(type));
}

/* Ranges lie offset elements behind the guard, or before the end. */
static uint64_t skip_of(const struct turn *t, uint32_t area, gf_type type)
{
    uint64_t own = t->offset * gf_type_size_bytes(type) + t->shifts[area];
    if (t->pair->areas[area] != 0)
        return area_bytes(t->pair) - t->count * gf_type_size_bytes(type) - own;
    return OPS_PAIR_GUARD + own + t->pair->skew_bytes;
}

static struct place place(struct turn *t, uint32_t area, gf_type type)
{
    t->types[area] = type;
    const uint64_t skip = skip_of(t, area, type);
    return (struct place){(gf_mem)(uintptr_t)t->pair->host[area] + skip,
                          device_at(t->pair, area) + skip};
}

static struct place small(const struct turn *t, uint32_t at)
{
    return (struct place){(gf_mem)(uintptr_t)t->pair->host[SMALL] + at,
                          device_at(t->pair, SMALL) + at};
}

/* Gradients; with `special`, what is large, tiny, infinite or no number in between. */
static void fill(const struct turn *t, uint32_t area, gf_type type, bool special)
{
    static const uint32_t specials[] = {
        0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x38800000, 0x33000001,
        0x477fe000, 0x477fefff, 0x477ff000, 0x47800000, 0x7f7f7fff, 0x7f7f8000, 0x7f7fffff,
        0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffabcdef, 0x7fffffff, 0xffffffff};
    struct ops_pair *pair = t->pair;
    memset(pair->host[area], 0xa5, bytes_of(area, pair));
    for (uint64_t i = 0; i < t->count; i++) {
        uint32_t kind = next(pair) % 16;
        float value = ((float)next(pair) - 2147483648.0f) * 0x1p-33f;
        if (special && (kind == 0)) value = gf_f32_of_bits(specials[next(pair) % SPECIALS]);
        if (special && (kind == 1)) value = gf_f32_of_bits(next(pair));
        if ((kind == 2) || (kind == 3)) value = (kind == 2) ? value * 0x1p-20f : 0;
        put(pair->host[area] + skip_of(t, area, type), type, i, value);
    }
    pair->upload(pair, device_at(pair, area), pair->host[area], bytes_of(area, pair));
}

/* An empty check, squares, ratios, lists: what the caller put there goes up. */
static void small_fill(const struct turn *t)
{
    struct gf_check check = {0, UINT64_MAX};
    double squares[3] = {3.25, 0.75, 1e-3};
    float ratios[2] = {0.37f, 0};
    uint8_t *at = t->pair->host[SMALL];
    memcpy(at + AT_CHECK, &check, sizeof check);
    memcpy(at + AT_SOURCES, &check, sizeof check);
    memcpy(at + AT_SQUARES, squares, sizeof squares);
    memcpy(at + AT_RATIO, ratios, sizeof ratios);
    memset(at + AT_SCRATCH, 0, SMALL_BYTES - AT_SCRATCH);
    t->pair->upload(t->pair, device_at(t->pair, SMALL), at, SMALL_BYTES);
}

static bool is_nan(uint32_t bits, gf_type type)
{
    if (type == GF_TYPE_F32) return (bits & 0x7fffffffu) > 0x7f800000u;
    return (bits & 0x7fffu) > ((type == GF_TYPE_F16) ? 0x7c00u : 0x7f80u);
}

/* Each element of a word is equal, or a NaN in both. */
static bool equal_but_nan(uint32_t is, uint32_t want, gf_type type)
{
    if (type == GF_TYPE_F32) return (is == want) || (is_nan(is, type) && is_nan(want, type));
    for (uint32_t shift = 0; shift < 32; shift += 16) {
        const uint32_t is_half = (is >> shift) & 0xffffu;
        const uint32_t want_half = (want >> shift) & 0xffffu;
        if ((is_half != want_half) && !(is_nan(is_half, type) && is_nan(want_half, type)))
            return false;
    }
    return true;
}

/* All areas; that an element is some NaN is enough where any_nan. What is small has no NaN. */
static void compare(struct turn *t, gf_status status, bool any_nan)
{
    struct ops_pair *pair = t->pair;
    uint8_t *got = malloc(area_bytes(pair) + SMALL_BYTES);
    if (got == NULL) abort();
    if (t->same && (status != GF_OK))
        fprintf(stderr, "%s of %u: status %d\n", t->op, (unsigned)t->count, (int)status);
    t->same = t->same && (status == GF_OK);
    for (uint32_t area = 0; (area < OPS_PAIR_AREAS) && t->same; area++) {
        uint64_t bytes = (area == SMALL) ? AT_SCRATCH : bytes_of(area, pair);
        pair->download(pair, got, device_at(pair, area), bytes);
        /* elements are words */
        for (uint64_t b = (area == SMALL) ? 0 : pair->skew_bytes; b + 4 <= bytes; b += 4) {
            uint32_t is;
            uint32_t want;
            memcpy(&is, got + b, 4);
            memcpy(&want, pair->host[area] + b, 4);
            if ((is == want) ||
                (any_nan && (area != SMALL) && equal_but_nan(is, want, t->types[area])))
                continue;
            if (t->same)
                fprintf(stderr, "%s of %u, offset %u: area %u, byte %u: 0x%08x, not 0x%08x\n",
                        t->op, (unsigned)t->count, t->offset, area, (unsigned)b, is, want);
            t->same = false;
        }
        /* Ops that follow on these areas begin with the same NaNs. */
        if (any_nan && (area != SMALL)) memcpy(pair->host[area], got, bytes);
    }
    free(got);
    if (pair->seen != NULL) pair->seen(pair, t->op, t->same);
}

#define BOTH(t, name, on_host, on_device)                             \
    do {                                                              \
        gf_status status = (t)->pair->reference->name on_host;        \
        (t)->op = #name;                                              \
        if (status == GF_OK) status = (t)->pair->ops->name on_device; \
        compare((t), status, (t)->pair->any_nan);                     \
    } while (0)

static struct gf_check *check_of(const struct turn *t, gf_mem at)
{
    return t->looks ? (void *)(uintptr_t)at : NULL;
}

static void cast_case(struct turn *t, gf_type dst_type, gf_type src_type, float scale,
                      bool in_place)
{
    struct gf_queue *queue = t->pair->queue;
    struct place dst = place(t, in_place ? A : B, dst_type);
    struct place src = place(t, A, src_type);
    struct place check = small(t, AT_CHECK);
    fill(t, A, src_type, true);
    small_fill(t);
    BOTH(t, cast,
         (NULL, dst.host, dst_type, src.host, src_type, t->count, scale, 77,
          check_of(t, check.host)),
         (queue, dst.device, dst_type, src.device, src_type, t->count, scale, 77,
          check_of(t, check.device)));
}

static void sum_case(struct turn *t, gf_type type, bool special_src, bool doubled)
{
    struct place dst = place(t, A, type);
    struct place src = place(t, doubled ? A : B, type);
    struct place check = small(t, AT_CHECK);
    fill(t, A, type, !special_src);
    fill(t, B, type, special_src);
    small_fill(t);
    BOTH(t, sum, (NULL, dst.host, src.host, type, t->count, 5, check_of(t, check.host)),
         (t->pair->queue, dst.device, src.device, type, t->count, 5, check_of(t, check.device)));
    BOTH(t, check, (NULL, dst.host, type, t->count, 1, (struct gf_check *)(uintptr_t)check.host),
         (t->pair->queue, dst.device, type, t->count, 1,
          (struct gf_check *)(uintptr_t)check.device));
}

/* Sources A..D, again and again; destinations E, and A to C in place. */
#define SUM_N_OF(at, queue, type)                                                               \
    (queue, at##_dst, dst_count, at##_src, src_count, type, t->count, 9, check_of(t, check.at), \
     check_of(t, sources.at))
#define SUM_N(name, type) \
    BOTH(t, name, SUM_N_OF(host, NULL, type), SUM_N_OF(device, t->pair->queue, type))
static void sum_n_case(struct turn *t, gf_type type, uint32_t src_count, uint32_t dst_count)
{
    gf_mem host_src[SOURCES_MAX];
    gf_mem device_src[SOURCES_MAX];
    gf_mem host_dst[4];
    gf_mem device_dst[4];
    struct place check = small(t, AT_CHECK);
    struct place sources = small(t, AT_SOURCES);
    GF_ASSERT(src_count <= SOURCES_MAX);
    for (uint32_t s = 0; s < src_count; s++) {
        const struct place at = place(t, A + s % 4, type);
        if (s < 4) fill(t, A + s, type, s == 1);
        host_src[s] = at.host;
        device_src[s] = at.device;
    }
    for (uint32_t d = 0; d < dst_count; d++) {
        host_dst[d] = place(t, (d == 0) ? E : A + d - 1, type).host;
        device_dst[d] = place(t, (d == 0) ? E : A + d - 1, type).device;
    }
    small_fill(t);
    SUM_N(sum_n, type);
}

/* Finite values whose squares leave fp32, above and below. */
static void extremes_fill(const struct turn *t, uint32_t area, gf_type type)
{
    static const float extremes[] = {3e38f, -1e30f, 0x1p-149f, 1e-30f};
    struct ops_pair *pair = t->pair;
    for (uint64_t i = 0; (i < t->count) && (type != GF_TYPE_F16); i++)
        if (next(pair) % 16 == 0)
            put(pair->host[area] + skip_of(t, area, type), type, i, extremes[next(pair) % 4]);
    pair->upload(pair, device_at(pair, area), pair->host[area], bytes_of(area, pair));
}

/* Of two areas, at once: all of B, nothing, a third of C, and C to A but for its last two bytes. */
static void copy_n_case(struct turn *t, gf_type type)
{
    static const struct {
        uint32_t to, from;
    } copies[] = {{E, B}, {D, B}, {D, C}, {A, C}};
    enum { COUNT = sizeof copies / sizeof copies[0] };
    const uint64_t all = t->count * gf_type_size_bytes(type);
    const uint64_t bytes[COUNT] = {all, 0, all / 6 * 2, (all > 2) ? all - 2 : all};
    gf_mem host_src[COUNT];
    gf_mem host_dst[COUNT];
    gf_mem device_src[COUNT];
    gf_mem device_dst[COUNT];
    for (uint32_t area = A; area < SMALL; area++) {
        t->types[area] = type;
        fill(t, area, type, false);
    }
    for (uint32_t i = 0; i < COUNT; i++) {
        const struct place dst = place(t, copies[i].to, type);
        const struct place src = place(t, copies[i].from, type);
        host_dst[i] = dst.host;
        host_src[i] = src.host;
        device_dst[i] = dst.device;
        device_src[i] = src.device;
    }
    BOTH(t, copy_n, (NULL, host_dst, host_src, bytes, COUNT),
         (t->pair->queue, device_dst, device_src, bytes, COUNT));
}

static void norm_case(struct turn *t, gf_type type)
{
    struct place square = small(t, AT_SQUARES);
    struct place src = place(t, A, type);
    struct place ratio = small(t, AT_RATIO);
    struct gf_ratio host[2];
    struct gf_ratio device[2];
    struct gf_norm at_host[3];
    struct gf_norm at_device[3];
    /* a third of them, none, and the rest: on no boundary of their own */
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t first = (i == 0) ? 0 : t->count / 3;
        uint64_t elems = (i == 1) ? 0 : (i == 0) ? t->count / 3 : t->count - first;
        uint64_t skip = first * gf_type_size_bytes(type);
        at_host[i] = (struct gf_norm){square.host + 8 * i, src.host + skip, elems};
        at_device[i] = (struct gf_norm){square.device + 8 * i, src.device + skip, elems};
    }
    for (uint32_t i = 0; i < 2; i++) {
        gf_mem w = 8 * i;
        gf_mem g = 8 - w;
        host[i] = (struct gf_ratio){
            ratio.host + w / 2, square.host + w, square.host + g, 0.25f, 0.02f, 5e-4f, 1e-6f};
        device[i] = host[i], device[i].ratio_f32 = ratio.device + w / 2,
        device[i].weight_square_f64 = square.device + w;
        device[i].gradient_square_f64 = square.device + g;
    }
    fill(t, A, type, false);
    extremes_fill(t, A, type);
    small_fill(t);
    BOTH(t, norm, (NULL, 0, type, at_host, 3),
         (t->pair->queue, small(t, AT_SCRATCH).device, type, at_device, 3));
    BOTH(t, ratio, (NULL, host, 2), (t->pair->queue, device, 2));
}

static void score_case(struct turn *t, uint64_t chunk_elems, uint64_t segment_elems, bool special)
{
    struct place scores = place(t, B, GF_TYPE_F32);
    struct place src = place(t, A, GF_TYPE_F32);
    fill(t, A, GF_TYPE_F32, special);
    fill(t, B, GF_TYPE_F32, false);
    t->op = "score";
    (void)t->pair->reference->score(NULL, scores.host, src.host, t->count, chunk_elems,
                                    segment_elems);
    compare(t,
            t->pair->ops->score(t->pair->queue, scores.device, src.device, t->count, chunk_elems,
                                segment_elems),
            special);
}

/* A history, B momentum, C gradient, D weight, E out; special says which one holds what is no
 * number. */
static void accumulate_case(struct turn *t, gf_type src_type, uint32_t mask, uint32_t special)
{
    bool with_u = mask & 1, store_u = (mask & 3) == 3, with_weight = mask & 4, in_place = mask & 8;
    struct place h = place(t, A, GF_TYPE_F32);
    struct place u = place(t, B, GF_TYPE_F32);
    struct place src = place(t, C, src_type);
    struct place weight = place(t, D, GF_TYPE_F32);
    struct place out = in_place ? h : place(t, E, GF_TYPE_F32);
    for (uint32_t area = A; area <= D; area++)
        fill(t, area, (area == C) ? src_type : GF_TYPE_F32, area == special);
    struct gf_accumulate host = {.dst_h_f32 = out.host,
                                 .h_f32 = h.host,
                                 .dst_u_f32 = store_u ? u.host : 0,
                                 .u_f32 = with_u ? u.host : 0,
                                 .src = src.host,
                                 .src_type = src_type,
                                 .weight_f32 = with_weight ? weight.host : 0,
                                 .scale = t->scale,
                                 .momentum = 0.9f,
                                 .ahead = 0.7f,
                                 .decay = 0.01f};
    struct gf_accumulate device = host;
    device.dst_h_f32 = out.device, device.h_f32 = h.device,
    device.dst_u_f32 = store_u ? u.device : 0;
    device.u_f32 = with_u ? u.device : 0, device.src = src.device,
    device.weight_f32 = with_weight ? weight.device : 0;
    BOTH(t, accumulate, (NULL, &host, t->count), (t->pair->queue, &device, t->count));
}

static void update_fill(struct turn *t, gf_type gradient_type, uint32_t special)
{
    for (uint32_t area = A; area < C; area++) fill(t, area, GF_TYPE_F32, area == special);
    fill(t, C, gradient_type, C == special);
    small_fill(t);
}

static void update_case(struct turn *t, gf_type gradient_type, int half_type, uint32_t mask,
                        uint32_t special)
{
    struct place weight = place(t, A, GF_TYPE_F32);
    struct place momentum = place(t, B, GF_TYPE_F32);
    struct place ratio = small(t, AT_RATIO);
    gf_type type_of_half = (half_type < 0) ? GF_TYPE_F32 : (gf_type)half_type;
    struct place gradient = place(t, C, gradient_type);
    struct place half = place(t, D, type_of_half);
    struct gf_update host = {.weight_f32 = weight.host,
                             .momentum_f32 = (mask & 1) ? momentum.host : 0,
                             .half = (half_type < 0) ? 0 : half.host,
                             .half_type = type_of_half,
                             .gradient = gradient.host,
                             .gradient_type = gradient_type,
                             .gradient_scale = t->scale,
                             .rate_in = (mask & 4) ? 0.1f : 1.0f,
                             .rate_out = (mask & 4) ? 0.75f : 0.1f,
                             .ratio_f32 = (mask & 4) ? ratio.host : 0,
                             .momentum = 0.9f,
                             .decay = 5e-4f,
                             .nesterov = mask & 2};
    struct gf_update device = host;
    device.weight_f32 = weight.device, device.momentum_f32 = (mask & 1) ? momentum.device : 0;
    device.half = (half_type < 0) ? 0 : half.device, device.gradient = gradient.device;
    device.ratio_f32 = (mask & 4) ? ratio.device : 0;
    update_fill(t, gradient_type, special);
    BOTH(t, update, (NULL, &host, t->count), (t->pair->queue, &device, t->count));
    if (t->count == 0) return;

    const struct gf_update_part parts[3] = {{0, t->count / 2, host.ratio_f32, 0, 0},
                                            {t->count / 2, 0, 0, 1, 0},
                                            {t->count / 2, t->count - t->count / 2, 0, 0.25f, 0}};
    struct gf_update_part on_device[3] = {parts[0], parts[1], parts[2]};
    on_device[0].ratio_f32 = device.ratio_f32, update_fill(t, gradient_type, special);
    BOTH(t, update_parts, (NULL, &host, parts, 3), (t->pair->queue, &device, on_device, 3));

    /* Two of three chunks, the last first. */
    struct gf_chunks chunks = {
        .chunk_elems = 1 + t->count / 7, .elems = t->count, .list_u32 = small(t, AT_LISTS).host};
    struct gf_chunks device_chunks;
    uint32_t *list = (uint32_t *)(void *)(t->pair->host[SMALL] + AT_LISTS);
    for (uint32_t c = (uint32_t)((t->count - 1) / chunks.chunk_elems + 1); c-- > 0;)
        if (c % 3 != 1) list[chunks.count++] = c;
    device_chunks = chunks, device_chunks.list_u32 = small(t, AT_LISTS).device;
    update_fill(t, gradient_type, special);
    BOTH(t, update_chunks, (NULL, &host, &chunks), (t->pair->queue, &device, &device_chunks));
}

/* Negative second moments have no roots. */
static void adam_case(struct turn *t, gf_type gradient_type, int half_type)
{
    struct place weight = place(t, A, GF_TYPE_F32);
    struct place moment1 = place(t, B, GF_TYPE_F32);
    struct place moment2 = place(t, E, GF_TYPE_F32);
    struct place gradient = place(t, C, gradient_type);
    gf_type type_of_half = (half_type < 0) ? GF_TYPE_F32 : (gf_type)half_type;
    struct place half = place(t, D, type_of_half);
    struct gf_adam host = {.weight_f32 = weight.host,
                           .moment1_f32 = moment1.host,
                           .moment2_f32 = moment2.host,
                           .half = (half_type < 0) ? 0 : half.host,
                           .half_type = type_of_half,
                           .gradient = gradient.host,
                           .gradient_type = gradient_type,
                           .gradient_scale = t->scale,
                           .rate = 0.1f,
                           .decay = 0.01f,
                           .epsilon = 1e-8f,
                           .beta1 = 0.9f,
                           .keep1 = 0.1f,
                           .beta2 = 0.999f,
                           .keep2 = 0.001f,
                           .correct1 = 1.5f,
                           .correct2 = 11.0f};
    struct gf_adam device = host;
    device.weight_f32 = weight.device;
    device.moment1_f32 = moment1.device;
    device.moment2_f32 = moment2.device;
    device.half = (half_type < 0) ? 0 : half.device;
    device.gradient = gradient.device;
    for (uint32_t area = A; area <= E; area++)
        if (area != D) fill(t, area, (area == C) ? gradient_type : GF_TYPE_F32, false);
    BOTH(t, adam, (NULL, &host, t->count), (t->pair->queue, &device, t->count));
}

/* A selection of chunks of A (and B, C, D) to places of E; what is not listed stays. way 0: all; 1,
 * 2: from or to a range that is packed; 3: the last first. */
static void chunks_case(struct turn *t, uint64_t chunk_elems, gf_type src_type, gf_type dst_type,
                        uint32_t way)
{
    struct gf_queue *queue = t->pair->queue;
    uint64_t chunk_count = (t->count + chunk_elems - 1) / chunk_elems;
    uint32_t *list = (uint32_t *)(void *)(t->pair->host[SMALL] + AT_LISTS);
    uint32_t taken = 0;
    uint32_t listed_max = (AT_SCRATCH - AT_LISTS) / 4;
    struct place dst = place(t, E, dst_type);
    struct place src = place(t, C, src_type);
    struct place check = small(t, AT_CHECK);
    struct place h = place(t, A, GF_TYPE_F32);
    struct place u = place(t, B, GF_TYPE_F32);
    struct place weight = place(t, D, GF_TYPE_F32);
    struct gf_chunks host = {.chunk_elems = chunk_elems,
                             .elems = t->count,
                             .src_packed = way == 1,
                             .dst_packed = way == 2};
    struct gf_chunks device;
    for (uint64_t c = 0; (c < chunk_count) && (taken < listed_max); c++)
        if ((way == 0) || (next(t->pair) % 3 != 0))
            list[taken++] = (uint32_t)((way == 3) ? chunk_count - 1 - c : c);
    host.count = taken, device = host;
    if (way > 0)
        host.list_u32 = small(t, AT_LISTS).host, device.list_u32 = small(t, AT_LISTS).device;
    for (uint32_t area = A; area <= D; area++)
        fill(t, area, (area == C) ? src_type : GF_TYPE_F32, area == C);
    fill(t, E, dst_type, false);
    small_fill(t);
    BOTH(
        t, cast_chunks,
        (NULL, dst.host, dst_type, src.host, src_type, &host, t->scale, 3, check_of(t, check.host)),
        (queue, dst.device, dst_type, src.device, src_type, &device, t->scale, 3,
         check_of(t, check.device)));
    BOTH(t, zero_chunks, (NULL, dst.host, dst_type, &host), (queue, dst.device, dst_type, &device));
    dst = place(t, E, GF_TYPE_F32);
    struct gf_accumulate on_host = {.dst_h_f32 = dst.host,
                                    .h_f32 = h.host,
                                    .u_f32 = u.host,
                                    .src = src.host,
                                    .src_type = src_type,
                                    .weight_f32 = weight.host,
                                    .scale = t->scale,
                                    .momentum = 0.9f,
                                    .ahead = 0.7f,
                                    .decay = 0.1f};
    struct gf_accumulate on_device = on_host;
    on_device.dst_h_f32 = dst.device, on_device.h_f32 = h.device, on_device.u_f32 = u.device;
    on_device.src = src.device, on_device.weight_f32 = weight.device;
    if (!t->looks) { /* the momentum is stored, in the place of a weight */
        on_host.dst_u_f32 = weight.host, on_device.dst_u_f32 = weight.device;
        on_host.weight_f32 = on_device.weight_f32 = 0;
    }
    BOTH(t, accumulate_chunks, (NULL, &on_host, &host), (queue, &on_device, &device));
}

/* Every second three seeds all lie alike; between those none does, or all but one area do, so that
 * each comparison of an op's ranges decides alone in some seed. */
static void shifts_choose(uint32_t shifts[SMALL], uint32_t seed)
{
    const uint32_t way = seed / 3 % (2 * SMALL + 2);
    for (uint32_t area = 0; area < SMALL; area++) {
        shifts[area] = 0;
        if (way == 1) shifts[area] = 4 * area;
        if ((way % 2 == 1) && (way / 2 == area + 1)) shifts[area] = 4;
    }
}

/* Behind name and supported a table is function pointers alone. */
#define OPS_COUNT                                                              \
    ((sizeof(struct gf_element_ops) - offsetof(struct gf_element_ops, cast)) / \
     sizeof(void (*)(void)))
_Static_assert(OPS_COUNT == 18, "a new op has a case here and is called by ops_pair_run()");

bool ops_table_is_whole(const struct gf_element_ops *ops)
{
    static const unsigned char none[sizeof(void (*)(void))];
    const unsigned char *at = (const unsigned char *)ops + offsetof(struct gf_element_ops, cast);
    for (size_t op = 0; op < OPS_COUNT; op++)
        if (memcmp(at + op * sizeof none, none, sizeof none) == 0) {
            (void)printf("op %zu of struct gf_element_ops is NULL in the table \"%s\"\n", op,
                         ops->name);
            return false;
        }
    return true;
}

bool ops_pair_run(struct ops_pair *pair, uint64_t count, uint32_t offset, uint32_t seed)
{
    struct turn t = {.pair = pair,
                     .count = count,
                     .offset = offset,
                     .looks = seed % 5 < 3,
                     .same = true,
                     .scale = (seed % 7 < 4) ? -3.1e-3f : 0.5f};
    if (!ops_table_is_whole(pair->ops)) return false;
    pair->seed = seed;
    shifts_choose(t.shifts, seed);
    for (uint32_t area = A; area < SMALL; area++) fill(&t, area, GF_TYPE_F32, false);
    memset(pair->host[SMALL], 0xa5, SMALL_BYTES);
    for (uint32_t s = 0; s < GF_TYPE_COUNT; s++) {
        gf_type type = (gf_type)s;
        gf_type other = (gf_type)((s + 1 + seed % 2) % GF_TYPE_COUNT);
        for (int d = 0; d < GF_TYPE_COUNT; d++)
            cast_case(&t, (gf_type)d, type, (seed % 3) ? 1.0f : -3.1e-3f, false);
        cast_case(&t, type, type, 65536.0f, true);
        for (int doubled = 0; doubled < 2; doubled++) sum_case(&t, type, seed % 2, doubled != 0);
        sum_n_case(&t, type, 1 + seed % 2, 1 + seed / 4 % 2);
        sum_n_case(&t, type, 3 + seed % 2, 4);
        sum_n_case(&t, type, 5 + seed % (SOURCES_MAX - 4), 1 + seed % 4);
        copy_n_case(&t, type);
        norm_case(&t, type);
        for (uint32_t mask = seed % 3; mask < 16; mask += 3)
            accumulate_case(&t, type, mask, A + (seed + mask) % 4);
        for (uint32_t mask = seed % 3; mask < 8; mask += 3) {
            update_case(&t, type, (int)((seed + mask) % 4) - 1, mask, A + (seed + mask) % 3);
            adam_case(&t, type, (int)((seed + mask) % 4) - 1);
        }
        for (uint32_t l = 0; l < 4; l++)
            chunks_case(&t, 1 + next(pair) % (1 + count / 3), type, other, l);
    }
    score_case(&t, 1 + next(pair) % 200, 1 + next(pair) % 200, false);
    score_case(&t, 64 * (1 + next(pair) % 9), 64, true),
        score_case(&t, count + 1, count + 1, false);
    /* runs, pieces, chunks: none ends with another */
    score_case(&t, 1 + count / 2, 1 + count / 5, false);
    return t.same;
}
