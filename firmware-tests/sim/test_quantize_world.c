/* Whole contexts whose gradients travel with fewer bits: the same on all ranks, nothing lost, in
 * shared memory and by messages, through skipped steps and view changes. */

#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world.h"
#include "lib/context.h"

#define ELEMS_MAX 9000u

/* Without gaps in the pool, which owe something, too. */
static const struct gf_tensor tensors[] = {{.name = "a", .elem_count = 3008},
                                           {.name = "b", .elem_count = 16},
                                           {.name = "c", .elem_count = 2000},
                                           {.name = "d", .elem_count = 256},
                                           {.name = "e", .elem_count = 777}};
static const struct gf_tensor gappy[] = {{.name = "a", .elem_count = 3001},
                                         {.name = "b", .elem_count = 1},
                                         {.name = "c", .elem_count = 2007},
                                         {.name = "d", .elem_count = 257}};

static struct world_setup setup_of(uint32_t world, gf_quantize quantize, bool in_memory)
{
    struct world_setup setup = {.world = world,
                                .tensors = tensors,
                                .tensor_count = LENGTH(tensors),
                                .sim = {.seed = 1,
                                        .latency_ns = 5000,
                                        .jitter_ns = 20000,
                                        .bind_receives = true,
                                        .detect_ns = 5000000}};
    if (in_memory) setup.sim.ranks_per_node = world, setup.sim.node_latency_ns = 300;
    setup.config.exchange.quantize = quantize;
    setup.config.exchange.timeout_ns = 200000000;
    setup.config.exchange.fuse_bytes = 8192;
    setup.config.exchange.slice_bytes = 4096;
    setup.config.link.window = 3;
    return setup;
}

/* Gradients of step `number`, times the loss scale; rank 1's element 5 of tensor 2 is infinite
 * where broken. */
struct moment {
    uint64_t number;
    bool broken;
};

static float gradient_at(uint64_t number, uint32_t rank, uint32_t tensor, uint64_t i)
{
    uint32_t bits =
        (uint32_t)(number * 7919 + rank * 104729 + tensor * 1299709 + i * 15485863) * 2654435761u;
    return ((float)((bits ^ bits >> 15) & 0xffffu) - 32768.0f) * 0x1p-15f *
               ((tensor == 1) ? 30.0f : 1.0f) +
           0.125f;
}

static void fill(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
{
    const struct moment *moment = arg;
    float *to = gradient;
    float scale = gf_loss_scale(w->ranks[rank].gf);
    for (uint64_t i = 0; i < tensors[tensor].elem_count; i++)
        to[i] = scale * gradient_at(moment->number, rank, tensor, i);
    if (moment->broken && (rank == 1) && (tensor == 2)) to[5] = INFINITY;
}

static void run_step(struct world *w, uint64_t number, bool broken)
{
    struct moment moment = {number, broken};
    const struct world_step step = {
        .order = (world_order)(number % WORLD_ORDER_COUNT), .fill = fill, .arg = &moment};
    world_step_ok(w, &step);
    assert_int_equal(gf_step_skipped(w->ranks[0].gf), broken);
    if (!broken) world_expect_equal(w);
}

static double sum_of(const float *value, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) sum += (double)value[i];
    return sum;
}

/* What all ranks still owe: residuals, and what owners do. */
static double owed(const struct world *w)
{
    double sum = 0;
    for (uint32_t rank = 0; rank < w->world; rank++) {
        const gf_context *gf = w->ranks[rank].gf;
        sum += sum_of((const float *)(uintptr_t)gf->sparse.history, gf->pool.elem_count);
        if (gf->world > 1) sum += sum_of(gf->quantized.owner, gf->quantized.owner_used);
    }
    return sum;
}

static double results_of(struct world *w)
{
    double sum = 0;
    for (uint32_t t = 0; t < LENGTH(tensors); t++)
        sum += sum_of((const float *)world_gradient(w, 0, t), tensors[t].elem_count);
    return sum;
}

static double gradients_of(uint64_t number, uint32_t world)
{
    double sum = 0;
    for (uint32_t t = 0; t < LENGTH(tensors); t++)
        for (uint64_t i = 0; i < tensors[t].elem_count; i++)
            for (uint32_t rank = 0; rank < world; rank++)
                sum += (double)gradient_at(number, rank, t, i);
    return sum;
}

/* Of all elements: results of all steps, and what is still owed, is what there was. Twelve steps;
 * one is skipped. */
TEST(nothing_is_lost_in_any_world)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 5, 8};
    for (uint32_t row = 0; row < LENGTH(worlds) * 8; row++) {
        uint32_t world = worlds[row / 8];
        gf_quantize quantize = (row % 2 == 0) ? GF_QUANTIZE_INT8 : GF_QUANTIZE_ONEBIT;
        bool in_memory = row / 2 % 2 == 1;
        struct world_setup setup = setup_of(world, quantize, in_memory);
        double given = 0;
        double come = 0;
        setup.config.exchange.scale_elems = (row / 4 % 2 == 0)               ? 0
                                            : (quantize == GF_QUANTIZE_INT8) ? 64
                                                                             : 512;
        setup.config.exchange.fuse_bytes = (row % 3 == 0) ? 1 : 8192;
        setup.config.loss_scale.enabled = row % 3 == 1;
        setup.config.link.integrity = !in_memory && (row % 3 == 2);
        WORLD_OPEN(w, &setup);
        for (uint64_t number = 1; number <= 12; number++) {
            bool broken = (number == 7) && (world > 1);
            run_step(&w, number, broken);
            if (broken) continue;
            given += gradients_of(number, world);
            come += results_of(&w);
        }
        if (fabs(given - come - owed(&w)) > 1e-4 * fabs(given))
            fail_msg("row %u: %g given, %g came, %g owed", row, given, come, owed(&w));
        assert_true((world == 1) || ((world_stats(&w, 0).mapped_bytes > 0) == in_memory));
    }
}

/* Two roundings of 8 bits, whatever the world: the owners' of each rank's, and of the sum. Also
 * where tensors that travel together lie in another order. */
TEST(a_sum_is_two_roundings_away)
{
    static const uint32_t order[LENGTH(tensors)] = {1, 0, 2, 3, 4};
    for (uint32_t world = 2; world <= 8; world++) {
        struct world_setup setup = setup_of(world, GF_QUANTIZE_INT8, world % 2 == 0);
        double parts = (world % 3 == 0) ? world : 1; /* a mean is of the sum */
        if (world > 4) setup.config.pool_order = order, setup.config.exchange.fuse_bytes = 1 << 20;
        if (parts > 1) setup.config.exchange.average = GF_AVERAGE_RANKS;
        WORLD_OPEN(w, &setup);
        run_step(&w, 1, false); /* nothing is owed yet */
        for (uint32_t t = 0; t < LENGTH(tensors); t++)
            for (uint64_t i = 0; i < tensors[t].elem_count; i++) {
                /* of a group, which may reach into b */
                double sum = 0;
                double most = (t <= 2) ? 31 : 1.25;
                double result = parts * (double)((const float *)world_gradient(&w, 0, t))[i];
                for (uint32_t rank = 0; rank < world; rank++)
                    sum += (double)gradient_at(1, rank, t, i);
                assert_true(fabs(result - sum) <= world * most / 127 * 1.01);
            }
    }
}

/* The order of adding is fixed: the network's moods change no bit. */
TEST(timing_changes_no_bit)
{
    for (uint32_t row = 0; row < 8; row++) {
        uint64_t hashes[2];
        for (uint32_t again = 0; again < 2; again++) {
            gf_quantize quantize = (row % 2 == 0) ? GF_QUANTIZE_INT8 : GF_QUANTIZE_ONEBIT;
            struct world_setup setup = setup_of(5, quantize, row / 2 % 2 == 1);
            setup.sim.seed = 1 + again * 77 + row;
            setup.config.link.window = again ? 1 : 8;
            setup.config.exchange.buffers_active = again ? 1 : 4;
            WORLD_OPEN(w, &setup);
            for (uint64_t number = 1; number <= 4; number++) run_step(&w, number, false);
            hashes[again] = world_hash(&w, 3);
        }
        assert_true(hashes[0] == hashes[1]);
    }
}

static const struct gf_tensor large[] = {{.name = "large", .elem_count = 1 << 18}};

/* Bytes of all ranks beside those of a ring in fp32, votes included. */
TEST(bytes_are_those_that_are_promised)
{
    static const struct {
        gf_quantize quantize;
        uint32_t scale_elems;
        double share;
    } rows[] = {{GF_QUANTIZE_INT8, 32, 0.282},
                {GF_QUANTIZE_INT8, 64, 0.267},
                {GF_QUANTIZE_ONEBIT, 256, 0.036},
                {GF_QUANTIZE_ONEBIT, 512, 0.034}};
    for (uint32_t world = 2; world <= 8; world += 3)
        for (size_t row = 0; row < LENGTH(rows); row++) {
            struct world_setup setup = setup_of(world, rows[row].quantize, false);
            uint64_t before;
            double dense = 2.0 * (world - 1) * 4 * (1 << 18);
            const struct world_step step = {.order = WORLD_FORWARD};
            setup.tensors = large;
            setup.tensor_count = 1;
            setup.config.exchange.scale_elems = rows[row].scale_elems;
            WORLD_OPEN(w, &setup);
            before = gf_sim_counts(w.sim)->bytes_sent;
            world_step_ok(&w, &step);
            assert_true((double)(gf_sim_counts(w.sim)->bytes_sent - before) / dense <
                        rows[row].share);
            assert_true((double)(gf_sim_counts(w.sim)->bytes_sent - before) / dense >
                        rows[row].share - 0.003);
        }
}

/* A skipped step leaves residuals as they were, bit by bit. */
TEST(a_skipped_step_leaves_no_trace)
{
    static float before[ELEMS_MAX];
    struct world_setup setup = setup_of(3, GF_QUANTIZE_ONEBIT, false);
    WORLD_OPEN(w, &setup);
    for (uint64_t number = 1; number <= 3; number++) run_step(&w, number, false);
    for (int which = 0; which < 2; which++) {
        const gf_context *gf = w.ranks[0].gf;
        const float *now =
            which ? gf->quantized.owner : (const float *)(uintptr_t)gf->sparse.history;
        uint64_t count = which ? gf->quantized.owner_used : gf->pool.elem_count;
        assert_true((count > 0) && (count <= ELEMS_MAX));
        memcpy(before, now, count * sizeof(float));
        run_step(&w, 4, true);
        assert_ptr_equal(now, which ? gf->quantized.owner
                                    : (const float *)(uintptr_t)gf->sparse.history);
        assert_memory_equal(before, now, count * sizeof(float));
    }
}

/* A rank dies: the others keep what they owe; what owners owe is dropped, for blocks are others'
 * now. */
TEST(survivors_keep_their_residuals)
{
    static float before[ELEMS_MAX];
    for (uint32_t row = 0; row < 4; row++) {
        struct world_setup setup =
            setup_of(4, (row % 2 == 0) ? GF_QUANTIZE_INT8 : GF_QUANTIZE_ONEBIT, row / 2 == 1);
        const gf_context *gf;
        WORLD_OPEN(w, &setup);
        gf = w.ranks[0].gf;
        for (uint64_t number = 1; number <= 3; number++) run_step(&w, number, false);
        memcpy(before, (const void *)(uintptr_t)gf->sparse.history,
               gf->pool.elem_count * sizeof(float));
        gf_sim_kill(w.sim, 3);
        struct moment moment = {4, false};
        const struct world_step step = {.order = WORLD_FORWARD, .fill = fill, .arg = &moment};
        world_step_run(&w, &step);
        for (uint32_t rank = 0; rank < 3; rank++) assert_true(w.ranks[rank].status < 0);
        world_run(&w, world_shrink_progress, NULL);
        for (uint32_t rank = 0; rank < 3; rank++) assert_int_equal(w.ranks[rank].status, GF_OK);
        assert_memory_equal(before, (const void *)(uintptr_t)gf->sparse.history,
                            gf->pool.elem_count * sizeof(float));
        world_step_run(&w, &step);
        assert_int_equal(gf->world, 3);
        for (uint32_t rank = 1; rank < 3; rank++) {
            assert_int_equal(w.ranks[rank].status, GF_OK);
            for (uint32_t t = 0; t < LENGTH(tensors); t++)
                assert_memory_equal(world_gradient(&w, rank, t), world_gradient(&w, 0, t),
                                    tensors[t].elem_count * sizeof(float));
        }
    }
}

/* What a sign makes of the gaps between tensors is not added up, also where a buffer is cut at the
 * end of one. */
TEST(gaps_stay_zero)
{
    static const struct gf_tensor halves[] = {{.name = "a", .elem_count = 2100},
                                              {.name = "b", .elem_count = 2100}};
    for (uint32_t row = 0; row < 4; row++) {
        uint32_t world = (row % 2 == 0) ? 1 : 4;
        uint32_t count = (row < 2) ? LENGTH(gappy) : LENGTH(halves);
        struct world_setup setup = setup_of(world, GF_QUANTIZE_ONEBIT, false);
        const struct world_step step = {.order = WORLD_BACKWARD};
        const gf_context *gf;
        uint64_t gaps = 0;
        setup.tensors = (row < 2) ? gappy : halves;
        setup.tensor_count = count;
        setup.config.exchange.fuse_bytes = (row < 2) ? 1 << 20 : 1 << 14;
        setup.config.exchange.cut_bytes = 1 << 14;
        WORLD_OPEN(w, &setup);
        gf = w.ranks[0].gf;
        for (uint32_t i = 0; i < 20; i++) {
            world_step_ok(&w, &step);
        }
        for (uint32_t t = 0; t + 1 < count; t++)
            for (uint64_t i = gf->tensors[t].first_elem + gf->tensors[t].elem_count;
                 i < gf->tensors[t + 1].first_elem; i++, gaps++) {
                assert_true(((const float *)(uintptr_t)gf->gradient)[i] == 0);
                assert_true(fabsf(((const float *)(uintptr_t)gf->sparse.history)[i]) < 200);
            }
        assert_true(gaps > 10);
    }
}
