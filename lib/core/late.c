/* Work that a device does late. On the host all of it is done when a call returns. */
#include "lib/context.h"
#include "lib/core/late.h"

gf_status gf_device_failed(gf_context *gf, gf_operation operation)
{
    return gf_fail_fault(gf, &gf->gpu->fault, operation);
}

gf_status gf_device_register(gf_context *gf)
{
    if (!gf->on_device) return GF_OK;
    return gf->gpu->driver->host_register(gf->gpu, gf->region.base, gf->region.bytes);
}

gf_status gf_device_unregister(gf_context *gf)
{
    if (!gf->on_device || (gf->region.base == NULL)) return GF_OK;
    return gf->gpu->driver->host_unregister(gf->gpu, gf->region.base);
}

gf_status gf_device_finished(gf_context *gf)
{
    return gf->on_device ? gf->gpu->driver->finished(&gf->queue) : GF_OK;
}

bool gf_device_holds(const gf_context *gf, gf_mem data)
{
    return gf->on_device && (data >= gf->device.base) && (data - gf->device.base < gf->device.bytes);
}

gf_status gf_queue_refused(gf_context *gf, gf_status status, const char *call)
{
    if (status != GF_ERR_STATE) return gf_device_failed(gf, GF_OPERATION_STEP);
    (void)gf_refuse(gf, status, "%s: %s", call, gf->gpu->fault.text);
    gf->gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE}; /* nothing has failed */
    return status;
}

gf_status gf_queue_follow(gf_context *gf, gf_queue_handle queue)
{
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if (gf->phase == GF_PHASE_STEP)
        return gf_refuse(gf, GF_ERR_STATE, "gf_queue_follow: step %llu is not whole",
                         (unsigned long long)gf->step.number);
    status = gf->gpu->driver->lead(&gf->queue, queue);
    return (status < 0) ? gf_queue_refused(gf, status, "gf_queue_follow") : GF_OK;
}
