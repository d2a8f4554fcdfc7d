/* Values that are not finite: which one is named, that no rank takes the step, and what is logged
 * of steps that are skipped. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world_setups.h"

static void weights_snapshot(struct world *w, uint32_t rank, float *weights_out)
{
    for (uint32_t tensor = 0, at = 0; tensor < w->ranks[rank].tensor_count; tensor++) {
        uint64_t count = w->ranks[rank].tensors[tensor].elem_count;
        memcpy(weights_out + at, (const void *)(uintptr_t)gf_weight(w->ranks[rank].gf, tensor),
               count * sizeof(float));
        at += (uint32_t)count;
    }
}

#define MIXED_ELEMS 17732u

TEST(one_value_that_is_not_finite_is_named_and_no_rank_moves)
{
    static const struct spoil_case {
        gf_type wire;
        struct world_spoil spoil;
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
    gf_algorithm algorithms[GF_ALGORITHM_COUNT];
    const uint32_t algorithm_count = world_algorithms(true, algorithms);
    static float before[3][MIXED_ELEMS];
    static float after[MIXED_ELEMS];
    for (size_t row = 0; row < LENGTH(cases) * algorithm_count; row++) {
        const struct spoil_case *c = &cases[row % LENGTH(cases)];
        struct world_spoil spoil = c->spoil;
        static struct world_setup setup;
        struct world_step good = {.order = WORLD_FORWARD};
        struct world_step bad = {.fill = world_fill_spoilt, .arg = &spoil};
        const gf_algorithm algorithm = algorithms[row / LENGTH(cases)];
        const bool in_memory = world_algorithm_in_memory(algorithm);
        if (in_memory && (c->wire == GF_TYPE_F16) && isfinite(spoil.value))
            continue; /* fp32 holds it, and nothing leaves the node */
        setup = mixed_setup(3);
        setup.config.exchange.wire = c->wire;
        setup.config.exchange.algorithm = algorithm;
        if (in_memory) setup.sim.ranks_per_node = 3;
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
        struct world_spoil sum = {
            .rank = 0, .tensor = 0, .elem = 5, .value = 40000.0f, .others = 40000.0f};
        struct world_spoil inverse = {.rank = GF_RANK_NONE, .tensor = 3, .elem = 5, .value = 2e38f};
        struct world_step step = {.fill = world_fill_spoilt, .arg = scaled ? &inverse : &sum};
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
    struct world_spoil sum = {.rank = GF_RANK_NONE, .tensor = 3, .elem = 5, .value = 30000};
    struct world_spoil value = {.rank = 1, .tensor = 2, .elem = 7, .value = NAN};
    struct world_step good = {.order = WORLD_FORWARD};
    struct world_step over = {.fill = world_fill_spoilt, .arg = &sum};
    struct world_step none = {.fill = world_fill_spoilt, .arg = &value};
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
    struct world_step step = {.fill = world_fill_one, .arg = &value};
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
