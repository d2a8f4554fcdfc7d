/* The end of opening: all ranks meet, and each learns which ranks share memory with which. The
 * choice of the algorithm depends on that. */
#include "lib/device/device.h"
#include "lib/core/accessors.h"
#include "lib/core/arena.h"
#include "lib/core/choose.h"
#include "lib/core/device_work.h"

/* GF_OK once all requests that were posted have ended; their slots are free again. */
static gf_status requests_ended(gf_context *gf)
{
    gf_status status = gf_request_progress(gf, NULL);
    if ((status < 0) || (gf->phase != GF_PHASE_WARM)) return status;
    if (!gf_requests_idle(gf)) return GF_AGAIN;
    gf_requests_reset(gf, gf->requests.posted);
    return GF_OK;
}

void gf_warm_post(gf_context *gf, gf_collective collective, float *data, uint64_t count)
{
    const struct gf_call call = {GF_OPERATION_JOIN, (uint16_t)collective, 0};
    gf_status status =
        gf_request_post(gf, call, (gf_mem)(uintptr_t)data, count, GF_TYPE_F32, &gf->warm.request);
    GF_ASSERT(status == GF_OK);
}

/* Memory for flags is laid out for world_max ranks: a job that may have more than direct's most has
 * none. */
static bool all_share(const gf_context *gf)
{
    return (gf->config.job.world_max <= GF_DIRECT_RANKS_MAX) &&
           (gf->warm.met[GF_MET_PAIRS] == (float)(gf->world * (gf->world - 1)));
}

/* If some ranks share memory but not all, one more round finds which do. False: nothing depends on
 * it. */
static bool nodes_post(gf_context *gf)
{
    bool by_name = gf->config.exchange.algorithm == GF_ALGORITHM_HIERARCHY;
    if ((gf->nodes.table.reach == NULL) ||
        (!by_name && ((gf->warm.met[GF_MET_PAIRS] == 0) || all_share(gf))))
        return false;
    gf_warm_post(gf, GF_COLL_ALLREDUCE, gf->nodes.table.reach,
                 GF_REACH_WORDS * (uint64_t)gf->world);
    return true;
}

static gf_status direct_refuse(gf_context *gf)
{
    uint32_t peer;
    char text[256];
    gf_direct_unshared(gf->link, gf->world, gf->rank, &peer, text);
    return gf_fail(gf, GF_ERR_CONFIG, GF_OPERATION_JOIN, peer, GF_TENSOR_NONE, "%s", text);
}

/* Some more rounds where gradients lie on devices: they find which rank reaches whose memory. */
static gf_status export(gf_context *gf)
{
    gf->warm.state = GF_WARM_EXPORT;
    return gf->on_device ? gf_ipc_begin(gf) : GF_OK;
}

/* Last, this rank touches the pages of its peers' regions if they have work in them. In a later
 * generation it does not: training would wait for all pages of all peers, and the first steps touch
 * those that they need. */
static gf_status finished(gf_context *gf)
{
    gf->wait_state.oversubscribed = gf->warm.met[GF_MET_OVERSUBSCRIBED] > 0;
    gf_choose_commit(gf, all_share(gf));
    gf->warm.state = GF_WARM_TOUCH;
    gf->warm.touched_pages = 0;
    return ((gf->algorithm == GF_ALGORITHM_DIRECT) || gf->nodes.used || gf->on_device) ? GF_AGAIN
                                                                                       : GF_OK;
}

gf_status gf_warm_poll(gf_context *gf, uint64_t now_ns)
{
    gf_status status = requests_ended(gf);
    if (status != GF_OK) return status;
    switch (gf->warm.state) {
    case GF_WARM_BEGIN:
        gf_warm_post(gf, GF_COLL_ALLREDUCE, gf->warm.met, GF_MET_COUNT); /* a barrier, too */
        gf->warm.state = GF_WARM_MEET;
        return GF_AGAIN;
    case GF_WARM_MEET:
        if (!all_share(gf) && (gf->config.exchange.algorithm == GF_ALGORITHM_DIRECT))
            return direct_refuse(gf);
        if (!nodes_post(gf)) return finished(gf);
        gf->warm.state = GF_WARM_NODES;
        return GF_AGAIN;
    case GF_WARM_NODES: status = gf_nodes_commit(gf); return (status < 0) ? status : finished(gf);
    case GF_WARM_TOUCH:
        gf->wait_state.moved_ns = now_ns; /* nothing to wait for */
        if ((gf->together_ns == 0) &&
            (gf_direct_touch(gf->link, gf->world, &gf->warm.touched_pages) == GF_AGAIN))
            return GF_AGAIN;
        if (gf->warm.met[GF_MET_DEVICE] < (float)gf->world) return export(gf);
        gf_uuid_begin(gf);
        gf->warm.state = GF_WARM_UUIDS;
        return GF_AGAIN;
    case GF_WARM_UUIDS: gf_uuid_commit(gf); return export(gf);
    case GF_WARM_EXPORT: return gf_ipc_next(gf);
    }
    return GF_ERR_STATE;
}
