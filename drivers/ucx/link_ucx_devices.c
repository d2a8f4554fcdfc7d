/* Which network devices a rank uses: its group of "a,b;c" by its place in the node, or with "auto" the nearest of the
 * fastest, from what sysfs says. Near is, in this order: a long common way through the PCI bridges with the rank's GPU,
 * and the NUMA node that it runs on. Equally near ones are dealt out by the place in the node. */
#include "drivers/fnv.h"
#include "drivers/ucx/link_ucx.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- sysfs ---- */

#define PATH_BYTES 320u

/* The number at the start of a file; -1: there is none. */
static long number_read(const char *root, const char *way, const char *file)
{
    char path[PATH_BYTES], text[32] = "";
    char *rest = text;
    long number = -1;
    (void)snprintf(path, sizeof path, "%s/%s/%s", root, way, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    if (read(fd, text, sizeof text - 1) > 0) number = strtol(text, &rest, 10);
    (void)close(fd);
    return (rest != text) ? number : -1;
}

/* Where a link of sysfs leads, from "devices/" on; empty: nowhere. */
static void way_read(const char *root, const char *link, char *way_out)
{
    char path[PATH_BYTES], to[PATH_BYTES] = "";
    (void)snprintf(path, sizeof path, "%s/%s", root, link);
    (void)!readlink(path, to, sizeof to - 1);
    const char *from = strstr(to, "devices/");
    (void)snprintf(way_out, PATH_BYTES, "%s", (from != NULL) ? from : "");
}

static uint64_t common_parts(const char *a, const char *b)
{
    uint64_t parts = 0;
    for (; (*a != '\0') && (*a == *b); a++, b++) parts += (*a == '/');
    return parts;
}

uint64_t gf_ucx_device_rate(const char *root, const char *device, const char *near, int numa)
{
    size_t name_bytes = strcspn(device, ":");
    char link[96], way[PATH_BYTES], near_way[PATH_BYTES] = "";
    long speed, node;
    uint64_t physical, parts;
    if (name_bytes > 48) return 0;
    (void)snprintf(link, sizeof link, "class/infiniband/%.*s", (int)name_bytes, device);
    way_read(root, link, way);
    if (way[0] != '\0') { /* "100 Gb/sec (4X EDR)" */
        char file[32];
        const char *port = (device[name_bytes] == ':') ? device + name_bytes + 1 : "1";
        (void)snprintf(file, sizeof file, "ports/%.8s/rate", port);
        speed = number_read(root, link, file) * 1000;
    } else {
        (void)snprintf(link, sizeof link, "class/net/%.*s", (int)name_bytes, device);
        way_read(root, link, way);
        speed = number_read(root, link, "speed"); /* Mbit/s; none for loopback, and on many virtual machines */
    }
    if (way[0] == '\0') return 0;
    if (near[0] != '\0') {
        char pci[64];
        (void)snprintf(pci, sizeof pci, "bus/pci/devices/%.32s", near);
        way_read(root, pci, near_way);
    }
    node = number_read(root, link, "device/numa_node");
    physical = strstr(way, "/virtual/") == NULL;
    parts = common_parts(way, near_way);
    if (speed < 0) speed = 0;
    if (speed > 0xffffff) speed = 0xffffff;
    if (parts > 0xff) parts = 0xff;
    return (UINT64_C(1) << 62) | (physical << 40) | ((uint64_t)speed << 16) | (parts << 1) | (node < 0 || node == numa);
}

/* ---- the nearest ---- */

struct choice {
    const char *transports, *near;
    char seen[512]; /* names, comma-separated: a device has several transports */
    char best[512]; /* the equally good ones of them, as groups */
    uint64_t best_rate;
    int numa;
};

/* rc stands for rc_verbs and rc_mlx5, rc_v for the one and rc_x for the other, ib for all of a fabric. */
static bool transport_asked(const char *list, const char *transport)
{
    char stem[32];
    (void)snprintf(stem, sizeof stem, "%s", transport);
    if (gf_ucx_any(transport, GF_UCX_FABRIC) && gf_ucx_list_has(list, "ib")) return true;
    if (gf_ucx_list_has(list, stem)) return true;
    stem[strcspn(stem, "_")] = '\0';
    if (gf_ucx_list_has(list, stem)) return true;
    size_t used = strlen(stem);
    (void)snprintf(stem + used, sizeof stem - used, (strstr(transport, "_verbs") != NULL) ? "_v" : "_x");
    return gf_ucx_list_has(list, stem);
}

/* False: the list is full. */
static bool name_add(char *list, size_t list_bytes, char separator, const char *name)
{
    size_t used = strlen(list);
    if (used + strlen(name) + 2 > list_bytes) return false;
    if (used > 0) list[used++] = separator;
    memcpy(list + used, name, strlen(name) + 1);
    return true;
}

static void look(void *user, const char *transport, const char *device)
{
    struct choice *choice = user;
    uint64_t rate;
    if ((device[0] == '\0') || !transport_asked(choice->transports, transport) ||
        !gf_ucx_any(transport, GF_UCX_NETWORK) || gf_ucx_list_has(choice->seen, device) ||
        !name_add(choice->seen, sizeof choice->seen, ',', device)) return;
    rate = gf_ucx_device_rate("/sys", device, choice->near, choice->numa);
    if (rate < choice->best_rate) return;
    if (rate > choice->best_rate) choice->best[0] = '\0';
    choice->best_rate = rate;
    (void)name_add(choice->best, sizeof choice->best, ';', device);
}

void gf_ucx_devices_group(const char *asked, uint32_t local, char *devices_out)
{
    for (uint32_t wanted = local % gf_ucx_list_count(asked, ';'); wanted > 0; wanted--) asked = strchr(asked, ';') + 1;
    (void)snprintf(devices_out, GF_TEXT_MAX, "%.*s", (int)strcspn(asked, ";"), asked);
}

gf_status gf_ucx_nearest(struct gf_link *link)
{
    struct gf_ucx *ucx = gf_ucx_of(link);
    unsigned cpu = 0, numa = 0;
    struct choice choice = {.transports = ucx->transports, .near = ucx->setup.near};
    choice.numa = (syscall(SYS_getcpu, &cpu, &numa, NULL) == 0) ? (int)numa : -1;
    gf_ucx_resources(look, &choice);
    if (choice.best[0] == '\0')
        return gf_ucx_refuse(ucx, GF_ERR_CONFIG, "link.devices = auto: there is no device for transports \"%s\" here",
                             ucx->transports);
    gf_ucx_devices_group(choice.best, ucx->setup.local, ucx->devices);
    gf_log_line(&ucx->setup.log, GF_LOG_INFO, "link: devices auto: %s, number %u of %u equally near and fast",
                ucx->devices, ucx->setup.local % gf_ucx_list_count(choice.best, ';') + 1,
                gf_ucx_list_count(choice.best, ';'));
    return GF_OK;
}

gf_status gf_ucx_devices_choose(struct gf_ucx *ucx)
{
    bool leaves = gf_ucx_any(ucx->transports, GF_UCX_NETWORK);
    gf_status status = GF_OK;
    gf_ucx_devices_group(ucx->setup.devices, ucx->setup.local, ucx->devices);
    if (leaves && (strcmp(ucx->devices, "auto") == 0))
        status = gf_ucx_nearest(&ucx->link);
    ucx->link.device = leaves ? gf_fnv_bytes(GF_FNV_START, ucx->devices, strlen(ucx->devices)) : 0;
    return status;
}
