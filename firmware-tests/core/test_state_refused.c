/* What is not a whole state of this run, or comes at another moment, is refused with a line that
 * names it and leaves no trace. */
#include "firmware-tests/support/suite.h"
#include "drivers/base/fnv.h"
#include "firmware-tests/support/state_runs.h"

static const struct gf_tensor few[] = {
    {.name = "bias", .elem_count = 3, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
    {.name = "all", .elem_count = 13},
};
static const struct state_run sparse_run = {.world = 2,
                                            .sparse = true,
                                            .scaled = true,
                                            .optimizer = GF_OPTIMIZER_SGD,
                                            .momentum = GF_SPARSE_MOMENTUM_LOCAL,
                                            .beta = 0.9f,
                                            .wire = GF_TYPE_F16};

static struct world_setup small_setup(void)
{
    struct world_setup setup = state_setup_of(&sparse_run);
    setup.tensors = few;
    setup.tensor_count = LENGTH(few);
    setup.config.sparse.chunk_elems = 3;
    return setup;
}

/* A small world with histories, its state, and room for broken copies of it. */
struct small {
    struct world w;
    gf_context *gf;
    struct state_save save;
    unsigned char *broken;
};

static void small_open(struct small *s)
{
    struct world_setup setup = small_setup();
    world_open(&s->w, &setup);
    state_weights_begin(&s->w);
    for (uint32_t step = 1; step <= 6; step++) {
        struct state_moment moment = {.step = step};
        struct world_step run = {.fill = state_fill, .arg = &moment};
        world_step_run(&s->w, &run);
        for (uint32_t rank = 0; rank < s->w.world; rank++)
            assert_int_equal(gf_update(s->w.ranks[rank].gf, 0.1f), GF_OK);
    }
    s->gf = s->w.ranks[0].gf;
    s->save = state_save_take(&s->w);
    s->broken = malloc(s->save.bytes + 8);
    assert_non_null(s->broken);
    memcpy(s->broken, s->save.data[0], s->save.bytes);
}

static void small_close(struct small *s)
{
    free(s->broken);
    state_save_free(&s->save);
    world_close(&s->w);
}

static void expect_untouched(struct small *s)
{
    struct state_save now = state_save_take(&s->w);
    state_save_expect_equal(&now, &s->save);
    state_save_free(&now);
}

TEST(a_flipped_bit_anywhere_is_refused)
{
    struct small s;
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

TEST(a_state_cut_short_or_grown_is_refused)
{
    struct small s;
    small_open(&s);
    for (uint64_t bytes = 0; bytes <= s.save.bytes + 8; bytes++) {
        if (bytes == s.save.bytes) continue;
        /* so that reading behind it is seen */
        unsigned char *exact = aligned_alloc(8, (bytes + 8) / 8 * 8);
        assert_non_null(exact);
        memcpy(exact, s.broken, (bytes < s.save.bytes) ? bytes : s.save.bytes);
        if (bytes > s.save.bytes) memset(exact + s.save.bytes, 0, bytes - s.save.bytes);
        assert_int_equal(gf_state_load(s.gf, exact, bytes), GF_ERR_DATA);
        free(exact);
    }
    expect_untouched(&s);
    small_close(&s);
}

static void MAC(unsigned char *data, uint64_t bytes)
{
    uint64_t checksum = gf_fnv_words(GF_FNV_START, data, bytes - 8);
    memcpy(data + bytes - 8, &checksum, sizeof checksum);
}

/* Of format 3: by another implementation, in Python. */
TEST(the_checksum_is_the_formats)
{
    static const struct {
        uint64_t bytes;
        uint64_t hash;
    } rows[] = {
        {0, UINT64_C(0x0000000000000005)},  {4, UINT64_C(0x55300ecfdec0a7ca)},
        {8, UINT64_C(0xea0c801eb653c96f)},  {24, UINT64_C(0xfa9add872cb8251b)},
        {64, UINT64_C(0xd0b28493c4169e35)}, {96, UINT64_C(0x4ed1c4f421d6cb9d)},
    };
    unsigned char data[96];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (unsigned char)(i * 37 + 11);
    for (size_t r = 0; r < LENGTH(rows); r++)
        assert_true(gf_fnv_words(5, data, rows[r].bytes) == rows[r].hash);
}

TEST(a_checksummed_state_that_no_save_of_this_run_writes_is_refused_and_named)
{
#define FIELD(name) offsetof(struct gf_state_head, name), sizeof(((struct gf_state_head *)0)->name)
    static const struct {
        size_t offset, bytes;
        uint64_t value;
        const char *text;
    } rows[] = {
        {FIELD(magic), 0x1234,
         "this is no state: it begins with 0000000000001234, a state with 0a45544154534647"},
        {FIELD(version), 1, "format version 1; this library reads 3"},
        {FIELD(version), 0, "format version 0; this library reads 3"},
        {FIELD(head_bytes), 128, "bytes were handed over"},
        {FIELD(total_bytes), 8, "the state says it has 8"},
        {FIELD(tensors_hash), 7,
         "another model: tensors differ in names, sizes, flags, types or order"},
        {FIELD(elem_count), 1, "another model: elements of the pool: 1 there, 32 here"},
        {FIELD(sparse_elem_count), UINT64_MAX,
         "elements of the sparse part: 18446744073709551615 there, 13 here"},
        {FIELD(tensor_count), 1, "another model: tensors: 1 there, 2 here"},
        {FIELD(optimizer), 2, "another run: optimizer.kind: lars there, sgd here"},
        {FIELD(has_momentum), 0, "another run: optimizer.momentum above 0: 0 there, 1 here"},
        {FIELD(sparse_momentum), 0, "another run: sparse.momentum: reduced there, local here"},
        {FIELD(average), 2, "another run: exchange.average: samples there, sum here"},
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
        {FIELD(step), 7, "hash of the common part"},
        {sizeof(struct gf_state_head), 4, 5, "selection"},
        {sizeof(struct gf_state_head), 4, 4, "selection"},
        {sizeof(struct gf_state_head) + 24, 4, 1, "hash of the common part"},
    };
    struct small s;
    small_open(&s);
    for (size_t i = 0; i < LENGTH(rows); i++) {
        memcpy(s.broken, s.save.data[0], s.save.bytes);
        memcpy(s.broken + rows[i].offset, &rows[i].value, rows[i].bytes);
        MAC(s.broken, s.save.bytes);
        world_log_clear(&s.w);
        assert_int_equal(gf_state_load(s.gf, s.broken, s.save.bytes), GF_ERR_DATA);
        world_expect_log(&s.w, 0, rows[i].text);
        expect_untouched(&s);
    }
    small_close(&s);
}

TEST(a_step_that_is_not_applied_is_thrown_away_by_a_load)
{
    struct state_moment moment = {.step = 7};
    struct world_step step = {.fill = state_fill, .arg = &moment};
    struct small s;
    small_open(&s);
    world_step_run(&s.w, &step);
    world_expect(&s.w, GF_OK);
    world_log_clear(&s.w);
    assert_int_equal(gf_state_save(s.gf, s.broken, s.save.bytes), GF_ERR_STATE);
    world_expect_log(&s.w, 0, "step 7 is not applied yet");
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(gf_state_load(s.w.ranks[rank].gf, s.save.data[rank], s.save.bytes), GF_OK);
    assert_int_equal(gf_update(s.gf, 0.1f), GF_ERR_STATE);
    expect_untouched(&s);
    small_close(&s);
}

TEST(a_state_of_other_tensors_is_refused)
{
    static const struct gf_tensor renamed[] = {
        {.name = "bias", .elem_count = 3, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
        {.name = "rest", .elem_count = 13},
    };
    struct world_setup setup = small_setup();
    struct small s;
    struct world w;
    small_open(&s);
    setup.tensors = renamed;
    world_open(&w, &setup);
    assert_int_equal(gf_state_load(w.ranks[0].gf, s.save.data[0], s.save.bytes), GF_ERR_DATA);
    world_expect_log(&w, 0, "another model: tensors differ in names");
    world_close(&w);
    small_close(&s);
}

/* As state_take() of the recipe reads it: no more than a byte longer than its own. */
TEST(a_part_of_another_models_state_is_of_another_model)
{
    static const struct gf_tensor more[] = {
        {.name = "bias", .elem_count = 3, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
        {.name = "all", .elem_count = 13},
        {.name = "more", .elem_count = 1000},
    };
    struct world_setup setup = small_setup();
    struct small s;
    struct world w;
    struct state_save larger;
    small_open(&s);
    setup.tensors = more;
    setup.tensor_count = LENGTH(more);
    world_open(&w, &setup);
    larger = state_save_take(&w);
    assert_true(larger.bytes > s.save.bytes + 1);
    world_log_clear(&s.w);
    assert_int_equal(gf_state_load(s.gf, larger.data[0], s.save.bytes + 1), GF_ERR_DATA);
    world_expect_log(&s.w, 0, "another model: tensors: 3 there, 2 here");
    expect_untouched(&s);
    state_save_free(&larger);
    world_close(&w);
    small_close(&s);
}

TEST(the_loss_scale_can_be_switched_on_and_off)
{
    struct world_setup setup = small_setup();
    struct small s;
    struct world w;
    small_open(&s);
    assert_true(gf_loss_scale(s.gf) > 1024.0f);
    setup.config.loss_scale.enabled = false;
    world_open(&w, &setup);
    state_save_load(&w, &s.save);
    assert_true(gf_loss_scale(w.ranks[0].gf) == 1.0f);
    state_save_free(&s.save);
    s.save = state_save_take(&w);
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(gf_state_load(s.w.ranks[rank].gf, s.save.data[rank], s.save.bytes), GF_OK);
    assert_true(gf_loss_scale(s.gf) == 1024.0f);
    world_close(&w);
    small_close(&s);
}

/* The file of one rank is older. In the memory of a node nothing has the step: the vote tells. */
TEST(ranks_that_loaded_different_saves_are_told)
{
    static const struct state_run dense = {.world = 2, .optimizer = GF_OPTIMIZER_SGD};
    struct world_setup setup = state_setup_of(&dense);
    struct world_step step = {0};
    struct state_save saves[2];
    WORLD(w);
    setup.sim.ranks_per_node = 2;
    world_open(&w, &setup);
    saves[0] = state_save_take(&w);
    state_step_run(&w, 1, state_fill_whole);
    saves[1] = state_save_take(&w);
    assert_int_equal(gf_state_load(w.ranks[0].gf, saves[0].data[0], saves[0].bytes), GF_OK);
    world_step_run(&w, &step);
    world_expect(&w, GF_ERR_MISMATCH);
    for (uint32_t rank = 0; rank < 2; rank++)
        world_expect_log(&w, rank,
                         "rank 0 is in step 1, and rank 1 in step 2: all ranks must load one save");
    for (uint32_t i = 0; i < 2; i++) state_save_free(&saves[i]);
}
