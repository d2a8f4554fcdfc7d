/* Which ranks share memory, for hierarchy (hierarchy.h). Each rank learns from all others which
 * ranks they reach, so all compute the same nodes. A node is a set of ranks of which each reaches
 * exactly the others; its ranks have the same lowest rank. */
#include <stdio.h>

#include "drivers/base/fnv.h"
#include "ops/node/hierarchy.h"

static bool reaches(const struct gf_nodes_meeting *met, uint32_t rank)
{
    return (rank == met->rank) || (met->link->driver->map(met->link, rank) != NULL);
}

void gf_nodes_meet(const struct gf_nodes_meeting *met)
{
    float *own = &met->table.reach[GF_REACH_WORDS * met->rank];
    uint32_t lowest = GF_RANK_NONE;
    uint32_t count = 0;
    uint64_t hash = GF_FNV_START;
    for (uint32_t i = 0; i < GF_REACH_WORDS * met->world; i++) met->table.reach[i] = 0;
    for (uint32_t rank = 0; rank < met->world; rank++) {
        met->table.local[rank] = reaches(met, rank) ? 1 : 0;
        if (met->table.local[rank] == 0) continue;
        if (count++ == 0) lowest = rank;
        hash = gf_fnv_u64(hash, rank);
    }
    own[0] = (float)lowest; /* exact: worlds are far below 2^24 */
    own[1] = (float)count;
    own[2] = (float)(hash >> 40); /* 24 bits are exact */
    if (met->link->device != 0)
        own[3] = (float)((gf_fnv_u64(GF_FNV_START, met->link->device) >> 40) | 1);
}

static uint32_t word_of(const struct gf_nodes_meeting *met, uint32_t rank, uint32_t word)
{
    return (uint32_t)met->table.reach[GF_REACH_WORDS * rank + word];
}

static uint32_t lowest_of(const struct gf_nodes_meeting *met, uint32_t rank)
{
    return word_of(met, rank, 0);
}
static uint32_t reached_of(const struct gf_nodes_meeting *met, uint32_t rank)
{
    return word_of(met, rank, 1);
}
static uint32_t device_of(const struct gf_nodes_meeting *met, uint32_t rank)
{
    return word_of(met, rank, 3);
}

/* Ranks of a node below `end`. */
static uint32_t members_of(const struct gf_nodes_meeting *met, uint32_t lowest, uint32_t end)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < end; rank++) count += lowest_of(met, rank) == lowest;
    return count;
}

static gf_status refuse(const struct gf_nodes_meeting *met, uint32_t rank, uint32_t *peer_out,
                        char *error_out)
{
    uint32_t lowest = lowest_of(met, rank);
    uint32_t node = members_of(met, lowest, met->world);
    uint32_t reached = reached_of(met, rank);
    *peer_out = (rank == met->rank) ? lowest : rank;
    if (node == reached) /* as many, others */
        (void)snprintf(
            error_out, 256,
            "exchange.algorithm = hierarchy: ranks %u and %u share memory with different "
            "ranks; all ranks of a node must reach each other's memory: let them have one "
            "network namespace and one user, or take auto",
            lowest, rank);
    else
        (void)snprintf(
            error_out, 256,
            "exchange.algorithm = hierarchy: rank %u shares memory with %u rank%s, itself "
            "too, but its node, that of rank %u, has %u; all ranks of a node must reach each "
            "other's "
            "memory: let them have one network namespace and one user, or take auto",
            rank, reached, (reached == 1) ? "" : "s", lowest, node);
    return GF_ERR_CONFIG;
}

/* A rank whose node is not whole; GF_RANK_NONE: there is none. All ranks compute the same from the
 * same words, without another message: in a whole node each rank reaches as many ranks as share its
 * lowest rank, and all reach the same ones. */
static uint32_t odd_one(const struct gf_nodes_meeting *met)
{
    for (uint32_t rank = 0; rank < met->world; rank++) {
        uint32_t lowest = lowest_of(met, rank);
        if (members_of(met, lowest, met->world) != reached_of(met, rank)) return rank;
        if (word_of(met, rank, 2) != word_of(met, lowest, 2)) return rank;
    }
    return GF_RANK_NONE;
}

/* The rank with `position` others of its node before it, in the node of rank `lowest`. */
static uint32_t rank_at(const struct gf_nodes_meeting *met, uint32_t lowest, uint32_t position)
{
    for (uint32_t rank = lowest; rank < met->world; rank++)
        if ((lowest_of(met, rank) == lowest) && (position-- == 0)) return rank;
    return GF_RANK_NONE;
}

/* Does each rank leave its node by a device that no other rank of the node uses? */
static bool devices_of_their_own(const struct gf_nodes_meeting *met)
{
    for (uint32_t rank = 0; rank < met->world; rank++) {
        if (device_of(met, rank) == 0) return false;
        for (uint32_t other = 0; other < rank; other++)
            if ((lowest_of(met, other) == lowest_of(met, rank)) &&
                (device_of(met, other) == device_of(met, rank)))
                return false;
    }
    return true;
}

/* auto takes hierarchy wherever each node has several ranks. With m nodes and n ranks, 2 (m-1)/m of
 * the data leave and enter a node. With a ring it is 2 (n-1)/n, all through one device of the node,
 * and there are more rounds. */
gf_status gf_nodes_form(const struct gf_nodes_meeting *met, bool by_name,
                        struct gf_coll_nodes *nodes, bool *used_out, uint32_t *peer_out,
                        char *error_out)
{
    uint32_t odd = odd_one(met);
    uint32_t mine = lowest_of(met, met->rank);
    if (odd != GF_RANK_NONE) return by_name ? refuse(met, odd, peer_out, error_out) : GF_OK;
    *nodes = (struct gf_coll_nodes){
        .local = met->table.local, .across = met->table.across, .owners = met->world};
    nodes->local_index = members_of(met, mine, met->rank);
    for (uint32_t rank = 0; rank < met->world; rank++) {
        uint32_t lowest = lowest_of(met, rank);
        uint32_t size = members_of(met, lowest, met->world);
        /* by name: auto looks for nodes in smaller worlds alone */
        if (size > GF_DIRECT_RANKS_MAX) {
            *peer_out = (rank == met->rank) ? lowest : rank;
            (void)snprintf(error_out, 256,
                           "exchange.algorithm = hierarchy: %u ranks share the memory of rank %u's "
                           "node; allowed are %u",
                           size, lowest, GF_DIRECT_RANKS_MAX);
            return GF_ERR_CONFIG;
        }
        if (lowest == mine) met->table.local[nodes->local_size++] = rank;
        if (lowest != rank) continue;
        if (size < nodes->owners) nodes->owners = size;
        if (lowest == mine) nodes->node_index = nodes->node_count;
        if (nodes->local_index < size)
            met->table.across[nodes->node_count] = rank_at(met, lowest, nodes->local_index);
        nodes->node_count++;
    }
    nodes->ports = devices_of_their_own(met) ? nodes->owners : 1;
    *used_out = by_name || (nodes->owners >= GF_NODES_OWNERS);
    return GF_OK;
}
