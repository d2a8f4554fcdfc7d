/* What UCX is told, and whether it heard.
 *
 * ucp_config_modify() keeps keys of transports for later and says "OK" to them. Their names changed: tcp's PORT_RANGE,
 * RX_SEG_SIZE and TX_SEG_SIZE stand alone up to UCX 1.16 and have TCP_ in front from 1.17 on; the other form is dropped
 * with a warning, and refused from 1.20.1 on. So this UCX's tcp transport is asked: each name is set in a copy of its
 * settings by the call that UCP itself makes when it opens a transport, and read back. What cannot be read back as it
 * was set is an error. So is a key that UCX warns to have dropped (link_ucx_open.c), and a port outside of PORT_RANGE. */
#include "drivers/ucx/link_ucx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ucs/config/parser.h>

/* Over tcp a message up to here is sent at once and whole. UCX would announce it and wait for the peer's answer, which
 * queues after the messages before it (at 1 Gbit/s a ring of 2 hosts took 1.7 of its time on a busy machine), or cut it
 * into pieces whose table it allocates anew once in a while. Sends over tcp ask for it with a flag (link_ucx.c), which
 * makes the threshold for quick completion count; where memory is shared UCX's choice stays. */
#define AT_ONCE_BYTES_MAX ((size_t)1 << 20)
#define AT_ONCE_HEAD_BYTES 1024u /* of UCX, at most */

/* Over several devices UCX sends the pieces of a message in turn, so it is cut into pieces of so much. */
#define PIECE_BYTES ((size_t)64 << 10)

/* Over ud a process that is stopped, or computes for long, answers late. UCX would give it up after 30 s; how long to
 * wait is exchange.timeout's. As UCX writes times. */
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
    uint64_t set_bytes = 0, found_bytes = 0;
    if (strcmp(set, found) == 0) return true;
    return size_read(set, &set_bytes) && size_read(found, &found_bytes) && (set_bytes == found_bytes);
}

static gf_status not_taken(struct gf_ucx *ucx, const char *key, const char *value, ucs_status_t status,
                           const char *found)
{
    return gf_ucx_fault(ucx, GF_ERR_CONFIG, GF_RANK_NONE, "ucp_config_modify", status,
                        "UCX %s does not take %s=%s: it %s%s", ucp_get_version_string(), key, value,
                        (found != NULL) ? "keeps " : "refuses", (found != NULL) ? found : "");
}

/* ---- keys of UCP ---- */

static ucs_status_t ucp_key_get(ucp_config_t *config, const char *key, char *text_out, size_t text_bytes)
{
    const ucs_config_global_list_entry_t *entry;
    ucs_list_for_each(entry, &ucs_config_global_list, list)
        if (strcmp(entry->name, "UCP context") == 0)
            return ucs_config_parser_get_value(config, entry->table, key, text_out, text_bytes);
    return UCS_ERR_NO_ELEM;
}

static gf_status ucp_key_set(struct gf_ucx *ucx, ucp_config_t *config, const char *key, const char *value)
{
    char found[2 * GF_TEXT_MAX] = "nothing";
    ucs_status_t status = ucp_config_modify(config, key, value);
    if (status != UCS_OK) return not_taken(ucx, key, value, status, NULL);
    (void)ucp_key_get(config, key, found, sizeof found);
    return same_value(value, found) ? GF_OK : not_taken(ucx, key, value, UCS_OK, found);
}

/* ---- keys of tcp and ud ---- */

/* A transport's settings as UCP would read them from the environment; config NULL where there is no such transport. */
struct copy {
    const char *component, *transport;
    uct_iface_config_t *config;
};

static bool settings_take(void *user, const char *component, uct_md_h domain)
{
    struct copy *copy = user;
    if ((strcmp(component, copy->component) != 0) || (domain == NULL)) return true;
    if (uct_md_iface_config_read(domain, copy->transport, NULL, NULL, &copy->config) != UCS_OK) copy->config = NULL;
    return false;
}

static gf_status transport_key_set(struct gf_ucx *ucx, ucp_config_t *config, const struct copy *copy, const char *key,
                                   const char *value)
{
    static const char *const prefixes[] = {"TCP_", ""};
    char name[48], found[GF_TEXT_MAX] = "nothing";
    ucs_status_t status = UCS_ERR_NO_ELEM;
    for (size_t i = 0; (i < sizeof prefixes / sizeof prefixes[0]) && (status == UCS_ERR_NO_ELEM); i++) {
        (void)snprintf(name, sizeof name, "%s%s", prefixes[i], key);
        status = uct_config_modify(copy->config, name, value);
    }
    if (status == UCS_OK) status = uct_config_get(copy->config, key, found, sizeof found);
    if (status != UCS_OK) return not_taken(ucx, name, value, status, NULL);
    if (!same_value(value, found)) return not_taken(ucx, name, value, UCS_OK, found);
    status = ucp_config_modify(config, name, value);
    return (status == UCS_OK) ? GF_OK : not_taken(ucx, name, value, status, NULL);
}

/* ---- all of them ---- */

gf_status gf_ucx_settings_apply(struct gf_ucx *ucx, ucp_config_t *config)
{
    bool tcp = gf_ucx_any(ucx->transports, GF_UCX_TCP);
    bool at_once = tcp && (ucx->setup.message_bytes_max <= AT_ONCE_BYTES_MAX);
    uint32_t devices = gf_ucx_list_count(ucx->devices, ',');
    bool turns = at_once && (devices > 1);
    bool late = gf_ucx_any(ucx->transports, GF_UCX_UD) && (getenv("UCX_UD_TIMEOUT") == NULL);
    struct copy tcp_copy = {.component = "tcp", .transport = "tcp"};
    struct copy ud_copy = {.component = "ib", .transport = "ud_verbs"};
    char threshold[32], segment[32], lanes[32];
    bool shared = gf_ucx_list_has(ucx->transports, "posix"), sysv = gf_ucx_list_has(ucx->transports, "sysv");
    const struct {
        const char *key, *value; /* "" leaves UCX's default */
        const struct copy *of; /* NULL: of UCP */
    } settings[] = {
        {"TLS", ucx->transports, NULL},
        {"NET_DEVICES", gf_ucx_any(ucx->transports, GF_UCX_NETWORK) ? ucx->devices : "", NULL},
        {"RNDV_SEND_NBR_THRESH", at_once ? threshold : "", NULL},
        {"MAX_EAGER_LANES", turns ? lanes : "", NULL},
        /* No fall-back from memory that peers can map to memory that they cannot. */
        {"ALLOC_PRIO", shared ? "md:posix" : sysv ? "md:sysv" : ucx->setup.huge_pages ? "huge,thp,mmap" : "mmap", NULL},
        {"PORT_RANGE", tcp ? ucx->setup.ports : "", &tcp_copy},
        {"RX_SEG_SIZE", at_once ? segment : "", &tcp_copy},
        {"TX_SEG_SIZE", at_once ? segment : "", &tcp_copy},
        {"UD_TIMEOUT", late ? A_DAY : "", &ud_copy},
    };
    gf_status status = GF_OK;
    (void)snprintf(threshold, sizeof threshold, "%zu", ucx->setup.message_bytes_max + 1);
    (void)snprintf(segment, sizeof segment, "%zu",
                   AT_ONCE_HEAD_BYTES + (turns ? PIECE_BYTES : ucx->setup.message_bytes_max));
    (void)snprintf(lanes, sizeof lanes, "%u", devices);
    if (tcp) gf_ucx_domains_visit(settings_take, &tcp_copy);
    if (late) gf_ucx_domains_visit(settings_take, &ud_copy);
    for (size_t i = 0; (i < sizeof settings / sizeof settings[0]) && (status == GF_OK); i++) {
        if (settings[i].value[0] == '\0') continue;
        if (settings[i].of == NULL) status = ucp_key_set(ucx, config, settings[i].key, settings[i].value);
        else if (settings[i].of->config != NULL)
            status = transport_key_set(ucx, config, settings[i].of, settings[i].key, settings[i].value);
    }
    if (tcp_copy.config != NULL) uct_config_release(tcp_copy.config);
    if (ud_copy.config != NULL) uct_config_release(ud_copy.config);
    return status;
}

/* ---- the ports ---- */

void gf_ucx_listeners_look(struct gf_ucx_listeners *listeners_out)
{
    for (int fd = 0; fd < (int)sizeof listeners_out->there; fd++) listeners_out->there[fd] = gf_fd_listens(fd);
}

gf_status gf_ucx_ports_check(struct gf_ucx *ucx, const struct gf_ucx_listeners *before)
{
    unsigned first = 0, last = 0, outside = 0;
    char found[32];
    if (!gf_ucx_any(ucx->transports, GF_UCX_TCP) || !gf_ports_parse(ucx->setup.ports, &first, &last) || (first == 0))
        return GF_OK;
    for (int fd = 0; fd < (int)sizeof before->there; fd++) {
        struct gf_place at = {0};
        bool is_new = !before->there[fd] && gf_fd_listens(fd) && gf_place_of_fd(fd, false, &at);
        unsigned port = is_new ? ntohs(at.port) : 0;
        if ((port >= first) && (port <= last)) return GF_OK; /* others may be of other threads of this process */
        if (port != 0) outside = port;
    }
    if (outside == 0) return GF_OK; /* nothing listens */
    (void)snprintf(found, sizeof found, "port %u", outside);
    return not_taken(ucx, "PORT_RANGE", ucx->setup.ports, UCS_OK, found);
}
