/* A man in the middle of one rank and rank 0: passes bytes on, keeps a copy, and can change one,
 * hold them back or put in others. */
#ifndef TCP_MIDDLE_H
#define TCP_MIDDLE_H

#include "drivers/base/fault.h"

#define MIDDLE_UP 0 /* from the rank to rank 0 */
#define MIDDLE_DOWN 1
#define MIDDLE_RECORD_MAX 16384u

struct middle {
    int listen_fd;
    /* [MIDDLE_UP]: the rank's side, [MIDDLE_DOWN]: rank 0's; -1: none */
    int fds[2];
    char address[GF_TEXT_MAX]; /* for the rank */
    char to[GF_TEXT_MAX];
    uint32_t connections;
    int flip_direction;      /* bytes of this direction */
    uint32_t flip_at;        /* counted from the begin of each connection */
    unsigned char flip_mask; /* 0: none */
    bool hold[2];            /* recorded and not passed on */
    unsigned char record[2][MIDDLE_RECORD_MAX];
    uint32_t recorded[2]; /* of the last connection */
};

void middle_open(struct middle *middle, const char *to);
void middle_progress(struct middle *middle);
void middle_inject(struct middle *middle, int direction, const void *data, size_t bytes);
void middle_close(struct middle *middle);

/* A blocking connection to "127.0.0.1:port"; from: and from this address. */
int stranger_at(const char *address);
int stranger_from(const char *from, const char *address);

#endif
