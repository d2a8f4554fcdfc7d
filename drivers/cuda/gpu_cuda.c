/* A GPU through the CUDA driver API alone. Every call enters the device's primary context and
 * leaves it again, so that the caller's own current context stays what it was. Streams that are
 * handed in are of the primary context (as all of the CUDA runtime's are); handle 0 is its default
 * stream. */
#include <string.h>

#include "drivers/cuda/gpu_cuda.h"

static CUstream stream_of(gf_queue_handle handle)
{
    return (CUstream)(uintptr_t)handle;
}

static size_t cuda_state_bytes(const struct gf_gpu_setup *setup)
{
    return sizeof(struct cuda_gpu) + setup->events_max * sizeof(CUevent) +
           setup->kernels.count * (sizeof(CUfunction) + sizeof(uint32_t));
}

static gf_status cuda_open(const struct gf_gpu_setup *setup, void *state, struct gf_gpu **gpu_out,
                           struct gf_fault *fault_out)
{
    struct cuda_gpu *cuda = state;
    memset(state, 0, cuda_state_bytes(setup));
    cuda->gpu.driver = &gf_gpu_cuda;
    cuda->gpu.ops = setup->kernels.ops;
    cuda->gpu.fault.peer = GF_RANK_NONE;
    cuda->log = setup->log;
    cuda->idle_ns =
        (setup->idle_ns > 0) && (setup->idle_ns < CUDA_IDLE_NS) ? setup->idle_ns : CUDA_IDLE_NS;
    cuda->event_count = setup->events_max;
    cuda->kernel_count = (setup->kernels.image != NULL) ? setup->kernels.count : 0;
    cuda->events = (CUevent *)(void *)(cuda + 1);
    cuda->kernels = (CUfunction *)(void *)(cuda->events + cuda->event_count);
    cuda->blocks = (uint32_t *)(void *)(cuda->kernels + cuda->kernel_count);
    cuda->gpu.blocks = cuda->blocks;
    gf_status status = gf_cuda_load(cuda, setup->library);
    if (status >= 0) status = gf_cuda_take(cuda, setup);
    if (status < 0) {
        *fault_out = cuda->gpu.fault;
        gf_cuda_give_back(cuda);
        gf_cuda_unload(cuda);
        return status;
    }
    *gpu_out = &cuda->gpu;
    return GF_OK;
}

static void cuda_close(struct gf_gpu *gpu)
{
    gf_cuda_give_back(cuda_of(gpu));
    gf_cuda_unload(cuda_of(gpu));
}

gf_status gf_cuda_push(struct cuda_gpu *cuda, struct gf_fault *fault_out)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUcontext popped;
    if (cuda->entered > 0) {
        cuda->entered++;
        return GF_OK;
    }
    gf_status status = CUDA_CALL(cuda, fault_out, context_push, cuda->context);
    if (status < 0) return status;
    status = CUDA_CALL(cuda, fault_out, capture_mode, &mode);
    if (status < 0) {
        (void)cuda->calls.context_pop(&popped);
        return status;
    }
    cuda->mode_before = mode;
    cuda->stays = cuda->calls_depth > 0;
    cuda->entered = cuda->stays ? 2 : 1;
    return GF_OK;
}

gf_status gf_cuda_pop(struct cuda_gpu *cuda, struct gf_fault *fault_out)
{
    CUcontext popped;
    if (--cuda->entered > 0) return GF_OK;
    gf_status restored = CUDA_CALL(cuda, fault_out, capture_mode, &cuda->mode_before);
    gf_status status = CUDA_CALL(cuda, fault_out, context_pop, &popped);
    return (restored < 0) ? restored : status;
}

gf_status gf_cuda_enter(struct cuda_gpu *cuda)
{
    return gf_cuda_push(cuda, &cuda->gpu.fault);
}

gf_status gf_cuda_leave(struct cuda_gpu *cuda, gf_status status)
{
    gf_status left = gf_cuda_pop(cuda, &cuda->gpu.fault);
    return ((status >= 0) && (left < 0)) ? left : status;
}

/* One call within the context. */
#define CUDA_WITHIN(cuda, member, ...)         \
    ((gf_cuda_enter(cuda) < 0) ? GF_ERR_DEVICE \
                               : gf_cuda_leave(cuda, CUDA_TOLD(cuda, member, __VA_ARGS__)))

/* A stream of the appliance that captures would take the library's waits into a graph, to be waited
 * for whenever that runs. */
static gf_status capture_check(struct cuda_gpu *cuda, CUstream stream)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = cuda->calls.stream_capturing(stream, &capturing);
    if ((result != CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) &&
        ((result != CUDA_SUCCESS) || (capturing == CU_STREAM_CAPTURE_STATUS_NONE)))
        return gf_cuda_result(cuda, result, gf_cuda_names.stream_capturing, &cuda->gpu.fault);
    return gf_fault_set(
        &cuda->gpu.fault, GF_ERR_STATE, GF_RANK_NONE, "cuStreamIsCapturing", result,
        "device %d: %s captures a graph: give a stream that does not, or end the capture before",
        (int)cuda->device,
        (result == CUDA_SUCCESS) ? "the stream that was given"
                                 : "a stream that the default stream waits for");
}

static bool is_own(const struct cuda_gpu *cuda, CUstream stream)
{
    bool found = false;
    for (uint32_t i = 0; i < GF_STREAM_COUNT; i++) found = found || (cuda->streams[i] == stream);
    return found;
}

static gf_status cuda_host_unregister(struct gf_gpu *gpu, void *base)
{
    struct cuda_gpu *cuda = cuda_of(gpu);
    bool entered = gf_cuda_enter_last(cuda);
    bool idle = !entered || gf_cuda_idle(cuda, true); /* the caller may unmap it now */
    if (idle && (base != NULL) && !gf_cuda_stage_remove(cuda, base))
        CUDA_GIVEN(cuda, host_unregister, base);
    if (entered) gf_cuda_leave_last(cuda);
    if (idle) return GF_OK;
    return gf_fault_set(&gpu->fault, GF_ERR_DEVICE, GF_RANK_NONE, "", 0,
                        "device %d: work on it does not end", (int)cuda->device);
}

static gf_status cuda_host_register(struct gf_gpu *gpu, void *base, size_t size_bytes)
{
    struct cuda_gpu *cuda = cuda_of(gpu);
    gf_status status = gf_cuda_enter(cuda);
    if (status < 0) return status;
    CUresult result = cuda->calls.host_register(
        base, size_bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
    status = gf_cuda_result(cuda, result, gf_cuda_names.host_register, &gpu->fault);
    /* portable: for this context too */
    if (result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
        status = GF_ERR_STATE;
    else if (status < 0)
        status = gf_cuda_stage_add(cuda, base, size_bytes);
    const gf_status registered = status;
    status = gf_cuda_leave(cuda, status);
    /* Where it was registered and the context could not be left: the caller holds what failed for
     * not registered. */
    if ((registered >= 0) && (status < 0)) (void)cuda_host_unregister(gpu, base);
    return status;
}

/* Which way is told by the addresses: with registered memory used as it is, all of them are of one
 * space. */
static gf_status cuda_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, size_t size_bytes)
{
    struct cuda_gpu *cuda = cuda_of(queue->gpu);
    if ((size_bytes == 0) || (dst == src)) return GF_OK;
    gf_status status = gf_cuda_enter(cuda);
    if (status < 0) return status;
    if (!is_own(cuda, stream_of(queue->stream)))
        status = capture_check(cuda, stream_of(queue->stream));
    if (status >= 0)
        status = cuda->stages
                     ? gf_cuda_stage_copy(cuda, stream_of(queue->stream), dst, src, size_bytes)
                     : CUDA_TOLD(cuda, copy, dst, src, size_bytes, stream_of(queue->stream));
    return gf_cuda_leave(cuda, status);
}

/* Of memory that CUDA was not told of there is no answer. */
static bool cuda_is_device(struct gf_gpu *gpu, gf_mem address)
{
    struct cuda_gpu *cuda = cuda_of(gpu);
    CUmemorytype type = 0;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    gf_status status = gf_cuda_enter(cuda);
    if (status >= 0) {
        result = cuda->calls.pointer_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
        status = gf_cuda_leave(cuda, GF_OK);
    }
    if (status < 0) gf_log_line(&cuda->log, GF_LOG_WARN, "%s", gpu->fault.text);
    return (result == CUDA_SUCCESS) && (type == CU_MEMORYTYPE_DEVICE);
}

static gf_status cuda_zero(struct gf_queue *queue, gf_mem dst, size_t size_bytes)
{
    struct cuda_gpu *cuda = cuda_of(queue->gpu);
    return (size_bytes == 0) ? GF_OK
                             : CUDA_WITHIN(cuda, set, dst, 0, size_bytes, stream_of(queue->stream));
}

static gf_status cuda_launch(struct gf_queue *queue, uint32_t kernel, uint32_t blocks,
                             uint32_t threads, void **args)
{
    struct cuda_gpu *cuda = cuda_of(queue->gpu);
    GF_ASSERT(kernel < cuda->kernel_count);
    GF_ASSERT((blocks > 0) && (threads > 0));
    return CUDA_WITHIN(cuda, launch, cuda->kernels[kernel], blocks, 1, 1, threads, 1, 1, 0,
                       stream_of(queue->stream), args, NULL);
}

static gf_status cuda_stream_wait(struct gf_queue *queue, gf_queue_handle other)
{
    struct cuda_gpu *cuda = cuda_of(queue->gpu);
    CUstream later = stream_of(other);
    if (queue->stream == other) return GF_OK;
    gf_status status = gf_cuda_enter(cuda);
    if (status < 0) return status;
    status = capture_check(cuda, later);
    if (status >= 0) status = CUDA_TOLD(cuda, event_record, cuda->cross, stream_of(queue->stream));
    if (status >= 0)
        status = CUDA_TOLD(cuda, stream_wait, later, cuda->cross, CU_EVENT_WAIT_DEFAULT);
    return gf_cuda_leave(cuda, status);
}

static gf_status cuda_event_record(struct gf_queue *queue, uint32_t event)
{
    struct cuda_gpu *cuda = cuda_of(queue->gpu);
    GF_ASSERT(event < cuda->event_count);
    gf_status status = gf_cuda_enter(cuda);
    if (status < 0) return status;
    if (!is_own(cuda, stream_of(queue->stream)))
        status = capture_check(cuda, stream_of(queue->stream));
    if (status >= 0)
        status = CUDA_TOLD(cuda, event_record, cuda->events[event], stream_of(queue->stream));
    return gf_cuda_leave(cuda, status);
}

/* Of work whose end was seen: what it has copied to host memory is there from now on. */
static gf_status seen(struct cuda_gpu *cuda, gf_status status)
{
    if ((status != GF_OK) || !cuda->stages) return status;
    status = gf_cuda_enter(cuda);
    return (status < 0) ? status : gf_cuda_leave(cuda, gf_cuda_stage_arrived(cuda));
}

static gf_status cuda_event_query(struct gf_gpu *gpu, uint32_t event)
{
    struct cuda_gpu *cuda = cuda_of(gpu);
    GF_ASSERT(event < cuda->event_count);
    return seen(cuda, CUDA_WITHIN(cuda, event_query, cuda->events[event]));
}

static gf_status cuda_their_event_query(struct gf_gpu *gpu, gf_event_handle event)
{
    return CUDA_WITHIN(cuda_of(gpu), event_query, (CUevent)(uintptr_t)event);
}

static gf_status cuda_finished(struct gf_queue *queue)
{
    struct cuda_gpu *cuda = cuda_of(queue->gpu);
    return seen(cuda, CUDA_WITHIN(cuda, stream_query, stream_of(queue->stream)));
}

static gf_status cuda_enter(struct gf_gpu *gpu)
{
    return gf_cuda_enter(cuda_of(gpu));
}

static gf_status cuda_leave(struct gf_gpu *gpu)
{
    return gf_cuda_leave(cuda_of(gpu), GF_OK);
}

static void cuda_calls_begin(struct gf_gpu *gpu)
{
    cuda_of(gpu)->calls_depth++;
}

static gf_status cuda_calls_end(struct gf_gpu *gpu)
{
    struct cuda_gpu *cuda = cuda_of(gpu);
    if ((--cuda->calls_depth > 0) || !cuda->stays) return GF_OK;
    cuda->stays = false;
    return gf_cuda_leave(cuda, GF_OK);
}

const struct gf_gpu_driver gf_gpu_cuda = {
    .name = "cuda",
    .state_bytes = cuda_state_bytes,
    .open = cuda_open,
    .close = cuda_close,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .copy = cuda_copy,
    .host_reach = gf_cuda_stage_reach,
    .is_device = cuda_is_device,
    .zero = cuda_zero,
    .launch = cuda_launch,
    .stream_wait = cuda_stream_wait,
    .event_record = cuda_event_record,
    .event_query = cuda_event_query,
    .their_event_query = cuda_their_event_query,
    .finished = cuda_finished,
    .export_arena = gf_cuda_export,
    .import_arena = gf_cuda_import,
    .give_back = gf_cuda_give_back_exports,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .calls_begin = cuda_calls_begin,
    .calls_end = cuda_calls_end,
};
