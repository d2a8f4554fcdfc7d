/* Would UCX open a network here? link.driver = auto asks this before the job uses UCX. Yes, if the
 * configuration names a fabric, or if this host has an active InfiniBand port and this program has
 * UCX's component for it. RoCE counts as Ethernet, and is used where it is named. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "drivers/devices.h"
#include "drivers/ucx/link_ucx.h"

#define VERBS_ROOT "/sys/class/infiniband"

/* The first line of a file of sysfs is one that begins with `text`. */
static bool file_begins(const char *directory, const char *name, const char *text)
{
    char path[512];
    char line[64] = "";
    FILE *file;
    bool same;
    (void)snprintf(path, sizeof path, "%.400s/%.100s", directory, name);
    file = fopen(path, "re");
    if (file == NULL) return false;
    same = (fgets(line, sizeof line, file) != NULL) && (strncmp(line, text, strlen(text)) == 0);
    (void)fclose(file);
    return same;
}

/* Any entry of the directory; those that begin with a dot are none. */
static bool any_entry(const char *directory, bool (*is_it)(const char *path))
{
    DIR *open = opendir(directory);
    const struct dirent *entry;
    bool found = false;
    if (open == NULL) return false;
    while (!found && ((entry = readdir(open)) != NULL)) {
        char path[512];
        if (entry->d_name[0] == '.') continue;
        (void)snprintf(path, sizeof path, "%.400s/%.100s", directory, entry->d_name);
        found = is_it(path);
    }
    (void)closedir(open);
    return found;
}

static bool port_is_active(const char *port)
{
    return file_begins(port, "link_layer", "InfiniBand") && file_begins(port, "state", "4:");
}

static bool device_is_active(const char *device)
{
    char ports[512];
    (void)snprintf(ports, sizeof ports, "%.400s/ports", device);
    return any_entry(ports, port_is_active);
}

/* "mlx5_0:1", or a name that sysfs has among verbs devices. */
static bool names_verbs(const struct gf_link_setup *setup)
{
    char devices[GF_TEXT_MAX];
    char name[GF_TEXT_MAX];
    const char *list = devices;
    gf_devices_group(setup->devices, setup->local, devices);
    while (gf_devices_next(&list, name, sizeof name)) {
        char path[sizeof VERBS_ROOT + 1 + sizeof name];
        (void)snprintf(path, sizeof path, VERBS_ROOT "/%.*s", (int)strcspn(name, ":"), name);
        if (access(path, F_OK) == 0) return true;
    }
    return false;
}

gf_fabric gf_ucx_probe(const struct gf_link_setup *setup, char *text_out, size_t text_bytes)
{
    bool named = gf_ucx_any(setup->transports, GF_UCX_FABRIC) || names_verbs(setup);
    if ((setup->key_file != NULL) && (setup->key_file[0] != '\0') && !setup->trusted_fabric) {
        (void)snprintf(text_out, text_bytes,
                       "there is a key_file, which nobody proves over a fabric "
                       "(link.trusted_fabric = false)");
        return GF_FABRIC_NONE;
    }
    if (named) return GF_FABRIC_FOUND;
    if (!any_entry(VERBS_ROOT, device_is_active)) {
        (void)snprintf(text_out, text_bytes, "no InfiniBand port is active here");
        return GF_FABRIC_NONE;
    }
    if (!gf_ucx_has_infiniband(text_out, text_bytes)) return GF_FABRIC_UNBUILT;
    return gf_ucx_missing_text("ib", text_out, text_bytes) ? GF_FABRIC_NONE : GF_FABRIC_FOUND;
}
