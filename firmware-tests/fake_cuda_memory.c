/* The fake CUDA driver: addresses. Device memory is of one reservation that nobody may touch; registered host memory is
 * the caller's. Beside each lies a shadow: for every four bytes who wrote them last and who read them last. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake_cuda_state.h"

#define REGIONS_MAX 64u
#define RESERVED_BYTES (64ull << 30)
#define GRAIN 4u
#define FILL_MAX (256ull << 20) /* new device memory is filled with NaN up to here */
#define STREAM_BITS 4u
#define READERS 2u

/* stream and its clock at the access, clock << STREAM_BITS | stream; 0: nobody yet. Readers share a place where their
 * streams' numbers have the same parity: then a read may be forgotten, never invented. */
struct cell {
    uint32_t writer, reader[READERS];
};

static struct region {
    uint64_t base;
    size_t size_bytes, shadow_bytes;
    struct cell *shadow;
    bool is_host;
} regions[REGIONS_MAX];

static uint64_t reserved, reserved_next, used_bytes;
static uint32_t unlocked;

static CUresult region_add(uint64_t base, size_t size_bytes, bool is_host)
{
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        struct region *region = &regions[i];
        if (region->size_bytes != 0) continue;
        size_t cells = (size_bytes + (base % GRAIN) + GRAIN - 1u) / GRAIN + 1u;
        void *shadow = mmap(NULL, cells * sizeof(struct cell), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (shadow == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
        *region = (struct region){base, size_bytes, cells * sizeof(struct cell), shadow, is_host};
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct region *region_at(uint64_t address, size_t size_bytes)
{
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        struct region *region = &regions[i];
        if ((region->size_bytes != 0) && (address >= region->base) &&
            (address - region->base <= region->size_bytes - (size_bytes <= region->size_bytes ? size_bytes : region->size_bytes)) &&
            (size_bytes <= region->size_bytes))
            return region;
    }
    return NULL;
}

static void region_remove(struct region *region)
{
    (void)munmap(region->shadow, region->shadow_bytes);
    *region = (struct region){0};
}

void fake_memory_unlock(void)
{
    if (unlocked++ > 0) return;
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        const struct region *region = &regions[i];
        if ((region->size_bytes != 0) && !region->is_host &&
            (mprotect((void *)(uintptr_t)region->base, region->size_bytes, PROT_READ | PROT_WRITE) != 0))
            abort();
    }
}

void fake_memory_lock(void)
{
    if (--unlocked > 0) return;
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        const struct region *region = &regions[i];
        if ((region->size_bytes != 0) && !region->is_host)
            (void)mprotect((void *)(uintptr_t)region->base, region->size_bytes, PROT_NONE);
    }
}

CUresult fake_memory_take(uint64_t *address_out, size_t size_bytes)
{
    size_t whole = (size_bytes + 4095u) & ~(size_t)4095u;
    if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if ((whole < size_bytes) || (whole > fake_memory_bytes()) || (used_bytes > fake_memory_bytes() - whole))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (reserved == 0) {
        void *base = mmap(NULL, RESERVED_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
        reserved = reserved_next = (uint64_t)(uintptr_t)base;
    }
    if (reserved_next + whole + 4096u > reserved + RESERVED_BYTES) return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = region_add(reserved_next, whole, false);
    if (result != CUDA_SUCCESS) return result;
    *address_out = reserved_next;
    reserved_next += whole + 4096u; /* never used twice: a late access to what was freed is nobody's address */
    used_bytes += whole;
    if (whole > FILL_MAX) return CUDA_SUCCESS;
    fake_memory_unlock();
    memset((void *)(uintptr_t)*address_out, 0xff, whole);
    fake_memory_lock();
    return CUDA_SUCCESS;
}

CUresult fake_memory_give(uint64_t address)
{
    struct region *region = region_at(address, 1);
    if ((region == NULL) || region->is_host || (region->base != address)) {
        fake_trouble("cuMemFree of 0x%llx, which was not taken", (unsigned long long)address);
        return CUDA_ERROR_INVALID_VALUE;
    }
    used_bytes -= region->size_bytes;
    (void)madvise((void *)(uintptr_t)address, region->size_bytes, MADV_DONTNEED);
    region_remove(region);
    return CUDA_SUCCESS;
}

CUresult fake_host_add(void *base, size_t size_bytes)
{
    uint64_t address = (uint64_t)(uintptr_t)base;
    if ((base == NULL) || (size_bytes == 0)) return CUDA_ERROR_INVALID_VALUE;
    if (region_at(address, 1) || region_at(address + size_bytes - 1u, 1)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return region_add(address, size_bytes, true);
}

CUresult fake_host_remove(void *base)
{
    struct region *region = region_at((uint64_t)(uintptr_t)base, 1);
    if ((region == NULL) || !region->is_host || (region->base != (uint64_t)(uintptr_t)base)) {
        fake_trouble("cuMemHostUnregister of %p, which was not registered", base);
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    region_remove(region);
    return CUDA_SUCCESS;
}

void fake_memory_count(struct fake_cuda_live *live)
{
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        if (regions[i].size_bytes == 0) continue;
        if (regions[i].is_host) live->registrations++;
        else live->allocations++;
    }
}

uint64_t fake_memory_used(void)
{
    return used_bytes;
}

bool fake_is_host(uint64_t address, size_t size_bytes)
{
    const struct region *region = region_at(address, size_bytes);
    return (region != NULL) && region->is_host;
}

bool fake_is_known(uint64_t address, size_t size_bytes)
{
    return region_at(address, size_bytes) != NULL;
}

/* Was the access `stamp` over before this work could start? */
static bool is_before(uint32_t stamp, const struct work *work)
{
    uint32_t stream = stamp & ((1u << STREAM_BITS) - 1u);
    return (stamp == 0) || (stamp >> STREAM_BITS <= work->clock.at[stream]);
}

static void clash(const struct work *work, uint64_t address, bool is_write, uint32_t stamp, bool was_write)
{
    static const char *const kinds[] = {"copy", "zero", "kernel", "wait"};
    const char *name = (work->kind == WORK_KERNEL) ? work->kernel->name : "";
    fake_trouble("%s %s%s(work %u of stream %u) %s 0x%llx, which work %u of stream %u %s, and nothing orders them",
                 kinds[work->kind], name, name[0] ? " " : "", work->clock.at[work->stream], work->stream,
                 is_write ? "writes" : "reads", (unsigned long long)address, stamp >> STREAM_BITS,
                 stamp & ((1u << STREAM_BITS) - 1u), was_write ? "writes" : "reads");
}

bool fake_memory_touch(const struct work *work, uint64_t address, size_t size_bytes, bool is_write)
{
    struct region *region = region_at(address, size_bytes);
    uint32_t stamp = (work->clock.at[work->stream] << STREAM_BITS) | work->stream;
    if (size_bytes == 0) return true;
    if (region == NULL) return false;
    uint64_t first = address / GRAIN - region->base / GRAIN, last = (address + size_bytes - 1u) / GRAIN - region->base / GRAIN;
    for (uint64_t i = first; i <= last; i++) {
        struct cell *cell = &region->shadow[i];
        if (!is_before(cell->writer, work)) clash(work, region->base + i * GRAIN, is_write, cell->writer, true);
        for (uint32_t r = 0; is_write && (r < READERS); r++)
            if (!is_before(cell->reader[r], work)) clash(work, region->base + i * GRAIN, is_write, cell->reader[r], false);
        if (is_write) *cell = (struct cell){.writer = stamp};
        else cell->reader[work->stream % READERS] = stamp;
    }
    return true;
}
