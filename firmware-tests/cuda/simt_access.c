/* Who accessed each byte last: the thread sanitizer's calls, with this in place of its runtime.
 * Within a block two accesses are in order if a barrier lies between them, and between blocks of a
 * launch never. So a byte remembers its last write and its last reads by the stamp of the barrier
 * before. Memory that a block shares is nobody's when the next begins. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "firmware-tests/cuda/simt_state.h"

#define PAGE_BYTES 4096u
#define GRAIN_MAX 16u
#define RECENT 64u   /* pages */
#define MANY 0xffffu /* several threads */

struct cell {
    /* other: of the launch in which another block read it too */
    uint32_t write_stamp, read_stamp, other_stamp;
    uint16_t writer, reader;
    uint8_t write_atomic;
};

/* Each access so far was of whole grains, so the first byte of one stands for it. */
struct page {
    uintptr_t number;
    uint32_t grain;
    struct cell cells[PAGE_BYTES];
};

static struct page **pages; /* open addressing by number */
static size_t page_slots, page_count;
static struct page *recent[RECENT]; /* by number */
static gf_simt_allowed allowed;
static void *allowed_user;

/* Bounds of the section that all __shared__ variables lie in. */
extern char __start_gf_simt_shared[] __attribute__((weak));
extern char __stop_gf_simt_shared[] __attribute__((weak));
int __asan_address_is_poisoned(const volatile void *address) __attribute__((weak));

void gf_simt_allow(gf_simt_allowed fn, void *user)
{
    allowed = fn;
    allowed_user = user;
}

static bool is_shared(const char *at)
{
    return (at >= __start_gf_simt_shared) && (at < __stop_gf_simt_shared);
}

static struct page **slot_of(uintptr_t number)
{
    size_t slot = (size_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (page_slots - 1);
    while ((pages[slot] != NULL) && (pages[slot]->number != number))
        slot = (slot + 1) & (page_slots - 1);
    return &pages[slot];
}

static void pages_grow(void)
{
    struct page **before = pages;
    size_t slots_before = page_slots;
    page_slots = (page_slots == 0) ? 1024 : 2 * page_slots;
    pages = calloc(page_slots, sizeof(struct page *));
    if (pages == NULL) abort();
    for (size_t s = 0; s < slots_before; s++)
        if (before[s] != NULL) *slot_of(before[s]->number) = before[s];
    free(before);
}

static struct page *page_of(uintptr_t number)
{
    struct page **slot;
    if (2 * page_count >= page_slots) pages_grow();
    slot = slot_of(number);
    if (*slot == NULL) {
        *slot = calloc(1, sizeof(struct page));
        if (*slot == NULL) abort();
        (*slot)->number = number;
        (*slot)->grain = GRAIN_MAX;
        page_count++;
    }
    return *slot;
}

/* Of the page of an address, which has no larger grains. */
static struct page *page_with(uintptr_t address, uint32_t grain)
{
    uintptr_t number = address / PAGE_BYTES;
    struct page **page = &recent[number % RECENT];
    if ((*page == NULL) || ((*page)->number != number)) *page = page_of(number);
    if ((*page)->grain <= grain) return *page;
    for (uint32_t b = 0; b < PAGE_BYTES; b += (*page)->grain)
        for (uint32_t c = grain; c < (*page)->grain; c += grain)
            (*page)->cells[b + c] = (*page)->cells[b];
    (*page)->grain = grain;
    return *page;
}

/* The first stamp of this launch that another block may have; what a block shares no other has. */
static uint32_t others_from;

/* Of this launch, but no barrier in between: of another block, or of this one since the last
 * barrier. */
static bool unordered(uint32_t stamp)
{
    return (stamp == simt_now.stamp) || ((stamp >= others_from) && (stamp < simt_now.block_stamp));
}

static bool by_other(uint32_t stamp, uint16_t who)
{
    return unordered(stamp) && ((stamp != simt_now.stamp) || (who != simt_now.thread));
}

static void conflict(uintptr_t address, const struct cell *cell, bool is_write)
{
    bool with_write = by_other(cell->write_stamp, cell->writer);
    uint16_t who = with_write ? cell->writer : cell->reader;
    bool other_block = (with_write ? cell->write_stamp : cell->read_stamp) < simt_now.block_stamp;
    char name[24] = "several threads";
    if (who != MANY) (void)snprintf(name, sizeof name, "thread %u", (unsigned)who);
    simt_fail(
        "conflict: thread %u %s %s memory at 0x%llx, which %s%s %s with no barrier in between",
        simt_now.thread, is_write ? "writes" : "reads",
        is_shared((const char *)address) ? "shared" : "global", (unsigned long long)address, name,
        other_block ? " of another block" : "", with_write ? "wrote" : "read");
}

static void cell_access(struct cell *cell, uintptr_t address, bool is_write, bool is_atomic)
{
    uint16_t me = (uint16_t)simt_now.thread;
    if (by_other(cell->write_stamp, cell->writer) && !(is_atomic && (cell->write_atomic != 0)))
        conflict(address, cell, is_write);
    if (is_write) {
        if (by_other(cell->read_stamp, cell->reader) ||
            (cell->other_stamp == simt_now.launch_stamp))
            conflict(address, cell, is_write);
        cell->writer = by_other(cell->write_stamp, cell->writer) ? MANY : me;
        cell->write_stamp = simt_now.stamp;
        cell->write_atomic = is_atomic;
        return;
    }
    if (by_other(cell->read_stamp, cell->reader)) {
        if (cell->read_stamp != simt_now.stamp) {
            cell->other_stamp = simt_now.launch_stamp;
            cell->reader = me;
        } else {
            cell->reader = MANY;
        }
    } else {
        cell->reader = me;
    }
    cell->read_stamp = simt_now.stamp;
}

void simt_access(const void *address, size_t size_bytes, bool is_write, bool is_atomic)
{
    const char *at = address;
    uintptr_t first = (uintptr_t)address;
    if (!simt_now.running) return;
    if ((at >= simt_now.stack) && (at < simt_now.stack + SIMT_STACK_BYTES)) return;
    if ((at >= simt_now.args) && (at < simt_now.args + simt_now.args_bytes) && !is_write) return;
    simt_now.running = false; /* what is called from here on is not the kernel */
    if (((size_bytes & (size_bytes - 1)) == 0) && (first % size_bytes != 0))
        simt_fail("thread %u %s %zu bytes at 0x%llx, which is not a multiple of them",
                  simt_now.thread, is_write ? "writes" : "reads", size_bytes,
                  (unsigned long long)first);
    if (!is_shared(at) && (allowed != NULL) &&
        !allowed(allowed_user, address, size_bytes, is_write))
        simt_fail("thread %u may not %s %zu bytes at 0x%llx", simt_now.thread,
                  is_write ? "write" : "read", size_bytes, (unsigned long long)first);
    others_from = is_shared(at) ? simt_now.block_stamp : simt_now.launch_stamp;
    for (size_t b = 0; (__asan_address_is_poisoned != NULL) && (b < size_bytes); b++)
        if (__asan_address_is_poisoned(at + b))
            simt_fail("thread %u %s at 0x%llx, outside of any object", simt_now.thread,
                      is_write ? "writes" : "reads", (unsigned long long)first);
    const uintptr_t whole = first | size_bytes | GRAIN_MAX;
    for (uintptr_t b = first; b < first + size_bytes;) {
        struct page *page = page_with(b, (uint32_t)(whole & -whole));
        cell_access(&page->cells[b % PAGE_BYTES], b, is_write, is_atomic);
        b += page->grain;
    }
    simt_now.running = true;
}

void simt_shared_begin(void)
{
    char *begin = __start_gf_simt_shared;
    if (begin != NULL) memset(begin, 0xa5, (size_t)(__stop_gf_simt_shared - begin));
}

/* ---- what -fsanitize=thread calls ---- */

#define CALLS(size)                                                                     \
    void __tsan_read##size(void *at), __tsan_write##size(void *at);                     \
    void __tsan_unaligned_read##size(void *at), __tsan_unaligned_write##size(void *at); \
    void __tsan_read##size(void *at)                                                    \
    {                                                                                   \
        simt_access(at, size, false, false);                                            \
    }                                                                                   \
    void __tsan_write##size(void *at)                                                   \
    {                                                                                   \
        simt_access(at, size, true, false);                                             \
    }                                                                                   \
    void __tsan_unaligned_read##size(void *at)                                          \
    {                                                                                   \
        simt_access(at, size, false, false);                                            \
    }                                                                                   \
    void __tsan_unaligned_write##size(void *at)                                         \
    {                                                                                   \
        simt_access(at, size, true, false);                                             \
    }
CALLS(1)
CALLS(2)
CALLS(4)
CALLS(8)
CALLS(16)

void __tsan_read_range(void *at, unsigned long size),
    __tsan_write_range(void *at, unsigned long size);
/* By pieces that are whole for themselves. */
static void range_access(const char *at, unsigned long size, bool is_write)
{
    while (size > 0) {
        uintptr_t whole = (uintptr_t)at | GRAIN_MAX;
        unsigned long piece = whole & -whole;
        while (piece > size) piece /= 2;
        simt_access(at, piece, is_write, false);
        at += piece;
        size -= piece;
    }
}
void __tsan_read_range(void *at, unsigned long size)
{
    range_access(at, size, false);
}
void __tsan_write_range(void *at, unsigned long size)
{
    range_access(at, size, true);
}
void __tsan_init(void), __tsan_func_entry(void *caller), __tsan_func_exit(void);
void __tsan_init(void)
{
}
void __tsan_func_entry(void *caller)
{
    (void)caller;
}
void __tsan_func_exit(void)
{
}
void *__tsan_memcpy(void *dst, const void *src, size_t size),
    *__tsan_memset(void *dst, int value, size_t size);
void *__tsan_memcpy(void *dst, const void *src, size_t size)
{
    __tsan_read_range((void *)(uintptr_t)src, size);
    __tsan_write_range(dst, size);
    return memcpy(dst, src, size);
}
void *__tsan_memset(void *dst, int value, size_t size)
{
    __tsan_write_range(dst, size);
    return memset(dst, value, size);
}
