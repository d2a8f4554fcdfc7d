/* Dense fused buffers: gradients are cast and looked at on their way to the wire, and again on
 * their way back. */
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

uint64_t gf_slice_elems(const gf_context *gf)
{
    return gf->config.exchange.slice_bytes / sizeof(float);
}

uint64_t gf_turn_elems(const gf_context *gf, uint64_t left)
{
    uint64_t most = gf_slice_elems(gf);
    return (gf->on_device || (left < most)) ? left : most;
}

const struct gf_buffer *gf_buffer_of(const gf_context *gf, const struct gf_op *op)
{
    return &gf->buffers.now[op->number];
}

static bool in_place(const struct gf_op *op)
{
    return op->packed == op->of.buffer.gradient;
}

/* Cast, scale and look at one slice. Nobody looks where who adds sees all ranks' values: that would
 * read all once more, which takes longer than adding. */
static gf_status dense_pack(gf_context *gf, struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    uint64_t done = op->done_elems;
    uint64_t count = gf_turn_elems(gf, buffer->elem_count - done);
    gf_type type = (gf_type)buffer->type;
    gf_type wire = op->coll.type;
    gf_mem from = op->of.buffer.gradient + done * gf_type_size_bytes(type);
    gf_mem to = op->packed + done * gf_type_size_bytes(wire);
    float pre = gf->config.exchange.pre_scale;
    bool others_look = op->coll.sources != NULL, changes = !in_place(op) || (pre != 1.0f);
    struct gf_check *check = others_look ? NULL : gf_finite_counter(gf, op->index, GF_COUNT_PACKED);
    gf_status status = GF_OK;

    if (others_look && !changes)
        count = buffer->elem_count;
    else if (!changes)
        status =
            gf->ops->check(op->pack_queue, from, type, count, buffer->first_elem + done, check);
    else
        status = gf->ops->cast(op->pack_queue, to, wire, from, type, count, pre,
                               buffer->first_elem + done, check);
    if (status < 0) return gf_device_failed(gf, op->operation);
    op->done_elems += count;
    return GF_OK;
}

/* 16-bit gradients keep their scale (gf_gradient_scale): divided here they could underflow. With
 * GF_AVERAGE_SAMPLES the divisor is known only after the vote. What the wire held may be too large
 * for the gradient's type or once its scale is undone: that is counted. */
static gf_status dense_unpack(gf_context *gf, struct gf_op *op)
{
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    gf_type type = (gf_type)buffer->type;
    gf_type wire = op->coll.type;
    float factor = (type == GF_TYPE_F32) ? gf_buffer_factor(gf) : 1.0f;
    uint64_t done = op->done_elems;
    uint64_t count = gf_turn_elems(gf, buffer->elem_count - done);

    if (in_place(op) && (factor == 1.0f))
        count = buffer->elem_count;
    else if (gf->ops->cast(&gf->queue, op->of.buffer.gradient + done * gf_type_size_bytes(type),
                           type, op->packed + done * gf_type_size_bytes(wire), wire, count, factor,
                           op->coll.base + done,
                           gf_finite_counter(gf, op->index, GF_COUNT_SUMMED)) < 0)
        return gf_device_failed(gf, op->operation);
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
    const struct gf_buffer *buffer = gf_buffer_of(gf, op);
    const uint32_t *members =
        (op->algorithm == GF_ALGORITHM_HIERARCHY) ? gf->nodes.of.local : gf->ids;
    gf_finite_local(gf, buffer, gf_finite_seen(gf, op->index, GF_COUNT_PACKED));
    gf_finite_sums(gf, buffer, &op->summed);
    gf_finite_sums(gf, buffer, gf_finite_seen(gf, op->index, GF_COUNT_SUMMED));
    if (gf->on_device && (gf_device_counters_take(gf, op->index) < 0))
        (void)gf_device_failed(gf, op->operation);
    gf_finite_sources(gf, buffer, members, &op->of.buffer.sources);
    gf->step.buffers_ended++;
}

const struct gf_op_kind gf_buffer_dense = {
    .counts = true,
    .goes_ahead = true,
    .pack = dense_pack,
    .packed = gf_buffer_packed,
    .unpack = dense_unpack,
    .done = gf_buffer_done,
};

/* What leaves the node, or any rank's device for the host, has the wire's type. Ranks that all
 * reach each other's memory, the host's or the devices', add what the appliance wrote, and none
 * casts all of it there and back; hierarchy casts what it sends. What one rank alone has goes
 * nowhere. Chunks are packed in any case. The same on all ranks, some of which may have no
 * device. */
static gf_type buffer_type(const gf_context *gf, const struct gf_buffer *buffer,
                           gf_algorithm algorithm)
{
    bool on_host = gf->warm.met[GF_MET_DEVICE] == 0;
    bool in_reach = (gf->world == 1) || (gf_is_in_node(algorithm) && (on_host || gf->ipc.agreed));
    return (in_reach && (buffer->chunk_count == 0)) ? (gf_type)buffer->type
                                                    : gf->config.exchange.wire;
}

/* Does whoever adds, or casts what leaves the node, see what this rank gives? */
static bool others_look(const gf_context *gf, const struct gf_op *op)
{
    if (!in_place(op) || gf->on_device || (gf->world == 1)) return false;
    if (op->algorithm == GF_ALGORITHM_HIERARCHY)
        return (gf->nodes.of.local_size > 1) || (op->between != 0);
    return op->algorithm == GF_ALGORITHM_DIRECT;
}

bool gf_buffer_start(gf_context *gf, uint32_t number)
{
    const struct gf_buffer *buffer = &gf->buffers.now[number];
    const struct gf_op_kind *kind =
        (buffer->chunk_count > 0) ? &gf_sparse_buffer : &gf_buffer_dense;
    struct gf_op *op = gf_op_take(gf, kind, GF_OPERATION_STEP, number);
    gf_type wire = gf->config.exchange.wire;
    gf_type type;
    uint64_t at = buffer->first_elem * gf_type_size_bytes(wire);
    if (op == NULL) return false;
    op->first_tensor = buffer->first_tensor;
    op->tensor_count = buffer->tensor_count;
    op->pack_queue = &gf->pack_queue;
    op->of.buffer = (struct gf_op_buffer){.gradient = gf->gradient + buffer->gradient_offset,
                                          .sources = {.bad_first = UINT64_MAX}};
    op->algorithm = gf_choose(gf, GF_COLL_ALLREDUCE, buffer->elem_count * gf_type_size_bytes(wire));
    type = buffer_type(gf, buffer, op->algorithm);
    op->packed = gf->pack + at;
    if ((buffer->type == (uint8_t)type) && (buffer->chunk_count == 0))
        op->packed = op->of.buffer.gradient;
    if ((op->algorithm == GF_ALGORITHM_HIERARCHY) && (type != wire)) op->between = gf->pack + at;
    op->host = gf->wire + at;
    op->coll.data =
        (!gf->on_device || gf_sums_late(gf, op->algorithm)) ? op->packed : gf->wire + at;
    if (others_look(gf, op)) op->coll.sources = &op->of.buffer.sources;
    if (buffer->chunk_count == 0) op->coll.base = buffer->first_elem;
    op->coll.collective = GF_COLL_ALLREDUCE;
    op->coll.type = type;
    op->coll.elem_count = buffer->elem_count;
    op->coll.tag = gf_tag(gf->epoch, gf->step.number, number);
    return true;
}
