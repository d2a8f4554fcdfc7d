/* Public collectives. Posted in the same order on all ranks, they start in that order, as ops
 * become free. */
#include <stdarg.h>
#include <stdio.h>

#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/choose.h"
#include "lib/core/device_work.h"
#include "lib/settings/settings.h"
#include "drivers/base/arithmetic.h"
#include "ops/element/host/reduce_host.h"

static struct gf_pending *pending_of(gf_context *gf, const struct gf_request *request)
{
    for (uint32_t left = (request != NULL) ? gf->requests.used : 0; left != 0; left &= left - 1) {
        struct gf_pending *pending = &gf->requests.of[__builtin_ctz(left)];
        if (pending->request == request) return pending;
    }
    return NULL;
}

static void pending_free(gf_context *gf, const struct gf_pending *pending)
{
    gf->requests.used &= ~(1u << (pending - gf->requests.of));
}

bool gf_requests_idle(const gf_context *gf)
{
    for (uint32_t left = gf->requests.used; left != 0; left &= left - 1)
        if (gf->requests.of[__builtin_ctz(left)].state != GF_REQUEST_ENDED) return false;
    return true;
}

static struct gf_pending *pending_take(gf_context *gf)
{
    uint32_t index = (uint32_t)__builtin_ctz(~gf->requests.used);
    if (index >= GF_REQUESTS_MAX) return NULL;
    gf->requests.used |= 1u << index;
    return &gf->requests.of[index];
}

/* Does data lie in memory of the device, which may be the library's or the appliance's own? */
static bool is_on_device(const gf_context *gf, gf_mem data)
{
    if (!gf->on_device || gf_device_holds(gf, data)) return gf->on_device;
    return (gf->gpu->driver->is_device != NULL) && gf->gpu->driver->is_device(gf->gpu, data);
}

static inline void pending_fill(gf_context *gf, struct gf_pending *pending, struct gf_call call,
                                gf_mem data, uint64_t elem_count, gf_type type,
                                struct gf_request *request)
{
    pending->state = GF_REQUEST_QUEUED;
    pending->request = request;
    pending->operation = (gf_operation)call.operation;
    pending->collective = (gf_collective)call.collective;
    pending->type = type;
    pending->root_or_reduction = call.root_or_reduction;
    pending->data = data;
    pending->elem_count = elem_count;
    gf->requests.queue[gf->requests.posted++ % GF_REQUESTS_MAX] = pending;
    pending->staged = (elem_count > 0) && is_on_device(gf, data);
}

gf_status gf_request_post(gf_context *gf, struct gf_call call, gf_mem data, uint64_t elem_count,
                          gf_type type, struct gf_request *request)
{
    struct gf_pending *pending = pending_take(gf);
    if (pending == NULL) return GF_FULL;
    pending_fill(gf, pending, call, data, elem_count, type, request);
    return GF_OK;
}

static void requests_start(gf_context *gf);

__attribute__((format(printf, 4, 5))) static gf_status refuse(gf_context *gf, gf_status code,
                                                              struct gf_call call,
                                                              const char *format, ...)
{
    char text[160];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return gf_refuse(gf, code, "%s%s", gf_operation_name((gf_operation)call.operation), text);
}

/* May this rank post anything, and with this request? */
static gf_status request_check(gf_context *gf, struct gf_call call,
                               const struct gf_request *request)
{
    if (!gf_is_well(gf)) return gf_enter_ill(gf);
    if (gf->phase != GF_PHASE_READY)
        return refuse(gf, GF_ERR_STATE, call,
                      (gf->phase == GF_PHASE_STEP) ? ": inside of a step"
                                                   : ": the context is not open");
    if (request == NULL) return refuse(gf, GF_ERR_PARAM, call, ": no request");
    if (pending_of(gf, request) != NULL)
        return refuse(gf, GF_ERR_PARAM, call,
                      ": this request is under way; wait for its end, or take another");
    return GF_OK;
}

static gf_status data_check(gf_context *gf, struct gf_call call, gf_mem data, uint64_t elem_count,
                            gf_type type)
{
    if ((data == 0) && (elem_count > 0)) return refuse(gf, GF_ERR_PARAM, call, ": no data");
    if ((uint32_t)type >= GF_TYPE_COUNT)
        return refuse(gf, GF_ERR_PARAM, call, ": type is %d", (int)type);
    if (elem_count > UINT64_MAX / GF_COLL_ELEM_BYTES_MAX)
        return refuse(gf, GF_ERR_PARAM, call, ": too many elements");
    if ((elem_count > gf->pool.elem_count) && is_on_device(gf, data))
        return refuse(gf, GF_ERR_PARAM, call,
                      ": %llu elements of device memory; at once allowed are as many as the "
                      "pool has, %llu",
                      (unsigned long long)elem_count, (unsigned long long)gf->pool.elem_count);
    return GF_OK;
}

static gf_status reduction_check(gf_context *gf, struct gf_call call, gf_mem data)
{
    const uint32_t reduction = call.root_or_reduction;
    if (reduction >= GF_REDUCTION_COUNT)
        return refuse(gf, GF_ERR_PARAM, call, ": reduction is %u", reduction);
    if ((reduction != GF_REDUCTION_SUM) && is_on_device(gf, data))
        return refuse(gf, GF_ERR_PARAM, call, " by %s: of device memory allowed is sum",
                      gf_reduction_name(reduction));
    return GF_OK;
}

static gf_status root_check(gf_context *gf, struct gf_call call)
{
    const uint32_t root = call.root_or_reduction;
    if (root < gf->world) return GF_OK;
    return refuse(gf, GF_ERR_PARAM, call, ": root %u of %u ranks", root, gf->world);
}

static gf_status post_check(gf_context *gf, struct gf_call call, gf_mem data, uint64_t elem_count,
                            gf_type type, const struct gf_request *request)
{
    gf_status status = request_check(gf, call, request);
    if (status < 0) return status;
    status = data_check(gf, call, data, elem_count, type);
    if (status < 0) return status;
    if (call.collective == GF_COLL_ALLREDUCE) return reduction_check(gf, call, data);
    return root_check(gf, call);
}

static gf_status post(gf_context *gf, struct gf_call call, gf_mem data, uint64_t elem_count,
                      gf_type type, struct gf_request *request)
{
    gf_status status = post_check(gf, call, data, elem_count, type, request);
    struct gf_pending *pending;
    bool alone;
    if (status < 0) return status;
    pending = pending_take(gf);
    if (pending == NULL) return GF_FULL;
    pending_fill(gf, pending, call, data, elem_count, type, request);
    /* Where nothing else is under way that a poll would move, what was posted starts without
     * one. */
    alone = (gf->under_way.busy == 0) && !gf->on_device;
    if (alone) {
        requests_start(gf);
        gf_ops_begin(gf);
    }
    gf_control_call(gf->control, pending->operation, pending->type, pending->root_or_reduction,
                    pending->elem_count); /* while the flag travels */
    if (!alone) (void)gf_request_progress(gf, NULL);
    return GF_OK;
}

gf_status gf_allreduce(gf_context *gf, gf_mem data, uint64_t elem_count, gf_type type,
                       struct gf_request *request)
{
    GF_COMPUTES();
    const struct gf_call call = {GF_OPERATION_ALLREDUCE, GF_COLL_ALLREDUCE, GF_REDUCTION_SUM};
    return post(gf, call, data, elem_count, type, request);
}

static gf_status request_reduce(void *arg, gf_mem dst, gf_mem src, uint64_t elem_count)
{
    const struct gf_pending *pending = arg;
    gf_reduce_host(pending->root_or_reduction, dst, src, pending->type, elem_count);
    return GF_OK;
}

/* The only reference to the function which reduces, so a program that only sums does not link
 * it. */
gf_status gf_allreduce_by(gf_context *gf, gf_reduction reduction, gf_mem data, uint64_t elem_count,
                          gf_type type, struct gf_request *request)
{
    GF_COMPUTES();
    const struct gf_call call = {GF_OPERATION_ALLREDUCE, GF_COLL_ALLREDUCE, reduction};
    if ((reduction != GF_REDUCTION_SUM) && (gf_own(gf) == GF_OK))
        gf->requests.reduce = request_reduce;
    return post(gf, call, data, elem_count, type, request);
}

gf_status gf_broadcast(gf_context *gf, gf_mem data, uint64_t elem_count, gf_type type,
                       uint32_t root, struct gf_request *request)
{
    GF_COMPUTES();
    const struct gf_call call = {GF_OPERATION_BROADCAST, GF_COLL_BROADCAST, root};
    return post(gf, call, data, elem_count, type, request);
}

gf_status gf_reduce_scatter(gf_context *gf, gf_mem data, uint64_t elem_count, gf_type type,
                            struct gf_request *request)
{
    GF_COMPUTES();
    const struct gf_call call = {GF_OPERATION_REDUCE_SCATTER, GF_COLL_REDUCE_SCATTER, 0};
    return post(gf, call, data, elem_count, type, request);
}

gf_status gf_allgather(gf_context *gf, gf_mem data, uint64_t elem_count, gf_type type,
                       struct gf_request *request)
{
    GF_COMPUTES();
    const struct gf_call call = {GF_OPERATION_ALLGATHER, GF_COLL_ALLGATHER, 0};
    return post(gf, call, data, elem_count, type, request);
}

gf_status gf_barrier(gf_context *gf, struct gf_request *request)
{
    GF_COMPUTES();
    const struct gf_call call = {GF_OPERATION_BARRIER, GF_COLL_BARRIER, 0};
    return post(gf, call, 0, 0, GF_TYPE_F32, request);
}

/* The request's number, which stands in the tag where a buffer's does, so that calls with other
 * arguments do not meet: two that only differ in a type of the same size or in the root would
 * otherwise end well with wrong values. Of the root eight bits are in it. */
static uint32_t pending_number(const struct gf_pending *pending)
{
    _Static_assert((GF_COLL_BARRIER < 8) && (GF_TYPE_COUNT <= 4), "three bits and two");
    uint32_t number = (uint32_t)pending->collective | ((uint32_t)pending->type << 3) |
                      ((pending->root_or_reduction & 0xffu) << 5);
    return GF_TAG_BUFFER_OTHER | (1u << 13) | number;
}

static void request_done(gf_context *gf, struct gf_op *op, uint64_t now_ns)
{
    struct gf_pending *pending = op->plan.request;
    (void)gf;
    (void)now_ns;
    pending->state = GF_REQUEST_ENDED;
}

static const struct gf_op_kind request_kind = {.done = request_done};

/* pack_host holds one staged request at a time. */
bool gf_requests_use_pack_host(const gf_context *gf)
{
    for (uint32_t left = gf->requests.used; left != 0; left &= left - 1) {
        const struct gf_pending *pending = &gf->requests.of[__builtin_ctz(left)];
        if (pending->staged && (pending->state == GF_REQUEST_RUNNING)) return true;
    }
    return false;
}

/* An op takes it; false: none is free. */
static bool request_start(gf_context *gf, struct gf_pending *pending, uint64_t sequence)
{
    const uint64_t bytes = pending->elem_count * gf_type_bytes(pending->type);
    struct gf_op *op = gf_op_seek(gf);
    struct gf_op_plan *plan;
    struct gf_coll_plan *coll;
    if (op == NULL) return false;
    plan = &op->plan;
    coll = &op->coll.plan;
    *plan = (struct gf_op_plan){
        .kind = &request_kind,
        .operation = pending->operation,
        .number = (uint32_t)sequence,
        .algorithm = gf_choose(gf, pending->collective, bytes),
        .packed = pending->data,
        .request = pending,
    };
    *coll = (struct gf_coll_plan){
        .collective = pending->collective,
        .type = pending->type,
        .elem_count = pending->elem_count,
        .data = pending->staged ? gf->pack_host : pending->data,
        .tag = gf_tag(gf->generation, sequence, pending_number(pending)),
    };
    if (pending->collective == GF_COLL_BROADCAST) coll->root = pending->root_or_reduction;
    if ((pending->collective == GF_COLL_ALLREDUCE) &&
        (pending->root_or_reduction != GF_REDUCTION_SUM)) {
        coll->reduce = gf->requests.reduce;
        coll->reduce_arg = pending;
        coll->reduce_number = pending->root_or_reduction;
        coll->reduce_elem_bytes = gf_type_size_bytes(pending->type);
        /* hierarchy only sums */
        if (plan->algorithm == GF_ALGORITHM_HIERARCHY) plan->algorithm = GF_ALGORITHM_HALVING;
    }
    gf_op_take(gf, op);
    return true;
}

/* Starts the oldest that wait. */
static void requests_start(gf_context *gf)
{
    for (; gf->requests.started < gf->requests.posted; gf->requests.started++) {
        struct gf_pending *next = gf->requests.queue[gf->requests.started % GF_REQUESTS_MAX];
        if (next->staged && gf_requests_use_pack_host(gf)) return;
        if (!request_start(gf, next, gf->requests.started + 1)) return;
        next->state = GF_REQUEST_RUNNING;
    }
}

gf_status gf_request_progress(gf_context *gf, void *pending)
{
    uint64_t now_ns = gf_poll_begin(gf);
    if ((gf->error.code != GF_OK) || (gf_progress(gf, now_ns) < 0))
        return gf_failing_poll(gf, now_ns);
    if (gf->requests.started < gf->requests.posted) requests_start(gf);
    gf_device_calls_begin(gf);
    (void)gf_ops_progress(gf, now_ns);
    gf_device_calls_end(gf, gf_doing(gf));
    if (gf->error.code != GF_OK) return gf_failing_poll(gf, now_ns);
    return ((pending != NULL) && (((struct gf_pending *)pending)->state == GF_REQUEST_ENDED))
               ? GF_OK
               : GF_AGAIN;
}

/* The slow path of request_enter(): there is no such request, or the context fails and this poll
 * moves the failure on. */
static struct gf_pending *request_seek(gf_context *gf, const struct gf_request *request,
                                       const char *call, gf_status *status_out)
{
    struct gf_pending *pending;
    if ((*status_out = gf_enter_poll(gf)) < 0) return NULL;
    if ((pending = pending_of(gf, request)) != NULL) return pending;
    *status_out = gf->error.code;
    if (*status_out == GF_OK)
        *status_out = gf_refuse(gf, GF_ERR_PARAM, "%s: no such request is under way", call);
    return NULL;
}

/* The entry of this request; NULL: what the call answers is in *status_out. */
static inline struct gf_pending *request_enter(gf_context *gf, const struct gf_request *request,
                                               const char *call, gf_status *status_out)
{
    struct gf_pending *pending = gf_is_well(gf) ? pending_of(gf, request) : NULL;
    return (pending != NULL) ? pending : request_seek(gf, request, call, status_out);
}

/* An answer other than GF_AGAIN frees the request's entry. */
static gf_status request_answer(gf_context *gf, const struct gf_pending *pending, gf_status status)
{
    if (status != GF_AGAIN) pending_free(gf, pending);
    return status;
}

gf_status gf_request_poll(gf_context *gf, struct gf_request *request)
{
    GF_COMPUTES();
    gf_status status = GF_OK;
    struct gf_pending *pending = request_enter(gf, request, "gf_request_poll", &status);
    return (pending == NULL) ? status
                             : request_answer(gf, pending, gf_request_progress(gf, pending));
}

static gf_status request_wait(gf_context *gf, const struct gf_request *request, uint64_t bound_ns,
                              const char *call)
{
    gf_status status = GF_OK;
    struct gf_pending *pending = request_enter(gf, request, call, &status);
    return (pending == NULL)
               ? status
               : request_answer(gf, pending,
                                gf_wait_for(gf, gf_request_progress, pending, bound_ns));
}

gf_status gf_request_wait(gf_context *gf, struct gf_request *request)
{
    GF_COMPUTES();
    return request_wait(gf, request, GF_WAIT_UNBOUNDED, "gf_request_wait");
}

gf_status gf_request_wait_for(gf_context *gf, struct gf_request *request, uint64_t bound_ns)
{
    GF_COMPUTES();
    return request_wait(gf, request, bound_ns, "gf_request_wait_for");
}

void gf_requests_reset(gf_context *gf, uint64_t posted)
{
    gf->requests.used = 0;
    gf->requests.posted = gf->requests.started = posted;
}

gf_operation gf_requests_doing(const gf_context *gf)
{
    for (uint32_t left = gf->requests.used; left != 0; left &= left - 1) {
        const struct gf_pending *pending = &gf->requests.of[__builtin_ctz(left)];
        if (pending->state == GF_REQUEST_RUNNING) return pending->operation;
    }
    return GF_OPERATION_NONE;
}
