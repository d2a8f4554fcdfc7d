/* Saved states on whole contexts: a run that is resumed anywhere ends bitwise where the uninterrupted one ends, and
 * nothing that waits is lost when the world changes. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/state_world.h"

#define STEPS 12u

TEST(resumed_anywhere_a_run_ends_bitwise_where_the_uninterrupted_one_ends)
{
    for (size_t i = 0; i < STATE_RUNS; i++) {
        struct world_setup setup = state_setup_of(&state_runs[i]);
        struct state_save saves[STEPS + 1], again;
        struct world whole, part;
        print_message("  %s\n", state_runs[i].name);
        world_open(&whole, &setup);
        state_weights_begin(&whole);
        saves[0] = state_save_take(&whole);
        for (uint32_t step = 1; step <= STEPS; step++) {
            state_step_run(&whole, step, state_fill);
            saves[step] = state_save_take(&whole);
        }
        for (uint32_t step = 0; step <= STEPS; step++) {
            setup.sim.seed = 100 + step;
            world_open(&part, &setup);
            if (step % 2 == 1) { /* what was there before leaves nothing */
                state_weights_begin(&part);
                state_step_run(&part, 1, state_fill);
                state_step_run(&part, 2, state_fill);
                state_step_run(&part, 3, state_fill);
            }
            state_save_load(&part, &saves[step]);
            again = state_save_take(&part);
            state_save_expect_equal(&again, &saves[step]);
            state_save_free(&again);
            for (uint32_t next = step + 1; next <= STEPS; next++) state_step_run(&part, next, state_fill);
            again = state_save_take(&part);
            state_save_expect_equal(&again, &saves[STEPS]);
            state_save_free(&again);
            state_halves_same(&part, &whole);
            world_close(&part);
        }
        for (uint32_t step = 0; step <= STEPS; step++) state_save_free(&saves[step]);
        world_close(&whole);
    }
}

/* The common part of one save is the same on all ranks, and in the middle of a sparse run a history waits: the test
 * above was about something. */
TEST(a_sparse_run_has_histories_and_ranks_agree_on_the_rest)
{
    struct world_setup setup = state_setup_of(&state_runs[4]);
    struct state_save save;
    WORLD_OPEN(w, &setup);
    for (uint32_t step = 1; step <= STEPS; step++) state_step_run(&w, step, state_fill);
    save = state_save_take(&w);
    assert_int_equal(state_head_of(&save, 0).flags, GF_STATE_FLAGS & ~GF_STATE_QUANTIZE);
    for (uint32_t rank = 0; rank < save.world; rank++) {
        assert_int_equal(state_head_of(&save, rank).common_hash, state_head_of(&save, 0).common_hash);
        assert_int_equal(state_head_of(&save, rank).rank, rank);
        assert_int_equal(state_head_of(&save, rank).step, STEPS);
    }
    assert_memory_not_equal(save.data[0] + sizeof(struct gf_state_head), save.data[1] + sizeof(struct gf_state_head),
                            save.bytes - sizeof(struct gf_state_head));
    state_save_free(&save);
}
/* .. also in one whose warm-up is longer: a dense step would apply what each rank holds alone. */
TEST(local_momentum_stays_local_in_a_longer_warm_up)
{
    struct world_setup setup = state_setup_of(&state_runs[5]);
    struct state_save save;
    WORLD(w);
    world_open(&w, &setup);
    for (uint32_t step = 1; step <= STEPS; step++) state_step_run(&w, step, state_fill);
    save = state_save_take(&w);
    world_close(&w);
    setup.config.sparse.warmup_steps = 2 * STEPS;
    world_open(&w, &setup);
    state_save_load(&w, &save);
    for (uint32_t step = STEPS + 1; step <= STEPS + 2; step++) state_step_run(&w, step, state_fill);
    for (uint32_t t = 0; t < STATE_TENSORS; t++)
        assert_memory_equal((const void *)(uintptr_t)gf_weight(w.ranks[1].gf, t),
                            (const void *)(uintptr_t)gf_weight(w.ranks[0].gf, t),
                            state_tensors[t].elem_count * sizeof(float));
    state_save_free(&save);
}

/* ---- other worlds ---- */

/* Sums over ranks of all that the ranks hold alone: the sparse part's momentum, then the history. */
static double *sums_of(const struct state_save *save, uint64_t *count_out)
{
    struct gf_state_head head = state_head_of(save, 0);
    uint64_t padded = (head.sparse_elem_count + 1) / 2 * 2, count = padded * ((head.flags & GF_STATE_LOCAL) ? 2 : 1);
    double *sums = calloc(count, sizeof *sums);
    assert_non_null(sums);
    for (uint32_t rank = 0; rank < save->world; rank++)
        for (uint64_t i = 0; i < count; i++) {
            float value;
            memcpy(&value, save->data[rank] + save->bytes - 8 - (count - i) * sizeof value, sizeof value);
            sums[i] += (double)value;
        }
    if (head.average == GF_AVERAGE_RANKS)
        for (uint64_t i = 0; i < count; i++) sums[i] /= save->world;
    *count_out = count;
    return sums;
}

static void expect_same_sums(const struct state_save *before, const struct state_save *after, bool exact, bool *any_out)
{
    uint64_t count, count_after;
    double *sums = sums_of(before, &count), *sums_after = sums_of(after, &count_after);
    assert_int_equal(count, count_after);
    for (uint64_t i = 0; i < count; i++) {
        if (sums[i] != 0.0) *any_out = true;
        if (exact) assert_true(sums[i] == sums_after[i]);
        else assert_true(fabs(sums[i] - sums_after[i]) <= 1e-5);
    }
    free(sums);
    free(sums_after);
}

TEST(nothing_that_waits_is_lost_from_4_ranks_to_2_to_3)
{
    static const uint32_t worlds[] = {4, 2, 3, 8, 1};
    static const struct state_run cases[] = {
        {.momentum = GF_SPARSE_MOMENTUM_REDUCED, .average = GF_AVERAGE_SUM},
        {.momentum = GF_SPARSE_MOMENTUM_REDUCED, .average = GF_AVERAGE_RANKS},
        {.momentum = GF_SPARSE_MOMENTUM_LOCAL, .average = GF_AVERAGE_SUM},
        {.momentum = GF_SPARSE_MOMENTUM_LOCAL, .average = GF_AVERAGE_RANKS},
        {.momentum = GF_SPARSE_MOMENTUM_LOCAL, .average = GF_AVERAGE_SAMPLES},
    };
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct state_run c = cases[i];
        struct state_save save = {0}, loaded;
        c.sparse = true;
        c.optimizer = GF_OPTIMIZER_SGD;
        c.beta = 0.5f;
        for (size_t n = 0; n < LENGTH(worlds); n++) {
            struct world_setup setup = state_setup_of(&c);
            bool any = false;
            setup.world = worlds[n];
            setup.config.optimizer.weight_decay = 0; /* what is added stays exact */
            setup.config.sparse.warmup_steps = 0;
            setup.config.sparse.ramp_steps = 0;
            WORLD_OPEN(w, &setup);
            if (n > 0) {
                state_save_load(&w, &save);
                loaded = state_save_take(&w);
                /* 8/3 is the first ratio that is no short number in binary. */
                expect_same_sums(&save, &loaded, (c.average != GF_AVERAGE_RANKS) || (n < 3), &any);
                assert_true(any);
                state_save_free(&loaded);
                state_save_free(&save);
            }
            for (uint32_t step = 1; step <= 2; step++)
                state_step_run(&w, (n == 0) ? step : 20 + n * 4 + step, state_fill_whole);
            for (uint32_t rank = 1; rank < w.world; rank++)
                for (uint32_t t = 0; t < STATE_TENSORS; t++)
                    assert_memory_equal((const void *)(uintptr_t)gf_weight(w.ranks[rank].gf, t),
                                        (const void *)(uintptr_t)gf_weight(w.ranks[0].gf, t),
                                        state_tensors[t].elem_count * sizeof(float));
            save = state_save_take(&w);
        }
        state_save_free(&save);
    }
}

/* Its order is theirs: the second are as many, the third more. */
TEST(what_owners_owe_goes_on_with_the_same_fused_buffers_alone)
{
    static const uint64_t fuse_bytes[] = {512, 1300, 1};
    struct world_setup setup = state_setup_of(&state_runs[10]);
    struct state_save save, after;
    for (size_t i = 0; i < LENGTH(fuse_bytes); i++) {
        uint64_t owner, owes = 0;
        struct world w;
        if (i == 0) {
            world_open(&w, &setup);
            for (uint32_t step = 1; step <= 3; step++) state_step_run(&w, step, state_fill);
            save = state_save_take(&w);
            world_close(&w);
        }
        setup.config.exchange.fuse_bytes = fuse_bytes[i];
        world_open(&w, &setup);
        state_save_load(&w, &save);
        after = state_save_take(&w);
        owner = sizeof(struct gf_state_head) + 3 * sizeof(float) * state_head_of(&save, 0).elem_count;
        for (uint64_t at = owner; at < after.bytes - 8; at++) owes += after.data[1][at] != 0;
        assert_int_equal(owes > 0, i == 0);
        assert_memory_equal(after.data[1] + sizeof(struct gf_state_head), save.data[1] + sizeof(struct gf_state_head),
                            owner - sizeof(struct gf_state_head));
        for (uint32_t step = 5; step <= 6; step++) state_step_run(&w, step, state_fill);
        for (uint32_t t = 0; t < STATE_TENSORS; t++)
            assert_memory_equal((const void *)(uintptr_t)gf_weight(w.ranks[1].gf, t),
                                (const void *)(uintptr_t)gf_weight(w.ranks[0].gf, t),
                                state_tensors[t].elem_count * sizeof(float));
        state_save_free(&after);
        world_close(&w);
    }
    state_save_free(&save);
}

/* As the header has it, whether anything waits or not. */
TEST(states_of_a_dense_run_may_be_added)
{
    struct world_setup setup = state_setup_of(&state_runs[0]);
    struct state_save save, after;
    struct world w;
    setup.world = 4;
    world_open(&w, &setup);
    for (uint32_t step = 1; step <= 3; step++) state_step_run(&w, step, state_fill);
    save = state_save_take(&w);
    world_close(&w);
    setup.world = 2;
    world_open(&w, &setup);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_int_equal(gf_state_load(w.ranks[rank].gf, save.data[rank], save.bytes), GF_OK);
        assert_int_equal(gf_state_add(w.ranks[rank].gf, save.data[rank + 2], save.bytes), GF_OK);
    }
    after = state_save_take(&w);
    assert_memory_equal(save.data[0] + sizeof(struct gf_state_head), after.data[1] + sizeof(struct gf_state_head),
                        save.bytes - sizeof(struct gf_state_head) - 8);
    state_step_run(&w, 4, state_fill);
    state_save_free(&save);
    state_save_free(&after);
    world_close(&w);
}

TEST(ranks_get_only_what_they_inherit)
{
    struct world_setup setup = state_setup_of(&state_runs[4]);
    struct state_save first, second;
    struct world w;
    gf_context *gf;
    setup.world = 5;
    world_open(&w, &setup);
    for (uint32_t step = 1; step <= 6; step++) state_step_run(&w, step, state_fill);
    first = state_save_take(&w);
    state_step_run(&w, 9, state_fill);
    second = state_save_take(&w);
    world_close(&w);
    setup.world = 2;
    world_open(&w, &setup);
    gf = w.ranks[0].gf;
    assert_int_equal(gf_state_add(gf, first.data[0], first.bytes), GF_ERR_STATE);
    assert_int_equal(gf_state_load(gf, first.data[1], first.bytes), GF_ERR_DATA);
    world_expect_log(&w, 0, "the state is of rank 1 of 5; rank 0 of 2 loads that of rank 0");
    assert_int_equal(gf_state_load(gf, first.data[0], first.bytes), GF_OK);
    assert_int_equal(gf_step_begin(gf), GF_ERR_STATE);
    world_expect_log(&w, 0, "the state of old rank 2 of 5 was not added");
    world_log_clear(&w);
    assert_int_equal(gf_state_save(gf, first.data[0], first.bytes), GF_ERR_STATE);
    world_expect_log(&w, 0, "the state of old rank 2 of 5 was not added");
    assert_int_equal(gf_state_add(gf, first.data[4], first.bytes), GF_ERR_DATA);
    world_expect_log(&w, 0, "the state is of rank 4 of 5; next is that of rank 2");
    assert_int_equal(gf_state_add(gf, second.data[2], second.bytes), GF_ERR_DATA);
    world_expect_log(&w, 0, "the state of rank 2, step 7, is of another save than the one loaded, step 6");
    first.data[2][200] ^= 1;
    assert_int_equal(gf_state_add(gf, first.data[2], first.bytes), GF_ERR_DATA);
    first.data[2][200] ^= 1;
    assert_int_equal(gf_state_add(gf, first.data[2], first.bytes), GF_OK);
    assert_int_equal(gf_state_add(gf, first.data[2], first.bytes), GF_ERR_DATA);
    assert_int_equal(gf_state_add(gf, first.data[4], first.bytes), GF_OK);
    assert_int_equal(gf_state_add(gf, first.data[4], first.bytes), GF_ERR_STATE);
    assert_int_equal(gf_state_load(w.ranks[1].gf, first.data[1], first.bytes), GF_OK);
    assert_int_equal(gf_state_add(w.ranks[1].gf, first.data[3], first.bytes), GF_OK);
    state_step_run(&w, 10, state_fill);
    state_save_free(&first);
    state_save_free(&second);
    world_close(&w);
}
