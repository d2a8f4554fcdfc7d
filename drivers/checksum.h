/* CRC32C (Castagnoli, RFC 3720), by the instruction of the CPU where it has one. */
#ifndef GF_CHECKSUM_H
#define GF_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from `crc`, 0 at first: gf_crc32c(gf_crc32c(0, a, n), b, m) is that of a and b one after
 * the other. */
uint32_t gf_crc32c(uint32_t crc, const void *data, size_t size_bytes);
/* By the instruction for a word, without the one that folds. */
uint32_t gf_crc32c_words(uint32_t crc, const void *data, size_t size_bytes);
/* By a table of 16 words: used where the CPU has no instruction, and what that is tested against.
 */
uint32_t gf_crc32c_plain(uint32_t crc, const void *data, size_t size_bytes);

#endif
