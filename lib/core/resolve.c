/* Who this rank is, and which drivers and modules the configuration names. */
#include <string.h>

#include "drivers/identity.h"
#include "lib/core/layout.h"
#include "lib/device/device.h"
#include "lib/settings/settings.h"

/* `entry` is a member of struct gf_modules. */
static gf_status not_linked(const struct gf_modules *modules, const char *setting, const char *entry, char *error_out)
{
    return gf_config_refuse(error_out, GF_ERR_CONFIG, "%s: the module \"%s\" is not linked into this program: its %s "
                            "has no .%s = &gf_module_%s; gf_modules_all has (modules.h)", setting, entry, modules->name,
                            entry, entry);
}

static gf_status identity_resolve(struct gf_layout *layout, char *error_out)
{
    struct gf_identity identity = {0};
    struct gf_fault fault = {0};
    struct gf_config *config = &layout->config;
    gf_status status = config->job.ignore_environment ? GF_AGAIN : gf_identity_get(&identity, &fault);

    if (status < 0)
        return gf_config_refuse(error_out, status, "%s", fault.text);
    if (status == GF_OK) {
        if ((config->job.world != 0) && (config->job.world != identity.world))
            return gf_config_refuse(error_out, GF_ERR_CONFIG, "job.world is %u in the configuration, but %s says %u "
                                    "ranks", config->job.world, identity.source, identity.world);
        uint32_t most = config->job.world_max;
        if ((identity.world_max != 0) && (most != 0) && (most != identity.world_max))
            return gf_config_refuse(error_out, GF_ERR_CONFIG, "job.world_max is %u in the configuration, but "
                                    "GF_WORLD_MAX says %u", most, identity.world_max);
        config->job.world = identity.world;
        if (identity.world_max != 0) config->job.world_max = identity.world_max;
        config->job.rank = identity.rank;
        layout->local = identity.local;
        if (config->job.id == 0) config->job.id = identity.job_id;
        if (identity.address[0] != '\0') memcpy(config->rendezvous.address, identity.address, GF_TEXT_MAX);
        config->rendezvous.rejoin = config->rendezvous.rejoin || identity.rejoin;
    }
    if (status != GF_OK) layout->local = config->job.rank;
    if (config->job.world == 0) config->job.world = 1; /* no launcher, nothing said: a job of one */
    if (config->job.world_max == 0) config->job.world_max = config->job.world;
    if ((config->job.world_max > GF_WORLD_MAX) || (config->job.world > config->job.world_max) ||
        (config->job.rank >= config->job.world_max)) {
        return gf_config_refuse(error_out, GF_ERR_CONFIG, "rank %u of %u, at most %u (job.world_max); allowed are "
                                "ranks below the world, and worlds of 1 to %u", config->job.rank, config->job.world,
                                config->job.world_max, GF_WORLD_MAX);
    }
    layout->is_new = (config->job.rank >= config->job.world) && !config->rendezvous.rejoin;
    config->rendezvous.rejoin = config->rendezvous.rejoin || layout->is_new;
    return GF_OK;
}

/* The driver that device.driver names, of this program; "" is the first. NULL: there is none of that name. */
static const struct gf_gpu_driver *gpu_named(const struct gf_modules *modules, const char *name)
{
    const struct gf_gpu_driver *host = modules->drivers.gpu;
    const struct gf_gpu_driver *device = (modules->device != NULL) ? modules->device->driver : NULL;
    if ((name[0] == '\0') || ((host != NULL) && (strcmp(name, host->name) == 0))) return host;
    return ((device != NULL) && (strcmp(name, device->name) == 0)) ? device : NULL;
}

static gf_status gpu_resolve(struct gf_layout *layout, char *error_out)
{
    const struct gf_modules *modules = layout->modules;
    const struct gf_device_module *device = modules->device;
    struct gf_drivers *drivers = &layout->drivers;
    const char *name = layout->config.device.driver;
    bool given = drivers->gpu != NULL;
    if (!given) drivers->gpu = gpu_named(modules, name);
    if ((drivers->gpu == NULL) || ((name[0] != '\0') && (strcmp(name, drivers->gpu->name) != 0))) {
        const struct gf_gpu_driver *host = given ? drivers->gpu : modules->drivers.gpu;
        bool other = !given && (device != NULL) && (device->driver != NULL);
        return gf_config_refuse(error_out, GF_ERR_CONFIG, "device.driver \"%s\" is not in this build; there is "
                                "\"%s\"%s%s%s%s", name, (host != NULL) ? host->name : "none", other ? ", \"" : "",
                                other ? device->driver->name : "", other ? "\"" : "",
                                (device != NULL) ? "" : "; .device = &gf_module_device links others");
    }
    if (drivers->gpu->is_host) return GF_OK;
    if (device == NULL) return not_linked(modules, "device.driver", "device", error_out);
    if (drivers->gpu == device->driver) layout->gpu_kernels = device->kernels;
    if ((layout->gpu_kernels != NULL) && (layout->gpu_kernels->image == NULL))
        return gf_config_refuse(error_out, GF_ERR_CONFIG, "device.driver \"%s\" has no kernels in this build: it was "
                                "made without nvcc", drivers->gpu->name);
    return GF_OK;
}

static gf_status drivers_resolve(struct gf_layout *layout, char *error_out)
{
    const struct gf_drivers *linked = &layout->modules->drivers;
    struct gf_drivers *drivers = &layout->drivers;
    if (layout->config.drivers != NULL) *drivers = *layout->config.drivers;
    if (drivers->link == NULL) drivers->link = linked->link;
    if (drivers->rendezvous == NULL) drivers->rendezvous = linked->rendezvous;
    if (drivers->clock == NULL) drivers->clock = linked->clock;
    if ((drivers->link == NULL) || (drivers->rendezvous == NULL) || (drivers->clock == NULL)) {
        return gf_config_refuse(error_out, GF_ERR_CONFIG, "%s has no %s driver; hand one in with config.drivers",
                                layout->modules->name,
                                drivers->link ? (drivers->rendezvous ? "clock" : "rendezvous") : "link");
    }
    return gpu_resolve(layout, error_out);
}

/* What the configuration asks for is linked. */
static gf_status modules_check(const struct gf_layout *layout, char *error_out)
{
    const struct gf_modules *modules = layout->modules;
    const struct gf_config *config = &layout->config;
    gf_algorithm algorithm = config->exchange.algorithm;
    if ((modules->ops == NULL) || !gf_element_ops_supported(modules->ops))
        return gf_config_refuse(error_out, GF_ERR_CONFIG, "%s has %s element ops, which this CPU does not run; .ops = "
                                "&gf_element_ops_host runs on any", modules->name,
                                (modules->ops != NULL) ? modules->ops->name : "no");
    for (gf_algorithm core = GF_ALGORITHM_RING; core <= GF_ALGORITHM_TREE; core++)
        if (modules->coll[core] == NULL)
            return gf_config_refuse(error_out, GF_ERR_CONFIG, "%s has no .coll[] = &gf_coll_%s, which the core needs; "
                                    "GF_MODULES_CORE has (modules.h)", modules->name, gf_algorithm_name(core));
    if (config->sparse.enabled && (modules->sparse == NULL))
        return not_linked(modules, "sparse.enabled", "sparse", error_out);
    if ((config->exchange.quantize != GF_QUANTIZE_NONE) &&
        ((modules->quantize == NULL) || (modules->coll[GF_ALGORITHM_ALLTOALL] == NULL)))
        return not_linked(modules, "exchange.quantize", "quantize", error_out);
    if (((config->optimizer.kind != GF_OPTIMIZER_NONE) || (config->optimizer.half_weights != GF_TYPE_F32)) &&
        (modules->optimizer == NULL))
        return not_linked(modules, "optimizer.kind", "optimizer", error_out);
    if ((strcmp(config->link.devices, "auto") == 0) && (modules->hardware == NULL))
        return not_linked(modules, "link.devices = auto", "hardware", error_out);
    if ((algorithm != GF_ALGORITHM_AUTO) && (modules->coll[algorithm] == NULL)) {
        return gf_config_refuse(error_out, GF_ERR_CONFIG, "exchange.algorithm = %s is not linked into this program: "
                                "its %s has no .coll[] = &gf_coll_%s; gf_modules_all has", gf_algorithm_name(algorithm),
                                modules->name, gf_algorithm_name(algorithm));
    }
    return GF_OK;
}

static gf_status rejoin_check(const struct gf_layout *layout, char *error_out)
{
    const char *wrong = NULL;
    if (!layout->config.rendezvous.rejoin) return GF_OK;
    if (layout->config.job.world_max < 2) wrong = "a world of 1 has nobody who could let this rank in";
    else if (layout->drivers.rendezvous->reform == NULL) wrong = "the control channel handed in has no reform()";
    if (wrong == NULL) return GF_OK;
    return gf_config_refuse(error_out, GF_ERR_CONFIG, "rendezvous.rejoin: %s", wrong);
}

gf_status gf_layout_resolve(struct gf_layout *layout, char *error_out)
{
    gf_status status;
    if ((status = drivers_resolve(layout, error_out)) < 0) return status;
    if ((status = identity_resolve(layout, error_out)) < 0) return status;
    if ((status = modules_check(layout, error_out)) < 0) return status;
    return rejoin_check(layout, error_out);
}
