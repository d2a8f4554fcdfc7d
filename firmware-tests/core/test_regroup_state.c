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
            const float *gradient = (const float *)(uintptr_t)gf_gradient(w.ranks[0].gf, t);
            for (uint64_t e = 0; e < elastic_tensors[t].elem_count; e++)
                if (gradient[e] != 0.0f)
                    fail_msg("gpu %u, tensor %u: element %u is %g", i, t, (unsigned)e,
                             (double)gradient[e]);
        }
    }
}

/* ---- a rank that was silent: the others go on without it ---- */

static bool in_step; /* it has begun to send, and has not voted; or is between two steps */
static bool stopped, looked_at;
static float kept[2 * ELASTIC_ELEMS]; /* gaps between tensors included */

static const float *history(const gf_context *gf)
{
    return (const float *)(uintptr_t)gf->sparse.history;
}

static void stop(struct world *w)
{
    const gf_context *gf = w->ranks[2].gf;
    assert_true(gf->sparse.elem_count <= LENGTH(kept));
    memcpy(kept, history(gf), gf->sparse.elem_count * sizeof *kept);
    stopped = true;
    gf_sim_stop(w->sim, 2, true);
}

static void stop_in_step(struct world *w, uint32_t rank)
{
    const gf_context *gf = w->ranks[2].gf;
    if (in_step && !stopped && (rank == 2) && (gf_steps(gf) == 3) &&
        (gf->step.state == GF_STEP_BEGUN) && (gf->step.next > 0))
        stop(w);
}

/* Before each step. */
static gf_status stop_between(struct world *w, uint32_t rank)
{
    gf_context *gf = w->ranks[rank].gf;
    if ((rank != 2) || looked_at) return GF_OK;
    if (!in_step && !stopped && (gf_steps(gf) == 3)) stop(w);
    if (!stopped) return GF_OK;
    if (!gf_left_out(gf)) {
        gf_status status = gf_sim_runs(w->sim, 2) ? gf_heartbeat(gf) : GF_AGAIN;
        return (status < 0) ? status : GF_AGAIN;
    }
    looked_at = true;
    for (uint64_t e = 0; e < gf->sparse.elem_count; e++)
        if (history(gf)[e] != kept[e])
            fail_msg("history[%u] was %g, and is %g", (unsigned)e, (double)kept[e],
                     (double)history(gf)[e]);
    return GF_OK;
}

/* All ranks vote before any of them has a step: what it sent in one that it did not vote for was
 * applied nowhere. What it sends next it has not sent. */
TEST(who_was_left_out_before_its_vote_keeps_its_history)
{
    SIM_ONLY;
    const struct elastic_event script[] = {{6000000, 2, GO_ON}, END};
    for (uint32_t row = 0; row < 2; row++) {
        struct world_setup setup = elastic_setup(RANKS);
        setup.config.sparse.enabled = true;
        setup.config.sparse.chunk_elems = 100;
        setup.config.sparse.keep_share = 0.3f;
        elastic.hooks.before = stop_between;
        elastic.hooks.turn = stop_in_step;
        elastic.hooks.work_ns = 50000000;
        in_step = (row == 1);
        stopped = looked_at = false;
        WORLD_OPEN(w, &setup);
        elastic_run(&w, script, 8 * SECOND);
        elastic_expect(&w, 0x7, in_step ? "in a step" : "between two");
        assert_true(looked_at);
    }
}
