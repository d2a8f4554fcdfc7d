/* The text that says why a peer was not reached: both ends, the address that was dialled, the
 * device, what the kernel says, and which setting may help. Or the text that says what this rank
 * lacks itself, which is no fault of the peer. */
#include "drivers/tcp/link_tcp_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "drivers/base/address.h"

/* ---- what this rank lacks ---- */

/* With IPv6, EACCES can also be the answer of a firewall on the path (ICMPv6, "administratively
 * prohibited"). */
static bool is_own_lack(int error, const struct gf_addr *to)
{
    switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOBUFS:
    case EPERM: return true;
    case EACCES: return to->family == AF_INET;
    default: return false;
    }
}

/* "the limit is 64 (ulimit -n)" */
static void limit_text(int error, char *text_out, size_t bytes)
{
    struct rlimit files = {.rlim_cur = 0};
    const char *text = "this host is short of memory for sockets";
    if ((error == EPERM) || (error == EACCES))
        text = "seccomp, a policy or a firewall here forbids it";
    else if (error == ENFILE)
        text = "all files of this host: sysctl fs.file-max";
    if ((error == EMFILE) && (getrlimit(RLIMIT_NOFILE, &files) == 0))
        (void)snprintf(text_out, bytes,
                       "the limit is %llu, and the program has open more than the "
                       "library was told of (ulimit -n)",
                       (unsigned long long)files.rlim_cur);
    else
        (void)snprintf(text_out, bytes, "%s", text);
}

/* A rule that forbids a connection looks at its address, so the text has the address. */
static void lack_fault_set(const struct gf_tcp_link *tcp, uint32_t peer, const char *at, int error,
                           struct gf_fault *fault_out)
{
    char limit[112];
    bool is_right = (error == EPERM) || (error == EACCES);
    limit_text(error, limit, sizeof limit);
    (void)gf_fault_set(fault_out, GF_ERR_SYSTEM, tcp->setup.rank, "connect", error,
                       "rank %u cannot open its connection to rank %u%s: %s (errno %d): %s",
                       tcp->setup.rank, peer, is_right ? at : "", strerror(error), error, limit);
}

/* ---- the network ---- */

static void ip_text(const struct gf_addr *addr, char *text_out)
{
    text_out[0] = '\0';
    (void)inet_ntop(addr->family, addr->ip, text_out, INET6_ADDRSTRLEN);
}

/* Does a network of so many bits hold both? */
static bool is_in_network(const struct gf_addr *a, const struct gf_addr *b, uint32_t bits)
{
    uint32_t whole = bits / 8;
    unsigned char mask = (unsigned char)(0xff00u >> (bits % 8));
    if ((a->family != b->family) || (bits > 8 * sizeof a->ip)) return false;
    if (memcmp(a->ip, b->ip, whole) != 0) return false;
    return (bits % 8 == 0) || (((a->ip[whole] ^ b->ip[whole]) & mask) == 0);
}

static bool is_own(const struct gf_tcp_link *tcp, const struct gf_addr *to)
{
    for (uint32_t i = 0; i < tcp->addr_count; i++)
        if ((tcp->addrs[i].family == to->family) &&
            (memcmp(tcp->addrs[i].ip, to->ip, sizeof to->ip) == 0))
            return true;
    return false;
}

/* Says what is wrong with the addresses, if they show it; otherwise what may be between the two
 * ranks. */
static const char *advice_of(const struct gf_tcp_link *tcp, uint32_t own, const struct gf_addr *to,
                             int error)
{
    const struct gf_device_at *device = &tcp->addr_devices[own];
    bool chosen = tcp->devices[0] != '\0';
    if (gf_addr_is_loopback(to))
        return "a loopback address leads to no other host: set link.devices";
    if (is_own(tcp, to))
        return "both have that address, so it leads to no other host: set link.devices";
    if (chosen && (device->network_bits > 0) &&
        !is_in_network(&tcp->addrs[own], to, device->network_bits))
        return "they are in different subnets: set link.devices";
    if ((error == EHOSTUNREACH) || (error == ENETUNREACH) || (error == EACCES))
        return "a route, a firewall that rejects, or set link.devices";
    if (error == EINVAL) return "a route that is a blackhole (ip route), or set link.devices";
    if (error == ECONNRESET) return "what listens there is no rank, or has no descriptor left";
    return (error == ECONNREFUSED) ? "a firewall that rejects, or set link.devices"
                                   : "a firewall that drops it, or set link.devices";
}

/* `stream` of `peer` was dialled at `to` and has no connection yet. */
static void reach_fault_set(const struct gf_tcp_link *tcp, uint32_t peer, uint32_t stream,
                            const struct gf_addr *to, struct gf_fault *fault_out)
{
    const char *why_not = gf_data_text(tcp->data, peer);
    int error = gf_data_error(tcp->data, peer);
    uint32_t own = stream % tcp->addr_count;
    const struct gf_device_at *device = &tcp->addr_devices[own];
    char ip[INET6_ADDRSTRLEN];
    char own_ip[INET6_ADDRSTRLEN];
    char at[2 * INET6_ADDRSTRLEN + sizeof device->name + 32];
    char why[80];
    if (gf_data_lacks(tcp->data) != 0) error = gf_data_lacks(tcp->data);
    ip_text(to, ip);
    ip_text(&tcp->addrs[own], own_ip);
    (void)snprintf(
        at, sizeof at, (to->family == AF_INET) ? " at %s:%u by %s (%s)" : " at [%s]:%u by %s (%s)",
        ip, ntohs(to->port), (device->name[0] != '\0') ? device->name : "any device", own_ip);
    if (is_own_lack(error, to)) {
        lack_fault_set(tcp, peer, at, error, fault_out);
        return;
    }
    if (error != 0)
        (void)snprintf(why, sizeof why, "%s (errno %d)", strerror(error), error);
    else
        (void)snprintf(why, sizeof why, "%.70s",
                       (why_not[0] != '\0') ? why_not : "nothing has come");
    (void)gf_fault_set(fault_out, GF_ERR_LINK, peer, "connect", error,
                       "rank %u cannot connect to rank %u%s: %s; %s", tcp->setup.rank, peer, at,
                       why, advice_of(tcp, own, to, error));
}

bool gf_tcp_reach_failed(const struct gf_tcp_peer *peer, struct gf_fault *fault_out)
{
    const struct gf_tcp_link *tcp = peer->link;
    uint32_t stream = 0;
    if ((tcp->addr_count == 0) || (peer->addr_count == 0)) return false;
    if (gf_data_lacks(tcp->data) == 0) {
        /* Its kernel has answered, and its process may be computing. */
        if (gf_data_reaches(tcp->data, peer->id)) return false;
        if (gf_data_text(tcp->data, peer->id)[0] == 0) return false;
    }
    while ((stream + 1 < tcp->setup.streams) && (peer->streams[stream].fd >= 0)) stream++;
    reach_fault_set(tcp, peer->id, stream, &peer->addrs[stream % peer->addr_count], fault_out);
    return true;
}
