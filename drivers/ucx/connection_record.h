/* A connection's bytes as records, encrypted and authenticated (ChaCha20-Poly1305, RFC 8439):
 *
 *     u32 n (little-endian), n encrypted bytes, tag of 16 bytes over both
 *
 * Each direction of each connection has a key of its own, in whose making both ends' nonces are,
 * and a counter for a nonce: no nonce comes twice under a key, whatever happens to the epoch or the
 * connection. A record that is missing, changed, out of order or of another connection does not
 * fit, and ends the connection (EBADMSG). What is seen of it on the wire: sizes and times. */
#ifndef GF_CONNECTION_RECORD_H
#define GF_CONNECTION_RECORD_H

#include "drivers/ucx/connection_proof.h"

#include <sys/uio.h>

#define GF_RECORD_BYTES 16384u /* of payload; the two buffers are most of what a connection takes */
#define GF_RECORD_HEAD_BYTES 4u
#define GF_RECORD_MAX_BYTES (GF_RECORD_HEAD_BYTES + GF_RECORD_BYTES + GF_AUTH_TAG_BYTES)

struct gf_record {
    unsigned char send_key[32], recv_key[32];
    uint64_t send_count, recv_count;
    uint32_t out_plain; /* of the caller's bytes lie in out, encrypted; 0: none */
    uint32_t out_bytes, out_sent;
    uint32_t in_bytes;            /* of the record that comes in */
    uint32_t plain_at, plain_end; /* in `in`: decrypted, and not handed out yet */
    unsigned char out[GF_RECORD_MAX_BYTES];
    unsigned char in[GF_RECORD_MAX_BYTES];
} __attribute__((aligned(64)));
#define GF_RECORD_SECRET_BYTES 64u

void gf_record_begin(struct gf_record *record); /* keys follow */
/* As sendmsg() and recv() of a stream that does not block. A record that has begun to leave holds
 * the first bytes that were given; the same bytes come first in the next call, as of any stream
 * that has not taken them. */
ssize_t gf_record_send(struct gf_record *record, int fd, const struct iovec *parts, size_t count);
ssize_t gf_record_recv(struct gf_record *record, int fd, void *data, size_t bytes);

#endif
