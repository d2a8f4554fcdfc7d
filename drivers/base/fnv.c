/* See fnv.h. */
#include "drivers/base/fnv.h"

#include <string.h>

#include "drivers/base/fault.h"

uint64_t gf_fnv_bytes(uint64_t hash, const void *data, size_t size_bytes)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < size_bytes; i++) hash = gf_fnv_byte(hash, bytes[i]);
    return hash;
}

uint64_t gf_fnv_words(uint64_t hash, const void *data, uint64_t size_bytes)
{
    const unsigned char *at = data;
    GF_ASSERT(size_bytes % sizeof(uint32_t) == 0);
    for (uint64_t done = 0; done < size_bytes; done += sizeof(uint32_t)) {
        uint32_t word;
        memcpy(&word, at + done, sizeof word);
        hash = gf_fnv_word(hash, word);
    }
    return hash;
}

uint64_t gf_fnv_u64(uint64_t hash, uint64_t value)
{
    for (unsigned shift = 0; shift < 64; shift += 8)
        hash = gf_fnv_byte(hash, (unsigned char)(value >> shift));
    return hash;
}
