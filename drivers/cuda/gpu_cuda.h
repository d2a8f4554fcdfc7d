/* Inside of the CUDA driver: the calls of libcuda that it uses, and its state. The only header that
 * includes cuda.h. */
#ifndef GF_GPU_CUDA_H
#define GF_GPU_CUDA_H

#include <cuda.h>

#include "drivers/gpu.h"

#define CUDA_DEFAULT_LIBRARY "libcuda.so.1"
#define CUDA_VERSION_RECORD 12050 /* cuCtxRecordEvent */
/* cuGetProcAddress_v2; also the version whose prototypes are asked for */
#define CUDA_VERSION_MIN 12000

/* X(member, base name as cuGetProcAddress() wants it, symbol whose prototype in cuda.h it has) */
#define CUDA_CALLS(X)                                                                       \
    X(init, "cuInit", cuInit)                                                               \
    X(driver_version, "cuDriverGetVersion", cuDriverGetVersion)                             \
    X(error_name, "cuGetErrorName", cuGetErrorName)                                         \
    X(device_count, "cuDeviceGetCount", cuDeviceGetCount)                                   \
    X(device_get, "cuDeviceGet", cuDeviceGet)                                               \
    X(device_name, "cuDeviceGetName", cuDeviceGetName)                                      \
    X(device_uuid, "cuDeviceGetUuid", cuDeviceGetUuid_v2)                                   \
    X(device_attribute, "cuDeviceGetAttribute", cuDeviceGetAttribute)                       \
    X(context_retain, "cuDevicePrimaryCtxRetain", cuDevicePrimaryCtxRetain)                 \
    X(context_release, "cuDevicePrimaryCtxRelease", cuDevicePrimaryCtxRelease_v2)           \
    X(context_push, "cuCtxPushCurrent", cuCtxPushCurrent_v2)                                \
    X(context_pop, "cuCtxPopCurrent", cuCtxPopCurrent_v2)                                   \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode) \
    X(stream_capturing, "cuStreamIsCapturing", cuStreamIsCapturing)                         \
    X(pointer_attribute, "cuPointerGetAttribute", cuPointerGetAttribute)                    \
    X(memory_info, "cuMemGetInfo", cuMemGetInfo_v2)                                         \
    X(memory_take, "cuMemAlloc", cuMemAlloc_v2)                                             \
    X(memory_give, "cuMemFree", cuMemFree_v2)                                               \
    X(host_take, "cuMemHostAlloc", cuMemHostAlloc)                                          \
    X(host_give, "cuMemFreeHost", cuMemFreeHost)                                            \
    X(host_register, "cuMemHostRegister", cuMemHostRegister_v2)                             \
    X(host_unregister, "cuMemHostUnregister", cuMemHostUnregister)                          \
    X(priorities, "cuCtxGetStreamPriorityRange", cuCtxGetStreamPriorityRange)               \
    X(stream_create, "cuStreamCreateWithPriority", cuStreamCreateWithPriority)              \
    X(stream_destroy, "cuStreamDestroy", cuStreamDestroy_v2)                                \
    X(stream_query, "cuStreamQuery", cuStreamQuery)                                         \
    X(stream_wait, "cuStreamWaitEvent", cuStreamWaitEvent)                                  \
    X(event_create, "cuEventCreate", cuEventCreate)                                         \
    X(event_destroy, "cuEventDestroy", cuEventDestroy_v2)                                   \
    X(event_record, "cuEventRecord", cuEventRecord)                                         \
    X(event_query, "cuEventQuery", cuEventQuery)                                            \
    X(copy, "cuMemcpyAsync", cuMemcpyAsync)                                                 \
    X(set, "cuMemsetD8Async", cuMemsetD8Async)                                              \
    X(module_load, "cuModuleLoadData", cuModuleLoadData)                                    \
    X(module_unload, "cuModuleUnload", cuModuleUnload)                                      \
    X(module_function, "cuModuleGetFunction", cuModuleGetFunction)                          \
    X(occupancy, "cuOccupancyMaxActiveBlocksPerMultiprocessor",                             \
      cuOccupancyMaxActiveBlocksPerMultiprocessor)                                          \
    X(launch, "cuLaunchKernel", cuLaunchKernel)                                             \
    X(grain, "cuMemGetAllocationGranularity", cuMemGetAllocationGranularity)                \
    X(create, "cuMemCreate", cuMemCreate)                                                   \
    X(release, "cuMemRelease", cuMemRelease)                                                \
    X(address_take, "cuMemAddressReserve", cuMemAddressReserve)                             \
    X(address_give, "cuMemAddressFree", cuMemAddressFree)                                   \
    X(map, "cuMemMap", cuMemMap)                                                            \
    X(unmap, "cuMemUnmap", cuMemUnmap)                                                      \
    X(access, "cuMemSetAccess", cuMemSetAccess)                                             \
    X(to_descriptor, "cuMemExportToShareableHandle", cuMemExportToShareableHandle)          \
    X(of_descriptor, "cuMemImportFromShareableHandle", cuMemImportFromShareableHandle)

/* Prototypes only: nothing here refers to a symbol of libcuda. And their names, in the same
 * order. */
#define CUDA_CALL_MEMBER(member, name, symbol) __typeof__(&symbol) member;
#define CUDA_CALL_NAME(member, name, symbol) const char *member;
struct cuda_calls {
    CUDA_CALLS(CUDA_CALL_MEMBER)
};
extern const struct cuda_names {
    CUDA_CALLS(CUDA_CALL_NAME)
} gf_cuda_names;

/* Host memory that could not be registered, and what copies pass through in its place
 * (gpu_cuda_stage.c); and copies to it that the CPU has still to complete. */
#define CUDA_STAGED_MAX 4u
#define CUDA_ARRIVALS_MAX 64u
struct cuda_staged {
    char *base, *mirror; /* mirror NULL: none */
    size_t size_bytes;
};
struct cuda_arrival {
    CUevent event; /* made when the first range is staged, and kept */
    char *host, *mirror;
    size_t size_bytes;
    bool is_over;
};

struct cuda_gpu {
    struct gf_gpu gpu; /* first */
    struct gf_log log;
    void *handle; /* of dlopen() */
    bool begun;   /* cuInit() was called */
    struct cuda_calls calls;
    __typeof__(&cuCtxRecordEvent) context_record; /* from 12.5 on; NULL */
    /* so often, of which one stays until calls_end(); and the thread's mode before the first */
    uint32_t entered;
    uint32_t calls_depth; /* calls_begin() without its calls_end() so far */
    bool stays;
    CUstreamCaptureMode mode_before;
    uint64_t idle_ns; /* how long closing waits for the device's work */
    bool hangs;       /* it did not end in that time */
    CUdevice device;
    CUcontext context; /* NULL: not retained */
    CUstream streams[GF_STREAM_COUNT];
    bool can_map;   /* cuMemCreate() and descriptors of what it makes */
    bool for_cards; /* which network cards can be let reach */
    CUdeviceptr arena;
    size_t arena_bytes;
    size_t mapped_bytes;                 /* of the arena, by cuMemCreate(); 0: by cuMemAlloc() */
    CUmemGenericAllocationHandle memory; /* what is mapped there */
    CUmodule module;
    bool stages, staging_logged; /* some range is staged; and that was said */
    struct cuda_staged staged[CUDA_STAGED_MAX];
    /* numbers arrivals_first .. arrivals_end - 1, modulo their count */
    struct cuda_arrival arrivals[CUDA_ARRIVALS_MAX];
    uint32_t arrivals_first, arrivals_end;
    CUevent cross; /* of stream_wait(): a wait that was queued needs it no more */
    uint32_t event_count, kernel_count;
    CUevent *events;     /* [event_count], after this struct */
    CUfunction *kernels; /* [kernel_count], after the events */
    uint32_t *blocks;    /* [kernel_count], after them: gpu.blocks */
};

static inline struct cuda_gpu *cuda_of(struct gf_gpu *gpu)
{
    return (struct cuda_gpu *)(void *)gpu;
}

/* The one place where a CUresult becomes a gf_status: GF_OK; GF_AGAIN for "not ready"; else
 * GF_ERR_DEVICE and a record with the result's name. */
gf_status gf_cuda_result(struct cuda_gpu *cuda, CUresult result, const char *call,
                         struct gf_fault *fault_out);
/* Loads the library and finds its calls. GF_ERR_DEVICE names the file and what is missing. What
 * fails here and below is in cuda->gpu.fault. */
gf_status gf_cuda_load(struct cuda_gpu *cuda, const char *library);
void gf_cuda_unload(struct cuda_gpu *cuda);
/* The call of this member of cuda_calls: its status; the same of a device in use, whose own record
 * errors go into; and of a call that gives something back: what fails there mostly failed before.
 * Said in the log, and gone on with. */
#define CUDA_CALL(cuda, fault_out, member, ...) \
    gf_cuda_result(cuda, (cuda)->calls.member(__VA_ARGS__), gf_cuda_names.member, fault_out)
#define CUDA_TOLD(cuda, member, ...) CUDA_CALL(cuda, &(cuda)->gpu.fault, member, __VA_ARGS__)
#define CUDA_GIVEN(cuda, member, ...) \
    gf_cuda_given(cuda, (cuda)->calls.member(__VA_ARGS__), gf_cuda_names.member)
void gf_cuda_given(struct cuda_gpu *cuda, CUresult result, const char *call);
/* Device, context, stream, events, arena and kernels; on failure whatever was made stays for
 * gf_cuda_give_back(). */
gf_status gf_cuda_take(struct cuda_gpu *cuda, const struct gf_gpu_setup *setup);
void gf_cuda_give_back(struct cuda_gpu *cuda);
/* The context is the thread's current one in between, and no call breaks or heeds a capture of
 * another thread; but gf_cuda_idle() may. They nest. */
gf_status gf_cuda_push(struct cuda_gpu *cuda, struct gf_fault *fault_out);
gf_status gf_cuda_pop(struct cuda_gpu *cuda, struct gf_fault *fault_out);
gf_status gf_cuda_enter(struct cuda_gpu *cuda);
/* in any case; hands on what was said in between */
gf_status gf_cuda_leave(struct cuda_gpu *cuda, gf_status status);
/* gpu_cuda_memory.c */
gf_status gf_cuda_export(struct gf_gpu *gpu, void *handle_out, int *descriptor_out);
gf_status gf_cuda_import(struct gf_gpu *gpu, const void *handle, int descriptor, gf_mem *base_out);
void gf_cuda_give_back_exports(struct gf_gpu *gpu, const void *handle, gf_mem base);
/* Both within the context: an arena by cuMemCreate; one of either kind given back. */
gf_status gf_cuda_arena_map(struct cuda_gpu *cuda, size_t size_bytes);
void gf_cuda_arena_give(struct cuda_gpu *cuda);
/* gpu_cuda_stage.c, all but reach within the context. add: in place of a registration that failed;
 * GF_ERR_DEVICE: this is not possible either. remove: the device's work has ended; false: that
 * range is not staged. copy: of a device that stages, whatever is copied. arrived: after the CPU
 * has seen the end of some work, and before it says so. give: whatever is left, at the end. */
gf_status gf_cuda_stage_add(struct cuda_gpu *cuda, void *base, size_t size_bytes);
bool gf_cuda_stage_remove(struct cuda_gpu *cuda, void *base);
gf_status gf_cuda_stage_copy(struct cuda_gpu *cuda, CUstream stream, gf_mem dst, gf_mem src,
                             size_t size_bytes);
gf_status gf_cuda_stage_arrived(struct cuda_gpu *cuda);
gf_mem gf_cuda_stage_reach(struct gf_gpu *gpu, gf_mem host);
void gf_cuda_stage_give(struct cuda_gpu *cuda);
/* Into the context in order to give things back, which is tried twice; false: it is lost. */
bool gf_cuda_enter_last(struct cuda_gpu *cuda);
void gf_cuda_leave_last(struct cuda_gpu *cuda);
/* Waits until the streams have ended or failed, all: the whole context, at most idle_ns, as work
 * may not outlive the memory that it touches. False: it hangs, which was said once, and what waits
 * for it may not be called. */
#define CUDA_IDLE_NS 2000000000ull
bool gf_cuda_idle(struct cuda_gpu *cuda, bool all);

#endif
