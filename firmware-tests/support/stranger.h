/* Somebody who is no rank of the job, and what he says to UCX's tcp transport (the bytes of UCX
 * 1.13 to 1.22, written here so that no UCX of ours is in the way). */
#ifndef STRANGER_H
#define STRANGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "drivers/tcp/frame.h"

struct stranger_port {
    char ip[46];
    uint16_t port;
};

/* Where a process listens on TCP, by the kernel's tables: its descriptors among /proc/PID/net/tcp
 * and tcp6. Returns how many there are, of which the first ports_max are in ports_out. */
uint32_t stranger_ports(int pid, struct stranger_port *ports_out, uint32_t ports_max);

#define STRANGER_NAME_BYTES 64u
/* The same for abstract unix sockets that listen: "@name". */
uint32_t stranger_names(int pid, char (*names_out)[STRANGER_NAME_BYTES], uint32_t names_max);

/* whether the other side has hung up or not */
void stranger_say(int fd, const void *data, size_t bytes);
/* A hello of the control channel, right in all but the proof. */
#define STRANGER_HELLO_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES)
void stranger_hello(unsigned char *out, uint64_t job, uint32_t rank, uint32_t world,
                    uint32_t has_key);

/* At an abstract unix socket, "@name"; -1: nobody listens there. */
int stranger_named(const char *name);
/* -1: refused, or nobody answered within 2 s */
int stranger_connect(const char *ip, uint16_t port);
/* What UCX says first on a connection. */
void stranger_greet(int fd);
/* Asks UCX to write data[bytes] at `address` of its process. */
void stranger_put(int fd, uint64_t address, const void *data, uint32_t bytes);
/* An active message of UCX's own (a tagged message that fits one packet), for whoever waits for
 * `tag`. */
void stranger_message(int fd, uint64_t tag, const void *data, uint32_t bytes);
/* Bytes that came back within `ms`; -1: the connection was closed or reset without any. */
int stranger_hears(int fd, int ms);

#endif
