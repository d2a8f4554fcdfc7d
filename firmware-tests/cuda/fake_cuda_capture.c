/* The fake CUDA driver: another thread captures a stream into a graph. Calls that might wait for
 * what is captured break it, in the strictest mode on whatever thread they are made, unless that
 * thread has said that it knows. */
#include "firmware-tests/cuda/fake_cuda_calls.h"

static struct {
    bool active, broken;
    uint32_t stream;
} capture;
static _Thread_local CUstreamCaptureMode own_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

void fake_capture_begin(CUstream handle)
{
    capture.active = fake_stream_find(handle, &capture.stream);
    capture.broken = false;
}

bool fake_capture_end(uint64_t handle)
{
    bool whole = capture.active && !capture.broken;
    capture.active = false;
    return whole;
}

void fake_capture_forget(void)
{
    capture.active = false;
}

bool fake_captures(uint32_t stream)
{
    return capture.active && (capture.stream == stream);
}

CUresult fake_capture_break(const char *call, CUresult entered)
{
    if (!capture.active || (entered != CUDA_SUCCESS)) return entered;
    capture.broken = true;
    fake_trouble("%s breaks another thread's capture", call);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult fake_capture_unsafe(const char *call)
{
    return (own_mode == CU_STREAM_CAPTURE_MODE_RELAXED) ? CUDA_SUCCESS
                                                        : fake_capture_break(call, CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult result = fake_enter("cuThreadExchangeStreamCaptureMode");
    if (result != CUDA_SUCCESS) return result;
    CUstreamCaptureMode before = own_mode;
    own_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* The legacy default stream waits for streams like the one that captures: it has no answer then. */
CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status_out)
{
    uint32_t stream;
    CUresult result = fake_enter_current("cuStreamIsCapturing");
    if (result != CUDA_SUCCESS) return result;
    if (!fake_stream_find(handle, &stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (capture.active && (stream == 0)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *status_out =
        fake_captures(stream) ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}
