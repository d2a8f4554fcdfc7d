/* The barriers of a direct operation: flags that ranks set in each other's exchange regions. In
 * each of 2 L rows, where L operations can be under way at once (GF_DIRECT_OPS_MAX), a rank owns a
 * slot of two cache lines in each peer's region, and the peer only reads it:
 *
 *     [flag] [what operation this is] [where my data is, or the data] .. [sign of life]
 *
 * A flag holds the operation's number and counts the barriers within. It only grows, so a row needs
 * no clearing between operations, and the flag of an earlier one is never taken for one of this.
 * There are twice as many rows as operations, because a peer may still read the other words of a
 * slot when this rank is done. A rank whose operation, type or count differs is found by these
 * words, and is the culprit. */
#include "ops/node/direct.h"

#include <sched.h>
#include <stdio.h>

/* Operations take the 2 L rows in the order of the triangular numbers, which reaches each of them.
 * No two strides are alike, so a CPU does not prefetch what a peer is about to write. */
_Static_assert((GF_DIRECT_OPS_MAX & (GF_DIRECT_OPS_MAX - 1)) == 0,
               "modulo a power of two they come to each row");
size_t gf_direct_slots_at(const struct gf_direct *direct, uint64_t order)
{
    uint64_t number = order % (2 * GF_DIRECT_OPS_MAX);
    uint64_t row = number * (number + 1) / 2 % (2 * GF_DIRECT_OPS_MAX);
    return row * direct->flag_ranks * GF_DIRECT_SLOT_BYTES;
}

/* What an operation is, in a word:
 *     bits 48..  which reduction, or the root of a broadcast
 *          47    small        43  in exported memory      42  with a reduction of its own
 *          44..  collective   40..  type
 *           0..  elem_count */
#define WHICH_BIT 48
#define KIND_BIT 40
#define KIND_SMALL 0x80u
#define KIND_COLLECTIVE_BIT 4
#define KIND_EXPORTED 0x8u
#define KIND_REDUCE 0x4u
#define KIND_TYPES 0x3u
_Static_assert(GF_TYPE_COUNT <= KIND_TYPES + 1, "a type has two bits of a flag's word");

void gf_direct_begin(struct gf_coll *coll)
{
    const struct gf_direct *own = coll->own.direct;
    struct gf_direct_state *direct = gf_direct_of(coll);
    bool small = (coll->async == NULL) && (coll->bytes <= own->small_bytes);
    uint64_t mode = (small ? KIND_SMALL : 0) | ((own->exported != NULL) ? KIND_EXPORTED : 0) |
                    ((coll->plan.reduce != NULL) ? KIND_REDUCE : 0);
    uint64_t kind =
        mode | ((uint64_t)coll->plan.collective << KIND_COLLECTIVE_BIT) | (uint64_t)coll->plan.type;
    direct->slots_at = gf_direct_slots_at(own, own->order);
    uint64_t which = (coll->plan.reduce != NULL) ? coll->plan.reduce_number : coll->plan.root;
    direct->what = ((which << WHICH_BIT) ^ (kind << KIND_BIT)) + coll->plan.elem_count;
    direct->state = direct->barriers = direct->arrived = direct->rounds = direct->done = 0;
    direct->block_elems = direct->round_elems = 0;
    direct->small = small;
    direct->staged = direct->any_staged = direct->inlined = false;
}

gf_status gf_direct_lost(struct gf_coll *coll, uint32_t index)
{
    coll->waits_for = gf_direct_rank(coll, index);
    return gf_fault_set(&coll->link->fault, GF_ERR_LINK, coll->waits_for, "map", 0,
                        "the exchange region of rank %u can no longer be reached", coll->waits_for);
}

/* A rank that waits writes the core that it runs on to its peers when that changes, which is
 * seldom. What it wrote last is in its own line. */
static void core_publish(struct gf_coll *coll, uint64_t core)
{
    const struct gf_link_driver *driver = coll->link->driver;
    size_t at = gf_direct_rank_at(coll->own.direct, coll->index);
    if (gf_flag_load(coll->link, at) == core) return;
    for (uint32_t index = 0; index < coll->size; index++)
        if (gf_direct_region(coll, index) != 0)
            driver->flag_store(coll->link, gf_direct_rank(coll, index), at, core);
}

/* Writes what goes with the first flag: what the operation is, and where data lies, or the data
 * itself. */
static gf_status slot_fill(const struct gf_coll *coll, struct gf_direct_slot *slot)
{
    const struct gf_direct_state *direct = &coll->own.direct->state;
    const gf_mem *exported = coll->own.direct->exported;
    gf_mem base;
    slot->what = direct->what;
    if (direct->inlined)
        return coll->ops->copy(coll->queue, (gf_mem)(uintptr_t)slot->inlined, coll->plan.data,
                               coll->bytes);
    slot->where = 0;
    if ((coll->plan.elem_count == 0) || direct->small) return GF_OK;
    base = (exported != NULL) ? exported[coll->index] : gf_direct_region(coll, coll->index);
    slot->where =
        direct->staged ? ((coll->staging - base) | GF_DIRECT_STAGED) : coll->plan.data - base;
    return GF_OK;
}

static void prefetch_to_write(const char *line)
{
#if defined(__x86_64__)
    /* __builtin_prefetch() asks for a copy to read */
    __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
}

/* After all flags: wakes the ranks that sleep. A small operation also prefetches the slots that the
 * next one will store to, while no rank reads them yet: then a store there does not wait for a line
 * that a peer still holds. This is only a hint. It comes after the fence of gf_flag_wake(): before
 * the fence 8 bytes take 0.50 us instead of 0.38 (results/peers.md). */
static inline void others_wake(struct gf_coll *coll)
{
    const struct gf_direct *own = coll->own.direct;
    bool sleeps = coll->link->driver->flag_sleep != NULL;
    size_t next_at = gf_direct_slots_at(own, own->order + 1) + coll->index * GF_DIRECT_SLOT_BYTES;
    for (uint32_t distance = 1; distance < coll->size; distance++) {
        uint32_t index = gf_direct_after(coll, distance);
        char *region = (char *)(uintptr_t)gf_direct_region(coll, index);
        if (sleeps) gf_flag_wake(region, gf_direct_sleep_at(own, index));
        if (!own->state.small) continue;
        prefetch_to_write(region + next_at);
        prefetch_to_write(region + next_at + GF_DIRECT_LINE_BYTES);
    }
}

gf_status gf_direct_signal(struct gf_coll *coll)
{
    const struct gf_link_driver *driver = coll->link->driver;
    struct gf_direct_state *direct = gf_direct_of(coll);
    size_t at = gf_direct_slot_at(coll, coll->index);
    uint64_t flag = gf_direct_flag_value(coll, direct->barriers + 1);
    for (uint32_t distance = 1; distance < coll->size;
         distance++) { /* each rank begins with another one */
        uint32_t index = gf_direct_after(coll, distance);
        gf_mem region = gf_direct_region(coll, index);
        if (region == 0) return gf_direct_lost(coll, index);
        if (direct->barriers == 0) {
            gf_status status = slot_fill(coll, (void *)(uintptr_t)(region + at));
            if (status < 0) return status;
        }
        driver->flag_store(coll->link, gf_direct_rank(coll, index), at, flag);
    }
    direct->barriers++;
    direct->arrived = 0;
    others_wake(coll);
    return GF_OK;
}

/* "broadcast of 12 fp32 from rank 1". A peer's word may hold anything. */
static void what_text(const struct gf_coll *coll, uint64_t what, char *text_out, size_t bytes)
{
    static const char *const collectives[] = {[GF_COLL_ALLREDUCE] = "allreduce",
                                              [GF_COLL_REDUCE_SCATTER] = "reduce_scatter",
                                              [GF_COLL_ALLGATHER] = "allgather",
                                              [GF_COLL_BROADCAST] = "broadcast",
                                              [GF_COLL_BARRIER] = "barrier"};
    static const char *const reductions[] = {"of a step's vote", "by min",
                                             "by max"}; /* reduce_number */
    const uint32_t kind = (uint32_t)(what >> KIND_BIT) & 0xffu;
    const uint32_t collective = (kind & ~KIND_SMALL) >> KIND_COLLECTIVE_BIT;
    const uint32_t type = kind & KIND_TYPES;
    const uint32_t which = (uint32_t)(what >> WHICH_BIT);
    const bool known = collective < sizeof collectives / sizeof *collectives;
    size_t used = (size_t)snprintf(text_out, bytes, "%s of %llu %s",
                                   known ? collectives[collective] : "nothing known",
                                   (unsigned long long)(what & ((UINT64_C(1) << KIND_BIT) - 1)),
                                   (type < GF_TYPE_COUNT) ? gf_type_names[type] : "of no type");
    if ((kind & KIND_REDUCE) != 0)
        (void)snprintf(text_out + used, bytes - used, " %s",
                       (which < sizeof reductions / sizeof *reductions) ? reductions[which]
                                                                        : "by no known rule");
    else if ((collective == GF_COLL_BROADCAST) && (which < coll->size))
        (void)snprintf(text_out + used, bytes - used, " from rank %u",
                       gf_rank_at(coll->ranks, which));
}

static gf_status slot_read(struct gf_coll *coll, uint32_t index)
{
    struct gf_direct_state *direct = gf_direct_of(coll);
    uint64_t theirs = gf_direct_slot_of(coll, index)->what;
    uint64_t room = coll->own.direct->region_bytes;
    uint64_t where;
    uint64_t bytes;
    bool staged;
    where = direct->inlined
                ? 0
                : __atomic_load_n(&gf_direct_slot_of(coll, index)->where, __ATOMIC_RELAXED);
    direct->where[index] = where;
    staged = (where & GF_DIRECT_STAGED) != 0;
    bytes = staged ? 2 * gf_direct_half_bytes(coll->size, coll->slice_bytes) : coll->bytes;
    where &= ~(uint64_t)GF_DIRECT_STAGED;
    if ((theirs == direct->what) && (where <= room) && (bytes <= room - where)) {
        if (staged) direct->any_staged = true;
        return GF_OK;
    }
    char there[80];
    char here[80];
    coll->waits_for = gf_direct_rank(coll, index);
    what_text(coll, theirs, there, sizeof there);
    what_text(coll, direct->what, here, sizeof here);
    if (theirs != direct->what)
        return gf_fault_set(&coll->link->fault, GF_ERR_MISMATCH, coll->waits_for, "direct", 0,
                            "rank %u is in another operation: %s there, %s here", coll->waits_for,
                            there, here);
    return gf_fault_set(&coll->link->fault, GF_ERR_MISMATCH, coll->waits_for, "direct", 0,
                        "rank %u: %s of %llu bytes, which it says lie at %llu of a region of %llu",
                        coll->waits_for, here, (unsigned long long)bytes, (unsigned long long)where,
                        (unsigned long long)room);
}

static inline gf_status slot_check(struct gf_coll *coll, uint32_t index)
{
    const struct gf_direct_state *direct = gf_direct_of(coll);
    bool same = direct->small && (gf_direct_slot_of(coll, index)->what == direct->what);
    return same ? GF_OK : slot_read(coll, index);
}

/* Does some rank from `index` on that is awaited share this rank's core? It cannot arrive while
 * this one spins. */
static bool any_shares_core(struct gf_coll *coll, uint32_t index, uint64_t wanted)
{
    uint64_t core = (uint64_t)sched_getcpu() + 1;
    if (core == 0) return false;
    core_publish(coll, core);
    for (; index < coll->size; index++) {
        if (gf_flag_load(coll->link, gf_direct_rank_at(coll->own.direct, index)) != core) continue;
        if (index == coll->index) continue;
        if (gf_flag_load(coll->link, gf_direct_slot_at(coll, index)) < wanted) return true;
    }
    return false;
}

/* Reads a flag that is not set up to coll->spins times more. True: it is set now. */
static bool flag_await(struct gf_coll *coll, uint32_t index, uint64_t wanted)
{
    coll->waits_for = gf_direct_rank(coll, index);
    coll->awaits_core = coll->publishes_core && any_shares_core(coll, index, wanted);
    if (coll->awaits_core) return false;
    for (uint32_t spins = coll->spins; spins > 0; spins--) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield");
#endif
        if (gf_flag_load(coll->link, gf_direct_slot_at(coll, index)) >= wanted) return true;
    }
    return false;
}

/* All ranks before `arrived` have reached this barrier, so the next poll continues there. When the
 * first flag of a rank is set, the other words of its slot are there too, and are checked. */
gf_status gf_direct_flags_poll(struct gf_coll *coll, uint64_t now_ns)
{
    struct gf_direct_state *direct = gf_direct_of(coll);
    uint64_t wanted = gf_direct_flag_value(coll, direct->barriers);
    for (; direct->arrived < coll->size; direct->arrived++) {
        uint32_t index = (uint32_t)direct->arrived;
        bool has_come;
        if (index == coll->index) continue;
        has_come = gf_flag_load(coll->link, gf_direct_slot_at(coll, index)) >= wanted;
        if (!has_come && !flag_await(coll, index, wanted)) return GF_AGAIN;
        if (direct->barriers == 1) {
            gf_status status = slot_check(coll, index);
            if (status < 0) return status;
        }
        coll->moved_ns = now_ns;
    }
    coll->waits_for = GF_RANK_NONE;
    return GF_OK;
}

#define PAGE_BYTES 4096u
#define PAGES_A_CALL 256u

gf_status gf_direct_touch(struct gf_link *link, uint32_t size, uint64_t *pages)
{
    uint64_t each = (link->region_bytes + PAGE_BYTES - 1) / PAGE_BYTES;
    if (link->driver->simulated) return GF_OK; /* gf-plan's regions are larger than this machine */
    while (*pages < size * each) {
        unsigned char *region = link->driver->map(link, (uint32_t)(*pages / each));
        uint64_t first = *pages % each;
        uint64_t count = (each - first < PAGES_A_CALL) ? each - first : PAGES_A_CALL;
        *pages += (region != NULL) ? count : each;
        if (region == NULL) continue;
        gf_pages_touch(region + first * PAGE_BYTES, count * PAGE_BYTES);
        return GF_AGAIN;
    }
    return GF_OK;
}

void gf_direct_wake(struct gf_link *link, uint32_t size, uint32_t own, uint32_t flag_ranks)
{
    const struct gf_direct shared = {.flag_ranks = flag_ranks};
    for (uint32_t rank = 0; (link->driver->flag_sleep != NULL) && (rank < size); rank++) {
        void *region = link->driver->map(link, rank);
        if ((rank != own) && (region != NULL))
            gf_flag_wake(region, gf_direct_sleep_at(&shared, rank));
    }
}

void gf_direct_unshared(struct gf_link *link, uint32_t size, uint32_t own, uint32_t *peer_out,
                        char text_out[256])
{
    char with[80] = "";
    uint32_t peer = GF_RANK_NONE;
    for (uint32_t r = 0, used = 0; (r < size) && (used + 12 < sizeof with); r++) {
        if ((r == own) || (link->driver->map(link, r) != NULL)) continue;
        used += (uint32_t)snprintf(with + used, sizeof with - used, "%s%u",
                                   (used > 0) ? ", " : " with ranks ", r);
        if (peer == GF_RANK_NONE) peer = r;
    }
    if (peer == GF_RANK_NONE)
        (void)snprintf(with, sizeof with, " between other ranks than rank %u", own);
    (void)snprintf(
        text_out, 256,
        "exchange.algorithm = direct: no shared memory%s; allowed are ranks of one node without "
        "link.private_memory, elsewhere auto",
        with);
    *peer_out = peer;
}
