/* A region of memory that is laid out once, front to back, and never grows. */
#ifndef GF_ARENA_H
#define GF_ARENA_H

#include <stddef.h>
#include <stdint.h>

#define GF_ALIGN_BYTES 64u
#define GF_PAGE_BYTES 4096u
/* If a receive does not begin at a multiple of this, UCX reads the bytes up to the next multiple by
 * a transfer of their own. Over rc that makes two transfers a slice instead of one, and 0.92 of the
 * speed. ops/coll/flow.c has the same number for its slots. */
#define GF_BULK_ALIGN_BYTES 512u

struct gf_arena {
    char *base;          /* NULL: only count */
    uint64_t size_bytes; /* looked at only with a base */
    uint64_t used_bytes; /* what all takes together need, also past size_bytes */
};

static inline uint64_t gf_align_up(uint64_t value, uint64_t align)
{
    return (value + align - 1) / align * align;
}

/* The next size_bytes, 64-byte aligned; NULL while only counting, and once the arena is full. */
void *gf_arena_take(struct gf_arena *arena, uint64_t size_bytes);

/* The same, 512-byte aligned where arena->base is: for what a network moves in large messages. */
void *gf_arena_take_bulk(struct gf_arena *arena, uint64_t size_bytes);

#endif
