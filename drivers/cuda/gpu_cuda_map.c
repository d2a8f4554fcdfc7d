/* CUDA driver, memory by cuMemCreate: it lives as long as anybody holds or has mapped it, so what others have imported
 * of an arena can be read after its process was killed. Drivers from 12.0 on have the calls; devices say whether they
 * do. UCX reads such memory as it does other device memory; for a network card to reach it, it must be made so, where
 * the device can. CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is about calls that block, of which the library makes none. */
#include <unistd.h>

#include "drivers/cuda/gpu_cuda.h"

static CUmemAllocationProp properties_of(const struct cuda_gpu *cuda)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cuda->device},
                                 .allocFlags = {.gpuDirectRDMACapable = cuda->for_cards}};
}

void gf_cuda_unmap(struct cuda_gpu *cuda, CUdeviceptr at, size_t bytes)
{
    gf_cuda_given(cuda, cuda->calls.unmap(at, bytes), "cuMemUnmap");
    gf_cuda_given(cuda, cuda->calls.address_give(at, bytes), "cuMemAddressFree");
}

gf_status gf_cuda_map(struct cuda_gpu *cuda, CUmemGenericAllocationHandle memory, size_t bytes, CUdeviceptr *at_out,
                      struct gf_fault *fault_out)
{
    const CUmemAccessDesc access = {.location = properties_of(cuda).location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = 0;
    gf_status status = gf_cuda_result(cuda, cuda->calls.address_take(&at, bytes, 0, 0, 0), "cuMemAddressReserve",
                                      fault_out);
    if (status < 0) return status;
    status = gf_cuda_result(cuda, cuda->calls.map(at, bytes, 0, memory, 0), "cuMemMap", fault_out);
    if (status < 0) {
        gf_cuda_given(cuda, cuda->calls.address_give(at, bytes), "cuMemAddressFree");
        return status;
    }
    status = gf_cuda_result(cuda, cuda->calls.access(at, bytes, &access, 1), "cuMemSetAccess", fault_out);
    if (status < 0) gf_cuda_unmap(cuda, at, bytes);
    else *at_out = at;
    return status;
}

gf_status gf_cuda_arena_map(struct cuda_gpu *cuda, size_t size_bytes, struct gf_fault *fault_out)
{
    const CUmemAllocationProp properties = properties_of(cuda);
    size_t grain = 0;
    gf_status status = gf_cuda_result(cuda, cuda->calls.grain(&grain, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
                                      "cuMemGetAllocationGranularity", fault_out);
    if (status < 0) return status;
    size_t bytes = (size_bytes + grain - 1) / grain * grain;
    status = gf_cuda_result(cuda, cuda->calls.create(&cuda->memory, bytes, &properties, 0), "cuMemCreate", fault_out);
    if (status < 0) return status;
    status = gf_cuda_map(cuda, cuda->memory, bytes, &cuda->arena, fault_out);
    if (status < 0) gf_cuda_given(cuda, cuda->calls.release(cuda->memory), "cuMemRelease");
    else cuda->mapped_bytes = bytes;
    return status;
}

void gf_cuda_arena_give(struct cuda_gpu *cuda)
{
    if (cuda->mapped_bytes > 0) {
        gf_cuda_unmap(cuda, cuda->arena, cuda->mapped_bytes);
        gf_cuda_given(cuda, cuda->calls.release(cuda->memory), "cuMemRelease");
    } else if (cuda->arena != 0) {
        gf_cuda_given(cuda, cuda->calls.memory_give(cuda->arena), "cuMemFree");
    }
}

gf_status gf_cuda_arena_send(struct cuda_gpu *cuda, const char *name, uint32_t process)
{
    int descriptor = -1;
    gf_status status = gf_cuda_told(cuda, cuda->calls.to_descriptor(&descriptor, cuda->memory,
                                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                                    "cuMemExportToShareableHandle");
    if (status < 0) return status;
    status = gf_descriptors_send(name, process, descriptor, cuda->arena, &cuda->gpu.fault);
    (void)close(descriptor);
    return status;
}

gf_status gf_cuda_arena_take(struct cuda_gpu *cuda, uint32_t process, uint64_t arena, size_t bytes,
                             CUdeviceptr *at_out)
{
    CUmemGenericAllocationHandle memory;
    int descriptor = gf_descriptors_take(&cuda->descriptors, process, arena);
    if (descriptor < 0)
        return gf_fault_set(&cuda->gpu.fault, GF_ERR_DEVICE, GF_RANK_NONE, "recvmsg", 0,
                            "device %d: process %u has sent no descriptor of its memory", (int)cuda->device, process);
    gf_status status = gf_cuda_told(cuda, cuda->calls.of_descriptor(&memory, (void *)(intptr_t)descriptor,
                                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                                    "cuMemImportFromShareableHandle");
    (void)close(descriptor);
    if (status < 0) return status;
    status = gf_cuda_map(cuda, memory, bytes, at_out, &cuda->gpu.fault);
    gf_cuda_given(cuda, cuda->calls.release(memory), "cuMemRelease"); /* what is mapped stays */
    return status;
}
