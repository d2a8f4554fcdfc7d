/* Every field of a saved state with extreme values, its hashes made right again: it is refused and
 * leaves no trace, or the job trains on with finite weights that move. */
#include "firmware-tests/support/suite.h"
#include "drivers/base/fnv.h"
#include "firmware-tests/support/state_runs.h"

#define FIELD(name)                                                                            \
    {                                                                                          \
#name, offsetof(struct gf_state_head, name), sizeof(((struct gf_state_head *)0)->name) \
    }
struct field {
    const char *name;
    size_t offset, bytes;
};
/* All but magic, version, head_bytes, total_bytes and the hashes: test_state_refused. */
static const struct field fields[] = {
    FIELD(tensors_hash), FIELD(elem_count),      FIELD(sparse_elem_count),
    FIELD(step),         FIELD(updates),         FIELD(tensor_count),
    FIELD(optimizer),    FIELD(has_momentum),    FIELD(average),
    FIELD(chunk_elems),  FIELD(sparse_momentum), FIELD(chunk_count),
    FIELD(world),        FIELD(flags),           FIELD(selected_count),
    FIELD(scale_bits),   FIELD(scale_good),      FIELD(scale_bad),
    FIELD(rank),         FIELD(samples_before),
};

static uint64_t aligned(uint64_t elem_count)
{
    return (elem_count * sizeof(float) + 7) / 8 * 8;
}

/* Where the parts of a state lie: state_format.h. */
struct places {
    uint64_t selection, weight, momentum_dense, momentum_sparse, moment2, history, checksum;
};

static struct places block_at(const struct gf_state_head *head)
{
    const uint64_t dense = head->elem_count - head->sparse_elem_count;
    const bool adam = head->optimizer == GF_OPTIMIZER_ADAMW;
    const bool momentum = adam || (head->has_momentum != 0);
    struct places places = {.selection = sizeof *head};
    places.weight = places.selection + aligned(head->chunk_count);
    places.momentum_dense = places.weight + aligned(head->elem_count);
    places.momentum_sparse = places.momentum_dense + (momentum ? aligned(dense) : 0);
    places.moment2 = places.momentum_sparse + (momentum ? aligned(head->sparse_elem_count) : 0);
    places.history = places.moment2 + (adam ? aligned(head->elem_count) : 0);
    places.checksum = places.history + aligned(head->sparse_elem_count);
    return places;
}

/* As gf_state_save() makes both hashes. */
static void hashes_make(unsigned char *data, const struct places *places)
{
    struct gf_state_head head;
    struct gf_state_head common;
    memcpy(&head, data, sizeof head);
    common = head;
    common.rank = 0;
    common.common_hash = 0;
    const uint64_t end =
        ((head.flags & GF_STATE_LOCAL) != 0) ? places->momentum_sparse : places->history;
    head.common_hash = gf_fnv_words(gf_fnv_words(GF_FNV_START, &common, sizeof common),
                                    data + places->selection, end - places->selection);
    memcpy(data, &head, sizeof head);
    const uint64_t checksum = gf_fnv_words(GF_FNV_START, data, places->checksum);
    memcpy(data + places->checksum, &checksum, sizeof checksum);
}

struct trial {
    struct world w;
    struct state_save save; /* that no trial has changed */
    struct state_save changed;
    struct places places;
    uint32_t refused, taken;
};

static void trial_open(struct trial *trial, const struct state_run *run)
{
    struct world_setup setup = state_setup_of(run);
    struct gf_state_head head;
    memset(trial, 0, sizeof *trial);
    world_open(&trial->w, &setup);
    state_weights_begin(&trial->w);
    for (uint64_t step = 1; step <= 6; step++) state_step_run(&trial->w, step, state_fill);
    trial->save = state_save_take(&trial->w);
    trial->changed = state_save_take(&trial->w);
    head = state_head_of(&trial->save, 0);
    trial->places = block_at(&head);
    assert_int_equal(trial->places.checksum + 8, trial->save.bytes);
}

static void trial_close(struct trial *trial)
{
    state_save_free(&trial->save);
    state_save_free(&trial->changed);
    world_close(&trial->w);
}

static float weight_of(const struct trial *trial, uint32_t tensor, uint64_t elem)
{
    return ((const float *)(uintptr_t)gf_weight(trial->w.ranks[0].gf, tensor))[elem];
}

static void weights_finite(const struct trial *trial, const char *what)
{
    for (uint32_t t = 0; t < trial->w.ranks[0].tensor_count; t++)
        for (uint64_t i = 0; i < trial->w.ranks[0].tensors[t].elem_count; i++)
            if (!isfinite(weight_of(trial, t, i)))
                fail_msg("%s: a weight is %g", what, (double)weight_of(trial, t, i));
}

static void trained_on(struct trial *trial, const char *what)
{
    const float scale = gf_loss_scale(trial->w.ranks[0].gf);
    const float weight = weight_of(trial, 1, 7);
    for (uint64_t step = 11; step <= 16; step++) state_step_run(&trial->w, step, state_fill);
    weights_finite(trial, what);
    if ((weight == weight_of(trial, 1, 7)) && (gf_loss_scale(trial->w.ranks[0].gf) >= scale))
        fail_msg("%s: nothing is learned", what);
}

/* What lies at `offset` of each rank's state becomes value. */
static void trial_run(struct trial *trial, const char *name, uint64_t offset, size_t bytes,
                      uint64_t value)
{
    const uint32_t world = trial->w.world;
    uint32_t refusals = 0;
    char what[80];
    (void)snprintf(what, sizeof what, "%s = %#llx", name, (unsigned long long)value);
    for (uint32_t rank = 0; rank < world; rank++) {
        memcpy(trial->changed.data[rank], trial->save.data[rank], trial->save.bytes);
        memcpy(trial->changed.data[rank] + offset, &value, bytes);
        hashes_make(trial->changed.data[rank], &trial->places);
        const gf_status status =
            gf_state_load(trial->w.ranks[rank].gf, trial->changed.data[rank], trial->save.bytes);
        if ((status != GF_OK) && (status != GF_ERR_DATA))
            fail_msg("%s: %s", what, gf_status_name(status));
        refusals += (status != GF_OK) ? 1 : 0;
    }
    trial->refused += (refusals > 0) ? 1 : 0;
    trial->taken += (refusals > 0) ? 0 : 1;
    if (refusals == 0) trained_on(trial, what);
    if (refusals == world) {
        struct state_save now = state_save_take(&trial->w);
        state_save_expect_equal(&now, &trial->save);
        state_save_free(&now);
    }
    state_save_load(&trial->w, &trial->save);
}

static void fields_try(struct trial *trial)
{
    static const uint64_t values[] = {
        0,
        1,
        2,
        1000000,
        1000001,
        0x7f800000,
        0x7fc00000,
        0xff800000,
        0x80000000,
        0x4f800000,
        UINT32_MAX,
        0x7fffffff,
        1ull << 48,
        (1ull << 48) + 1,
        1ull << 63,
        UINT64_MAX,
        UINT64_MAX - 1,
        UINT64_MAX - 8191,
    };
    for (size_t f = 0; f < LENGTH(fields); f++)
        for (size_t v = 0; v < LENGTH(values); v++)
            if ((fields[f].bytes == 8) || (values[v] <= UINT32_MAX))
                trial_run(trial, fields[f].name, fields[f].offset, fields[f].bytes, values[v]);
}

static void pools_try(struct trial *trial)
{
    static const uint32_t values[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0x7f800000,
                                      0xff800000, 0,          0x80000000, 1};
    const struct places *at = &trial->places;
    const struct {
        const char *name;
        uint64_t first, end;
    } pools[] = {{"weight", at->weight, at->momentum_dense},
                 {"momentum of the dense part", at->momentum_dense, at->momentum_sparse},
                 {"momentum of the sparse part", at->momentum_sparse, at->moment2},
                 {"second moment", at->moment2, at->history},
                 {"history", at->history, at->checksum}};
    for (size_t p = 0; p < LENGTH(pools); p++) {
        if (pools[p].first == pools[p].end) continue;
        for (size_t v = 0; v < LENGTH(values); v++)
            trial_run(trial, pools[p].name, pools[p].first + 20, 4, values[v]);
    }
}

TEST(a_state_with_an_extreme_value_anywhere_is_refused_or_trained_on)
{
    static const size_t runs[] = {6, 8, 1}; /* sparse with local momentum; adamw; lars, scaled */
    for (size_t r = 0; r < LENGTH(runs); r++) {
        struct trial trial;
        trial_open(&trial, &state_runs[runs[r]]);
        fields_try(&trial);
        pools_try(&trial);
        assert_true((trial.refused > 200) && (trial.taken > 10));
        trial_close(&trial);
    }
}

/* Each is named, with where it is. */
TEST(what_cannot_be_trained_on_is_named)
{
    const float negative = -1.0f;
    uint32_t bits;
    struct trial trial;
    memcpy(&bits, &negative, sizeof bits);
    trial_open(&trial, &state_runs[8]);
    const struct gf_state_head head = state_head_of(&trial.save, 0);
    const struct {
        uint64_t offset, value;
        size_t bytes;
        const char *text;
    } rows[] = {
        {offsetof(struct gf_state_head, updates), UINT64_MAX, 8, "no save writes: updates"},
        {offsetof(struct gf_state_head, updates), head.step + 1, 8, "no save writes: updates"},
        {offsetof(struct gf_state_head, step), UINT64_MAX, 8, "no save writes: step"},
        {offsetof(struct gf_state_head, samples_before), UINT64_MAX, 8, "no save writes: samples"},
        {offsetof(struct gf_state_head, scale_good), UINT32_MAX, 4,
         "no save writes: steps of the loss scale"},
        {offsetof(struct gf_state_head, scale_bad), UINT32_MAX, 4,
         "no save writes: steps of the loss scale"},
        {trial.places.weight + 20, 0x7fc00000, 4,
         "gf_state_load: the state cannot be trained on: weight: element 5 of "},
        {trial.places.moment2 + 4, bits, 4, "cannot be trained on: second moment: element 1 of "},
        {trial.places.moment2 + 4, 0x7f800000, 4, "cannot be trained on: second moment: element 1"},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        world_log_clear(&trial.w);
        trial_run(&trial, rows[i].text, rows[i].offset, rows[i].bytes, rows[i].value);
        world_expect_log(&trial.w, 0, rows[i].text);
    }
    trial_close(&trial);
}

/* A run that has diverged is told when it is saved, not when it is resumed. */
TEST(a_save_of_weights_that_are_not_finite_says_so)
{
    struct trial trial;
    trial_open(&trial, &state_runs[0]);
    ((float *)(uintptr_t)gf_weight(trial.w.ranks[1].gf, 1))[3] = __builtin_inff();
    world_log_clear(&trial.w);
    struct state_save diverged = state_save_take(&trial.w);
    world_expect_log(&trial.w, 1, "no run can go on from this state, keep the one before: weight:");
    state_save_free(&diverged);
    trial_close(&trial);
}
