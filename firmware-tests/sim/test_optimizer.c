/* What gf_update() makes of weights in 100 steps, against optimizers that nobody here wrote, which were given the same
 * gradients in float64 (optimizer_oracle.py, whose results are optimizer_oracle.h). */
#include "firmware-tests/support/suite.h"
#include "firmware-tests/support/world_setups.h"

#define ELEMS 168u

struct oracle_case {
    const char *name;
    gf_optimizer kind;
    float rate, momentum, decay, eta, epsilon;
    bool nesterov, constant;
    double weights[ELEMS]; /* of all tensors, after the last step */
};

#include "firmware-tests/sim/optimizer_oracle.h"

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
static void gradient_fill(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg)
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
    setup.config.optimizer.lars_epsilon = c->epsilon;
    return setup;
}

static void weights_begin(struct world *w)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (uint32_t t = 0; t < LENGTH(tensors); t++) {
            float *weight = (float *)(uintptr_t)gf_weight(w->ranks[rank].gf, t);
            for (uint32_t e = 0; e < tensors[t].elem_count; e++) weight[e] = (t == 1) ? 0.0f : oracle_value(t, 0, e);
        }
        assert_int_equal(gf_weights_written(w->ranks[rank].gf), GF_OK);
    }
}

/* ||w - ref|| / ||ref|| over all weights. */
static double error_of(const struct world *w, const struct oracle_case *c)
{
    double error = 0, size = 0;
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

TEST(each_optimizer_is_the_published_one)
{
    for (size_t row = 0; row < LENGTH(oracle_cases); row++) {
        const struct oracle_case *c = &oracle_cases[row];
        struct world_setup setup = setup_of(c);
        uint32_t number;
        struct world_step step = {.fill = gradient_fill, .arg = &number};
        struct world w;
        double error;
        world_open(&w, &setup);
        weights_begin(&w);
        for (number = 1; number <= ORACLE_STEPS; number++) {
            float rate = c->rate * (c->constant ? 1.0f : (float)(1 + number % 7) / 4);
            world_step_run(&w, &step);
            world_expect(&w, GF_OK);
            for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(gf_update(w.ranks[rank].gf, rate), GF_OK);
        }
        error = error_of(&w, c);
        print_message("  %-16s %.2g\n", c->name, error);
        if (!(error <= 1e-6)) fail_msg("%s: the weights are %g away from the oracle's", c->name, error);
        world_close(&w);
    }
}
