/* How ranks of a direct operation tell each other that they have come: flags in each other's exchange regions. A rank
 * owns a slot of two lines in each peer's region for each operation that can be under way (a lane), and the peer only
 * reads it: [flag] [what operation this is] [where my data is, or the data] .. [sign of life] [flag of its device]. A
 * flag holds the operation's number and counts the barriers within; it only grows, so a lane needs no clearing between
 * operations and a flag of an earlier one is never taken for one of this. A lane has two slots, used by turns, since a
 * peer may still read the other words of one when this rank is done. A rank that differs in operation, type or count is
 * found by them and is the culprit. */
#include "ops/node/direct.h"

/* Of a slot. Data has what lies between. */
enum { WORD_FLAG, WORD_WHAT, WORD_WHERE, WORD_BEAT = 14, WORD_DEVICE };
_Static_assert(WORD_WHERE * 8 + GF_DIRECT_BESIDE_BYTES == WORD_BEAT * 8, "data lies between");
_Static_assert(WORD_DEVICE * 8 + 8 == GF_DIRECT_SLOT_BYTES, "a slot is full");

uint32_t gf_direct_id(const struct gf_coll *coll, uint32_t index)
{
    return gf_member_at(coll->members, index);
}

/* Operations take the 2 L slots in the order of the triangular numbers, which come to each of them: no two strides are
 * alike, so a CPU does not read ahead what a peer is about to write. */
_Static_assert((GF_DIRECT_LANES & (GF_DIRECT_LANES - 1)) == 0, "modulo a power of two they come to each slot");
static size_t word_at(const struct gf_direct *direct, uint64_t order, uint32_t writer, uint32_t word)
{
    uint64_t place = order % (2 * GF_DIRECT_LANES), row = place * (place + 1) / 2 % (2 * GF_DIRECT_LANES);
    return direct->area_offset + (row * direct->lane_ranks + writer) * GF_DIRECT_SLOT_BYTES + word * sizeof(uint64_t);
}

static size_t line_at(const struct gf_coll *coll, uint32_t writer, uint32_t word)
{
    return word_at(coll->own.direct, coll->own.direct->order, writer, word);
}

size_t gf_direct_beside_at(const struct gf_coll *coll, uint32_t writer)
{
    return line_at(coll, writer, WORD_WHERE);
}

size_t gf_direct_device_at(const struct gf_coll *coll, uint32_t writer)
{
    return line_at(coll, writer, WORD_DEVICE);
}

size_t gf_direct_beat_at(const struct gf_direct *direct, uint64_t order, uint32_t writer)
{
    return word_at(direct, order, writer, WORD_BEAT);
}

static size_t core_at(const struct gf_coll *coll, uint32_t writer)
{
    return gf_direct_rank_at(coll->own.direct, writer);
}

uint64_t gf_direct_flag_value(const struct gf_coll *coll, uint64_t step)
{
    return ((coll->own.direct->order + 1) << GF_DIRECT_STEP_BITS) | step;
}

static uint64_t what(struct gf_coll *coll)
{
    uint64_t way = ((uint64_t)gf_direct_of(coll)->small << 7) | ((uint64_t)(coll->own.direct->exported != NULL) << 3) |
                   ((uint64_t)(coll->fold != NULL) << 2);
    uint64_t kind = way | ((uint64_t)coll->collective << 4) | (uint64_t)coll->type;
    return (((uint64_t)coll->root << 48) ^ (kind << 40)) + coll->elem_count;
}

gf_mem gf_direct_region(const struct gf_coll *coll, uint32_t index)
{
    return (gf_mem)(uintptr_t)coll->link->driver->map(coll->link, gf_direct_id(coll, index));
}

gf_status gf_direct_lost(struct gf_coll *coll, uint32_t index)
{
    coll->waits_for = gf_direct_id(coll, index);
    return gf_fault_set(&coll->link->fault, GF_ERR_LINK, coll->waits_for, "map", 0,
                        "the exchange region of rank %u can no longer be reached", coll->waits_for);
}

/* Told when it changes, which is seldom; what was told last stands in this rank's own line. */
static void core_tell(struct gf_coll *coll)
{
    const struct gf_link_driver *driver = coll->link->driver;
    size_t at = core_at(coll, coll->index);
    if (driver->flag_load(coll->link, at) == coll->own.direct->core) return;
    for (uint32_t index = 0; index < coll->size; index++)
        if (gf_direct_region(coll, index) != 0)
            driver->flag_store(coll->link, gf_direct_id(coll, index), at, coll->own.direct->core);
}

gf_status gf_direct_signal(struct gf_coll *coll)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct gf_direct_state *direct = gf_direct_of(coll);
    bool is_exported = coll->own.direct->exported != NULL, beside = gf_direct_is_beside(coll);
    gf_mem base = is_exported ? coll->own.direct->exported[coll->index] : (gf_mem)(uintptr_t)driver->region(coll->link);
    uint64_t where = direct->staged ? ((coll->staging - base) | GF_DIRECT_STAGED) : coll->data - base;
    if ((coll->elem_count == 0) || direct->small) where = 0;
    if (direct->steps == 0) core_tell(coll);
    for (uint32_t turn = 1; turn < coll->size; turn++) { /* each rank begins with another one */
        uint32_t index = (coll->index + turn) % coll->size, member_id = gf_direct_id(coll, index);
        if (gf_direct_region(coll, index) == 0) return gf_direct_lost(coll, index);
        if (direct->steps == 0) {
            if (!beside) driver->flag_store(coll->link, member_id, line_at(coll, coll->index, WORD_WHERE), where);
            driver->flag_store(coll->link, member_id, line_at(coll, coll->index, WORD_WHAT), what(coll));
        }
        driver->flag_store(coll->link, member_id, line_at(coll, coll->index, WORD_FLAG),
                           gf_direct_flag_value(coll, direct->steps + 1));
    }
    direct->steps++;
    direct->arrived = 0;
    return GF_OK;
}

static void prefetch_to_write(const char *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*line)); /* __builtin_prefetch() asks for a copy to read */
#else
    __builtin_prefetch(line, 1);
#endif
}

/* The slots that the next operation will store to, in all regions: asked for while nobody reads them yet, a store there
 * need not wait for a line that a peer still holds. Only a hint. */
void gf_direct_next(struct gf_coll *coll)
{
    size_t at = word_at(coll->own.direct, coll->own.direct->order + 1, coll->index, WORD_FLAG);
    for (uint32_t index = 0; index < coll->size; index++) {
        const char *slot = (const char *)(uintptr_t)gf_direct_region(coll, index) + at;
        if (index == coll->index) continue;
        prefetch_to_write(slot);
        prefetch_to_write(slot + GF_DIRECT_LINE_BYTES);
    }
}

void gf_direct_wake(struct gf_coll *coll)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct gf_direct_state *direct = gf_direct_of(coll);
    if ((driver->flag_wake == NULL) || (direct->woken == direct->steps)) return;
    direct->woken = direct->steps;
    for (uint32_t turn = 1; turn < coll->size; turn++) {
        uint32_t index = (coll->index + turn) % coll->size;
        if (gf_direct_region(coll, index) != 0)
            driver->flag_wake(coll->link, gf_direct_id(coll, index), gf_direct_sleep_at(coll->own.direct, index));
    }
}

uint64_t gf_direct_where(const struct gf_coll *coll, uint32_t index)
{
    return coll->link->driver->flag_load(coll->link, line_at(coll, index, WORD_WHERE));
}

static gf_status line_check(struct gf_coll *coll, uint32_t index)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct gf_direct_state *direct = gf_direct_of(coll);
    uint64_t where = gf_direct_is_beside(coll) ? 0 : gf_direct_where(coll, index);
    uint64_t theirs = driver->flag_load(coll->link, line_at(coll, index, WORD_WHAT));
    bool staged = (where & GF_DIRECT_STAGED) != 0;
    uint64_t bytes = staged ? 2 * gf_direct_half_bytes(coll->size, coll->slice_bytes)
                            : coll->elem_count * gf_coll_elem_bytes(coll);
    where &= ~(uint64_t)GF_DIRECT_STAGED;
    if ((theirs == what(coll)) && (where <= coll->own.direct->region_bytes) && (bytes <= coll->own.direct->region_bytes - where)) {
        if (staged) direct->any_staged = true;
        return GF_OK;
    }
    coll->waits_for = gf_direct_id(coll, index);
    return gf_fault_set(&coll->link->fault, GF_ERR_MISMATCH, coll->waits_for, "direct", 0,
                        "rank %u is in another operation, or of another size: it says %#llx at %#llx, expected %#llx",
                        coll->waits_for, (unsigned long long)theirs, (unsigned long long)where,
                        (unsigned long long)what(coll));
}

/* Is some rank from `index` on awaited that shares this rank's core? It cannot come as long as this one spins. */
static bool any_shares_core(const struct gf_coll *coll, uint32_t index, uint64_t wanted)
{
    const struct gf_link_driver *driver = coll->link->driver;
    if (coll->own.direct->core == 0) return false;
    for (; index < coll->size; index++) {
        if (driver->flag_load(coll->link, core_at(coll, index)) != coll->own.direct->core) continue;
        if (index == coll->index) continue;
        if (driver->flag_load(coll->link, line_at(coll, index, WORD_FLAG)) < wanted) return true;
    }
    return false;
}

/* Reads flags, up to coll->spins times more where the next one has not come. */
static gf_status flags_look(struct gf_coll *coll, uint64_t now_ns)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct gf_direct_state *direct = gf_direct_of(coll);
    uint64_t wanted = gf_direct_flag_value(coll, direct->steps);
    for (; direct->arrived < coll->size; direct->arrived++) {
        uint32_t index = (uint32_t)direct->arrived;
        size_t at = line_at(coll, index, WORD_FLAG);
        gf_status status;
        if (index == coll->index) continue;
        for (uint32_t spins = coll->spins; driver->flag_load(coll->link, at) < wanted; spins--) {
            coll->waits_for = gf_direct_id(coll, index);
            if ((spins == coll->spins) && any_shares_core(coll, index, wanted)) coll->awaits_core = true;
            if ((spins == 0) || coll->awaits_core) return GF_AGAIN;
#if defined(__x86_64__)
            __builtin_ia32_pause();
#elif defined(__aarch64__)
            __asm__ volatile("yield");
#endif
        }
        if ((direct->steps == 1) && ((status = line_check(coll, index)) < 0)) return status;
        coll->moved_ns = now_ns;
    }
    coll->waits_for = GF_RANK_NONE;
    return GF_OK;
}

gf_status gf_direct_wait(struct gf_coll *coll, uint64_t now_ns)
{
    gf_status status = flags_look(coll, now_ns);
    gf_direct_wake(coll);
    return status;
}
