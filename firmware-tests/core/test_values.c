/* What the numbers of a step are: averages, scales and types. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world_setups.h"

TEST(averages_divide_by_what_they_say)
{
    static const uint64_t samples[] = {22, 21, 0, 21, 0};
    static const uint64_t none[5] = {0};
    static const struct average_case {
        gf_average average;
        float pre_scale;
        const uint64_t *samples;
        float factor;
    } cases[] = {{GF_AVERAGE_SUM, 0, NULL, 1},
                 {GF_AVERAGE_SUM, 0.125f, samples, 1},
                 {GF_AVERAGE_RANKS, 0, samples, 1.0f / 5},
                 {GF_AVERAGE_RANKS, 1024.0f, NULL, 1.0f / 5},
                 {GF_AVERAGE_SAMPLES, 0, NULL, 1.0f / 5},
                 {GF_AVERAGE_SAMPLES, 0, samples, 1.0f / 64},
                 {GF_AVERAGE_SAMPLES, 0, none, 0},
                 {GF_AVERAGE_SAMPLES, 64.0f, samples, 1.0f / 64}};
    for (size_t row = 0; row < LENGTH(cases) * GF_TYPE_COUNT; row++) {
        const struct average_case *c = &cases[row / GF_TYPE_COUNT];
        struct world_setup setup = mixed_setup(5);
        struct world_step step = {.order = WORLD_BACKWARD, .samples = c->samples};
        setup.config.exchange.average = c->average;
        setup.config.exchange.pre_scale = c->pre_scale;
        setup.config.exchange.wire = (gf_type)(row % GF_TYPE_COUNT);
        setup.config.exchange.slice_bytes = 4096;
        WORLD_OPEN(w, &setup);
        world_step_ok(&w, &step);
        world_expect_sums(&w, c->factor);
        assert_true(gf_gradient_scale(w.ranks[2].gf) == 1.0f);
    }
}

/* With an optimizer of the library's fp32 gradients keep the scale that gf_update() multiplies
 * with, unless the average is larger than the sum. */
TEST(the_update_multiplies_what_keeps_its_scale)
{
    static const uint64_t samples[] = {3, 5, 0};
    static const struct keep_case {
        gf_average average;
        float pre_scale, scale; /* scale: of an average to what the wire summed */
        bool keeps;
    } cases[] = {{GF_AVERAGE_SUM, 4, 1.0f / 32, true},
                 {GF_AVERAGE_RANKS, 4, 1.0f / 96, true},
                 {GF_AVERAGE_SAMPLES, 4, 1.0f / 256, true},
                 {GF_AVERAGE_SUM, 0.0625f, 2, false},
                 {GF_AVERAGE_SAMPLES, 0.0625f, 0.25f, false}};
    for (size_t row = 0; row < LENGTH(cases) * GF_TYPE_COUNT; row++) {
        const struct keep_case *c = &cases[row / GF_TYPE_COUNT];
        struct world_setup setup = mixed_setup(3);
        struct world_step step = {.order = WORLD_RANDOM, .samples = samples};
        setup.config.exchange.wire = (gf_type)(row % GF_TYPE_COUNT);
        setup.config.exchange.average = c->average;
        setup.config.exchange.pre_scale = c->pre_scale;
        setup.config.loss_scale.enabled = true;
        setup.config.loss_scale.initial = 8;
        setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
        WORLD_OPEN(w, &setup);
        world_step_ok(&w, &step);
        for (uint32_t rank = 0; rank < 3; rank++) {
            gf_context *gf = w.ranks[rank].gf;
            float wired = world_sum(3, 3, 77) * c->pre_scale;
            float held = world_get(GF_TYPE_F32, world_gradient(&w, rank, 3), 77);
            assert_true(gf_gradient_scale(gf) == c->scale);
            assert_true(held == (c->keeps ? wired : wired * c->scale));
            assert_int_equal(gf_update(gf, 0.5f), GF_OK);
            assert_true(((const float *)(uintptr_t)gf_weight(gf, 3))[77] ==
                        -(0.5f * (wired * c->scale)));
        }
    }
}

static const struct gf_tensor typed[] = {
    {.name = "f16", .elem_count = 1001, .type = GF_TYPE_F16},
    {.name = "f32", .elem_count = 700},
    {.name = "bf16", .elem_count = 2048, .type = GF_TYPE_BF16},
    {.name = "f16.small", .elem_count = 3, .type = GF_TYPE_F16},
    {.name = "f16.next", .elem_count = 5000, .type = GF_TYPE_F16},
    {.name = "f32.last", .elem_count = 9},
};

/* As the type holds it. */
static float rounded(gf_type type, float value)
{
    uint32_t data = 0;
    world_put(type, &data, 0, value);
    return world_get(type, &data, 0);
}

/* With an optimizer of the library's 16-bit gradients keep loss scale and pre-scale, and the number
 * of ranks or samples; without one they are the average, rounded once. */
TEST(gradients_of_16_bits_are_summed_in_their_type)
{
    static const uint64_t samples[] = {3, 5, 0};
    static const struct typed_case {
        gf_average average;
        float pre_scale, scale; /* scale: of the average to what was summed, loss scale 8 */
    } cases[] = {{GF_AVERAGE_RANKS, 4, 1.0f / 96},
                 {GF_AVERAGE_SUM, 4, 1.0f / 32},
                 {GF_AVERAGE_SAMPLES, 4, 1.0f / 256},
                 {GF_AVERAGE_RANKS, 0.0625f, 2.0f / 3},
                 {GF_AVERAGE_SAMPLES, 0.0625f, 0.25f}};
    for (uint32_t row = 0; row < LENGTH(cases) * GF_TYPE_COUNT * 4; row++) {
        const struct typed_case *c = &cases[row / 4 / GF_TYPE_COUNT];
        const bool own = row % 2 == 0;
        const uint32_t wire = row / 4 % GF_TYPE_COUNT;
        struct world_setup setup = mixed_setup(3);
        struct world_step step = {.order = WORLD_RANDOM, .samples = samples};
        setup.tensors = typed;
        setup.tensor_count = LENGTH(typed);
        setup.sim.ranks_per_node = (row / 2 % 2 == 1) ? 3 : 0;
        setup.config.exchange.wire = (gf_type)wire;
        setup.config.exchange.average = c->average;
        setup.config.exchange.fuse_bytes = (wire == 1) ? 1 : 0;
        setup.config.exchange.pre_scale = c->pre_scale;
        setup.config.loss_scale.enabled = true;
        setup.config.loss_scale.initial = 8.0f;
        if (!own) setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
        WORLD_OPEN(w, &setup);
        for (uint32_t r = 0; r < 3; r++) assert_true(gf_loss_scale(w.ranks[r].gf) == 8.0f);
        world_step_ok(&w, &step);
        for (uint32_t tensor = 0; tensor < LENGTH(typed); tensor++) {
            gf_type type = typed[tensor].type;
            float known = (c->average == GF_AVERAGE_SAMPLES) ? 0.125f / c->pre_scale : c->scale;
            bool keeps = !own && ((type != GF_TYPE_F32) || (known <= 1));
            float factor = keeps ? 1.0f : c->scale;
            for (uint64_t e = 0; e < typed[tensor].elem_count; e++) {
                float summed = world_sum(3, tensor, e) * c->pre_scale;
                float got = world_get(type, world_gradient(&w, 0, tensor), e);
                if (got != rounded(type, summed * factor))
                    fail_msg("row %u, tensor %u: %g, not %g", row, tensor, (double)got,
                             (double)(summed * factor));
            }
        }
        assert_true(gf_gradient_scale(w.ranks[1].gf) == (own ? 1.0f : c->scale));
        world_expect_equal(&w);
    }
}

/* What a trainer reads that has its own optimizer and no scale: the 1.5 on two ranks. And
 * what fp16 does not hold once the loss scale is out: below 2^-25 a value is 0, bf16 has it. */
TEST(a_trainer_of_its_own_reads_the_average_of_16_bits)
{
    static const struct own_case {
        gf_type type;
        float value, scale, want;
    } cases[] = {{GF_TYPE_BF16, 1.5f, 1, 1.5f},           {GF_TYPE_F16, 1.5f, 1, 1.5f},
                 {GF_TYPE_F16, 0x1p-14f, 64, 0x1p-14f},   {GF_TYPE_F16, 0x1p-24f, 64, 0x1p-24f},
                 {GF_TYPE_F16, 0x1p-26f, 64, 0},          {GF_TYPE_BF16, 0x1p-26f, 64, 0x1p-26f},
                 {GF_TYPE_BF16, 0x1p-120f, 64, 0x1p-120f}};
    for (size_t row = 0; row < LENGTH(cases) * 2; row++) {
        const struct own_case *c = &cases[row / 2];
        const struct gf_tensor one = {.name = "w", .elem_count = 9, .type = c->type};
        struct world_setup setup = {
            .world = 2, .tensors = &one, .tensor_count = 1, .sim = world_network};
        float value = c->value * c->scale;
        struct world_step step = {.fill = world_fill_one, .arg = &value};
        setup.config.exchange.average = (row % 2 == 0) ? GF_AVERAGE_RANKS : GF_AVERAGE_SAMPLES;
        setup.config.exchange.wire = c->type;
        setup.config.loss_scale.enabled = c->scale != 1;
        setup.config.loss_scale.initial = c->scale;
        WORLD_OPEN(w, &setup);
        for (uint32_t r = 0; r < 2; r++) assert_true(gf_loss_scale(w.ranks[r].gf) == c->scale);
        world_step_ok(&w, &step);
        for (uint32_t r = 0; r < 2; r++)
            assert_true(world_get(c->type, world_gradient(&w, r, 0), 8) == c->want);
        assert_true(gf_gradient_scale(w.ranks[0].gf) == 1);
    }
}

/* The same values, whatever cuts them into messages. */
TEST(deterministic_sums_do_not_depend_on_fusion_or_slices)
{
    static const struct cut {
        uint64_t fuse_bytes;
        uint32_t slice_bytes, window, active;
        gf_algorithm algorithm;
    } cuts[] = {{1u << 30, 262144, 8, 4, GF_ALGORITHM_AUTO},
                {1, 4096, 1, 1, GF_ALGORITHM_AUTO},
                {5000, 4160, 3, 16, GF_ALGORITHM_AUTO},
                {20000, 8192, 32, 2, GF_ALGORITHM_HALVING},
                {3000, 4096, 4, 3, GF_ALGORITHM_DOUBLING}};
    static const uint32_t worlds[] = {3, 4, 6, 7};
    for (size_t row = 0; row < 2 * LENGTH(worlds) * GF_TYPE_COUNT; row++) {
        bool in_memory = row >= LENGTH(worlds) * GF_TYPE_COUNT;
        uint64_t hash = 0;
        for (size_t i = 0; i < LENGTH(cuts); i++) {
            struct world_setup setup = mixed_setup(worlds[row % LENGTH(worlds)]);
            struct world_step step = {.order = (world_order)(i % WORLD_ORDER_COUNT),
                                      .fill = world_fill_noise};
            setup.config.exchange.deterministic = true;
            setup.config.exchange.wire = (gf_type)(row / LENGTH(worlds) % GF_TYPE_COUNT);
            setup.config.exchange.fuse_bytes = cuts[i].fuse_bytes;
            setup.config.exchange.slice_bytes = cuts[i].slice_bytes;
            setup.config.exchange.buffers_active = cuts[i].active;
            setup.config.exchange.algorithm = in_memory ? GF_ALGORITHM_DIRECT : cuts[i].algorithm;
            setup.config.exchange.doubling_max_bytes = 1000;
            setup.config.link.window = cuts[i].window;
            setup.sim.ranks_per_node = in_memory ? setup.world : 0;
            setup.sim.seed = i + 1;
            WORLD_OPEN(w, &setup);
            for (int repeat = 0; repeat < 1 + in_memory; repeat++) { /* in other rows */
                world_step_ok(&w, &step);
                if ((i == 0) && (repeat == 0)) hash = world_hash(&w, 0);
                assert_true(world_hash(&w, 0) == hash);
            }
        }
    }
}

/* A 16-bit wire rounds what leaves the node: of one rank alone and among ranks of one node the bits
 * are those of an fp32 wire, and a sum beyond fp16 is held. */
TEST(inside_a_node_the_gradients_keep_their_type)
{
    for (uint32_t row = 0; row < 3 * 2; row++) {
        uint64_t hash = 0;
        for (uint32_t wire = 0; wire < GF_TYPE_COUNT; wire++) {
            struct world_setup setup = mixed_setup(1 + row / 2);
            struct world_spoil large = {GF_RANK_NONE, 3, 5, 65521.0f, 0};
            struct world_step noise = {.fill = world_fill_noise};
            struct world_step step = {.fill = world_fill_spoilt, .arg = &large};
            if (row % 2 == 1) {
                setup.tensors = typed;
                setup.tensor_count = LENGTH(typed);
                large.tensor = 1;
            }
            setup.config.exchange.wire = (gf_type)wire;
            setup.config.exchange.fuse_bytes = 5000;
            setup.sim.ranks_per_node = setup.world;
            WORLD_OPEN(w, &setup);
            world_step_ok(&w, &noise);
            if (wire == 0) hash = world_hash(&w, 0);
            assert_true(world_hash(&w, 0) == hash);
            world_step_ok(&w, &step);
            assert_false(gf_step_skipped(w.ranks[0].gf));
            assert_true(world_get(GF_TYPE_F32, world_gradient(&w, setup.world - 1, large.tensor),
                                  5) == 65521.0f * (float)setup.world);
        }
    }
}
