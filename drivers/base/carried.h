/* A message over a unix socket, with what the kernel adds to its bytes: a descriptor, and who
 * sent it. Sockets here have abstract names that the kernel makes up: a zero and a few letters. */
#ifndef GF_CARRIED_H
#define GF_CARRIED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GF_CARRIED_NAME_BYTES 8u

struct gf_carried {
    void *bytes;
    size_t size_bytes; /* of a message that came: what came of it, 0 where it was not whole */
    int descriptor;    /* -1: none. Of a message that came: the caller's */
    /* To whom, from whom; all zeroes: over a connection, or of nobody with such a name. */
    char name[GF_CARRIED_NAME_BYTES];
    /* Send: says this process's effective user; unasked the kernel would name the real one. */
    bool says_user;
    uint32_t user; /* Receive: who says so, UINT32_MAX where nobody did */
};

/* Neither waits. errno, or 0. */
int gf_carried_send(int socket, const struct gf_carried *carried);
/* Into carried->bytes[size_bytes]. false: there is none. Descriptors that do not fit are closed: of
 * a whole message one comes at most. */
bool gf_carried_receive(int socket, struct gf_carried *carried);

/* The name of a socket that is bound to none, once the kernel has made one up; false: it is no such
 * name. */
bool gf_carried_bind(int socket, char name_out[GF_CARRIED_NAME_BYTES]);
/* A socket's name as an address (struct sockaddr_un); returns its size. */
struct sockaddr_un;
unsigned gf_carried_address(const char name[GF_CARRIED_NAME_BYTES], struct sockaddr_un *to_out);

#endif
