/* The loss scale: how it follows good and bad steps, and that a trainer must ask for it. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world_setups.h"

static void loss_scale_follows(gf_type wire)
{
    static const struct scale_case {
        bool bad;
        float after;
    } cases[] = {{false, 16}, {false, 32}, {true, 32}, {true, 16}, {true, 16}, {false, 16},
                 {true, 16},  {true, 8},   {true, 8},  {true, 4},  {true, 4}};
    struct world_spoil spoil = {
        .rank = 1, .tensor = 2, .elem = 3, .value = (wire == GF_TYPE_F16) ? 65520.0f : NAN};
    struct world_step good = {.order = WORLD_FORWARD};
    struct world_step bad = {.fill = world_fill_spoilt, .arg = &spoil};
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

TEST(the_loss_scale_follows_good_and_bad_steps_to_its_floor)
{
    loss_scale_follows(GF_TYPE_F32);
    loss_scale_follows(GF_TYPE_F16);
}

TEST(the_loss_scale_falls_to_its_floor_where_a_whole_factor_would_pass_it)
{
    struct world_spoil spoil = {.rank = 1, .tensor = 2, .elem = 3, .value = NAN};
    struct world_step bad = {.fill = world_fill_spoilt, .arg = &spoil};
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

/* A step doubled the scale, the trainer multiplied its loss by that, and then the step was a bad
 * one after all: the scale is another again. */
TEST(a_scale_that_was_asked_for_before_the_step_was_dropped_is_asked_for_anew)
{
    float huge = 1.5e38f;
    struct world_step bad = {.fill = world_fill_one, .arg = &huge};
    struct world_setup setup = mixed_setup(2);
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.optimizer.clip_norm = 1;
    setup.config.loss_scale.enabled = true;
    setup.config.loss_scale.initial = 16;
    setup.config.loss_scale.growth_interval = 1;
    setup.config.loss_scale.hysteresis = 2;
    WORLD_OPEN(w, &setup);
    world_step_run(&w, &bad);
    world_expect(&w, GF_OK);
    for (uint32_t rank = 0; rank < 2; rank++) {
        gf_context *gf = w.ranks[rank].gf;
        assert_true(gf_loss_scale(gf) == 32.0f);
        assert_int_equal(gf_update(gf, 0.5f), GF_OK);
        assert_true(world_stats(&w, rank).loss_scale == 16.0f);
        assert_int_equal(gf_step_begin(gf), GF_OK);
        assert_int_equal(gf_tensor_ready(gf, 0, 0), GF_ERR_STATE);
        world_expect_log(&w, rank, "is 16, and gf_loss_scale() was not asked since");
        assert_true(gf_loss_scale(gf) == 16.0f);
        assert_int_equal(gf_tensor_ready(gf, 0, 0), GF_OK);
    }
}

/* All gradients are finite and their norm is not, which gf_update() alone finds: for the scale each
 * such step is a bad one, and never a good one before. */
TEST(a_norm_beyond_fp32_is_a_bad_step_for_the_loss_scale)
{
    static const float after[] = {16, 8, 8, 4, 4}; /* two bad steps in a row lower it */
    float huge = 1.5e38f;
    struct world_step bad = {.fill = world_fill_one, .arg = &huge};
    struct world_setup setup = mixed_setup(2);
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.optimizer.clip_norm = 1;
    setup.config.loss_scale.enabled = true;
    setup.config.loss_scale.initial = 16;
    setup.config.loss_scale.floor = 4;
    setup.config.loss_scale.growth_interval = 1; /* a good one would double it */
    setup.config.loss_scale.hysteresis = 2;
    WORLD_OPEN(w, &setup);
    for (size_t i = 0; i < LENGTH(after); i++) {
        world_step_run(&w, &bad);
        world_expect(&w, GF_OK);
        for (uint32_t rank = 0; rank < 2; rank++) {
            gf_context *gf = w.ranks[rank].gf;
            assert_false(gf_step_skipped(gf));
            (void)gf_loss_scale(gf); /* a trainer may ask before it updates */
            assert_int_equal(gf_update(gf, 0.5f), GF_OK);
            assert_true(gf_step_skipped(gf));
            assert_true(gf_loss_scale(gf) == after[i]);
        }
    }
    world_step_run(&w, &bad);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(gf_update(w.ranks[rank].gf, 0.5f), GF_ERR_NUMERIC);
}
