/* See networks.h. */
#include "drivers/networks.h"

#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/base/lines.h"

/* Up, and no loopback; its address of that family, without a port, and the mask. */
static bool device_has(const struct ifaddrs *one, uint16_t family, struct gf_addr *ip_out,
                       struct gf_addr *mask_out)
{
    const unsigned wanted = IFF_UP | IFF_RUNNING;
    if ((one->ifa_addr == NULL) || (one->ifa_netmask == NULL)) return false;
    if ((one->ifa_addr->sa_family != family) || (one->ifa_flags & IFF_LOOPBACK)) return false;
    if ((one->ifa_flags & wanted) != wanted) return false;
    if (!gf_addr_of(one->ifa_addr, ip_out) || !gf_addr_of(one->ifa_netmask, mask_out)) return false;
    /* each device has an address of fe80::/64 */
    return !gf_addr_is_link_local(ip_out);
}

static bool on_network(const unsigned char *a, const unsigned char *b, const unsigned char *mask)
{
    for (size_t i = 0; i < sizeof((struct gf_addr *)0)->ip; i++)
        if (((a[i] ^ b[i]) & mask[i]) != 0) return false;
    return true;
}

static bool pair_find(const struct ifaddrs *all, const struct ifaddrs *own,
                      const struct gf_addr *ip, struct gf_network_pair *pair_out)
{
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        struct gf_addr other;
        struct gf_addr mask;
        if ((strcmp(one->ifa_name, own->ifa_name) == 0) ||
            !device_has(one, ip->family, &other, &mask) || !on_network(other.ip, ip->ip, mask.ip))
            continue;
        (void)snprintf(pair_out->name, IF_NAMESIZE, "%s", own->ifa_name);
        (void)snprintf(pair_out->other, IF_NAMESIZE, "%s", one->ifa_name);
        pair_out->index = if_nametoindex(own->ifa_name);
        return pair_out->index != 0;
    }
    return false;
}

bool gf_network_pair(const struct gf_addr *own, const struct gf_addr *to,
                     struct gf_network_pair *pair_out)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0) return false;
    for (const struct ifaddrs *one = all; (one != NULL) && !found; one = one->ifa_next) {
        struct gf_addr ip;
        struct gf_addr mask;
        if (!device_has(one, own->family, &ip, &mask) ||
            (memcmp(ip.ip, own->ip, sizeof ip.ip) != 0))
            continue;
        found = (to->family == own->family) && on_network(ip.ip, to->ip, mask.ip) &&
                pair_find(all, one, &ip, pair_out);
    }
    freeifaddrs(all);
    return found;
}

bool gf_network_shared(const char *name, struct gf_network_pair *pair_out)
{
    struct ifaddrs *all = NULL;
    bool found = false;
    if (getifaddrs(&all) != 0) return false;
    for (const struct ifaddrs *one = all; (one != NULL) && !found; one = one->ifa_next) {
        struct gf_addr ip;
        struct gf_addr mask;
        if (strcmp(one->ifa_name, name) != 0) continue;
        found = (device_has(one, AF_INET, &ip, &mask) || device_has(one, AF_INET6, &ip, &mask)) &&
                pair_find(all, one, &ip, pair_out);
    }
    freeifaddrs(all);
    return found;
}

static bool number_take(void *arg, char *line)
{
    *(long *)arg = strtol(line, NULL, 10);
    return false;
}

/* The kernel takes the larger of the two. */
bool gf_network_answers_alone(const char *name)
{
    const char *const names[] = {"all", name};
    for (int i = 0; i < 2; i++) {
        char path[96];
        long ignores = 0;
        (void)snprintf(path, sizeof path, "/proc/sys/net/ipv4/conf/%.40s/arp_ignore", names[i]);
        if (gf_lines_visit(path, number_take, &ignores) && (ignores > 0)) return true;
    }
    return false;
}
