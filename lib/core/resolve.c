/* Which rank this process is, and which drivers it uses. */
#include <string.h>

#include "drivers/base/address.h"
#include "drivers/identity.h"
#include "drivers/variables.h"
#include "lib/core/layout.h"
#include "lib/settings/settings.h"

/* An address that no rank could dial. */
static gf_status address_check(const struct gf_layout *layout, char *error_out)
{
    static const struct gf_addr nowhere;
    struct gf_addr addr;
    const char *address = layout->config.rendezvous.address;
    if (layout->config.job.world_max < 2) return GF_OK;
    if (!gf_addr_parse(address, true, &addr)) {
        if (gf_address_named(address) || gf_addr_lacks_scope(address, true)) return GF_OK;
        return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                "%s = '%.100s': expected host:port or IP:port with a port from 1 "
                                "to 65535, as 10.0.0.1:7117 or [fd00::1]:7117",
                                layout->address_name, address);
    }
    if (memcmp(addr.ip, nowhere.ip, sizeof addr.ip) != 0) return GF_OK;
    return gf_config_refuse(error_out, GF_ERR_CONFIG,
                            "%s = '%.100s': ranks dial it, and it is the address of no host; "
                            "expected one of the coordinator's (rendezvous.bind says where it "
                            "listens)",
                            layout->address_name, address);
}

static gf_status identity_resolve(struct gf_layout *layout, const char *address_given,
                                  char *error_out)
{
    struct gf_identity identity = {0};
    struct gf_fault fault = {0};
    struct gf_config *config = &layout->config;
    layout->address_name = "rendezvous.address";
    bool is_launched = !config->job.ignore_environment && gf_identity_get(&identity, &fault);

    if (fault.code < 0) return gf_config_refuse(error_out, fault.code, "%s", fault.text);
    if (is_launched) {
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
        /* a job beside the launcher's has its coordinator where the configuration says */
        bool is_beside =
            (config->job.id != 0) && (identity.job_id != 0) && (config->job.id != identity.job_id);
        if (config->job.id == 0) config->job.id = identity.job_id;
        const char *address = gf_identity_address(&identity, address_given);
        layout->address_name = gf_identity_address_name(&identity, address_given);
        if (identity.nameless && (config->job.id == 0) && (address[0] == '\0'))
            return gf_config_refuse(error_out, GF_ERR_CONFIG,
                                    "what sets %s says no id of the job, and ranks of two such "
                                    "jobs would meet: set GF_JOB to a number, or GF_ADDRESS, the "
                                    "same on all ranks of this one",
                                    identity.source);
        if ((address[0] != '\0') && (address != address_given))
            memcpy(config->rendezvous.address, address, GF_TEXT_MAX);
        config->rendezvous.rejoin = config->rendezvous.rejoin || identity.rejoin;
        config->job.elastic = config->job.elastic || identity.elastic;
        if (identity.coordinator_set && !is_beside)
            config->rendezvous.coordinator =
                identity.is_separate ? GF_COORDINATOR_SEPARATE : GF_COORDINATOR_AT_RANK0;
    }
    layout->nameless = identity.nameless && (config->job.id == 0);
    layout->world_unsaid = (config->job.world == 0);
    if (!is_launched) layout->local = config->job.rank;
    if (config->job.world == 0) config->job.world = 1; /* no launcher, no key: a job of one */
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
    if (drivers->channel == NULL) drivers->channel = gf_drivers_default->channel;
    if (drivers->clock == NULL) drivers->clock = gf_drivers_default->clock;
    if (drivers->link == NULL)
        lacks = "link";
    else if (drivers->channel == NULL)
        lacks = "channel";
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
    if (wrong == NULL) return GF_OK;
    return gf_config_refuse(error_out, GF_ERR_CONFIG, "rendezvous.rejoin: %s", wrong);
}

/* Does it lead to this host only? In a job of one rank no name is resolved, but localhost is the
 * same on every host. */
static bool leads_nowhere(const char *address)
{
    static const char here[] = "localhost:";
    return gf_ip_loopback(address) || (strncmp(address, here, sizeof here - 1) == 0);
}

/* A process that should be one of several ranks, and is not configured so, trains by itself without
 * any failure: this warns of it. */
static void alone_log(const struct gf_layout *layout)
{
    const struct gf_config *config = &layout->config;
    const struct gf_log log = {config->log, config->log_user};
    const char *address = config->rendezvous.address;
    char sign[GF_IDENTITY_SIGN_BYTES];
    if (config->job.world_max > 1) return;
    if (layout->world_unsaid && gf_identity_sign(sign))
        gf_log_line(&log, GF_LOG_WARN, "%s; this process is now rank 0 of 1 and works by itself",
                    sign);
    else if (!config->job.ignore_environment && gf_identity_alone(sign))
        gf_log_line(&log, GF_LOG_WARN, "%s; this process is rank 0 of 1 and works by itself", sign);
    else if (!leads_nowhere(address))
        gf_log_line(&log, GF_LOG_WARN,
                    "this process is rank 0 of 1 and works by itself, beside a rendezvous.address "
                    "for several (%.100s)%s",
                    address,
                    layout->world_unsaid ? ": nothing that a launcher sets was found; GF_RANK and "
                                           "GF_WORLD say who it is"
                                         : "");
}

/* A script's own RANK, or a launcher's that is not the one that was meant: this warns of it. */
static void over_log(const struct gf_layout *layout)
{
    const struct gf_log log = {layout->config.log, layout->config.log_user};
    char text[GF_IDENTITY_SIGN_BYTES];
    if (layout->config.job.ignore_environment || !gf_identity_over(text)) return;
    gf_log_line(&log, GF_LOG_WARN, "environment: %s; unset those that did not start this rank",
                text);
}

/* A slip in a variable's name would leave its value unread: this warns of it. */
static void variables_log(const struct gf_layout *layout)
{
    const struct gf_log log = {layout->config.log, layout->config.log_user};
    char text[GF_VARIABLE_TEXT_BYTES];
    uint32_t at = 0;
    if (layout->config.job.ignore_environment) return;
    for (int i = 0; (i < GF_VARIABLES_SAID_MAX) && gf_variable_odd(&at, text); i++)
        gf_log_line(&log, GF_LOG_WARN, "environment: %s", text);
}

/* Without an id of the job two jobs at one address could become one: this warns of it. */
static void nameless_log(const struct gf_layout *layout)
{
    const struct gf_config *config = &layout->config;
    const struct gf_log log = {config->log, config->log_user};
    if (!layout->nameless || (config->job.rank != 0)) return;
    gf_log_line(&log, GF_LOG_WARN,
                "rank 0: the launcher says no id of this job: another one that it starts with the "
                "same address (%.60s) could be met; GF_JOB, a number, the same on all ranks, tells "
                "them apart",
                config->rendezvous.address);
}

static gf_status name_find(struct gf_layout *layout, char *error_out)
{
    struct gf_config *config = &layout->config;
    const struct gf_log log = {config->log, config->log_user};
    const uint64_t patience_ns = config->rendezvous.join_timeout_ns;
    char *address = config->rendezvous.address;
    char numeric[GF_TEXT_MAX] = "";
    char why[256] = "this program resolves no names (config.resolve): a numeric IP:port is needed";
    gf_status status = GF_ERR_CONFIG;
    /* the port that is made of MASTER_PORT says nothing to a person */
    int shown =
        (strcmp(layout->address_name, "MASTER_ADDR") == 0) ? (int)strcspn(address, ":") : 100;
    /* the control channel refuses what is neither */
    if (!gf_address_named(address)) return GF_OK;
    if (config->resolve != NULL) status = config->resolve(address, 0, numeric, why);
    if (status == GF_AGAIN) {
        gf_log_line(&log, GF_LOG_WARN,
                    "rank %u: %s %.*s: %.120s; it is asked for again until "
                    "rendezvous.join_timeout (%.1f s)",
                    config->job.rank, layout->address_name, shown, address, why,
                    (double)patience_ns / 1e9);
        status = config->resolve(address, patience_ns, numeric, why);
    }
    if (status == GF_OK) {
        memcpy(address, numeric, GF_TEXT_MAX);
        return GF_OK;
    }
    return gf_config_refuse(error_out, (status == GF_AGAIN) ? GF_ERR_TIMEOUT : status,
                            "rank %u: %s %.*s: %.120s%s", config->job.rank, layout->address_name,
                            shown, address, why,
                            (status == GF_AGAIN) ? "; join_timeout is over" : "");
}

gf_status gf_layout_meet(struct gf_layout *layout, char *error_out)
{
    variables_log(layout);
    over_log(layout);
    alone_log(layout);
    nameless_log(layout);
    return (layout->config.job.world_max > 1) ? name_find(layout, error_out) : GF_OK;
}

gf_status gf_layout_resolve(struct gf_layout *layout, const char *address_given, char *error_out)
{
    gf_status status;
    if ((status = drivers_resolve(layout, error_out)) < 0) return status;
    if ((status = identity_resolve(layout, address_given, error_out)) < 0) return status;
    if ((status = address_check(layout, error_out)) < 0) return status;
    return rejoin_check(layout, error_out);
}
