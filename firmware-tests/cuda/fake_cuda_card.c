/* The fake CUDA driver: what a network card reads and writes of device memory. */
#include <string.h>

#include "firmware-tests/cuda/fake_cuda_state.h"

/* Behind what the host has seen; while it lasts, an access of a time that nobody has. */
bool fake_card_begin(uint64_t address, size_t size_bytes, bool is_write)
{
    static struct work work = {.kind = WORK_CARD, .stream = CARD_STREAM};
    if (!fake_is_device(address, size_bytes)) return false;
    work.clock = *fake_seen();
    work.clock.at[CARD_STREAM] = UINT32_MAX >> STREAM_BITS;
    (void)fake_memory_touch(&work, address, size_bytes, is_write);
    if (!is_write) return true;
    fake_memory_unlock();
    fake_memory_open(address);
    memset((void *)(uintptr_t)address, FAKE_CUDA_POISON, size_bytes);
    fake_memory_lock();
    return true;
}

void fake_card_end(uint64_t address, size_t size_bytes, bool is_write)
{
    fake_memory_stamp(address, size_bytes, is_write, CARD_STREAM, ++fake_seen()->at[CARD_STREAM]);
}

void fake_card_copy(bool to_device, void *dst, const void *src, size_t size_bytes)
{
    uint64_t address = to_device ? (uint64_t)(uintptr_t)dst : (uint64_t)(uintptr_t)src;
    if (!fake_is_device(address, size_bytes)) {
        fake_trouble("a card reaches 0x%llx, which is no device memory",
                     (unsigned long long)address);
        return;
    }
    fake_memory_unlock();
    fake_memory_open((uint64_t)(uintptr_t)dst);
    fake_memory_open((uint64_t)(uintptr_t)src);
    memcpy(dst, src, size_bytes);
    fake_memory_lock();
}
