/* The reflected polynomial 0x82f63b78, all ones in and out. */
#include "ops/element/host/crc32c.h"

#include <string.h>

uint32_t gf_crc32c_plain(uint32_t crc, const void *data, size_t size_bytes)
{
    const unsigned char *bytes = data;
    crc = ~crc;
    for (size_t i = 0; i < size_bytes; i++) {
        crc ^= bytes[i];
        for (unsigned bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (UINT32_C(0x82f63b78) & (0u - (crc & 1u)));
    }
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_hardware(uint32_t crc, const void *data, size_t size_bytes)
{
    const unsigned char *bytes = data;
    uint64_t wide = (uint32_t)~crc;
    for (; size_bytes >= sizeof wide; bytes += sizeof wide, size_bytes -= sizeof wide) {
        uint64_t word;
        memcpy(&word, bytes, sizeof word);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size_bytes > 0; bytes++, size_bytes--) crc = __builtin_ia32_crc32qi(crc, *bytes);
    return ~crc;
}
#endif

uint32_t gf_crc32c(uint32_t crc, const void *data, size_t size_bytes)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return crc32c_hardware(crc, data, size_bytes);
#endif
    return gf_crc32c_plain(crc, data, size_bytes);
}
