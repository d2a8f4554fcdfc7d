/* Which ranks share memory, for hierarchy: all ranks tell all others whom they reach, so all see the same nodes. A
 * node is a set of ranks of which each reaches exactly the others: ranks with the same lowest one. */
#include <stdio.h>

#include "drivers/fnv.h"
#include "lib/context.h"
#include "lib/core/accessors.h"

static bool reaches(const gf_context *gf, uint32_t rank)
{
    return (rank == gf->rank) || (gf->link->driver->map(gf->link, gf_member_id_of(gf, rank)) != NULL);
}

/* auto takes hierarchy on two nodes, where a ring sends nearly twice as much through each node's port. With more the
 * difference shrinks, and that a ring works in the node and between nodes at the same time counts for more
 * (ops/README.md); but a ring uses one device a node, so where each rank has its own, hierarchy is it again. Checksums
 * cover messages only, and sums that do not depend on fusion would no longer be doubling's. */
#define AUTO_NODES 2u
#define AUTO_OWNERS 2u

bool gf_nodes_wanted(const struct gf_config *config)
{
    if (config->exchange.algorithm == GF_ALGORITHM_HIERARCHY) return true;
    return (config->exchange.algorithm == GF_ALGORITHM_AUTO) && (config->job.world_max >= AUTO_NODES * AUTO_OWNERS) &&
           (config->job.world_max <= GF_DIRECT_RANKS_MAX) && !config->link.integrity && !config->exchange.deterministic;
}

bool gf_nodes_need_peers(const gf_context *gf)
{
    return (gf->config.exchange.algorithm == GF_ALGORITHM_AUTO) && (gf->warm.met[GF_MET_WIRE] == (float)gf->world);
}

void gf_nodes_look(gf_context *gf)
{
    float *reach = gf->nodes.words.reach;
    uint32_t lowest = GF_RANK_NONE, count = 0;
    uint64_t hash = GF_FNV_START;
    if (reach == NULL) return;
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        for (uint32_t i = 0; i < GF_REACH_WORDS; i++) reach[GF_REACH_WORDS * rank + i] = 0;
        gf->nodes.words.local[rank] = reaches(gf, rank) ? 1 : 0;
        if (gf->nodes.words.local[rank] == 0) continue;
        if (count++ == 0) lowest = rank;
        hash = gf_fnv_u64(hash, rank);
    }
    reach[GF_REACH_WORDS * gf->rank] = (float)lowest; /* exact: worlds are far below 2^24 */
    reach[GF_REACH_WORDS * gf->rank + 1] = (float)count;
    reach[GF_REACH_WORDS * gf->rank + 2] = (float)(hash >> 40); /* 24 bits are exact */
    if (gf->link->device != 0)
        reach[GF_REACH_WORDS * gf->rank + 3] = (float)((gf_fnv_u64(GF_FNV_START, gf->link->device) >> 40) | 1);
}

static uint32_t word_of(const gf_context *gf, uint32_t rank, uint32_t word)
{
    return (uint32_t)gf->nodes.words.reach[GF_REACH_WORDS * rank + word];
}

static uint32_t lowest_of(const gf_context *gf, uint32_t rank) { return word_of(gf, rank, 0); }
static uint32_t reached_of(const gf_context *gf, uint32_t rank) { return word_of(gf, rank, 1); }
static uint32_t device_of(const gf_context *gf, uint32_t rank) { return word_of(gf, rank, 3); }

/* Ranks of a node below `end`. */
static uint32_t members_of(const gf_context *gf, uint32_t lowest, uint32_t end)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < end; rank++) count += lowest_of(gf, rank) == lowest;
    return count;
}

static gf_status refuse(gf_context *gf, uint32_t rank)
{
    uint32_t lowest = lowest_of(gf, rank);
    if (members_of(gf, lowest, gf->world) == reached_of(gf, rank)) /* as many, others */
        return gf_fail(gf, GF_ERR_CONFIG, GF_OPERATION_JOIN, (rank == gf->rank) ? lowest : rank, GF_TENSOR_NONE,
                       "exchange.algorithm = hierarchy: ranks %u and %u share memory with different ranks; all ranks "
                       "of a node must reach each other's memory: let them have the same link.transports and "
                       "/dev/shm, or take auto", lowest, rank);
    return gf_fail(gf, GF_ERR_CONFIG, GF_OPERATION_JOIN, (rank == gf->rank) ? lowest : rank, GF_TENSOR_NONE,
                   "exchange.algorithm = hierarchy: rank %u shares memory with %u rank%s, itself too, but its node, that of "
                   "rank %u, has %u; all ranks of a node must reach each other's memory: let them have the same "
                   "link.transports and /dev/shm, or take auto", rank, reached_of(gf, rank),
                   (reached_of(gf, rank) == 1) ? "" : "s", lowest, members_of(gf, lowest, gf->world));
}

/* A rank whose node is not whole; GF_RANK_NONE: there is none. From what all were told, so that all ranks see the same
 * without another word: as many as share a lowest rank reach that many, each the same ones. */
static uint32_t odd_one(const gf_context *gf)
{
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        uint32_t lowest = lowest_of(gf, rank);
        if (members_of(gf, lowest, gf->world) != reached_of(gf, rank)) return rank;
        if (word_of(gf, rank, 2) != word_of(gf, lowest, 2)) return rank;
    }
    return GF_RANK_NONE;
}

/* The rank with `place` others of its node before it, in the node of rank `lowest`. */
static uint32_t rank_at(const gf_context *gf, uint32_t lowest, uint32_t place)
{
    for (uint32_t rank = lowest; rank < gf->world; rank++)
        if ((lowest_of(gf, rank) == lowest) && (place-- == 0)) return rank;
    return GF_RANK_NONE;
}

/* Does each rank leave its node by a device that no other rank of the node uses? */
static bool devices_of_their_own(const gf_context *gf)
{
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        if (device_of(gf, rank) == 0) return false;
        for (uint32_t other = 0; other < rank; other++)
            if ((lowest_of(gf, other) == lowest_of(gf, rank)) && (device_of(gf, other) == device_of(gf, rank)))
                return false;
    }
    return true;
}

gf_status gf_nodes_commit(gf_context *gf)
{
    struct gf_coll_nodes *nodes = &gf->nodes.of;
    struct gf_node_words *words = &gf->nodes.words;
    bool by_name = gf->config.exchange.algorithm == GF_ALGORITHM_HIERARCHY;
    uint32_t odd = odd_one(gf), mine = lowest_of(gf, gf->rank);
    if (odd != GF_RANK_NONE) return by_name ? refuse(gf, odd) : GF_OK;
    *nodes = (struct gf_coll_nodes){.local = words->local, .across = words->across, .owners = gf->world};
    nodes->local_index = members_of(gf, mine, gf->rank);
    nodes->halving_max_bytes = gf->config.exchange.deterministic ? UINT64_MAX : gf->config.exchange.halving_max_bytes;
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        uint32_t lowest = lowest_of(gf, rank), size = members_of(gf, lowest, gf->world);
        if (size > GF_DIRECT_RANKS_MAX) /* by name: auto looks for nodes in smaller worlds alone */
            return gf_fail(gf, GF_ERR_CONFIG, GF_OPERATION_JOIN, (rank == gf->rank) ? lowest : rank, GF_TENSOR_NONE,
                           "exchange.algorithm = hierarchy: %u ranks share the memory of rank %u's node; allowed are %u",
                           size, lowest, GF_DIRECT_RANKS_MAX);
        if (lowest == mine) words->local[nodes->local_size++] = gf_member_id_of(gf, rank);
        if (lowest != rank) continue;
        if (size < nodes->owners) nodes->owners = size;
        if (lowest == mine) nodes->node_index = nodes->node_count;
        if (nodes->local_index < size)
            words->across[nodes->node_count] = gf_member_id_of(gf, rank_at(gf, lowest, nodes->local_index));
        nodes->node_count++;
    }
    gf->nodes.used = by_name || ((nodes->owners >= AUTO_OWNERS) &&
                                 ((nodes->node_count == AUTO_NODES) || devices_of_their_own(gf)));
    if (!gf->nodes.used) return GF_OK;
    gf_log_line(&gf->log, GF_LOG_INFO, "hierarchy: %u nodes, the smallest of %u ranks; this one has %u", nodes->node_count,
                nodes->owners, nodes->local_size);
    return GF_OK;
}
