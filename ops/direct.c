/* Direct: ranks of one node work straight in each other's exchange regions. Data is cut into one block a rank; each rank
 * combines its block over all ranks' memory, in rank order, and writes the result to all who need it. No message goes
 * out; all that ranks tell each other are flags:
 *
 *     COPY -> SIGNAL -> WAIT -> WORK -> COPY -> SIGNAL -> WAIT -> .. -> DONE
 *
 * Data that lies in the exchange region is worked on where it lies: one round, without COPY. Any other is staged round
 * by round through the two halves of the staging memory: while a round is combined in one half the next is copied into
 * the other, so a round costs one barrier. Ranks of one operation may differ in where their data lies.
 *
 * A rank owns a line of 64 bytes in each peer's region for each operation that can be under way (a lane), and the peer
 * only reads it: [flag] [where my data is, twice] [what operation this is, twice]. A flag holds the operation's number
 * and counts the barriers within; it only grows, so a lane needs no clearing between operations and a flag of an earlier
 * one is never taken for one of this. Of the other words an operation uses one or the other by turns in its lane, since
 * a peer may still read them when this rank is done. A rank that differs in operation, type or count is found by them
 * and is to blame.
 *
 * Small data takes a way of its own with one barrier: direct_small.c.
 *
 * After a failure nothing of this rank's is under way, but peers that have not noticed may still write to its exchange
 * region, and to nothing else: its content is undefined until the link's reset() maps another region, which those
 * peers' mappings do not reach. */
#include "direct.h"

#include <string.h>

#define STEP_BITS 24u /* of a flag: barriers of one operation; the rest is its number */
#define SUM_ALIGN_BYTES 64u
#define WHERE_STAGED 1u /* offsets are multiples of 2 */

/* Of a line. Where and what alternate from one operation in a lane to the next. */
enum { WORD_FLAG, WORD_WHERE, WORD_WHAT = WORD_WHERE + 2, WORD_BEAT = WORD_WHAT + 2 };

static struct direct *direct_of(struct gf_coll *coll)
{
    return gf_direct_of(coll);
}

static uint32_t seat_of(const struct gf_coll *coll, uint32_t index)
{
    return coll->members ? coll->members[index] : index;
}

static size_t half_bytes(uint32_t size, uint32_t slice_bytes)
{
    size_t least = (size_t)size * sizeof(uint64_t); /* an element a rank */
    size_t most = (slice_bytes > least) ? slice_bytes : least;
    return (most + SUM_ALIGN_BYTES - 1) / SUM_ALIGN_BYTES * SUM_ALIGN_BYTES;
}

/* ---- places ---- */

static size_t line_at(const struct gf_coll *coll, uint32_t writer, uint32_t word)
{
    size_t line = (size_t)(coll->direct.ticket % GF_DIRECT_LANES) * coll->direct.lane_ranks + writer;
    if (word != WORD_FLAG) word += (uint32_t)(coll->direct.ticket / GF_DIRECT_LANES % 2);
    return coll->direct.area_offset + line * GF_DIRECT_LINE_BYTES + word * sizeof(uint64_t);
}

size_t gf_direct_beat_at(const struct gf_coll_shared *shared, uint32_t writer)
{
    size_t line = (size_t)(shared->ticket % GF_DIRECT_LANES) * shared->lane_ranks + writer;
    return shared->area_offset + line * GF_DIRECT_LINE_BYTES + WORD_BEAT * sizeof(uint64_t);
}

/* Behind the lanes, one for all operations: on which core this rank runs. */
static size_t core_at(const struct gf_coll *coll, uint32_t writer)
{
    return coll->direct.area_offset +
           ((size_t)GF_DIRECT_LANES * coll->direct.lane_ranks + writer) * GF_DIRECT_LINE_BYTES;
}

static uint64_t flag_value(const struct gf_coll *coll, uint64_t step)
{
    return ((coll->direct.ticket + 1) << STEP_BITS) | step;
}

static uint64_t what(struct gf_coll *coll)
{
    uint64_t kind = ((uint64_t)direct_of(coll)->small << 7) | ((uint64_t)coll->op << 4) | (uint64_t)coll->type;
    return (((uint64_t)coll->root << 48) ^ (kind << 40)) + coll->elem_count;
}

gf_mem gf_direct_region(const struct gf_coll *coll, uint32_t index)
{
    return (gf_mem)(uintptr_t)coll->link->driver->map(coll->link, seat_of(coll, index));
}

/* Blocks of what is scattered are the caller's; all others begin on a line where data does. */
static uint64_t block_elems(const struct gf_coll *coll)
{
    uint64_t first, count, unit = SUM_ALIGN_BYTES / gf_coll_elem_bytes(coll);
    gf_coll_block(coll->elem_count, coll->size, 0, &first, &count);
    if (coll->direct.block_elems != 0) return coll->direct.block_elems;
    if ((coll->op == GF_COLL_REDUCE_SCATTER) || (coll->op == GF_COLL_ALLGATHER)) return count;
    return (count + unit - 1) / unit * unit;
}

/* The part of block `index` that round `round` moves, in elements of data. */
static void piece_of(struct gf_coll *coll, uint32_t index, uint64_t round, uint64_t *first_out, uint64_t *count_out)
{
    const struct direct *direct = direct_of(coll);
    uint64_t begin = direct->block_elems * index, end = begin + direct->block_elems;
    uint64_t first = begin + round * direct->piece_elems;
    if (end > coll->elem_count) end = coll->elem_count;
    if (first > end) first = end;
    *first_out = first;
    *count_out = (end - first < direct->piece_elems) ? end - first : direct->piece_elems;
}

/* The same where it lies in staging at `staging`. */
static gf_mem piece_staged(struct gf_coll *coll, gf_mem staging, uint32_t index, uint64_t round)
{
    size_t half = half_bytes(coll->size, coll->slice_bytes);
    return staging + (round % 2) * half + index * direct_of(coll)->piece_elems * gf_coll_elem_bytes(coll);
}

/* ---- beginning ---- */

static bool in_region(const struct gf_coll *coll)
{
    gf_mem base = (gf_mem)(uintptr_t)coll->link->driver->region(coll->link);
    uint64_t bytes = coll->elem_count * gf_coll_elem_bytes(coll);
    return (coll->data >= base) && (coll->data - base <= coll->direct.region_bytes) &&
           (bytes <= coll->direct.region_bytes - (coll->data - base)) && (coll->data % sizeof(uint16_t) == 0);
}

/* Rounds follow from where all ranks' data lies, which is known behind the first barrier. A rank that copies before it
 * knows the answer: itself is staged. */
static void rounds_set(struct gf_coll *coll)
{
    struct direct *direct = direct_of(coll);
    size_t elem_bytes = gf_coll_elem_bytes(coll), unit = SUM_ALIGN_BYTES / elem_bytes;
    uint64_t most = half_bytes(coll->size, coll->slice_bytes) / coll->size / elem_bytes;
    direct->piece_elems = direct->block_elems;
    direct->rounds = (coll->elem_count > 0) ? 1 : 0;
    if (!direct->any_staged || (direct->rounds == 0)) return;
    if (most > unit) most = most / unit * unit;
    if (direct->piece_elems > most) direct->piece_elems = most;
    direct->rounds = (direct->block_elems + direct->piece_elems - 1) / direct->piece_elems;
}

static gf_status direct_start(struct gf_coll *coll)
{
    struct direct *direct = direct_of(coll);
    GF_ASSERT((coll->size <= coll->direct.lane_ranks) && (coll->direct.small_bytes <= GF_DIRECT_SMALL_BYTES));
    memset(direct, 0, sizeof *direct);
    if (coll->op == GF_COLL_BARRIER) coll->elem_count = 0;
    direct->small = (coll->elem_count > 0) &&
                    (coll->elem_count * gf_coll_elem_bytes(coll) <= coll->direct.small_bytes);
    GF_ASSERT((coll->fold == NULL) || direct->small); /* blocks are summed by whoever owns them */
    direct->block_elems = block_elems(coll);
    direct->staged = !direct->small && (coll->elem_count > 0) && !in_region(coll);
    direct->any_staged = direct->staged;
    rounds_set(coll);
    GF_ASSERT(direct->rounds < (1u << STEP_BITS) - 2);
    direct->state = (direct->staged || direct->small) ? DIRECT_COPY_IN : DIRECT_SIGNAL;
    return GF_OK;
}

/* ---- one turn of each state ---- */

gf_status gf_direct_lost(struct gf_coll *coll, uint32_t index)
{
    coll->waits_for = seat_of(coll, index);
    return gf_fault_set(&coll->link->fault, GF_ERR_LINK, coll->waits_for, "map", 0,
                        "the exchange region of rank %u can no longer be reached", coll->waits_for);
}

/* What of this rank's data the others read before a round, or this rank takes over behind it. */
bool gf_direct_moves(const struct gf_coll *coll, uint32_t index, bool in)
{
    switch (coll->op) {
    case GF_COLL_ALLREDUCE:      return true;
    case GF_COLL_REDUCE_SCATTER: return in || (index == coll->index);
    case GF_COLL_ALLGATHER:      return in ? index == coll->index : index != coll->index;
    case GF_COLL_BROADCAST:      return in ? coll->index == coll->root : coll->index != coll->root;
    case GF_COLL_BARRIER:        break;
    }
    return false;
}

/* All pieces of a round together are half of the staging at most, about a slice. */
static gf_status round_copy(struct gf_coll *coll, uint64_t round, bool in)
{
    size_t elem_bytes = gf_coll_elem_bytes(coll);
    for (uint32_t index = 0; index < coll->size; index++) {
        uint64_t first, count;
        gf_mem staged = piece_staged(coll, coll->staging, index, round), at;
        gf_status status;
        piece_of(coll, index, round, &first, &count);
        at = coll->data + first * elem_bytes;
        if ((count == 0) || !gf_direct_moves(coll, index, in)) continue;
        status = coll->ops->copy(coll->queue, in ? staged : at, in ? at : staged, count * elem_bytes);
        if (status < 0) return status;
    }
    return GF_OK;
}

/* Told when it changes, which is seldom; what was told last stands in this rank's own line. */
static void core_tell(struct gf_coll *coll)
{
    const struct gf_link_driver *driver = coll->link->driver;
    size_t at = core_at(coll, coll->index);
    if (driver->flag_load(coll->link, at) == coll->direct.core) return;
    for (uint32_t index = 0; index < coll->size; index++)
        if (gf_direct_region(coll, index) != 0)
            driver->flag_store(coll->link, seat_of(coll, index), at, coll->direct.core);
}

static gf_status signal_all(struct gf_coll *coll)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct direct *direct = direct_of(coll);
    gf_mem base = (gf_mem)(uintptr_t)driver->region(coll->link);
    uint64_t where = direct->staged ? ((coll->staging - base) | WHERE_STAGED) : coll->data - base;
    if ((coll->elem_count == 0) || direct->small) where = 0;
    if (direct->steps == 0) core_tell(coll);
    for (uint32_t turn = 1; turn < coll->size; turn++) { /* each rank begins with another one */
        uint32_t index = (coll->index + turn) % coll->size, seat = seat_of(coll, index);
        if (gf_direct_region(coll, index) == 0) return gf_direct_lost(coll, index);
        if (direct->steps == 0) {
            driver->flag_store(coll->link, seat, line_at(coll, coll->index, WORD_WHERE), where);
            driver->flag_store(coll->link, seat, line_at(coll, coll->index, WORD_WHAT), what(coll));
        }
        driver->flag_store(coll->link, seat, line_at(coll, coll->index, WORD_FLAG), flag_value(coll, direct->steps + 1));
    }
    direct->steps++;
    direct->arrived = 0;
    return GF_OK;
}

static gf_status line_check(struct gf_coll *coll, uint32_t index)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct direct *direct = direct_of(coll);
    uint64_t where = driver->flag_load(coll->link, line_at(coll, index, WORD_WHERE));
    uint64_t theirs = driver->flag_load(coll->link, line_at(coll, index, WORD_WHAT));
    uint64_t bytes = (where & WHERE_STAGED) ? 2 * half_bytes(coll->size, coll->slice_bytes)
                                            : coll->elem_count * gf_coll_elem_bytes(coll);
    where &= ~(uint64_t)WHERE_STAGED;
    if ((theirs == what(coll)) && (where <= coll->direct.region_bytes) && (bytes <= coll->direct.region_bytes - where)) {
        if (driver->flag_load(coll->link, line_at(coll, index, WORD_WHERE)) & WHERE_STAGED) direct->any_staged = true;
        return GF_OK;
    }
    coll->waits_for = seat_of(coll, index);
    return gf_fault_set(&coll->link->fault, GF_ERR_MISMATCH, coll->waits_for, "direct", 0,
                        "rank %u is in another operation, or of another size: it says %#llx at %#llx, expected %#llx",
                        coll->waits_for, (unsigned long long)theirs, (unsigned long long)where,
                        (unsigned long long)what(coll));
}

/* Is some rank from `index` on awaited that shares this rank's core? It cannot come as long as this one spins. */
static bool any_near(const struct gf_coll *coll, uint32_t index, uint64_t wanted)
{
    const struct gf_link_driver *driver = coll->link->driver;
    if (coll->direct.core == 0) return false;
    for (; index < coll->size; index++) {
        if (driver->flag_load(coll->link, core_at(coll, index)) != coll->direct.core) continue;
        if (index == coll->index) continue;
        if (driver->flag_load(coll->link, line_at(coll, index, WORD_FLAG)) < wanted) return true;
    }
    return false;
}

/* Reads flags, up to coll->spins times more where the next one has not come. */
static gf_status wait_all(struct gf_coll *coll, uint64_t now_ns)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct direct *direct = direct_of(coll);
    uint64_t wanted = flag_value(coll, direct->steps);
    for (; direct->arrived < coll->size; direct->arrived++) {
        uint32_t index = (uint32_t)direct->arrived;
        size_t at = line_at(coll, index, WORD_FLAG);
        gf_status status;
        if (index == coll->index) continue;
        for (uint32_t spins = coll->spins; driver->flag_load(coll->link, at) < wanted; spins--) {
            coll->waits_for = seat_of(coll, index);
            if ((spins == coll->spins) && any_near(coll, index, wanted)) coll->direct.near = true;
            if ((spins == 0) || coll->direct.near) return GF_AGAIN;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
        if ((direct->steps == 1) && ((status = line_check(coll, index)) < 0)) return status;
        coll->moved_ns = now_ns;
    }
    coll->waits_for = GF_RANK_NONE;
    if (direct->steps == 1) rounds_set(coll);
    return GF_OK;
}

/* Where a rank's copy of this rank's piece lies, `elems` into it; 0: it cannot be reached any more. */
static gf_mem piece_at(struct gf_coll *coll, uint32_t index, uint64_t round, uint64_t first, uint64_t elems)
{
    size_t elem_bytes = gf_coll_elem_bytes(coll);
    gf_mem region = gf_direct_region(coll, index);
    uint64_t where;
    if (index == coll->index) {
        gf_mem own = direct_of(coll)->staged ? piece_staged(coll, coll->staging, index, round)
                                             : coll->data + first * elem_bytes;
        return own + elems * elem_bytes;
    }
    if (region == 0) return 0;
    where = coll->link->driver->flag_load(coll->link, line_at(coll, index, WORD_WHERE));
    if (where & WHERE_STAGED)
        return piece_staged(coll, region + where - WHERE_STAGED, coll->index, round) + elems * elem_bytes;
    return region + where + (first + elems) * elem_bytes;
}

static bool is_source(const struct gf_coll *coll, uint32_t index)
{
    if (coll->op == GF_COLL_ALLGATHER) return index == coll->index;
    return (coll->op != GF_COLL_BROADCAST) || (index == coll->root);
}

static bool is_target(const struct gf_coll *coll, uint32_t index)
{
    if (coll->op == GF_COLL_REDUCE_SCATTER) return index == coll->index;
    return (coll->op == GF_COLL_ALLREDUCE) || !is_source(coll, index);
}

/* Values are summed; a lone source is copied, to the bit. */
static gf_status combine(struct gf_coll *coll, uint64_t round, uint64_t first, uint64_t elems, uint64_t count)
{
    gf_mem src[GF_DIRECT_RANKS_MAX], dst[GF_DIRECT_RANKS_MAX];
    uint32_t src_count = 0, dst_count = 0;
    size_t bytes = count * gf_coll_elem_bytes(coll);
    for (uint32_t index = 0; index < coll->size; index++) {
        gf_mem at = piece_at(coll, index, round, first, elems);
        bool source = is_source(coll, index), target = is_target(coll, index);
        if (at == 0) return gf_direct_lost(coll, index);
        if (source) src[src_count++] = at;
        if (target) dst[dst_count++] = at;
        if (index != coll->index) coll->bytes_mapped += ((source ? bytes : 0) + (target ? bytes : 0));
    }
    if (coll->op <= GF_COLL_REDUCE_SCATTER)
        return coll->ops->sum_n(coll->queue, dst, dst_count, src, src_count, coll->type, count, first + elems,
                                coll->check, coll->sources);
    for (uint32_t d = 0; d < dst_count; d++) {
        gf_status status = coll->ops->copy(coll->queue, dst[d], src[0], bytes);
        if (status < 0) return status;
    }
    return GF_OK;
}

/* About a slice of loads; GF_OK once this rank's piece of the round is done. */
static gf_status work(struct gf_coll *coll, uint64_t round)
{
    struct direct *direct = direct_of(coll);
    uint64_t unit = SUM_ALIGN_BYTES / gf_coll_elem_bytes(coll);
    uint64_t most = coll->slice_bytes / gf_coll_elem_bytes(coll) / unit * unit, first, count, left;
    gf_status status = GF_OK;
    if (most == 0) most = unit;
    piece_of(coll, coll->index, round, &first, &count);
    left = count - direct->done;
    if (left > most) left = most;
    if (left > 0) status = combine(coll, round, first, direct->done, left);
    direct->done += left;
    if (status < 0) return status;
    return (direct->done < count) ? GF_AGAIN : GF_OK;
}

static gf_status direct_turn(struct gf_coll *coll, uint64_t now_ns)
{
    struct direct *direct = direct_of(coll);
    gf_status status;
    for (;;) {
        switch ((enum direct_state)direct->state) {
        case DIRECT_COPY_IN:
            status = direct->small ? gf_direct_small_put(coll) : round_copy(coll, direct->steps, true);
            if (status < 0) return status;
            direct->state = DIRECT_SIGNAL;
            break;
        case DIRECT_SIGNAL:
            if ((status = signal_all(coll)) < 0) return status;
            coll->moved_ns = now_ns;
            direct->state = DIRECT_WAIT;
            if ((direct->steps > 1) && (direct->steps <= direct->rounds)) return GF_AGAIN; /* that was a slice */
            break;
        case DIRECT_WAIT:
            if ((status = wait_all(coll, now_ns)) != GF_OK) return status;
            if (direct->small) return gf_direct_small_get(coll);
            direct->state = (direct->staged && (direct->steps >= 2)) ? DIRECT_COPY_OUT : DIRECT_WORK;
            break;
        case DIRECT_COPY_OUT:
            if ((status = round_copy(coll, direct->steps - 2, false)) < 0) return status;
            coll->moved_ns = now_ns;
            direct->state = DIRECT_WORK;
            break;
        case DIRECT_WORK:
            if (direct->steps > direct->rounds) return GF_OK; /* all rounds have ended */
            if ((status = work(coll, direct->steps - 1)) < 0) return status;
            coll->moved_ns = now_ns;
            if (status == GF_AGAIN) return GF_AGAIN;
            direct->done = 0;
            direct->state = (direct->staged && (direct->steps < direct->rounds)) ? DIRECT_COPY_IN : DIRECT_SIGNAL;
            break;
        }
    }
}

static bool direct_supports(gf_coll_op op)
{
    (void)op;
    return true;
}

static void direct_need(const struct gf_coll_limits *limits, struct gf_coll_need *need_out)
{
    need_out->msg_count = 0;
    need_out->staging_bytes = (limits->size > GF_DIRECT_RANKS_MAX) ? 0
                                                                   : 2 * half_bytes(limits->size, limits->slice_bytes);
}

const struct gf_coll_kind gf_coll_direct = {
    .name = "direct",
    .deterministic = true,
    .supports = direct_supports,
    .need = direct_need,
    .start = direct_start,
    .turn = direct_turn,
};
