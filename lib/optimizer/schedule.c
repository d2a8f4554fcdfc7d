/* Learning rates as functions of the step alone, so that a run that is resumed goes on where it was
 * and no rank needs to ask another. Only + - * / and roots in double: libm's pow() and cos() differ
 * in the last bit from one machine to the next, and the weights would with them.
 *
 * Linear scaling and warm-up: Goyal et al., arXiv 1706.02677, sections 2.1 and 2.2. Polynomial
 * decay: FireCaffe, arXiv 1511.00175; of power 2 with LARS, arXiv 1708.03888. Cosine: arXiv
 * 1608.03983, equation 5, without restarts. */
#include <math.h>

#include "lib/optimizer/kinds.h"
#include "drivers/base/arithmetic.h"

#define BASE_BATCH 256u
#define STEP_FACTOR 0.1

/* cos(x)^2 for x in [0, pi/2]; the series' next term is below 1e-17. */
static double cosine_squared(double x)
{
    double square = x * x;
    double term = 1.0;
    double sum = 1.0;
    for (uint32_t i = 2; i <= 24; i += 2) {
        term *= -square / ((double)i * (double)(i - 1));
        sum += term;
    }
    return sum * sum;
}

double gf_power_of(double value, uint64_t power)
{
    double result = 1.0;
    for (; power > 0; power >>= 1, value *= value)
        if ((power & 1u) != 0) result *= value;
    return result;
}

/* value in (0, 1] to a power in (0, 1): 52 roots, of which each bit of the power takes one or
 * none. */
static double power_below_one(double value, double power)
{
    double result = 1.0;
    double root = value;
    for (uint32_t bit = 0; (bit < 52) && (power > 0.0); bit++) {
        root = sqrt(root); /* IEEE 754 rounds it correctly */
        power *= 2.0;
        if (power < 1.0) continue;
        result *= root;
        power -= 1.0;
    }
    return result;
}

/* value in [0, 1] to any power above 0. */
static double real_power_of(double value, double power)
{
    uint64_t whole = (power < 1e6) ? (uint64_t)power : 1000000u;
    if (value <= 0.0) return 0.0;
    return gf_power_of(value, whole) * power_below_one(value, power - (double)whole);
}

/* The share of the highest rate that is left; left is 1 after the warm-up, 0 at the end. */
static double share_left(const struct gf_schedule *schedule, uint64_t step, double left)
{
    const double half_pi = 1.57079632679489661923;
    double factor = (schedule->factor > 0.0f) ? (double)schedule->factor : STEP_FACTOR;
    uint64_t passed = (schedule->every > 0) ? step / schedule->every : 0;
    switch (schedule->kind) {
    case GF_SCHEDULE_CONSTANT: return 1.0;
    case GF_SCHEDULE_POLYNOMIAL:
        return real_power_of(left, (schedule->power > 0) ? (double)schedule->power : 1.0);
    case GF_SCHEDULE_COSINE: return cosine_squared(half_pi * (1.0 - left));
    case GF_SCHEDULE_STEP: break;
    }
    return gf_power_of(factor, passed);
}

static float rate_of(const struct gf_schedule *schedule, uint64_t step)
{
    if (schedule == NULL) return 0.0f;
    uint64_t warm = schedule->warmup_steps;
    uint64_t count = schedule->step_count;
    double base_batch =
        (schedule->base_batch > 0) ? (double)schedule->base_batch : (double)BASE_BATCH;
    double highest = (double)schedule->base_rate;
    double left = 0.0;
    double end;
    bool ends =
        (schedule->kind == GF_SCHEDULE_POLYNOMIAL) || (schedule->kind == GF_SCHEDULE_COSINE);
    double times = (schedule->batch > 0) ? (double)schedule->batch / base_batch : 1.0;
    highest *= schedule->root_scaling ? sqrt(times) : times;
    if (step < warm) return (float)(highest * (double)(step + 1u) / ((double)warm + 1.0));
    if (step < count) left = (double)(count - step) / (double)(count - warm);
    end = ends ? (double)schedule->end_rate : 0.0;
    return (float)(end + (highest - end) * share_left(schedule, step, left));
}

float gf_schedule_rate(const struct gf_schedule *schedule, uint64_t step)
{
    GF_COMPUTES();
    /* volatile: a compiler does not know that the answer depends on the mode, and may make it after
     * the mode was given back */
    volatile const float rate = rate_of(schedule, step);
    return rate;
}

float gf_rate(const gf_context *gf, uint64_t step)
{
    GF_COMPUTES();
    return (gf == NULL) ? 0.0f : gf_schedule_rate(&gf->config.rate, step);
}
