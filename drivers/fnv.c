/* See fnv.h. */
#include "drivers/fnv.h"

uint64_t gf_fnv_bytes(uint64_t hash, const void *data, size_t size_bytes)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size_bytes; i++) hash = gf_fnv_byte(hash, bytes[i]);
    return hash;
}

uint64_t gf_fnv_u64(uint64_t hash, uint64_t value)
{
    for (unsigned shift = 0; shift < 64; shift += 8) hash = gf_fnv_byte(hash, (unsigned char)(value >> shift));
    return hash;
}
