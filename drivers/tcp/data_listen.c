/* Where a rank listens for data connections: at one port, on the address by which it reaches the
 * job's address, and on the addresses of the devices that carry messages. */
#include "drivers/tcp/data_state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Each process begins at another port of the range: a port that a dead rank has left should refuse
 * for a while. */
static int listen_within(const struct gf_data *data, struct gf_addr *at, struct gf_fault *fault_out)
{
    uint32_t count = data->port_last - data->port_first + 1;
    /* in containers a process begun anew has the number of the old one */
    uint32_t addr = (uint32_t)((uintptr_t)data >> 6);
    uint32_t begin =
        (((uint32_t)getpid() ^ addr) * UINT32_C(2654435761) + data->rank * UINT32_C(40503)) % count;
    int fd = -1;
    char text[40];
    (void)snprintf(text, sizeof text, "ports %u-%u (rendezvous.ports)", data->port_first,
                   data->port_last);
    for (uint32_t i = 0; (i < count) && (fd < 0); i++) {
        at->port = htons((uint16_t)(data->port_first + (begin + i) % count));
        fd = gf_socket_listen(at, text, fault_out);
        if ((fd < 0) && (fault_out->foreign_code != EADDRINUSE)) break;
    }
    if (fd >= 0) {
        *fault_out = (struct gf_fault){0}; /* of ports that others have */
        return fd;
    }
    gf_log_line(&data->handshake.log, GF_LOG_WARN,
                "rank %u: %s; it listens at a port of the system's choice", data->rank,
                fault_out->text);
    *fault_out = (struct gf_fault){0};
    at->port = 0;
    return gf_socket_listen(at, "a free port of this host", fault_out);
}

/* Otherwise the host lacks something: there was no socket to be had. */
static bool is_no_route(int error)
{
    return (error == ENETUNREACH) || (error == EHOSTUNREACH) || (error == ENETDOWN) ||
           (error == EADDRNOTAVAIL) || (error == ENODEV);
}

/* At the address by which this host reaches the job's. Connecting a datagram socket sends nothing,
 * but chooses the route. */
static int port_listen(const struct gf_data *data, struct gf_fault *fault_out)
{
    struct gf_addr own = {0};
    int fd = gf_socket_route(&data->address, &data->bind_to);
    bool found = (fd >= 0) && gf_addr_of_fd(fd, false, &own);
    int error = errno;
    if (fd >= 0) gf_socket_close(&fd);
    if (!found) {
        (void)gf_fault_set(fault_out, GF_ERR_SYSTEM, GF_RANK_NONE, "connect", error,
                           "this host %s rendezvous.address %.60s: %s (errno %d)",
                           is_no_route(error) ? "has no route to" : "cannot look for its way to",
                           data->setup->address, strerror(error), error);
        return -1;
    }
    own.port = 0;
    return (data->port_first == 0) ? gf_socket_listen(&own, "a free port of this host", fault_out)
                                   : listen_within(data, &own, fault_out);
}

/* The same port at the addresses of the setup. */
static gf_status devices_listen(struct gf_data *data, const struct gf_addr *own)
{
    for (uint32_t i = 0; i < GF_DATA_ADDRS_MAX; i++) {
        struct gf_addr at = data->setup->data_addrs[i];
        char text[64];
        if (at.family == 0) break;
        at.port = own->port;
        if ((data->device_fds[i] >= 0) || (memcmp(&at, own, sizeof at) == 0)) continue;
        gf_socket_address_text(&at, text, sizeof text);
        data->device_fds[i] = gf_socket_listen(&at, text, &data->handshake.fault);
        if (data->device_fds[i] < 0) return GF_ERR_SYSTEM;
        gf_status status = gf_accept_listen(&data->handshake, data->device_fds[i]);
        if (status != GF_OK) return status;
    }
    return GF_OK;
}

gf_status gf_data_listen(struct gf_data *data, struct gf_addr *addr_out)
{
    gf_status status = GF_OK;
    if (data->listen_fd < 0) {
        data->listen_fd = port_listen(data, &data->handshake.fault);
        if (data->listen_fd < 0) return GF_ERR_SYSTEM;
        status = gf_accept_listen(&data->handshake, data->listen_fd);
    }
    if (status != GF_OK) return status;
    if (!gf_addr_of_fd(data->listen_fd, false, addr_out))
        return gf_fault_set(&data->handshake.fault, GF_ERR_SYSTEM, GF_RANK_NONE, "getsockname",
                            errno, "data connections: getsockname failed: %s (errno %d)",
                            strerror(errno), errno);
    gf_socket_address_text(addr_out, data->handshake.address_text,
                           sizeof data->handshake.address_text);
    return devices_listen(data, addr_out);
}
