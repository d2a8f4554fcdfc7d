#include "drivers/devices.h"

#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>

#include "drivers/base/fault.h"

static uint32_t groups_of(const char *asked)
{
    uint32_t groups = 1;
    for (; *asked != '\0'; asked++) groups += (*asked == ';');
    return groups;
}

void gf_devices_group(const char *asked, uint32_t local, char *devices_out)
{
    for (uint32_t wanted = local % groups_of(asked); wanted > 0; wanted--)
        asked = strchr(asked, ';') + 1;
    (void)snprintf(devices_out, GF_TEXT_MAX, "%.*s", (int)strcspn(asked, ";"), asked);
}

uint32_t gf_devices_most(const char *asked)
{
    uint32_t most = 1;
    uint32_t count = 1;
    for (; *asked != '\0'; asked++) {
        count = (*asked == ';') ? 1 : count + (*asked == ',');
        if (count > most) most = count;
    }
    return most;
}

bool gf_devices_next(const char **list, char *name_out, size_t name_bytes)
{
    size_t bytes;
    *list += strspn(*list, ", ");
    bytes = strcspn(*list, ", ");
    (void)snprintf(name_out, name_bytes, "%.*s", (int)bytes, *list);
    *list += bytes;
    return bytes > 0;
}

bool gf_device_addr(const char *name, uint16_t family, struct gf_addr *addr_out, char *text_out,
                    size_t text_bytes)
{
    const char *version = (family == AF_INET) ? "IPv4" : "IPv6";
    struct ifaddrs *all = NULL;
    size_t used;
    bool found = false;
    if (getifaddrs(&all) != 0) {
        (void)snprintf(text_out, text_bytes, "device \"%s\": getifaddrs failed: %s", name,
                       strerror(errno));
        return false;
    }
    (void)snprintf(text_out, text_bytes,
                   "device \"%s\" of link.devices is no interface with an %s address here; there "
                   "are:",
                   name, version);
    used = strlen(text_out);
    for (const struct ifaddrs *one = all; (one != NULL) && !found; one = one->ifa_next) {
        struct gf_addr addr;
        if ((one->ifa_addr == NULL) || (one->ifa_addr->sa_family != family) ||
            !gf_addr_of(one->ifa_addr, &addr))
            continue;
        addr.port = 0;
        found = strcmp(one->ifa_name, name) == 0;
        if (found) *addr_out = addr;
        (void)snprintf(text_out + used, text_bytes - used, " %s", one->ifa_name);
        used += strlen(text_out + used);
    }
    freeifaddrs(all);
    return found;
}

/* Of a mask as an address. */
static uint32_t mask_bits(const struct gf_addr *mask)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < sizeof mask->ip; i++) bits += (uint32_t)__builtin_popcount(mask->ip[i]);
    return bits;
}

void gf_device_of(const struct gf_addr *addr, struct gf_device_at *device_out)
{
    struct ifaddrs *all = NULL;
    memset(device_out, 0, sizeof *device_out);
    if (getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        struct gf_addr at;
        struct gf_addr mask;
        if ((one->ifa_addr == NULL) || (one->ifa_addr->sa_family != addr->family) ||
            !gf_addr_of(one->ifa_addr, &at) || (memcmp(at.ip, addr->ip, sizeof at.ip) != 0))
            continue;
        (void)snprintf(device_out->name, sizeof device_out->name, "%s", one->ifa_name);
        if ((one->ifa_netmask != NULL) && gf_addr_of(one->ifa_netmask, &mask))
            device_out->network_bits = mask_bits(&mask);
        break;
    }
    freeifaddrs(all);
}

void gf_devices_addrs(const char *asked, uint32_t local, uint16_t family, struct gf_addr *addrs_out,
                      uint32_t addrs_max)
{
    char group[GF_TEXT_MAX];
    char name[GF_TEXT_MAX];
    char text[200];
    const char *list = group;
    uint32_t count = 0;
    gf_devices_group(asked, local, group);
    memset(addrs_out, 0, addrs_max * sizeof *addrs_out);
    while ((count < addrs_max) && gf_devices_next(&list, name, sizeof name))
        if (gf_device_addr(name, family, &addrs_out[count], text, sizeof text)) count++;
}
