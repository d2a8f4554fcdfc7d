/* The fake CUDA driver: its calls. Of them only cuGetProcAddress_v2() can be linked against. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "firmware-tests/cuda/fake_cuda_state.h"

#define PUSHED_MAX 16u
#define CONTEXT(device) ((CUcontext)(uintptr_t)(0xc0de0000u + (unsigned)(device)))
#define MODULE ((CUmodule)(uintptr_t)0xf00d0000u)

static uint32_t retained[FAKE_CUDA_DEVICES], pushed_count, modules;
static CUcontext pushed[PUSHED_MAX];
static bool initialised;
static uint64_t launches;

static struct fake_cuda_live fake_live(void)
{
    struct fake_cuda_live live = {.pushed = pushed_count, .modules = modules, .calls = fake_calls()};
    for (int i = 0; i < FAKE_CUDA_DEVICES; i++) live.contexts += retained[i];
    fake_memory_count(&live);
    fake_queue_count(&live);
    return live;
}

static void leaks_check(const char *when)
{
    const struct fake_cuda_live live = fake_live();
    if (live.streams + live.events + live.modules + live.registrations + live.allocations + live.imported + live.pushed == 0) return;
    fake_trouble("%s: %u streams, %u events, %u modules, %u registrations, %u allocations and %u of other processes are left, "
                 "%u contexts pushed", when, live.streams, live.events, live.modules, live.registrations, live.allocations,
                 live.imported, live.pushed);
}

__attribute__((destructor)) static void at_exit(void)
{
    if (!initialised) return;
    leaks_check("end of the program");
    if (fake_trouble_text() == NULL) return;
    (void)fprintf(stderr, "fake cuda: %s\n", fake_trouble_text());
    (void)fflush(NULL);
    _exit(FAKE_CUDA_EXIT);
}

static CUresult enter_current(const char *call)
{
    CUresult result = fake_enter(call);
    if ((result != CUDA_SUCCESS) || (pushed_count > 0)) return result;
    fake_trouble("%s without a current context", call);
    return CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult fake_init(unsigned flags)
{
    (void)flags;
    return fake_enter("cuInit");
}

static CUresult fake_driver_version(int *version_out)
{
    CUresult result = fake_enter("cuDriverGetVersion");
    if (result == CUDA_SUCCESS) *version_out = fake_version();
    return result;
}

/* Names of what tests make calls fail with; never fails itself where it knows the name. */
static CUresult fake_error_name(CUresult error, const char **name_out)
{
    static const struct {
        CUresult result;
        const char *name;
    } names[] = {{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
                 {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"},
                 {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
                 {CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"},
                 {CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
                 {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"},
                 {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
                 {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
                 {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"},
                 {CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].result != error) continue;
        *name_out = names[i].name;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_device_count(int *count_out)
{
    CUresult result = fake_enter("cuDeviceGetCount");
    if (result == CUDA_SUCCESS) *count_out = FAKE_CUDA_DEVICES;
    return result;
}

static CUresult fake_device_get(CUdevice *device_out, int ordinal)
{
    CUresult result = fake_enter("cuDeviceGet");
    if ((result == CUDA_SUCCESS) && ((ordinal < 0) || (ordinal >= FAKE_CUDA_DEVICES))) result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS) *device_out = ordinal;
    return result;
}

static CUresult fake_device_name(char *name_out, int name_bytes, CUdevice device)
{
    CUresult result = fake_enter("cuDeviceGetName");
    if (result == CUDA_SUCCESS) (void)snprintf(name_out, (size_t)name_bytes, "Fake %d", device);
    return result;
}

static CUresult fake_device_attribute(int *value_out, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result = fake_enter("cuDeviceGetAttribute");
    (void)device;
    if (result != CUDA_SUCCESS) return result;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: *value_out = getenv("GF_FAKE_CUDA_NO_HOST_POINTER") == NULL; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value_out = 2; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult fake_context_retain(CUcontext *context_out, CUdevice device)
{
    CUresult result = fake_enter("cuDevicePrimaryCtxRetain");
    if (result != CUDA_SUCCESS) return result;
    retained[device]++;
    *context_out = CONTEXT(device);
    return CUDA_SUCCESS;
}

/* This and all that give back do it even when they tell of a failure: it is that of something earlier. */
static CUresult fake_context_release(CUdevice device)
{
    CUresult result = fake_enter("cuDevicePrimaryCtxRelease");
    if (retained[device] == 0) fake_trouble("context released too often");
    else if ((--retained[device] == 0) && (fake_live().contexts == 0)) leaks_check("last release of the context");
    return result;
}

static CUresult fake_context_push(CUcontext context)
{
    CUresult result = fake_enter("cuCtxPushCurrent");
    if (result != CUDA_SUCCESS) return result;
    if (pushed_count == PUSHED_MAX) abort();
    pushed[pushed_count++] = context;
    return CUDA_SUCCESS;
}

static CUresult fake_context_pop(CUcontext *context_out)
{
    CUresult result = fake_enter("cuCtxPopCurrent");
    if (pushed_count == 0) return CUDA_ERROR_INVALID_CONTEXT;
    *context_out = pushed[--pushed_count];
    return result;
}

static CUresult fake_memory_info_call(size_t *free_out, size_t *total_out)
{
    CUresult result = enter_current("cuMemGetInfo");
    if (result != CUDA_SUCCESS) return result;
    *total_out = fake_memory_bytes();
    *free_out = fake_memory_bytes() - fake_memory_used();
    return CUDA_SUCCESS;
}

static CUresult fake_memory_take_call(CUdeviceptr *address_out, size_t size_bytes)
{
    uint64_t address;
    CUresult result = enter_current("cuMemAlloc");
    if (result == CUDA_SUCCESS) result = fake_memory_take(&address, size_bytes);
    if (result == CUDA_SUCCESS) *address_out = address;
    return result;
}

static CUresult fake_memory_give_call(CUdeviceptr address)
{
    CUresult result = fake_enter("cuMemFree");
    fake_run_all();
    CUresult given = fake_memory_give(address);
    return (result != CUDA_SUCCESS) ? result : given;
}

static CUresult fake_host_register(void *base, size_t size_bytes, unsigned flags)
{
    CUresult result = enter_current("cuMemHostRegister");
    if (result != CUDA_SUCCESS) return result;
    if ((flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0) fake_trouble("host memory is registered, but not for kernels");
    return fake_host_add(base, size_bytes);
}

static CUresult fake_host_unregister(void *base)
{
    CUresult result = fake_enter("cuMemHostUnregister");
    CUresult given = fake_host_remove(base);
    return (result != CUDA_SUCCESS) ? result : given;
}

static CUresult fake_stream_create_call(CUstream *stream_out, unsigned flags)
{
    CUresult result = enter_current("cuStreamCreate");
    if (result != CUDA_SUCCESS) return result;
    if (flags != CU_STREAM_NON_BLOCKING) fake_trouble("a stream that the default stream waits for");
    return fake_stream_create(stream_out);
}

static CUresult fake_stream_destroy_call(CUstream stream)
{
    CUresult result = fake_enter("cuStreamDestroy");
    CUresult given = fake_stream_destroy(stream);
    return (result != CUDA_SUCCESS) ? result : given;
}

static CUresult fake_stream_query(CUstream handle)
{
    uint32_t stream;
    CUresult result = enter_current("cuStreamQuery");
    if (result != CUDA_SUCCESS) return result;
    if (!fake_stream_find(handle, &stream)) return CUDA_ERROR_INVALID_HANDLE;
    return fake_stream_done(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult fake_stream_wait(CUstream handle, CUevent event, unsigned flags)
{
    uint32_t stream;
    CUresult result = enter_current("cuStreamWaitEvent");
    (void)flags;
    if (result != CUDA_SUCCESS) return result;
    return fake_stream_find(handle, &stream) ? fake_event_wait(event, stream) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_event_create_call(CUevent *event_out, unsigned flags)
{
    CUresult result = enter_current("cuEventCreate");
    (void)flags;
    return (result != CUDA_SUCCESS) ? result : fake_event_create(event_out);
}

static CUresult fake_event_destroy_call(CUevent event)
{
    CUresult result = fake_enter("cuEventDestroy");
    CUresult given = fake_event_destroy(event);
    return (result != CUDA_SUCCESS) ? result : given;
}

static CUresult fake_event_record_call(CUevent event, CUstream handle)
{
    uint32_t stream;
    CUresult result = enter_current("cuEventRecord");
    if (result != CUDA_SUCCESS) return result;
    return fake_stream_find(handle, &stream) ? fake_event_record(event, stream) : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult fake_event_query_call(CUevent event)
{
    CUresult result = enter_current("cuEventQuery");
    return (result != CUDA_SUCCESS) ? result : fake_event_query(event);
}

static CUresult fake_copy(CUdeviceptr dst, CUdeviceptr src, size_t size_bytes, CUstream handle)
{
    uint32_t stream;
    CUresult result = enter_current("cuMemcpyAsync");
    if (result != CUDA_SUCCESS) return result;
    if (!fake_stream_find(handle, &stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (!fake_is_known(dst, size_bytes) || !fake_is_known(src, size_bytes)) {
        fake_trouble("cuMemcpyAsync of %zu bytes from 0x%llx to 0x%llx: not all of it is device or registered memory",
                     size_bytes, (unsigned long long)src, (unsigned long long)dst);
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_queue_add(stream, &(struct work){.kind = WORK_COPY, .dst = dst, .src = src, .size_bytes = size_bytes});
    return CUDA_SUCCESS;
}

static CUresult fake_set(CUdeviceptr dst, unsigned char value, size_t count, CUstream handle)
{
    uint32_t stream;
    CUresult result = enter_current("cuMemsetD8Async");
    if (result != CUDA_SUCCESS) return result;
    if (!fake_stream_find(handle, &stream)) return CUDA_ERROR_INVALID_HANDLE;
    if (!fake_is_known(dst, count)) return CUDA_ERROR_INVALID_VALUE;
    fake_queue_add(stream, &(struct work){.kind = WORK_SET, .dst = dst, .size_bytes = count, .value = value});
    return CUDA_SUCCESS;
}

static CUresult fake_module_load(CUmodule *module_out, const void *image)
{
    uint32_t magic;
    CUresult result = enter_current("cuModuleLoadData");
    if (result != CUDA_SUCCESS) return result;
    memcpy(&magic, image, sizeof magic);
    if (magic != FAKE_CUDA_FATBIN) return CUDA_ERROR_INVALID_IMAGE;
    modules++;
    *module_out = MODULE;
    return CUDA_SUCCESS;
}

static CUresult fake_module_unload(CUmodule module)
{
    CUresult result = fake_enter("cuModuleUnload");
    if ((module != MODULE) || (modules == 0)) fake_trouble("a module is unloaded that is none");
    else modules--;
    return result;
}

static CUresult fake_module_function(CUfunction *function_out, CUmodule module, const char *name)
{
    CUresult result = enter_current("cuModuleGetFunction");
    if (result != CUDA_SUCCESS) return result;
    const struct fake_kernel *kernel = fake_kernel_find(name);
    if ((module != MODULE) || (kernel == NULL)) return CUDA_ERROR_NOT_FOUND;
    *function_out = (CUfunction)(uintptr_t)kernel;
    return CUDA_SUCCESS;
}

static CUresult fake_launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream handle, void **params,
                            void **extra)
{
    struct work work = {.kind = WORK_KERNEL, .blocks = grid_x, .threads = block_x};
    CUresult result = enter_current("cuLaunchKernel");
    if (result != CUDA_SUCCESS) return result;
    if (!fake_stream_find(handle, &work.stream)) return CUDA_ERROR_INVALID_HANDLE;
    if ((grid_x == 0) || (block_x == 0) || (block_x > 1024) || (grid_y * grid_z * block_y * block_z != 1) ||
        (shared_bytes != 0) || (extra != NULL))
        return CUDA_ERROR_INVALID_VALUE;
    work.kernel = (const struct fake_kernel *)(uintptr_t)function;
    memcpy(work.args, params[0], work.kernel->args_bytes);
    fake_queue_add(work.stream, &work);
    launches++;
    return CUDA_SUCCESS;
}

static CUresult fake_export(CUipcMemHandle *handle_out, CUdeviceptr address)
{
    struct fake_export exported;
    CUresult result = enter_current("cuIpcGetMemHandle");
    if (result == CUDA_SUCCESS) result = fake_memory_export(address, &exported);
    if (result != CUDA_SUCCESS) return result;
    memset(handle_out, 0, sizeof *handle_out);
    memcpy(handle_out, &exported, sizeof exported);
    return CUDA_SUCCESS;
}

static CUresult fake_import(CUdeviceptr *address_out, CUipcMemHandle handle, unsigned flags)
{
    struct fake_export exported;
    uint64_t address;
    CUresult result = enter_current("cuIpcOpenMemHandle");
    memcpy(&exported, &handle, sizeof exported);
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) fake_trouble("memory is opened that another device may not reach");
    if (result == CUDA_SUCCESS) result = fake_memory_import(&exported, &address);
    if (result == CUDA_SUCCESS) *address_out = address;
    return result;
}

static CUresult fake_give_back(CUdeviceptr address)
{
    CUresult result = fake_enter("cuIpcCloseMemHandle");
    fake_run_all();
    CUresult given = fake_memory_give_back(address);
    return (result != CUDA_SUCCESS) ? result : given;
}

/* ---- what can be found ---- */

static void initialise(void)
{
    if (initialised) return;
    initialised = true;
    fake_settings_read();
}

#define FAKE_CALLS(X) \
    X("cuInit", fake_init, cuInit) \
    X("cuDriverGetVersion", fake_driver_version, cuDriverGetVersion) \
    X("cuGetErrorName", fake_error_name, cuGetErrorName) \
    X("cuDeviceGetCount", fake_device_count, cuDeviceGetCount) \
    X("cuDeviceGet", fake_device_get, cuDeviceGet) \
    X("cuDeviceGetName", fake_device_name, cuDeviceGetName) \
    X("cuDeviceGetAttribute", fake_device_attribute, cuDeviceGetAttribute) \
    X("cuDevicePrimaryCtxRetain", fake_context_retain, cuDevicePrimaryCtxRetain) \
    X("cuDevicePrimaryCtxRelease", fake_context_release, cuDevicePrimaryCtxRelease_v2) \
    X("cuCtxPushCurrent", fake_context_push, cuCtxPushCurrent_v2) \
    X("cuCtxPopCurrent", fake_context_pop, cuCtxPopCurrent_v2) \
    X("cuMemGetInfo", fake_memory_info_call, cuMemGetInfo_v2) \
    X("cuMemAlloc", fake_memory_take_call, cuMemAlloc_v2) \
    X("cuMemFree", fake_memory_give_call, cuMemFree_v2) \
    X("cuMemHostRegister", fake_host_register, cuMemHostRegister_v2) \
    X("cuMemHostUnregister", fake_host_unregister, cuMemHostUnregister) \
    X("cuStreamCreate", fake_stream_create_call, cuStreamCreate) \
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
    X("cuLaunchKernel", fake_launch, cuLaunchKernel) \
    X("cuIpcGetMemHandle", fake_export, cuIpcGetMemHandle) \
    X("cuIpcOpenMemHandle", fake_import, cuIpcOpenMemHandle_v2) \
    X("cuIpcCloseMemHandle", fake_give_back, cuIpcCloseMemHandle)

#define CALL_CHECK(name, function, prototype) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), __typeof__(prototype)), name " as cuda.h has it");
FAKE_CALLS(CALL_CHECK)
#undef CALL_CHECK

CUresult cuGetProcAddress_v2(const char *symbol, void **found_out, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *why_out)
{
    static const struct {
        const char *name;
        void (*function)(void);
    } calls[] = {
#define CALL(name, function, prototype) {name, (void (*)(void))function},
        FAKE_CALLS(CALL)
#undef CALL
    };
    (void)version;
    (void)flags;
    initialise();
    *found_out = NULL;
    *why_out = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (fake_is_without(symbol)) return CUDA_ERROR_NOT_FOUND;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        if (strcmp(calls[i].name, symbol) != 0) continue;
        memcpy(found_out, &calls[i].function, sizeof *found_out);
        *why_out = CU_GET_PROC_ADDRESS_SUCCESS;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

static const char *api_call_name(uint32_t index)
{
    static const char *const names[] = {
#define CALL_NAME(name, function, prototype) name,
        FAKE_CALLS(CALL_NAME)
#undef CALL_NAME
    };
    return (index < sizeof names / sizeof *names) ? names[index] : NULL;
}

static uint64_t api_launches(void)
{
    return launches;
}

static void api_reset(void)
{
    initialise();
    leaks_check("reset");
    fake_settings_read();
}

static uint64_t api_stream_create(void)
{
    CUstream stream = NULL;
    return (fake_stream_create(&stream) == CUDA_SUCCESS) ? (uint64_t)(uintptr_t)stream : 0;
}

static void api_stream_destroy(uint64_t stream)
{
    (void)fake_stream_destroy((CUstream)(uintptr_t)stream);
}

static void api_stream_run(uint64_t handle)
{
    uint32_t stream;
    if (fake_stream_find((CUstream)(uintptr_t)handle, &stream)) fake_run_stream(stream);
}

extern const struct fake_cuda_api fake_cuda_api;
const struct fake_cuda_api fake_cuda_api = {
    .reset = api_reset,
    .call_name = api_call_name,
    .trouble = fake_trouble_text,
    .failure_met = fake_failure_met,
    .live = fake_live,
    .launches = api_launches,
    .kernel_add = fake_kernel_add,
    .touch = fake_kernel_touch,
    .stream_create = api_stream_create,
    .stream_destroy = api_stream_destroy,
    .stream_run = api_stream_run,
    .card_begin = fake_card_begin,
    .card_end = fake_card_end,
    .card_copy = fake_card_copy,
};
