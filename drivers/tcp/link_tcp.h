/* Where the socket link gets its connections from: data.c dials, accepts and proves them, and
 * hands them over here. */
#ifndef GF_LINK_TCP_H
#define GF_LINK_TCP_H

#include "drivers/link.h"

/* Gives the link a connected stream socket. Its other end was proven to be that peer, in this
 * generation, and uses it as the same stream (0 to setup.streams - 1). On GF_OK fd is the link's,
 * which closes it at drop(), reset() and close(); otherwise it stays the caller's, and link->fault
 * has the reason. Called before connect() of that peer or after it, once a peer, stream and
 * generation, and again after one that ended before the peer's first word (link_tcp_peer.c). */
gf_status gf_link_tcp_adopt(struct gf_link *link, uint32_t peer, uint32_t stream, int fd);

#endif
