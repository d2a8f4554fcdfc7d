/* The checksum of a saved state: four lanes of multiply and shift, so that it runs as fast as memory. */
#include "lib/state/state_format.h"

#include <string.h>

#define LANES 4u

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ (hash >> 32);
}

uint64_t gf_state_hash(uint64_t hash, const void *data, uint64_t bytes)
{
    const unsigned char *at = data;
    uint64_t lanes[LANES] = {1, 2, 3, 4}, words[LANES], left = bytes;
    for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
        memcpy(words, at, sizeof words);
        for (unsigned i = 0; i < LANES; i++) lanes[i] = mix(lanes[i], words[i]);
    }
    for (unsigned i = 0; left >= sizeof words[0]; i++, left -= sizeof words[0], at += sizeof words[0]) {
        memcpy(words, at, sizeof words[0]);
        lanes[i] = mix(lanes[i], words[0]);
    }
    hash = mix(hash, bytes);
    for (unsigned i = 0; i < LANES; i++) hash = mix(hash, lanes[i]);
    return hash;
}
