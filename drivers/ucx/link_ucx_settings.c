/* What UCX is told, and whether it heard.
 *
 * UCP keeps its own keys in the configuration, where they are read back; it keeps keys of transports
 * for later and says "OK" to them. */
#include "drivers/ucx/link_ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucs/config/parser.h>

/* Over ud a process that is stopped, or computes for long, answers late. UCX would give it up after
 * 30 s; how long to wait is exchange.timeout's. As UCX writes times. */
#define A_DAY "86400000000.00us"

/* ---- reading back ---- */

/* 263168 for "263168" and for "257K", as UCX writes sizes; false: no size. */
static bool size_read(const char *text, uint64_t *bytes_out)
{
    static const char suffixes[] = "KMGT";
    char *rest;
    uint64_t bytes = strtoull(text, &rest, 10);
    const char *suffix = strchr(suffixes, *rest);
    if (rest == text) return false;
    if ((*rest != '\0') && (suffix != NULL)) {
        for (const char *at = suffixes; at <= suffix; at++) bytes *= 1024;
        rest++;
    }
    *bytes_out = bytes;
    return *rest == '\0';
}

static bool same_value(const char *set, const char *found)
{
    uint64_t set_bytes = 0;
    uint64_t found_bytes = 0;
    if (strcmp(set, found) == 0) return true;
    return size_read(set, &set_bytes) && size_read(found, &found_bytes) &&
           (set_bytes == found_bytes);
}

static ucs_status_t ucp_key_get(ucp_config_t *config, const char *key, char *text_out,
                                size_t text_bytes)
{
    const ucs_config_global_list_entry_t *entry;
    ucs_list_for_each(entry, &ucs_config_global_list,
                      list) if (strcmp(entry->name, "UCP context") ==
                                0) return ucs_config_parser_get_value(config, entry->table, key,
                                                                      text_out, text_bytes);
    return UCS_ERR_NO_ELEM;
}

/* ---- all of them ---- */

static gf_status setting_apply(struct gf_ucx *ucx, ucp_config_t *config, const char *key,
                               const char *value, bool is_ucps)
{
    char found[2 * GF_TEXT_MAX] = "nothing";
    ucs_status_t status = ucp_config_modify(config, key, value);
    /* 1.23 refuses a key that belongs to no transport here: ucp_init() says which one is missing. */
    if ((status != UCS_OK) && !is_ucps &&
        gf_ucx_missing_text(ucx->setup.transports, found, sizeof found))
        return GF_OK;
    if (status != UCS_OK)
        return gf_ucx_fault(ucx, GF_ERR_CONFIG, GF_RANK_NONE, "ucp_config_modify", status,
                            "UCX %s does not take %s=%s", ucp_get_version_string(), key, value);
    if (!is_ucps) return GF_OK;
    (void)ucp_key_get(config, key, found, sizeof found);
    if (same_value(value, found)) return GF_OK;
    return gf_ucx_fault(ucx, GF_ERR_CONFIG, GF_RANK_NONE, "ucp_config_modify", UCS_OK,
                        "UCX %s does not take %s=%s: it keeps %s", ucp_get_version_string(), key,
                        value, found);
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
