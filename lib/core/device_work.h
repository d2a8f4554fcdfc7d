/* Work that is queued on a device, and done after the call; on the host it is done when the call returns. */
#ifndef GF_DEVICE_WORK_H
#define GF_DEVICE_WORK_H

#include "drivers/gpu.h"

struct gf_op;
/* What lib/device/work.c does in a context on a device; an error's text is in the driver's fault. */
struct gf_device_work {
    gf_status (*region_open)(gf_context *gf); /* the exchange region; counters (finite.h) are at none */
    gf_status (*region_close)(gf_context *gf);
    gf_status (*finished)(gf_context *gf); /* GF_OK: nothing is queued or running; GF_AGAIN */
    /* An operation begins to pack or to unpack; all of that is queued; GF_OK: the device has done it, or GF_AGAIN. */
    gf_status (*begin)(gf_context *gf, struct gf_op *op);
    gf_status (*end)(gf_context *gf, struct gf_op *op);
    gf_status (*reached)(gf_context *gf, const struct gf_op *op, uint64_t now_ns);
    /* After all element ops that count there: counters are on their way back, with event `index` after them. What then
     * was seen has been taken: they are at none for who is next. */
    gf_status (*counters_fetch)(gf_context *gf, struct gf_queue *queue, uint32_t index);
    gf_status (*counters_take)(gf_context *gf, uint32_t index);
};
gf_status gf_device_failed(gf_context *gf, gf_operation operation); /* the context fails with the driver's fault */

uint32_t gf_tensor_event(const gf_context *gf, uint32_t tensor);

struct gf_queue gf_queue_own(gf_context *gf, gf_stream which);
/* What `later` gets from here on waits for all that `earlier` holds; both are the context's own. */
gf_status gf_queue_after(gf_context *gf, struct gf_queue *earlier, const struct gf_queue *later);
gf_status gf_queue_refused(gf_context *gf, gf_status status, const char *call); /* a stream of the appliance */

#endif
