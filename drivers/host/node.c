/* Opening, resetting and closing the shared memory of a node's ranks. node_state.h shows what lies
 * where. */
#include "drivers/host/node_state.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "drivers/base/fnv.h"

/* Regions of a power of two would map the same block of all ranks to the same cache sets. */
#define PAD_PAGES 3u
#define HUGE_PAGE_BYTES ((size_t)2 << 20) /* x86-64 has these, 64-bit ARM with pages of 4 KiB too */

struct node_plan gf_node_plan_of(size_t region_bytes, uint32_t slots, uint32_t entries)
{
    struct node_plan plan = {.slots = slots, .entries = entries, .ring_words = 16};
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t at = node_round_up(region_bytes, page_bytes);
    if (slots == 0) { /* of a rank that shares nothing there is the exchange region alone */
        plan.bytes = (at > 0) ? at + PAD_PAGES * page_bytes : 0;
        return plan;
    }
    while (plan.ring_words < entries) plan.ring_words *= 2;
    plan.head_at = at;
    at += sizeof(struct node_head);
    plan.meet_at = at;
    at = node_round_up(at + slots * sizeof(struct node_meet), NODE_LINE_BYTES);
    plan.bell_at = at;
    at = node_round_up(at + slots, NODE_LINE_BYTES);
    plan.ring_at = at;
    at += (size_t)slots * plan.ring_words * sizeof(uint32_t);
    plan.entry_at = at;
    at += entries * sizeof(struct node_entry);
    plan.cell_at = at;
    at += NODE_CELLS * NODE_CELL_BYTES;
    plan.bytes = node_round_up(at, page_bytes) + PAD_PAGES * page_bytes;
    return plan;
}

static bool shares(const struct gf_link_setup *setup)
{
    return !setup->private_memory && (setup->ranks_max > 1);
}

static struct node_plan plan_of(const struct gf_link_setup *setup)
{
    uint32_t others = setup->ranks_max - 1;
    uint32_t slots = (others < NODE_RANKS_MAX) ? others : NODE_RANKS_MAX;
    uint64_t entries = (uint64_t)setup->requests_max + NODE_DETACHED_MAX;
    if (!shares(setup)) return gf_node_plan_of(setup->region_bytes, 0, 0);
    GF_ASSERT(entries <= NODE_ENTRIES_MAX);
    return gf_node_plan_of(setup->region_bytes, slots, (uint32_t)entries);
}

size_t gf_node_bytes(const struct gf_link_setup *setup)
{
    size_t bytes = plan_of(setup).bytes;
    if (setup->huge_pages) bytes = node_round_up(bytes, HUGE_PAGE_BYTES);
    return bytes - setup->region_bytes;
}

/* One walk measures and hands out: base NULL only counts. */
static size_t state_lay(const struct node_plan *plan, uint32_t ranks_max, struct gf_node *node)
{
    unsigned char *base = (unsigned char *)node;
    size_t at = node_round_up(sizeof *node, NODE_LINE_BYTES);
    size_t pairs_at;
    size_t own_at;
    size_t next_at;
    size_t stack_at;
    size_t detached_at;
    size_t peers_at;
    pairs_at = at;
    at = node_round_up(at + plan->slots * sizeof(struct node_pair), NODE_LINE_BYTES);
    own_at = at;
    at = node_round_up(at + plan->entries * sizeof(struct node_own), NODE_LINE_BYTES);
    next_at = at;
    at += (size_t)plan->slots * plan->entries * sizeof(uint16_t);
    stack_at = at;
    at += plan->entries * sizeof(uint16_t);
    detached_at = at;
    at += plan->entries * sizeof(uint16_t);
    at = node_round_up(at, NODE_LINE_BYTES);
    peers_at = at;
    at = node_round_up(at + ranks_max * sizeof(struct node_peer), NODE_LINE_BYTES);
    if (node == NULL) return at;
    node->pairs = (struct node_pair *)(void *)(base + pairs_at);
    node->own = (struct node_own *)(void *)(base + own_at);
    node->entry_stack = (uint16_t *)(void *)(base + stack_at);
    node->detached = (uint16_t *)(void *)(base + detached_at);
    node->peers = (struct node_peer *)(void *)(base + peers_at);
    for (uint32_t slot = 0; slot < plan->slots; slot++)
        node->pairs[slot].next =
            (uint16_t *)(void *)(base + next_at) + (size_t)slot * plan->entries;
    return at;
}

size_t gf_node_state_bytes(const struct gf_link_setup *setup)
{
    const struct node_plan plan = plan_of(setup);
    return state_lay(&plan, setup->ranks_max, NULL);
}

gf_status gf_node_fault(struct gf_node *node, gf_status code, uint32_t peer, const char *call,
                        const char *format, ...)
{
    char text[sizeof node->link->fault.text];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return gf_fault_set(&node->link->fault, code, peer, call, 0, "%s", text);
}

/* ---- forked children ---- */

/* A forked child that kept the socket would keep its name, and would receive what is meant for its
 * parent. Mappings may stay. */
static void forked(struct gf_forked *of)
{
    const struct gf_node *node =
        (const struct gf_node *)(const void *)((const char *)of - offsetof(struct gf_node, forked));
    if (node->socket_fd >= 0) (void)close(node->socket_fd);
    if (node->memory_fd >= 0) (void)close(node->memory_fd);
    if (node->device.given >= 0) (void)close(node->device.given);
    if (node->device.come >= 0) (void)close(node->device.come);
}

/* ---- peers ---- */

struct node_pair *gf_node_pair_take(struct gf_node *node, uint32_t peer)
{
    struct node_pair *pair = node_pair_of(node, peer);
    if (pair != NULL) return pair;
    if (node->pair_count == node->plan.slots) return NULL;
    pair = &node->pairs[node->pair_count++];
    pair->peer = peer;
    node->peers[peer].pair = (uint16_t)node->pair_count;
    return pair;
}

/* Stores with release order: a peer that reads this sees what was written before. */
void gf_node_quiesce(struct gf_node *node)
{
    if (node->quiesced) return;
    node->quiesced = true;
    for (uint32_t slot = 0; slot < node->pair_count; slot++) {
        const struct node_pair *pair = &node->pairs[slot];
        if (pair->memory != NULL)
            __atomic_store_n(&node_meet_of(pair->memory, &pair->plan, pair->slot)->mapped,
                             NODE_MAPPED_DONE, __ATOMIC_RELEASE);
    }
}

static void peers_forget(struct gf_node *node)
{
    gf_node_quiesce(node);
    gf_node_room_give(node);
    for (uint32_t slot = 0; slot < node->pair_count; slot++) {
        struct node_pair *pair = &node->pairs[slot];
        uint16_t *next = pair->next;
        gf_node_memory_unmap(node, pair->memory, pair->memory_bytes);
        memset(next, 0, node->plan.entries * sizeof *next);
        *pair = (struct node_pair){.next = next};
    }
    for (uint32_t peer = 0; peer < node->world; peer++)
        if (peer != node->rank) node->peers[peer] = (struct node_peer){.region = NULL};
    node->pair_count = node->up_count = 0;
    node->pulls = GF_RANK_NONE;
    node->unanswered = 0;
    gf_node_device_forget(node);
}

/* ---- open, close, reset ---- */

/* If all ranks announce the same node, no network is opened. Therefore a rank that may not map some
 * peers, or whose region has another size, announces another node; connect() decides with which
 * peers it shares memory. The address space stays reserved, so that a limit which is lowered later
 * cannot refuse a mapping. */
static uint64_t node_identity(struct gf_node *node)
{
    if (!node->shared || !gf_node_room_take(node)) return node->alone;
    return gf_fnv_u64(node->host, node->region_bytes);
}

/* Takes the memory, and opens the socket by which peers get it. */
static gf_status take(struct gf_node *node)
{
    struct node_peer *own = &node->peers[node->rank];
    const char *why = NULL;
    gf_status status;
    node->undecided = node->world - 1;
    node->quiesced = node->dropped = false;
    gf_node_host_id_set(node);
    node->shared = node->shares && (node->host != 0);
    if (node->shares && !node->shared)
        why = "/proc does not tell this host's boot id and namespaces";
    if (node->shared && !gf_node_socket_open(node, &why)) node->shared = false;
    if ((status = gf_node_memory_take(node, &why)) < 0) return status;
    if (node->shared && !gf_node_passes_memory(node, &why)) {
        node->shared = false;
        gf_node_memory_give(node);
        if ((status = gf_node_memory_take(node, &why)) < 0) return status;
    }
    if (!node->shared) gf_node_socket_close(node);
    node->link->region = (node->region_bytes > 0) ? node->memory : NULL;
    own->region = node->link->region;
    own->region_bytes = node->region_bytes;
    node->link->region_bytes = node->region_bytes;
    node->link->private_bytes = node->shared ? 0 : node->memory_bytes;
    node->link->node = node_identity(node);
    if (node->shared) gf_node_messages_begin(node);
    if ((why != NULL) && !node->alone_logged)
        gf_log_line(&node->log, GF_LOG_WARN,
                    "link: rank %u shares no memory with ranks of this host: %s", node->rank, why);
    node->alone_logged = (why != NULL);
    return GF_OK;
}

static void give_back(struct gf_node *node)
{
    gf_node_messages_end(node);
    peers_forget(node);
    gf_node_socket_close(node);
}

gf_status gf_node_open(const struct gf_link_setup *setup, void *state, struct gf_link *link,
                       struct gf_node **node_out)
{
    struct gf_node *node = state;
    gf_status status;
    GF_ASSERT((uintptr_t)state % NODE_LINE_BYTES == 0);
    GF_ASSERT((setup->ranks_max <= GF_WORLD_MAX) && (setup->world <= setup->ranks_max) &&
              (setup->rank < setup->world));
    memset(state, 0, gf_node_state_bytes(setup));
    node->link = link;
    node->log = setup->log;
    node->rank = setup->rank;
    node->world = setup->world;
    node->ranks_max = setup->ranks_max;
    node->generation = setup->generation;
    node->requests_max = setup->requests_max;
    node->region_bytes = setup->region_bytes;
    node->huge_pages = setup->huge_pages;
    node->shares = shares(setup);
    node->plan = plan_of(setup);
    node->memory_fd = node->socket_fd = node->device.given = node->device.come = -1;
    node->pulls = node->device.pulls = GF_RANK_NONE;
    (void)state_lay(&node->plan, node->ranks_max, node);
    node->forked.close = forked;
    gf_forked_add(&node->forked);
    if ((status = take(node)) < 0) {
        gf_node_close(node);
        return status;
    }
    *node_out = link->shares = node;
    return GF_OK;
}

void gf_node_close(struct gf_node *node)
{
    if (node == NULL) return;
    give_back(node);
    gf_node_memory_give(node);
    gf_forked_remove(&node->forked); /* last: another thread may fork meanwhile */
}

void gf_node_drop(struct gf_node *node)
{
    if (node->pair_count > 0) node->dropped = true;
    gf_node_messages_end(node);
    peers_forget(node);
}

/* Maps another region, unless all peers that had this one have ended or are done with it: a rank
 * that was left out and still runs then writes into the old region. After a drop it is not known
 * which peers had it. */
gf_status gf_node_reset(struct gf_node *node, uint32_t generation, uint32_t rank, uint32_t world,
                        bool may_keep)
{
    GF_ASSERT((world <= node->ranks_max) && (rank < world));
    const bool keeps = may_keep && !node->dropped && gf_node_memory_is_free(node);
    give_back(node);
    if (!keeps) gf_node_memory_give(node);
    node->peers[node->rank] = (struct node_peer){.region = NULL};
    node->generation = generation;
    node->rank = rank;
    node->world = world;
    return take(node);
}

/* ---- memory of peers ---- */

bool gf_node_has(const struct gf_node *node, uint32_t peer)
{
    return (peer < node->world) && (node->peers[peer].state == NODE_PEER_UP);
}

void *gf_node_map(const struct gf_node *node, uint32_t peer)
{
    if ((peer >= node->world) || (node->quiesced && (peer != node->rank))) return NULL;
    return node->peers[peer].region;
}

void gf_node_flag_store(struct gf_node *node, uint32_t peer, size_t offset_bytes, uint64_t value)
{
    const struct node_peer *to = &node->peers[peer];
    GF_ASSERT((peer < node->world) && (offset_bytes % sizeof value == 0) &&
              (offset_bytes < to->region_bytes));
    __atomic_store_n((uint64_t *)(void *)(to->region + offset_bytes), value, __ATOMIC_RELEASE);
}
