/* Work that is queued on a device, and done after the call; on the host it is done when the call
 * returns. */
#ifndef GF_DEVICE_WORK_H
#define GF_DEVICE_WORK_H

#include "lib/context.h"

/* the context fails with the driver's fault */
gf_status gf_device_failed(gf_context *gf, gf_operation operation);

/* Between these two calls the device is made current at most once. If it cannot be released the
 * context has failed. */
static inline void gf_device_calls_begin(gf_context *gf)
{
    if (gf->on_device && (gf->gpu->driver->calls_begin != NULL))
        gf->gpu->driver->calls_begin(gf->gpu);
}
static inline void gf_device_calls_end(gf_context *gf, gf_operation operation)
{
    if (!gf->on_device || (gf->gpu->driver->calls_end == NULL)) return;
    if (gf->gpu->driver->calls_end(gf->gpu) < 0) (void)gf_device_failed(gf, operation);
}

uint32_t gf_tensor_event(const gf_context *gf, uint32_t tensor);

struct gf_queue gf_queue_own(gf_context *gf, gf_stream which);
/* Work that is queued on `later` from here on waits for all that `earlier` holds now; both are
 * queues of this context. */
gf_status gf_queue_after(gf_context *gf, struct gf_queue *earlier, const struct gf_queue *later);
/* The driver refused a stream of the appliance: logged and returned if the call was wrong, else the
 * context fails. */
gf_status gf_queue_refused(gf_context *gf, gf_status status, const char *call);

#endif
