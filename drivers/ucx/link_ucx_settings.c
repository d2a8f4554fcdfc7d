/* The configuration that UCX is given.
 *
 * UCP checks its own keys at once. It keeps keys of transports for later and answers UCS_OK, even
 * if no transport has such a key. ucp_init() then warns of that, and the open fails by the warning
 * (1.23 writes it to its debug log only). */
#include "drivers/ucx/link_ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Over ud a process that is stopped, or computes for long, answers late. UCX would give it up after
 * 30 s; how long to wait is exchange.timeout's. As UCX writes times. */
#define A_DAY "86400000000.00us"

static gf_status setting_apply(struct gf_ucx *ucx, ucp_config_t *config, const char *key,
                               const char *value, bool is_ucps)
{
    char missing[GF_TEXT_MAX];
    ucs_status_t status = ucp_config_modify(config, key, value);
    /* 1.23 refuses a key that belongs to no transport here; ucp_init() names the one that is
     * missing. */
    if ((status != UCS_OK) && !is_ucps &&
        gf_ucx_missing_text(ucx->setup.transports, missing, sizeof missing))
        return GF_OK;
    if (status != UCS_OK)
        return gf_ucx_fault(ucx, GF_ERR_CONFIG, GF_RANK_NONE, "ucp_config_modify", status,
                            "UCX %s does not take %s=%s", ucp_get_version_string(), key, value);
    return GF_OK;
}

gf_status gf_ucx_settings_apply(struct gf_ucx *ucx, ucp_config_t *config)
{
    const char *names = ucx->setup.transports;
    uint32_t devices = gf_ucx_list_count(ucx->devices, ',');
    char lanes[12];
    gf_status status = setting_apply(ucx, config, "TLS", names, true);
    (void)snprintf(lanes, sizeof lanes, "%u", devices);
    if ((status == GF_OK) && (ucx->devices[0] != '\0'))
        status = setting_apply(ucx, config, "NET_DEVICES", ucx->devices, true);
    /* UCX would leave a third one idle */
    if ((status == GF_OK) && (devices > 1))
        status = setting_apply(ucx, config, "MAX_RNDV_LANES", lanes, true);
    if ((status == GF_OK) && gf_ucx_any(names, GF_UCX_UD) && (getenv("UCX_UD_TIMEOUT") == NULL))
        status = setting_apply(ucx, config, "UD_TIMEOUT", A_DAY, false);
    return status;
}
