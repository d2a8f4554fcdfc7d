/* Measuring and handing out are the same walk (lib/core/layout.c): gf_measure() does it on an arena
 * without a base. */
#include "lib/core/arena.h"

void *gf_arena_take(struct gf_arena *arena, uint64_t size_bytes)
{
    uint64_t at = gf_align_up(arena->used_bytes, GF_ALIGN_BYTES);
    arena->used_bytes = at + size_bytes;
    if ((arena->base == NULL) || (arena->used_bytes > arena->size_bytes)) return NULL;
    return arena->base + at;
}

void *gf_arena_take_bulk(struct gf_arena *arena, uint64_t size_bytes)
{
    arena->used_bytes = gf_align_up(arena->used_bytes, GF_BULK_ALIGN_BYTES);
    return gf_arena_take(arena, size_bytes);
}
