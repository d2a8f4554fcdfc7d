/* What a rank has as the next generation begins, and what it is given on the way there: memory,
 * steps, gradients, and the history of one that was left out. */
#include "firmware-tests/cuda/late_gpu.h"
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/elastic.h"
#include "lib/context.h"

/* ---- a planned regroup: the last rank leaves ---- */

#define RANKS 3u

static gf_mem taken[RANKS]; /* by a rank that regroups */

static gf_status updates(struct world *w, uint32_t rank, void *arg)
{
    (void)arg;
    return gf_update(w->ranks[rank].gf, RATE);
}

static gf_status regroups(struct world *w, uint32_t rank, void *arg)
{
    gf_context *gf = w->ranks[rank].gf;
    gf_status status = world_regroup_progress(w, rank, arg);
    if (status == GF_AGAIN) taken[rank] |= gf_exchange_take(gf, 64);
    return status;
}

static void last_leaves(struct world *w, const struct world_setup *setup)
{
    const struct world_step step = {.order = WORLD_FORWARD};
    world_open(w, setup);
    assert_int_equal(gf_leave(w->ranks[RANKS - 1].gf), GF_OK);
    world_step_ok(w, &step);
    world_run(w, updates, NULL);
    assert_int_equal(gf_regroup_due(w->ranks[0].gf), 1);
    memset(taken, 0, sizeof taken);
    for (uint32_t rank = 0; rank < RANKS; rank++) w->ranks[rank].next = 0;
    world_run(w, regroups, NULL);
    world_expect(w, GF_OK);
    assert_true(gf_left(w->ranks[RANKS - 1].gf));
}

/* It would be handed out again once the generation has begun. */
TEST(exchange_memory_is_handed_out_before_and_after_a_regroup)
{
    struct world_setup setup = elastic_setup(RANKS);
    setup.config.exchange.user_bytes = 64;
    WORLD(w);
    last_leaves(&w, &setup);
    for (uint32_t rank = 0; rank < RANKS - 1; rank++) {
        assert_int_equal(taken[rank], 0);
        assert_int_not_equal(gf_exchange_take(w.ranks[rank].gf, 64), 0);
    }
}

TEST(no_step_is_whole_before_one_was_begun)
{
    struct world_setup setup = elastic_setup(RANKS);
    WORLD(w);
    last_leaves(&w, &setup);
    gf_context *gf = w.ranks[0].gf;
    assert_int_equal(gf_steps(gf), 1);
    assert_int_equal(gf_step_wait(gf), GF_ERR_STATE);
    assert_int_equal(gf_step_poll(gf), GF_ERR_STATE);
    assert_int_equal(gf_gradient_norm(gf, NULL, NULL), GF_ERR_STATE);
    assert_int_equal(gf_update(gf, RATE), GF_ERR_STATE);
    world_expect_log(&w, 0, "gf_step_wait: no step was begun");
    world_expect_log(&w, 0, "gf_update: no step is whole");
    assert_true(gf_metric(gf, 0) == 0.0);
    assert_int_equal(gf_step_begin(gf), GF_OK);
}

TEST(gradients_are_zero_as_a_generation_begins)
{
    static const struct gf_gpu_driver *const gpus[] = {NULL, &late_gpu};
    for (uint32_t i = 0; i < LENGTH(gpus); i++) {
        struct world_setup setup = elastic_setup(RANKS);
        setup.gpu = gpus[i];
        if (gpus[i] != NULL) strcpy(setup.config.device.driver, gpus[i]->name);
        WORLD(w);
        last_leaves(&w, &setup);
        for (uint32_t t = 0; t < ELASTIC_TENSORS; t++) {
            const float *gradient =
                (const float *)(uintptr_t)gf_gradient(w.ranks[0].gf, t);
            for (uint64_t e = 0; e < elastic_tensors[t].elem_count; e++)
                if (gradient[e] != 0.0f)
                    fail_msg("gpu %u, tensor %u: element %u is %g", i, t, (unsigned)e,
                             (double)gradient[e]);
        }
    }
}
