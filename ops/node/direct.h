/* What the variants of direct share (direct.c, direct_small.c, direct_device.c). */
#ifndef GF_DIRECT_H
#define GF_DIRECT_H

#include "ops/coll.h"
#include "ops/ops.h"

/* operations under way at once; a power of two */
#define GF_DIRECT_OPS_MAX 32u
#define GF_DIRECT_LINE_BYTES 64u
/* of a rank in an operation: a line with its flag, and the next one */
#define GF_DIRECT_SLOT_BYTES 128u
/* data of an allreduce up to here goes beside the flags, into each peer's region */
#define GF_DIRECT_INLINE_BYTES 104u
/* data up to here may take one barrier; off powers of two, for the caches */
#define GF_DIRECT_SMALL_BYTES (8192u + 64u)

/* of a flag: barriers of one operation; the rest is its number */
#define GF_DIRECT_BARRIER_BITS 24u
#define GF_DIRECT_ALIGN_BYTES 64u
#define GF_DIRECT_STAGED 1u /* in the offset that says where data lies, which is a multiple of 2 */

enum direct_state { DIRECT_COPY_IN, DIRECT_SIGNAL, DIRECT_WAIT, DIRECT_COPY_OUT, DIRECT_WORK };

/* What a rank owns in each peer's region for an operation: two cache lines. The owner of the region
 * only reads them. */
struct gf_direct_slot {
    /* stored and loaded as one (gf_link_driver). All but `beat` is written before it */
    uint64_t flag;
    uint64_t what; /* which operation this is */
    union {
        uint64_t where;                          /* where this rank's data lies, */
        uint8_t inlined[GF_DIRECT_INLINE_BYTES]; /* or the data */
    };
    uint64_t beat; /* a sign of life, of no meaning to direct */
};
_Static_assert(sizeof(struct gf_direct_slot) == GF_DIRECT_SLOT_BYTES, "a slot is full");

struct gf_direct_state {
    uint64_t state;
    /* in each region: the slot of rank 0 in this operation; that of the next rank follows it */
    size_t slots_at;
    uint64_t what;     /* all ranks must say the same */
    uint64_t barriers; /* flags given so far */
    uint64_t arrived;  /* ranks below this one have given theirs, too */
    uint64_t rounds;
    uint64_t block_elems; /* of all blocks but the last */
    uint64_t round_elems; /* of a block that a round takes */
    uint64_t done;        /* elements of a range, or blocks copied, in this state */
    bool staged;          /* this rank's data */
    bool any_staged;      /* some rank's: there are rounds */
    bool small;           /* one barrier: direct_small.c */
    bool inlined;         /* its data goes with the flags */
    /* of each rank that has arrived, a copy that was checked: the peer can still change its slot */
    uint64_t where[GF_DIRECT_RANKS_MAX];
};

/* What direct needs in addition. A rank takes part in operations in the same order as all others.
 * `order` is the operation's number in that order, from 0; it is less than GF_DIRECT_OPS_MAX above
 * the oldest operation that is under way. */
struct gf_direct {
    uint64_t order;
    size_t region_bytes; /* of the exchange region, or of exported memory; the same on all ranks */
    /* [size] gf_coll_direct_device: each rank's device memory as this one reaches it; else NULL */
    const gf_mem *exported;
    /* the number of ranks, or more, that flags are laid out for; the region begins with
     * gf_direct_area_bytes() of it, zeroed */
    uint32_t flag_ranks;
    /* data up to this size takes one barrier, the same on all ranks; at most
     * GF_DIRECT_SMALL_BYTES */
    uint32_t small_bytes;
    /* Of gf_coll_direct_device: the queues of sums and of gathers; another rank's block of
     * engine_bytes or more is copied by a copy engine. */
    struct gf_queue sums, gathers;
    uint64_t engine_bytes;
    /* elements of a block that is scattered or gathered; 0: gf_coll_block() decides. Some ranks may
     * have no block */
    uint64_t block_elems;
    /* the operation ends after the first barrier if no rank's data is staged:
     * gf_direct_combine() */
    bool meets;
    struct gf_direct_state state; /* direct's own */
};

static inline struct gf_direct_state *gf_direct_of(const struct gf_coll *coll)
{
    return &coll->own.direct->state;
}

/* After the slots each rank has a line in every region: the core that it runs on, and in its own
 * region also whether it sleeps (gf_link_driver.flag_arm). */
static inline size_t gf_direct_rank_at(const struct gf_direct *direct, uint32_t index)
{
    return (size_t)2 * GF_DIRECT_OPS_MAX * direct->flag_ranks * GF_DIRECT_SLOT_BYTES +
           (size_t)index * GF_DIRECT_LINE_BYTES;
}
static inline size_t gf_direct_sleep_at(const struct gf_direct *direct, uint32_t index)
{
    return gf_direct_rank_at(direct, index) + sizeof(uint64_t);
}

static inline size_t gf_direct_flags_bytes(uint32_t world)
{
    return (size_t)world * (2 * GF_DIRECT_OPS_MAX * GF_DIRECT_SLOT_BYTES + GF_DIRECT_LINE_BYTES);
}

/* Bytes of flags and then small data, for a world of so many ranks; 0: it is too large for
 * direct. */
static inline size_t gf_direct_area_bytes(uint32_t world)
{
    if (world > GF_DIRECT_RANKS_MAX) return 0;
    return gf_direct_flags_bytes(world) + 2 * GF_DIRECT_OPS_MAX * (size_t)GF_DIRECT_SMALL_BYTES;
}

static inline uint32_t gf_direct_rank(const struct gf_coll *coll, uint32_t index)
{
    return gf_rank_at(coll->ranks, index);
}
/* The address of a peer's region; 0: it can no longer be reached, and lost() is the error for
 * that. */
static inline gf_mem gf_direct_region(const struct gf_coll *coll, uint32_t index)
{
    return (gf_mem)(uintptr_t)coll->link->driver->map(coll->link, gf_direct_rank(coll, index));
}
gf_status gf_direct_lost(struct gf_coll *coll, uint32_t index);
/* The rank that comes `distance` after this one; below size. */
static inline uint32_t gf_direct_after(const struct gf_coll *coll, uint32_t distance)
{
    uint32_t index = coll->index + distance;
    return (index < coll->size) ? index : index - coll->size;
}
/* The part of block `index` of this rank's data that the others read (in), or that this rank copies
 * out afterwards. */
bool gf_direct_moves(const struct gf_coll *coll, uint32_t index, bool in);

/* Bytes of half of the staging, which holds the ranges of all ranks in one round. */
static inline size_t gf_direct_half_bytes(uint32_t size, uint32_t slice_bytes)
{
    size_t least = (size_t)size * sizeof(uint64_t); /* an element a rank */
    size_t most = (slice_bytes > least) ? slice_bytes : least;
    return (most + GF_DIRECT_ALIGN_BYTES - 1) / GF_DIRECT_ALIGN_BYTES * GF_DIRECT_ALIGN_BYTES;
}
uint64_t gf_direct_block_elems(const struct gf_coll *coll); /* of all blocks but the last */

/* Sums of all ranks' data in host memory, in rank order; `first` is where they lie in data. */
static inline gf_status gf_direct_sum(const struct gf_coll *coll, const gf_mem *dst,
                                      uint32_t dst_count, const gf_mem *src, uint64_t first,
                                      uint64_t count, struct gf_check *check,
                                      struct gf_check *sources)
{
    return coll->ops->sum_n(coll->queue, dst, dst_count, src, coll->size, coll->plan.type, count,
                            coll->plan.base + first, check, sources);
}

/* Begins an operation: its slot, and state of which `small` is set. (memset() takes as long as a
 * line.) */
void gf_direct_begin(struct gf_coll *coll);
/* A barrier, in two halves: direct_flags.c. The first barrier of an operation also compares what
 * the operation is, and exchanges where data lies: in bytes from the exchange region or from
 * exported memory, with GF_DIRECT_STAGED in it where that is the staging. */
gf_status gf_direct_signal(struct gf_coll *coll);
/* looks at the flags; GF_OK: all ranks have arrived */
gf_status gf_direct_flags_poll(struct gf_coll *coll, uint64_t now_ns);
/* gf_direct_state.slots_at */
size_t gf_direct_slots_at(const struct gf_direct *direct, uint64_t order);
/* The slot of rank `writer` in each region; and what this rank finds in its own region. */
static inline size_t gf_direct_slot_at(const struct gf_coll *coll, uint32_t writer)
{
    return coll->own.direct->state.slots_at + (size_t)writer * GF_DIRECT_SLOT_BYTES;
}
static inline const struct gf_direct_slot *gf_direct_slot_of(const struct gf_coll *coll,
                                                             uint32_t writer)
{
    return (const void *)(coll->link->region + gf_direct_slot_at(coll, writer));
}
/* The value of this operation's flag after so many barriers. */
static inline uint64_t gf_direct_flag_value(const struct gf_coll *coll, uint64_t barriers)
{
    return ((coll->own.direct->order + 1) << GF_DIRECT_BARRIER_BITS) | barriers;
}

/* Adds all ranks' data from element `first` on into this rank's, or with GF_COLL_ALLGATHER copies
 * this rank's to all others. For elements of this rank's own block, once all ranks have arrived.
 * Where data is staged `round` says where; else it is 0. */
gf_status gf_direct_combine(struct gf_coll *coll, uint64_t round, uint64_t first, uint64_t elems,
                            uint64_t count);

gf_status gf_direct_small_start(struct gf_coll *coll); /* start() and progress() of small data */
gf_status gf_direct_small_progress(struct gf_coll *coll, uint64_t now_ns);

/* direct_flags.c. At the end of opening: reads each page of each peer's region once, some pages a
 * call, *pages so far; GF_OK: all of them. At every other moment some rank would wait for it. */
gf_status gf_direct_touch(struct gf_link *link, uint32_t size, uint64_t *pages);
/* Wakes all peers that sleep, because there is news on the control channel. */
void gf_direct_wake(struct gf_link *link, uint32_t size, uint32_t own, uint32_t flag_ranks);
/* Direct was asked for, and not all ranks share memory: why not, and which rank does not. */
void gf_direct_unshared(struct gf_link *link, uint32_t size, uint32_t own, uint32_t *peer_out,
                        char text_out[256]);

#endif
