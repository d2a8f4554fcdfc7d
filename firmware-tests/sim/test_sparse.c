/* Sparse communication on whole contexts: nothing is lost, nobody disagrees, no more is sent than the kept share. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/sparse_model.h"

static const struct gf_sim_setup network = {
    .seed = 1, .latency_ns = 5000, .jitter_ns = 20000, .bytes_per_ns = 1.0, .message_ns = 100, .bind_receives = true};

/* Gaps, empty tensors, dense ones in between, and some without decay. */
static const struct gf_tensor mixed[] = {
    {.name = "empty.first", .elem_count = 0},
    {.name = "one", .elem_count = 1, .flags = GF_TENSOR_NO_DECAY},
    {.name = "odd", .elem_count = 301},
    {.name = "bias", .elem_count = 33, .flags = GF_TENSOR_DENSE | GF_TENSOR_NO_DECAY},
    {.name = "five", .elem_count = 5, .flags = GF_TENSOR_NO_DECAY},
    {.name = "dense", .elem_count = 290, .flags = GF_TENSOR_DENSE},
    {.name = "empty", .elem_count = 0},
    {.name = "gap", .elem_count = 257},
    {.name = "small", .elem_count = 64, .flags = GF_TENSOR_NO_DECAY},
    {.name = "last", .elem_count = 100},
    {.name = "empty.last", .elem_count = 0},
};
#define MIXED_SPARSE_ELEMS 736u /* with gaps */

static struct world_setup setup_of(uint32_t world, uint32_t chunk_elems, float keep_share)
{
    struct world_setup setup = {
        .world = world, .tensors = mixed, .tensor_count = LENGTH(mixed), .sim = network};
    setup.config.sparse.enabled = true;
    setup.config.sparse.chunk_elems = chunk_elems;
    setup.config.sparse.keep_share = keep_share;
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.trace_records = 64;
    setup.config.link.window = 2;
    setup.config.exchange.buffers_active = 2;
    return setup;
}

/* ---- conservation ---- */

static const struct conserved_case {
    const char *name;
    uint32_t world, chunk_elems;
    float keep_share, momentum;
    gf_sparse_momentum rule;
    gf_type wire, gradient;
    uint32_t steps;
} conserved_cases[] = {
    {"reduced", 3, 32, 0.15f, 0.0f, GF_SPARSE_MOMENTUM_REDUCED, GF_TYPE_F32, GF_TYPE_F32, 1200},
    {"reduced with momentum", 2, 7, 0.15f, 0.9f, GF_SPARSE_MOMENTUM_REDUCED, GF_TYPE_F32, GF_TYPE_F32, 1200},
    {"local", 2, 64, 0.3f, 0.0f, GF_SPARSE_MOMENTUM_LOCAL, GF_TYPE_F32, GF_TYPE_F32, 1200},
    {"local, few", 4, 100, 0.01f, 0.0f, GF_SPARSE_MOMENTUM_LOCAL, GF_TYPE_F32, GF_TYPE_F32, 600},
    {"fp16 wire", 2, 16, 0.5f, 0.0f, GF_SPARSE_MOMENTUM_REDUCED, GF_TYPE_F16, GF_TYPE_F32, 600},
    {"fp16 gradients", 3, 50, 0.25f, 0.0f, GF_SPARSE_MOMENTUM_LOCAL, GF_TYPE_F16, GF_TYPE_F16, 600},
    {"bf16 gradients, fp32 wire", 2, 50, 0.5f, 0.0f, GF_SPARSE_MOMENTUM_REDUCED, GF_TYPE_F32, GF_TYPE_BF16, 300},
};

TEST(what_is_applied_and_held_is_what_was_produced)
{
    for (size_t i = 0; i < LENGTH(conserved_cases); i++) {
        const struct conserved_case *c = &conserved_cases[i];
        struct world_setup setup = setup_of(c->world, c->chunk_elems, c->keep_share);
        struct gf_tensor tensors[LENGTH(mixed)];
        memcpy(tensors, mixed, sizeof tensors);
        for (size_t t = 0; t < LENGTH(tensors); t++) tensors[t].type = c->gradient;
        setup.tensors = tensors;
        setup.config.sparse.momentum = c->rule;
        setup.config.optimizer.momentum = c->momentum;
        setup.config.exchange.wire = c->wire;
        setup.config.exchange.fuse_bytes = 300;
        setup.config.sparse.warmup_steps = 3;
        setup.config.sparse.ramp_steps = 5;
        SPARSE_OPEN(model, &setup, sparse_small_whole);
        for (uint32_t step = 0; step < c->steps; step++) {
            model.order = (world_order)(step % WORLD_ORDER_COUNT);
            sparse_step(&model, 0.125f);
            if ((step < 20) || (step % 50 == 49)) sparse_expect_conserved(&model);
            if ((step < 3) || (c->momentum > 0)) continue;
            sparse_expect_selection(&model);
            if (step % 50 == 49) sparse_expect_model(&model, 0); /* all of it is exact */
        }
        sparse_expect_conserved(&model);
        assert_int_equal(world_stats(&model.w, 0).steps_skipped, 0);
    }
}

/* ---- the rules ---- */

TEST(weights_momentum_and_history_follow_the_rules)
{
    static const uint32_t chunks[] = {1, 3, 16, 100, 257, 736, 5000};
    static const float shares[] = {1e-6f, 0.15f, 0.5f, 0.9f, 1.0f};
    static const float momenta[] = {0.0f, 0.9f, 0.5f};
    static const uint64_t fuses[] = {250, 700, 1u << 20};
    for (uint32_t row = 0; row < 105; row++) {
        struct world_setup setup = setup_of(1 + row % 9, chunks[row % LENGTH(chunks)], shares[row % LENGTH(shares)]);
        uint64_t samples[9];
        setup.config.sparse.momentum = (gf_sparse_momentum)(row / 2 % 2);
        setup.config.sparse.warmup_steps = row / 3 % 4;
        setup.config.sparse.ramp_steps = row / 5 % 4;
        setup.config.optimizer.momentum = momenta[row / 7 % LENGTH(momenta)];
        setup.config.optimizer.weight_decay = (row % 4 != 0) ? 0.01f : 0.0f;
        setup.config.optimizer.kind = ((row % 4 == 1) && (row / 2 % 2 == 0)) ? GF_OPTIMIZER_LARS : GF_OPTIMIZER_SGD;
        setup.config.optimizer.nesterov = (setup.config.sparse.momentum == GF_SPARSE_MOMENTUM_REDUCED) &&
                                          (setup.config.optimizer.momentum > 0) && (row % 16 == 6);
        setup.config.exchange.average = (gf_average)(row / 4 % 3);
        setup.config.exchange.fuse_bytes = fuses[row % LENGTH(fuses)];
        setup.config.loss_scale.enabled = row % 2 == 0;
        setup.config.loss_scale.growth_interval = 3;
        setup.sim.seed = row;
        SPARSE_OPEN(model, &setup, sparse_noise);
        model.order = (world_order)(row % WORLD_ORDER_COUNT);
        if (setup.config.exchange.average == GF_AVERAGE_SAMPLES) model.samples = samples;
        for (uint32_t step = 0; step < 14; step++) {
            for (uint32_t rank = 0; rank < 9; rank++) samples[rank] = (step == 9) ? 0 : 1 + (rank + step) % 4;
            sparse_step(&model, (setup.config.optimizer.kind == GF_OPTIMIZER_LARS) ? 4.0f : 0.01f);
            sparse_expect_model(&model, 3e-5);
        }
    }
}

/* Values are rounded to the wire once per step; what a rank holds is not. */
TEST(sixteen_bit_wires_follow_the_rules_as_far_as_they_round)
{
    static const double tolerance[GF_TYPE_COUNT] = {1e-5, 2e-3, 2e-2};
    for (uint32_t row = 0; row < 12; row++) {
        struct world_setup setup = setup_of(2 + row % 3, 32, 0.15f);
        gf_type wire = (row % 2 == 0) ? GF_TYPE_F16 : GF_TYPE_BF16;
        setup.config.exchange.wire = wire;
        setup.config.sparse.momentum = (gf_sparse_momentum)(row / 2 % 2);
        setup.config.sparse.warmup_steps = 2;
        setup.config.optimizer.momentum = 0.9f;
        setup.config.optimizer.half_weights = wire;
        setup.config.loss_scale.enabled = true;
        setup.config.loss_scale.initial = 256;
        setup.config.exchange.pre_scale = 0.25f;
        SPARSE_OPEN(model, &setup, sparse_noise);
        for (uint32_t step = 0; step < 20; step++) {
            sparse_step(&model, 0.01f);
            sparse_expect_model(&model, tolerance[wire]);
            for (uint32_t t = 0; t < LENGTH(mixed); t++) { /* the half copy is of these very weights */
                gf_context *gf = sparse_context(&model, step % 2);
                for (uint64_t e = 0; (gf->step.number > 1) && (e < mixed[t].elem_count); e++) {
                    uint16_t half;
                    world_put(wire, &half, 0, sparse_floats(gf_weight(gf, t))[e]);
                    if (!gf->step.sparse || (gf->tensors[t].sparse == 0))
                        assert_int_equal(((const uint16_t *)(uintptr_t)gf_weight_half(gf, t))[e], half);
                }
            }
        }
    }
}

TEST(the_norm_of_a_chunk_of_many_slices_is_that_of_all_of_it)
{
    static const struct gf_tensor tensors[] = {{.name = "a", .elem_count = 9001}, {.name = "b", .elem_count = 20000}};
    struct world_setup setup = setup_of(2, 2500, 0.3f); /* slices of 1024 */
    setup.tensors = tensors;
    setup.tensor_count = LENGTH(tensors);
    SPARSE_OPEN(model, &setup, sparse_small_whole);
    for (uint32_t step = 0; step < 8; step++) {
        model.order = (world_order)(step % WORLD_ORDER_COUNT);
        sparse_step(&model, 0.125f);
        sparse_expect_selection(&model); /* behind the dense step, too */
    }
    sparse_expect_conserved(&model);
}
