/* What tests of element ops work on: areas between guards, each twice: what the element op under test changes, and
 * what a loop written from the words in ops.h does. A case is run for each version of the ops that this CPU has,
 * and for counts, offsets, scales and types. */
#ifndef OPS_AREAS_H
#define OPS_AREAS_H

#include "ops/element/host/ops_host.h"

#define ELEMS_MAX 70000u

enum { WEIGHT, MOMENTUM, HALF, SOURCE, OTHER, OUT, OUT_TOO, AREAS };
#define MOMENT2 OTHER

extern const gf_type types[3];

struct turn {
    const struct gf_element_ops *ops;
    gf_type type;
    uint64_t count;
    uint32_t offset;
    float scale;
    bool finite;
};

/* Elements of a type in an area, `offset` bytes behind its guard. */
struct range {
    uint32_t area, offset;
    gf_type type;
};

uint32_t next(void); /* a random number */
uint64_t size_of(gf_type type);
float get(const uint8_t *base, gf_type type, uint64_t i);
void put(uint8_t *base, gf_type type, uint64_t i, float value);

/* A new area: with t->count elements, mostly of the size of gradients, special ones in between; or with none. */
struct range range_filled(const struct turn *t, uint32_t area, uint32_t offset, gf_type type);
struct range range_empty(uint32_t area, uint32_t offset, gf_type type);
gf_mem mem(struct range range);                          /* for the op */
uint8_t *wanted_base(struct range range);                /* for the loop, which */
float at(struct range range, uint64_t i);                /* reads .. */
void set(struct range range, uint64_t i, float value);   /* .. and writes */
/* The op left what the loop left, bytes before and behind the elements included. Where an op meets two NaNs at once,
 * which of them comes out is open; all else is compared bit by bit. `count` elements: what a failure looks at. */
bool same_bits(struct range range);
void same_count(const struct turn *t, const char *what, struct range range, uint64_t count);
void same(const struct turn *t, const char *what, struct range range); /* t->count */

void count_bad(struct gf_check *check, float value, uint64_t index);
void same_check(const struct turn *t, const char *what, const struct gf_check *got, const struct gf_check *want);

/* Chunks from and to all places of two ranges, the last of which is cut short: a selection and what it would be packed
 * to, or all in another order. */
#define CHUNKS_MAX 700u
extern uint32_t dst_list[CHUNKS_MAX], src_list[CHUNKS_MAX];
struct gf_chunks chunks_make(uint64_t elem_count, uint64_t chunk_elems, bool list_dst, bool list_src);
/* Elements that go together: of the n-th chunk; NULL: all t->count of them, at once. False: there are no more. */
struct span { uint64_t dst, src, count; };
bool span_at(const struct turn *t, const struct gf_chunks *chunks, uint32_t n, struct span *span_out);

void areas_whole(void); /* areas of ELEMS_MAX elements */
void each_version(void (*cases)(const struct turn *t));

#endif
