/* Saved states on whole contexts: a run that is resumed anywhere ends bitwise where the uninterrupted one ends, nothing
 * that waits is lost when the world changes, and what is not a whole state of this run is refused without a trace. */
#include "world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "state_format.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define RANKS_MAX 8u
#define STEPS 12u

static const struct gf_sim_setup network = {
    .seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .bytes_per_ns = 1.0, .message_ns = 100, .bind_receives = true};

static const struct gf_tensor tensors[] = {
    {.name = "bias", .elem_count = 10, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
    {.name = "last", .elem_count = 301},
    {.name = "norm", .elem_count = 33, .flags = GF_TENSOR_NO_DECAY},
    {.name = "first", .elem_count = 700},
};
static const struct gf_tensor few[] = {
    {.name = "bias", .elem_count = 3, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
    {.name = "all", .elem_count = 13},
};

/* ---- runs ---- */

/* What each rank saved; the bytes are of one save. */
struct save {
    uint32_t world;
    uint64_t bytes;
    unsigned char *data[RANKS_MAX];
};

static void save_free(struct save *save)
{
    for (uint32_t rank = 0; rank < save->world; rank++) free(save->data[rank]);
    *save = (struct save){0};
}

static struct save save_take(struct world *w)
{
    struct save save = {.world = w->world, .bytes = gf_state_bytes(w->ranks[0].gf)};
    for (uint32_t rank = 0; rank < w->world; rank++) {
        save.data[rank] = malloc(save.bytes);
        assert_non_null(save.data[rank]);
        memset(save.data[rank], 0xee, save.bytes);
        assert_int_equal(gf_state_save(w->ranks[rank].gf, save.data[rank], save.bytes), GF_OK);
    }
    return save;
}

static void save_expect_equal(const struct save *a, const struct save *b)
{
    assert_int_equal(a->bytes, b->bytes);
    for (uint32_t rank = 0; rank < a->world; rank++) assert_memory_equal(a->data[rank], b->data[rank], a->bytes);
}

/* Each rank gets what it inherits, as the header says. */
static void save_load(struct world *w, const struct save *save)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_context *gf = w->ranks[rank].gf;
        bool heir = rank < save->world;
        assert_int_equal(gf_state_load(gf, save->data[heir ? rank : save->world - 1], save->bytes), GF_OK);
        for (uint32_t old = rank + w->world; old < save->world; old += w->world) {
            assert_int_equal(gf_step_begin(gf), GF_ERR_STATE);
            assert_int_equal(gf_state_add(gf, save->data[old], save->bytes), GF_OK);
        }
        assert_int_equal(gf_state_add(gf, save->data[0], save->bytes), GF_ERR_STATE);
    }
}

static struct gf_state_head head_of(const struct save *save, uint32_t rank)
{
    struct gf_state_head head;
    memcpy(&head, save->data[rank], sizeof head);
    return head;
}

struct moment {
    uint64_t step; /* 1 is the first */
    bool broken;   /* a value that is not finite */
};

static void fill(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct moment *moment = arg;
    float *values = gradient, scale = gf_loss_scale(w->ranks[rank].gf);
    uint64_t count = w->ranks[rank].tensors[tensor].elem_count;
    for (uint64_t i = 0; i < count; i++)
        values[i] = world_value(rank + 16u * (uint32_t)moment->step, tensor, i) * 0.1f * scale;
    if (moment->broken && (rank == 1) && (tensor == 1)) values[5] = __builtin_inff();
}

static void fill_whole(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct moment *moment = arg;
    float *values = gradient;
    for (uint64_t i = 0; i < w->ranks[rank].tensors[tensor].elem_count; i++)
        values[i] = world_value(rank + 16u * (uint32_t)moment->step, tensor, i);
}

static void step_run(struct world *w, uint64_t number, void (*with)(struct world *, uint32_t, uint32_t, void *, void *))
{
    struct moment moment = {.step = number, .broken = (number == 4) || (number == 7) || (number == 8)};
    uint64_t samples[RANKS_MAX];
    struct world_step step = {.fill = with, .samples = samples, .arg = &moment};
    for (uint32_t rank = 0; rank < w->world; rank++) samples[rank] = (rank + number) % 3 + 1;
    world_step_run(w, &step);
    world_expect(w, GF_OK);
    for (uint32_t rank = 0; rank < w->world; rank++) assert_int_equal(gf_update(w->ranks[rank].gf, 0.0625f), GF_OK);
}

static void weights_begin(struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        for (uint32_t tensor = 0; tensor < w->ranks[rank].tensor_count; tensor++) {
            float *weight = (float *)(uintptr_t)gf_weight(w->ranks[rank].gf, tensor);
            for (uint64_t i = 0; i < w->ranks[rank].tensors[tensor].elem_count; i++)
                weight[i] = world_value(99, tensor, i) * 0.3f;
        }
}

static void halves_expect_equal(struct world *a, struct world *b)
{
    for (uint32_t rank = 0; rank < a->world; rank++)
        for (uint32_t tensor = 0; tensor < a->ranks[rank].tensor_count; tensor++) {
            gf_mem left = gf_weight_half(a->ranks[rank].gf, tensor), right = gf_weight_half(b->ranks[rank].gf, tensor);
            if (left == 0) continue;
            assert_memory_equal((const void *)(uintptr_t)left, (const void *)(uintptr_t)right,
                                a->ranks[rank].tensors[tensor].elem_count * sizeof(uint16_t));
        }
}

/* ---- resuming ---- */

static const struct run_case {
    const char *name;
    uint32_t world;
    bool sparse, scaled, nesterov;
    gf_sparse_momentum momentum;
    gf_average average;
    gf_optimizer optimizer;
    gf_type wire, half;
    float beta;
} run_cases[] = {
    {"dense", 3, .optimizer = GF_OPTIMIZER_SGD, .beta = 0.9f, .nesterov = true},
    {"dense_lars_scaled_half", 2, .scaled = true, .optimizer = GF_OPTIMIZER_LARS, .beta = 0.9f, .half = GF_TYPE_F16,
     .wire = GF_TYPE_F16},
    {"dense_without_momentum", 2, .optimizer = GF_OPTIMIZER_SGD},
    {"sparse_reduced", 3, .sparse = true, .scaled = true, .momentum = GF_SPARSE_MOMENTUM_REDUCED,
     .optimizer = GF_OPTIMIZER_SGD, .beta = 0.9f, .half = GF_TYPE_BF16},
    {"sparse_local_sum", 3, .sparse = true, .scaled = true, .momentum = GF_SPARSE_MOMENTUM_LOCAL,
     .optimizer = GF_OPTIMIZER_SGD, .beta = 0.9f, .wire = GF_TYPE_F16},
    {"sparse_local_ranks", 2, .sparse = true, .momentum = GF_SPARSE_MOMENTUM_LOCAL, .average = GF_AVERAGE_RANKS,
     .optimizer = GF_OPTIMIZER_SGD, .beta = 0.9f},
    {"sparse_local_samples", 4, .sparse = true, .scaled = true, .momentum = GF_SPARSE_MOMENTUM_LOCAL,
     .average = GF_AVERAGE_SAMPLES, .optimizer = GF_OPTIMIZER_SGD, .beta = 0.5f, .half = GF_TYPE_F16},
    {"sparse_masked_lars", 3, .sparse = true, .scaled = true, .momentum = GF_SPARSE_MOMENTUM_LOCAL_MASKED,
     .optimizer = GF_OPTIMIZER_LARS, .beta = 0.9f},
};

static struct world_setup setup_of(const struct run_case *c)
{
    struct world_setup setup = {.world = c->world, .tensors = tensors, .tensor_count = LENGTH(tensors), .sim = network};
    struct gf_config *config = &setup.config;
    config->exchange.wire = c->wire;
    config->exchange.average = c->average;
    config->exchange.fuse_bytes = 512;
    config->optimizer.kind = c->optimizer;
    config->optimizer.momentum = c->beta;
    config->optimizer.nesterov = c->nesterov;
    config->optimizer.weight_decay = 0.01f;
    config->optimizer.half_weights = c->half;
    config->sparse.enabled = c->sparse;
    config->sparse.chunk_elems = 37;
    config->sparse.keep_share = 0.3f;
    config->sparse.warmup_steps = 2;
    config->sparse.ramp_steps = 4;
    config->sparse.momentum = c->momentum;
    config->loss_scale.enabled = c->scaled;
    config->loss_scale.initial = 1024;
    config->loss_scale.growth_interval = 2;
    config->loss_scale.hysteresis = 2;
    return setup;
}

static void resumed_anywhere_a_run_ends_bitwise_where_the_uninterrupted_one_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < LENGTH(run_cases); i++) {
        struct world_setup setup = setup_of(&run_cases[i]);
        struct save saves[STEPS + 1], again;
        struct world whole, part;
        print_message("  %s\n", run_cases[i].name);
        world_open(&whole, &setup);
        weights_begin(&whole);
        saves[0] = save_take(&whole);
        for (uint32_t step = 1; step <= STEPS; step++) {
            step_run(&whole, step, fill);
            saves[step] = save_take(&whole);
        }
        for (uint32_t step = 0; step <= STEPS; step++) {
            setup.sim.seed = 100 + step;
            world_open(&part, &setup);
            if (step % 2 == 1) { /* what was there before leaves nothing */
                weights_begin(&part);
                step_run(&part, 1, fill);
                step_run(&part, 2, fill);
                step_run(&part, 3, fill);
            }
            save_load(&part, &saves[step]);
            again = save_take(&part);
            save_expect_equal(&again, &saves[step]);
            save_free(&again);
            for (uint32_t next = step + 1; next <= STEPS; next++) step_run(&part, next, fill);
            again = save_take(&part);
            save_expect_equal(&again, &saves[STEPS]);
            save_free(&again);
            halves_expect_equal(&part, &whole);
            world_close(&part);
        }
        for (uint32_t step = 0; step <= STEPS; step++) save_free(&saves[step]);
        world_close(&whole);
    }
}

/* The common part of one save is the same on all ranks, and in the middle of a sparse run a history waits: the test
 * above was about something. */
static void a_sparse_run_has_histories_and_ranks_agree_on_the_rest(void **state)
{
    struct world_setup setup = setup_of(&run_cases[4]);
    struct world w;
    struct save save;
    (void)state;
    world_open(&w, &setup);
    for (uint32_t step = 1; step <= STEPS; step++) step_run(&w, step, fill);
    save = save_take(&w);
    assert_int_equal(head_of(&save, 0).flags, GF_STATE_FLAGS);
    for (uint32_t rank = 0; rank < save.world; rank++) {
        assert_int_equal(head_of(&save, rank).common_hash, head_of(&save, 0).common_hash);
        assert_int_equal(head_of(&save, rank).rank, rank);
        assert_int_equal(head_of(&save, rank).step, STEPS);
    }
    assert_memory_not_equal(save.data[0] + sizeof(struct gf_state_head), save.data[1] + sizeof(struct gf_state_head),
                            save.bytes - sizeof(struct gf_state_head));
    save_free(&save);
    world_close(&w);
}

/* ---- other worlds ---- */

/* Sums over ranks of all that the ranks hold alone: the sparse part's momentum, then the history. */
static double *sums_of(const struct save *save, uint64_t *count_out)
{
    struct gf_state_head head = head_of(save, 0);
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

static void expect_same_sums(const struct save *before, const struct save *after, bool exact, bool *any_out)
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

static void nothing_that_waits_is_lost_from_4_ranks_to_2_to_3(void **state)
{
    static const uint32_t worlds[] = {4, 2, 3, 8, 1};
    static const struct run_case cases[] = {
        {.momentum = GF_SPARSE_MOMENTUM_REDUCED, .average = GF_AVERAGE_SUM},
        {.momentum = GF_SPARSE_MOMENTUM_REDUCED, .average = GF_AVERAGE_RANKS},
        {.momentum = GF_SPARSE_MOMENTUM_LOCAL, .average = GF_AVERAGE_SUM},
        {.momentum = GF_SPARSE_MOMENTUM_LOCAL, .average = GF_AVERAGE_RANKS},
        {.momentum = GF_SPARSE_MOMENTUM_LOCAL_MASKED, .average = GF_AVERAGE_SAMPLES},
    };
    (void)state;
    for (size_t i = 0; i < LENGTH(cases); i++) {
        struct run_case c = cases[i];
        struct save save = {0}, loaded;
        c.sparse = true;
        c.optimizer = GF_OPTIMIZER_SGD;
        c.beta = 0.5f;
        for (size_t n = 0; n < LENGTH(worlds); n++) {
            struct world_setup setup = setup_of(&c);
            struct world w;
            bool any = false;
            setup.world = worlds[n];
            setup.config.optimizer.weight_decay = 0; /* what is added stays exact */
            setup.config.sparse.warmup_steps = 0;
            setup.config.sparse.ramp_steps = 0;
            world_open(&w, &setup);
            if (n > 0) {
                save_load(&w, &save);
                loaded = save_take(&w);
                /* 8/3 is the first ratio that is no short number in binary. */
                expect_same_sums(&save, &loaded, (c.average != GF_AVERAGE_RANKS) || (n < 3), &any);
                assert_true(any);
                save_free(&loaded);
                save_free(&save);
            }
            for (uint32_t step = 1; step <= 2; step++) step_run(&w, (n == 0) ? step : 20 + n * 4 + step, fill_whole);
            for (uint32_t rank = 1; rank < w.world; rank++)
                for (uint32_t t = 0; t < LENGTH(tensors); t++)
                    assert_memory_equal((const void *)(uintptr_t)gf_weight(w.ranks[rank].gf, t),
                                        (const void *)(uintptr_t)gf_weight(w.ranks[0].gf, t),
                                        tensors[t].elem_count * sizeof(float));
            save = save_take(&w);
            world_close(&w);
        }
        save_free(&save);
    }
}

static void ranks_get_only_what_they_inherit(void **state)
{
    struct world_setup setup = setup_of(&run_cases[4]);
    struct save first, second;
    struct world w;
    gf_context *gf;
    (void)state;
    setup.world = 5;
    world_open(&w, &setup);
    for (uint32_t step = 1; step <= 6; step++) step_run(&w, step, fill);
    first = save_take(&w);
    step_run(&w, 9, fill);
    second = save_take(&w);
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
    step_run(&w, 10, fill);
    save_free(&first);
    save_free(&second);
    world_close(&w);
}

/* ---- what is refused ---- */

static struct world_setup small_setup(void)
{
    struct world_setup setup = setup_of(&run_cases[4]);
    setup.world = 2;
    setup.tensors = few;
    setup.tensor_count = LENGTH(few);
    setup.config.sparse.chunk_elems = 3;
    return setup;
}

/* A small world with histories, its state, and room for broken copies of it. */
struct small {
    struct world w;
    gf_context *gf;
    struct save save;
    unsigned char *broken;
};

static void small_open(struct small *s)
{
    struct world_setup setup = small_setup();
    world_open(&s->w, &setup);
    weights_begin(&s->w);
    for (uint32_t step = 1; step <= 6; step++) {
        struct moment moment = {.step = step};
        struct world_step run = {.fill = fill, .arg = &moment};
        world_step_run(&s->w, &run);
        for (uint32_t rank = 0; rank < s->w.world; rank++)
            assert_int_equal(gf_update(s->w.ranks[rank].gf, 0.1f), GF_OK);
    }
    s->gf = s->w.ranks[0].gf;
    s->save = save_take(&s->w);
    s->broken = malloc(s->save.bytes + 8);
    assert_non_null(s->broken);
    memcpy(s->broken, s->save.data[0], s->save.bytes);
}

static void small_close(struct small *s)
{
    free(s->broken);
    save_free(&s->save);
    world_close(&s->w);
}

static void expect_untouched(struct small *s)
{
    struct save now = save_take(&s->w);
    save_expect_equal(&now, &s->save);
    save_free(&now);
}

static void a_flipped_bit_anywhere_is_refused(void **state)
{
    struct small s;
    (void)state;
    small_open(&s);
    for (uint64_t bit = 0; bit < 8 * s.save.bytes; bit++) {
        s.broken[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        assert_int_equal(gf_state_load(s.gf, s.broken, s.save.bytes), GF_ERR_DATA);
        s.broken[bit / 8] ^= (unsigned char)(1u << (bit % 8));
        if (bit % 8 == 0) expect_untouched(&s);
    }
    assert_int_equal(gf_state_load(s.gf, s.broken, s.save.bytes), GF_OK);
    expect_untouched(&s);
    small_close(&s);
}

static void a_state_cut_short_or_grown_is_refused(void **state)
{
    struct small s;
    (void)state;
    small_open(&s);
    for (uint64_t bytes = 0; bytes <= s.save.bytes + 8; bytes++) {
        if (bytes == s.save.bytes) continue;
        unsigned char *exact = aligned_alloc(8, (bytes + 8) / 8 * 8); /* so that reading behind it is seen */
        assert_non_null(exact);
        memcpy(exact, s.broken, (bytes < s.save.bytes) ? bytes : s.save.bytes);
        if (bytes > s.save.bytes) memset(exact + s.save.bytes, 0, bytes - s.save.bytes);
        assert_int_equal(gf_state_load(s.gf, exact, bytes), GF_ERR_DATA);
        free(exact);
    }
    expect_untouched(&s);
    small_close(&s);
}

static void seal(unsigned char *data, uint64_t bytes)
{
    uint64_t checksum = gf_state_hash(0, data, bytes - 8);
    memcpy(data + bytes - 8, &checksum, sizeof checksum);
}

static void a_sealed_state_that_no_save_of_this_run_writes_is_refused_and_named(void **state)
{
#define FIELD(name) offsetof(struct gf_state_head, name), sizeof(((struct gf_state_head *)0)->name)
    static const struct {
        size_t offset, bytes;
        uint64_t value;
        const char *text;
    } rows[] = {
        {FIELD(magic), 0x1234, "this is no state: it begins with 0000000000001234, a state with 0a45544154534647"},
        {FIELD(version), 2, "format version 2; this library reads 1"},
        {FIELD(version), 0, "format version 0; this library reads 1"},
        {FIELD(head_bytes), 136, "bytes were handed over"},
        {FIELD(total_bytes), 8, "the state says it has 8"},
        {FIELD(tensors_hash), 7, "another run: hash of the tensors' names, sizes, flags and types: 7 there"},
        {FIELD(elem_count), 1, "another run: elements of the pool: 1 there, 32 here"},
        {FIELD(sparse_elem_count), UINT64_MAX, "elements of the sparse part: 18446744073709551615 there, 13 here"},
        {FIELD(tensor_count), 1, "another run: tensors: 1 there, 2 here"},
        {FIELD(optimizer), 2, "another run: optimizer.kind, as a number: 2 there, 1 here"},
        {FIELD(has_momentum), 0, "another run: optimizer.momentum above 0: 0 there, 1 here"},
        {FIELD(sparse_momentum), 0, "another run: sparse.momentum, as a number: 0 there, 1 here"},
        {FIELD(average), 2, "another run: exchange.average, as a number: 2 there, 0 here"},
        {FIELD(chunk_elems), 4, "another run: sparse.chunk_elems: 4 there, 3 here"},
        {FIELD(chunk_count), 6, "another run: chunks: 6 there, 5 here"},
        {FIELD(world), 0, "rank and world"},
        {FIELD(world), GF_WORLD_MAX + 1, "rank and world"},
        {FIELD(rank), 2, "rank and world"},
        {FIELD(rank), 1, "the state is of rank 1 of 2; rank 0 of 2 loads that of rank 0"},
        {FIELD(flags), 0x1f, "flags"},
        {FIELD(flags), 0, "number of selected chunks"},
        {FIELD(selected_count), 0, "number of selected chunks"},
        {FIELD(selected_count), 6, "number of selected chunks"},
        {FIELD(scale_bits), 0, "loss scale"},
        {FIELD(scale_bits), 0x7f800000, "loss scale"},
        {FIELD(scale_bits), 0xbf800000, "loss scale"},
        {FIELD(scale_bits), 0x3fc00000, "loss scale"},
        {FIELD(step), 5, "hash of the common part"},
        {sizeof(struct gf_state_head), 4, 5, "selection"},
        {sizeof(struct gf_state_head), 4, 4, "selection"},
        {sizeof(struct gf_state_head) + 24, 4, 1, "hash of the common part"},
    };
    struct small s;
    (void)state;
    small_open(&s);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        memcpy(s.broken, s.save.data[0], s.save.bytes);
        memcpy(s.broken + rows[i].offset, &rows[i].value, rows[i].bytes);
        seal(s.broken, s.save.bytes);
        world_log_clear(&s.w);
        assert_int_equal(gf_state_load(s.gf, s.broken, s.save.bytes), GF_ERR_DATA);
        world_expect_log(&s.w, 0, rows[i].text);
        expect_untouched(&s);
    }
    small_close(&s);
}

static void buffers_of_another_size_or_alignment_are_refused(void **state)
{
    struct small s;
    (void)state;
    small_open(&s);
    assert_int_equal(gf_state_save(s.gf, s.broken, s.save.bytes - 8), GF_ERR_PARAM);
    assert_int_equal(gf_state_save(s.gf, s.broken, s.save.bytes + 8), GF_ERR_PARAM);
    assert_int_equal(gf_state_save(s.gf, NULL, s.save.bytes), GF_ERR_PARAM);
    assert_memory_equal(s.broken, s.save.data[0], s.save.bytes);
    memmove(s.broken + 4, s.broken, s.save.bytes);
    assert_int_equal(gf_state_load(s.gf, s.broken + 4, s.save.bytes), GF_ERR_PARAM);
    assert_int_equal(gf_state_load(s.gf, NULL, s.save.bytes), GF_ERR_PARAM);
    assert_int_equal(gf_state_load(NULL, s.save.data[0], s.save.bytes), GF_ERR_PARAM);
    assert_int_equal(gf_state_save(NULL, s.save.data[0], s.save.bytes), GF_ERR_PARAM);
    assert_int_equal(gf_state_bytes(NULL), 0);
    expect_untouched(&s);
    small_close(&s);
}

static gf_status request_turn(struct world *w, uint32_t rank, void *arg)
{
    struct gf_request *requests = arg;
    return gf_request_poll(w->ranks[rank].gf, &requests[rank]);
}

static void expect_wrong_moment(struct small *s, const char *text)
{
    world_log_clear(&s->w);
    assert_int_equal(gf_state_save(s->gf, s->broken, s->save.bytes), GF_ERR_STATE);
    world_expect_log(&s->w, 0, text);
    world_log_clear(&s->w);
    assert_int_equal(gf_state_load(s->gf, s->save.data[0], s->save.bytes), GF_ERR_STATE);
    world_expect_log(&s->w, 0, text);
    assert_int_equal(gf_state_add(s->gf, s->save.data[0], s->save.bytes), GF_ERR_STATE);
}

static void another_moment_is_refused(void **state)
{
    struct gf_request requests[2] = {0};
    struct moment moment = {.step = 7};
    struct world_step step = {.fill = fill, .arg = &moment};
    float data[2][4] = {{1}, {2}};
    struct small s;
    (void)state;
    small_open(&s);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(
            gf_allreduce(s.w.ranks[rank].gf, (gf_mem)(uintptr_t)data[rank], 4, GF_TYPE_F32, &requests[rank]), GF_OK);
    expect_wrong_moment(&s, "requests are under way");
    world_run(&s.w, request_turn, requests);
    world_expect(&s.w, GF_OK);
    expect_untouched(&s);
    world_step_run(&s.w, &step);
    world_expect(&s.w, GF_OK);
    world_log_clear(&s.w);
    assert_int_equal(gf_state_save(s.gf, s.broken, s.save.bytes), GF_ERR_STATE);
    world_expect_log(&s.w, 0, "step 7 is not applied yet");
    for (uint32_t rank = 0; rank < 2; rank++) /* thrown away */
        assert_int_equal(gf_state_load(s.w.ranks[rank].gf, s.save.data[rank], s.save.bytes), GF_OK);
    assert_int_equal(gf_update(s.gf, 0.1f), GF_ERR_STATE);
    expect_untouched(&s);
    assert_int_equal(gf_step_begin(s.gf), GF_OK);
    expect_wrong_moment(&s, "step 7 is under way");
    gf_abort(s.gf);
    assert_int_equal(gf_state_load(s.gf, s.save.data[0], s.save.bytes), GF_ERR_ABORTED);
    assert_int_equal(gf_state_save(s.gf, s.broken, s.save.bytes), GF_ERR_ABORTED);
    small_close(&s);
}

static void before_all_ranks_have_joined_nothing_is_loaded(void **state)
{
    struct world_setup setup = small_setup();
    struct small s;
    struct world w;
    (void)state;
    small_open(&s);
    world_create(&w, &setup);
    world_expect(&w, GF_OK);
    assert_int_equal(gf_state_bytes(w.ranks[0].gf), s.save.bytes);
    assert_int_equal(gf_state_load(w.ranks[0].gf, s.save.data[0], s.save.bytes), GF_ERR_STATE);
    world_expect_log(&w, 0, "gf_state_load: the context is not open");
    world_join(&w);
    world_expect(&w, GF_OK);
    world_close(&w);
    small_close(&s);
}

static void a_state_of_other_tensors_is_refused(void **state)
{
    static const struct gf_tensor renamed[] = {
        {.name = "bias", .elem_count = 3, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
        {.name = "rest", .elem_count = 13},
    };
    struct world_setup setup = small_setup();
    struct small s;
    struct world w;
    (void)state;
    small_open(&s);
    setup.tensors = renamed;
    world_open(&w, &setup);
    assert_int_equal(gf_state_load(w.ranks[0].gf, s.save.data[0], s.save.bytes), GF_ERR_DATA);
    world_expect_log(&w, 0, "another run: hash of the tensors' names");
    world_close(&w);
    small_close(&s);
}

static void the_loss_scale_can_be_switched_on_and_off(void **state)
{
    struct world_setup setup = small_setup();
    struct small s;
    struct world w;
    (void)state;
    small_open(&s);
    assert_true(gf_loss_scale(s.gf) > 1024.0f);
    setup.config.loss_scale.enabled = false;
    world_open(&w, &setup);
    save_load(&w, &s.save);
    assert_true(gf_loss_scale(w.ranks[0].gf) == 1.0f);
    save_free(&s.save);
    s.save = save_take(&w);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(gf_state_load(s.w.ranks[rank].gf, s.save.data[rank], s.save.bytes), GF_OK);
    assert_true(gf_loss_scale(s.gf) == 1024.0f);
    world_close(&w);
    small_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_anywhere_a_run_ends_bitwise_where_the_uninterrupted_one_ends),
        cmocka_unit_test(a_sparse_run_has_histories_and_ranks_agree_on_the_rest),
        cmocka_unit_test(nothing_that_waits_is_lost_from_4_ranks_to_2_to_3),
        cmocka_unit_test(ranks_get_only_what_they_inherit),
        cmocka_unit_test(a_flipped_bit_anywhere_is_refused),
        cmocka_unit_test(a_state_cut_short_or_grown_is_refused),
        cmocka_unit_test(a_sealed_state_that_no_save_of_this_run_writes_is_refused_and_named),
        cmocka_unit_test(buffers_of_another_size_or_alignment_are_refused),
        cmocka_unit_test(another_moment_is_refused),
        cmocka_unit_test(before_all_ranks_have_joined_nothing_is_loaded),
        cmocka_unit_test(a_state_of_other_tensors_is_refused),
        cmocka_unit_test(the_loss_scale_can_be_switched_on_and_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
