/* What a trainer with an optimizer of its own says in a step, over the simulated network: many
 * gradients in one call, a metric that rides with the vote; and sparse steps, whose gradients it
 * applies itself. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"

#define ELEMS (301u + 64u + 1000u)

static const struct gf_tensor tensors[] = {{.name = "a", .elem_count = 301},
                                           {.name = "b", .elem_count = 64},
                                           {.name = "c", .elem_count = 1000}};

static struct world_setup setup_of(uint32_t world)
{
    struct world_setup setup = {
        .world = world, .tensors = tensors, .tensor_count = LENGTH(tensors)};
    setup.sim = world_network;
    setup.sim.detect_ns = 1000000;
    setup.config.exchange.fuse_bytes = 2048;
    return setup;
}

static void fill(struct world *w, uint32_t rank)
{
    for (uint32_t t = 0; t < LENGTH(tensors); t++)
        world_fill(w, rank, t, (void *)(uintptr_t)gf_gradient(w->ranks[rank].gf, t), NULL);
}

/* ---- many gradients, and metrics ---- */

static double metric_of(uint32_t rank)
{
    return 1.0 / (3 + rank);
}

static gf_status step_whole(struct world *w, uint32_t rank, void *arg)
{
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if (w->ranks[rank].next++ == 0) {
        if ((status = gf_step_begin(gf)) < 0) return status;
        fill(w, rank);
        if (arg != NULL) ((float *)(uintptr_t)gf_gradient(gf, 0))[0] = NAN;
        if ((status = gf_step_metric(gf, 1, metric_of(rank))) < 0) return status;
        if ((status = gf_tensors_ready(gf, 1, LENGTH(tensors) - 1, 0)) < 0) return status;
        if ((rank < 2) && ((status = gf_step_metric(gf, 3, copysign((double)NAN, 0.5 - rank))) < 0))
            return status;
        if ((status = gf_tensor_ready(gf, 0, 0)) < 0) return status;
        /* late, whether the vote is out or not */
        if (gf_step_metric(gf, 0, 1.0) != GF_ERR_STATE) return GF_ERR_STATE;
    }
    return gf_step_poll(gf);
}

TEST(metrics_are_added_up_by_the_vote)
{
    for (uint32_t world = 1; world <= 5; world++)
        for (uint32_t skipped = 0; skipped < 2; skipped++) {
            struct world_setup setup = setup_of(world);
            double sum = 0.0;
            double first;
            double none;
            for (uint32_t r = 0; r < world; r++) sum += metric_of(r);
            WORLD_OPEN(w, &setup);
            world_run(&w, step_whole, skipped ? &sum : NULL);
            world_expect(&w, GF_OK);
            if (!skipped) world_expect_sums(&w, 1.0f);
            first = gf_metric(w.ranks[0].gf, 1);
            none = gf_metric(w.ranks[0].gf, 3);
            assert_true(fabs(first - sum) < 1e-14);
            for (uint32_t r = 0; r < world; r++) {
                double here = gf_metric(w.ranks[r].gf, 1);
                double none_here = gf_metric(w.ranks[r].gf, 3);
                assert_memory_equal(&here, &first, sizeof here);
                assert_memory_equal(&none_here, &none, sizeof none);
                assert_true(gf_step_skipped(w.ranks[r].gf) == (skipped == 1));
                assert_true(isnan(gf_metric(w.ranks[r].gf, 3)) &&
                            (gf_metric(w.ranks[r].gf, 0) == 0.0));
                assert_true(gf_metric(w.ranks[r].gf, GF_METRICS) == 0.0);
                assert_int_equal(gf_step_metric(w.ranks[r].gf, 0, 1.0), GF_ERR_STATE);
            }
        }
}

/* ---- samples ---- */

static gf_status samples_turn(struct world *w, uint32_t rank, void *arg)
{
    const uint64_t *samples = arg; /* [3]; UINT64_MAX: not said */
    gf_context *gf = w->ranks[rank].gf;
    gf_status status;
    if (w->ranks[rank].next++ == 0) {
        if ((status = gf_step_begin(gf)) < 0) return status;
        fill(w, rank);
        if ((samples[rank] != UINT64_MAX) && ((status = gf_step_samples(gf, samples[rank])) < 0))
            return status;
        status = gf_step_metric(gf, 0, (rank == 1) ? (double)INFINITY : -1.0);
        if (status >= 0) status = gf_tensors_ready(gf, 0, LENGTH(tensors), 0);
        if (status < 0) return status;
    }
    return gf_step_poll(gf);
}

/* Ranks that weigh otherwise than the program may believe are told, seldom; a metric that is not
 * finite is heard of by all, and skips nothing. */
TEST(samples_that_do_not_count_as_they_are_said_are_told)
{
    static const struct samples_case {
        gf_average average;
        uint64_t samples[3];
        const char *log; /* NULL: nothing */
    } cases[] = {
        {GF_AVERAGE_SAMPLES, {4, 4, UINT64_MAX}, "step 1: 2 of 3 ranks said gf_step_samples()"},
        {GF_AVERAGE_SAMPLES, {4, 5, 0}, NULL},
        {GF_AVERAGE_SAMPLES, {UINT64_MAX, UINT64_MAX, UINT64_MAX}, NULL},
        {GF_AVERAGE_RANKS, {4, 6, 8}, "step 1: this rank has 4 of 18 samples of 3 ranks"},
        {GF_AVERAGE_RANKS, {4, 4, 4}, NULL},
        {GF_AVERAGE_RANKS, {4, UINT64_MAX, UINT64_MAX}, NULL},
        {GF_AVERAGE_SUM, {4, 6, 8}, NULL}};
    for (size_t row = 0; row < LENGTH(cases); row++) {
        struct world_setup setup = setup_of(3);
        setup.config.exchange.average = cases[row].average;
        WORLD_OPEN(w, &setup);
        for (uint32_t step = 0; step < 3; step++) {
            uint64_t samples[3];
            memcpy(samples, cases[row].samples, sizeof samples);
            world_run(&w, samples_turn, samples);
            world_expect(&w, GF_OK);
            for (uint32_t r = 0; r < 3; r++) {
                assert_true(isinf(gf_metric(w.ranks[r].gf, 0)));
                assert_false(gf_step_skipped(w.ranks[r].gf));
            }
        }
        if (cases[row].log == NULL)
            assert_false(world_logged(&w, 0, "samples"));
        else
            world_expect_log(&w, 0, cases[row].log);
        assert_false(world_logged(&w, 0, "step 3:"));
    }
}

/* ---- sparse steps ---- */

/* Plain SGD of the appliance's own on gf_gradient(): a chunk that was not sent has gradient 0. The
 * library's does the same, so the weights are the same, bit for bit. */
TEST(plain_sgd_of_ones_own_takes_sparse_steps_as_the_librarys_does)
{
    struct world_setup own = setup_of(3);
    struct world_setup ours;
    static float weight[3][ELEMS];
    struct world w;
    struct world v;
    own.config.sparse.enabled = true;
    own.config.sparse.chunk_elems = 37;
    own.config.sparse.keep_share = 0.2f;
    own.config.sparse.warmup_steps = 1;
    ours = own;
    memset(weight, 0, sizeof weight);
    ours.config.optimizer.kind = GF_OPTIMIZER_SGD;
    world_open(&w, &own);
    world_open(&v, &ours);
    for (uint32_t step = 0; step < 6; step++) {
        uint32_t zeroes = 0;
        world_step_run(&w, &(struct world_step){.fill = world_fill_noise});
        world_step_run(&v, &(struct world_step){.fill = world_fill_noise});
        for (uint32_t r = 0; r < 3; r++) {
            uint32_t at = 0;
            for (uint32_t t = 0; t < LENGTH(tensors); t++)
                for (uint64_t i = 0; i < tensors[t].elem_count; i++, at++) {
                    float gradient = ((const float *)world_gradient(&w, r, t))[i];
                    zeroes += (gradient == 0.0f) ? 1 : 0;
                    weight[r][at] -= 0.125f * gradient;
                }
            /* nothing is asked for, but it may be said */
            assert_int_equal(gf_updated(w.ranks[r].gf), GF_OK);
            assert_int_equal(gf_update(v.ranks[r].gf, 0.125f), GF_OK);
        }
        assert_true((step == 0) || (zeroes > ELEMS));
    }
    for (uint32_t r = 0; r < 3; r++) {
        uint32_t at = 0;
        for (uint32_t t = 0; t < LENGTH(tensors); at += (uint32_t)tensors[t++].elem_count)
            assert_memory_equal(&weight[r][at],
                                (const void *)(uintptr_t)gf_weight(v.ranks[r].gf, t),
                                tensors[t].elem_count * sizeof(float));
    }
    world_close(&w);
    world_close(&v);
}
