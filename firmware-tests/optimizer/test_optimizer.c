/* What gf_update() makes of weights in 100 steps, against optimizers that nobody here wrote, which
 * were given the same gradients in float64 (optimizer_oracle.py, whose results are
 * optimizer_oracle.inc). */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world_setups.h"
#include "firmware-tests/support/ops_bytes.h"

#define ELEMS 168u

struct oracle_case {
    const char *name;
    gf_optimizer kind;
    float rate, momentum, decay, eta, epsilon, beta1, beta2, clip;
    bool nesterov, constant;
    double weights[ELEMS]; /* of all tensors, after the last step */
};

#include "firmware-tests/optimizer/optimizer_oracle.inc"

static const struct gf_tensor tensors[] = {
    {.name = "first", .elem_count = 96},
    {.name = "bias", .elem_count = 7, .flags = GF_TENSOR_NO_DECAY},
    {.name = "last", .elem_count = 65},
};

/* In [-1, 1), a multiple of 2^-15; the same integers in optimizer_oracle.py. */
static float oracle_value(uint32_t tensor, uint32_t step, uint32_t elem)
{
    uint32_t x = tensor * 0x9E3779B1u + step * 0x85EBCA77u + elem * 0xC2B2AE3Du + 0x27D4EB2Fu;
    for (int i = 0; i < 2; i++) x = (x ^ (x >> 15)) * 0x2C1B3C6Du;
    x ^= x >> 16;
    return (float)((int32_t)(x & 0xffffu) - 32768) / 32768.0f;
}

/* The ranks' gradients differ; their mean is the oracle's gradient, in every bit. */
static void gradient_fill(struct world *w, uint32_t rank, uint32_t tensor, void *gradient,
                          void *arg)
{
    uint32_t step = *(const uint32_t *)arg;
    float part = (rank == 0) ? 1.5f : 0.5f;
    for (uint32_t e = 0; e < tensors[tensor].elem_count; e++) {
        float mean = (oracle_value(tensor, step, e) + oracle_value(tensor, 1000, e)) / 2;
        if ((tensor == 2) && (step == 10)) mean = 0;
        world_put(w->ranks[rank].tensors[tensor].type, gradient, e, part * mean);
    }
}

static struct world_setup setup_of(const struct oracle_case *c)
{
    struct world_setup setup = {.world = 2, .tensors = tensors, .tensor_count = LENGTH(tensors)};
    setup.config.exchange.average = GF_AVERAGE_RANKS;
    setup.config.optimizer.kind = c->kind;
    setup.config.optimizer.momentum = c->momentum;
    setup.config.optimizer.weight_decay = c->decay;
    setup.config.optimizer.nesterov = c->nesterov;
    setup.config.optimizer.lars_eta = c->eta;
    setup.config.optimizer.lars_epsilon = setup.config.optimizer.adam_epsilon = c->epsilon;
    setup.config.optimizer.adam_beta1 = c->beta1;
    setup.config.optimizer.adam_beta2 = c->beta2;
    setup.config.optimizer.clip_norm = c->clip;
    return setup;
}

static void weights_begin(struct world *w)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint32_t t = 0; t < LENGTH(tensors); t++) {
            float *weight = (float *)(uintptr_t)gf_weight(w->ranks[rank].gf, t);
            for (uint32_t e = 0; e < tensors[t].elem_count; e++)
                weight[e] = (t == 1) ? 0.0f : oracle_value(t, 0, e);
        }
        assert_int_equal(gf_weights_written(w->ranks[rank].gf), GF_OK);
    }
}

/* The half weights of a rank are its weights, rounded; with fp32 there are none. */
static void half_weights_expect(const struct world *w, uint32_t rank, gf_type type)
{
    for (uint32_t t = 0; t < LENGTH(tensors); t++) {
        const float *weight = (const float *)(uintptr_t)gf_weight(w->ranks[rank].gf, t);
        const uint16_t *half = (const uint16_t *)(uintptr_t)gf_weight_half(w->ranks[rank].gf, t);
        assert_int_equal(half != NULL, type != GF_TYPE_F32);
        for (uint64_t e = 0; (half != NULL) && (e < tensors[t].elem_count); e++) {
            uint16_t rounded;
            world_put(type, &rounded, 0, weight[e]);
            assert_int_equal(half[e], rounded);
        }
    }
}

/* ||w - ref|| / ||ref|| over all weights. */
static double error_of(const struct world *w, const struct oracle_case *c)
{
    double error = 0;
    double size = 0;
    uint32_t at = 0;
    for (uint32_t t = 0; t < LENGTH(tensors); t++) {
        const float *weight = (const float *)(uintptr_t)gf_weight(w->ranks[0].gf, t);
        for (uint32_t e = 0; e < tensors[t].elem_count; e++, at++) {
            error += ((double)weight[e] - c->weights[at]) * ((double)weight[e] - c->weights[at]);
            size += c->weights[at] * c->weights[at];
        }
    }
    return sqrt(error / size);
}

/* Norm and factor are those of PyTorch's clip_grad_norm_, the same bits on both ranks. */
static void norm_expect(const struct world *w, const struct oracle_case *c, uint32_t number)
{
    double norm = oracle_norms[number - 1];
    double factor = (c->clip > 0) ? fmin(1, (double)c->clip / (norm + 1e-6)) : 1;
    float norms[2];
    float factors[2];
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(gf_gradient_norm(w->ranks[rank].gf, &norms[rank], &factors[rank]), GF_OK);
    assert_memory_equal(&norms[0], &norms[1], sizeof norms[0]);
    assert_memory_equal(&factors[0], &factors[1], sizeof factors[0]);
    if (!(fabs((double)norms[0] / norm - 1) <= 1e-5) ||
        !(fabs((double)factors[0] / factor - 1) <= 1e-5))
        fail_msg("%s, step %u: norm %.9g and factor %.9g, not %.9g and %.9g", c->name, number,
                 (double)norms[0], (double)factors[0], norm, factor);
}

TEST(each_optimizer_is_the_published_one)
{
    for (size_t row = 0; row < LENGTH(oracle_cases); row++) {
        const struct oracle_case *c = &oracle_cases[row];
        struct world_setup setup = setup_of(c);
        const gf_type half = (gf_type)(row % GF_TYPE_COUNT);
        uint32_t number;
        struct world_step step = {.fill = gradient_fill, .arg = &number};
        double error;
        setup.config.optimizer.half_weights = half;
        WORLD_OPEN(w, &setup);
        weights_begin(&w);
        for (uint32_t rank = 0; rank < 2; rank++) half_weights_expect(&w, rank, half);
        for (number = 1; number <= ORACLE_STEPS; number++) {
            float rate = c->rate * (c->constant ? 1.0f : (float)(1 + number % 7) / 4);
            world_step_ok(&w, &step);
            if (number % 2 == 0) norm_expect(&w, c, number);
            for (uint32_t rank = 0; rank < 2; rank++) {
                assert_int_equal(gf_update(w.ranks[rank].gf, rate), GF_OK);
                half_weights_expect(&w, rank, half);
            }
            if (c->clip > 0) norm_expect(&w, c, number);
        }
        error = error_of(&w, c);
        print_message("  %-16s %.2g\n", c->name, error);
        if (!(error <= 1e-6))
            fail_msg("%s: the weights are %g away from the oracle's", c->name, error);
    }
}

/* ---- what a step and its update touch ---- */

/* Of an element, 4 ranks of a node: each reads all ranks' share of its block and writes it to all
 * (8 in all), and the update reads gradient, weight and momentum and writes the last two (20). Over
 * sockets a ring casts there (6) and back (6), adds 3 quarters (6 each); and a trainer of its own
 * is given the average, one pass more (8) where nothing is cast. */
TEST(the_scale_costs_no_pass_of_its_own)
{
    static const struct gf_tensor one = {.name = "one", .elem_count = 4096};
    static const struct bytes_case {
        const char *name;
        gf_optimizer kind;
        gf_algorithm algorithm;
        gf_type wire;
        gf_average average;
        double bytes; /* read and written, an element */
    } cases[] = {
        {"in memory", GF_OPTIMIZER_SGD, GF_ALGORITHM_DIRECT, GF_TYPE_F32, GF_AVERAGE_RANKS, 28},
        {"by samples", GF_OPTIMIZER_SGD, GF_ALGORITHM_DIRECT, GF_TYPE_F32, GF_AVERAGE_SAMPLES, 28},
        {"own", GF_OPTIMIZER_NONE, GF_ALGORITHM_DIRECT, GF_TYPE_F32, GF_AVERAGE_RANKS, 16},
        {"own, samples", GF_OPTIMIZER_NONE, GF_ALGORITHM_DIRECT, GF_TYPE_F32, GF_AVERAGE_SAMPLES,
         24},
        {"fp16 ring", GF_OPTIMIZER_SGD, GF_ALGORITHM_RING, GF_TYPE_F16, GF_AVERAGE_RANKS, 36.5},
        /* what travels in place is looked at before it is gone: 4 */
        {"fp32 ring", GF_OPTIMIZER_SGD, GF_ALGORITHM_RING, GF_TYPE_F32, GF_AVERAGE_RANKS, 33},
    };
    for (size_t row = 0; row < LENGTH(cases); row++) {
        const struct bytes_case *c = &cases[row];
        struct world_setup setup = {
            .world = 4, .tensors = &one, .tensor_count = 1, .sim = world_network};
        struct world_step step = {.order = WORLD_FORWARD};
        setup.config.optimizer.kind = c->kind;
        setup.config.optimizer.momentum = (c->kind == GF_OPTIMIZER_NONE) ? 0 : 0.5f;
        setup.config.exchange.algorithm = c->algorithm;
        setup.config.exchange.wire = c->wire;
        setup.config.exchange.average = c->average;
        setup.config.loss_scale.enabled = true;
        setup.config.loss_scale.initial = 8;
        setup.sim.ranks_per_node = (c->algorithm == GF_ALGORITHM_DIRECT) ? 4 : 0;
        WORLD_OPEN(w, &setup);
        for (uint32_t rank = 0; rank < 4; rank++) ops_bytes_watch(w.ranks[rank].gf);
        world_step_ok(&w, &step);
        for (uint32_t rank = 0; (c->kind != GF_OPTIMIZER_NONE) && (rank < 4); rank++)
            assert_int_equal(gf_update(w.ranks[rank].gf, 0.5f), GF_OK);
        double bytes = (double)(ops_bytes.read + ops_bytes.written) / (4.0 * 4096);
        if (bytes != c->bytes)
            fail_msg("%s: %g bytes an element, not %g", c->name, bytes, c->bytes);
    }
}

/* An appliance's own optimizer has no weights here; gradients of 16 bits keep their scale. */
TEST(gradients_are_clipped_for_another_optimizer)
{
    static const gf_type types[] = {GF_TYPE_F32, GF_TYPE_BF16};
    for (size_t row = 0; row < LENGTH(types); row++) {
        const struct oracle_case none = {.kind = GF_OPTIMIZER_NONE, .clip = 2.0f};
        struct gf_tensor typed[LENGTH(tensors)];
        struct world_setup setup = setup_of(&none);
        uint32_t number = 1;
        struct world_step step = {.fill = gradient_fill, .arg = &number};
        float norm;
        float factor;
        float before;
        float after;
        memcpy(typed, tensors, sizeof typed);
        for (size_t t = 0; t < LENGTH(typed); t++) typed[t].type = types[row];
        setup.tensors = typed;
        setup.config.exchange.pre_scale = 1024;
        setup.config.exchange.wire = types[row];
        WORLD_OPEN(w, &setup);
        assert_int_equal(gf_gradient_norm(w.ranks[0].gf, &norm, &factor), GF_ERR_STATE);
        world_step_ok(&w, &step);
        for (uint32_t rank = 0; rank < 2; rank++) {
            gf_context *gf = w.ranks[rank].gf;
            before = world_get(types[row], world_gradient(&w, rank, 0), 3);
            assert_int_equal(gf_gradient_norm(gf, &norm, &factor), GF_OK);
            assert_true(fabs((double)norm / oracle_norms[0] - 1) < ((row == 0) ? 1e-5 : 2e-3));
            assert_true(fabs((double)factor * (double)norm / 2 - 1) < 1e-5);
            assert_int_equal(gf_gradient_clip(gf, &norm), GF_OK);
            after = world_get(types[row], world_gradient(&w, rank, 0), 3);
            assert_true(fabs((double)after / ((double)before * (double)factor) - 1) <
                        ((row == 0) ? 1e-6 : 4e-3));
            assert_int_equal(gf_gradient_clip(gf, NULL), GF_OK); /* it is clipped already */
            assert_true(world_get(types[row], world_gradient(&w, rank, 0), 3) == after);
            assert_int_equal(gf_gradient_norm(gf, NULL, &factor), GF_OK);
            assert_true(factor == 1.0f);
        }
    }
}

/* The rates of a configuration come through one call. */
TEST(a_context_says_its_learning_rates)
{
    const struct oracle_case none = {.kind = GF_OPTIMIZER_NONE};
    struct world_setup setup = setup_of(&none);
    setup.config.rate = (struct gf_schedule){.kind = GF_SCHEDULE_POLYNOMIAL,
                                             .base_rate = 0.04f,
                                             .power = 0.5f,
                                             .warmup_steps = 4,
                                             .step_count = 104};
    WORLD_OPEN(w, &setup);
    for (uint64_t step = 0; step < 110; step++)
        assert_true(gf_rate(w.ranks[1].gf, step) == gf_schedule_rate(&setup.config.rate, step));
    assert_true(fabs((double)gf_rate(w.ranks[0].gf, 79) - 0.02) < 1e-8);
    assert_true(gf_rate(NULL, 0) == 0.0f);
}
