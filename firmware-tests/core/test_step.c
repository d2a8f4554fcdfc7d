/* Dense steps on whole contexts: what every rank finds in gf_gradient() afterwards where worlds,
 * tensors and numbers are at their ends. Any world, wire, grouping and order, tensors that are
 * skipped, micro-batches: the soak's jobs.
 * link: wrap gf_node_host_id_set */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world_setups.h"
#include "lib/context.h"
#include "firmware-tests/cuda/late_gpu.h"

TEST(tensors_without_a_name_or_elements_are_told_once)
{
    static const struct gf_tensor odd[] = {{.name = "bias", .elem_count = 0}, {.elem_count = 3}};
    struct world_setup setup = {.world = 2, .tensors = odd, .tensor_count = LENGTH(odd)};
    WORLD_OPEN(w, &setup);
    world_expect_log(&w, 0, "tensors without elements: 1 of 2, the first is 0 \"bias\"");
    world_expect_log(&w, 0, "tensors without a name: 1 of 2, the first is 1:");
    assert_false(world_logged(&w, 1, "tensors without"));
}

/* Where the order of adding does not depend on the position, it does not matter where a buffer was
 * cut either; on a device that works late as on the host. */
TEST(pieces_give_the_bits_of_the_whole)
{
    static const struct gf_gpu_driver *const gpus[] = {NULL, &late_gpu};
    for (uint32_t row = 0; row < 2 * GF_TYPE_COUNT * LENGTH(gpus); row++) {
        struct world_setup setup = mixed_setup(3 + row % 2);
        struct world_step step = {.order = WORLD_BACKWARD, .fill = world_fill_noise};
        struct world whole;
        struct world pieces;
        setup.gpu = gpus[row % 2];
        if (setup.gpu != NULL) strcpy(setup.config.device.driver, setup.gpu->name);
        setup.config.exchange.wire = (gf_type)(row / 4);
        setup.config.exchange.deterministic = true;
        setup.config.exchange.slice_bytes = 4096;
        setup.config.exchange.pre_scale = (row / 2 % 2 == 0) ? 0.5f : 1.0f;
        world_open(&whole, &setup);
        setup.config.exchange.fuse_bytes = 4096;
        setup.config.exchange.cut_bytes = 4096;
        world_open(&pieces, &setup);
        for (uint32_t i = 0; i < 2; i++) {
            world_step_run(&whole, &step);
            world_step_run(&pieces, &step);
        }
        assert_int_equal(whole.ranks[0].gf->step.buffer_count, 1);
        assert_true(pieces.ranks[0].gf->tensors[6].buffer_count > 1);
        for (uint32_t rank = 0; rank < setup.world; rank++) {
            world_drain(&whole, rank);
            world_drain(&pieces, rank);
            assert_true(world_hash(&whole, rank) == world_hash(&pieces, rank));
        }
        world_close(&whole);
        world_close(&pieces);
    }
}

#define BAD_ELEM 9000u

static void fill_bad(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    world_fill(w, rank, tensor, gradient, arg);
    if ((tensor == 6) && (rank == 1)) ((float *)gradient)[BAD_ELEM] = __builtin_inff();
}

TEST(a_bad_value_in_a_piece_is_named_by_its_tensor)
{
    struct world_setup setup = mixed_setup(2);
    struct world_step step = {.order = WORLD_FORWARD, .fill = fill_bad};
    setup.config.exchange.fuse_bytes = setup.config.exchange.cut_bytes =
        setup.config.exchange.slice_bytes = 4096;
    setup.config.loss_scale.enabled = true;
    WORLD_OPEN(w, &setup);
    world_step_ok(&w, &step);
    for (uint32_t rank = 0; rank < 2; rank++) {
        assert_true(gf_step_skipped(w.ranks[rank].gf));
        world_expect_log(&w, rank, "tensor 6 \"large\", element 9000");
        world_expect_log(&w, rank, "rank 1");
    }
}

/* ---- whose gradients are between two steps ---- */

static const struct between_case {
    const char *name;
    gf_optimizer kind;
    float momentum;
    bool sparse;
    gf_sparse_momentum rule;
    gf_type type;
    bool scales; /* between gf_step_wait() and gf_update(), too: that is what is applied */
} between_cases[] = {
    {.name = "none"},
    {.name = "none, bf16", .type = GF_TYPE_BF16},
    {.name = "none, sparse", .sparse = true},
    {.name = "sgd", .kind = GF_OPTIMIZER_SGD, .momentum = 0.9f},
    {.name = "sgd, scaled", .kind = GF_OPTIMIZER_SGD, .scales = true},
    {.name = "sgd, sparse", .kind = GF_OPTIMIZER_SGD, .momentum = 0.9f, .sparse = true},
    {.name = "sgd, sparse, scaled", .kind = GF_OPTIMIZER_SGD, .sparse = true, .scales = true},
    {.name = "sgd, local",
     .kind = GF_OPTIMIZER_SGD,
     .momentum = 0.9f,
     .sparse = true,
     .rule = GF_SPARSE_MOMENTUM_LOCAL},
    {.name = "lars", .kind = GF_OPTIMIZER_LARS, .momentum = 0.9f},
    {.name = "lars, sparse", .kind = GF_OPTIMIZER_LARS, .momentum = 0.9f, .sparse = true},
    {.name = "adamw", .kind = GF_OPTIMIZER_ADAMW},
};

static void between_open(struct world *w, const struct between_case *c, bool device)
{
    static struct gf_tensor typed[LENGTH(mixed)];
    struct world_setup setup = mixed_setup(3);
    memcpy(typed, mixed, sizeof typed);
    for (uint32_t t = 0; t < LENGTH(typed); t++) typed[t].type = c->type;
    setup.tensors = typed;
    setup.config.optimizer.kind = c->kind;
    setup.config.optimizer.momentum = c->momentum;
    setup.config.sparse.enabled = c->sparse;
    setup.config.sparse.chunk_elems = 64;
    setup.config.sparse.keep_share = 0.3f;
    setup.config.sparse.momentum = c->rule;
    setup.config.exchange.wire = c->type;
    setup.config.exchange.average = GF_AVERAGE_RANKS;
    setup.config.exchange.slice_bytes = 4096;
    if (device) setup.gpu = &late_gpu;
    if (device) strcpy(setup.config.device.driver, late_gpu.name);
    world_open(w, &setup);
}

/* What zero_grad(), a clipping of one's own or a program's error leaves there. */
static void gradients_write(struct world *w, uint32_t rank, uint32_t step)
{
    world_drain(w, rank);
    for (uint32_t t = 0; t < w->ranks[rank].tensor_count; t++) {
        const struct gf_tensor *tensor = &w->ranks[rank].tensors[t];
        if (tensor->elem_count == 0) continue;
        memset((void *)(uintptr_t)gf_gradient(w->ranks[rank].gf, t), (step % 2 == 0) ? 0 : 0xff,
               tensor->elem_count * gf_type_size_bytes(tensor->type));
    }
}

static void gradients_halve(struct world *w, uint32_t rank)
{
    world_drain(w, rank);
    for (uint32_t t = 0; t < w->ranks[rank].tensor_count; t++)
        for (uint64_t e = 0; e < w->ranks[rank].tensors[t].elem_count; e++)
            ((float *)(uintptr_t)gf_gradient(w->ranks[rank].gf, t))[e] *= 0.5f;
}

static void between_apply(struct world *w, const struct between_case *c, float rate)
{
    for (uint32_t rank = 0; rank < w->world; rank++) {
        gf_context *gf = w->ranks[rank].gf;
        assert_int_equal(c->kind == GF_OPTIMIZER_NONE ? gf_updated(gf) : gf_update(gf, rate),
                         GF_OK);
    }
}

/* Weights, moments, histories: all that outlives a step. */
static void states_expect_equal(const struct world *a, const struct world *b, const char *name)
{
    uint64_t bytes = gf_state_bytes(a->ranks[0].gf);
    void *saved[2] = {malloc(bytes), malloc(bytes)};
    assert_true((saved[0] != NULL) && (saved[1] != NULL));
    for (uint32_t rank = 0; rank < a->world; rank++) {
        assert_int_equal(gf_state_save(a->ranks[rank].gf, saved[0], bytes), GF_OK);
        assert_int_equal(gf_state_save(b->ranks[rank].gf, saved[1], bytes), GF_OK);
        if (memcmp(saved[0], saved[1], bytes) != 0) fail_msg("%s: rank %u differs", name, rank);
    }
    free(saved[0]);
    free(saved[1]);
}

/* From gf_step_wait() on they are the program's: what it writes there before the next step changes
 * nothing of it, and before gf_update() it is what is applied. */
TEST(gradients_may_be_written_between_two_steps)
{
    for (size_t row = 0; row < 2 * LENGTH(between_cases); row++) {
        const struct between_case *c = &between_cases[row / 2];
        const struct world_step step = {.order = WORLD_ROTATED, .fill = world_fill_noise};
        WORLD(quiet);
        WORLD(busy);
        between_open(&quiet, c, row % 2 == 1);
        between_open(&busy, c, row % 2 == 1);
        for (uint32_t i = 0; i < 5; i++) {
            world_step_run(&quiet, &step);
            world_step_run(&busy, &step);
            world_expect(&quiet, GF_OK);
            world_expect(&busy, GF_OK);
            for (uint32_t rank = 0; rank < 3; rank++) {
                world_drain(&quiet, rank);
                world_drain(&busy, rank);
                if (world_hash(&quiet, rank) != world_hash(&busy, rank))
                    fail_msg("%s: step %u of rank %u differs", c->name, i, rank);
                if (c->scales) gradients_halve(&busy, rank);
            }
            between_apply(&quiet, c, 0.0625f);
            between_apply(&busy, c, c->scales ? 0.125f : 0.0625f);
            for (uint32_t rank = 0; rank < 3; rank++) gradients_write(&busy, rank, i);
        }
        states_expect_equal(&quiet, &busy, c->name);
    }
}

/* ---- more of them ---- */

TEST(two_contexts_in_one_process_know_nothing_of_each_other)
{
    struct world_setup first = mixed_setup(3);
    static struct world_setup second;
    struct world_step step = {.order = WORLD_ROTATED};
    struct world a;
    struct world b;
    second.world = 2;
    second.sim = world_network;
    second.config.exchange.wire = GF_TYPE_BF16;
    second.tensors = mixed + 3;
    second.tensor_count = 4;
    world_open(&a, &first);
    world_open(&b, &second);
    world_step_run(&a, &step);
    gf_abort(b.ranks[0].gf);
    world_step_run(&b, &step);
    assert_int_equal(b.ranks[0].status, GF_ERR_ABORTED);
    world_step_run(&a, &step);
    world_expect(&a, GF_OK);
    world_expect_sums(&a, 1.0f);
    world_close(&b);
    world_expect_sums(&a, 1.0f);
    world_close(&a);
}

static void fill_large(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const float *value = arg;
    for (uint64_t e = 0; e < w->ranks[rank].tensors[tensor].elem_count; e++)
        ((float *)gradient)[e] = *value;
}

/* Values near the ends of fp16: the sum of 512 is held by scales before and after the wire, not by
 * luck. */
TEST(hundreds_of_ranks_sum_fp16_in_range)
{
    SIM_ONLY;
    static const struct gf_tensor one[] = {{.name = "one", .elem_count = 600}};
    static struct world_setup setup;
    static const struct range_case {
        float value, pre_scale;
    } cases[] = {{60000.0f, 0x1p-9f}, {0x1p-24f, 0x1p9f}};
    for (size_t i = 0; i < LENGTH(cases); i++) {
        float value = cases[i].value;
        struct world_step step = {.fill = fill_large, .arg = &value};
        setup.world = 512;
        setup.tensors = one;
        setup.tensor_count = 1;
        setup.sim = (struct gf_sim_setup){.seed = 1, .latency_ns = 5000, .bytes_per_ns = 1.0};
        setup.config.exchange.wire = GF_TYPE_F16;
        setup.config.exchange.pre_scale = cases[i].pre_scale;
        setup.config.exchange.average = GF_AVERAGE_RANKS;
        setup.config.exchange.slice_bytes = 4096;
        setup.config.exchange.buffers_active = 1;
        setup.config.exchange.algorithm = GF_ALGORITHM_HALVING;
        setup.config.link.window = 2;
        setup.config.trace_records = 16;
        WORLD_OPEN(w, &setup);
        world_step_ok(&w, &step);
        assert_false(gf_step_skipped(w.ranks[0].gf));
        for (uint64_t e = 0; e < one[0].elem_count; e++) {
            float got = world_get(GF_TYPE_F32, world_gradient(&w, 511, 0), e);
            assert_true(fabsf(got - value) <= value * 0.001f);
        }
        world_expect_equal(&w);
    }
}

TEST(ten_thousand_tensors)
{
    SIM_ONLY;
    enum { COUNT = 10000 };
    static struct gf_tensor many[COUNT];
    static const uint64_t fuses[] = {1, 1000, 0};
    for (uint32_t t = 0; t < COUNT; t++)
        many[t] = (struct gf_tensor){.name = "t", .elem_count = t % 5};
    for (size_t i = 0; i < LENGTH(fuses); i++) {
        struct world_setup setup = mixed_setup(2);
        struct world_step step = {.order = (world_order)i};
        setup.tensors = many;
        setup.tensor_count = COUNT;
        setup.config.exchange.fuse_bytes = fuses[i];
        setup.config.exchange.buffers_active = 16;
        WORLD_OPEN(w, &setup);
        world_step_ok(&w, &step);
        world_expect_sums(&w, 1.0f);
    }
}
