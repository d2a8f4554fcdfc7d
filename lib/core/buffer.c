/* Dense fused buffers. Gradients are cast to the wire's type and checked for values that are not
 * finite when they are packed, and cast back when they are unpacked. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/choose.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"

float gf_buffer_factor(const gf_context *gf)
{
    double factor = 1.0 / ((double)gf->loss_scale.value * (double)gf->config.exchange.pre_scale);
    if (gf->config.exchange.average == GF_AVERAGE_RANKS) factor /= (double)gf->world;
    return (float)factor;
}

/* With GF_AVERAGE_SAMPLES the divisor is known only after the vote. 16-bit gradients are then
 * scaled once, after the vote, so that they are rounded once. But a factor above 1 is applied while
 * unpacking, where values that leave the range of their type are counted. */
float gf_unpack_factor(const gf_context *gf, gf_type type)
{
    const float factor = gf_buffer_factor(gf);
    const bool waits = (gf->config.exchange.average == GF_AVERAGE_SAMPLES) &&
                       (type != GF_TYPE_F32) && (factor <= 1.0f);
    return (gf_keeps_scale(gf, type) || waits) ? 1.0f : factor;
}

uint64_t gf_slice_elems(const gf_context *gf)
{
    return gf->config.exchange.slice_bytes / sizeof(float);
}

uint64_t gf_poll_elems(const gf_context *gf, uint64_t left)
{
    uint64_t most = gf_slice_elems(gf);
    return (gf->on_device || (left < most)) ? left : most;
}

const struct gf_buffer *gf_buffer_of(const gf_context *gf, const struct gf_op *op)
{
    return &gf->buffers.now[op->plan.number];
}

static bool in_place(const struct gf_op *op)
{
    return op->plan.packed == op->plan.gradient;
}

/* Casts, scales and checks one slice. Where the rank that adds sees the values of all ranks, this
 * rank does not check them: a check reads all values once more, which takes longer than adding
 * them. */
static gf_status dense_pack(gf_context *gf, struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    uint64_t done = op->done_elems;
    uint64_t count = gf_poll_elems(gf, buffer->elem_count - done);
    gf_type type = (gf_type)buffer->type;
    gf_type wire = op->coll.plan.type;
    gf_mem from = op->plan.gradient + done * gf_type_size_bytes(type);
    gf_mem to = op->plan.packed + done * gf_type_size_bytes(wire);
    float pre = gf->config.exchange.pre_scale;
    bool is_checked_by_adder = op->coll.sources != NULL;
    bool changes = !in_place(op) || (pre != 1.0f);
    struct gf_check *check =
        is_checked_by_adder ? NULL : gf_finite_counter(gf, op->index, GF_COUNT_PACKED);
    gf_status status = GF_OK;

    if (is_checked_by_adder && !changes)
        count = buffer->elem_count;
    else if (!changes)
        status =
            gf->ops->check(op->pack_queue, from, type, count, buffer->first_elem + done, check);
    else
        status = gf->ops->cast(op->pack_queue, to, wire, from, type, count, pre,
                               buffer->first_elem + done, check);
    if (status < 0) return gf_device_failed(gf, op->plan.operation);
    op->done_elems += count;
    return GF_OK;
}

/* Gradients that keep their scale (gf_keeps_scale()) are unpacked as they come. A value of the
 * wire can be too large for the gradient's type, or become so once its scale is undone: that is
 * counted. */
static gf_status dense_unpack(gf_context *gf, struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    gf_type type = (gf_type)buffer->type;
    gf_type wire = op->coll.plan.type;
    float factor = gf_unpack_factor(gf, type);
    uint64_t done = op->done_elems;
    uint64_t count = gf_poll_elems(gf, buffer->elem_count - done);

    if (in_place(op) && (factor == 1.0f))
        count = buffer->elem_count;
    else if (gf->ops->cast(&gf->queue, op->plan.gradient + done * gf_type_size_bytes(type), type,
                           op->plan.packed + done * gf_type_size_bytes(wire), wire, count, factor,
                           op->coll.plan.base + done,
                           gf_finite_counter(gf, op->index, GF_COUNT_SUMMED)) < 0)
        return gf_device_failed(gf, op->plan.operation);
    op->done_elems += count;
    return GF_OK;
}

void gf_buffer_packed(gf_context *gf, struct gf_op *op, uint64_t now_ns)
{
    (void)op;
    if (gf->step.first_ns == 0) gf->step.first_ns = now_ns;
}

void gf_buffer_done(gf_context *gf, struct gf_op *op, uint64_t now_ns)
{
    (void)now_ns;
    gf_finite_buffer(gf, op);
    if (gf->on_device && (gf_device_counters_take(gf, op->index) < 0))
        (void)gf_device_failed(gf, op->plan.operation);
    gf->step.buffers_ended++;
}

const struct gf_op_kind gf_buffer_dense = {
    .counts = true,
    .pack = dense_pack,
    .packed = gf_buffer_packed,
    .unpack = dense_unpack,
    .done = gf_buffer_done,
};

/* The type in which a buffer is summed. Whatever leaves the node, or leaves a device for the host
 * on any rank, has the wire's type. Ranks that all reach each other's memory (the host's or the
 * devices') add the gradients in the type in which the appliance wrote them, so no rank casts all
 * of them there and back; hierarchy casts only what it sends. A single rank sends nothing, so it
 * casts nothing. Chunks are always packed in the wire's type. The answer is the same on all ranks,
 * although some of them may have no device. */
static gf_type buffer_type(const gf_context *gf, const struct gf_buffer *buffer,
                           gf_algorithm algorithm)
{
    bool on_host = gf->warm.met[GF_MET_DEVICE] == 0;
    bool in_reach = (gf->world == 1) || (gf_is_in_node(algorithm) && (on_host || gf->ipc.agreed));
    return (in_reach && (buffer->chunk_count == 0)) ? (gf_type)buffer->type
                                                    : gf->config.exchange.wire;
}

/* Does the rank that adds, or that casts what leaves the node, see the values that this rank
 * gives? */
static bool adder_checks(const gf_context *gf, const struct gf_op_plan *plan)
{
    if ((plan->packed != plan->gradient) || (gf->world == 1)) return false;
    if (plan->algorithm == GF_ALGORITHM_HIERARCHY)
        return (gf->nodes.of.local_size > 1) || (plan->between != 0);
    return plan->algorithm == GF_ALGORITHM_DIRECT;
}

bool gf_buffer_start(gf_context *gf, uint32_t number)
{
    const struct gf_buffer *buffer = &gf->buffers.now[number];
    const bool dense = buffer->chunk_count == 0;
    const gf_type wire = gf->config.exchange.wire;
    const uint64_t bytes = buffer->elem_count * gf_type_size_bytes(wire);
    const uint64_t at = buffer->first_elem * gf_type_size_bytes(wire);
    struct gf_op *op = gf_op_seek(gf);
    struct gf_op_plan *plan;
    struct gf_coll_plan *coll;
    if (op == NULL) return false;
    plan = &op->plan;
    coll = &op->coll.plan;
    *plan = (struct gf_op_plan){
        .kind = dense ? &gf_buffer_dense : &gf_sparse_buffer,
        .operation = GF_OPERATION_STEP,
        .number = number,
        .algorithm = gf_choose(gf, GF_COLL_ALLREDUCE, bytes),
        .packed = gf->pack + at,
        .buffer = buffer,
        .gradient = gf->gradient + buffer->gradient_offset,
        .host = gf->pack_host + at,
    };
    *coll = (struct gf_coll_plan){
        .collective = GF_COLL_ALLREDUCE,
        .type = buffer_type(gf, buffer, plan->algorithm),
        .elem_count = buffer->elem_count,
        .tag = gf_tag(gf->generation, gf->step.number, number),
        .base = dense ? buffer->first_elem : 0,
    };
    if (dense && (buffer->type == (uint8_t)coll->type)) plan->packed = plan->gradient;
    if ((plan->algorithm == GF_ALGORITHM_HIERARCHY) && (coll->type != wire))
        plan->between = gf->pack + at;
    coll->data =
        (!gf->on_device || gf_sums_async(gf, plan->algorithm)) ? plan->packed : gf->pack_host + at;
    plan->adder_checks = adder_checks(gf, plan);
    gf_op_take(gf, op);
    return true;
}
