/* Ranks whose program has set the floating point of its thread in different ways end with the same
 * bits: those of a job where nobody has. What a thread is given back: test_rules. */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/hostile.h"
#include "firmware-tests/support/world.h"

#include "drivers/base/fnv.h"

#define RANKS 4u
#define STEPS 5u
#define LARGE 2000u
#define SMALL 7u

static const struct gf_tensor tensors[] = {{.name = "large", .elem_count = LARGE},
                                           {.name = "small", .elem_count = SMALL}};

struct run {
    uint32_t hostile; /* bit r: rank r */
    bool overflows;   /* of an fp16 wire */
    bool kept;
    uint32_t step;
};

/* The call of a rank, hostile or not. */
#define CALL(run, rank, call)                                  \
    do {                                                       \
        if ((((run)->hostile >> (rank)) & 1) != 0)             \
            HOSTILE(&(run)->kept, status = (gf_status)(call)); \
        else                                                   \
            status = (gf_status)(call);                        \
    } while (0)

/* Subnormals, and what adds up to one: flushed, or rounded upwards, each sum would differ. */
static void fill(gf_context *gf, const struct run *run, uint32_t rank)
{
    for (uint32_t t = 0; t < 2; t++) {
        float *gradient = (float *)(uintptr_t)gf_gradient(gf, t);
        for (uint32_t i = 0; i < tensors[t].elem_count; i++) {
            uint32_t mixed = i * 2654435761u + run->step * 40503u + rank * 977u;
            uint32_t exponent = (mixed >> 8) % 3 + ((i % 5 == 0) ? 110 : 0);
            uint32_t bits =
                ((mixed & 1) << 31) | (exponent << 23) | ((mixed * 2246822519u) & 0x7fffff);
            memcpy(&gradient[i], &bits, sizeof bits);
            if (run->overflows && (i == 3)) gradient[i] = 3e5f;
        }
    }
}

static gf_status step_turn(struct world *w, uint32_t rank, void *arg)
{
    struct run *run = arg;
    gf_context *gf = w->ranks[rank].gf;
    gf_status status = GF_OK;
    if (w->ranks[rank].next++ == 0) {
        CALL(run, rank, gf_step_begin(gf));
        if (status < 0) return status;
        fill(gf, run, rank);
        CALL(run, rank, gf_step_metric(gf, 0, 1e-3 * (rank + 1) + 1e-310));
        CALL(run, rank, gf_step_samples(gf, 3 + rank));
        CALL(run, rank, gf_tensor_ready(gf, 1, 0));
        CALL(run, rank, gf_tensor_ready(gf, 0, 0));
        if (status < 0) return status;
    }
    CALL(run, rank, gf_step_poll(gf));
    return status;
}

static uint64_t of(uint64_t hash, const void *data, uint64_t bytes)
{
    return gf_fnv_bytes(hash, data, bytes);
}

/* All that a rank has after a step. */
static uint64_t rank_hash(struct world *w, uint32_t rank, uint64_t hash)
{
    gf_context *gf = w->ranks[rank].gf;
    double metric = gf_metric(gf, 0);
    float scale = gf_gradient_scale(gf);
    hash = of(hash, &metric, sizeof metric);
    hash = of(hash, &scale, sizeof scale);
    for (uint32_t t = 0; (t < 2) && !gf_step_skipped(gf); t++) {
        uint64_t bytes = tensors[t].elem_count * sizeof(float);
        hash = of(hash, world_gradient(w, rank, t), bytes);
        if (gf_weight(gf, t) != 0) hash = of(hash, (void *)(uintptr_t)gf_weight(gf, t), bytes);
    }
    return hash;
}

/* The hash of all steps, the same on all ranks. */
static uint64_t world_end(const struct world_setup *setup, struct run *run)
{
    uint64_t hashes[RANKS] = {0};
    WORLD_OPEN(w, setup);
    for (run->step = 0; run->step < STEPS; run->step++) {
        world_run(&w, step_turn, run);
        world_expect(&w, GF_OK);
        for (uint32_t r = 0; r < RANKS; r++) {
            gf_context *gf = w.ranks[r].gf;
            gf_status status = GF_OK;
            float norm = 0;
            float rate = 0;
            assert_true(gf_step_skipped(gf) == run->overflows);
            if (!run->overflows) CALL(run, r, gf_gradient_norm(gf, &norm, NULL));
            assert_int_equal(status, GF_OK);
            CALL(run, r, (rate = gf_rate(gf, run->step), GF_OK));
            if (setup->config.optimizer.kind != GF_OPTIMIZER_NONE)
                CALL(run, r, gf_update(gf, rate));
            assert_int_equal(status, GF_OK);
            hashes[r] = of(of(rank_hash(&w, r, hashes[r]), &norm, sizeof norm), &rate, sizeof rate);
        }
    }
    assert_true(run->kept);
    for (uint32_t r = 1; r < RANKS; r++)
        if (hashes[r] != hashes[0]) fail_msg("ranks %u and 0 have other bits", r);
    return hashes[0];
}

static struct world_setup setup_of(gf_algorithm algorithm)
{
    struct world_setup setup = {
        .world = RANKS, .tensors = tensors, .tensor_count = 2, .sim = world_network};
    setup.sim.ranks_per_node = world_algorithm_in_memory(algorithm) ? RANKS : 0;
    setup.config.exchange.algorithm = algorithm;
    setup.config.exchange.average = GF_AVERAGE_RANKS;
    setup.config.rate = (struct gf_schedule){
        .kind = GF_SCHEDULE_POLYNOMIAL, .base_rate = 0.1f, .power = 0.7f, .step_count = 3 * STEPS};
    return setup;
}

/* With nobody, the first rank, the last two. */
static void each_hostile(const struct world_setup *setup, bool overflows, const char *what)
{
    static const uint32_t hostile[] = {0, 1, 0xc};
    uint64_t want = 0;
    for (size_t i = 0; i < LENGTH(hostile); i++) {
        struct run run = {.hostile = hostile[i], .overflows = overflows, .kept = true};
        uint64_t hash = world_end(setup, &run);
        if (i == 0) want = hash;
        if (hash != want) fail_msg("%s: other bits with ranks 0x%x hostile", what, hostile[i]);
    }
}

TEST(every_algorithm_sums_to_the_same_bits)
{
    gf_algorithm algorithms[GF_ALGORITHM_COUNT];
    const uint32_t count = world_algorithms(true, algorithms);
    for (uint32_t row = 0; row < count * GF_TYPE_COUNT; row++) {
        struct world_setup setup = setup_of(algorithms[row / GF_TYPE_COUNT]);
        setup.config.exchange.wire = (gf_type)(row % GF_TYPE_COUNT);
        each_hostile(&setup, false, gf_algorithm_name(setup.config.exchange.algorithm));
    }
}

TEST(every_optimizer_ends_at_the_same_weights)
{
    static const gf_optimizer kinds[] = {GF_OPTIMIZER_SGD, GF_OPTIMIZER_LARS, GF_OPTIMIZER_ADAMW};
    for (size_t row = 0; row < 2 * LENGTH(kinds); row++) {
        struct world_setup setup = setup_of(GF_ALGORITHM_AUTO);
        setup.config.optimizer.kind = kinds[row / 2];
        setup.config.optimizer.weight_decay = 0.01f;
        setup.config.optimizer.half_weights = GF_TYPE_BF16;
        setup.config.optimizer.clip_norm = (row % 2 == 1) ? 1e-30f : 0;
        if (kinds[row / 2] == GF_OPTIMIZER_SGD) setup.config.optimizer.momentum = 0.9f;
        if (row % 2 == 1) setup.config.exchange.average = GF_AVERAGE_SAMPLES;
        each_hostile(&setup, false, "optimizer");
    }
}

TEST(sparse_steps_choose_and_send_the_same)
{
    for (uint32_t local = 0; local < 2; local++) {
        struct world_setup setup = setup_of(GF_ALGORITHM_AUTO);
        setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
        setup.config.optimizer.momentum = 0.9f;
        setup.config.sparse.enabled = true;
        setup.config.sparse.chunk_elems = 64;
        setup.config.sparse.keep_share = 0.3f;
        setup.config.sparse.warmup_steps = 1;
        setup.config.sparse.momentum =
            local ? GF_SPARSE_MOMENTUM_LOCAL : GF_SPARSE_MOMENTUM_REDUCED;
        each_hostile(&setup, false, "sparse");
    }
}

/* A value that the cast to fp16 makes infinite skips the step, as promised, and traps nowhere. */
TEST(a_value_that_overflows_the_wire_skips_a_step_and_traps_nowhere)
{
    struct world_setup setup = setup_of(GF_ALGORITHM_RING);
    setup.config.exchange.wire = GF_TYPE_F16;
    setup.config.optimizer.kind = GF_OPTIMIZER_SGD;
    each_hostile(&setup, true, "overflow");
}
