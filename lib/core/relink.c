/* A new link in an open context: for another epoch, or with a network where there was none. The
 * region moves, and with it all that lies there. */
#include "lib/context.h"
#include "lib/core/device_work.h"
#include "lib/device/device.h"

static void region_move(gf_context *gf)
{
    char *base = (char *)gf->link->region;
    /* wraps where it must */
    uint64_t delta = (uint64_t)(uintptr_t)base - (uint64_t)(uintptr_t)gf->region.base;
    if (!gf->on_device) {
        gf->gradient += delta;
        gf->pack += delta;
        gf->finite.counters += delta;
    }
    gf->finite.seen = (struct gf_check *)((uintptr_t)gf->finite.seen + delta);
    gf->pack_host += delta;
    gf->region.user += delta;
    gf->region.user_used = 0;
    gf->sparse.lists = (uint32_t *)((uintptr_t)gf->sparse.lists + delta);
    gf->vote = (uint64_t *)((uintptr_t)gf->vote + delta);
    gf->sparse.scores = (float *)((uintptr_t)gf->sparse.scores + delta);
    for (uint32_t i = 0; i < gf->under_way.count; i++) gf->under_way.ops[i].staging += delta;
    gf->region.base = base;
}

gf_status gf_link_renew(gf_context *gf, bool network, const void **endpoint_out, size_t *bytes_out)
{
    const struct gf_link_driver *driver = gf->link->driver;
    void *endpoint;
    gf_status status;
    if (gf->on_device && ((status = gf_device_region_close(gf)) < 0)) return status;
    status = (network != gf->link->network) ? driver->network(gf->link, network)
                                            : driver->reset(gf->link, gf->epoch);
    if (status < 0) return status;
    region_move(gf);
    if (gf->on_device && (gf_device_region_open(gf) < 0)) return GF_ERR_DEVICE;
    endpoint = (void *)(uintptr_t)gf->under_way.ops[0].staging; /* nothing runs yet */
    *endpoint_out = endpoint;
    return driver->endpoint(gf->link, endpoint, bytes_out);
}
