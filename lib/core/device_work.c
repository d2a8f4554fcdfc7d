/* Work that is queued on a device. On the host all of it is done when a call returns. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "drivers/base/arithmetic.h"

gf_status gf_device_failed(gf_context *gf, gf_operation operation)
{
    return gf_fail_fault(gf, &gf->gpu->fault, operation);
}

uint32_t gf_tensor_event(const gf_context *gf, uint32_t tensor)
{
    return gf->under_way.count + 1 + tensor; /* after those of the operations, and of the scores */
}

struct gf_queue gf_queue_own(gf_context *gf, gf_stream which)
{
    return (struct gf_queue){.gpu = gf->gpu, .stream = gf->gpu->streams[which]};
}

gf_status gf_queue_after(gf_context *gf, struct gf_queue *earlier, const struct gf_queue *later)
{
    if (earlier->stream == later->stream) return GF_OK;
    return gf->gpu->driver->stream_wait(earlier, later->stream);
}

gf_status gf_queue_refused(gf_context *gf, gf_status status, const char *call)
{
    if ((status != GF_ERR_STATE) && (status != GF_ERR_PARAM))
        return gf_device_failed(gf, GF_OPERATION_STEP);
    (void)gf_refuse(gf, status, "%s: %s", call, gf->gpu->fault.text);
    gf->gpu->fault = (struct gf_fault){.peer = GF_RANK_NONE}; /* nothing has failed */
    return status;
}

gf_status gf_queue_follow(gf_context *gf, gf_queue_handle queue)
{
    GF_COMPUTES();
    gf_status status = gf_enter(gf);
    if (status < 0) return status;
    if (gf->phase == GF_PHASE_STEP)
        return gf_refuse(gf, GF_ERR_STATE, "gf_queue_follow: step %llu is not whole",
                         (unsigned long long)gf->step.number);
    status = gf->gpu->driver->stream_wait(&gf->queue, queue);
    return (status < 0) ? gf_queue_refused(gf, status, "gf_queue_follow") : GF_OK;
}
