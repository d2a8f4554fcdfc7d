/* Frames of the control channel as they are on the wire, and of the handshake of any connection
 * (handshake.h). The first 28 bytes of a header are the same in every version of the protocol, so
 * that two versions can name each other. */
#ifndef GF_TCP_FRAME_H
#define GF_TCP_FRAME_H

#include "drivers/base/bytes.h"
#include "drivers/channel.h"
#include "drivers/tcp/auth.h"

#define GF_FRAME_MAGIC 0x56524647u /* "GFRV" */
#define GF_FRAME_PROTOCOL 5u
#define GF_FRAME_HEADER_BYTES 32u
#define GF_FRAME_BYTES_MAX (GF_FRAME_HEADER_BYTES + GF_CHANNEL_PAYLOAD_MAX)

/* Kinds from here up are the driver's own, those below belong to lib/control/frames.h. The first
 * four are the handshake. */
#define GF_FRAME_DRIVER 0x80000000u
#define GF_FRAME_NONCE (GF_FRAME_DRIVER | 1u)   /* the first of a connection, by the acceptor */
#define GF_FRAME_HELLO (GF_FRAME_DRIVER | 2u)   /* by the dialler */
#define GF_FRAME_ANSWER (GF_FRAME_DRIVER | 3u)  /* the dialler is accepted; no payload */
#define GF_FRAME_REFUSAL (GF_FRAME_DRIVER | 4u) /* it is refused, and why; never has a MAC */
/* The last of a connection that its sender closes on purpose. */
#define GF_FRAME_LEFT (GF_FRAME_DRIVER | 5u)
/* The hello of a data connection. Its payload is of the same size. */
#define GF_FRAME_DATA_HELLO (GF_FRAME_DRIVER | 6u)
/* The last of a connection that its sender gives up, as it broke: its process goes on. */
#define GF_FRAME_GIVEN_UP (GF_FRAME_DRIVER | 7u)

#define GF_FRAME_REASON_BYTES 160u
#define GF_FRAME_NONCE_BYTES GF_AUTH_NONCE_BYTES
#define GF_FRAME_HELLO_BYTES (16u + GF_AUTH_NONCE_BYTES + GF_AUTH_PROOF_BYTES)
#define GF_FRAME_REFUSAL_BYTES (4u + GF_FRAME_REASON_BYTES)

struct gf_frame_header {
    uint32_t magic;
    uint16_t protocol, header_bytes;
    uint32_t kind;
    uint32_t payload_bytes;
    uint64_t job_id;
    uint32_t from, unused;
};

/* What a hello begins with; a nonce and a proof follow (zeroes: none is asked for). */
struct gf_frame_hello {
    uint32_t version; /* GF_VERSION */
    /* of control: GF_RANK_NONE; the first frame after the handshake has the member */
    uint32_t rank;
    uint32_t world; /* of control: 0 */
    uint32_t flags;
};
/* The same four words of a data hello. */
struct gf_frame_data_hello {
    uint32_t version;
    uint32_t from; /* ranks */
    uint32_t to;
    uint32_t about; /* generation << 8 | stream */
};
#define GF_HELLO_KEYED 1u /* this process has a key_file */
#define GF_HELLO_PROBE 4u /* a dial of the probe: never accepted, it wants to hear why not */

void gf_frame_header_put(struct gf_put *put, uint32_t kind, uint32_t payload_bytes, uint64_t job_id,
                         uint32_t from);
struct gf_frame_header gf_frame_header_get(const unsigned char *bytes);

#endif
