/* Counts the bytes that a context's element ops read and write: what a step and its update cost in
 * memory, whatever the machine. */
#ifndef OPS_BYTES_H
#define OPS_BYTES_H

#include "lib/context.h"

/* since the last ops_bytes_watch() */
struct ops_bytes {
    uint64_t read, written;
    uint32_t checks, casts; /* calls that look alone, or scale and cast */
};
extern struct ops_bytes ops_bytes;

/* From here the context's ops are counted, with those of all other contexts that are watched: of
 * one world, whose ranks have the same ops. */
void ops_bytes_watch(gf_context *gf);

#endif
