/* See state_runs.h. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/state_runs.h"

const struct gf_tensor state_tensors[STATE_TENSORS] = {
    {.name = "bias", .elem_count = 10, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
    {.name = "last", .elem_count = 301},
    {.name = "norm", .elem_count = 33, .flags = GF_TENSOR_NO_DECAY},
    {.name = "first", .elem_count = 700},
};

const struct state_run state_runs[STATE_RUNS] = {
    {"dense", 3, .optimizer = GF_OPTIMIZER_SGD, .beta = 0.9f, .nesterov = true},
    {"dense_lars_scaled_half", 2, .scaled = true, .optimizer = GF_OPTIMIZER_LARS, .beta = 0.9f,
     .half = GF_TYPE_F16, .wire = GF_TYPE_F16},
    {"dense_without_momentum", 2, .optimizer = GF_OPTIMIZER_SGD},
    {"sparse_reduced", 3, .sparse = true, .scaled = true, .momentum = GF_SPARSE_MOMENTUM_REDUCED,
     .optimizer = GF_OPTIMIZER_SGD, .beta = 0.9f, .half = GF_TYPE_BF16},
    {"sparse_local_sum", 3, .sparse = true, .scaled = true, .momentum = GF_SPARSE_MOMENTUM_LOCAL,
     .optimizer = GF_OPTIMIZER_SGD, .beta = 0.9f, .wire = GF_TYPE_F16},
    {"sparse_local_ranks", 2, .sparse = true, .momentum = GF_SPARSE_MOMENTUM_LOCAL,
     .average = GF_AVERAGE_RANKS, .optimizer = GF_OPTIMIZER_SGD, .beta = 0.9f},
    {"sparse_local_samples", 4, .sparse = true, .scaled = true,
     .momentum = GF_SPARSE_MOMENTUM_LOCAL, .average = GF_AVERAGE_SAMPLES,
     .optimizer = GF_OPTIMIZER_SGD, .beta = 0.5f, .half = GF_TYPE_F16},
    {"sparse_lars", 3, .sparse = true, .scaled = true, .momentum = GF_SPARSE_MOMENTUM_REDUCED,
     .optimizer = GF_OPTIMIZER_LARS, .beta = 0.9f},
    {"dense_adamw_half", 2, .scaled = true, .optimizer = GF_OPTIMIZER_ADAMW, .half = GF_TYPE_F16,
     .wire = GF_TYPE_F16},
};

struct world_setup state_setup_of(const struct state_run *run)
{
    struct world_setup setup = {.world = run->world,
                                .tensors = state_tensors,
                                .tensor_count = STATE_TENSORS,
                                .sim = world_network};
    struct gf_config *config = &setup.config;
    config->exchange.wire = run->wire;
    config->exchange.average = run->average;
    config->exchange.fuse_bytes = 512;
    config->optimizer.kind = run->optimizer;
    config->optimizer.momentum = run->beta;
    config->optimizer.nesterov = run->nesterov;
    config->optimizer.weight_decay = 0.01f;
    config->optimizer.half_weights = run->half;
    config->sparse.enabled = run->sparse;
    config->sparse.chunk_elems = 37;
    config->sparse.keep_share = 0.3f;
    config->sparse.warmup_steps = 2;
    config->sparse.ramp_steps = 4;
    config->sparse.momentum = run->momentum;
    config->loss_scale.enabled = run->scaled;
    config->loss_scale.initial = 1024;
    config->loss_scale.growth_interval = 2;
    config->loss_scale.hysteresis = 2;
    return setup;
}
void state_save_free(struct state_save *save)
{
    for (uint32_t rank = 0; rank < save->world; rank++) free(save->data[rank]);
    *save = (struct state_save){0};
}

struct state_save state_save_take(struct world *w)
{
    struct state_save save = {.world = w->world, .bytes = gf_state_bytes(w->ranks[0].gf)};
    for (uint32_t rank = 0; rank < w->world; rank++) {
        save.data[rank] = malloc(save.bytes);
        assert_non_null(save.data[rank]);
        memset(save.data[rank], 0xee, save.bytes);
        assert_int_equal(gf_state_save(w->ranks[rank].gf, save.data[rank], save.bytes), GF_OK);
    }
    return save;
}

void state_save_expect_equal(const struct state_save *a, const struct state_save *b)
{
    assert_int_equal(a->bytes, b->bytes);
    for (uint32_t rank = 0; rank < a->world; rank++)
        assert_memory_equal(a->data[rank], b->data[rank], a->bytes);
}

bool state_worlds_same(struct world *a, struct world *b)
{
    struct state_save left = state_save_take(a);
    struct state_save right = state_save_take(b);
    bool same = left.bytes == right.bytes;
    for (uint32_t rank = 0; same && (rank < a->world); rank++)
        same = memcmp(left.data[rank], right.data[rank], left.bytes) == 0;
    state_save_free(&left);
    state_save_free(&right);
    return same;
}

void state_save_load(struct world *w, const struct state_save *save)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        uint32_t old = (rank < save->world) ? rank : save->world - 1;
        assert_int_equal(gf_state_load(w->ranks[rank].gf, save->data[old], save->bytes), GF_OK);
    }
}

struct gf_state_head state_head_of(const struct state_save *save, uint32_t rank)
{
    struct gf_state_head head;
    memcpy(&head, save->data[rank], sizeof head);
    return head;
}

void state_fill(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct state_moment *moment = arg;
    float *values = gradient;
    float scale = gf_loss_scale(w->ranks[rank].gf);
    uint64_t count = w->ranks[rank].tensors[tensor].elem_count;
    for (uint64_t i = 0; i < count; i++)
        values[i] = world_value(rank + 16u * (uint32_t)moment->step, tensor, i) * 0.1f * scale;
    if (moment->broken && (rank == 1) && (tensor == 1)) values[5] = __builtin_inff();
}

void state_fill_whole(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct state_moment *moment = arg;
    float *values = gradient;
    for (uint64_t i = 0; i < w->ranks[rank].tensors[tensor].elem_count; i++)
        values[i] = world_value(rank + 16u * (uint32_t)moment->step, tensor, i);
}

void state_step_run(struct world *w, uint64_t number,
                    void (*fill)(struct world *w, uint32_t rank, uint32_t tensor, void *gradient,
                                 void *arg))
{
    struct state_moment moment = {.step = number,
                                  .broken = (number == 4) || (number == 7) || (number == 8)};
    uint64_t samples[STATE_RANKS_MAX];
    struct world_step step = {.fill = fill, .samples = samples, .arg = &moment};
    for (uint32_t rank = 0; rank < w->world; rank++) samples[rank] = (rank + number) % 3 + 1;
    world_step_run(w, &step);
    world_expect(w, GF_OK);
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_context *gf = w->ranks[rank].gf;
        gf_status status = gf_update(gf, 0.0625f);
        if (status != GF_OK)
            fail_msg("rank %u of %u: gf_update: %s, %s", rank, w->world, gf_status_name(status),
                     gf_error_last(gf)->text);
    }
}

void state_weights_begin(struct world *w)
{
    for (uint32_t rank = 0; rank < w->world; rank++)
        for (uint32_t tensor = 0; tensor < w->ranks[rank].tensor_count; tensor++) {
            float *weight = (float *)(uintptr_t)gf_weight(w->ranks[rank].gf, tensor);
            for (uint64_t i = 0; i < w->ranks[rank].tensors[tensor].elem_count; i++)
                weight[i] = world_value(99, tensor, i) * 0.3f;
        }
}

void state_steps_same(struct world *a, struct world *b, uint64_t first, uint64_t last,
                      void (*fill)(struct world *w, uint32_t rank, uint32_t tensor, void *gradient,
                                   void *arg),
                      const char *name)
{
    for (uint64_t step = first; step <= last; step++) {
        state_step_run(a, step, fill);
        state_step_run(b, step, fill);
        if (!state_worlds_same(a, b)) fail_msg("%s: step %u differs", name, (unsigned)step);
        for (uint32_t rank = 0; rank < a->world; rank++)
            assert_int_equal(gf_step_skipped(a->ranks[rank].gf),
                             gf_step_skipped(b->ranks[rank].gf));
    }
}

void state_halves_same(struct world *a, struct world *b)
{
    for (uint32_t rank = 0; rank < a->world; rank++) {
        world_drain(b, rank);
        for (uint32_t tensor = 0; tensor < a->ranks[rank].tensor_count; tensor++) {
            gf_mem left = gf_weight_half(a->ranks[rank].gf, tensor);
            gf_mem right = gf_weight_half(b->ranks[rank].gf, tensor);
            if (left == 0) continue;
            assert_memory_equal((const void *)(uintptr_t)left, (const void *)(uintptr_t)right,
                                a->ranks[rank].tensors[tensor].elem_count * sizeof(uint16_t));
        }
    }
}
