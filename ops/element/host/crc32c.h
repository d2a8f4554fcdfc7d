/* CRC32C (Castagnoli, RFC 3720), in hardware where the CPU has it. */
#ifndef GF_CRC32C_H
#define GF_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from `crc`, 0 at first: gf_crc32c(gf_crc32c(0, a, n), b, m) is that of a and b one after
 * the other. */
uint32_t gf_crc32c(uint32_t crc, const void *data, size_t size_bytes);
/* The definition, a bit at a time: what the other is tested against, and used where there is no
 * hardware. */
uint32_t gf_crc32c_plain(uint32_t crc, const void *data, size_t size_bytes);

#endif
