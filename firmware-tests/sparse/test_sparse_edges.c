/* Sparse communication at its ends: everything kept, nothing finite, no room in a type, sizes far
 * apart, many ranks.
 * link: wrap gf_node_host_id_set */
#include <math.h>

#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/sparse_model.h"
#include "firmware-tests/support/world_setups.h"
#include "drivers/base/fnv.h"
#include "lib/core/vote.h"

static const struct gf_tensor plain[] = {{.name = "first", .elem_count = 700},
                                         {.name = "second", .elem_count = 300},
                                         {.name = "third", .elem_count = 24}};
static const struct gf_tensor blended[] = {
    {.name = "first", .elem_count = 700},
    {.name = "bias", .elem_count = 30, .flags = GF_TENSOR_DENSE},
    {.name = "second", .elem_count = 300},
    {.name = "norm", .elem_count = 9, .flags = GF_TENSOR_DENSE},
    {.name = "third", .elem_count = 24}};

static struct world_setup setup_of(uint32_t world, const struct gf_tensor *tensors,
                                   uint32_t tensor_count)
{
    struct world_setup setup = {
        .world = world, .tensors = tensors, .tensor_count = tensor_count, .sim = world_network};
    setup.config.sparse.enabled = true;
    setup.config.sparse.chunk_elems = 32;
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.trace_records = 64;
    return setup;
}

/* ---- everything kept ---- */

#define ROWS 16u
#define LINEAR_STEPS 20u

/* A linear model: this rank's rows, least squares, so that each gradient depends on the weights
 * before it. */
static float linear_gradient(const struct sparse_model *model, uint32_t rank, uint32_t tensor,
                             uint64_t elem)
{
    const gf_context *gf = sparse_context(model, rank);
    double gradient = 0;
    for (uint32_t row = 0; row < ROWS; row++) {
        double miss = (double)world_value(rank, row, 1000) - 2.0;
        double own = 0;
        for (uint32_t t = 0; t < gf->tensor_count; t++) {
            const float *weight = sparse_floats(gf_weight((gf_context *)(uintptr_t)gf, t));
            for (uint64_t e = 0; e < gf->tensors[t].elem_count; e++) {
                double input = (double)world_value(rank + 100 * row, t, e) * 0.01;
                miss += input * (double)weight[e];
                if ((t == tensor) && (e == elem)) own = input;
            }
        }
        gradient += miss * own / ROWS / (double)model->w.world;
    }
    return (float)gradient;
}

static const struct gf_tensor linear[] = {{.name = "a", .elem_count = 40},
                                          {.name = "b", .elem_count = 7, .flags = GF_TENSOR_DENSE},
                                          {.name = "c", .elem_count = 17}};

static struct sparse_model *linear_run(struct sparse_model *model, bool sparse,
                                       gf_sparse_momentum rule, gf_algorithm algorithm)
{
    struct world_setup setup = setup_of(3, linear, LENGTH(linear));
    setup.config.sparse.enabled = sparse;
    setup.config.sparse.keep_share = 1.0f;
    setup.config.sparse.chunk_elems = 5;
    setup.config.sparse.momentum = rule;
    setup.config.optimizer.momentum = 0.9f;
    setup.config.optimizer.nesterov = rule == GF_SPARSE_MOMENTUM_LOCAL;
    setup.config.optimizer.weight_decay = 0.001f;
    setup.config.exchange.algorithm = algorithm;
    setup.config.loss_scale.enabled = true;
    setup.config.loss_scale.growth_interval = 6;
    sparse_open(model, &setup, linear_gradient);
    for (uint32_t step = 0; step < LINEAR_STEPS; step++) sparse_step(model, 0.1f);
    return model;
}

static const float *pool_at(const struct sparse_model *model, bool momentum, uint32_t tensor)
{
    const gf_context *gf = sparse_context(model, 0);
    return sparse_floats(momentum ? gf->optimizer.momentum : gf->optimizer.weight) +
           gf->tensors[tensor].first_elem;
}

TEST(all_chunks_with_reduced_momentum_are_the_dense_run_bit_for_bit)
{
    static const gf_algorithm algorithms[] = {GF_ALGORITHM_HALVING, GF_ALGORITHM_DOUBLING,
                                              GF_ALGORITHM_TREE};
    for (size_t i = 0; i < LENGTH(algorithms); i++) {
        struct sparse_model dense;
        struct sparse_model sparse;
        linear_run(&dense, false, GF_SPARSE_MOMENTUM_REDUCED, algorithms[i]);
        linear_run(&sparse, true, GF_SPARSE_MOMENTUM_REDUCED, algorithms[i]);
        for (uint32_t t = 0; t < LENGTH(linear); t++) {
            assert_memory_equal(pool_at(&sparse, false, t), pool_at(&dense, false, t),
                                linear[t].elem_count * 4);
            assert_memory_equal(pool_at(&sparse, true, t), pool_at(&dense, true, t),
                                linear[t].elem_count * 4);
        }
        assert_true(pool_at(&dense, false, 0)[0] != (float)dense.produced_sum[0]); /* it did move */
        sparse_close(&dense);
        sparse_close(&sparse);
    }
}

TEST(all_chunks_with_local_momentum_are_nearly_the_dense_run_with_nesterov)
{
    struct sparse_model dense;
    struct sparse_model sparse;
    double miss = 0;
    double length = 0;
    linear_run(&dense, false, GF_SPARSE_MOMENTUM_LOCAL, GF_ALGORITHM_RING);
    linear_run(&sparse, true, GF_SPARSE_MOMENTUM_LOCAL, GF_ALGORITHM_RING);
    assert_true(sparse_context(&sparse, 0)->step.sparse);
    for (uint32_t t = 0; t < LENGTH(linear); t++) {
        for (uint64_t e = 0; e < linear[t].elem_count; e++) {
            double expected = (double)pool_at(&dense, false, t)[e];
            miss += pow((double)pool_at(&sparse, false, t)[e] - expected, 2);
            length += expected * expected;
        }
    }
    assert_true(sqrt(miss / length) < 1e-5);
    sparse_close(&dense);
    sparse_close(&sparse);
}

TEST(local_momentum_begins_with_a_share_of_the_common_one)
{
    struct world_setup setup = setup_of(4, blended, LENGTH(blended));
    double before[1100];
    const gf_context *gf;
    setup.config.sparse.momentum = GF_SPARSE_MOMENTUM_LOCAL;
    setup.config.sparse.warmup_steps = 5;
    setup.config.optimizer.momentum = 0.5f;
    SPARSE_OPEN(model, &setup, sparse_small_whole);
    gf = sparse_context(&model, 0);
    for (uint32_t step = 0; step < 5; step++) sparse_step(&model, 0.25f);
    assert_false(gf->step.sparse);
    assert_true(gf->sparse.elem_count <= LENGTH(before));
    for (uint64_t e = 0; e < gf->sparse.elem_count; e++)
        before[e] = (double)sparse_floats(gf->optimizer.momentum)[e];
    sparse_step(&model, 0.25f);
    assert_true(gf->step.sparse);
    for (uint64_t e = 0; e < gf->sparse.elem_count; e++) {
        double sum = 0;
        double expected = 0.5 * before[e];
        for (uint32_t rank = 0; rank < 4; rank++) {
            sum += (double)sparse_floats(sparse_context(&model, rank)->optimizer.momentum)[e];
            expected += model.gradient[rank * model.elem_count + e];
        }
        assert_true(sum == expected); /* powers of two and small whole numbers: exact */
    }
}

/* ---- what does not fit ---- */

static uint32_t bad_rank, bad_tensor;
static uint64_t bad_elem, bad_step;
static float bad_value;

static float with_one_bad(const struct sparse_model *model, uint32_t rank, uint32_t tensor,
                          uint64_t elem)
{
    if ((model->number == bad_step) && (rank == bad_rank) && (tensor == bad_tensor) &&
        (elem == bad_elem))
        return bad_value;
    return sparse_small_whole(model, rank, tensor, elem);
}

/* Weights, momentum, history and the next set. */
static uint64_t state_hash(const struct sparse_model *model, uint32_t rank)
{
    const gf_context *gf = sparse_context(model, rank);
    uint64_t hash = gf_fnv_bytes(GF_FNV_START, sparse_floats(gf->optimizer.weight),
                                 model->elem_count * sizeof(float));
    if (gf->optimizer.momentum != 0)
        hash = gf_fnv_bytes(hash, sparse_floats(gf->optimizer.momentum),
                            model->elem_count * sizeof(float));
    hash = gf_fnv_bytes(hash, sparse_floats(gf->sparse.history),
                        gf->sparse.elem_count * sizeof(float));
    return gf_fnv_bytes(hash, gf->sparse.selection,
                        gf->sparse.selected_count * sizeof *gf->sparse.selection);
}

/* An element of "second" in a chunk that is sent next, or is not. */
static uint64_t elem_of_second(const struct sparse_model *model, bool sent)
{
    const gf_context *gf = sparse_context(model, 0);
    uint64_t first = gf->tensors[2].first_elem;
    for (uint64_t e = 0; e < gf->tensors[2].elem_count; e++) {
        bool selected = false;
        for (uint32_t s = 0; s < gf->sparse.selected_count; s++)
            if (gf->sparse.selection[s] == (first + e) / gf->sparse.chunk_elems) selected = true;
        if (selected == sent) return e;
    }
    fail_msg("no element of the tensor is in such a chunk");
    return 0;
}

TEST(a_value_that_is_not_finite_leaves_no_trace_and_is_named)
{
    static const float values[] = {NAN, INFINITY, -INFINITY};
    for (uint32_t row = 0; row < 18; row++) {
        struct world_setup setup = setup_of(3, blended, LENGTH(blended));
        bool sent = row % 2 == 0;
        uint64_t hashes[3];
        char text[128];
        setup.config.sparse.momentum = (gf_sparse_momentum)(row / 2 % 2);
        setup.config.sparse.keep_share = 0.4f;
        setup.config.sparse.warmup_steps = 2;
        setup.config.optimizer.momentum = 0.5f;
        setup.config.loss_scale.enabled = true;
        setup.config.loss_scale.initial = 1024;
        SPARSE_OPEN(model, &setup, with_one_bad);
        bad_rank = row % 3;
        bad_tensor = 2;
        bad_value = values[row / 6];
        /* the first sparse step, when u is still common, or a later one */
        bad_step = (row % 4 < 2) ? 3 : 6;
        while (model.number + 1 < bad_step) sparse_step(&model, 0.125f);
        bad_elem = elem_of_second(&model, sent);
        for (uint32_t rank = 0; rank < 3; rank++) hashes[rank] = state_hash(&model, rank);
        sparse_step(&model, 0.125f);
        (void)snprintf(text, sizeof text, "first on rank %u, tensor 2 \"second\", element %llu",
                       bad_rank, (unsigned long long)bad_elem);
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_true(gf_step_skipped(sparse_context(&model, rank)));
            assert_int_equal(gf_update(sparse_context(&model, rank), 0.125f), GF_OK);
            assert_true(state_hash(&model, rank) == hashes[rank]);
            assert_true(gf_loss_scale(sparse_context(&model, rank)) == 512.0f);
            world_expect_log(&model.w, rank, text);
        }
        for (uint32_t step = 0; step < 5; step++) sparse_step(&model, 0.125f);
        if (setup.config.sparse.momentum == GF_SPARSE_MOMENTUM_REDUCED)
            sparse_expect_conserved(&model);
        assert_int_equal(world_stats(&model.w, 0).steps_skipped, 1);
    }
}

/* The only value of a chunk that is sent, of one that waits, or of the last dense step, is finite,
 * and too large for clip_norm. */
TEST(a_norm_that_cannot_be_clipped_leaves_no_trace)
{
    for (uint32_t row = 0; row < 10; row++) {
        struct world_setup setup = setup_of(3, blended, LENGTH(blended));
        const uint32_t kind = row / 2;
        uint64_t hashes[3];
        setup.config.sparse.momentum = (gf_sparse_momentum)(row % 2);
        setup.config.sparse.keep_share = 0.4f;
        setup.config.sparse.warmup_steps = 2;
        setup.config.optimizer.momentum = 0.5f;
        setup.config.optimizer.clip_norm = 1e-9f;
        setup.config.loss_scale.enabled = true;
        setup.config.loss_scale.initial = 8;
        SPARSE_OPEN(model, &setup, with_one_bad);
        bad_rank = row % 3;
        bad_tensor = 2;
        bad_value = 2e37f;
        bad_step = (kind == 4) ? 2 : (kind < 2) ? 3 : 6;
        while (model.number + 1 < bad_step) sparse_step(&model, 0.125f);
        bad_elem = elem_of_second(&model, (kind < 4) && (kind % 2 == 0));
        for (uint32_t rank = 0; rank < 3; rank++) hashes[rank] = state_hash(&model, rank);
        sparse_step(&model, 0.125f);
        for (uint32_t rank = 0; rank < 3; rank++) {
            gf_context *gf = sparse_context(&model, rank);
            assert_int_equal(gf_step_skipped(gf) ? GF_OK : gf_update(gf, 0.125f), GF_OK);
            assert_true(gf_step_skipped(gf));
            assert_true(state_hash(&model, rank) == hashes[rank]);
            assert_true(gf_loss_scale(gf) == 4.0f);
            world_expect_log(&model.w, rank, "so large that optimizer.clip_norm makes them 0");
        }
        for (uint32_t step = 0; step < 5; step++) sparse_step(&model, 0.125f);
        if (setup.config.sparse.momentum == GF_SPARSE_MOMENTUM_REDUCED)
            sparse_expect_conserved(&model);
        assert_int_equal(world_stats(&model.w, 0).steps_skipped, 1);
    }
}

/* With local momentum of 0.99 it adds a hundred times itself to what waits, beyond fp32. */
TEST(what_local_momentum_makes_of_a_magnitude_counts)
{
    struct world_setup setup = setup_of(3, blended, LENGTH(blended));
    setup.config.sparse.momentum = GF_SPARSE_MOMENTUM_LOCAL;
    setup.config.sparse.keep_share = 0.4f;
    setup.config.sparse.warmup_steps = 2;
    setup.config.optimizer.momentum = 0.99f;
    setup.config.optimizer.clip_norm = 1000;
    SPARSE_OPEN(model, &setup, with_one_bad);
    bad_rank = 1;
    bad_tensor = 2;
    bad_value = 2e37f;
    bad_step = 6;
    while (model.number + 1 < bad_step) sparse_step(&model, 0.125f);
    bad_elem = elem_of_second(&model, false);
    sparse_step(&model, 0.125f);
    for (uint32_t rank = 0; rank < 3; rank++) {
        assert_true(gf_step_skipped(sparse_context(&model, rank)));
        world_expect_log(&model.w, rank, "the sum of magnitudes that would wait");
    }
}

/* It was added up before the commit, where the sums were received. */
TEST(the_norm_of_a_sparse_step_is_that_of_its_gradients)
{
    static const struct norm_row {
        gf_type wire, gradient;
        double within;
    } rows[] = {{GF_TYPE_F32, GF_TYPE_F32, 1e-6},
                {GF_TYPE_F16, GF_TYPE_F32, 1e-6},
                {GF_TYPE_BF16, GF_TYPE_BF16, 1e-6},
                {GF_TYPE_F32, GF_TYPE_BF16, 4e-3}};
    for (uint32_t row = 0; row < 2 * LENGTH(rows); row++) {
        const struct norm_row *r = &rows[row / 2];
        struct gf_tensor tensors[LENGTH(blended)];
        struct world_setup setup = setup_of(3, tensors, LENGTH(tensors));
        memcpy(tensors, blended, sizeof tensors);
        for (size_t t = 0; t < LENGTH(tensors); t++) tensors[t].type = r->gradient;
        setup.config.sparse.momentum = (gf_sparse_momentum)(row % 2);
        setup.config.sparse.keep_share = 0.4f;
        setup.config.optimizer.clip_norm = 2;
        setup.config.exchange.wire = r->wire;
        SPARSE_OPEN(model, &setup, sparse_small_whole);
        for (uint32_t step = 0; step < 4; step++) {
            double square = 0;
            float norm;
            sparse_step(&model, 0.125f);
            for (uint64_t e = 0; e < model.elem_count; e++)
                square += model.applied[e] * model.applied[e];
            assert_int_equal(gf_gradient_norm(sparse_context(&model, step % 3), &norm, NULL),
                             GF_OK);
            assert_true(fabs((double)norm / sqrt(square) - 1) < r->within);
        }
        assert_true(sparse_context(&model, 0)->step.sparse);
    }
}

static float large_value(const struct sparse_model *model, uint32_t rank, uint32_t tensor,
                         uint64_t elem)
{
    if ((model->number == bad_step) && (tensor == 0) && (elem / 32 < 8)) return 40000.0f;
    return 1.0f + (float)(elem / 32 % 8);
}

/* fp16 gradients hold 65504: two of 40000 are finite, and so is their sum on an fp32 wire. */
TEST(a_sum_that_its_gradient_cannot_hold_skips_the_step)
{
    static const gf_type wires[] = {GF_TYPE_F32, GF_TYPE_BF16, GF_TYPE_F16};
    for (uint32_t row = 0; row < 6; row++) {
        struct gf_tensor tensors[LENGTH(plain)];
        struct world_setup setup = setup_of(2, tensors, LENGTH(plain));
        uint64_t hash;
        memcpy(tensors, plain, sizeof plain);
        for (size_t t = 0; t < LENGTH(plain); t++) tensors[t].type = GF_TYPE_F16;
        setup.config.sparse.keep_share = 0.9f;
        setup.config.exchange.wire = wires[row % 3];
        SPARSE_OPEN(model, &setup, large_value);
        bad_step = (row < 3) ? 1 : 2; /* a dense and a sparse step */
        while (model.number + 1 < bad_step) sparse_step(&model, 0.125f);
        hash = state_hash(&model, 1);
        sparse_step(&model, 0.125f);
        assert_int_equal(sparse_context(&model, 0)->step.sparse, row >= 3);
        assert_true(gf_step_skipped(sparse_context(&model, 0)) &&
                    gf_step_skipped(sparse_context(&model, 1)));
        assert_true(state_hash(&model, 1) == hash);
        world_expect_log(&model.w, 1, "every local gradient was finite");
        sparse_step(&model, 0.125f);
        assert_false(gf_step_skipped(sparse_context(&model, 0)));
    }
}

/* ---- sizes ---- */

TEST(traffic_is_the_kept_share)
{
    static const uint32_t worlds[] = {2, 4, 8};
    for (uint32_t row = 0; row < 12; row++) {
        uint32_t world = worlds[row % 3];
        uint32_t rounds = 1 + row % 3;
        uint32_t chunks;
        struct world_setup setup = setup_of(world, blended, LENGTH(blended));
        uint64_t wire_bytes;
        uint64_t dense_elems = 0;
        uint64_t sent_elems = 0;
        uint64_t bytes = 0;
        uint64_t expected;
        const gf_context *gf;
        setup.config.exchange.wire = (row < 6) ? GF_TYPE_F32 : GF_TYPE_F16;
        setup.config.exchange.algorithm = GF_ALGORITHM_RING;
        setup.config.exchange.fuse_bytes = (row % 2 == 0) ? 512 : 1 << 20;
        setup.config.sparse.keep_share = 0.25f;
        SPARSE_OPEN(model, &setup, sparse_small_whole);
        for (uint32_t step = 0; step < 4; step++) sparse_step(&model, 0.125f);
        gf = sparse_context(&model, 0);
        chunks = gf->sparse.chunk_count;
        wire_bytes = gf_type_size_bytes(setup.config.exchange.wire);
        for (uint32_t b = 0; b < gf->step.buffer_count; b++)
            if (gf->buffers.now[b].chunk_count == 0) dense_elems += gf->buffers.now[b].elem_count;
        assert_int_equal(gf->sparse.sent_count, (chunks + 3) / 4);
        for (uint32_t s = 0; s < gf->sparse.sent_count; s++)
            sent_elems += gf_chunk_end(&gf->sparse, gf->sparse.sent[s]) -
                          gf_chunk_first(&gf->sparse, gf->sparse.sent[s]);
        for (uint32_t rank = 0; rank < world; rank++)
            bytes += world_stats(&model.w, rank).last_wire_bytes;
        /* each block once a move of the ring */
        expected = 2 * (world - 1) * (dense_elems + sent_elems) * wire_bytes +
                   world * rounds * 8 * gf_vote_words(chunks); /* and the vote by doubling */
        assert_in_range(dense_elems, 39, 48);
        assert_true(bytes == expected);
    }
}

static void shape_run(uint32_t world, uint64_t elems, uint32_t tensor_count, uint32_t chunk_elems,
                      float share, uint64_t fuse_bytes, gf_sparse_momentum rule, uint32_t seed)
{
    struct gf_tensor *tensors = calloc(tensor_count, sizeof *tensors);
    struct world_setup setup = setup_of(world, tensors, tensor_count);
    struct sparse_model model;
    assert_non_null(tensors);
    for (uint32_t t = 0; t < tensor_count; t++) {
        uint32_t random = (t + 1) * 2654435761u ^ (seed * 40503u);
        tensors[t].name = "t";
        tensors[t].elem_count =
            (tensor_count == 1) ? elems : (random >> 8) % (2 * elems / tensor_count + 1);
        tensors[t].flags = ((random >> 5) % 4 == 0) && (tensor_count > 1) ? GF_TENSOR_DENSE : 0;
        if ((random >> 3) % 4 == 0) tensors[t].flags |= GF_TENSOR_NO_DECAY;
    }
    setup.config.sparse.chunk_elems = chunk_elems;
    setup.config.sparse.keep_share = share;
    setup.config.sparse.momentum = rule;
    setup.config.optimizer.momentum = (rule == GF_SPARSE_MOMENTUM_REDUCED) ? 0.5f : 0;
    setup.config.exchange.fuse_bytes = fuse_bytes;
    setup.sim.seed = seed;
    sparse_open(&model, &setup, sparse_small_whole);
    for (uint32_t step = 0; step < 4; step++) {
        model.order = (world_order)((step + seed) % WORLD_ORDER_COUNT);
        sparse_step(&model, 0.125f);
    }
    sparse_expect_conserved(&model);
    sparse_close(&model);
    free(tensors);
}

TEST(nothing_is_lost_in_any_shape)
{
    static const struct {
        uint64_t elems;
        uint32_t tensor_count, chunk_elems;
    } shapes[] = {
        {9000, 1, 1u << 24}, /* one chunk, nine slices */
        {9000, 1, 2500},
        {9000, 7, 4097},
        {9000, 40, 1000},
        {9000, 1, 8999},
        {600, 600, 1},
        {1, 1, 1},
        {1, 1, 7},
        {2, 2, 1},
        {3000, 10000, 64},
        {12000, 10000, 1000},
        {12000, 10000, 1u << 20},
    };
    static const float shares[] = {1e-6f, 0.15f, 1.0f, 0.6f};
    uint32_t seed = 0;
    for (size_t i = 0; i < LENGTH(shapes); i++) {
        uint32_t rows = (shapes[i].tensor_count > 1000) ? 1 : 3;
        for (uint32_t row = 0; row < rows; row++, seed++) {
            uint32_t world = (rows == 1) ? 2 : 1 + seed % 9;
            shape_run(world, shapes[i].elems, shapes[i].tensor_count, shapes[i].chunk_elems,
                      shares[seed % 4], (seed % 2 == 0) ? 8000 : 1 << 20,
                      (gf_sparse_momentum)((i + row) % 2), seed);
        }
    }
}

TEST(hundreds_of_ranks_agree_in_half_precision)
{
    SIM_ONLY;
    struct gf_tensor tensors[] = {
        {.name = "a", .elem_count = 100, .type = GF_TYPE_F16},
        {.name = "b", .elem_count = 10, .flags = GF_TENSOR_DENSE, .type = GF_TYPE_F16}};
    struct world_setup setup = setup_of(512, tensors, LENGTH(tensors));
    setup.config.sparse.chunk_elems = 16;
    setup.config.sparse.keep_share = 0.3f;
    setup.config.exchange.wire = GF_TYPE_F16;
    setup.config.exchange.pre_scale = 0.0625f;
    setup.config.exchange.buffers_active = 1;
    setup.config.link.window = 1;
    setup.config.trace_records = 1;
    SPARSE_OPEN(model, &setup, sparse_small_whole);
    for (uint32_t step = 0; step < 4; step++) {
        sparse_step(&model, 0x1p-9f);
        sparse_expect_conserved(&model);
    }
    assert_int_equal(world_stats(&model.w, 511).steps_skipped, 0);
}

/* ---- what is refused ---- */

/* A chunk that is larger than the model: one rank says once that nothing is saved. */
TEST(a_share_that_is_everything_is_said)
{
    static const struct gf_tensor tensors[] = {{.name = "w", .elem_count = 640}};
    static const struct gf_tensor dense[] = {
        {.name = "w", .elem_count = 640, .flags = GF_TENSOR_DENSE}};
    static const struct {
        const struct gf_tensor *tensors;
        uint32_t chunk_elems;
        float keep_share;
        const char *line; /* NULL: none */
    } rows[] = {
        {tensors, 0, 0,
         "sparse.chunk_elems = 32768: the 640 elements of the sparse tensors are 1 "},
        {tensors, 320, 0.6f, "are 2 chunks, and a share of 0.6 of them is all"},
        {tensors, 64, 0.6f, NULL},
        {tensors, 0, 1.0f, NULL},
        {dense, 64, 0.5f, "sparse.enabled = true: no tensor is sparse"},
    };
    for (size_t i = 0; i < LENGTH(rows); i++) {
        struct world_setup setup = {.world = 2, .tensors = rows[i].tensors, .tensor_count = 1};
        setup.config.sparse.enabled = true;
        setup.config.sparse.chunk_elems = rows[i].chunk_elems;
        setup.config.sparse.keep_share = rows[i].keep_share;
        WORLD_OPEN(w, &setup);
        if (rows[i].line != NULL) world_expect_log(&w, 0, rows[i].line);
        if (rows[i].line == NULL) assert_null(strstr(w.ranks[0].log, "sparse"));
        assert_null(strstr(w.ranks[1].log, "sparse"));
    }
}

TEST(what_cannot_be_meant_is_refused)
{
    static const struct gf_tensor huge[] = {{.name = "huge", .elem_count = UINT64_C(1) << 33}};
    struct gf_config config = {.sparse = {.enabled = true, .momentum = GF_SPARSE_MOMENTUM_LOCAL}};
    struct gf_config effective;
    struct gf_footprint need;
    char error[256];
    assert_int_equal(gf_config_effective(&config, &effective, error), GF_ERR_CONFIG);
    assert_non_null(strstr(error, "sparse.momentum = local"));
    assert_non_null(strstr(error, "optimizer.kind"));
    config.optimizer.kind = GF_OPTIMIZER_SGD;
    /* without momentum: valid */
    assert_int_equal(gf_config_effective(&config, &effective, error), GF_OK);
    config.optimizer.momentum = 0.9f;
    assert_true((gf_config_effective(&config, &effective, error) == GF_OK) &&
                effective.optimizer.nesterov);
    config.sparse.momentum = GF_SPARSE_MOMENTUM_REDUCED;
    assert_int_equal(gf_config_effective(&config, &effective, error), GF_OK);
    assert_false(effective.optimizer.nesterov);
    config.job.world = 1;
    config.job.ignore_environment = true;
    config.sparse.chunk_elems = 100; /* 85,899,346 chunks */
    assert_int_equal(gf_measure(&config, huge, 1, &need), GF_ERR_CONFIG);
    config.sparse.chunk_elems = 2048;
    assert_int_equal(gf_measure(&config, huge, 1, &need), GF_OK);
}

TEST(a_chunk_that_holds_the_whole_model_is_told_once)
{
    struct world_setup setup = setup_of(2, linear, LENGTH(linear));
    WORLD(w);
    setup.config.sparse.enabled = true;
    setup.config.sparse.keep_share = 0.1f;
    setup.config.sparse.chunk_elems = 1000;
    world_open(&w, &setup);
    world_expect_log(&w, 0, "every step sends everything");
    assert_false(world_logged(&w, 1, "every step sends everything"));
}
