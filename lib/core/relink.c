/* A new link in an open context: for another generation, or with a network where there was none
 * before. The exchange region may move, and with it everything that lies in it. */
#include "drivers/base/descriptors.h"
#include "lib/context.h"
#include "lib/core/accessors.h"
#include "lib/core/device_work.h"
#include "lib/core/relink.h"
#include "lib/core/layout.h"
#include "lib/core/vote.h"
#include "lib/device/device.h"

void gf_exchange_lay(gf_context *gf)
{
    const struct gf_exchange_parts *at = &gf->region.at;
    char *base = (char *)gf->link->region;
    const gf_mem region = (gf_mem)(uintptr_t)base;
    gf->region.base = base;
    gf->region.user = region + at->user;
    gf->region.user_used = 0;
    gf->pack_host = region + at->pack_host;
    gf->device.squares = region + at->squares;
    gf->finite.seen = (struct gf_check *)(void *)(base + at->seen);
    if (!gf->on_device) {
        gf->gradient = region + at->gradient;
        gf->pack = gf->pack_host;
        gf->finite.counters = region + at->seen;
    }
    gf->sparse.lists = (uint32_t *)(void *)(base + at->lists);
    gf->vote = (uint64_t *)(void *)(base + at->vote);
    gf->sparse.scores = (float *)(void *)(gf->vote + GF_VOTE_WORDS);
    for (uint32_t s = 0; s < gf->under_way.count; s++) {
        struct gf_op *op = &gf->under_way.ops[s];
        op->staging = region + at->staging + s * op->coll.staging_bytes;
    }
}

gf_status gf_link_open(gf_context *gf, struct gf_fault *fault_out)
{
    struct gf_link_setup *setup = &gf->opening.link_setup;
    gf_descriptors_hold();
    setup->generation = gf->generation;
    setup->rank = gf->rank;
    /* a process that comes in may have a number beyond the first world */
    setup->world = (gf->rank < gf->world) ? gf->world : setup->ranks_max;
    gf->opening.link_generation = gf->generation;
    return gf_link_whole(&gf->drivers)->open(setup, gf->opening.link_state, &gf->link, fault_out);
}

void gf_link_cut(gf_context *gf)
{
    gf_descriptors_hold();
    const bool registered = gf->on_device && (gf_device_region_close(gf) == GF_OK);
    (void)gf->link->driver->reset(gf->link, ++gf->opening.link_generation, gf->rank, gf->world);
    if (gf->link->region == NULL) return; /* gf_gradient() looks at that */
    gf_exchange_lay(gf);
    if (registered) (void)gf_device_region_open(gf);
}

/* Prepares the link for the current generation, with that network. `is_new`: the link was opened
 * for another generation, so it is reset. */
static gf_status link_make(gf_context *gf, gf_network network, bool is_new,
                           struct gf_fault *fault_out)
{
    const struct gf_link_driver *driver = gf->link->driver;
    gf_status status = GF_OK;
    gf->opening.link_generation = gf->generation;
    if (is_new) status = driver->reset(gf->link, gf->generation, gf->rank, gf->world);
    if ((status == GF_OK) && (network != gf->link->network))
        status = driver->network(gf->link, network);
    if (status >= 0) return status;
    *fault_out = gf->link->fault;
    if (network == GF_NETWORK_FABRIC) fault_out->peer = gf->rank; /* it does not open here */
    return status;
}

gf_status gf_link_renew(gf_context *gf, const struct gf_generation *to, const void **endpoint_out,
                        size_t *bytes_out, struct gf_fault *fault_out)
{
    /* a link that shares nothing has its network from the beginning */
    const gf_network network =
        (gf->link->driver->network == NULL) ? gf->link->network : (gf_network)to->network;
    const bool is_new = (to->number != gf->opening.link_generation) || (to->rank != gf->rank) ||
                        (to->world != gf->world);
    gf_status status;
    gf_descriptors_hold();
    gf->generation = to->number;
    gf->rank = to->rank;
    gf->world = to->world;
    if (is_new || (network != gf->link->network)) {
        if (gf->on_device && ((status = gf_device_region_close(gf)) < 0)) {
            *fault_out = gf->gpu->fault;
            return status;
        }
        status = link_make(gf, network, is_new, fault_out);
        if (status < 0) return status;
        gf_exchange_lay(gf);
        if (gf->on_device && (gf_device_region_open(gf) < 0)) {
            *fault_out = gf->gpu->fault;
            return GF_ERR_DEVICE;
        }
    }
    void *endpoint = (void *)(uintptr_t)gf->under_way.ops[0].staging; /* nothing runs yet */
    *endpoint_out = endpoint;
    status = gf->link->driver->endpoint(gf->link, endpoint, bytes_out);
    if (status < 0) *fault_out = gf->link->fault;
    return status;
}
