/* Whether this configuration needs to know which ranks share memory. ops/node/nodes.c evaluates
 * the ranks' answers; the core reaches it through hierarchy. */
#include "lib/context.h"
#include "lib/core/accessors.h"

/* With exchange.deterministic, hierarchy would change the sums that doubling gives. */
bool gf_nodes_wanted(const struct gf_config *config)
{
    if (config->exchange.algorithm == GF_ALGORITHM_HIERARCHY) return true;
    return (config->exchange.algorithm == GF_ALGORITHM_AUTO) &&
           (config->job.world_max >= GF_NODES_AUTO * GF_NODES_OWNERS) &&
           (config->job.world_max <= GF_DIRECT_RANKS_MAX) && !config->exchange.deterministic;
}

bool gf_nodes_need_peers(const gf_context *gf)
{
    return (gf->config.exchange.algorithm == GF_ALGORITHM_AUTO) &&
           (gf->warm.met[GF_MET_WIRE] == (float)gf->world);
}

static struct gf_nodes_meeting meeting_of(const gf_context *gf)
{
    return (struct gf_nodes_meeting){
        .link = gf->link, .world = gf->world, .rank = gf->rank, .table = gf->nodes.table};
}

void gf_nodes_reach_find(gf_context *gf)
{
    const struct gf_nodes_meeting met = meeting_of(gf);
    if (met.table.reach != NULL) gf_nodes_meet(&met);
}

gf_status gf_nodes_commit(gf_context *gf)
{
    const struct gf_nodes_meeting met = meeting_of(gf);
    struct gf_coll_nodes *nodes = &gf->nodes.of;
    bool by_name = gf->config.exchange.algorithm == GF_ALGORITHM_HIERARCHY;
    uint32_t peer = GF_RANK_NONE;
    char text[256];
    gf_status status = gf_nodes_form(&met, by_name, nodes, &gf->nodes.used, &peer, text);
    if (status < 0) return gf_fail(gf, status, GF_OPERATION_JOIN, peer, GF_TENSOR_NONE, "%s", text);
    nodes->halving_max_bytes = nodes->ports * gf->config.exchange.halving_max_bytes;
    if (gf->config.exchange.deterministic) nodes->halving_max_bytes = UINT64_MAX;
    if (gf->nodes.used)
        gf_log_line(&gf->log, GF_LOG_INFO,
                    "hierarchy: %u nodes, the smallest of %u ranks; this one has %u",
                    nodes->node_count, nodes->owners, nodes->local_size);
    return GF_OK;
}
