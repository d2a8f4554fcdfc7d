/* Which user of this host is at the other end of a connection. */
#ifndef GF_RENDEZVOUS_USER_H
#define GF_RENDEZVOUS_USER_H

#include <stdbool.h>
#include <stdint.h>

/* False: the other end is not on this host (or in another network namespace), or the kernel does not say. Asks the
 * kernel (sock_diag) and needs no rights; does not block. */
bool gf_socket_peer_user(int fd, uint32_t *user_out);

#endif
