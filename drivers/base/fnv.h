/* FNV-1a, 64 bits: the library's one hash without a key. It is for what ranks compare
 * (configurations, tensors, calls, weights), for job ids, and for the checksum of a saved state.
 * It finds accidents, not forgers: a keyed hash is for those (libsodium's BLAKE2b, tcp/auth.c).
 * Hash values in a fixed order, never the bytes of a struct that has padding. */
#ifndef GF_FNV_H
#define GF_FNV_H

#include <stddef.h>
#include <stdint.h>

#define GF_FNV_START UINT64_C(0xcbf29ce484222325)

/* At once: another hash than that of its bytes, and faster. */
static inline uint64_t gf_fnv_word(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}
static inline uint64_t gf_fnv_byte(uint64_t hash, unsigned char byte)
{
    return gf_fnv_word(hash, byte);
}
uint64_t gf_fnv_bytes(uint64_t hash, const void *data, size_t size_bytes);
/* size_bytes: a multiple of 4. Words of 32 bits at once, four times as fast as their bytes. A
 * change inside one word always changes the result, as each word goes through steps that can be
 * undone. */
uint64_t gf_fnv_words(uint64_t hash, const void *data, uint64_t size_bytes);
/* As 8 bytes, the low ones first. */
uint64_t gf_fnv_u64(uint64_t hash, uint64_t value);

#endif
