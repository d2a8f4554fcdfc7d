/* The frames of the socket link: a little-endian header of 64 bytes, of which 40 are used, and a
 * payload. link_tcp.c says what they mean. The header has 64 bytes because a kernel copies payloads
 * faster that begin at a multiple of 64 in the stream: with headers of 40 bytes, 64 KiB between two
 * hosts of one machine took 6 % longer. */
#ifndef GF_LINK_TCP_FRAME_H
#define GF_LINK_TCP_FRAME_H

#include <stdbool.h>
#include <stdint.h>

#define TCP_HEAD_BYTES 64u
#define TCP_FRAME_BYTES_MAX (256u << 10)

typedef enum gf_tcp_frame {
    /* the first on stream 0: tag is the version, size the credit, offset the slots, number the
     * rank, returned the checksum's switch */
    TCP_FRAME_HELLO = 1,
    TCP_FRAME_BEGIN,   /* by credit: the first `bytes` of a message of `size` */
    TCP_FRAME_WANT,    /* there is such a message, and no credit for any of it */
    TCP_FRAME_READY,   /* a receive for this tag is posted, under `number` */
    TCP_FRAME_UNREADY, /* .. and is no more */
    TCP_FRAME_MORE,    /* of a message whose READY has arrived, from `offset` on */
    TCP_FRAME_NOTE     /* only what every header carries: `returned` */
} gf_tcp_frame;

struct gf_tcp_head {
    gf_tcp_frame kind;
    uint64_t tag;
    uint32_t size;   /* of the whole message */
    uint32_t offset; /* of the payload in it */
    uint32_t bytes;  /* of the payload */
    uint32_t number; /* of the receive; never 0 where it means something */
    /* blocks of credit that the writer has given back on this connection, modulo 2^32 */
    uint32_t returned;
    uint32_t checksum; /* CRC32C of the payload where both ends asked for it, else 0 */
};

void gf_tcp_head_put(const struct gf_tcp_head *head, unsigned char *bytes_out);
/* False: the header is damaged, or is none; *head_out is not written. The values are not
 * checked. */
bool gf_tcp_head_get(const unsigned char *bytes, struct gf_tcp_head *head_out);

#endif
