/* What the numbers of a step are: averages and scales, types, and values that are not finite. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world_setups.h"

/* ---- averages and scales ---- */

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

static void fill_one(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct gf_tensor *of = &w->ranks[rank].tensors[tensor];
    for (uint64_t e = 0; e < of->elem_count; e++)
        world_put(of->type, gradient, e, *(const float *)arg);
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
        struct world_step step = {.fill = fill_one, .arg = &value};
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

/* ---- values that are not finite ---- */

struct spoil {
    uint32_t rank, tensor;
    uint64_t elem;
    float value, others;
};

static void fill_spoilt(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct spoil *spoil = arg;
    gf_type type = w->ranks[rank].tensors[tensor].type;
    world_fill(w, rank, tensor, gradient, NULL);
    if (tensor != spoil->tensor) return;
    if ((spoil->rank == rank) || (spoil->rank == GF_RANK_NONE))
        world_put(type, gradient, spoil->elem, spoil->value);
    else if (spoil->others != 0)
        world_put(type, gradient, spoil->elem, spoil->others);
}

static void weights_snapshot(struct world *w, uint32_t rank, float *weights_out)
{
    for (uint32_t tensor = 0, at = 0; tensor < w->ranks[rank].tensor_count; tensor++) {
        uint64_t count = w->ranks[rank].tensors[tensor].elem_count;
        memcpy(weights_out + at, (const void *)(uintptr_t)gf_weight(w->ranks[rank].gf, tensor),
               count * sizeof(float));
        at += (uint32_t)count;
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
            struct spoil large = {GF_RANK_NONE, 3, 5, 65521.0f, 0};
            struct world_step noise = {.fill = world_fill_noise};
            struct world_step step = {.fill = fill_spoilt, .arg = &large};
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

#define MIXED_ELEMS 17732u

TEST(one_value_that_is_not_finite_is_named_and_no_rank_moves)
{
    static const struct spoil_case {
        gf_type wire;
        struct spoil spoil;
        const char *log;
    } cases[] = {
        {GF_TYPE_F32,
         {2, 6, 10006, NAN, 0},
         "1 values are not finite, first on rank 2, tensor 6 \"large\", element 10006"},
        {GF_TYPE_F16,
         {0, 2, 7, INFINITY, 0},
         "1 values are not finite, first on rank 0, tensor 2 \"odd\", element 7"},
        {GF_TYPE_BF16,
         {1, 9, 3000, -INFINITY, 0},
         "first on rank 1, tensor 9 \"last\", element 3000"},
        /* becomes so in the cast */
        {GF_TYPE_F16, {1, 1, 0, 65520.0f, 0}, "first on rank 1, tensor 1 \"one\", element 0"},
        {GF_TYPE_F32,
         {GF_RANK_NONE, 3, 77, NAN, 0},
         "3 values are not finite, first on rank 0, tensor 3 \"round\", element 77"},
        {GF_TYPE_F16,
         {1, 3, 5, 65504.0f, 65504.0f},
         "tensor 3 \"round\", element 5; every local gradient was finite"},
        {GF_TYPE_F32,
         {1, 3, 5, 3e38f, 3e38f},
         "tensor 3 \"round\", element 5; every local gradient was finite"},
        {GF_TYPE_BF16,
         {1, 8, 63, -3e38f, -3e38f},
         "tensor 8 \"small\", element 63; every local gradient was finite"},
    };
    static const uint32_t algorithms[] = {GF_ALGORITHM_RING,     GF_ALGORITHM_HALVING,
                                          GF_ALGORITHM_DOUBLING, GF_ALGORITHM_TREE,
                                          GF_ALGORITHM_SERVER,   GF_ALGORITHM_DIRECT};
    static float before[3][MIXED_ELEMS];
    static float after[MIXED_ELEMS];
    for (size_t row = 0; row < LENGTH(cases) * LENGTH(algorithms); row++) {
        const struct spoil_case *c = &cases[row % LENGTH(cases)];
        struct spoil spoil = c->spoil;
        static struct world_setup setup;
        struct world_step good = {.order = WORLD_FORWARD};
        struct world_step bad = {.fill = fill_spoilt, .arg = &spoil};
        if ((algorithms[row / LENGTH(cases)] == GF_ALGORITHM_DIRECT) && (c->wire == GF_TYPE_F16) &&
            isfinite(spoil.value))
            continue; /* fp32 holds it, and nothing leaves the node */
        setup = mixed_setup(3);
        setup.config.exchange.wire = c->wire;
        setup.config.exchange.algorithm = (gf_algorithm)algorithms[row / LENGTH(cases)];
        if (setup.config.exchange.algorithm == GF_ALGORITHM_DIRECT) setup.sim.ranks_per_node = 3;
        setup.config.exchange.fuse_bytes = 5000;
        setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
        setup.config.optimizer.momentum = 0.5f;
        WORLD_OPEN(w, &setup);
        world_step_run(&w, &good);
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_int_equal(gf_update(w.ranks[rank].gf, 0.25f), GF_OK);
            weights_snapshot(&w, rank, before[rank]);
        }
        world_step_ok(&w, &bad);
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_true(gf_step_skipped(w.ranks[rank].gf));
            world_expect_log(&w, rank, c->log);
            assert_int_equal(gf_update(w.ranks[rank].gf, 0.25f), GF_OK);
            weights_snapshot(&w, rank, after);
            assert_memory_equal(before[rank], after, sizeof after);
            assert_int_equal(world_stats(&w, rank).steps_skipped, 1);
        }
        world_step_ok(&w, &good);
        for (uint32_t rank = 0; rank < 3; rank++) {
            float sum = world_sum(3, 3, 0);
            float weight;
            assert_false(gf_step_skipped(w.ranks[rank].gf));
            assert_int_equal(gf_update(w.ranks[rank].gf, 0.25f), GF_OK);
            weight = *(const float *)(uintptr_t)gf_weight(w.ranks[rank].gf, 3);
            /* the momentum is that of the first step */
            assert_true(weight == -0.25f * sum - 0.25f * (0.5f * sum + sum));
        }
    }
}

/* The wire holds the sum and the gradient's own type does not; or values only once the scale is
 * taken out. */
TEST(what_only_the_result_cannot_hold_is_found)
{
    static const struct gf_tensor half[] = {
        {.name = "half", .elem_count = 100, .type = GF_TYPE_F16}};
    for (uint32_t row = 0; row < 4; row++) {
        const bool scaled = row % 2 == 1;
        struct spoil sum = {
            .rank = 0, .tensor = 0, .elem = 5, .value = 40000.0f, .others = 40000.0f};
        struct spoil inverse = {.rank = GF_RANK_NONE, .tensor = 3, .elem = 5, .value = 2e38f};
        struct world_step step = {.fill = fill_spoilt, .arg = scaled ? &inverse : &sum};
        struct world_setup setup = mixed_setup(2);
        if (!scaled)
            setup.tensors = half, setup.tensor_count = 1;
        else
            setup.config.exchange.pre_scale = 0x1p-10f;
        setup.config.optimizer.kind = (row < 2) ? GF_OPTIMIZER_NONE : GF_OPTIMIZER_SGD;
        WORLD_OPEN(w, &setup);
        world_step_ok(&w, &step);
        for (uint32_t rank = 0; rank < 2; rank++) {
            if (!gf_step_skipped(w.ranks[rank].gf))
                fail_msg("%s: rank %u took the step", scaled ? "inverse" : "sum", rank);
            world_expect_log(&w, rank, "every local gradient was finite");
        }
    }
}

static uint32_t warnings_count(const struct world *w, uint32_t rank)
{
    uint32_t count = 0;
    for (const char *at = w->ranks[rank].log; (at = strstr(at, "skipped on all ranks")) != NULL;
         at++)
        count++;
    return count;
}

/* A cause that stays is told at the 1st, 2nd, 4th .. step, with what helps; after a hundred good
 * steps it is news again. */
TEST(steps_that_are_skipped_again_and_again_are_told_seldom)
{
    struct spoil sum = {.rank = GF_RANK_NONE, .tensor = 3, .elem = 5, .value = 30000};
    struct spoil value = {.rank = 1, .tensor = 2, .elem = 7, .value = NAN};
    struct world_step good = {.order = WORLD_FORWARD};
    struct world_step over = {.fill = fill_spoilt, .arg = &sum};
    struct world_step none = {.fill = fill_spoilt, .arg = &value};
    struct world_setup setup = mixed_setup(3);
    setup.config.exchange.wire = GF_TYPE_F16;
    setup.config.exchange.average = GF_AVERAGE_RANKS;
    WORLD_OPEN(w, &setup);
    for (uint32_t step = 1; step <= 20; step++) world_step_ok(&w, &over);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(world_stats(&w, rank).steps_skipped, 20);
        assert_int_equal(warnings_count(&w, rank), 5);
        world_expect_log(&w, rank,
                         "was finite; exchange.pre_scale = 0.25 (now 1) keeps sums of 3 "
                         "ranks in range\n");
        world_expect_log(&w, rank, "ranks in range (16 such steps since step 1)");
    }
    world_log_clear(&w);
    for (uint32_t step = 0; step < 3; step++) world_step_ok(&w, &none);
    assert_int_equal(warnings_count(&w, 2), 2);
    world_expect_log(&w, 2, "element 7 (2 such steps since step 21)");
    for (uint32_t step = 0; step < 99; step++) world_step_ok(&w, &good);
    world_step_ok(&w, &none);
    assert_int_equal(warnings_count(&w, 2), 3);
    world_expect_log(&w, 2, "element 7 (4 such steps since step 21)");
    for (uint32_t step = 0; step < 100; step++) world_step_ok(&w, &good);
    world_step_ok(&w, &none);
    world_expect_log(&w, 2, "element 7\n");
    assert_int_equal(warnings_count(&w, 2), 4);
}

/* And that scale does help; without it the result itself leaves its type. */
TEST(the_scale_that_a_warning_names_helps)
{
    static const struct gf_tensor half = {.name = "h", .elem_count = 9, .type = GF_TYPE_F16};
    float value = 30000;
    struct world_step step = {.fill = fill_one, .arg = &value};
    for (uint32_t row = 0; row < 2; row++) {
        struct world_setup setup = {
            .world = 3, .tensors = &half, .tensor_count = 1, .sim = world_network};
        setup.config.exchange.average = (row == 0) ? GF_AVERAGE_RANKS : GF_AVERAGE_SUM;
        setup.config.exchange.pre_scale = 0.25f;
        setup.config.exchange.wire = GF_TYPE_F16;
        WORLD_OPEN(w, &setup);
        world_step_ok(&w, &step);
        assert_true(gf_step_skipped(w.ranks[0].gf) == (row == 1));
        if (row == 0) assert_true(world_get(GF_TYPE_F16, world_gradient(&w, 1, 0), 4) == 30000);
        if (row == 1) world_expect_log(&w, 0, "small enough: the result itself leaves its type");
    }
}

static void loss_scale_follows(gf_type wire)
{
    static const struct scale_case {
        bool bad;
        float after;
    } cases[] = {{false, 16}, {false, 32}, {true, 32}, {true, 16}, {true, 16}, {false, 16},
                 {true, 16},  {true, 8},   {true, 8},  {true, 4},  {true, 4}};
    struct spoil spoil = {
        .rank = 1, .tensor = 2, .elem = 3, .value = (wire == GF_TYPE_F16) ? 65520.0f : NAN};
    struct world_step good = {.order = WORLD_FORWARD};
    struct world_step bad = {.fill = fill_spoilt, .arg = &spoil};
    struct world_setup setup = mixed_setup(2);
    setup.config.exchange.wire = wire;
    setup.config.loss_scale.enabled = true;
    setup.config.loss_scale.initial = 16;
    setup.config.loss_scale.floor = 4;
    setup.config.loss_scale.growth_interval = 2;
    setup.config.loss_scale.hysteresis = 2;
    WORLD_OPEN(w, &setup);
    for (size_t i = 0; i < LENGTH(cases); i++) {
        world_step_run(&w, cases[i].bad ? &bad : &good);
        world_expect(&w, GF_OK);
        for (uint32_t rank = 0; rank < 2; rank++) {
            assert_int_equal(gf_step_skipped(w.ranks[rank].gf), cases[i].bad);
            assert_true(gf_loss_scale(w.ranks[rank].gf) == cases[i].after);
            assert_true(world_stats(&w, rank).loss_scale == cases[i].after);
        }
    }
    world_step_run(&w, &bad);
    world_expect(&w, GF_ERR_NUMERIC);
    for (uint32_t rank = 0; rank < 2; rank++) {
        const struct gf_error *error = gf_error_last(w.ranks[rank].gf);
        assert_int_equal(error->code, GF_ERR_NUMERIC);
        assert_int_equal(error->step, LENGTH(cases) + 1);
        assert_non_null(strstr(error->text, "loss scale 4 is at its floor"));
        assert_int_equal(gf_step_begin(w.ranks[rank].gf), GF_ERR_NUMERIC);
    }
}

/* A file has loss_scale.enabled, and the trainer does not know of it: it would learn nothing. */
TEST(a_gradient_whose_scale_was_not_asked_for_is_refused)
{
    struct world_setup setup = mixed_setup(1);
    gf_context *gf;
    setup.config.loss_scale.enabled = true;
    setup.config.loss_scale.initial = 16;
    setup.config.loss_scale.growth_interval = 1;
    WORLD_OPEN(w, &setup);
    gf = w.ranks[0].gf;
    for (uint32_t turn = 0; turn < 2; turn++) {
        assert_int_equal(gf_step_begin(gf), GF_OK);
        assert_int_equal(gf_tensor_ready(gf, 0, 0), GF_ERR_STATE);
        assert_int_equal(gf_tensors_ready(gf, 0, 1, 0), GF_ERR_STATE);
        assert_int_equal(gf_tensor_copy(gf, 0, &setup, 0), GF_ERR_STATE);
        world_expect_log(&w, 0,
                         (turn == 0)
                             ? "the loss scale is 16, and gf_loss_scale() was not asked for it"
                             : "the loss scale is 32, and gf_loss_scale() was not asked since");
        assert_int_equal(gf_error_last(gf)->code, GF_OK);
        assert_true(gf_loss_scale(gf) == ((turn == 0) ? 16.0f : 32.0f));
        assert_int_equal(gf_tensor_ready(gf, 0, 0), GF_OK);
        for (uint32_t i = 1; i < w.ranks[0].tensor_count; i++)
            assert_int_equal(gf_tensor_skip(gf, i), GF_OK);
        assert_int_equal(gf_step_wait(gf), GF_OK);
    }
}

TEST(the_loss_scale_follows_good_and_bad_steps_to_its_floor)
{
    loss_scale_follows(GF_TYPE_F32);
    loss_scale_follows(GF_TYPE_F16);
}

TEST(the_loss_scale_falls_to_its_floor_where_a_whole_factor_would_pass_it)
{
    struct spoil spoil = {.rank = 1, .tensor = 2, .elem = 3, .value = NAN};
    struct world_step bad = {.fill = fill_spoilt, .arg = &spoil};
    struct world_setup setup = mixed_setup(2);
    setup.config.loss_scale.enabled = true;
    setup.config.loss_scale.initial = 32;
    setup.config.loss_scale.floor = 4;
    setup.config.loss_scale.factor = 16;
    WORLD_OPEN(w, &setup);
    world_step_run(&w, &bad);
    world_expect(&w, GF_OK);
    assert_true(gf_loss_scale(w.ranks[0].gf) == 4);
    world_step_run(&w, &bad);
    world_expect(&w, GF_ERR_NUMERIC);
}
