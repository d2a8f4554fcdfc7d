/* Learning rates by step: the values at the corners against the formulas, and what must hold
 * between them. */
#include "firmware-tests/support/suite.h"
#include "gradientflow.h"

#define PI 3.14159265358979323846

static const struct rate_case {
    const char *name;
    struct gf_schedule schedule;
    uint64_t step;
    double rate;
} rate_cases[] = {
    {"constant", {.base_rate = 0.1f}, 0, 0.1},
    {"constant for ever", {.base_rate = 0.1f, .step_count = 10}, 1000000, 0.1},
    {"batch of the base", {.base_rate = 0.1f, .batch = 256}, 5, 0.1},
    {"linear scaling", {.base_rate = 0.1f, .batch = 8192}, 5, 3.2},
    {"linear scaling downwards", {.base_rate = 0.1f, .batch = 64}, 5, 0.025},
    {"another base", {.base_rate = 0.05f, .batch = 256, .base_batch = 64}, 5, 0.2},
    {"first step of the warm-up", {.base_rate = 1.0f, .warmup_steps = 4}, 0, 0.2},
    {"last step of the warm-up", {.base_rate = 1.0f, .warmup_steps = 4}, 3, 0.8},
    {"behind the warm-up", {.base_rate = 1.0f, .warmup_steps = 4}, 4, 1.0},
    {"warm-up is scaled too", {.base_rate = 1.0f, .batch = 512, .warmup_steps = 4}, 0, 0.4},
    {"line at its start", {GF_SCHEDULE_POLYNOMIAL, .base_rate = 2.0f, .step_count = 100}, 0, 2.0},
    {"line in the middle", {GF_SCHEDULE_POLYNOMIAL, .base_rate = 2.0f, .step_count = 100}, 50, 1.0},
    {"line's last step", {GF_SCHEDULE_POLYNOMIAL, .base_rate = 2.0f, .step_count = 100}, 99, 0.02},
    {"line at its end", {GF_SCHEDULE_POLYNOMIAL, .base_rate = 2.0f, .step_count = 100}, 100, 0.0},
    {"line behind its end",
     {GF_SCHEDULE_POLYNOMIAL, .base_rate = 2.0f, .end_rate = 0.5f, .step_count = 100},
     101,
     0.5},
    {"square",
     {GF_SCHEDULE_POLYNOMIAL, .base_rate = 2.0f, .power = 2, .step_count = 100},
     75,
     0.125},
    {"square behind a warm-up",
     {GF_SCHEDULE_POLYNOMIAL, .base_rate = 2.0f, .power = 2, .warmup_steps = 20, .step_count = 100},
     60,
     0.5},
    {"the root of what is left",
     {GF_SCHEDULE_POLYNOMIAL, .base_rate = 2.0f, .power = 0.5f, .step_count = 100},
     75,
     1.0},
    {"FireCaffe's at a third",
     {GF_SCHEDULE_POLYNOMIAL, .base_rate = 0.04f, .power = 0.5f, .step_count = 90},
     30,
     0.0326598632371},
    {"any real power",
     {GF_SCHEDULE_POLYNOMIAL, .base_rate = 1.0f, .power = 1.7f, .step_count = 10},
     4,
     0.419620914},
    {"a power near 0",
     {GF_SCHEDULE_POLYNOMIAL, .base_rate = 1.0f, .power = 1e-4f, .step_count = 2},
     1,
     0.999930688},
    {"a real power at its end",
     {GF_SCHEDULE_POLYNOMIAL, .base_rate = 1.0f, .power = 0.5f, .step_count = 10},
     10,
     0.0},
    {"root scaling", {.base_rate = 0.1f, .batch = 1024, .root_scaling = true}, 5, 0.2},
    {"every so many steps", {GF_SCHEDULE_STEP, .base_rate = 1.0f, .every = 30}, 29, 1.0},
    {"at the first of them", {GF_SCHEDULE_STEP, .base_rate = 1.0f, .every = 30}, 30, 0.1},
    {"at the second", {GF_SCHEDULE_STEP, .base_rate = 1.0f, .every = 30, .factor = 0.5f}, 89, 0.25},
    {"cube with an end rate",
     {GF_SCHEDULE_POLYNOMIAL, .base_rate = 9.0f, .power = 3, .end_rate = 1.0f, .step_count = 4},
     2,
     2.0},
    {"cosine at its start", {GF_SCHEDULE_COSINE, .base_rate = 1.0f, .step_count = 90}, 0, 1.0},
    {"cosine at a third", {GF_SCHEDULE_COSINE, .base_rate = 1.0f, .step_count = 90}, 30, 0.75},
    {"cosine in the middle", {GF_SCHEDULE_COSINE, .base_rate = 1.0f, .step_count = 90}, 45, 0.5},
    {"cosine with an end rate",
     {GF_SCHEDULE_COSINE, .base_rate = 1.0f, .end_rate = 0.2f, .step_count = 90},
     45,
     0.6},
    {"cosine at its end",
     {GF_SCHEDULE_COSINE, .base_rate = 1.0f, .end_rate = 0.2f, .step_count = 90},
     90,
     0.2},
    {"all of it is warm-up",
     {GF_SCHEDULE_COSINE, .base_rate = 1.0f, .warmup_steps = 9, .step_count = 9},
     8,
     0.9},
    {"a warm-up longer than the run",
     {GF_SCHEDULE_COSINE, .base_rate = 1.0f, .warmup_steps = 99, .step_count = 9},
     9,
     0.1},
    {"behind a warm-up longer than the run",
     {GF_SCHEDULE_POLYNOMIAL, .base_rate = 1.0f, .warmup_steps = 99, .step_count = 9},
     99,
     0.0},
    {"last step there can be",
     {GF_SCHEDULE_COSINE, .base_rate = 1.0f, .step_count = UINT64_MAX},
     UINT64_MAX,
     0.0},
};

TEST(test_rates_are_those_of_the_formulas)
{
    for (size_t i = 0; i < sizeof rate_cases / sizeof *rate_cases; i++) {
        const struct rate_case *c = &rate_cases[i];
        double rate = (double)gf_schedule_rate(&c->schedule, c->step);
        if (!(fabs(rate - c->rate) <= 2e-7 * c->rate + 1e-15))
            fail_msg("%s: %.9g, not %.9g", c->name, rate, c->rate);
    }
}

TEST(test_the_cosine_is_one_to_the_last_bit_but_one)
{
    struct gf_schedule schedule = {GF_SCHEDULE_COSINE, .base_rate = 1.0f, .step_count = 997};
    for (uint64_t step = 0; step <= 997; step++) {
        double expected = 0.5 * (1.0 + cos(PI * (double)step / 997.0));
        double rate = (double)gf_schedule_rate(&schedule, step);
        assert_true(fabs(rate - expected) <= 1.2e-7 * expected + 1e-15);
    }
}

/* Up to the end of the warm-up it never falls, from there on it never rises, and it is never above
 * the highest. */
TEST(test_every_schedule_rises_and_then_falls)
{
    static const uint64_t warmups[] = {0, 1, 7, 50, 100};
    for (int kind = GF_SCHEDULE_CONSTANT; kind <= GF_SCHEDULE_COSINE; kind++) {
        for (size_t i = 0; i < sizeof warmups / sizeof *warmups; i++) {
            struct gf_schedule schedule = {(gf_schedule_kind)kind,
                                           .base_rate = 0.4f,
                                           .warmup_steps = warmups[i],
                                           .step_count = 100,
                                           .power = 2,
                                           .end_rate = 0.001f,
                                           .every = 60};
            float before = 0.0f;
            for (uint64_t step = 0; step < 120;
                 step++, before = gf_schedule_rate(&schedule, step - 1)) {
                float rate = gf_schedule_rate(&schedule, step);
                assert_true((rate > 0.0f) && (rate <= 0.4f));
                if (step == 0) continue;
                if (step < warmups[i]) assert_true(rate > before);
                if (step > warmups[i]) assert_true(rate <= before);
            }
        }
    }
}
