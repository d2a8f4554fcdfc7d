/* The calls of the fake CUDA driver. */
#ifndef FAKE_CUDA_CALLS_H
#define FAKE_CUDA_CALLS_H

#include "firmware-tests/cuda/fake_cuda_state.h"

/* As cuGetProcAddress() is asked for them, and as cuda.h declares them (some with another number
 * behind). */
/* clang-format off */
#define FAKE_CALLS(X) \
    X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuDeviceGetCount) X(cuDeviceGet) \
    X(cuDeviceGetName) X(cuDeviceGetAttribute) X(cuDeviceGetUuid) \
    X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxPushCurrent) \
    X(cuCtxPopCurrent) X(cuCtxRecordEvent) X(cuThreadExchangeStreamCaptureMode) \
    X(cuStreamIsCapturing) X(cuMemGetInfo) X(cuMemAlloc) X(cuMemFree) X(cuMemHostAlloc) \
    X(cuMemFreeHost) X(cuMemHostRegister) \
    X(cuMemHostUnregister) X(cuCtxGetStreamPriorityRange) X(cuStreamCreateWithPriority) \
    X(cuStreamDestroy) X(cuStreamQuery) X(cuStreamWaitEvent) X(cuEventCreate) \
    X(cuEventDestroy) X(cuEventRecord) X(cuEventQuery) X(cuMemcpyAsync) X(cuMemsetD8Async) \
    X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuLaunchKernel) \
    X(cuMemGetAllocationGranularity) X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve) \
    X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess) \
    X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle) \
    X(cuPointerGetAttribute)
/* clang-format on */
/* Of gpu-bench, not of the library's driver. */
#define FAKE_CALLS_OTHER(X) X(cuEventElapsedTime)

/* A call that is counted, may be made to fail, and is else handed on. */
#define HAND_ON(function, entered, parameters, call)       \
    CUresult function parameters                           \
    {                                                      \
        CUresult result = entered;                         \
        return (result != CUDA_SUCCESS) ? result : (call); \
    }
/* What gives back does it even when it tells of a failure: it is that of something earlier. */
#define GIVE_BACK(function, parameters, call)                    \
    CUresult function parameters                                 \
    {                                                            \
        CUresult result = fake_enter(#function), given = (call); \
        return (result != CUDA_SUCCESS) ? result : given;        \
    }

#endif
