/* Norms and scores of finite gradients whose squares or sums fp32 does not hold: a step of them is
 * taken as any other, or skipped by all ranks and said so, and never vanishes. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"

#define RANKS 3u
#define ELEMS 4000u
#define ETA 0.5f

static const struct gf_tensor tensors[] = {{.name = "w", .elem_count = ELEMS},
                                           {.name = "b", .elem_count = 7}};

static struct world_setup setup_of(void)
{
    struct world_setup setup = {
        .world = RANKS, .tensors = tensors, .tensor_count = LENGTH(tensors), .sim = world_network};
    setup.config.exchange.average = GF_AVERAGE_RANKS;
    setup.config.exchange.pre_scale = 0.25f; /* sums of three of the largest fit */
    return setup;
}

/* Each element of tensor 0; the others are 0. */
static void fill_value(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    for (uint32_t i = 0; i < w->ranks[rank].tensors[tensor].elem_count; i++)
        ((float *)gradient)[i] = (tensor == 0) ? *(const float *)arg : 0;
}

static void step_of(struct world *w, float value)
{
    world_step_ok(w, &(struct world_step){.fill = fill_value, .arg = &value});
}

static bool near(double got, double want)
{
    return fabs(got - want) <= 1e-5 * fabs(want);
}

/* 1e-24 and below: no square in fp32. 1.9e19 and above: none either. */
static const float values[] = {1e-42f, 1e-30f,  1e-24f, 1e-20f, 1.0f,
                               1e18f,  1.9e19f, -1e25f, 1e30f,  5e36f};

TEST(the_norm_of_finite_gradients_is_right)
{
    for (size_t row = 0; row < LENGTH(values); row++) {
        struct world_setup setup = setup_of();
        double want = (double)fabsf(values[row]) * sqrt(ELEMS);
        float norm[RANKS];
        WORLD_OPEN(w, &setup);
        step_of(&w, values[row]);
        for (uint32_t r = 0; r < RANKS; r++) {
            assert_int_equal(gf_gradient_norm(w.ranks[r].gf, &norm[r], NULL), GF_OK);
            if (!near((double)norm[r], want) && (want > 1e-38))
                fail_msg("%g: the norm is %g, not %g", (double)values[row], (double)norm[r], want);
            assert_memory_equal(&norm[r], &norm[0], sizeof norm[0]);
        }
    }
}

TEST(clipping_of_finite_gradients_leaves_the_norm_that_was_asked_for)
{
    for (size_t row = 0; row < LENGTH(values); row++) {
        struct world_setup setup = setup_of();
        double norm = (double)fabsf(values[row]) * sqrt(ELEMS);
        double want = (double)values[row] * fmin(1, 2 / (norm + 1e-6));
        setup.config.optimizer.clip_norm = 2;
        WORLD_OPEN(w, &setup);
        step_of(&w, values[row]);
        for (uint32_t r = 0; r < RANKS; r++) {
            float first;
            assert_int_equal(gf_gradient_clip(w.ranks[r].gf, NULL), GF_OK);
            assert_false(gf_step_skipped(w.ranks[r].gf));
            first = ((const float *)world_gradient(&w, r, 0))[17];
            if (!near((double)first, want) && (fabs(want) > 1e-38))
                fail_msg("%g is clipped to %g, not %g", (double)values[row], (double)first, want);
        }
        world_expect_equal(&w);
    }
}

/* Each optimizer moves by what the clipped gradient, or the trust ratio, says. */
TEST(an_optimizer_learns_from_any_finite_gradient)
{
    static const struct learn_row {
        gf_optimizer kind;
        float clip;
    } rows[] = {{GF_OPTIMIZER_SGD, 2},
                {GF_OPTIMIZER_ADAMW, 2},
                {GF_OPTIMIZER_LARS, 0},
                {GF_OPTIMIZER_LARS, 2}};
    for (size_t row = 0; row < LENGTH(rows) * 4; row++) {
        const struct learn_row *l = &rows[row / 4];
        float value = values[6 + row % 4];
        struct world_setup setup = setup_of();
        double clipped = (double)copysignf(2.0f, value) / sqrt(ELEMS);
        double moved = (l->kind == GF_OPTIMIZER_SGD)     ? 0.25 * clipped
                       : (l->kind == GF_OPTIMIZER_ADAMW) ? (double)copysignf(0.25f, value)
                                                         : (double)copysignf(0.25f * ETA, value);
        setup.config.optimizer.kind = l->kind;
        setup.config.optimizer.clip_norm = l->clip;
        setup.config.optimizer.lars_eta = ETA;
        WORLD_OPEN(w, &setup);
        for (uint32_t r = 0; r < RANKS; r++)
            for (uint32_t i = 0; i < ELEMS; i++)
                ((float *)(uintptr_t)gf_weight(w.ranks[r].gf, 0))[i] = 1;
        step_of(&w, value);
        for (uint32_t r = 0; r < RANKS; r++) {
            const float *weight = (const float *)(uintptr_t)gf_weight(w.ranks[r].gf, 0);
            assert_int_equal(gf_update(w.ranks[r].gf, 0.25f), GF_OK);
            if (fabs((double)weight[5] - (1 - moved)) > 2e-5)
                fail_msg("row %zu by %g: weight %.9g, not %.9g", row, (double)value,
                         (double)weight[5], 1 - moved);
            assert_memory_equal(weight, (const void *)(uintptr_t)gf_weight(w.ranks[0].gf, 0),
                                ELEMS * sizeof *weight);
        }
    }
}

/* Whoever asks first: the update, or the trainer for its own optimizer. */
static void ask(gf_context *gf, gf_optimizer kind)
{
    float norm = 0;
    float factor = 1;
    if (kind != GF_OPTIMIZER_NONE) {
        assert_int_equal(gf_update(gf, 0.25f), GF_OK);
        return;
    }
    for (uint32_t again = 0; again < 2; again++) {
        assert_int_equal(gf_gradient_norm(gf, &norm, &factor), GF_OK);
        assert_true(isinf(norm) && (factor == 0));
    }
    assert_int_equal(gf_gradient_clip(gf, &norm), GF_OK);
    assert_true(isinf(norm) && (*(const float *)(uintptr_t)gf_gradient(gf, 0) == 0));
}

/* The norm itself leaves fp32; or the factor does, where clip_norm is tiny. */
TEST(a_norm_that_is_not_finite_skips_the_step_on_all_ranks)
{
    static const struct drop_row {
        gf_optimizer kind;
        float value, clip;
        const char *log;
    } rows[] = {{GF_OPTIMIZER_SGD, 2e37f, 2, "their norm 1.26491e+39 is not, in fp32"},
                {GF_OPTIMIZER_ADAMW, 4e37f, 2, "is not, in fp32"},
                {GF_OPTIMIZER_NONE, 2e37f, 2, "is not, in fp32"},
                {GF_OPTIMIZER_SGD, 1e36f, 1e-9f, "so large that optimizer.clip_norm makes them 0"}};
    for (size_t row = 0; row < LENGTH(rows); row++) {
        const struct drop_row *d = &rows[row];
        struct world_setup setup = setup_of();
        setup.config.optimizer.kind = d->kind;
        setup.config.optimizer.clip_norm = d->clip;
        setup.config.loss_scale.enabled = true;
        setup.config.loss_scale.initial = 8;
        setup.config.exchange.pre_scale = 0.03125f;
        WORLD_OPEN(w, &setup);
        for (uint32_t r = 0; r < RANKS; r++) assert_true(gf_loss_scale(w.ranks[r].gf) == 8);
        step_of(&w, 8 * d->value);
        for (uint32_t r = 0; r < RANKS; r++) {
            gf_context *gf = w.ranks[r].gf;
            const float *weight = (const float *)(uintptr_t)gf_weight(gf, 0);
            if (weight != NULL) ((float *)(uintptr_t)gf_weight(gf, 0))[1] = 1;
            assert_false(gf_step_skipped(gf));
            ask(gf, d->kind);
            assert_true(gf_step_skipped(gf));
            assert_true((weight == NULL) || (weight[1] == 1));
            assert_true(gf_loss_scale(gf) == 4);
            assert_int_equal(world_stats(&w, r).steps_skipped, 1);
            world_expect_log(&w, r, d->log);
        }
        step_of(&w, 1); /* and the job goes on */
        assert_false(gf_step_skipped(w.ranks[0].gf));
    }
}

/* Of no samples at all the average is 0: nothing is clipped, and nothing is skipped. */
TEST(an_average_of_no_samples_is_no_norm_to_skip)
{
    static const uint64_t none[RANKS] = {0};
    float value = 7;
    struct world_setup setup = setup_of();
    setup.config.exchange.average = GF_AVERAGE_SAMPLES;
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.optimizer.clip_norm = 2;
    WORLD_OPEN(w, &setup);
    world_step_ok(&w, &(struct world_step){.fill = fill_value, .arg = &value, .samples = none});
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_int_equal(gf_update(w.ranks[r].gf, 0.25f), GF_OK);
        assert_false(gf_step_skipped(w.ranks[r].gf));
    }
}

/* Without clip_norm the norm is told, and nobody skips what one rank alone may have asked for. */
TEST(a_norm_that_is_only_told_skips_nothing)
{
    struct world_setup setup = setup_of();
    float norm = 0;
    float factor = 0;
    WORLD_OPEN(w, &setup);
    step_of(&w, 3e38f);
    assert_int_equal(gf_gradient_norm(w.ranks[1].gf, &norm, &factor), GF_OK);
    assert_true(isinf(norm) && (factor == 1));
    assert_false(gf_step_skipped(w.ranks[1].gf));
}

/* Magnitudes of a chunk that add up beyond fp32 are no value that is not finite. */
TEST(a_chunk_whose_magnitudes_overflow_is_sent)
{
    for (uint32_t local = 0; local < 2; local++) {
        struct world_setup setup = setup_of();
        setup.config.sparse.enabled = true;
        setup.config.sparse.chunk_elems = 500;
        setup.config.sparse.keep_share = 0.5f;
        setup.config.sparse.warmup_steps = 1;
        setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
        setup.config.optimizer.momentum = 0.5f;
        setup.config.sparse.momentum =
            local ? GF_SPARSE_MOMENTUM_LOCAL : GF_SPARSE_MOMENTUM_REDUCED;
        WORLD_OPEN(w, &setup);
        for (uint32_t step = 0; step < 3; step++) {
            step_of(&w, 1e36f);
            for (uint32_t r = 0; r < RANKS; r++) {
                assert_false(gf_step_skipped(w.ranks[r].gf));
                assert_int_equal(gf_update(w.ranks[r].gf, 1e-6f), GF_OK);
            }
        }
    }
}
