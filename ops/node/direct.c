/* Direct: ranks of one node work straight in each other's exchange regions. Data is cut into one
 * block a rank; each rank combines its block over all ranks' memory, in rank order, and writes the
 * result to all ranks that need it. No message is sent; ranks only set flags for each other:
 *
 *     COPY -> SIGNAL -> WAIT -> WORK -> COPY -> SIGNAL -> WAIT -> .. -> DONE
 *
 * Data in the exchange region is combined where it lies: one round, without COPY. Of other data the
 * blocks that peers combine are staged, round by round, through the two halves of the staging
 * memory: while a round is combined in one half the next is copied into the other, so a round costs
 * one barrier. No peer touches the rank's own block, so that block stays where it is. Ranks of one
 * operation may differ in where their data lies.
 *
 * direct_flags.c says what a flag is. Small data has a variant of its own with one barrier:
 * direct_small.c.
 *
 * After a failure this rank has nothing under way. Peers that have not noticed the failure may
 * still write to its exchange region, and to nothing else. So the region's content is undefined
 * until the link's reset(). Unless all of those peers are known to be done, reset() maps another
 * region, which their mappings do not reach. */
#include "ops/node/direct.h"

/* ---- where blocks lie ---- */

/* Where data is scattered or gathered the caller gives the size of blocks. Otherwise blocks begin
 * on a cache line if data does. */
uint64_t gf_direct_block_elems(const struct gf_coll *coll)
{
    uint64_t first;
    uint64_t count;
    uint64_t unit = GF_DIRECT_ALIGN_BYTES / gf_coll_elem_bytes(coll);
    gf_coll_block(coll->plan.elem_count, coll->size, 0, &first, &count);
    if (coll->own.direct->block_elems != 0) return coll->own.direct->block_elems;
    if ((coll->plan.collective == GF_COLL_REDUCE_SCATTER) ||
        (coll->plan.collective == GF_COLL_ALLGATHER))
        return count;
    return (count + unit - 1) / unit * unit;
}

/* The part of block `index` that round `round` moves, in elements of data. */
static void round_range(struct gf_coll *coll, uint32_t index, uint64_t round, uint64_t *first_out,
                        uint64_t *count_out)
{
    const struct gf_direct_state *direct = gf_direct_of(coll);
    uint64_t begin = direct->block_elems * index;
    uint64_t end = begin + direct->block_elems;
    uint64_t first = begin + round * direct->round_elems;
    if (end > coll->plan.elem_count) end = coll->plan.elem_count;
    if (first > end) first = end;
    *first_out = first;
    *count_out = (end - first < direct->round_elems) ? end - first : direct->round_elems;
}

/* The same part in the staging of rank `owner`, which begins at `staging` and leaves out that
 * rank's own block. */
static gf_mem range_staged(struct gf_coll *coll, gf_mem staging, uint32_t owner, uint32_t index,
                           uint64_t round)
{
    size_t half = gf_direct_half_bytes(coll->size, coll->slice_bytes);
    uint32_t slot = (index > owner) ? index - 1 : index;
    return staging + (round % 2) * half +
           slot * gf_direct_of(coll)->round_elems * gf_coll_elem_bytes(coll);
}

/* ---- beginning ---- */

static bool in_region(const struct gf_coll *coll)
{
    gf_mem base = gf_direct_region(coll, coll->index);
    size_t bytes = coll->bytes;
    return (coll->plan.data >= base) &&
           (coll->plan.data - base <= coll->own.direct->region_bytes) &&
           (bytes <= coll->own.direct->region_bytes - (coll->plan.data - base)) &&
           (coll->plan.data % sizeof(uint16_t) == 0);
}

/* The number of rounds follows from where all ranks' data lies, which is known after the first
 * barrier. A rank that copies before that barrier is staged itself, so it knows the answer. */
static void rounds_set(struct gf_coll *coll)
{
    struct gf_direct_state *direct = gf_direct_of(coll);
    size_t elem_bytes = gf_coll_elem_bytes(coll);
    size_t unit = GF_DIRECT_ALIGN_BYTES / gf_coll_elem_bytes(coll);
    uint64_t most =
        gf_direct_half_bytes(coll->size, coll->slice_bytes) / (coll->size - 1) / elem_bytes;
    direct->round_elems = direct->block_elems;
    direct->rounds = (coll->plan.elem_count > 0) ? 1 : 0;
    if (!direct->any_staged || (direct->rounds == 0)) return;
    if (most > unit) most = most / unit * unit;
    if (direct->round_elems > most) direct->round_elems = most;
    direct->rounds = (direct->block_elems + direct->round_elems - 1) / direct->round_elems;
}

static gf_status direct_start(struct gf_coll *coll)
{
    struct gf_direct_state *direct = gf_direct_of(coll);
    GF_ASSERT((coll->size <= coll->own.direct->flag_ranks) &&
              (coll->own.direct->small_bytes <= GF_DIRECT_SMALL_BYTES));
    if (coll->plan.collective == GF_COLL_BARRIER) coll->plan.elem_count = 0;
    gf_direct_begin(coll);
    if (direct->small) return gf_direct_small_start(coll);
    GF_ASSERT((coll->plan.reduce == NULL) || (coll->plan.collective == GF_COLL_ALLREDUCE));
    GF_ASSERT(coll->staging_bytes >= 2 * gf_direct_half_bytes(coll->size, coll->slice_bytes));
    direct->block_elems = gf_direct_block_elems(coll);
    direct->staged = direct->any_staged = (coll->plan.elem_count > 0) && !in_region(coll);
    rounds_set(coll);
    GF_ASSERT(direct->rounds < (1u << GF_DIRECT_BARRIER_BITS) - 2);
    direct->state = direct->staged ? DIRECT_COPY_IN : DIRECT_SIGNAL;
    return GF_OK;
}

/* ---- progress of each state ---- */

/* The part of this rank's data that the others read in a round, or that it copies out after it. */
bool gf_direct_moves(const struct gf_coll *coll, uint32_t index, bool in)
{
    switch (coll->plan.collective) {
    case GF_COLL_ALLREDUCE: return true;
    case GF_COLL_REDUCE_SCATTER: return in || (index == coll->index);
    case GF_COLL_ALLGATHER: return in ? index == coll->index : index != coll->index;
    case GF_COLL_BROADCAST:
        return in ? coll->index == coll->plan.root : coll->index != coll->plan.root;
    case GF_COLL_BARRIER: break;
    }
    return false;
}

/* The ranges of a round together are half of the staging at most, about a slice. */
static gf_status round_copy(struct gf_coll *coll, uint64_t round, bool in)
{
    size_t elem_bytes = gf_coll_elem_bytes(coll);
    for (uint32_t index = 0; index < coll->size; index++) {
        uint64_t first;
        uint64_t count;
        gf_mem staged = range_staged(coll, coll->staging, coll->index, index, round);
        gf_mem at;
        gf_status status;
        if ((index == coll->index) || !gf_direct_moves(coll, index, in)) continue;
        round_range(coll, index, round, &first, &count);
        at = coll->plan.data + first * elem_bytes;
        if (count == 0) continue;
        status =
            coll->ops->copy(coll->queue, in ? staged : at, in ? at : staged, count * elem_bytes);
        if (status < 0) return status;
    }
    return GF_OK;
}

/* The address of a rank's copy of this rank's range, `elems` into it; 0: it can no longer be
 * reached. */
static gf_mem range_at(struct gf_coll *coll, uint32_t index, uint64_t round, uint64_t first,
                       uint64_t elems)
{
    size_t elem_bytes = gf_coll_elem_bytes(coll);
    gf_mem region = gf_direct_region(coll, index);
    uint64_t where;
    if (index == coll->index) return coll->plan.data + (first + elems) * elem_bytes;
    if (region == 0) return 0;
    where = gf_direct_of(coll)->where[index];
    if (where & GF_DIRECT_STAGED)
        return range_staged(coll, region + where - GF_DIRECT_STAGED, index, coll->index, round) +
               elems * elem_bytes;
    return region + where + (first + elems) * elem_bytes;
}

static bool is_source(const struct gf_coll *coll, uint32_t index)
{
    if (coll->plan.collective == GF_COLL_ALLGATHER) return index == coll->index;
    return (coll->plan.collective != GF_COLL_BROADCAST) || (index == coll->plan.root);
}

static bool is_target(const struct gf_coll *coll, uint32_t index)
{
    if (coll->plan.collective == GF_COLL_REDUCE_SCATTER) return index == coll->index;
    return (coll->plan.collective == GF_COLL_ALLREDUCE) || !is_source(coll, index);
}

/* In an allreduce every rank is a source and a target: all copies are reduced into this rank's
 * range, which is written to the others. */
static gf_status reduce_in(struct gf_coll *coll, const gf_mem *at, uint64_t count)
{
    gf_status status = GF_OK;
    for (uint32_t index = 0; (index < coll->size) && (status >= 0); index++)
        if (index != coll->index)
            status = coll->plan.reduce(coll->plan.reduce_arg, at[coll->index], at[index], count);
    for (uint32_t index = 0; (index < coll->size) && (status >= 0); index++)
        if (index != coll->index)
            status = coll->ops->copy(coll->queue, at[index], at[coll->index],
                                     count * gf_coll_elem_bytes(coll));
    return status;
}

/* Sums the values; a single source is copied bit by bit. */
gf_status gf_direct_combine(struct gf_coll *coll, uint64_t round, uint64_t first, uint64_t elems,
                            uint64_t count)
{
    gf_mem src[GF_DIRECT_RANKS_MAX];
    gf_mem dst[GF_DIRECT_RANKS_MAX];
    uint32_t src_count = 0;
    uint32_t dst_count = 0;
    size_t bytes = count * gf_coll_elem_bytes(coll);
    for (uint32_t index = 0; index < coll->size; index++) {
        gf_mem at = range_at(coll, index, round, first, elems);
        bool source = is_source(coll, index), target = is_target(coll, index);
        if (at == 0) return gf_direct_lost(coll, index);
        if (source) src[src_count++] = at;
        if (target) dst[dst_count++] = at;
        if (index != coll->index)
            coll->bytes_mapped += ((source ? bytes : 0) + (target ? bytes : 0));
    }
    if (coll->plan.reduce != NULL) return reduce_in(coll, src, count);
    if (coll->plan.collective <= GF_COLL_REDUCE_SCATTER)
        return gf_direct_sum(coll, dst, dst_count, src, first + elems, count, coll->check,
                             coll->sources);
    for (uint32_t d = 0; d < dst_count; d++) {
        gf_status status = coll->ops->copy(coll->queue, dst[d], src[0], bytes);
        if (status < 0) return status;
    }
    return GF_OK;
}

/* About a slice of loads; GF_OK once this rank's range of the round is done. */
static gf_status work(struct gf_coll *coll, uint64_t round)
{
    struct gf_direct_state *direct = gf_direct_of(coll);
    uint64_t unit = GF_DIRECT_ALIGN_BYTES / gf_coll_elem_bytes(coll);
    uint64_t most = coll->slice_bytes / gf_coll_elem_bytes(coll) / unit * unit;
    uint64_t first;
    uint64_t count;
    uint64_t left;
    gf_status status = GF_OK;
    if (most == 0) most = unit;
    round_range(coll, coll->index, round, &first, &count);
    left = count - direct->done;
    if (left > most) left = most;
    if (left > 0) status = gf_direct_combine(coll, round, first, direct->done, left);
    direct->done += left;
    if (status < 0) return status;
    return (direct->done < count) ? GF_AGAIN : GF_OK;
}

/* `barriers` counts this rank's signals. A round is worked on between two barriers: round r once
 * the signals r + 1 of all ranks are there, and it is whole once their signals r + 2 are. So with s
 * signals the states do this:
 *
 *     COPY_IN     round s into its half of staging             if staged, and there is a round s
 *     SIGNAL      s becomes s + 1
 *     WAIT        for the signals s of all others
 *     COPY_OUT    round s - 2, which is whole, out of staging  if staged, and there is such a round
 *     WORK        this rank's range of round s - 1; there is none after the last barrier
 *
 * Rounds s and s - 2 share a half: what is copied in was copied out before. */
static enum direct_state after_wait(const struct gf_direct_state *direct)
{
    return (direct->staged && (direct->barriers >= 2)) ? DIRECT_COPY_OUT : DIRECT_WORK;
}

static enum direct_state after_work(const struct gf_direct_state *direct)
{
    bool copies = direct->staged && (direct->barriers < direct->rounds);
    return copies ? DIRECT_COPY_IN : DIRECT_SIGNAL;
}

/* A poll ends where a flag is awaited, and after about a slice of work. */
static gf_status rounds_progress(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_direct_state *direct = gf_direct_of(coll);
    gf_status status;
    for (;;) {
        switch ((enum direct_state)direct->state) {
        case DIRECT_COPY_IN:
            status = round_copy(coll, direct->barriers, true);
            if (status < 0) return status;
            direct->state = DIRECT_SIGNAL;
            break;
        case DIRECT_SIGNAL:
            status = gf_direct_signal(coll);
            if (status < 0) return status;
            coll->moved_ns = now_ns;
            direct->state = DIRECT_WAIT;
            /* A slice was worked on before this signal, but not before the first one; and nothing
             * is left to do after the last one. */
            if ((direct->barriers > 1) && (direct->barriers <= direct->rounds)) return GF_AGAIN;
            break;
        case DIRECT_WAIT:
            status = gf_direct_flags_poll(coll, now_ns);
            if (status != GF_OK) return status;
            if (coll->own.direct->meets && !direct->any_staged) return GF_OK;
            if (direct->barriers == 1) rounds_set(coll);
            direct->state = after_wait(direct);
            break;
        case DIRECT_COPY_OUT:
            status = round_copy(coll, direct->barriers - 2, false);
            if (status < 0) return status;
            coll->moved_ns = now_ns;
            direct->state = DIRECT_WORK;
            break;
        case DIRECT_WORK:
            if (direct->barriers > direct->rounds) return GF_OK;
            status = work(coll, direct->barriers - 1);
            if (status < 0) return status;
            coll->moved_ns = now_ns;
            if (status == GF_AGAIN) return GF_AGAIN;
            direct->done = 0;
            direct->state = after_work(direct);
            break;
        }
    }
}

static gf_status direct_progress(struct gf_coll *coll, uint64_t now_ns)
{
    return (gf_direct_of(coll)->small ? gf_direct_small_progress : rounds_progress)(coll, now_ns);
}

static void direct_need(const struct gf_coll_kind *kind, const struct gf_coll_limits *limits,
                        struct gf_coll_need *need_out)
{
    (void)kind;
    *need_out = (struct gf_coll_need){0};
    if (limits->size <= GF_DIRECT_RANKS_MAX)
        need_out->staging_bytes = 2 * gf_direct_half_bytes(limits->size, limits->slice_bytes);
}

const struct gf_coll_kind gf_coll_direct = {
    .name = "direct",
    .in_memory = true,
    .collectives = UINT32_MAX,
    .need = direct_need,
    .start = direct_start,
    .progress = direct_progress,
};
