/* Where the socket link gets its connections from: data.c dials, accepts and proves them, and
 * hands them over here. */
#ifndef GF_LINK_TCP_H
#define GF_LINK_TCP_H

#include "drivers/link.h"

/* fd: a connected stream socket whose other end was proven to be that peer, in this generation, and
 * means the same stream (0 to setup.streams - 1). From GF_OK on it is the link's, which closes it
 * at drop(), reset() and close(); else it stays the caller's, and link->fault says why. Before
 * connect() of that peer, or after; once a peer, stream and generation. */
gf_status gf_link_tcp_adopt(struct gf_link *link, uint32_t peer, uint32_t stream, int fd);

#endif
