/* Whether the last step has been applied to the weights; gf_updated(), by which a program with an
 * optimizer of its own reports that. */
#include "lib/core/applied.h"
#include "lib/core/accessors.h"
#include "drivers/base/arithmetic.h"

bool gf_has_weights(const gf_context *gf)
{
    return (gf->config.optimizer.kind != GF_OPTIMIZER_NONE) || (gf->config.state_extra_count > 0);
}

bool gf_step_is_unapplied(const gf_context *gf)
{
    return (gf->step.state == GF_STEP_WHOLE) && !gf->step.skipped && gf_has_weights(gf);
}

/* The program has written it, whatever this rank had met before. A regroup then gives it to those
 * that have not; if both said the same, each would keep its own. */
static void applied_after_failure(gf_context *gf)
{
    if ((gf->config.optimizer.kind == GF_OPTIMIZER_NONE) && gf_step_is_unapplied(gf))
        gf->step.state = GF_STEP_UPDATED;
}

gf_status gf_updated(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = gf_enter(gf);
    if (status < 0) {
        if (gf_regroup_is_next(gf)) applied_after_failure(gf);
        return status;
    }
    if (gf->config.optimizer.kind != GF_OPTIMIZER_NONE)
        return gf_refuse(gf, GF_ERR_STATE,
                         "gf_updated: optimizer.kind is not none; gf_update() applies the step");
    if ((gf->phase != GF_PHASE_READY) || (gf->step.state != GF_STEP_WHOLE))
        return gf_refuse(gf, GF_ERR_STATE, "gf_updated: %s",
                         (gf->step.state == GF_STEP_UPDATED) ? "this step was applied before"
                                                             : "no step is whole");
    if (gf->step.skipped)
        gf_log_line(&gf->log, GF_LOG_WARN,
                    "gf_updated: step %llu was skipped, so no rank may have applied it: "
                    "gf_step_skipped() is asked before the update",
                    (unsigned long long)gf->step.number);
    gf->step.state = GF_STEP_UPDATED;
    return GF_OK;
}
