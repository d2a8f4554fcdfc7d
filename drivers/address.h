/* IP addresses and ports, without what a sockaddr has beside them. */
#ifndef GF_ADDRESS_H
#define GF_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct gf_place {
    uint16_t family; /* AF_INET or AF_INET6; 0: none */
    uint16_t port;   /* in network order, as the address is */
    unsigned char ip[16]; /* unused bytes are zero */
};

/* False, and no place: neither IPv4 nor IPv6. address: a whole sockaddr_in or sockaddr_in6, not NULL. */
static inline bool gf_place_of(const void *address, struct gf_place *place_out)
{
    const struct sockaddr_in *in = address;
    const struct sockaddr_in6 *in6 = address;
    *place_out = (struct gf_place){0};
    if ((in->sin_family != AF_INET) && (in->sin_family != AF_INET6)) return false;
    place_out->family = in->sin_family;
    place_out->port = (in->sin_family == AF_INET) ? in->sin_port : in6->sin6_port;
    if (in->sin_family == AF_INET) memcpy(place_out->ip, &in->sin_addr, sizeof in->sin_addr);
    else memcpy(place_out->ip, &in6->sin6_addr, sizeof in6->sin6_addr);
    return true;
}

/* Of a socket's own end, or of its peer's; false: it has none, or is no socket of IP. */
static inline bool gf_place_of_fd(int fd, bool of_peer, struct gf_place *place_out)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    int failed = (of_peer ? getpeername : getsockname)(fd, (struct sockaddr *)&at, &bytes);
    return (failed == 0) && gf_place_of(&at, place_out);
}

/* Is it a socket that listens? */
static inline bool gf_fd_listens(int fd)
{
    int listens = 0;
    socklen_t bytes = sizeof listens;
    return (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0) && (listens != 0);
}

/* "26000-31999"; empty: 0 and 0. False: it is not first-last within 1-65535. */
static inline bool gf_ports_parse(const char *text, unsigned *first_out, unsigned *last_out)
{
    int used = 0;
    *first_out = *last_out = 0;
    if (text[0] == '\0') return true;
    return (sscanf(text, "%5u-%5u%n", first_out, last_out, &used) == 2) && (text[used] == '\0') && (*first_out != 0) &&
           (*first_out <= *last_out) && (*last_out <= UINT16_MAX);
}

#endif
