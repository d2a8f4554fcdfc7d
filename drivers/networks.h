/* Several devices of this host on one network (a subnet). The kernel then sends all packets for
 * that network by one of them, whatever their source address is, and answers an ARP request for
 * the address of one device at another. */
#ifndef GF_NETWORKS_H
#define GF_NETWORKS_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "drivers/base/address.h"

struct gf_network_pair {
    char name[IF_NAMESIZE];  /* of the device that has the address */
    char other[IF_NAMESIZE]; /* another one that is up and on its network */
    uint32_t index;          /* of `name` */
};

/* The device that has `own`, where `to` is on its network and another one of this host is, too.
 * false: there is none. May allocate. */
bool gf_network_pair(const struct gf_addr *own, const struct gf_addr *to,
                     struct gf_network_pair *pair_out);
/* The same, of a device by its name and any address of its network. */
bool gf_network_shared(const char *name, struct gf_network_pair *pair_out);
/* Does this device answer for its own addresses alone? (net.ipv4.conf.*.arp_ignore) */
bool gf_network_answers_alone(const char *name);

#endif
