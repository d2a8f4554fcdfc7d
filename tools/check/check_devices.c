/* Which network devices the ranks of a node should use, for link.devices: from what the kernel's
 * sysfs says, without UCX and without CUDA. A real card counts before an interface of software,
 * then the faster one, then the one nearer to the rank's GPU: first by the way through the PCI
 * bridges that both have in common, then by the NUMA node. Devices that are equally good are dealt
 * out by local rank. GPU p is the p-th by PCI address: CUDA counts GPUs of one model in
 * this order. */
#include <dirent.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drivers/gpu.h"
#include "drivers/networks.h"
#include "tools/check/check_preflight.h"

#define PATH_BYTES 512u
#define NAME_BYTES 64u
#define NAMES_BYTES 4096u
#define DEVICES_MAX 64u
#define GPUS_MAX 64u
#define PLACES_MAX 256u

/* ---- sysfs ---- */

/* The first line of a file; false: there is none. */
static bool line_read(const char *path, char *line_out, size_t line_bytes)
{
    FILE *file = fopen(path, "r");
    bool read;
    if (file == NULL) return false;
    read = fgets(line_out, (int)line_bytes, file) != NULL;
    (void)fclose(file);
    if (read) line_out[strcspn(line_out, "\n")] = '\0';
    return read;
}

/* The number at the start of a file; -1: there is none. */
static long number_read(const char *folder, const char *file)
{
    char path[PATH_BYTES + NAME_BYTES];
    char line[64];
    char *rest = line;
    long number;
    (void)snprintf(path, sizeof path, "%s/%s", folder, file);
    if (!line_read(path, line, sizeof line)) return -1;
    number = strtol(line, &rest, 10);
    return (rest != line) ? number : -1;
}

/* Where a link leads, from "devices/" on; empty: nowhere. */
static void way_read(const char *link, char way_out[PATH_BYTES])
{
    char to[PATH_BYTES] = "";
    const char *from;
    (void)!readlink(link, to, sizeof to - 1);
    from = strstr(to, "devices/");
    (void)snprintf(way_out, PATH_BYTES, "%s", (from != NULL) ? from : "");
}

static long common_parts(const char *a, const char *b)
{
    long parts = 0;
    for (; (*a != '\0') && (*a == *b); a++, b++) parts += (*a == '/');
    return parts;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

struct gpus {
    uint32_t count;
    char address[GPUS_MAX][NAME_BYTES]; /* "0000:3b:00.0" */
};

/* Display controllers (class 0x03....) of NVIDIA (vendor 0x10de). */
static void gpus_read(const char *root, struct gpus *gpus_out)
{
    char folder[PATH_BYTES];
    DIR *all;
    gpus_out->count = 0;
    (void)snprintf(folder, sizeof folder, "%s/bus/pci/devices", root);
    all = opendir(folder);
    if (all == NULL) return;
    for (const struct dirent *at; ((at = readdir(all)) != NULL) && (gpus_out->count < GPUS_MAX);) {
        char path[PATH_BYTES + 2 * NAME_BYTES];
        char vendor[16] = "";
        char class[16] = "";
        (void)snprintf(path, sizeof path, "%s/%.32s/vendor", folder, at->d_name);
        (void)line_read(path, vendor, sizeof vendor);
        (void)snprintf(path, sizeof path, "%s/%.32s/class", folder, at->d_name);
        (void)line_read(path, class, sizeof class);
        if ((strcmp(vendor, "0x10de") != 0) || (strncmp(class, "0x03", 4) != 0)) continue;
        (void)snprintf(gpus_out->address[gpus_out->count++], NAME_BYTES, "%.32s", at->d_name);
    }
    (void)closedir(all);
    qsort(gpus_out->address, gpus_out->count, NAME_BYTES, by_name);
}

/* ---- how good a device is for a rank ---- */

/* The first of these in which two devices differ decides. */
enum { REAL, MBIT_PER_S, COMMON_WAY, SAME_NUMA_NODE, QUALITIES };

/* False: there is no such device. gpu: its PCI address; NULL: the rank has none. */
static bool quality_read(const char *root, const char *device, const char *gpu,
                         long quality_out[QUALITIES])
{
    int name_bytes = (int)strcspn(device, ":");
    char link[PATH_BYTES];
    char way[PATH_BYTES];
    char gpu_way[PATH_BYTES] = "";
    long mbit_per_s;
    long node;
    long gpu_node = -1;
    if (gpu != NULL) {
        (void)snprintf(link, sizeof link, "%.256s/bus/pci/devices/%s", root, gpu);
        way_read(link, gpu_way);
        gpu_node = number_read(link, "numa_node");
    }
    (void)snprintf(link, sizeof link, "%.256s/class/infiniband/%.*s", root, name_bytes, device);
    way_read(link, way);
    if (way[0] != '\0') {
        char file[NAME_BYTES];
        const char *port = (device[name_bytes] == ':') ? device + name_bytes + 1 : "1";
        (void)snprintf(file, sizeof file, "ports/%.8s/rate", port);
        mbit_per_s = number_read(link, file) * 1000; /* "100 Gb/sec (4X EDR)" */
    } else {
        (void)snprintf(link, sizeof link, "%.256s/class/net/%.*s", root, name_bytes, device);
        way_read(link, way);
        mbit_per_s = number_read(link, "speed"); /* none for loopback and many virtual machines */
    }
    if (way[0] == '\0') return false;
    node = number_read(link, "device/numa_node");
    quality_out[REAL] = strstr(way, "/virtual/") == NULL;
    quality_out[MBIT_PER_S] = (mbit_per_s > 0) ? mbit_per_s : 0;
    quality_out[COMMON_WAY] = common_parts(way, gpu_way);
    quality_out[SAME_NUMA_NODE] = (node < 0) || (node == gpu_node);
    return true;
}

static int quality_compare(const long *a, const long *b)
{
    for (int i = 0; i < QUALITIES; i++)
        if (a[i] != b[i]) return (a[i] < b[i]) ? -1 : 1;
    return 0;
}

/* Of equally good ones the rank at this place takes one; empty: none of the names is there. */
static void best_of(const char *root, const char *names, const char *gpu, uint32_t local,
                    char best_out[NAME_BYTES])
{
    static char best[DEVICES_MAX][NAME_BYTES];
    long best_quality[QUALITIES] = {-1};
    uint32_t best_count = 0;
    char name[NAME_BYTES];
    while (check_item_next(&names, name, sizeof name)) {
        long quality[QUALITIES];
        int compared;
        if (!quality_read(root, name, gpu, quality)) continue;
        compared = quality_compare(quality, best_quality);
        if (compared > 0) {
            best_count = 0;
            memcpy(best_quality, quality, sizeof quality);
        }
        if ((compared >= 0) && (best_count < DEVICES_MAX))
            memcpy(best[best_count++], name, sizeof name);
    }
    best_out[0] = '\0';
    if (best_count > 0) memcpy(best_out, best[local % best_count], NAME_BYTES);
}

/* ---- the line of a node ---- */

/* Places take groups in turn, so what repeats itself is said once, after how many places. */
static uint32_t period(char of_local[][NAME_BYTES], uint32_t locals)
{
    for (uint32_t length = 1; length < locals; length++) {
        uint32_t at = length;
        while ((at < locals) && (strcmp(of_local[at], of_local[at % length]) == 0)) at++;
        if (at == locals) return length;
    }
    return locals;
}

bool check_devices_text(const char *root, const char *names, bool with_gpus, uint32_t locals,
                        char text_out[GF_TEXT_MAX])
{
    static char of_local[PLACES_MAX][NAME_BYTES];
    static struct gpus gpus;
    size_t used = 0;
    uint32_t groups;
    text_out[0] = '\0';
    gpus.count = 0;
    if (with_gpus) gpus_read(root, &gpus);
    if (locals > PLACES_MAX) locals = PLACES_MAX;
    for (uint32_t local = 0; local < locals; local++) {
        const char *gpu = (gpus.count > 0) ? gpus.address[local % gpus.count] : NULL;
        best_of(root, names, gpu, local, of_local[local]);
        if (of_local[local][0] == '\0') return true;
    }
    groups = period(of_local, locals);
    for (uint32_t local = 0; local < groups; local++) {
        const char *separator = (local > 0) ? ";" : "";
        used += (size_t)snprintf(text_out + used, GF_TEXT_MAX - used, "%s%s", separator,
                                 of_local[local]);
        if (used >= GF_TEXT_MAX) return false;
    }
    return true;
}

/* ---- what is there ---- */

static void name_add(char *names, const char *name)
{
    size_t used = strlen(names);
    if (check_list_has(names, name) || (used + strlen(name) + 2 > NAMES_BYTES)) return;
    (void)snprintf(names + used, NAMES_BYTES - used, "%s%s", (used > 0) ? "," : "", name);
}

static bool has_address(const struct ifaddrs *all, const char *name)
{
    for (const struct ifaddrs *at = all; at != NULL; at = at->ifa_next) {
        bool up = (at->ifa_flags & IFF_UP) && (at->ifa_flags & IFF_RUNNING);
        if (!up || (at->ifa_addr == NULL) || (strcmp(at->ifa_name, name) != 0)) continue;
        if (at->ifa_addr->sa_family == AF_INET) return true;
        if (at->ifa_addr->sa_family == AF_INET6) return true;
    }
    return false;
}

/* The names in a folder of sysfs, in their order; returns how many. */
static int names_read(const char *root, const char *folder, struct dirent ***names_out)
{
    char path[PATH_BYTES];
    int count;
    (void)snprintf(path, sizeof path, "%s/%s", root, folder);
    *names_out = NULL;
    count = scandir(path, names_out, NULL, alphasort);
    return (count > 0) ? count : 0;
}

/* Another of its network is among the names, and both answer for both addresses: the kernel may
 * send by one of them alone. */
static bool adds_nothing(const char *names, const char *name)
{
    struct gf_network_pair pair;
    return gf_network_shared(name, &pair) && check_list_has(names, pair.other) &&
           !gf_network_answers_alone(name);
}

/* Interfaces that are up and have an address. */
static void interfaces_add(const char *root, char *names)
{
    struct ifaddrs *all = NULL;
    struct dirent **interfaces;
    int count = names_read(root, "class/net", &interfaces);
    if (getifaddrs(&all) != 0) all = NULL;
    for (int i = 0; i < count; i++) {
        if (has_address(all, interfaces[i]->d_name) && !adds_nothing(names, interfaces[i]->d_name))
            name_add(names, interfaces[i]->d_name);
        free(interfaces[i]);
    }
    free(interfaces);
    if (all != NULL) freeifaddrs(all);
}

/* Active ports of InfiniBand and RoCE. */
static void fabric_add(const char *root, char *names)
{
    struct dirent **cards;
    int count = names_read(root, "class/infiniband", &cards);
    for (int c = 0; c < count; c++) {
        for (int port = 1; port <= 8; port++) {
            char path[PATH_BYTES + 2 * NAME_BYTES];
            char state[32];
            char name[NAME_BYTES];
            (void)snprintf(path, sizeof path, "%s/class/infiniband/%.32s/ports/%d/state", root,
                           cards[c]->d_name, port);
            if (!line_read(path, state, sizeof state)) continue;
            if (strstr(state, "ACTIVE") == NULL) continue;
            (void)snprintf(name, sizeof name, "%.32s:%d", cards[c]->d_name, port);
            name_add(names, name);
        }
        free(cards[c]);
    }
    free(cards);
}

/* What the job's link could use here. */
static void names_list(const char *root, bool fabric, char names_out[NAMES_BYTES])
{
    names_out[0] = '\0';
    if (fabric)
        fabric_add(root, names_out);
    else
        interfaces_add(root, names_out);
}

void check_devices(struct check_report *report, const struct check_job *job)
{
    static char names[NAMES_BYTES];
    bool with_gpus = gf_gpu_is_device(job->config.device.driver);
    char text[GF_TEXT_MAX];
    names_list("/sys", job->fabric, names);
    if (!check_devices_text("/sys", names, with_gpus, job->local_count, text))
        check_say(report, "devices", CHECK_SKIP, NULL,
                  "link.devices has no room for the nearest devices of the %u ranks of this node",
                  job->local_count);
    else if (text[0] == '\0')
        check_say(report, "devices", CHECK_SKIP, NULL, "sysfs names no device for this link");
    else
        check_say(report, "devices", CHECK_OK, NULL,
                  "the fastest and nearest of this node: link.devices = \"%s\"", text);
}
