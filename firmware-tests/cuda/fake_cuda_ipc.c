/* The fake CUDA driver: device memory of another process by CUDA IPC. It goes with the process that
 * took it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "firmware-tests/cuda/fake_cuda_calls.h"

/* A second time it is counted alone, as the real library does. */
static CUresult memory_import(const struct fake_export *exported, CUdeviceptr *address_out)
{
    char path[64];
    struct region *region;
    /* of this process itself */
    if (exported->process == (uint64_t)getpid()) return CUDA_ERROR_INVALID_CONTEXT;
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        bool same = memcmp(&fake_regions[i].of, exported, sizeof *exported) == 0;
        if ((fake_regions[i].kind != REGION_IMPORTED) || !same) continue;
        fake_regions[i].opened++;
        *address_out = fake_regions[i].base;
        return CUDA_SUCCESS;
    }
    (void)snprintf(path, sizeof path, "/proc/%llu/fd/%llu", (unsigned long long)exported->process,
                   (unsigned long long)exported->file);
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return CUDA_ERROR_INVALID_VALUE;
    uint64_t at = fake_reserve(exported->size_bytes);
    bool placed = fake_place(at, file, exported->size_bytes);
    (void)close(file);
    if (!placed ||
        (fake_region_add(at, exported->size_bytes, REGION_IMPORTED, &region) != CUDA_SUCCESS))
        return CUDA_ERROR_OUT_OF_MEMORY;
    region->of = *exported;
    region->opened = 1;
    region->process = (int)syscall(SYS_pidfd_open, (pid_t)exported->process, 0);
    *address_out = at;
    return CUDA_SUCCESS;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle_out, CUdeviceptr address)
{
    CUresult result = fake_enter_current("cuIpcGetMemHandle");
    struct region *region = fake_region_at(address, 1);
    if (result != CUDA_SUCCESS) return result;
    if ((region == NULL) || (region->kind != REGION_DEVICE) || (region->base != address)) {
        fake_trouble("cuIpcGetMemHandle of 0x%llx, which is no beginning of device memory",
                     (unsigned long long)address);
        return CUDA_ERROR_INVALID_VALUE;
    }
    memset(handle_out, 0, sizeof *handle_out);
    memcpy(handle_out,
           &(struct fake_export){.process = (uint64_t)getpid(),
                                 .file = (uint64_t)region->file,
                                 .size_bytes = region->size_bytes,
                                 .address = address},
           sizeof(struct fake_export));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *address_out, CUipcMemHandle handle, unsigned flags)
{
    struct fake_export exported;
    CUresult result = fake_enter_current("cuIpcOpenMemHandle");
    memcpy(&exported, &handle, sizeof exported);
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)
        fake_trouble("memory is opened that another device may not reach");
    return (result == CUDA_SUCCESS) ? memory_import(&exported, address_out) : result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    CUresult result = fake_enter("cuIpcCloseMemHandle");
    struct region *region = fake_region_at(address, 1);
    fake_synchronise("cuIpcCloseMemHandle");
    if ((region == NULL) || (region->kind != REGION_IMPORTED) || (region->base != address)) {
        fake_trouble("cuIpcCloseMemHandle of 0x%llx, which was not opened",
                     (unsigned long long)address);
        return (result != CUDA_SUCCESS) ? result : CUDA_ERROR_INVALID_VALUE;
    }
    if (--region->opened > 0) return result;
    fake_unplace(address, region->size_bytes);
    fake_region_remove(region);
    return result;
}
