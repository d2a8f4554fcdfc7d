/* How a rank sleeps on flags in memory that ranks share, and the pages of that memory (link.h). */
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "drivers/host/fence.h"
#include "drivers/link.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif
#define PAGE_BYTES 4096u

/* A rank announces its sleep by a flag whose lower half is a futex (endpoint addresses check that
 * the host is little-endian). Arming and waking each have a full fence between their own store and
 * their read of the other's, so at least one of them sees the other's store. */
static uint32_t *sleep_word(unsigned char *region, size_t offset_bytes)
{
    return (uint32_t *)(void *)(region + offset_bytes);
}

void gf_flag_arm(struct gf_link *link, size_t offset_bytes)
{
    __atomic_store_n(sleep_word(link->region, offset_bytes), 1, __ATOMIC_RELAXED);
    gf_full_fence();
}

void gf_flag_sleep(struct gf_link *link, size_t offset_bytes, uint64_t timeout_ns)
{
    uint32_t *word = sleep_word(link->region, offset_bytes);
    const struct timespec longest = {.tv_sec = (time_t)(timeout_ns / 1000000000u),
                                     .tv_nsec = (long)(timeout_ns % 1000000000u)};
    if (__atomic_load_n(word, __ATOMIC_RELAXED) == 1)
        (void)syscall(SYS_futex, word, FUTEX_WAIT, 1, &longest, NULL, 0);
    __atomic_store_n(word, 0, __ATOMIC_RELAXED);
}

void gf_flag_wake(void *region, size_t offset_bytes)
{
    uint32_t *word = sleep_word(region, offset_bytes);
    gf_full_fence();
    if (__atomic_load_n(word, __ATOMIC_RELAXED) == 0) return;
    if (__atomic_exchange_n(word, 0, __ATOMIC_RELAXED) != 0)
        (void)syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void gf_pages_touch(unsigned char *at, size_t bytes)
{
    if (madvise(at, bytes, MADV_POPULATE_READ) == 0) return;
    for (size_t i = 0; i < bytes; i += PAGE_BYTES) (void)*(const volatile unsigned char *)(at + i);
}
