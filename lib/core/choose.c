/* See choose.h. */
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/choose.h"

uint32_t gf_choose_flag_ranks(const struct gf_config *config)
{
    bool in_nodes = (config->exchange.algorithm == GF_ALGORITHM_HIERARCHY) &&
                    (config->job.world_max > GF_DIRECT_RANKS_MAX);
    return in_nodes ? GF_DIRECT_RANKS_MAX : config->job.world_max;
}

void gf_choose_reset(gf_context *gf)
{
    gf_algorithm asked = gf->config.exchange.algorithm;
    gf->algorithm = gf_is_in_node(asked) ? GF_ALGORITHM_AUTO : asked;
    gf->nodes.used = false;
    gf->flag_ranks = gf_choose_flag_ranks(&gf->config);
    if (gf->world < gf->flag_ranks) gf->flag_ranks = gf->world;
}

void gf_choose_commit(gf_context *gf, bool shares)
{
    gf_algorithm asked = gf->config.exchange.algorithm;
    bool wanted = (asked == GF_ALGORITHM_DIRECT) || (asked == GF_ALGORITHM_AUTO);
    if (asked == GF_ALGORITHM_HIERARCHY) gf->algorithm = asked;
    if (wanted && shares && (gf->world > 1)) gf->algorithm = GF_ALGORITHM_DIRECT;
}

gf_algorithm gf_choose(const gf_context *gf, gf_collective collective, uint64_t bytes)
{
    gf_algorithm wanted = gf->algorithm;
    static const gf_algorithm fallbacks[] = {GF_ALGORITHM_RING, GF_ALGORITHM_TREE,
                                             GF_ALGORITHM_DOUBLING, GF_ALGORITHM_HALVING};
    if ((wanted != GF_ALGORITHM_AUTO) && gf_coll_offers(gf_coll_kinds[wanted], collective))
        return wanted;
    if ((collective == GF_COLL_ALLREDUCE) && (wanted == GF_ALGORITHM_AUTO)) {
        if (bytes <= gf->config.exchange.doubling_max_bytes) return GF_ALGORITHM_DOUBLING;
        if (gf->nodes.used) return GF_ALGORITHM_HIERARCHY;
        if (gf->config.exchange.deterministic) return GF_ALGORITHM_HALVING;
        return gf_halving_pays(gf->world, bytes, gf->config.exchange.halving_max_bytes)
                   ? GF_ALGORITHM_HALVING
                   : GF_ALGORITHM_RING;
    }
    for (size_t i = 0; i < sizeof fallbacks / sizeof fallbacks[0]; i++)
        if (gf_coll_offers(gf_coll_kinds[fallbacks[i]], collective)) return fallbacks[i];
    GF_ASSERT(false); /* every collective is served by one of them */
    return GF_ALGORITHM_AUTO;
}

gf_algorithm gf_choose_reduced(const gf_context *gf, uint64_t bytes)
{
    bool direct = (gf->algorithm == GF_ALGORITHM_DIRECT) && (bytes <= GF_DIRECT_SMALL_BYTES);
    return direct ? GF_ALGORITHM_DIRECT : GF_ALGORITHM_DOUBLING;
}
