/* Packing and unpacking of an operation's data, on the host at once. lib/device/work.c does what
 * is needed between a device and host memory. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"

/* A turn of packing or of unpacking. GF_OK: all of it is queued, its event after it. */
gf_status gf_op_move(gf_context *gf, struct gf_op *op, uint64_t now_ns)
{
    bool packs = (op->state == GF_OP_PACK);
    gf_status (*move)(gf_context *, struct gf_op *) =
        packs ? op->plan.kind->pack : op->plan.kind->unpack;
    gf_status status = GF_OK;
    if (packs && gf->on_device && (op->done_elems == 0)) {
        if ((status = gf_device_ready(gf, op, now_ns)) != GF_OK) return status;
    }
    gf->wait_state.moved_ns = now_ns;
    if (op->done_elems == 0) {
        if (packs) gf_finite_begin(gf, op->index);
        if (gf->on_device) status = gf_device_move_begin(gf, op);
        if (status < 0) return gf_device_failed(gf, op->plan.operation);
    }
    if ((move != NULL) && (op->done_elems < op->coll.plan.elem_count)) {
        uint64_t before = op->done_elems;
        if ((status = move(gf, op)) < 0) return status;
        if ((op->plan.operation == GF_OPERATION_STEP) && (op->plan.packed != op->plan.gradient))
            gf->observed.stats.copied_bytes +=
                (op->done_elems - before) * gf_type_size_bytes(op->coll.plan.type);
        if (op->done_elems < op->coll.plan.elem_count) return GF_AGAIN;
    }
    op->wait_ns = now_ns;
    if (gf->on_device) status = gf_device_move_end(gf, op);
    return (status < 0) ? gf_device_failed(gf, op->plan.operation) : GF_OK;
}
