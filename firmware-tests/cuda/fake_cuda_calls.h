/* The calls of the fake CUDA driver: each has the prototype that cuda.h has. */
#ifndef FAKE_CUDA_CALLS_H
#define FAKE_CUDA_CALLS_H

#include "firmware-tests/cuda/fake_cuda_state.h"

/* X(name as cuGetProcAddress() is asked for it, function here, symbol of cuda.h) */
#define FAKE_CALLS(X) \
    X("cuInit", fake_init, cuInit) \
    X("cuDriverGetVersion", fake_driver_version, cuDriverGetVersion) \
    X("cuGetErrorName", fake_error_name, cuGetErrorName) \
    X("cuDeviceGetCount", fake_device_count, cuDeviceGetCount) \
    X("cuDeviceGet", fake_device_get, cuDeviceGet) \
    X("cuDeviceGetName", fake_device_name, cuDeviceGetName) \
    X("cuDeviceGetAttribute", fake_device_attribute, cuDeviceGetAttribute) \
    X("cuDeviceGetUuid", fake_device_uuid, cuDeviceGetUuid_v2) \
    X("cuDeviceGetPCIBusId", fake_device_pci, cuDeviceGetPCIBusId) \
    X("cuDevicePrimaryCtxRetain", fake_context_retain, cuDevicePrimaryCtxRetain) \
    X("cuDevicePrimaryCtxRelease", fake_context_release, cuDevicePrimaryCtxRelease_v2) \
    X("cuCtxPushCurrent", fake_context_push, cuCtxPushCurrent_v2) \
    X("cuCtxPopCurrent", fake_context_pop, cuCtxPopCurrent_v2) \
    X("cuCtxRecordEvent", fake_context_record, cuCtxRecordEvent) \
    X("cuThreadExchangeStreamCaptureMode", fake_capture_mode, cuThreadExchangeStreamCaptureMode) \
    X("cuStreamIsCapturing", fake_stream_capturing, cuStreamIsCapturing) \
    X("cuMemGetInfo", fake_memory_info_call, cuMemGetInfo_v2) \
    X("cuMemAlloc", fake_memory_take_call, cuMemAlloc_v2) \
    X("cuMemFree", fake_memory_give_call, cuMemFree_v2) \
    X("cuMemHostRegister", fake_host_register, cuMemHostRegister_v2) \
    X("cuMemHostUnregister", fake_host_unregister, cuMemHostUnregister) \
    X("cuCtxGetStreamPriorityRange", fake_priorities, cuCtxGetStreamPriorityRange) \
    X("cuStreamCreateWithPriority", fake_stream_create_call, cuStreamCreateWithPriority) \
    X("cuStreamDestroy", fake_stream_destroy_call, cuStreamDestroy_v2) \
    X("cuStreamQuery", fake_stream_query, cuStreamQuery) \
    X("cuStreamWaitEvent", fake_stream_wait, cuStreamWaitEvent) \
    X("cuEventCreate", fake_event_create_call, cuEventCreate) \
    X("cuEventDestroy", fake_event_destroy_call, cuEventDestroy_v2) \
    X("cuEventRecord", fake_event_record_call, cuEventRecord) \
    X("cuEventQuery", fake_event_query_call, cuEventQuery) \
    X("cuMemcpyAsync", fake_copy, cuMemcpyAsync) \
    X("cuMemsetD8Async", fake_set, cuMemsetD8Async) \
    X("cuModuleLoadData", fake_module_load, cuModuleLoadData) \
    X("cuModuleUnload", fake_module_unload, cuModuleUnload) \
    X("cuModuleGetFunction", fake_module_function, cuModuleGetFunction) \
    X("cuOccupancyMaxActiveBlocksPerMultiprocessor", fake_occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor) \
    X("cuLaunchKernel", fake_launch, cuLaunchKernel) \
    X("cuStreamBatchMemOp", fake_flags, cuStreamBatchMemOp) \
    X("cuMemGetAllocationGranularity", fake_grain, cuMemGetAllocationGranularity) \
    X("cuMemCreate", fake_create, cuMemCreate) \
    X("cuMemRelease", fake_release, cuMemRelease) \
    X("cuMemAddressReserve", fake_address_take, cuMemAddressReserve) \
    X("cuMemAddressFree", fake_address_give, cuMemAddressFree) \
    X("cuMemMap", fake_map, cuMemMap) \
    X("cuMemUnmap", fake_unmap, cuMemUnmap) \
    X("cuMemSetAccess", fake_access, cuMemSetAccess) \
    X("cuMemExportToShareableHandle", fake_to_descriptor, cuMemExportToShareableHandle) \
    X("cuMemImportFromShareableHandle", fake_of_descriptor, cuMemImportFromShareableHandle) \
    X("cuIpcGetMemHandle", fake_export, cuIpcGetMemHandle) \
    X("cuIpcOpenMemHandle", fake_import, cuIpcOpenMemHandle_v2) \
    X("cuIpcCloseMemHandle", fake_give_back, cuIpcCloseMemHandle)

/* Of gpu-bench, not of the library's driver. */
#define FAKE_CALLS_OTHER(X) X("cuEventElapsedTime", fake_event_elapsed_call, cuEventElapsedTime)

/* A call that is counted, may be made to fail, and is else handed on. */
#define HAND_ON(function, entered, parameters, call) \
    CUresult function parameters { CUresult result = entered; return (result != CUDA_SUCCESS) ? result : (call); }
/* What gives back does it even when it tells of a failure: it is that of something earlier. */
#define GIVE_BACK(function, name, parameters, call) \
    CUresult function parameters \
    { \
        CUresult result = fake_enter(name), given = (call); \
        return (result != CUDA_SUCCESS) ? result : given; \
    }

#define CALL_DECLARE(name, function, symbol) __typeof__(symbol) function;
FAKE_CALLS(CALL_DECLARE)
FAKE_CALLS_OTHER(CALL_DECLARE)
#undef CALL_DECLARE

#endif
