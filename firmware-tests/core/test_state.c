/* Saved states on whole contexts: a run that is resumed anywhere ends bitwise where the
 * uninterrupted one ends; another world goes on with what is common, and with the histories of the
 * ranks that stay. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/state_runs.h"

#define STEPS 12u

TEST(resumed_anywhere_a_run_ends_bitwise_where_the_uninterrupted_one_ends)
{
    for (size_t i = 0; i < STATE_RUNS; i++) {
        struct world_setup setup = state_setup_of(&state_runs[i]);
        struct state_save saves[STEPS + 1];
        struct state_save again;
        struct world whole;
        struct world part;
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
            for (uint32_t next = step + 1; next <= STEPS; next++)
                state_step_run(&part, next, state_fill);
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

/* The common part of one save is the same on all ranks, and in the middle of a sparse run a history
 * waits: the test above was about something. */
TEST(a_sparse_run_has_histories_and_ranks_agree_on_the_rest)
{
    struct world_setup setup = state_setup_of(&state_runs[4]);
    struct state_save save;
    WORLD_OPEN(w, &setup);
    for (uint32_t step = 1; step <= STEPS; step++) state_step_run(&w, step, state_fill);
    save = state_save_take(&w);
    assert_int_equal(state_head_of(&save, 0).flags, GF_STATE_FLAGS);
    for (uint32_t rank = 0; rank < save.world; rank++) {
        assert_int_equal(state_head_of(&save, rank).common_hash,
                         state_head_of(&save, 0).common_hash);
        assert_int_equal(state_head_of(&save, rank).rank, rank);
        assert_int_equal(state_head_of(&save, rank).step, STEPS);
    }
    assert_memory_not_equal(save.data[0] + sizeof(struct gf_state_head),
                            save.data[1] + sizeof(struct gf_state_head),
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

/* Value i of what a rank holds alone: the sparse part's momentum, then the history. */
static float own_of(const struct state_save *save, uint32_t rank, uint64_t i, uint64_t count)
{
    float value;
    memcpy(&value, save->data[rank] + save->bytes - 8 - (count - i) * sizeof value, sizeof value);
    return value;
}

/* Ranks that stay keep theirs, stretched where it will be divided by another number; others begin
 * with none. */
static void expect_kept(const struct state_save *before, const struct state_save *after)
{
    struct gf_state_head head = state_head_of(before, 0);
    uint64_t padded = (head.sparse_elem_count + 1) / 2 * 2;
    uint64_t count = padded * ((head.flags & GF_STATE_LOCAL) ? 2 : 1);
    float factor = (head.average + GF_AVERAGE_SUM == GF_AVERAGE_RANKS)
                       ? (float)((double)after->world / before->world)
                       : 1.0f;
    for (uint32_t rank = 0; rank < after->world; rank++) {
        bool any = false;
        for (uint64_t i = 0; i < count; i++) {
            float was = (rank < before->world) ? own_of(before, rank, i, count) : 0.0f;
            assert_true(own_of(after, rank, i, count) == was * factor);
            any = any || (was != 0.0f);
        }
        assert_int_equal(any, rank < before->world);
    }
}

/* Said once, by rank 0. */
static void expect_dropped(struct world *w, const struct state_save *before)
{
    struct gf_state_head head = state_head_of(before, 0);
    uint64_t each = head.sparse_elem_count * ((head.flags & GF_STATE_LOCAL) ? 2 : 1);
    char text[96];
    if (before->world <= w->world) {
        assert_int_equal(w->ranks[0].log_bytes, 0);
        return;
    }
    (void)snprintf(text, sizeof text, "of a state of %u ranks %u go on: %llu values that waited",
                   before->world, w->world,
                   (unsigned long long)((before->world - w->world) * each));
    world_expect_log(w, 0, text);
    for (uint32_t rank = 1; rank < w->world; rank++) assert_int_equal(w->ranks[rank].log_bytes, 0);
}

TEST(another_world_goes_on_with_what_is_common)
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
        struct state_save save = {0};
        struct state_save loaded;
        c.sparse = true;
        c.optimizer = GF_OPTIMIZER_SGD;
        c.beta = 0.5f;
        for (size_t n = 0; n < LENGTH(worlds); n++) {
            struct world_setup setup = state_setup_of(&c);
            setup.world = worlds[n];
            setup.config.optimizer.weight_decay = 0; /* what is added stays exact */
            setup.config.sparse.warmup_steps = 0;
            setup.config.sparse.ramp_steps = 0;
            WORLD_OPEN(w, &setup);
            if (n > 0) {
                world_log_clear(&w);
                state_save_load(&w, &save);
                expect_dropped(&w, &save);
                loaded = state_save_take(&w);
                expect_kept(&save, &loaded);
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

TEST(the_state_of_a_dense_run_is_the_same_from_every_rank)
{
    struct world_setup setup = state_setup_of(&state_runs[0]);
    struct state_save save;
    struct state_save after;
    struct world w;
    setup.world = 4;
    world_open(&w, &setup);
    for (uint32_t step = 1; step <= 3; step++) state_step_run(&w, step, state_fill);
    save = state_save_take(&w);
    world_close(&w);
    setup.world = 2;
    world_open(&w, &setup);
    world_log_clear(&w);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(gf_state_load(w.ranks[rank].gf, save.data[3 - rank], save.bytes), GF_OK);
    assert_int_equal(w.ranks[0].log_bytes, 0); /* nothing is dropped */
    after = state_save_take(&w);
    assert_memory_equal(save.data[0] + sizeof(struct gf_state_head),
                        after.data[1] + sizeof(struct gf_state_head),
                        save.bytes - sizeof(struct gf_state_head) - 8);
    state_step_run(&w, 4, state_fill);
    state_save_free(&save);
    state_save_free(&after);
    world_close(&w);
}

TEST(a_rank_loads_what_it_saved_and_no_other)
{
    struct world_setup setup = state_setup_of(&state_runs[4]);
    struct state_save save;
    struct world w;
    setup.world = 5;
    world_open(&w, &setup);
    for (uint32_t step = 1; step <= 6; step++) state_step_run(&w, step, state_fill);
    save = state_save_take(&w);
    world_close(&w);
    setup.world = 2;
    world_open(&w, &setup);
    assert_int_equal(gf_state_load(w.ranks[0].gf, save.data[1], save.bytes), GF_ERR_DATA);
    world_expect_log(&w, 0, "the state is of rank 1 of 5; rank 0 of 2 loads that of rank 0");
    assert_int_equal(gf_state_load(w.ranks[1].gf, save.data[4], save.bytes), GF_ERR_DATA);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(gf_state_load(w.ranks[rank].gf, save.data[rank], save.bytes), GF_OK);
    state_step_run(&w, 10, state_fill);
    state_save_free(&save);
    world_close(&w);
}
