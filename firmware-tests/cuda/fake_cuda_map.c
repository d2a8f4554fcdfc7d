/* The fake CUDA driver: memory by cuMemCreate(). A handle, each mapping and each descriptor of it,
 * in this process or another, keeps it. Sizes and addresses are of whole grains; what is mapped may
 * be touched once access was given. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "firmware-tests/cuda/fake_cuda_calls.h"

#define GRAIN_BYTES (64u << 10)
#define MEMORIES_MAX 64u
#define RANGES_MAX 256u
#define HANDLE_FIRST 0x5eed0000u
#define DESCRIPTORS CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static struct memory {
    size_t size_bytes; /* 0: free */
    uint32_t handles, maps;
    int file;
    bool can_export, is_exported, is_foreign;
} memories[MEMORIES_MAX];

static struct range {
    uint64_t base;
    size_t size_bytes; /* 0: free */
    struct memory *mapped;
} ranges[RANGES_MAX];

static bool is_whole(uint64_t number)
{
    return (number > 0) && (number % GRAIN_BYTES == 0);
}

static CUresult wrong(const char *call, const char *what)
{
    fake_trouble("%s: %s", call, what);
    return CUDA_ERROR_INVALID_VALUE;
}

static struct memory *memory_of(CUmemGenericAllocationHandle handle)
{
    struct memory *memory = &memories[(handle - HANDLE_FIRST) % MEMORIES_MAX];
    return ((handle - HANDLE_FIRST < MEMORIES_MAX) && (memory->handles > 0)) ? memory : NULL;
}

static struct range *range_of(uint64_t base, size_t size_bytes)
{
    for (uint32_t i = 0; (size_bytes > 0) && (i < RANGES_MAX); i++)
        if ((ranges[i].base == base) && (ranges[i].size_bytes == size_bytes)) return &ranges[i];
    return NULL;
}

static void memory_drop(struct memory *memory)
{
    if (memory->handles + memory->maps > 0) return;
    if (!memory->is_foreign) fake_memory_credit(memory->size_bytes);
    (void)close(memory->file);
    memory->size_bytes = 0;
}

static struct memory *memory_add(int file, size_t size_bytes,
                                 CUmemGenericAllocationHandle *handle_out)
{
    for (uint32_t i = 0; i < MEMORIES_MAX; i++) {
        if (memories[i].size_bytes > 0) continue;
        memories[i] = (struct memory){.size_bytes = size_bytes, .handles = 1, .file = file};
        *handle_out = HANDLE_FIRST + i;
        return &memories[i];
    }
    abort();
}

void fake_maps_count(struct fake_cuda_live *live)
{
    for (uint32_t i = 0; i < MEMORIES_MAX; i++) {
        /* counted as what is mapped */
        if ((memories[i].size_bytes == 0) || (memories[i].maps > 0)) continue;
        if (memories[i].is_foreign)
            live->imported++;
        else
            live->allocations++;
    }
    for (uint32_t i = 0; i < RANGES_MAX; i++)
        if ((ranges[i].size_bytes > 0) && (ranges[i].mapped == NULL)) live->allocations++;
}

void fake_maps_forget(void)
{
    for (uint32_t i = 0; i < MEMORIES_MAX; i++)
        if (memories[i].size_bytes > 0) (void)close(memories[i].file);
    memset(memories, 0, sizeof memories);
    memset(ranges, 0, sizeof ranges);
}

CUresult cuMemGetAllocationGranularity(size_t *grain_out, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags flags)
{
    CUresult result = fake_enter("cuMemGetAllocationGranularity");
    if (result != CUDA_SUCCESS) return result;
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED)
        return wrong("cuMemGetAllocationGranularity", "not pinned");
    *grain_out = GRAIN_BYTES;
    return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle_out, size_t size_bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result = fake_enter("cuMemCreate");
    if (result != CUDA_SUCCESS) return result;
    if (!is_whole(size_bytes))
        return wrong("cuMemCreate", "a size that is no multiple of the granularity");
    if ((flags != 0) || (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED) ||
        (properties->win32HandleMetaData != NULL) ||
        (properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE) ||
        (properties->location.id < 0) || (properties->location.id >= FAKE_CUDA_DEVICES))
        return wrong("cuMemCreate", "properties of no device's memory");
    if (!fake_memory_charge(size_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    int file = fake_memory_file(size_bytes);
    if (file < 0) abort();
    memory_add(file, size_bytes, handle_out)->can_export =
        properties->requestedHandleTypes == DESCRIPTORS;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = fake_enter("cuMemRelease");
    struct memory *memory = memory_of(handle);
    if (memory == NULL) return wrong("cuMemRelease", "of what is no handle any more");
    memory->handles--;
    memory_drop(memory);
    return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *base_out, size_t size_bytes, size_t alignment,
                             CUdeviceptr wish, unsigned long long flags)
{
    CUresult result = fake_enter("cuMemAddressReserve");
    if (result != CUDA_SUCCESS) return result;
    if (!is_whole(size_bytes) || (flags != 0) || (wish != 0) ||
        ((alignment & (alignment - 1)) != 0))
        return wrong("cuMemAddressReserve",
                     "a size that is no multiple of the granularity, or a wish beside it");
    for (uint32_t i = 0; i < RANGES_MAX; i++) {
        if (ranges[i].size_bytes > 0) continue;
        uint64_t at = fake_reserve(size_bytes);
        if (at == 0) return CUDA_ERROR_OUT_OF_MEMORY;
        ranges[i] = (struct range){.base = at, .size_bytes = size_bytes};
        *base_out = at;
        return CUDA_SUCCESS;
    }
    abort();
}

CUresult cuMemAddressFree(CUdeviceptr base, size_t size_bytes)
{
    CUresult result = fake_enter("cuMemAddressFree");
    struct range *range = range_of(base, size_bytes);
    if (range == NULL) return wrong("cuMemAddressFree", "of what was not reserved so");
    if (range->mapped != NULL) return wrong("cuMemAddressFree", "of what is still mapped");
    range->size_bytes = 0;
    return result;
}

CUresult cuMemMap(CUdeviceptr base, size_t size_bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = fake_enter("cuMemMap");
    struct memory *memory = memory_of(handle);
    struct range *range = range_of(base, size_bytes);
    struct region *region;
    if (result != CUDA_SUCCESS) return result;
    if ((memory == NULL) || (range == NULL) || (range->mapped != NULL) || (offset != 0) ||
        (flags != 0) || (size_bytes != memory->size_bytes))
        return wrong("cuMemMap",
                     "of what is no handle, or not to free reserved addresses of its size");
    if (!fake_place(base, memory->file, size_bytes) ||
        (fake_region_add(base, size_bytes, REGION_MAPPED, &region) != CUDA_SUCCESS))
        return CUDA_ERROR_OUT_OF_MEMORY;
    region->is_foreign = memory->is_foreign;
    if (!memory->is_foreign && (memory->maps == 0) && !memory->is_exported)
        fake_memory_fill(base, size_bytes);
    region->is_closed = true;
    range->mapped = memory;
    memory->maps++;
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr base, size_t size_bytes)
{
    CUresult result = fake_enter("cuMemUnmap");
    struct range *range = range_of(base, size_bytes);
    fake_synchronise("cuMemUnmap");
    if ((range == NULL) || (range->mapped == NULL))
        return wrong("cuMemUnmap", "of what is not mapped so");
    fake_unplace(base, size_bytes);
    fake_region_remove(fake_region_at(base, size_bytes));
    range->mapped->maps--;
    memory_drop(range->mapped);
    range->mapped = NULL;
    return result;
}

CUresult cuMemSetAccess(CUdeviceptr base, size_t size_bytes, const CUmemAccessDesc *access,
                        size_t count)
{
    CUresult result = fake_enter("cuMemSetAccess");
    struct range *range = range_of(base, size_bytes);
    if (result != CUDA_SUCCESS) return result;
    if ((range == NULL) || (range->mapped == NULL))
        return wrong("cuMemSetAccess", "of what is not mapped so");
    if ((count != 1) || (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE) ||
        (CONTEXT(access->location.id) != fake_current()))
        return wrong("cuMemSetAccess", "for another device than the current one");
    fake_region_at(base, size_bytes)->is_closed =
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *descriptor_out, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    CUresult result = fake_enter("cuMemExportToShareableHandle");
    struct memory *memory = memory_of(handle);
    if (result != CUDA_SUCCESS) return result;
    if ((memory == NULL) || !memory->can_export || (type != DESCRIPTORS) || (flags != 0))
        return wrong("cuMemExportToShareableHandle", "of what was not made for it");
    int descriptor = dup(memory->file); /* as a real one, not closed by exec() */
    if (descriptor < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(descriptor_out, &descriptor, sizeof descriptor);
    memory->is_exported = true;
    return CUDA_SUCCESS;
}

/* Of a file of fake_memory_file(); 0: it is none. */
static size_t size_of(int file)
{
    struct stat found;
    if ((fstat(file, &found) != 0) || !S_ISREG(found.st_mode)) return 0;
    return is_whole((uint64_t)found.st_size) ? (size_t)found.st_size : 0;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle_out, void *descriptor,
                                        CUmemAllocationHandleType type)
{
    CUresult result = fake_enter("cuMemImportFromShareableHandle");
    int file = (int)(intptr_t)descriptor;
    if (result != CUDA_SUCCESS) return result;
    size_t size_bytes = size_of(file);
    if ((type != DESCRIPTORS) || (size_bytes == 0)) return CUDA_ERROR_INVALID_VALUE;
    file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
    memory_add(file, size_bytes, handle_out)->is_foreign = true;
    return CUDA_SUCCESS;
}
