/* CUDA driver, the arena exported to other processes of the node: by a descriptor where it was made so
 * (gpu_cuda_map.c), else by CUDA IPC. The driver library does not open a handle of that in the process that it is of,
 * where the address itself will do. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/cuda/gpu_cuda.h"

/* A process is told by its number and by what numbers it: containers number theirs from 1 each. */
struct handle {
    uint64_t arena, arena_bytes;
    uint64_t mapped_bytes; /* by descriptor; 0: by CUDA IPC */
    uint64_t numbers; /* inode of the process's namespace; 0: unknown */
    uint32_t process, device;
    char name[GF_DESCRIPTORS_NAME_BYTES]; /* where it takes descriptors */
    CUipcMemHandle handle;
};
_Static_assert(sizeof(struct handle) == GF_GPU_HANDLE_BYTES, "sizes match");

static uint64_t numbers_of_processes(void)
{
    struct stat numbers;
    return (stat("/proc/self/ns/pid", &numbers) == 0) ? (uint64_t)numbers.st_ino : 0;
}

static bool is_own(const struct handle *handle)
{
    return (handle->numbers != 0) && (handle->numbers == numbers_of_processes()) && (handle->process == (uint32_t)getpid());
}

gf_status gf_cuda_export(struct gf_gpu *gpu, void *handle_out)
{
    struct cuda_gpu *cuda = (struct cuda_gpu *)(void *)gpu;
    struct handle handle = {.arena = cuda->arena, .arena_bytes = cuda->arena_bytes, .numbers = numbers_of_processes(),
                            .process = (uint32_t)getpid(), .device = (uint32_t)cuda->device,
                            .mapped_bytes = cuda->mapped_bytes};
    gf_status status;
    gf_descriptors_close(&cuda->descriptors);
    if (handle_out == NULL) return GF_OK;
    status = gf_descriptors_open(&cuda->descriptors, handle.name, &gpu->fault);
    if ((status < 0) || ((status = gf_cuda_enter(cuda)) < 0)) return status;
    if (cuda->mapped_bytes == 0)
        status = gf_cuda_told(cuda, cuda->calls.export(&handle.handle, cuda->arena), "cuIpcGetMemHandle");
    status = gf_cuda_leave(cuda, status);
    if (status < 0) return status;
    memcpy(handle_out, &handle, sizeof handle);
    return GF_OK;
}

static void gone(struct cuda_gpu *cuda, const struct handle *handle, gf_mem base)
{
    if (handle->mapped_bytes > 0) gf_cuda_unmap(cuda, base, handle->mapped_bytes);
    else gf_cuda_given(cuda, cuda->calls.give_back(base), "cuIpcCloseMemHandle");
}

gf_status gf_cuda_export_to(struct gf_gpu *gpu, const void *handle_in)
{
    struct cuda_gpu *cuda = (struct cuda_gpu *)(void *)gpu;
    struct handle handle;
    gf_status status;
    memcpy(&handle, handle_in, sizeof handle);
    if ((cuda->mapped_bytes == 0) || is_own(&handle)) return GF_OK;
    if ((status = gf_cuda_enter(cuda)) < 0) return status;
    return gf_cuda_leave(cuda, gf_cuda_arena_send(cuda, handle.name, handle.process));
}

gf_status gf_cuda_import(struct gf_gpu *gpu, const void *handle_in, gf_mem *base_out)
{
    struct cuda_gpu *cuda = (struct cuda_gpu *)(void *)gpu;
    CUdeviceptr base = 0;
    struct handle handle;
    gf_status status;
    memcpy(&handle, handle_in, sizeof handle);
    if (handle.arena_bytes != cuda->arena_bytes)
        return gf_fault_set(&gpu->fault, GF_ERR_DEVICE, GF_RANK_NONE, "", 0,
                            "device %d: a peer exports %llu bytes of device memory, expected are %zu", (int)cuda->device,
                            (unsigned long long)handle.arena_bytes, cuda->arena_bytes);
    if (is_own(&handle) && (handle.device != (uint32_t)cuda->device))
        return gf_fault_set(&gpu->fault, GF_ERR_DEVICE, GF_RANK_NONE, "", 0,
                            "device %d: the peer's arena is of device %u of this same process, which is not built: give "
                            "each rank a process", (int)cuda->device, handle.device);
    if (is_own(&handle)) {
        *base_out = handle.arena;
        return GF_OK;
    }
    if ((status = gf_cuda_enter(cuda)) < 0) return status;
    if (handle.mapped_bytes > 0)
        status = gf_cuda_arena_take(cuda, handle.process, handle.arena, handle.mapped_bytes, &base);
    else
        status = gf_cuda_told(cuda, cuda->calls.import(&base, handle.handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
                              "cuIpcOpenMemHandle");
    status = gf_cuda_leave(cuda, status);
    if (status >= 0) *base_out = base;
    else if (base != 0) gone(cuda, &handle, base);
    return status;
}

void gf_cuda_give_back_exports(struct gf_gpu *gpu, const void *handle_in, gf_mem base)
{
    struct cuda_gpu *cuda = (struct cuda_gpu *)(void *)gpu;
    struct handle handle;
    bool entered = gf_cuda_enter_last(cuda);
    memcpy(&handle, handle_in, sizeof handle);
    bool idle = !entered || gf_cuda_idle(cuda, true); /* the exporter may free it now */
    if (idle && !is_own(&handle)) gone(cuda, &handle, base);
    if (entered) gf_cuda_leave_last(cuda);
}
