/* The copy of the weights in 16 bits that forward and backward read. */
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/optimizer/kinds.h"
#include "drivers/base/arithmetic.h"

gf_status gf_half_refresh(gf_context *gf)
{
    if (gf->optimizer.half == 0) return GF_OK;
    if (gf->ops->cast(&gf->queue, gf->optimizer.half, gf->config.optimizer.half_weights,
                      gf->optimizer.weight, GF_TYPE_F32, gf->pool.elem_count, 1.0f, 0, NULL) < 0)
        return gf_device_failed(gf, GF_OPERATION_UPDATE);
    return GF_OK;
}

gf_status gf_weights_written(gf_context *gf)
{
    GF_COMPUTES();
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if (gf->phase != GF_PHASE_READY)
        return gf_refuse(gf, GF_ERR_STATE, "gf_weights_written: %s",
                         (gf->phase == GF_PHASE_STEP) ? "inside of a step"
                                                      : "the context is not open");
    return gf_half_refresh(gf);
}
