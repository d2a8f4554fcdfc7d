/* Who this rank is, and which drivers serve it. */
#include <string.h>

#include "drivers/identity.h"
#include "lib/core/layout.h"
#include "lib/settings/settings.h"

static gf_status identity_resolve(struct gf_layout *layout, char *error_out)
{
    struct gf_identity identity = {0};
    struct gf_fault fault = {0};
    struct gf_config *config = &layout->config;
    gf_status status =
        config->job.ignore_environment ? GF_AGAIN : gf_identity_get(&identity, &fault);

    if (status < 0) return gf_config_refuse(error_out, status, "%s", fault.text);
    if (status == GF_OK) {
        if ((config->job.world != 0) && (config->job.world != identity.world))
            return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                    "job.world is %u in the configuration, but the launcher that "
                                    "sets %s says %u ranks",
                                    config->job.world, identity.source, identity.world);
        uint32_t most = config->job.world_max;
        if ((identity.world_max != 0) && (most != 0) && (most != identity.world_max))
            return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                    "job.world_max is %u in the configuration, but "
                                    "GF_WORLD_MAX says %u",
                                    most, identity.world_max);
        config->job.world = identity.world;
        if (identity.world_max != 0) config->job.world_max = identity.world_max;
        config->job.rank = identity.rank;
        layout->local = identity.local;
        if (config->job.id == 0) config->job.id = identity.job_id;
        if (identity.address[0] != '\0')
            memcpy(config->rendezvous.address, identity.address, GF_TEXT_MAX);
        config->rendezvous.rejoin = config->rendezvous.rejoin || identity.rejoin;
    }
    if (status != GF_OK) layout->local = config->job.rank;
    if (config->job.world == 0) config->job.world = 1; /* no launcher, nothing said: a job of one */
    if (config->job.world_max == 0) config->job.world_max = config->job.world;
    if ((config->job.world_max > GF_WORLD_MAX) || (config->job.world > config->job.world_max) ||
        (config->job.rank >= config->job.world_max)) {
        return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                "rank %u of %u, at most %u (job.world_max); allowed are "
                                "ranks below the world, and worlds of 1 to %u",
                                config->job.rank, config->job.world, config->job.world_max,
                                GF_WORLD_MAX);
    }
    layout->is_new = (config->job.rank >= config->job.world) && !config->rendezvous.rejoin;
    config->rendezvous.rejoin = config->rendezvous.rejoin || layout->is_new;
    return GF_OK;
}

/* device.driver names the driver that was handed in; else the host's, which "" means too, or the
 * one that this program links beside it. */
static gf_status gpu_resolve(struct gf_layout *layout, char *error_out)
{
    struct gf_drivers *drivers = &layout->drivers;
    const struct gf_gpu_driver *first = drivers->gpu;
    const struct gf_gpu_driver *other = NULL;
    const char *name = layout->config.device.driver;
    if (first == NULL) {
        first = &gf_gpu_host;
        other = gf_drivers_default->gpu;
    }
    if ((name[0] == '\0') || (strcmp(name, first->name) == 0)) {
        drivers->gpu = first;
    } else if ((other != NULL) && (strcmp(name, other->name) == 0)) {
        drivers->gpu = other;
        drivers->gpu_kernels = gf_drivers_default->gpu_kernels;
    } else {
        return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                "device.driver \"%s\" is not in this build; there is "
                                "\"%s\"%s%s%s",
                                name, first->name, other ? ", \"" : "", other ? other->name : "",
                                other ? "\"" : "");
    }
    if (drivers->gpu->is_host || (drivers->gpu_kernels == NULL) ||
        (drivers->gpu_kernels->image != NULL))
        return GF_OK;
    return gf_config_refuse(error_out, GF_ERR_CONFIG,
                            "device.driver \"%s\" has no kernels in this build: it was "
                            "made without nvcc",
                            drivers->gpu->name);
}

static gf_status drivers_resolve(struct gf_layout *layout, char *error_out)
{
    struct gf_drivers *drivers = &layout->drivers;
    const char *lacks = NULL;
    if (layout->config.drivers != NULL) *drivers = *layout->config.drivers;
    if (drivers->link == NULL) {
        drivers->link = gf_drivers_default->link;
        drivers->fabric = gf_drivers_default->fabric;
    }
    if (layout->config.link.driver == GF_LINK_TCP) drivers->fabric = NULL;
    if ((layout->config.link.driver == GF_LINK_UCX) && (drivers->fabric == NULL))
        return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                "link.driver = ucx: this program is linked without UCX "
                                "(gf_drivers_all has it, in a library made with UCX=1)");
    if (drivers->rendezvous == NULL) drivers->rendezvous = gf_drivers_default->rendezvous;
    if (drivers->clock == NULL) drivers->clock = gf_drivers_default->clock;
    if (drivers->link == NULL)
        lacks = "link";
    else if (drivers->rendezvous == NULL)
        lacks = "rendezvous";
    else if (drivers->clock == NULL)
        lacks = "clock";
    if (lacks == NULL) return gpu_resolve(layout, error_out);
    return gf_config_refuse(error_out, GF_ERR_CONFIG,
                            "this program links no %s driver: hand one in with "
                            "config.drivers, or name one in gf_drivers_default (drivers.h)",
                            lacks);
}

static gf_status rejoin_check(const struct gf_layout *layout, char *error_out)
{
    const char *wrong = NULL;
    if (!layout->config.rendezvous.rejoin) return GF_OK;
    if (layout->config.job.world_max < 2)
        wrong = "a world of 1 has nobody who could let this rank in";
    else if (layout->drivers.rendezvous->reform == NULL)
        wrong = "the control channel handed in has no reform()";
    if (wrong == NULL) return GF_OK;
    return gf_config_refuse(error_out, GF_ERR_CONFIG, "rendezvous.rejoin: %s", wrong);
}

gf_status gf_layout_resolve(struct gf_layout *layout, char *error_out)
{
    gf_status status;
    if ((status = drivers_resolve(layout, error_out)) < 0) return status;
    if ((status = identity_resolve(layout, error_out)) < 0) return status;
    return rejoin_check(layout, error_out);
}
