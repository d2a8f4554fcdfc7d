/* What UCX is told, and whether it heard.
 *
 * UCP keeps its own keys in the configuration, where they are read back. It keeps keys of
 * transports for later and says "OK" to them; each interface that it opens takes those that it
 * knows. So they are read back there: what an interface has not as it was set, and what no
 * interface has taken, is an error. */
#include "drivers/ucx/link_ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucs/config/parser.h>

/* Over tcp a message up to here is sent at once and whole. UCX would announce it and wait for the
 * peer's answer, which queues after the messages before it (at 1 Gbit/s a ring of 2 hosts took 1.7
 * of its time on a busy machine), or cut it into pieces whose table it allocates anew once in a
 * while. Sends ask for it with a flag (link_ucx.c), which makes the threshold for quick completion
 * count. */
#define AT_ONCE_BYTES_MAX ((size_t)1 << 20)
#define AT_ONCE_HEAD_BYTES 1024u /* of UCX, at most */

/* Over several devices UCX sends the pieces of a message in turn, so it is cut into pieces of so
 * much. */
#define PIECE_BYTES ((size_t)64 << 10)

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

struct setting {
    const char *transport; /* "tcp"; "ud" stands for ud_verbs and ud_mlx5; NULL: UCP itself */
    const char *key;
    char value[GF_TEXT_MAX]; /* "" leaves UCX's default */
};
#define SETTINGS 10u

static void add(struct setting **at, const char *transport, const char *key, const char *value)
{
    (*at)->transport = transport;
    (*at)->key = key;
    (void)snprintf((*at)->value, sizeof(*at)->value, "%s", value);
    (*at)++;
}

static void add_number(struct setting **at, const char *transport, const char *key, size_t number)
{
    char value[24];
    (void)snprintf(value, sizeof value, "%zu", number);
    add(at, transport, key, value);
}

/* In the same order at each call. Returns how many. */
static size_t settings_list(const struct gf_ucx *ucx, struct setting settings[SETTINGS])
{
    struct setting *at = settings;
    const size_t message_bytes = ucx->setup.message_bytes_max;
    const char *names = ucx->setup.transports;
    bool tcp = gf_ucx_any(names, GF_UCX_TCP);
    bool at_once = tcp && (message_bytes <= AT_ONCE_BYTES_MAX);
    uint32_t devices = gf_ucx_list_count(ucx->devices, ',');
    bool turns = at_once && (devices > 1);
    add(&at, NULL, "TLS", names);
    if (ucx->devices[0] != '\0') add(&at, NULL, "NET_DEVICES", ucx->devices);
    if (at_once) add_number(&at, NULL, "RNDV_SEND_NBR_THRESH", message_bytes + 1);
    if (turns) add_number(&at, NULL, "MAX_EAGER_LANES", devices);
    /* UCX would leave a third one idle */
    if (devices > 1) add_number(&at, NULL, "MAX_RNDV_LANES", devices);
    if (tcp && (ucx->setup.ports[0] != '\0')) add(&at, "tcp", "PORT_RANGE", ucx->setup.ports);
    if (at_once) {
        size_t segment_bytes = AT_ONCE_HEAD_BYTES + (turns ? PIECE_BYTES : message_bytes);
        add_number(&at, "tcp", "RX_SEG_SIZE", segment_bytes);
        add_number(&at, "tcp", "TX_SEG_SIZE", segment_bytes);
    }
    if (gf_ucx_any(names, GF_UCX_UD) && (getenv("UCX_UD_TIMEOUT") == NULL))
        add(&at, "ud", "UD_TIMEOUT", A_DAY);
    return (size_t)(at - settings);
}

gf_status gf_ucx_settings_apply(struct gf_ucx *ucx, ucp_config_t *config)
{
    struct setting settings[SETTINGS];
    size_t count = settings_list(ucx, settings);
    unsigned major;
    unsigned minor;
    unsigned release;
    ucp_get_version(&major, &minor, &release);
    for (size_t i = 0; i < count; i++) {
        char key[32];
        char found[2 * GF_TEXT_MAX] = "nothing";
        bool tcp = (settings[i].transport != NULL) && (strcmp(settings[i].transport, "tcp") == 0);
        /* Up to 1.16 tcp's names stand alone; from 1.17 on these are dropped with a warning, from
         * 1.20.1 on refused. */
        (void)snprintf(key, sizeof key, "%s%s",
                       (tcp && ((major > 1) || (minor >= 17))) ? "TCP_" : "", settings[i].key);
        ucs_status_t status = ucp_config_modify(config, key, settings[i].value);
        /* from 1.20.1 on also where no transport of its own has the key: which, says more */
        if (status != UCS_OK) {
            bool missing =
                (settings[i].transport != NULL) && gf_ucx_missing_text(ucx, found, sizeof found);
            return gf_ucx_fault(ucx, GF_ERR_CONFIG, GF_RANK_NONE, "ucp_config_modify", status,
                                "UCX %s does not take %s=%s: %s", ucp_get_version_string(), key,
                                settings[i].value, missing ? found : "it refuses");
        }
        if (settings[i].transport != NULL) continue;
        (void)ucp_key_get(config, key, found, sizeof found);
        if (!same_value(settings[i].value, found))
            return gf_ucx_fault(ucx, GF_ERR_CONFIG, GF_RANK_NONE, "ucp_config_modify", UCS_OK,
                                "UCX %s does not take %s=%s: it keeps %s", ucp_get_version_string(),
                                key, settings[i].value, found);
    }
    return GF_OK;
}

/* ---- of transports: what an interface has ---- */

static bool is_of(const char *transport, const struct setting *setting)
{
    size_t bytes = (setting->transport != NULL) ? strlen(setting->transport) : 0;
    return (bytes > 0) && (strncmp(transport, setting->transport, bytes) == 0) &&
           ((transport[bytes] == '\0') || (transport[bytes] == '_'));
}

void gf_ucx_settings_look(struct gf_ucx *ucx, const char *transport, void *config)
{
    struct setting settings[SETTINGS];
    size_t count = settings_list(ucx, settings);
    ucx->looked |= 1u << SETTINGS;
    for (size_t i = 0; i < count; i++) {
        char found[GF_TEXT_MAX] = "nothing";
        if (!is_of(transport, &settings[i])) continue;
        ucx->looked |= 1u << i;
        (void)uct_config_get(config, settings[i].key, found, sizeof found);
        if ((ucx->complaint[0] == '\0') && !same_value(settings[i].value, found))
            (void)snprintf(ucx->complaint, sizeof ucx->complaint,
                           "%.16s does not take %.16s=%.34s: it keeps %.34s", transport,
                           settings[i].key, settings[i].value, found);
    }
}

void gf_ucx_settings_looked(struct gf_ucx *ucx)
{
    struct setting settings[SETTINGS];
    size_t count = settings_list(ucx, settings);
    if ((ucx->looked >> SETTINGS) == 0) return; /* this file sees no interface (ucx_calls.c) */
    for (size_t i = 0; (i < count) && (ucx->complaint[0] == '\0'); i++)
        if ((settings[i].transport != NULL) && ((ucx->looked >> i) & 1u) == 0)
            (void)snprintf(ucx->complaint, sizeof ucx->complaint, "no interface takes %.16s=%.40s",
                           settings[i].key, settings[i].value);
}
