/* Dynamic loss scale: up after a run of good steps, down after bad ones, an error at the floor, no silent 1. */
#include "lib/context.h"

float gf_loss_scale(const gf_context *gf) { return (gf == NULL) ? 1.0f : gf->scale; }

gf_status gf_scale_step(gf_context *gf, bool skipped)
{
    const struct gf_config *config = &gf->config;
    float lower;
    if (!config->loss_scale.enabled) return GF_OK;
    if (!skipped) {
        gf->scale_bad = 0;
        if (++gf->scale_good < config->loss_scale.growth_interval) return GF_OK;
        gf->scale_good = 0;
        if (gf->scale * config->loss_scale.factor <= GF_SCALE_MAX) gf->scale *= config->loss_scale.factor;
        return GF_OK;
    }
    gf->scale_good = 0;
    if (++gf->scale_bad < config->loss_scale.hysteresis) return GF_OK;
    gf->scale_bad = 0;
    lower = gf->scale / config->loss_scale.factor;
    if (lower < config->loss_scale.floor)
        return gf_fail(gf, GF_ERR_NUMERIC, GF_OPERATION_VERDICT, GF_RANK_NONE, GF_TENSOR_NONE,
                       "gradients are not finite in step %llu and the loss scale %g is at its floor",
                       (unsigned long long)gf->step.number, (double)gf->scale);
    gf->scale = lower;
    return GF_OK;
}
