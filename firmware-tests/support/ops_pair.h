/* Two backends of the element ops side by side: one of the host's, and a device's or the host's of
 * another width that is held against it. Each element op runs on equal memory of both, and every
 * byte must be equal afterwards; of a device, but for the payload of a NaN. For backends that touch
 * the same memory as the host, and for those that do not: areas are reached by copies. */
#ifndef GF_OPS_PAIR_H
#define GF_OPS_PAIR_H

#include "ops/ops.h"

#define OPS_PAIR_AREAS 6u
#define OPS_PAIR_GUARD 64u /* bytes before and behind the elements, looked at too */

struct ops_pair {
    const struct gf_element_ops *ops; /* on trial */
    /* that it is held against; NULL: gf_element_ops_best() */
    const struct gf_element_ops *reference;
    uint32_t skew_bytes; /* of ranges: the host's need no alignment */
    bool any_nan;        /* a NaN need only be a NaN: of devices. All else is compared bit by bit */
    struct gf_queue *queue;
    gf_mem device; /* ops_pair_bytes() of the queue's memory; or, each by itself: */
    /* ops_pair_area_bytes() each, with nothing behind them; 0: all lie in `device`. Ranges then end
     * where their area does, so that an access behind one is outside of all memory. */
    gf_mem areas[OPS_PAIR_AREAS];
    uint64_t elems_max;
    /* Both wait until it is done. */
    void (*upload)(struct ops_pair *pair, gf_mem dst, const void *src, uint64_t size_bytes);
    void (*download)(struct ops_pair *pair, void *dst, gf_mem src, uint64_t size_bytes);
    /* NULL, or told of each comparison */
    void (*seen)(struct ops_pair *pair, const char *op, bool same);
    uint8_t *host[OPS_PAIR_AREAS]; /* set by ops_pair_begin() */
    uint32_t seed;
};

uint64_t ops_pair_bytes(uint64_t elems_max);
uint64_t ops_pair_area_bytes(uint64_t elems_max, uint32_t area);
void ops_pair_begin(struct ops_pair *pair); /* allocates the host's areas */
void ops_pair_end(struct ops_pair *pair);

/* Few enough for a tool that is slow, or whose host is: every loop is met with so many elements in
 * so many blocks. A multiple of 8, so that ranges that end where their area does begin on a
 * boundary, which norm's loop wants. */
#define OPS_PAIR_FEW_ELEMS 71000u
#define OPS_PAIR_FEW_BLOCKS 8u

/* A count at which every loop of each kernel is met, in grids of at most `blocks` blocks: all
 * threads have as many packs under way as they ever have, then some have one more, and elements are
 * left. */
uint64_t ops_pair_long_count(uint32_t blocks);

/* Each op is there: a row that a table forgets is NULL, and nothing else finds it before it is
 * called. The first that lacks is printed. */
bool ops_table_is_whole(const struct gf_element_ops *ops);

/* Every op with all types on `count` elements, its ranges beginning `offset` elements behind an
 * aligned address. The first difference is printed; false: there was one. */
bool ops_pair_run(struct ops_pair *pair, uint64_t count, uint32_t offset, uint32_t seed);

#endif
