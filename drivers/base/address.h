/* IP addresses with their ports: what a sockaddr holds that matters here, and nothing else. */
#ifndef GF_ADDRESS_H
#define GF_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gf_addr {
    uint16_t family;      /* AF_INET or AF_INET6; 0: none */
    uint16_t port;        /* in network order, as the address is */
    unsigned char ip[16]; /* unused bytes are zero */
    /* of a link-local address: the number of the interface that leads there, here and on no other
     * host. 0: none is meant, or this host has no such interface */
    uint32_t scope;
};

/* False, and no address: neither IPv4 nor IPv6. address: a whole sockaddr_in or sockaddr_in6, not
 * NULL. */
bool gf_addr_of(const void *address, struct gf_addr *addr_out);
/* Of a socket's own end, or of its peer's; false: it has none, or is no socket of IP. */
bool gf_addr_of_fd(int fd, bool of_peer, struct gf_addr *addr_out);
/* Is it a socket that listens? */
bool gf_fd_listens(int fd);
/* "26000-31999"; empty: 0 and 0. False: it is not first-last within 1-65535. */
bool gf_ports_parse(const char *text, unsigned *first_out, unsigned *last_out);
/* "10.0.0.1", or with a port "10.0.0.1:7117" or "[fd00::1]:7117"; false: it is anything else. A
 * link-local address has its interface after it, [fe80::a%eth0]:7117, by name or number. */
bool gf_addr_parse(const char *text, bool with_port, struct gf_addr *addr_out);
bool gf_addr_is_link_local(const struct gf_addr *addr);
/* Would it be an address but for the interface that it lacks? */
bool gf_addr_lacks_scope(const char *text, bool with_port);
bool gf_addr_is_loopback(const struct gf_addr *addr);
/* ::ffff:10.0.0.1 is IPv4's 10.0.0.1. */
void gf_addr_plain(struct gf_addr *addr);

#ifdef __cplusplus
}
#endif
#endif
