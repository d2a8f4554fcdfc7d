/* The fake CUDA driver: what is queued. */
#include <string.h>

#include "firmware-tests/cuda/fake_cuda_calls.h"

#define GREATEST (-5) /* of a stream; less is more */
#define MODULE ((CUmodule)(uintptr_t)0xf00d0000u)

static uint32_t modules;
static uint64_t launches, copies;

uint64_t fake_launches(void)
{
    return launches;
}
uint64_t fake_copies(void)
{
    return copies;
}
void fake_modules_count(struct fake_cuda_live *live)
{
    live->modules = modules;
}
void fake_modules_forget(void)
{
    modules = 0;
}

/* Of work on a stream: it is of the current context, and takes none down in a graph. */
CUresult fake_enter_stream(const char *call, CUstream handle, uint32_t *stream_out)
{
    CUresult result = fake_enter_current(call);
    if (result != CUDA_SUCCESS) return result;
    if (!fake_stream_find(handle, stream_out)) return CUDA_ERROR_INVALID_HANDLE;
    CUcontext context = fake_stream_context(*stream_out);
    if ((context != NULL) && (context != fake_current())) {
        fake_trouble("%s on a stream of another context", call);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (fake_captures(*stream_out)) fake_trouble("%s on a stream that captures", call);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least_out, int *greatest_out)
{
    CUresult result = fake_enter_current("cuCtxGetStreamPriorityRange");
    if (result != CUDA_SUCCESS) return result;
    *least_out = 0;
    *greatest_out = GREATEST;
    return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *stream_out, unsigned flags, int priority)
{
    CUresult result = fake_enter_current("cuStreamCreateWithPriority");
    if (result != CUDA_SUCCESS) return result;
    if (priority != GREATEST) fake_trouble("a stream of the library behind those of the appliance");
    if (flags != CU_STREAM_NON_BLOCKING) fake_trouble("a stream that the default stream waits for");
    return fake_stream_create(stream_out, fake_current());
}

GIVE_BACK(cuStreamDestroy, (CUstream stream), fake_stream_destroy(stream))

CUresult cuStreamQuery(CUstream handle)
{
    uint32_t stream;
    CUresult result = fake_enter_stream("cuStreamQuery", handle, &stream);
    if (result == CUDA_SUCCESS) result = fake_capture_unsafe("cuStreamQuery");
    if (result != CUDA_SUCCESS) return result;
    return fake_stream_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags)
{
    uint32_t stream;
    CUresult result = fake_enter_stream("cuStreamWaitEvent", handle, &stream);
    return (result != CUDA_SUCCESS) ? result : fake_event_wait(event, stream);
}

HAND_ON(cuEventCreate, fake_enter_current("cuEventCreate"), (CUevent * event_out, unsigned flags),
        fake_event_create(event_out, fake_current(), (flags & CU_EVENT_DISABLE_TIMING) == 0))
HAND_ON(cuEventElapsedTime, fake_enter_current("cuEventElapsedTime"),
        (float *ms_out, CUevent begin, CUevent end), fake_event_elapsed(ms_out, begin, end))
GIVE_BACK(cuEventDestroy, (CUevent event), fake_event_destroy(event))

CUresult cuEventRecord(CUevent event, CUstream handle)
{
    uint32_t stream;
    CUresult result = fake_enter_stream("cuEventRecord", handle, &stream);
    return (result != CUDA_SUCCESS) ? result : fake_event_record(event, stream);
}

/* Of a call that breaks the capture of another thread. */
static CUresult enter_safe(const char *call, CUresult entered)
{
    return (entered != CUDA_SUCCESS) ? entered : fake_capture_unsafe(call);
}
HAND_ON(cuCtxRecordEvent, fake_capture_break("cuCtxRecordEvent", fake_enter("cuCtxRecordEvent")),
        (CUcontext context, CUevent event), fake_event_record_all(event, context))
HAND_ON(cuEventQuery, enter_safe("cuEventQuery", fake_enter_current("cuEventQuery")),
        (CUevent event), fake_event_query(event))

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t size_bytes, CUstream handle)
{
    uint32_t stream;
    CUresult result = fake_enter_stream("cuMemcpyAsync", handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!fake_is_known(dst, size_bytes) || !fake_is_known(src, size_bytes)) {
        fake_trouble("cuMemcpyAsync of %zu bytes from 0x%llx to 0x%llx: not all of it is device or "
                     "registered memory",
                     size_bytes, (unsigned long long)src, (unsigned long long)dst);
        return CUDA_ERROR_INVALID_VALUE;
    }
    copies++;
    fake_queue_add(
        stream,
        &(struct work){.kind = WORK_COPY, .dst = dst, .src = src, .size_bytes = size_bytes});
    return CUDA_SUCCESS;
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t count, CUstream handle)
{
    uint32_t stream;
    CUresult result = fake_enter_stream("cuMemsetD8Async", handle, &stream);
    if (result != CUDA_SUCCESS) return result;
    if (!fake_is_known(dst, count)) return CUDA_ERROR_INVALID_VALUE;
    fake_queue_add(
        stream, &(struct work){.kind = WORK_SET, .dst = dst, .size_bytes = count, .value = value});
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module_out, const void *image)
{
    CUresult result = fake_enter_current("cuModuleLoadData");
    if (result == CUDA_SUCCESS) result = fake_capture_unsafe("cuModuleLoadData");
    if (result == CUDA_SUCCESS) result = fake_image_check(image);
    if (result != CUDA_SUCCESS) return result;
    modules++;
    *module_out = MODULE;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    CUresult result = fake_enter("cuModuleUnload");
    fake_synchronise("cuModuleUnload");
    if ((module != MODULE) || (modules == 0))
        fake_trouble("a module is unloaded that is none");
    else
        modules--;
    return result;
}

CUresult cuModuleGetFunction(CUfunction *function_out, CUmodule module, const char *name)
{
    CUresult result = fake_enter_current("cuModuleGetFunction");
    if (result != CUDA_SUCCESS) return result;
    const struct fake_kernel *kernel = fake_kernel_find(name);
    if ((module != MODULE) || (kernel == NULL)) return CUDA_ERROR_NOT_FOUND;
    *function_out = (CUfunction)(uintptr_t)kernel;
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks_out, CUfunction function,
                                                     int threads, size_t shared_bytes)
{
    CUresult result = fake_enter_current("cuOccupancyMaxActiveBlocksPerMultiprocessor");
    if (result != CUDA_SUCCESS) return result;
    if ((function == NULL) || (threads < 1) || (threads > 1024) || (shared_bytes != 0))
        return CUDA_ERROR_INVALID_VALUE;
    *blocks_out = FAKE_CUDA_BLOCKS;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream handle, void **params, void **extra)
{
    struct work work = {.kind = WORK_KERNEL, .blocks = grid_x, .threads = block_x};
    CUresult result = fake_enter_stream("cuLaunchKernel", handle, &work.stream);
    if (result != CUDA_SUCCESS) return result;
    if ((grid_x == 0) || (block_x == 0) || (block_x > 1024) ||
        (grid_y * grid_z * block_y * block_z != 1) || (shared_bytes != 0) || (extra != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    work.kernel = (const struct fake_kernel *)(uintptr_t)function;
    memcpy(work.args, params[0], work.kernel->args_bytes);
    if (fake_is_tools(work.kernel->name)) fake_others_launch(work.stream);
    fake_queue_add(work.stream, &work);
    launches++;
    fake_tell(work.kernel->name);
    fake_launched(work.stream);
    return CUDA_SUCCESS;
}
