/* What fuzz targets share: a check that ends the program and says where; for those with keys
 * constant random numbers, so that an input means the same each time, and a key file (key_path)
 * that goes with the program. */
#ifndef FUZZ_H
#define FUZZ_H

#include <sodium.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "firmware-tests/support/key_file.h"

static inline void must_at(bool condition, int line)
{
    if (condition) return;
    (void)fprintf(stderr, "line %d: what must hold does not\n", line);
    abort();
}
#define must(condition) must_at((condition), __LINE__)

static inline const char *random_name(void)
{
    return "constant";
}
static inline uint32_t random_word(void)
{
    return 4;
}
/* The library's own. */
ssize_t getrandom(void *to, size_t bytes, unsigned flags)
{
    (void)flags;
    memset(to, 0x42, bytes);
    return (ssize_t)bytes;
}
static inline void random_bytes(void *const to, const size_t bytes)
{
    memset(to, 0x42, bytes);
}
static inline void key_remove(void)
{
    (void)key_file_remove(NULL);
}
static inline void keys_begin(void)
{
    static struct randombytes_implementation constant = {
        .implementation_name = random_name, .random = random_word, .buf = random_bytes};
    must(randombytes_set_implementation(&constant) == 0);
    must((key_file_make(NULL) == 0) && (atexit(key_remove) == 0));
}

#endif
