/* Inside of the late device: what it was given, in order. late_gpu.c is its driver, late_ops.c its element ops. */
#ifndef LATE_STATE_H
#define LATE_STATE_H

#include "ops/module_ops.h"

#define WORK_MAX 65536u
#define EVENTS_MAX 256u
#define STREAM 0x57u
#define SOURCES_MAX 64u

typedef enum late_kind { COPY, ZERO, CAST, SUM, SUM_N, CHECK, SCORE, NORM, ACCUMULATE, RATIO, UPDATE, UPDATE_PART,
               UPDATE_CHUNKS, CAST_CHUNKS, ACCUMULATE_CHUNKS, ZERO_CHUNKS, ADAM } late_kind;

/* One call as it was made. */
struct late_work {
    late_kind kind;
    gf_mem at[2];
    gf_type types[2];
    uint64_t elem_count, base, chunk_elems, piece_elems;
    float scale;
    struct gf_accumulate accumulate;
    struct gf_check *check, *sources;
    struct gf_update update;
    struct gf_adam adam;
    struct gf_ratio ratio;
    struct gf_norm norm;
    struct gf_update_part part;
    struct gf_chunks chunks;
    uint32_t dst_count, src_count;
    gf_mem tables[2][SOURCES_MAX];
};

struct late {
    struct gf_gpu gpu;
    char *memory;
    size_t memory_bytes;
    char *registered;
    size_t registered_bytes;
    struct late_work *work;      /* [WORK_MAX] a ring */
    uint64_t queued, done;
    uint64_t first;              /* the one that lies at work[0] */
    uint64_t marks[EVENTS_MAX];
    uint32_t random;
};

static inline struct late *late_of(const struct gf_gpu *gpu) { return (struct late *)(uintptr_t)gpu; }

extern const struct gf_element_ops late_ops;
/* A place for one more, whose kind is set. */
struct late_work *late_work_new(struct gf_queue *queue, late_kind kind);
gf_status late_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes);
gf_status late_zero(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes);
void late_work_do(struct late *late, const struct late_work *work);
/* A device reaches its arena and registered memory, nothing else. */
void late_expect_reachable(struct late *late, gf_mem at, uint64_t bytes);

#endif
