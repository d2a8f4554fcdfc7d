/* The fake CUDA driver: devices, contexts and memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firmware-tests/cuda/fake_cuda_calls.h"

#define PUSHED_MAX 16u

static uint32_t retained[FAKE_CUDA_DEVICES], pushed_count;
static CUcontext pushed[PUSHED_MAX];

void fake_contexts_count(struct fake_cuda_live *live)
{
    live->pushed = pushed_count;
    for (int i = 0; i < FAKE_CUDA_DEVICES; i++) live->contexts += retained[i];
}

void fake_contexts_forget(void)
{
    memset(retained, 0, sizeof retained);
    pushed_count = 0;
}

CUcontext fake_current(void)
{
    return (pushed_count > 0) ? pushed[pushed_count - 1] : NULL;
}

CUresult fake_enter_current(const char *call)
{
    CUresult result = fake_enter(call);
    if ((result != CUDA_SUCCESS) || (pushed_count > 0)) return result;
    fake_trouble("%s without a current context", call);
    return CUDA_ERROR_INVALID_CONTEXT;
}

void fake_synchronise(const char *call)
{
    if (fake_holds() && !fake_is_lost())
        fake_trouble("%s waits for work that never ends", call);
    else
        fake_run_all();
}

CUresult cuInit(unsigned flags)
{
    return fake_enter("cuInit");
}

CUresult cuDriverGetVersion(int *version_out)
{
    CUresult result = fake_enter("cuDriverGetVersion");
    if (result == CUDA_SUCCESS) *version_out = fake_settings.version;
    return result;
}

/* Names of what tests make calls fail with; never fails itself where it knows the name. */
CUresult cuGetErrorName(CUresult error, const char **name_out)
{
    static const struct {
        CUresult result;
        const char *name;
    } names[] = {
#define NAMED(result) {result, #result}
        NAMED(CUDA_ERROR_INVALID_VALUE), NAMED(CUDA_ERROR_OUT_OF_MEMORY),
        NAMED(CUDA_ERROR_INVALID_IMAGE), NAMED(CUDA_ERROR_INVALID_HANDLE),
        NAMED(CUDA_ERROR_NOT_FOUND),     NAMED(CUDA_ERROR_ILLEGAL_ADDRESS),
        NAMED(CUDA_ERROR_LAUNCH_FAILED),
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].result != error) continue;
        *name_out = names[i].name;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count_out)
{
    CUresult result = fake_enter("cuDeviceGetCount");
    if (result == CUDA_SUCCESS) *count_out = FAKE_CUDA_DEVICES;
    return result;
}

CUresult cuDeviceGet(CUdevice *device_out, int ordinal)
{
    CUresult result = fake_enter("cuDeviceGet");
    if ((result == CUDA_SUCCESS) && ((ordinal < 0) || (ordinal >= FAKE_CUDA_DEVICES)))
        result = CUDA_ERROR_INVALID_DEVICE;
    if (result == CUDA_SUCCESS) *device_out = ordinal;
    return result;
}

CUresult cuDeviceGetName(char *name_out, int name_bytes, CUdevice device)
{
    CUresult result = fake_enter("cuDeviceGetName");
    const char *name = getenv("GF_FAKE_CUDA_NAME");
    if (result != CUDA_SUCCESS) return result;
    if (name != NULL)
        (void)snprintf(name_out, (size_t)name_bytes, "%s", name);
    else
        (void)snprintf(name_out, (size_t)name_bytes, "Fake %d", device);
    return result;
}

CUresult cuDeviceGetUuid(CUuuid *uuid_out, CUdevice device)
{
    CUresult result = fake_enter("cuDeviceGetUuid");
    if (result != CUDA_SUCCESS) return result;
    *uuid_out = (CUuuid){.bytes = {(char)0xfa, [15] = (char)device}};
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value_out, CUdevice_attribute attribute, CUdevice device)
{
    CUresult result = fake_enter("cuDeviceGetAttribute");
    if (result != CUDA_SUCCESS) return result;
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
        *value_out = getenv("GF_FAKE_CUDA_NO_HOST_POINTER") == NULL;
        break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value_out = 2; break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: *value_out = 1; break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *value_out = getenv("GF_FAKE_CUDA_NO_DESCRIPTORS") == NULL;
        break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value_out = (int)fake_arch() / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value_out = (int)fake_arch() % 10; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context_out, CUdevice device)
{
    CUresult result = fake_enter("cuDevicePrimaryCtxRetain");
    if (result != CUDA_SUCCESS) return result;
    retained[device]++;
    *context_out = CONTEXT(device);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    CUresult result = fake_enter("cuDevicePrimaryCtxRelease");
    if (retained[device] == 0)
        fake_trouble("context released too often");
    else if (--retained[device] == 0) {
        struct fake_cuda_live live = {0};
        fake_synchronise("the last cuDevicePrimaryCtxRelease");
        fake_contexts_count(&live);
        if (live.contexts == 0) fake_leaks_check("last release of the context");
    }
    return result;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    CUresult result = fake_enter("cuCtxPushCurrent");
    if (result != CUDA_SUCCESS) return result;
    if (pushed_count == PUSHED_MAX) abort();
    pushed[pushed_count++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context_out)
{
    CUresult result = fake_enter("cuCtxPopCurrent");
    if (pushed_count == 0) return CUDA_ERROR_INVALID_CONTEXT;
    *context_out = pushed[--pushed_count];
    return result;
}

CUresult cuMemGetInfo(size_t *free_out, size_t *total_out)
{
    CUresult result = fake_enter_current("cuMemGetInfo");
    if (result != CUDA_SUCCESS) return result;
    *total_out = fake_settings.memory_bytes;
    *free_out = fake_settings.memory_bytes - fake_memory_used();
    return CUDA_SUCCESS;
}

/* Of memory that nobody told of nothing is known. */
CUresult cuPointerGetAttribute(void *value_out, CUpointer_attribute attribute, CUdeviceptr address)
{
    CUresult result = fake_enter_current("cuPointerGetAttribute");
    if (result != CUDA_SUCCESS) return result;
    if ((attribute != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) || !fake_is_known(address, 1))
        return CUDA_ERROR_INVALID_VALUE;
    *(CUmemorytype *)value_out =
        fake_is_device(address, 1) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr *address_out, size_t size_bytes)
{
    uint64_t address;
    CUresult result = fake_enter_current("cuMemAlloc");
    if (result == CUDA_SUCCESS) result = fake_capture_unsafe("cuMemAlloc");
    if (result == CUDA_SUCCESS) result = fake_memory_take(&address, size_bytes);
    if (result == CUDA_SUCCESS) *address_out = address;
    return result;
}

GIVE_BACK(cuMemFree, (CUdeviceptr address),
          (fake_synchronise("cuMemFree"), fake_memory_give(address)))

CUresult cuMemHostAlloc(void **base_out, size_t size_bytes, unsigned flags)
{
    CUresult result = fake_enter_current("cuMemHostAlloc");
    if (result != CUDA_SUCCESS) return result;
    if ((result = fake_capture_unsafe("cuMemHostAlloc")) != CUDA_SUCCESS) return result;
    if ((flags & ~(unsigned)CU_MEMHOSTALLOC_PORTABLE) != 0) return CUDA_ERROR_INVALID_VALUE;
    void *base = aligned_alloc(4096, (size_bytes + 4095) / 4096 * 4096);
    if (base == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    memset(base, FAKE_CUDA_POISON, size_bytes);
    if ((result = fake_host_add(base, size_bytes)) == CUDA_SUCCESS)
        *base_out = base;
    else
        free(base);
    return result;
}

CUresult cuMemFreeHost(void *base)
{
    CUresult result = fake_enter("cuMemFreeHost");
    fake_synchronise("cuMemFreeHost");
    CUresult removed = fake_host_remove(base);
    if (removed == CUDA_SUCCESS) free(base);
    return (result != CUDA_SUCCESS) ? result : removed;
}

CUresult cuMemHostRegister(void *base, size_t size_bytes, unsigned flags)
{
    CUresult result = fake_enter_current("cuMemHostRegister");
    if (result != CUDA_SUCCESS) return result;
    if ((result = fake_capture_unsafe("cuMemHostRegister")) != CUDA_SUCCESS) return result;
    if (fake_settings.refused > 0) {
        fake_settings.refused--;
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if ((flags & CU_MEMHOSTREGISTER_DEVICEMAP) == 0)
        fake_trouble("host memory is registered, but not for kernels");
    return fake_host_add(base, size_bytes);
}

GIVE_BACK(cuMemHostUnregister, (void *base),
          (fake_synchronise("cuMemHostUnregister"), fake_host_remove(base)))
