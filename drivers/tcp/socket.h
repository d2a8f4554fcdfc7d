/* Sockets: addresses as text, options, listening and connecting. No call blocks. */
#ifndef GF_TCP_SOCKET_H
#define GF_TCP_SOCKET_H

#include "drivers/base/address.h"
#include "drivers/base/fault.h"

/* rendezvous.address, "127.0.0.1:7117" or "[::1]:7117", into *address_out. False: GF_ERR_CONFIG is
 * in *fault_out. */
bool gf_socket_address_parse(const char *text, struct gf_addr *address_out,
                             struct gf_fault *fault_out);
/* A numeric IP without a port. */
bool gf_socket_bind_parse(const char *text, struct gf_addr *address_out,
                          struct gf_fault *fault_out);
void gf_socket_address_text(const struct gf_addr *address, char *text_out, size_t bytes);

/* A non-blocking socket that listens, or -1 with GF_ERR_SYSTEM in *fault_out. */
int gf_socket_listen(const struct gf_addr *address, const char *text, struct gf_fault *fault_out);
/* A non-blocking socket that connects to `to` (from `bind_to` unless that is none), or -1 with
 * errno set. */
int gf_socket_connect(const struct gf_addr *to, const struct gf_addr *bind_to,
                      uint64_t keepalive_ns);
/* .. by a device (its index), where the kernel lets this process choose it; 0: by any. */
int gf_socket_connect_by(const struct gf_addr *to, const struct gf_addr *bind_to, uint32_t device,
                         uint64_t keepalive_ns);
/* The socket sends and receives by this device only. false: see errno. */
bool gf_socket_bind_device(int fd, uint32_t device);
/* A datagram socket that would reach `to`; sends nothing. Or -1 with errno set. */
int gf_socket_route(const struct gf_addr *to, const struct gf_addr *bind_to);
/* Reads bytes in[*have..want-1], as far as they have arrived. GF_OK: all have; GF_ERR_PEER: the
 * connection has ended by errno (0: its other end closed it). */
gf_status gf_socket_read(int fd, unsigned char *in, uint32_t *have, uint32_t want);
/* A connect() to a port of the ephemeral range without a listener can connect to itself. */
bool gf_socket_met_itself(int fd);
/* Both leave -1 in *fd; reset closes with one packet: what was sent and has not arrived is lost. */
void gf_socket_close(int *fd);
void gf_socket_reset(int *fd);
/* What every connection gets: no delay, and an end when the other host is silent for three
 * keepalive periods. */
void gf_socket_options_set(int fd, uint64_t keepalive_ns);
/* For a proven connection of the control channel: it ends at either end once the other host is
 * silent for that long, in whole seconds, and at least 2 where nothing is under way. */
void gf_socket_watch(int fd, uint64_t keepalive_ns);
/* For a proven data connection, which may be idle for as long as its rank computes. With a user
 * timeout the kernel would also end a connection whose other end has no room, although that host
 * answers. So these have none: the control channel notices a silent host. */
void gf_socket_carries_messages(int fd, uint64_t keepalive_ns);
/* ---- abstract unix sockets ---- */

/* "@..", as texts show it; the kernel has a zero in place of the @. */
#define GF_SOCKET_NAME_BYTES 64u
/* As gf_socket_listen(). */
int gf_socket_name_listen(const char *name, struct gf_fault *fault_out);
/* Like gf_socket_connect(): the connection is established at once, or -1 with errno set. EPERM:
 * *user_out, another user, listens there. */
int gf_socket_name_connect(const char *name, uint32_t *user_out);
/* Is there a socket of this network namespace, of any user, whose name begins with `prefix`, and is
 * neither own nor own and a "-"? *name_out is one. */
bool gf_socket_name_other(const char *prefix, const char *own, char name_out[GF_SOCKET_NAME_BYTES]);
/* Does a process of this user listen at that port of this host, and none of another user? */
bool gf_socket_port_is_own(uint16_t port);
/* Which user the other end is; false: the kernel does not know. */
bool gf_socket_user(int fd, uint32_t *user_out);
/* Is it the user of this process? */
bool gf_socket_is_own(int fd);

#endif
