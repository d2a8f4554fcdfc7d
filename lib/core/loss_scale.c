/* Dynamic loss scale: up after a run of good steps, down after bad ones, an error at the floor, no
 * silent 1. */
#include "lib/context.h"

float gf_loss_scale(const gf_context *gf)
{
    return (gf == NULL) ? 1.0f : gf->loss_scale.value;
}

gf_status gf_scale_step(gf_context *gf, bool skipped)
{
    const struct gf_config *config = &gf->config;
    float lower;
    if (!config->loss_scale.enabled) return GF_OK;
    if (!skipped) {
        gf->loss_scale.bad = 0;
        if (++gf->loss_scale.good < config->loss_scale.growth_interval) return GF_OK;
        gf->loss_scale.good = 0;
        if (gf->loss_scale.value * config->loss_scale.factor <= GF_SCALE_MAX)
            gf->loss_scale.value *= config->loss_scale.factor;
        return GF_OK;
    }
    gf->loss_scale.good = 0;
    if (++gf->loss_scale.bad < config->loss_scale.hysteresis) return GF_OK;
    gf->loss_scale.bad = 0;
    if (gf->loss_scale.value <= config->loss_scale.floor)
        return gf_fail(
            gf, GF_ERR_NUMERIC, GF_OPERATION_VOTE, GF_RANK_NONE, GF_TENSOR_NONE,
            "gradients are not finite in step %llu and the loss scale %g is at its floor",
            (unsigned long long)gf->step.number, (double)gf->loss_scale.value);
    lower = gf->loss_scale.value / config->loss_scale.factor;
    gf->loss_scale.value = (lower > config->loss_scale.floor) ? lower : config->loss_scale.floor;
    return GF_OK;
}
