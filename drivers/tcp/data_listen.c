/* Where a rank listens for data connections: at one port, on the address by which it reaches the
 * job's address, and on the addresses of the devices that carry messages. */
#include "drivers/tcp/data_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHOICES_MAX 64u /* of the system, until one is free at all addresses */

/* ---- one port at all addresses ---- */

static void listeners_close(struct gf_data *data)
{
    for (uint32_t i = 0; i < GF_DATA_ADDRS_MAX; i++)
        if (data->device_fds[i] >= 0) gf_socket_close(&data->device_fds[i]);
    if (data->listen_fd >= 0) gf_socket_close(&data->listen_fd);
}

static bool own_of(const struct gf_data *data, struct gf_addr *own_out, struct gf_fault *fault_out)
{
    if (gf_addr_of_fd(data->listen_fd, false, own_out)) return true;
    (void)gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "getsockname", errno,
                       "data connections: getsockname failed: %s (errno %d)", strerror(errno),
                       errno);
    return false;
}

/* The same port at the addresses of the setup. */
static bool devices_listen(struct gf_data *data, const struct gf_addr *own, const char *ports,
                           struct gf_fault *fault_out)
{
    for (uint32_t i = 0; i < GF_DATA_ADDRS_MAX; i++) {
        struct gf_addr at = data->setup->data_addrs[i];
        char ip[64];
        char text[112];
        if (at.family == 0) break;
        at.port = own->port;
        if (memcmp(&at, own, sizeof at) == 0) continue;
        gf_socket_address_text(&at, ip, sizeof ip);
        (void)snprintf(text, sizeof text, "%s, one of %s", ip, ports);
        data->device_fds[i] = gf_socket_listen(&at, text, fault_out);
        if (data->device_fds[i] < 0) return false;
    }
    return true;
}

/* At that port of all addresses, or at none; port 0: of the system's choice, which is put there. */
static bool port_listen(struct gf_data *data, struct gf_addr *own, const char *ports,
                        struct gf_fault *fault_out)
{
    *fault_out = (struct gf_fault){0}; /* of the port before, which another has */
    data->listen_fd = gf_socket_listen(own, ports, fault_out);
    if ((data->listen_fd >= 0) && own_of(data, own, fault_out) &&
        devices_listen(data, own, ports, fault_out))
        return true;
    listeners_close(data);
    return false;
}

/* ---- which port ---- */

/* Each process begins at another port of the range: a port that a dead rank has left should refuse
 * for a while. */
static bool range_listen(struct gf_data *data, struct gf_addr *own, struct gf_fault *fault_out)
{
    uint32_t count = data->port_last - data->port_first + 1;
    /* in containers a process begun anew has the number of the old one */
    uint32_t addr = (uint32_t)((uintptr_t)data >> 6);
    uint32_t begin =
        (((uint32_t)getpid() ^ addr) * UINT32_C(2654435761) + data->rank * UINT32_C(40503)) % count;
    char ports[40];
    (void)snprintf(ports, sizeof ports, "ports %u-%u (rendezvous.ports)", data->port_first,
                   data->port_last);
    for (uint32_t i = 0; i < count; i++) {
        own->port = htons((uint16_t)(data->port_first + (begin + i) % count));
        if (port_listen(data, own, ports, fault_out)) return true;
        if (fault_out->foreign_code != EADDRINUSE) break;
    }
    gf_log_line(&data->handshake.log, GF_LOG_WARN,
                "rank %u: %s; it listens at a port of the system's choice", data->rank,
                fault_out->text);
    return false;
}

/* The system chooses one that is free at the first address: an odd one, as long as there are any.
 * So every second try is the even one beside it. */
static bool any_listen(struct gf_data *data, struct gf_addr *own, struct gf_fault *fault_out)
{
    for (uint32_t i = 0; i < CHOICES_MAX; i++) {
        own->port = (i % 2 == 0) ? 0 : own->port ^ htons(1);
        if (port_listen(data, own, "the free ports of this host", fault_out)) return true;
        if ((fault_out->foreign_code != EADDRINUSE) || (own->port == 0)) break;
    }
    return false;
}

/* Otherwise the host lacks something: there was no socket to be had. */
static bool is_no_route(int error)
{
    return (error == ENETUNREACH) || (error == EHOSTUNREACH) || (error == ENETDOWN) ||
           (error == EADDRNOTAVAIL) || (error == ENODEV);
}

/* The address by which this host reaches the job's. Connecting a datagram socket sends nothing, but
 * chooses the route. */
static bool own_find(const struct gf_data *data, struct gf_addr *own_out,
                     struct gf_fault *fault_out)
{
    int fd = gf_socket_route(&data->address, &data->bind_to);
    bool found = (fd >= 0) && gf_addr_of_fd(fd, false, own_out);
    int error = errno;
    if (fd >= 0) gf_socket_close(&fd);
    if (!found)
        (void)gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "connect", error,
                           "this host %s rendezvous.address %.60s: %s (errno %d)",
                           is_no_route(error) ? "has no route to" : "cannot look for its way to",
                           data->setup->address, strerror(error), error);
    return found;
}

static gf_status listeners_serve(struct gf_data *data)
{
    gf_status status = gf_accept_listen(&data->handshake, data->listen_fd);
    for (uint32_t i = 0; (i < GF_DATA_ADDRS_MAX) && (status == GF_OK); i++)
        if (data->device_fds[i] >= 0)
            status = gf_accept_listen(&data->handshake, data->device_fds[i]);
    return status;
}

static gf_status listeners_open(struct gf_data *data)
{
    struct gf_addr own = {0};
    struct gf_fault fault = {0}; /* of ports that others have, too: no failure where one is free */
    bool found = own_find(data, &own, &fault);
    if (!found || (((data->port_first == 0) || !range_listen(data, &own, &fault)) &&
                   !any_listen(data, &own, &fault))) {
        data->handshake.fault = fault;
        return GF_ERR_SYSTEM;
    }
    return listeners_serve(data);
}

gf_status gf_data_listen(struct gf_data *data, struct gf_addr *addr_out)
{
    gf_status status = (data->listen_fd < 0) ? listeners_open(data) : GF_OK;
    if (status != GF_OK) return status;
    if (!own_of(data, addr_out, &data->handshake.fault)) return GF_ERR_SYSTEM;
    gf_socket_address_text(addr_out, data->handshake.address_text,
                           sizeof data->handshake.address_text);
    return GF_OK;
}
