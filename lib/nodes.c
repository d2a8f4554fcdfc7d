/* Which ranks share memory, for hierarchy: all ranks tell all others whom they reach, so all see the same nodes. A node is
 * a set of ranks of which each reaches exactly the others: ranks with the same lowest one. */
#include <stdio.h>

#include "context.h"

static bool reaches(const gf_context *gf, uint32_t rank)
{
    return (rank == gf->rank) || (gf->link->driver->map(gf->link, gf_seat_of(gf, rank)) != NULL);
}

void gf_nodes_look(gf_context *gf)
{
    float *reach = gf->node_words.reach;
    uint32_t lowest = GF_RANK_NONE, count = 0;
    if (gf->config.exchange.algorithm != GF_ALGORITHM_HIERARCHY) return;
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        reach[2 * rank] = reach[2 * rank + 1] = 0;
        gf->node_words.local[rank] = reaches(gf, rank) ? 1 : 0;
        if (gf->node_words.local[rank] == 0) continue;
        if (count++ == 0) lowest = rank;
    }
    reach[2 * gf->rank] = (float)lowest; /* exact: worlds are far below 2^24 */
    reach[2 * gf->rank + 1] = (float)count;
}

static uint32_t lowest_of(const gf_context *gf, uint32_t rank)
{
    return (uint32_t)gf->node_words.reach[2 * rank];
}

static uint32_t reached_of(const gf_context *gf, uint32_t rank)
{
    return (uint32_t)gf->node_words.reach[2 * rank + 1];
}

/* Ranks of a node below `end`. */
static uint32_t members_of(const gf_context *gf, uint32_t lowest, uint32_t end)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < end; rank++) count += lowest_of(gf, rank) == lowest;
    return count;
}

static gf_status refuse(gf_context *gf, uint32_t rank, uint32_t other)
{
    return gf_fail(gf, GF_ERR_CONFIG, GF_OPERATION_JOIN, (rank == gf->rank) ? other : rank, GF_TENSOR_NONE,
                   "exchange.algorithm = hierarchy: rank %u shares memory with %u rank%s, itself too, but its node, that of "
                   "rank %u, has %u; all ranks of a node must reach each other's memory: let them have the same "
                   "link.transports and /dev/shm, or take auto", rank, reached_of(gf, rank),
                   (reached_of(gf, rank) == 1) ? "" : "s", lowest_of(gf, rank),
                   members_of(gf, lowest_of(gf, rank), gf->world));
}

/* The same answer on all ranks; only what a rank sees itself that the counts do not show is its own. */
static gf_status whole_check(gf_context *gf)
{
    const uint32_t *saw = gf->node_words.local; /* then: who has left since is named by what fails without it */
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        uint32_t lowest = lowest_of(gf, rank), count = members_of(gf, lowest, gf->world);
        if (count != reached_of(gf, rank)) return refuse(gf, rank, lowest);
        if (count > GF_DIRECT_RANKS_MAX)
            return gf_fail(gf, GF_ERR_CONFIG, GF_OPERATION_JOIN, (rank == gf->rank) ? lowest : rank, GF_TENSOR_NONE,
                           "exchange.algorithm = hierarchy: %u ranks share the memory of rank %u's node; allowed are %u",
                           count, lowest, GF_DIRECT_RANKS_MAX);
    }
    for (uint32_t rank = 0; rank < gf->world; rank++)
        if (saw[rank] != (lowest_of(gf, rank) == lowest_of(gf, gf->rank))) return refuse(gf, gf->rank, rank);
    return GF_OK;
}

/* The rank with `place` others of its node before it, in the node of rank `lowest`. */
static uint32_t rank_at(const gf_context *gf, uint32_t lowest, uint32_t place)
{
    for (uint32_t rank = lowest; rank < gf->world; rank++)
        if ((lowest_of(gf, rank) == lowest) && (place-- == 0)) return rank;
    return GF_RANK_NONE;
}

gf_status gf_nodes_settle(gf_context *gf)
{
    struct gf_coll_nodes *nodes = &gf->nodes;
    struct gf_node_words *words = &gf->node_words;
    uint32_t mine = lowest_of(gf, gf->rank);
    gf_status status = whole_check(gf);
    if (status < 0) return status;
    *nodes = (struct gf_coll_nodes){.local = words->local, .across = words->across, .owners = gf->world};
    nodes->local_index = members_of(gf, mine, gf->rank);
    nodes->halving_max_bytes = gf->config.exchange.deterministic ? UINT64_MAX : gf->config.exchange.halving_max_bytes;
    for (uint32_t rank = 0; rank < gf->world; rank++) {
        uint32_t lowest = lowest_of(gf, rank), size = members_of(gf, lowest, gf->world);
        if (lowest == mine) words->local[nodes->local_size++] = gf_seat_of(gf, rank);
        if (lowest != rank) continue;
        if (size < nodes->owners) nodes->owners = size;
        if (lowest == mine) nodes->node_index = nodes->node_count;
        if (nodes->local_index < size)
            words->across[nodes->node_count] = gf_seat_of(gf, rank_at(gf, lowest, nodes->local_index));
        nodes->node_count++;
    }
    gf_log_line(&gf->log, GF_LOG_INFO, "hierarchy: %u nodes, the smallest of %u ranks; this one has %u", nodes->node_count,
                nodes->owners, nodes->local_size);
    return GF_OK;
}
