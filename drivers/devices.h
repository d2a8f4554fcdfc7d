/* link.devices: which network devices of this host a rank uses. "a,b": these two; "a,b;c": local
 * ranks 0, 2 .. of a node use the first list, the others the second. */
#ifndef GF_DEVICES_H
#define GF_DEVICES_H

#include <stddef.h>

#include "drivers/base/address.h"

/* The list of the rank with this local index; devices_out[GF_TEXT_MAX]. */
void gf_devices_group(const char *asked, uint32_t local, char *devices_out);
/* How many the longest of the lists has; at least 1. */
uint32_t gf_devices_most(const char *asked);
/* Takes the first name off a list; false: there is none. */
bool gf_devices_next(const char **list, char *name_out, size_t name_bytes);
/* The first address of that family that an interface has; its port is 0. False: text_out says why,
 * and names the interfaces that have one. May allocate. */
bool gf_device_addr(const char *name, uint16_t family, struct gf_addr *addr_out, char *text_out,
                    size_t text_bytes);
/* The interface of this host that has an address, and of how many bits its network is. */
struct gf_device_at {
    char name[32]; /* empty: none has it */
    uint32_t network_bits;
};
/* May allocate. */
void gf_device_of(const struct gf_addr *addr, struct gf_device_at *device_out);
/* The addresses of that rank's devices, as far as they have one; the rest of addrs_out[] has family
 * 0. May allocate. */
void gf_devices_addrs(const char *asked, uint32_t local, uint16_t family, struct gf_addr *addrs_out,
                      uint32_t addrs_max);

#endif
