/* The reflected polynomial 0x82f63b78, all ones in and out. */
#include "ops/element/host/crc32c.h"

#include <stdbool.h>
#include <string.h>

#if defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

uint32_t gf_crc32c_plain(uint32_t crc, const void *data, size_t size_bytes)
{
    const unsigned char *bytes = data;
    crc = ~crc;
    for (size_t i = 0; i < size_bytes; i++) {
        crc ^= bytes[i];
        for (unsigned bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (UINT32_C(0x82f63b78) & (0u - (crc & 1u)));
    }
    return ~crc;
}

#if defined(__x86_64__)
#define CRC_TARGET __attribute__((target("sse4.2")))
#define CRC_WORD(crc, word) (uint32_t) __builtin_ia32_crc32di((crc), (word))
#define CRC_BYTE(crc, byte) __builtin_ia32_crc32qi((crc), (byte))
static bool has_crc(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
#define CRC_TARGET __attribute__((target("+crc")))
#define CRC_WORD(crc, word) __crc32cd((crc), (word))
#define CRC_BYTE(crc, byte) __crc32cb((crc), (byte))
static bool has_crc(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#endif

#if defined(CRC_TARGET)
CRC_TARGET static uint32_t crc32c_hardware(uint32_t crc, const void *data, size_t size_bytes)
{
    const unsigned char *bytes = data;
    uint64_t word;
    crc = ~crc;
    for (; size_bytes >= sizeof word; bytes += sizeof word, size_bytes -= sizeof word) {
        memcpy(&word, bytes, sizeof word);
        crc = CRC_WORD(crc, word);
    }
    for (; size_bytes > 0; bytes++, size_bytes--) crc = CRC_BYTE(crc, *bytes);
    return ~crc;
}
#endif

uint32_t gf_crc32c(uint32_t crc, const void *data, size_t size_bytes)
{
#if defined(CRC_TARGET)
    if (has_crc()) return crc32c_hardware(crc, data, size_bytes);
#endif
    return gf_crc32c_plain(crc, data, size_bytes);
}
