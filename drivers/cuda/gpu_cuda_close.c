/* The CUDA driver: closing. A call that frees memory waits for all work of the context, the
 * appliance's work too. Where that work does not end nothing is freed, and the end of the process
 * frees it. */
#include "drivers/base/clock.h"
#include "drivers/cuda/gpu_cuda.h"

/* All that the context holds now, as far as this driver can tell: before 12.5 the streams that its
 * default stream waits for. That one has no answer while such a stream captures; cuCtxRecordEvent()
 * would end the capture, and does end one of a non-blocking stream, of which nothing tells. */
static CUresult all_record(struct cuda_gpu *cuda)
{
    CUstreamCaptureStatus capturing = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = cuda->calls.stream_capturing(CU_STREAM_LEGACY, &capturing);
    if (result != CUDA_SUCCESS) return result;
    if (cuda->context_record != NULL) return cuda->context_record(cuda->context, cuda->cross);
    return cuda->calls.event_record(cuda->cross, CU_STREAM_LEGACY);
}

/* A context that is lost says so at every call, and its work is over. An error that is gone at the
 * next look was about something else. */
static bool ended(struct cuda_gpu *cuda, CUstream stream, uint64_t end_ns)
{
    for (uint32_t errors = 0; errors < 2;) {
        CUresult result = (stream == NULL) ? cuda->calls.event_query(cuda->cross)
                                           : cuda->calls.stream_query(stream);
        if (result == CUDA_SUCCESS) return true;
        if (result != CUDA_ERROR_NOT_READY) errors++;
        if (gf_clock_monotonic.now_ns(NULL) > end_ns) return false;
    }
    return true;
}

bool gf_cuda_idle(struct cuda_gpu *cuda, bool all)
{
    uint64_t most_ns = cuda->hangs ? 0 : cuda->idle_ns;
    uint64_t end_ns = gf_clock_monotonic.now_ns(NULL) + most_ns;
    bool idle = true;
    for (uint32_t i = 0; (i < GF_STREAM_COUNT) && (cuda->streams[i] != NULL) && idle; i++)
        idle = ended(cuda, cuda->streams[i], end_ns);
    if (idle && all && (cuda->cross != NULL) && (all_record(cuda) == CUDA_SUCCESS))
        idle = ended(cuda, NULL, end_ns);
    if (!idle && !cuda->hangs)
        gf_log_line(&cuda->log, GF_LOG_WARN,
                    "device %d: work on it has not ended in %u ms: what would wait for "
                    "that is left to the end of the process: %zu bytes of its memory, host memory "
                    "that it was told "
                    "of, memory of other ranks",
                    (int)cuda->device, (unsigned)(most_ns / 1000000u), cuda->arena_bytes);
    cuda->hangs = !idle;
    return idle;
}

static void fault_log(const struct cuda_gpu *cuda, const struct gf_fault *fault)
{
    gf_log_line(&cuda->log, GF_LOG_WARN, "closing: %s", fault->text);
}

bool gf_cuda_enter_last(struct cuda_gpu *cuda)
{
    bool entered = false;
    for (int tries = 0; (tries < 2) && !entered; tries++) {
        struct gf_fault fault = {.code = GF_OK};
        entered = gf_cuda_push(cuda, &fault) >= 0;
        if (!entered) fault_log(cuda, &fault);
    }
    return entered;
}

void gf_cuda_leave_last(struct cuda_gpu *cuda)
{
    struct gf_fault fault = {.code = GF_OK};
    if (gf_cuda_pop(cuda, &fault) < 0) fault_log(cuda, &fault);
}

void gf_cuda_given(struct cuda_gpu *cuda, CUresult result, const char *call)
{
    struct gf_fault fault = {.code = GF_OK};
    if (gf_cuda_result(cuda, result, call, &fault) < 0) fault_log(cuda, &fault);
}

/* Also of an open that failed half way. */
void gf_cuda_give_back(struct cuda_gpu *cuda)
{
    if (cuda->context == NULL) return;
    bool entered = gf_cuda_enter_last(cuda);
    if (entered && !gf_cuda_idle(cuda, true)) {
        gf_cuda_leave_last(cuda);
        return;
    }
    if (cuda->module != NULL) CUDA_GIVEN(cuda, module_unload, cuda->module);
    for (uint32_t i = 0; i < cuda->event_count; i++)
        if (cuda->events[i] != NULL) CUDA_GIVEN(cuda, event_destroy, cuda->events[i]);
    if (cuda->cross != NULL) CUDA_GIVEN(cuda, event_destroy, cuda->cross);
    gf_cuda_stage_give(cuda);
    for (uint32_t i = 0; i < GF_STREAM_COUNT; i++)
        if (cuda->streams[i] != NULL) CUDA_GIVEN(cuda, stream_destroy, cuda->streams[i]);
    gf_cuda_arena_give(cuda);
    if (entered) gf_cuda_leave_last(cuda);
    CUDA_GIVEN(cuda, context_release, cuda->device);
    cuda->context = NULL;
}
