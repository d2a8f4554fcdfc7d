/* gf_heartbeat(): a rank that is busy with something else asks the others for patience. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "drivers/base/arithmetic.h"

/* How long the others may wait for this rank from now on: exchange.timeout, but 0 once it has
 * stayed at one position for exchange.patience. */
static uint64_t patience_ns(gf_context *gf)
{
    struct gf_polled *polled = &gf->polled;
    const uint64_t most_ns = gf->config.exchange.patience_ns;
    const uint64_t position = gf->under_way.sequence + (gf->step.number << 32) + gf->phase;
    if (polled->position != position) {
        polled->position = position;
        polled->position_ns = gf_awake(gf);
        polled->position_spent = false;
    }
    const uint64_t here_ns = gf_awake(gf) - polled->position_ns;
    if (here_ns > most_ns) {
        if (!polled->position_spent)
            gf_log_line(&gf->log, GF_LOG_WARN,
                        "rank %u: gf_heartbeat() was called at one position for longer "
                        "than exchange.patience (%.1f s): a rank that waits for this one gives "
                        "up exchange.timeout after that",
                        gf->rank, (double)most_ns * 1e-9);
        polled->position_spent = true;
        return 0;
    }
    return gf->config.exchange.timeout_ns; /* from this call on */
}

gf_status gf_heartbeat(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = gf_own(gf);
    uint64_t now_ns;
    if (status < 0) return status;
    /* gf_regroup_poll() ends what has failed, and goes on or answers with the error */
    if ((gf->change.state != GF_CHANGE_NONE) && (gf->error.code != GF_OK)) return GF_OK;
    if ((status = gf_enter(gf)) < 0) return status;
    if (gf->phase == GF_PHASE_LEFT)
        return gf_refuse(gf, GF_ERR_STATE, "gf_heartbeat: this rank has left");
    now_ns = gf_poll_begin(gf);
    gf_control_heartbeat(gf->control, gf_awake(gf), patience_ns(gf));
    gf->polled.control_skip = 0;
    gf->polled.link_ns = 0;
    /* gf_regroup_poll() moves the rest; no link that fails ends it */
    if (gf->phase == GF_PHASE_AGREE) return GF_OK;
    if (gf_progress(gf, now_ns) == GF_OK) {
        gf_device_calls_begin(gf);
        (void)gf_ops_progress(gf, now_ns); /* what it has begun does not wait for it */
        gf_device_calls_end(gf, gf_doing(gf));
    }
    return (gf->change.state != GF_CHANGE_NONE) ? GF_OK : gf->error.code;
}
