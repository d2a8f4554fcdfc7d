/* The dynamic loss scale. It rises after a run of steps that were applied, and falls after steps
 * that were skipped because values were not finite. At its floor another such step is an error: the
 * scale never becomes 1 silently. */
#include "lib/context.h"
#include "lib/core/accessors.h"

float gf_loss_scale(gf_context *gf)
{
    if (gf == NULL) return 1.0f;
    /* A forked child may share this memory with its parent, and writes nothing. */
    if (gf_own(gf) == GF_OK) gf->loss_scale.asked = gf->loss_scale.value;
    return gf->loss_scale.value;
}

gf_status gf_scale_check(gf_context *gf, const char *call)
{
    const struct gf_loss_scale *scale = &gf->loss_scale;
    if ((scale->value == 1.0f) || (scale->asked == scale->value)) return GF_OK;
    return gf_refuse(gf, GF_ERR_STATE,
                     "%s: the loss scale is %g, and gf_loss_scale() was not asked %s: multiply the "
                     "loss by it before backward in each step, or set loss_scale.enabled = false",
                     call, (double)scale->value,
                     (scale->asked == 0.0f) ? "for it" : "since it changed");
}

gf_status gf_scale_step(gf_context *gf, bool skipped)
{
    const struct gf_config *config = &gf->config;
    float lower;
    if (!config->loss_scale.enabled) return GF_OK;
    if (!skipped) {
        gf->step.scale_before = gf->loss_scale;
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

gf_status gf_scale_drop(gf_context *gf)
{
    const float asked = gf->loss_scale.asked; /* it may have been asked for since the step ended */
    if (!gf->config.loss_scale.enabled) return GF_OK;
    gf->loss_scale = gf->step.scale_before;
    gf->loss_scale.asked = asked;
    return gf_scale_step(gf, true);
}
