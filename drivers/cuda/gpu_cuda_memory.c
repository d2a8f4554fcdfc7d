/* The CUDA driver: the arena. It is allocated so that other processes of the node can map it by a
 * descriptor; its own process uses the address itself. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drivers/cuda/gpu_cuda.h"
#include "drivers/base/descriptors.h"

/* ---- memory by cuMemCreate ---- It lives as long as anybody holds or has mapped it, so what
 * others have imported of an arena can be read after its process was killed. Drivers from 12.0 on
 * have the calls; devices say whether they do. UCX reads such memory as it does other device
 * memory; for a network card to reach it, it must be made so, where the device can.
 * CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is about calls that block, of which the library makes none. */

static CUmemAllocationProp properties_of(const struct cuda_gpu *cuda)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device},
        .allocFlags = {.gpuDirectRDMACapable = cuda->for_cards}};
}

static void memory_unmap(struct cuda_gpu *cuda, CUdeviceptr at, size_t bytes)
{
    CUDA_GIVEN(cuda, unmap, at, bytes);
    CUDA_GIVEN(cuda, address_give, at, bytes);
}

static gf_status memory_map(struct cuda_gpu *cuda, CUmemGenericAllocationHandle memory,
                            size_t bytes, CUdeviceptr *at_out)
{
    const CUmemAccessDesc access = {.location = properties_of(cuda).location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = 0;
    gf_status status = CUDA_TOLD(cuda, address_take, &at, bytes, 0, 0, 0);
    if (status < 0) return status;
    if ((status = CUDA_TOLD(cuda, map, at, bytes, 0, memory, 0)) < 0) {
        CUDA_GIVEN(cuda, address_give, at, bytes);
        return status;
    }
    status = CUDA_TOLD(cuda, access, at, bytes, &access, 1);
    if (status < 0)
        memory_unmap(cuda, at, bytes);
    else
        *at_out = at;
    return status;
}

gf_status gf_cuda_arena_map(struct cuda_gpu *cuda, size_t size_bytes)
{
    const CUmemAllocationProp properties = properties_of(cuda);
    size_t grain = 0;
    gf_status status =
        CUDA_TOLD(cuda, grain, &grain, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (status < 0) return status;
    size_t bytes = (size_bytes + grain - 1) / grain * grain;
    status = CUDA_TOLD(cuda, create, &cuda->memory, bytes, &properties, 0);
    if (status < 0) return status;
    status = memory_map(cuda, cuda->memory, bytes, &cuda->arena);
    if (status < 0)
        CUDA_GIVEN(cuda, release, cuda->memory);
    else
        cuda->mapped_bytes = bytes;
    return status;
}

void gf_cuda_arena_give(struct cuda_gpu *cuda)
{
    if (cuda->mapped_bytes > 0) {
        memory_unmap(cuda, cuda->arena, cuda->mapped_bytes);
        CUDA_GIVEN(cuda, release, cuda->memory);
    } else if (cuda->arena != 0) {
        CUDA_GIVEN(cuda, memory_give, cuda->arena);
    }
}

/* ---- exported ---- */

/* A process is told by its number and by what numbers it: containers number theirs from 1 each. */
struct handle {
    uint64_t arena, arena_bytes;
    uint64_t mapped_bytes;
    uint64_t numbers; /* inode of the process's namespace; 0: unknown */
    uint32_t process, device;
};
_Static_assert(sizeof(struct handle) == GF_GPU_HANDLE_BYTES, "sizes match");

static uint64_t numbers_of_processes(void)
{
    struct stat numbers;
    return (stat("/proc/self/ns/pid", &numbers) == 0) ? (uint64_t)numbers.st_ino : 0;
}

static bool is_own(const struct handle *handle)
{
    return (handle->numbers != 0) && (handle->numbers == numbers_of_processes()) &&
           (handle->process == (uint32_t)getpid());
}

gf_status gf_cuda_export(struct gf_gpu *gpu, void *handle_out, int *descriptor_out)
{
    struct cuda_gpu *cuda = cuda_of(gpu);
    const struct handle handle = {.arena = cuda->arena,
                                  .arena_bytes = cuda->arena_bytes,
                                  .mapped_bytes = cuda->mapped_bytes,
                                  .numbers = numbers_of_processes(),
                                  .process = (uint32_t)getpid(),
                                  .device = (uint32_t)cuda->device};
    int descriptor = -1;
    gf_status status;
    if (cuda->mapped_bytes == 0)
        return gf_fault_set(&gpu->fault, GF_ERR_DEVICE, GF_RANK_NONE, "", 0,
                            "device %d: its memory has no descriptor (some virtual GPUs)",
                            (int)cuda->device);
    if ((status = gf_cuda_enter(cuda)) < 0) return status;
    status = CUDA_TOLD(cuda, to_descriptor, &descriptor, cuda->memory,
                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    status = gf_cuda_leave(cuda, status);
    if ((status < 0) && (descriptor >= 0)) (void)close(descriptor);
    if (status < 0) return status;
    (void)fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    if ((descriptor = gf_descriptor_keep(descriptor)) < 0)
        return gf_fault_set(&gpu->fault, GF_ERR_SYSTEM, GF_RANK_NONE, "fcntl", errno,
                            "device %d: no descriptor for its memory: %s", (int)cuda->device,
                            strerror(errno));
    memcpy(handle_out, &handle, sizeof handle);
    *descriptor_out = descriptor;
    return GF_OK;
}

static gf_status arena_take(struct cuda_gpu *cuda, int descriptor, size_t bytes,
                            CUdeviceptr *at_out)
{
    CUmemGenericAllocationHandle memory;
    gf_status status = CUDA_TOLD(cuda, of_descriptor, &memory, (void *)(intptr_t)descriptor,
                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (status < 0) return status;
    status = memory_map(cuda, memory, bytes, at_out);
    CUDA_GIVEN(cuda, release, memory); /* what is mapped stays */
    return status;
}

gf_status gf_cuda_import(struct gf_gpu *gpu, const void *handle_in, int descriptor,
                         gf_mem *base_out)
{
    struct cuda_gpu *cuda = cuda_of(gpu);
    CUdeviceptr base = 0;
    struct handle handle;
    gf_status status;
    memcpy(&handle, handle_in, sizeof handle);
    if (handle.arena_bytes != cuda->arena_bytes)
        return gf_fault_set(
            &gpu->fault, GF_ERR_DEVICE, GF_RANK_NONE, "", 0,
            "device %d: a peer exports %llu bytes of device memory, expected are %zu",
            (int)cuda->device, (unsigned long long)handle.arena_bytes, cuda->arena_bytes);
    if (is_own(&handle) && (handle.device != (uint32_t)cuda->device))
        return gf_fault_set(&gpu->fault, GF_ERR_DEVICE, GF_RANK_NONE, "", 0,
                            "device %d: the peer's arena is of device %u of this same process, "
                            "which is not built: give "
                            "each rank a process",
                            (int)cuda->device, handle.device);
    if (is_own(&handle)) {
        *base_out = handle.arena;
        return GF_OK;
    }
    if ((status = gf_cuda_enter(cuda)) < 0) return status;
    status = arena_take(cuda, descriptor, handle.mapped_bytes, &base);
    status = gf_cuda_leave(cuda, status);
    if (status >= 0)
        *base_out = base;
    else if (base != 0)
        memory_unmap(cuda, base, handle.mapped_bytes);
    return status;
}

void gf_cuda_give_back_exports(struct gf_gpu *gpu, const void *handle_in, gf_mem base)
{
    struct cuda_gpu *cuda = cuda_of(gpu);
    struct handle handle;
    bool entered = gf_cuda_enter_last(cuda);
    memcpy(&handle, handle_in, sizeof handle);
    bool idle = !entered || gf_cuda_idle(cuda, true); /* the exporter may free it now */
    if (idle && !is_own(&handle)) memory_unmap(cuda, base, handle.mapped_bytes);
    if (entered) gf_cuda_leave_last(cuda);
}
