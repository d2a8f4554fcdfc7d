/* The exchange region of a simulated rank: memory between guards, that the ranks of its node reach,
 * and its flags. */
#include "drivers/sim/sim_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES 4096u /* before a region and after it; the guards are these next to it: */
#define GUARD_BYTES 64u  /* a write there stops the program when the region is freed */
#define GUARD_VALUE 0xa5

static void guards_check(const struct sim_link *link)
{
    const unsigned char *region = link->base.region;
    for (uint32_t i = 0; (region != NULL) && (i < GUARD_BYTES); i++)
        GF_ASSERT((region[-1 - (ptrdiff_t)i] == GUARD_VALUE) &&
                  (region[link->setup.region_bytes + i] == GUARD_VALUE));
}

static size_t mapped_bytes(const struct sim_link *link)
{
    return link->setup.region_bytes + 2 * PAGE_BYTES;
}

/* Zeroes that cost nothing until they are touched; without data the whole of them may exceed this
 * machine's memory. */
gf_status sim_region_take(struct sim_link *link, struct gf_fault *fault)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (link->setup.region_bytes == 0) return GF_OK;
    unsigned char *memory = mmap(NULL, mapped_bytes(link), PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        return gf_fault_set(fault, GF_ERR_SYSTEM, GF_RANK_NONE, "mmap", errno,
                            "no memory for a region of %zu bytes", link->setup.region_bytes);
    link->base.region = memory + PAGE_BYTES;
    memset(link->base.region - GUARD_BYTES, GUARD_VALUE, GUARD_BYTES);
    memset(link->base.region + link->setup.region_bytes, GUARD_VALUE, GUARD_BYTES);
    return GF_OK;
}

void sim_region_give(struct sim_link *link)
{
    guards_check(link);
    if (link->base.region != NULL) (void)munmap(link->base.region - PAGE_BYTES, mapped_bytes(link));
    link->base.region = NULL;
}

/* The process of that rank; NULL if its link was reset since it was connected. */
static struct sim_rank *peer_find(const struct sim_link *link, uint32_t peer)
{
    if (peer == link->setup.rank) return link->self;
    if ((peer >= link->setup.world) || (link->peers[peer].life == 0)) return NULL;
    struct sim_rank *other = &link->self->sim->ranks[link->peers[peer].proc];
    return ((other->link != NULL) && (other->life == link->peers[peer].life)) ? other : NULL;
}

void *sim_map(struct gf_link *base, uint32_t peer)
{
    struct sim_link *link = sim_link(base);
    const struct sim_rank *self = link->self, *other = peer_find(link, peer);
    if (other == NULL) return NULL;
    if ((other != self) && !sim_same_node(self->sim, self->rank, other->rank)) return NULL;
    return other->link->base.region;
}

static void flag_set(struct sim_rank *to, size_t offset_bytes, uint64_t value)
{
    unsigned char *region = to->link->base.region;
    __atomic_store_n((uint64_t *)(void *)(region + offset_bytes), value, __ATOMIC_RELEASE);
    to->has_moved = true;
}

void sim_flag_happen(struct gf_sim *sim, struct sim_flag *flag)
{
    struct sim_rank *to = &sim->ranks[flag->to];
    if ((to->link != NULL) && (to->life == flag->to_life)) {
        flag_set(to, flag->offset_bytes, flag->value);
        sim_wake(to);
    }
    free(flag);
}

/* The store is seen at once, as in memory; only the wake-up of the other rank takes the node's
 * latency. */
void sim_flag_store(struct gf_link *base, uint32_t peer, size_t offset_bytes, uint64_t value)
{
    struct sim_link *link = sim_link(base);
    struct gf_sim *sim = link->self->sim;
    struct sim_rank *to = peer_find(link, peer);
    /* the peer's memory may be gone, its rank dead */
    if ((sim_map(base, peer) == NULL) || link->self->is_dead) return;
    GF_ASSERT((offset_bytes % 8 == 0) && (offset_bytes + 8 <= to->link->setup.region_bytes));
    if (sim->setup.late_flags && (to != link->self)) {
        struct sim_flag *flag = malloc(sizeof *flag);
        GF_ASSERT(flag != NULL);
        *flag = (struct sim_flag){
            .value = value, .offset_bytes = offset_bytes, .to = to->rank, .to_life = to->life};
        sim_event_push(sim, gf_sim_free_ns(sim, link->self->rank) + sim->setup.node_latency_ns,
                       SIM_FLAG, flag);
        return;
    }
    flag_set(to, offset_bytes, value);
    gf_sim_wake_at(sim, to->rank, sim->now_ns + sim->setup.node_latency_ns);
}

bool gf_sim_is_peers(const struct gf_sim *sim, uint32_t rank, gf_mem address)
{
    const uint32_t node = sim->ranks[rank].node;
    uint32_t peer = rank;
    while ((peer > 0) && (sim->ranks[peer - 1].node == node)) peer--;
    for (; (peer < sim->setup.world) && (sim->ranks[peer].node == node); peer++) {
        const struct sim_link *link = sim->ranks[peer].link;
        if ((peer == rank) || (link == NULL) || (link->base.region == NULL)) continue;
        if (address - (gf_mem)(uintptr_t)link->base.region < link->setup.region_bytes) return true;
    }
    return false;
}
