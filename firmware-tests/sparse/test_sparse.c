/* Sparse communication on whole contexts: over many steps nothing is lost and nobody disagrees. The
 * rules of a step, with all that a configuration may have beside it: the soak's model.
 * link: wrap gf_node_host_id_set */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/sparse_model.h"

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
        .world = world, .tensors = mixed, .tensor_count = LENGTH(mixed), .sim = world_network};
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
    {"reduced with momentum", 2, 7, 0.15f, 0.9f, GF_SPARSE_MOMENTUM_REDUCED, GF_TYPE_F32,
     GF_TYPE_F32, 1200},
    {"local", 2, 64, 0.3f, 0.0f, GF_SPARSE_MOMENTUM_LOCAL, GF_TYPE_F32, GF_TYPE_F32, 1200},
    {"local, few", 4, 100, 0.01f, 0.0f, GF_SPARSE_MOMENTUM_LOCAL, GF_TYPE_F32, GF_TYPE_F32, 600},
    {"fp16 wire", 2, 16, 0.5f, 0.0f, GF_SPARSE_MOMENTUM_REDUCED, GF_TYPE_F16, GF_TYPE_F32, 600},
    {"fp16 gradients", 3, 50, 0.25f, 0.0f, GF_SPARSE_MOMENTUM_LOCAL, GF_TYPE_F16, GF_TYPE_F16, 600},
    {"bf16 gradients, fp32 wire", 2, 50, 0.5f, 0.0f, GF_SPARSE_MOMENTUM_REDUCED, GF_TYPE_F32,
     GF_TYPE_BF16, 300},
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
        }
        sparse_expect_conserved(&model);
        assert_int_equal(world_stats(&model.w, 0).steps_skipped, 0);
    }
}

TEST(the_norm_of_a_chunk_of_many_slices_is_that_of_all_of_it)
{
    static const struct gf_tensor tensors[] = {{.name = "a", .elem_count = 9001},
                                               {.name = "b", .elem_count = 20000}};
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
