/* Element ops of the optimizers: every version this CPU runs, and the dispatching table, against loops written from the
 * words in ops.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/ops_areas.h"
#include "ops/element/host/half.h"

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
    for (uint32_t v = 0; v <= gf_element_ops_variant_count; v++) {
        bool best = v == gf_element_ops_variant_count;
        const struct gf_element_ops *ops = best ? gf_element_ops_best() : gf_element_ops_variants[v].ops;
        if (!best && !gf_element_ops_variants[v].supported()) continue;
        for (uint32_t r = 0; r < LENGTH(rows); r++) {
            float got = -1, want = rows[r].want;
            struct gf_ratio ratio = {.ratio_f32 = (gf_mem)(uintptr_t)&got,
                                     .weight_square_f32 = (gf_mem)(uintptr_t)&rows[r].weight_square,
                                     .gradient_square_f32 = (gf_mem)(uintptr_t)&rows[r].gradient_square,
                                     .gradient_scale = rows[r].scale, .eta = 0.5f, .decay = rows[r].decay,
                                     .epsilon = rows[r].epsilon};
            if (r == 5) { /* in the order that is written down */
                float w = sqrtf(2), g = sqrtf(3), d = 0.1f * w;
                want = 0.5f * w / ((g + d) + 1e-9f);
            }
            assert_int_equal(gf_optimizer_ops(ops)->ratio(NULL, &ratio, 1), GF_OK);
            assert_int_equal(gf_f32_bits(got), gf_f32_bits(want));
        }
    }
}

/* chunk_elems 0: flat; else of listed chunks, and what is not listed stays. */
static void update_case(const struct turn *t, bool with_momentum, bool nesterov, const gf_type *half_type,
                        uint64_t chunk_elems)
{
    static bool is_listed[CHUNKS_MAX];
    struct range w = range_filled(t, WEIGHT, t->offset, GF_TYPE_F32), m = range_filled(t, MOMENTUM, 4, GF_TYPE_F32);
    struct range src = range_filled(t, SOURCE, t->offset, t->type);
    struct range half = range_empty(HALF, t->offset, half_type ? *half_type : GF_TYPE_F32);
    bool has_ratio = t->count % 2 == 0;
    float trust = 0.37f, rate_in = has_ratio ? 0.1f * trust : 1.0f, rate_out = has_ratio ? 0.75f : 0.1f;
    struct gf_update update = {
        .weight_f32 = mem(w), .momentum_f32 = with_momentum ? mem(m) : 0, .half = half_type ? mem(half) : 0,
        .half_type = half.type, .gradient = mem(src), .gradient_type = t->type, .gradient_scale = t->scale,
        .momentum = 0.9f, .decay = 5e-4f, .nesterov = nesterov, .ratio_f32 = has_ratio ? (gf_mem)(uintptr_t)&trust : 0,
        .rate_in = has_ratio ? 0.1f : rate_in, .rate_out = rate_out};
    memset(is_listed, chunk_elems == 0, sizeof is_listed);
    if (chunk_elems == 0) {
        assert_int_equal(gf_optimizer_ops(t->ops)->update(NULL, &update, t->count), GF_OK);
    } else {
        struct gf_chunks chunks = chunks_make(t->count, chunk_elems, true, true);
        for (uint32_t n = 0; n < chunks.count; n++) is_listed[dst_list[n]] = true;
        assert_int_equal(gf_optimizer_ops(t->ops)->update_chunks(NULL, &update, &chunks), GF_OK);
    }
    for (uint64_t i = 0; i < t->count; i++) {
        float weight = at(w, i), g, d;
        if (!is_listed[(chunk_elems == 0) ? 0 : i / chunk_elems]) continue;
        d = g = rate_in * (t->scale * at(src, i) + 5e-4f * weight);
        if (with_momentum) {
            float v = 0.9f * at(m, i) + g;
            set(m, i, v);
            d = nesterov ? 0.9f * v + g : v;
        }
        weight = weight - rate_out * d;
        set(w, i, weight);
        if (half_type != NULL) set(half, i, weight);
    }
    same(t, "update's weight", w);
    same(t, "update's momentum", m);
    same_count(t, "update's half", half, half_type ? t->count : 0);
    same(t, "update's gradient", src);
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
    struct range w = range_filled(t, WEIGHT, t->offset, GF_TYPE_F32), src = range_filled(t, SOURCE, t->offset, t->type);
    struct range m1 = range_filled(t, MOMENTUM, 4, GF_TYPE_F32), m2 = range_filled(t, MOMENT2, 4, GF_TYPE_F32);
    struct range out = range_empty(HALF, t->offset, (mask & 2) ? GF_TYPE_F32 : GF_TYPE_BF16);
    float trust = 0.37f, rate = (mask & 4) ? 0.1f * trust : 0.1f;
    struct gf_adam adam = {
        .weight_f32 = mem(w), .moment1_f32 = mem(m1), .moment2_f32 = mem(m2), .gradient = (mask & 1) ? 0 : mem(src),
        .direction_f32 = (mask & 2) ? mem(out) : 0, .half = ((mask & 10) == 8) ? mem(out) : 0,
        .half_type = ((mask & 10) == 8) ? GF_TYPE_BF16 : GF_TYPE_F32,
        .ratio_f32 = (mask & 4) ? (gf_mem)(uintptr_t)&trust : 0, .gradient_type = t->type, .gradient_scale = t->scale,
        .rate = 0.1f, .decay = 0.01f, .epsilon = 1e-8f, .beta1 = 0.9f, .keep1 = 0.1f, .beta2 = 0.999f, .keep2 = 0.001f,
        .correct1 = 1.5f, .correct2 = 11.0f};
    assert_int_equal(gf_optimizer_ops(t->ops)->adam(NULL, &adam, t->count), GF_OK);
    for (uint64_t i = 0; i < t->count; i++) {
        float weight = at(w, i), m = at(m1, i), v = at(m2, i), r;
        if ((mask & 1) == 0) {
            float g = t->scale * at(src, i);
            m = 0.9f * m + 0.1f * g;
            v = 0.999f * v + (0.001f * g) * g;
            set(m1, i, m);
            set(m2, i, v);
        }
        r = (1.5f * m) / (11.0f * sqrtf(v) + 1e-8f) + 0.01f * weight;
        if ((mask & 10) != 0) set(out, i, (mask & 2) ? r : weight - rate * r);
        if ((mask & 2) == 0) set(w, i, weight - rate * r);
    }
    same(t, "adam's weight", w);
    same(t, "adam's first moment", m1);
    same(t, "adam's second moment", m2);
    same_count(t, "adam's half or r", out, (mask & 10) ? t->count : 0);
}

static void adam_cases(const struct turn *t)
{
    for (uint32_t mask = 0; mask < 16; mask += (t->count > 2000) ? 5 : 1) adam_case(t, mask);
}

TEST(test_update) { each_version(update_cases); }
TEST(test_adam) { each_version(adam_cases); }
