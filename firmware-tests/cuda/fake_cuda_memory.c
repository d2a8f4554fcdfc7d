/* The fake CUDA driver: addresses. Device memory is of one reservation that nobody may touch, a
 * file without a name that other processes can map too; registered host memory is the caller's.
 * Beside each lies a shadow: for every two bytes who wrote them last and who read them last. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "firmware-tests/cuda/fake_cuda_state.h"

#define RESERVED_BYTES (64ull << 30)
#define GRAIN 2u                /* blocks of 16-bit values end anywhere */
#define FILL_MAX (256ull << 20) /* new device memory is filled with NaN up to here */
#define READERS 2u
#define LOCK_EVERY 16u /* works */
#define RECENT 256u    /* pages */
#define SHADOWS 16u

/* stream and its clock at the access, clock << STREAM_BITS | stream; 0: nobody yet. Readers share a
 * place where their streams' numbers have the same remainder: then a read may be forgotten, never
 * invented. */
struct cell {
    uint32_t writer, reader[READERS];
};

struct region fake_regions[REGIONS_MAX];
static uint64_t reserved, reserved_next, used_bytes;
static uint32_t unlocked;
/* Of regions that are gone, for those that come: the host has seen the end of all that is written
 * there. */
static struct {
    void *at;
    size_t bytes;
} shadows[SHADOWS];

static void *shadow_take(size_t bytes)
{
    for (uint32_t i = 0; i < SHADOWS; i++) {
        if ((shadows[i].at == NULL) || (shadows[i].bytes != bytes)) continue;
        void *at = shadows[i].at;
        shadows[i].at = NULL;
        return at;
    }
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                -1, 0);
}

static void shadow_give(void *at, size_t bytes)
{
    static uint32_t next;
    next = (next + 1u) % SHADOWS;
    if (shadows[next].at != NULL) (void)munmap(shadows[next].at, shadows[next].bytes);
    shadows[next].at = at;
    shadows[next].bytes = bytes;
}
uint64_t fake_touched_bytes;

CUresult fake_region_add(uint64_t base, size_t size_bytes, region_kind kind,
                         struct region **region_out)
{
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        struct region *region = &fake_regions[i];
        if (region->size_bytes != 0) continue;
        size_t cells = (size_bytes + (base % GRAIN) + GRAIN - 1u) / GRAIN + 1u;
        void *shadow = shadow_take(cells * sizeof(struct cell));
        if (shadow == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
        *region = (struct region){.base = base,
                                  .size_bytes = size_bytes,
                                  .shadow_bytes = cells * sizeof(struct cell),
                                  .shadow = shadow,
                                  .kind = kind};
        if (region_out != NULL) *region_out = region;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static bool holds(const struct region *region, uint64_t address, size_t size_bytes)
{
    if ((address < region->base) || (size_bytes > region->size_bytes)) return false;
    return (region->size_bytes != 0) && (address - region->base <= region->size_bytes - size_bytes);
}

/* The next access to a page is mostly to the region of the last one. */
struct region *fake_region_at(uint64_t address, size_t size_bytes)
{
    static uint8_t recent[RECENT];
    uint8_t *last = &recent[(address >> 12) % RECENT];
    if (holds(&fake_regions[*last], address, size_bytes)) return &fake_regions[*last];
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        if (!holds(&fake_regions[i], address, size_bytes)) continue;
        *last = (uint8_t)i;
        return &fake_regions[i];
    }
    return NULL;
}

void fake_region_remove(struct region *region)
{
    shadow_give(region->shadow, region->shadow_bytes);
    *region = (struct region){0};
}

void fake_memory_unlock(void)
{
    unlocked++;
}

static void region_open(struct region *region)
{
    if ((region == NULL) || (unlocked == 0) || region->open || (region->kind == REGION_HOST))
        return;
    if (mprotect((void *)(uintptr_t)region->base, region->size_bytes, PROT_READ | PROT_WRITE) != 0)
        abort();
    region->open = true;
}

void fake_memory_open(uint64_t address)
{
    region_open(fake_region_at(address, 1));
}

void fake_memory_open_all(void)
{
    for (uint32_t i = 0; i < REGIONS_MAX; i++)
        if (fake_regions[i].size_bytes != 0) region_open(&fake_regions[i]);
}

/* Not behind each work: it takes as long as the work. Who touches device memory does so often. */
void fake_memory_lock(void)
{
    static uint32_t ended;
    if ((--unlocked > 0) || (++ended % LOCK_EVERY != 0)) return;
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        struct region *region = &fake_regions[i];
        if (region->open)
            (void)mprotect((void *)(uintptr_t)region->base, region->size_bytes, PROT_NONE);
        region->open = false;
    }
}

uint64_t fake_reserve(size_t whole)
{
    if (reserved == 0) {
        void *base = mmap(NULL, RESERVED_BYTES, PROT_NONE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) return 0;
        reserved = reserved_next = (uint64_t)(uintptr_t)base;
    }
    uint64_t at = reserved_next;
    if (at + whole + 4096u > reserved + RESERVED_BYTES) return 0;
    reserved_next += whole + 4096u;
    return at;
}

bool fake_place(uint64_t at, int file, size_t whole)
{
    return (at != 0) && (mmap((void *)(uintptr_t)at, whole, PROT_NONE, MAP_SHARED | MAP_FIXED, file,
                              0) != MAP_FAILED);
}

void fake_unplace(uint64_t at, size_t whole)
{
    (void)mmap((void *)(uintptr_t)at, whole, PROT_NONE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

bool fake_memory_charge(size_t whole)
{
    if ((whole > fake_settings.memory_bytes) || (used_bytes > fake_settings.memory_bytes - whole))
        return false;
    used_bytes += whole;
    return true;
}

void fake_memory_credit(size_t whole)
{
    used_bytes -= whole;
}

void fake_memory_fill(uint64_t address, size_t whole)
{
    if (whole > FILL_MAX) return;
    fake_memory_unlock();
    fake_memory_open(address);
    memset((void *)(uintptr_t)address, 0xff, whole);
    fake_memory_lock();
}

int fake_memory_file(size_t whole)
{
    int file = memfd_create("fake device memory", MFD_CLOEXEC);
    if ((file >= 0) && (ftruncate(file, (off_t)whole) == 0)) return file;
    if (file >= 0) (void)close(file);
    return -1;
}

CUresult fake_memory_take(uint64_t *address_out, size_t size_bytes)
{
    size_t whole = (size_bytes + 4095u) & ~(size_t)4095u;
    if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if ((whole < size_bytes) || !fake_memory_charge(whole)) return CUDA_ERROR_OUT_OF_MEMORY;
    int file = fake_memory_file(whole);
    uint64_t at = (file >= 0) ? fake_reserve(whole) : 0;
    bool placed = fake_place(at, file, whole);
    if (file >= 0) (void)close(file);
    if (!placed || (fake_region_add(at, whole, REGION_DEVICE, NULL) != CUDA_SUCCESS)) {
        fake_memory_credit(whole);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *address_out = at;
    fake_memory_fill(at, whole);
    return CUDA_SUCCESS;
}

CUresult fake_memory_give(uint64_t address)
{
    struct region *region = fake_region_at(address, 1);
    if ((region == NULL) || (region->kind != REGION_DEVICE) || (region->base != address)) {
        fake_trouble("cuMemFree of 0x%llx, which was not taken", (unsigned long long)address);
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_memory_credit(region->size_bytes);
    fake_unplace(address, region->size_bytes);
    fake_region_remove(region);
    return CUDA_SUCCESS;
}

void fake_memory_forget(void)
{
    fake_maps_forget();
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        if (fake_regions[i].size_bytes == 0) continue;
        if (fake_regions[i].kind != REGION_HOST)
            fake_unplace(fake_regions[i].base, fake_regions[i].size_bytes);
        fake_region_remove(&fake_regions[i]);
    }
    used_bytes = 0;
}

CUresult fake_host_add(void *base, size_t size_bytes)
{
    uint64_t address = (uint64_t)(uintptr_t)base;
    if ((base == NULL) || (size_bytes == 0)) return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < REGIONS_MAX; i++)
        if ((address < fake_regions[i].base + fake_regions[i].size_bytes) &&
            (fake_regions[i].base < address + size_bytes))
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return fake_region_add(address, size_bytes, REGION_HOST, NULL);
}

CUresult fake_host_remove(void *base)
{
    struct region *region = fake_region_at((uint64_t)(uintptr_t)base, 1);
    if ((region == NULL) || (region->kind != REGION_HOST) ||
        (region->base != (uint64_t)(uintptr_t)base)) {
        fake_trouble("cuMemHostUnregister of %p, which was not registered", base);
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    fake_region_remove(region);
    return CUDA_SUCCESS;
}

void fake_memory_count(struct fake_cuda_live *live)
{
    for (uint32_t i = 0; i < REGIONS_MAX; i++) {
        if (fake_regions[i].size_bytes == 0) continue;
        if (fake_regions[i].kind == REGION_HOST)
            live->registrations++;
        else if (fake_regions[i].is_foreign)
            live->imported++;
        else
            live->allocations++;
    }
    fake_maps_count(live);
}

uint64_t fake_memory_used(void)
{
    return used_bytes;
}

bool fake_is_host(uint64_t address, size_t size_bytes)
{
    const struct region *region = fake_region_at(address, size_bytes);
    return (region != NULL) && (region->kind == REGION_HOST);
}

bool fake_is_device(uint64_t address, size_t size_bytes)
{
    const struct region *region = fake_region_at(address, size_bytes);
    return (region != NULL) &&
           ((region->kind == REGION_DEVICE) || (region->kind == REGION_MAPPED)) &&
           !region->is_foreign;
}

bool fake_is_known(uint64_t address, size_t size_bytes)
{
    return fake_region_at(address, size_bytes) != NULL;
}

/* Was the access `stamp` over before this work could start? */
static bool is_before(uint32_t stamp, const struct work *work)
{
    uint32_t stream = stamp & ((1u << STREAM_BITS) - 1u);
    return (stamp == 0) || (stamp >> STREAM_BITS <= work->clock.at[stream]);
}

static void clash(const struct work *work, uint64_t address, bool is_write, uint32_t stamp,
                  bool was_write)
{
    static const char *const kinds[] = {
        [WORK_COPY] = "copy", [WORK_SET] = "zero",  [WORK_KERNEL] = "kernel",
        [WORK_WAIT] = "wait", [WORK_CARD] = "card", [WORK_HOLD] = "hold"};
    const char *name = (work->kind == WORK_KERNEL) ? work->kernel->name : "";
    fake_trouble("%s %s%s(work %u of stream %u) %s 0x%llx, which work %u of stream %u %s, and "
                 "nothing orders them",
                 kinds[work->kind], name, name[0] ? " " : "", work->clock.at[work->stream],
                 work->stream, is_write ? "writes" : "reads", (unsigned long long)address,
                 stamp >> STREAM_BITS, stamp & ((1u << STREAM_BITS) - 1u),
                 was_write ? "writes" : "reads");
}

bool fake_memory_touch(const struct work *work, uint64_t address, size_t size_bytes, bool is_write)
{
    return fake_region_touch(work, fake_region_at(address, size_bytes), address, size_bytes,
                             is_write);
}

bool fake_region_touch(const struct work *work, struct region *region, uint64_t address,
                       size_t size_bytes, bool is_write)
{
    uint32_t stamp = (work->clock.at[work->stream] << STREAM_BITS) | work->stream;
    fake_touched_bytes += size_bytes;
    if (size_bytes == 0) return true;
    if ((region == NULL) || region->is_closed) return false;
    if (!region->open) region_open(region);
    const uint64_t first = address / GRAIN - region->base / GRAIN;
    const uint64_t last = (address + size_bytes - 1u) / GRAIN - region->base / GRAIN;
    for (uint64_t i = first; i <= last; i++) {
        struct cell *cell = &region->shadow[i];
        if ((cell->writer != stamp) && !is_before(cell->writer, work))
            clash(work, region->base + i * GRAIN, is_write, cell->writer, true);
        for (uint32_t r = 0; is_write && (r < READERS); r++)
            if (!is_before(cell->reader[r], work))
                clash(work, region->base + i * GRAIN, is_write, cell->reader[r], false);
        if (is_write)
            *cell = (struct cell){.writer = stamp};
        else
            cell->reader[work->stream % READERS] = stamp;
    }
    return true;
}

void fake_memory_stamp(uint64_t address, size_t size_bytes, bool is_write, uint32_t stream,
                       uint32_t at)
{
    struct region *region = fake_region_at(address, size_bytes);
    if ((region == NULL) || (size_bytes == 0)) return;
    uint64_t last = (address + size_bytes - 1u) / GRAIN - region->base / GRAIN;
    for (uint64_t i = address / GRAIN - region->base / GRAIN; i <= last; i++) {
        uint32_t stamp = (at << STREAM_BITS) | stream;
        if (is_write)
            region->shadow[i].writer = stamp;
        else
            region->shadow[i].reader[stream % READERS] = stamp;
    }
}
