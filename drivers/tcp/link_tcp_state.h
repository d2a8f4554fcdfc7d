/* What the files of the socket link share; tests of it include this too. The protocol is described
 * in link_tcp.c.
 *     link_tcp.c             the driver table: posts, tests, progress, sleep, open, close
 *     link_tcp_frame.c       headers
 *     link_tcp_send.c        sending: READY and UNREADY, beginnings of messages, and their rest
 *     link_tcp_recv.c        receiving
 *     link_tcp_unexpected.c  messages that arrived before their receive was posted
 *     link_tcp_peer.c        connections: adopting them, and how they end
 *     link_tcp_evidence.c    is the network to a peer broken?
 *     link_tcp_address.c     endpoint addresses, and which rank is dialled where
 *     link_tcp_reach.c       the text that says why a peer was not reached */
#ifndef GF_LINK_TCP_STATE_H
#define GF_LINK_TCP_STATE_H

#include <sys/uio.h>

#include "drivers/devices.h"
#include "drivers/base/forked.h"
#include "drivers/link.h"
#include "drivers/tcp/data.h"
#include "drivers/tcp/link_tcp.h"
#include "drivers/tcp/link_tcp_frame.h"

#define TCP_LINK_VERSION 1u
#define TCP_STREAMS_MAX 8u
#define TCP_ENDPOINT_BYTES_MAX 256u
#define TCP_ADDRS_MAX 4u      /* addresses of a rank that carry its messages */
#define TCP_BLOCK_BYTES 1024u /* credit is counted in these */
/* Credit of each peer, where the setup names none: an equal share of .._ALL, but no less and no
 * more than this. */
#define TCP_CREDIT_BYTES_MIN (256u << 10)
#define TCP_CREDIT_BYTES_MAX (1024u << 10)
#define TCP_CREDIT_BYTES_ALL (4096u << 10)
#define TCP_WHOLE_BYTES_MIN (128u << 10) /* gf_tcp_whole_bytes() */
#define TCP_FIRST_BYTES_MAX \
    (64u << 10)                       /* of a larger one before its receive is known to be posted */
#define TCP_IN_BYTES 8192u            /* what is read together with a header */
#define TCP_OUT_BYTES 8192u           /* headers, and payloads that are copied after theirs */
#define TCP_COPY_BYTES_MAX 4096u      /* of such a payload */
#define TCP_SCRATCH_BYTES (64u << 10) /* bytes that are dropped are read to there */
#define TCP_BATCH_FRAMES_MAX 16u      /* that leave by one system call .. */
#define TCP_BATCH_BYTES (512u << 10)  /* .. and no more once there are so many bytes: peers.md */
#define TCP_OUT_PARTS_MAX (2 * TCP_BATCH_FRAMES_MAX + 1)
#define TCP_SHARE_BYTES (64u << 10)    /* by which a stream may be ahead of another .. */
#define TCP_SHARE_BYTES_MIN (8u << 10) /* .. at the end of a message */
#define TCP_PROGRESS_BYTES (1u << 20)  /* that one progress() writes, or reads, on one stream */
#define TCP_PARTS_MAX 16               /* ranges of memory in one system call */
#define TCP_GONE_NS \
    UINT64_C(1000000000)  /* the end of a connection is reported so much later: link_tcp_peer.c */
#define TCP_AGAIN_MAX 16u /* connections of a peer that may end before they are of use */
#define TCP_PACKET_BYTES 1200u     /* passes any network, with its headers */
#define TCP_PACKET_BYTES_MAX 9000u /* of Ethernet's largest frames */
#define TCP_NONE UINT32_MAX

struct gf_tcp_link;
struct gf_tcp_peer;

typedef enum gf_tcp_phase {
    TCP_SEND_QUEUED,  /* in peer.queued: nothing of it has left */
    TCP_SEND_WAITING, /* in peer.waiting: it was begun or announced; its rest waits for READY */
    TCP_SEND_SENDING, /* in peer.sending: it may leave */
    TCP_SEND_LEAVING, /* in no list: its last bytes are in a stream's batch */
    TCP_RECV_POSTED,  /* in peer.receives: no byte of it has arrived */
    TCP_RECV_BEGUN,   /* in peer.receives: its memory is being written */
    TCP_RECV_BOUND,   /* in no list: its message is an unexpected one that is still arriving */
    TCP_RECV_REVOKED  /* in no list: cancelled, and UNREADY has still to leave */
} gf_tcp_phase;

struct gf_req {
    struct gf_req_head head;
    struct gf_tcp_link *link;
    struct gf_req *older, *newer;   /* in link.oldest, until it has ended */
    struct gf_req *next, *previous; /* in a list of its peer */
    struct gf_req *notice_next;     /* in peer.notices */
    unsigned char *data;
    uint64_t tag;
    uint32_t peer;
    uint32_t size;
    uint32_t number; /* of the receive, as READY carries it; 0: it has none, or is not known */
    uint32_t given;  /* bytes that frames were made for (sends), or announced (receives) */
    uint32_t done;   /* .. that the kernel took (sends), or that have arrived (receives) */
    gf_tcp_phase phase;
    bool is_send;
    bool began;      /* BEGIN or WANT was made for it (sends), or has arrived (receives) */
    bool notice_due; /* it is in peer.notices */
    gf_status later; /* the answer once UNREADY has left */
} __attribute__((aligned(64)));

struct gf_tcp_list {
    struct gf_req *first, *last;
};

/* A READY for a message that is not posted yet. */
struct gf_tcp_early {
    uint64_t tag;
    uint32_t number;
};

/* A message that began, or was announced, before its receive was posted. */
struct gf_tcp_unexpected {
    struct gf_req *req; /* the receive, if it was posted meanwhile: TCP_RECV_BOUND */
    uint64_t tag;
    uint32_t size;
    uint32_t bytes; /* of it that were sent by credit */
    uint32_t block; /* the first of a chain; TCP_NONE: it was only announced */
    uint32_t next;  /* in peer.unexpected_first, or among the free; TCP_NONE: the last */
    bool here;      /* those bytes have arrived */
};

typedef enum gf_tcp_target { TCP_TO_NOBODY, TCP_TO_REQUEST, TCP_TO_UNEXPECTED } gf_tcp_target;

/* A frame of a batch that carries bytes of a message. */
struct gf_tcp_sent {
    struct gf_req *req;
    uint32_t bytes;
    uint32_t end; /* in the batch */
};

struct gf_tcp_stream {
    struct gf_tcp_peer *peer;
    struct gf_tcp_stream *next_ready; /* in link.ready */
    int fd;                           /* -1: none */
    uint32_t index;
    struct gf_addr there;    /* its other end, which a socket that has failed no longer knows */
    uint64_t more_bytes;     /* of large messages that it took, in this generation */
    uint64_t written;        /* bytes that the kernel took */
    uint64_t large_at;       /* .. before the largest number that it took at once */
    uint32_t largest;        /* that number; no longer updated once it exceeds a packet */
    uint32_t posted_call;    /* link.calls when a post last wrote here */
    bool listed;             /* it is in link.ready */
    bool readable, writable; /* until a call finds otherwise */
    bool hung_up;            /* the other end sends no more; what has arrived is still read */

    /* Sending: a batch of frames, whose headers lie in out[]. */
    struct iovec parts[TCP_OUT_PARTS_MAX];
    uint32_t part_at, part_count; /* the parts from part_at on are still to be sent */
    struct gf_tcp_sent sent[TCP_BATCH_FRAMES_MAX];
    uint32_t sent_at, sent_count;
    uint32_t out_end;
    uint32_t batch_bytes, batch_done; /* with all payloads; of these the kernel took */

    /* Receiving: `held` bytes, less than a header, were read and lie in front of
     * in[TCP_HEAD_BYTES]. */
    uint32_t held;
    bool in_payload;
    gf_tcp_target target;
    struct gf_tcp_head head; /* of the frame under way */
    uint32_t left;           /* of its payload */
    uint32_t checksum;       /* .. of what has arrived of it */
    struct gf_req *receives;
    uint32_t unexpected;      /* TCP_TO_UNEXPECTED: the entry, and .. */
    uint32_t block, block_at; /* .. where in its chain the next byte goes */

    unsigned char out[TCP_OUT_BYTES];
    unsigned char in[TCP_HEAD_BYTES + TCP_IN_BYTES];
};

struct gf_tcp_peer {
    struct gf_tcp_link *link;
    uint32_t id;
    uint32_t open_count;  /* streams that were adopted */
    uint64_t met_ns;      /* connect() was first called for it then; 0: not yet */
    bool greeted;         /* its HELLO has arrived */
    bool greets;          /* ours is to be sent */
    uint32_t again_count; /* connections that ended before that, and were forgotten */
    bool ended, notified; /* a connection ended; its requests have failed */
    uint64_t ended_ns;
    int ended_error;     /* errno, or 0: closed there, or bytes that broke a rule */
    uint32_t addr_count; /* since met_ns: where it is dialled */
    struct gf_addr addrs[TCP_ADDRS_MAX];
    struct gf_tcp_stream *streams;

    struct gf_tcp_list queued, waiting, sending;
    uint32_t credit_blocks;   /* that it gave */
    uint32_t taken, returned; /* of them, since the connection was made, modulo 2^32 */
    struct gf_tcp_early *early;
    uint32_t early_count;

    struct gf_tcp_list receives;
    struct gf_req *notices, *notices_last; /* receives whose READY or UNREADY is to be sent */
    uint32_t number;                       /* the last that a receive got */
    uint32_t used;                         /* blocks of our credit that it has taken, and .. */
    uint32_t given, given_sent; /* that we gave back, and that a header told it; modulo 2^32 */
    struct gf_tcp_unexpected *unexpected;
    uint32_t unexpected_first, unexpected_last, unexpected_free;
    uint32_t *chain; /* of blocks: the next one */
    uint32_t block_free;
    unsigned char *blocks;

    char text[200]; /* how it ended */
};

struct gf_tcp_link {
    struct gf_link link;
    struct gf_link_setup setup; /* streams and credit_bytes with what 0 stands for */
    struct gf_forked forked;
    bool is_open; /* false: it was dropped, or a reset failed */
    int epoll_fd; /* of all streams */
    /* link_tcp_address.c: where connections are from, and what peers must know to dial */
    struct gf_data *data;
    struct gf_data_taker taker;
    bool data_due;             /* data is to be polled, */
    uint64_t data_ns;          /* and was last polled then */
    char devices[GF_TEXT_MAX]; /* those of setup.devices that are this rank's */
    bool descriptors_fit;      /* there are enough for all peers that were met */
    uint32_t addr_count;
    struct gf_addr addrs[TCP_ADDRS_MAX]; /* where this rank is dialled; from there it dials */
    struct gf_device_at addr_devices[TCP_ADDRS_MAX];
    unsigned char secret[GF_DATA_SECRET_BYTES];
    uint32_t unasked; /* reads without asking epoll, since it was asked last */
    uint32_t calls;   /* counts calls of progress() */
    uint32_t streams_open;
    uint32_t gone_count;  /* peers that have ended and were not reported yet */
    uint64_t gone_ns;     /* TCP_GONE_NS; a test may change it */
    uint32_t block_count; /* of a peer */
    uint32_t requests_under_way;
    struct gf_req *oldest, *newest;
    struct gf_tcp_stream *ready, *ready_last;
    struct gf_tcp_peer *peers; /* [ranks_max] */
    unsigned char *scratch;
};

static inline uint32_t gf_tcp_blocks(uint32_t bytes)
{
    return (bytes == 0) ? 1 : (bytes + TCP_BLOCK_BYTES - 1) / TCP_BLOCK_BYTES;
}

/* A message up to this size leaves whole where credit allows it: half of the credit, and no more
 * than a frame. It leaves on stream 0; where there are others, they take their share of more than
 * TCP_WHOLE_BYTES_MIN. With several peers a rank most often sends to one and receives from another,
 * so no frame carries credit back, and a message without credit is announced after all that have
 * it: a ring of four at 1 Gbit/s had 0.89 of the link. A receive of more sends READY when it is
 * posted, so both ends must compute this from the credit that the receiver gave. */
static inline uint32_t gf_tcp_whole_bytes(const struct gf_link_setup *setup, uint32_t credit_blocks)
{
    uint32_t bytes = credit_blocks / 2 * TCP_BLOCK_BYTES;
    if ((setup->streams > 1) || (setup->world > 2) || (bytes < TCP_WHOLE_BYTES_MIN))
        return TCP_WHOLE_BYTES_MIN;
    return (bytes > TCP_FRAME_BYTES_MAX) ? TCP_FRAME_BYTES_MAX : bytes;
}

/* .. of what comes from this peer */
static inline uint32_t gf_tcp_whole_bytes_in(const struct gf_tcp_peer *peer)
{
    return gf_tcp_whole_bytes(&peer->link->setup, peer->link->block_count);
}

/* .. and of what goes there */
static inline uint32_t gf_tcp_whole_bytes_out(const struct gf_tcp_peer *peer)
{
    return gf_tcp_whole_bytes(&peer->link->setup, peer->credit_blocks);
}

static inline void gf_tcp_list_add(struct gf_tcp_list *list, struct gf_req *req)
{
    req->next = NULL;
    req->previous = list->last;
    if (list->last != NULL)
        list->last->next = req;
    else
        list->first = req;
    list->last = req;
}

static inline void gf_tcp_list_remove(struct gf_tcp_list *list, struct gf_req *req)
{
    if (req->previous != NULL)
        req->previous->next = req->next;
    else
        list->first = req->next;
    if (req->next != NULL)
        req->next->previous = req->previous;
    else
        list->last = req->previous;
}

/* link_tcp_address.c. From here on connections of this generation are accepted; then no more. */
gf_status gf_tcp_network_take(struct gf_tcp_link *link);
void gf_tcp_network_give(struct gf_tcp_link *link);
/* Serves the listener and all dials. */
gf_status gf_tcp_data_poll(struct gf_tcp_link *link, uint64_t now_ns);
gf_status gf_tcp_endpoint(struct gf_link *link, void *endpoint_out, size_t *size_bytes_out);
gf_status gf_tcp_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                         size_t size_bytes);

/* link_tcp_reach.c. For a peer to which a connection is missing. True: the attempts have failed,
 * and *fault_out has why. */
bool gf_tcp_reach_failed(const struct gf_tcp_peer *peer, struct gf_fault *fault_out);

/* link_tcp.c. Ends a request that is in no list of its peer any more. */
void gf_tcp_req_end(struct gf_req *req, gf_status answer);
/* The stream is served at the next progress(). */
void gf_tcp_stream_list(struct gf_tcp_stream *stream);
/* The fault and the log line of a request that met a message of another size. */
void gf_tcp_mismatch(struct gf_req *req, uint32_t got_bytes);

/* link_tcp_send.c. True: something moved. Writes nothing once the peer has ended. */
bool gf_tcp_stream_write(struct gf_tcp_stream *stream);
/* Is there something to write? */
bool gf_tcp_stream_has_work(const struct gf_tcp_stream *stream);
void gf_tcp_send_begin(struct gf_tcp_peer *peer, struct gf_req *req);
/* Takes READY, UNREADY and returned credit. False: there were more than the protocol allows. */
bool gf_tcp_ready_heard(struct gf_tcp_peer *peer, uint64_t tag, uint32_t number);
void gf_tcp_unready_heard(struct gf_tcp_peer *peer, uint64_t tag, uint32_t number);
bool gf_tcp_returned_heard(struct gf_tcp_peer *peer, uint32_t returned);

/* link_tcp_recv.c. True: something moved. */
bool gf_tcp_stream_read(struct gf_tcp_stream *stream);
void gf_tcp_recv_begin(struct gf_tcp_peer *peer, struct gf_req *req);
void gf_tcp_recv_cancel(struct gf_tcp_peer *peer, struct gf_req *req);
/* Gives the receive a number, unless it has one, and queues READY, or UNREADY of a revoked one. */
void gf_tcp_recv_notice(struct gf_tcp_peer *peer, struct gf_req *req);

/* link_tcp_unexpected.c. */
void gf_tcp_unexpected_init(struct gf_tcp_peer *peer);
/* The oldest with this tag that no receive has yet; TCP_NONE: there is none. */
uint32_t gf_tcp_unexpected_find(const struct gf_tcp_peer *peer, uint64_t tag);
/* Adds one, with blocks for head->bytes of a BEGIN. TCP_NONE: the peer has announced more than it
 * may. */
uint32_t gf_tcp_unexpected_add(struct gf_tcp_peer *peer, const struct gf_tcp_head *head);
/* Removes it, and gives its credit back. */
void gf_tcp_unexpected_drop(struct gf_tcp_peer *peer, uint32_t index);
/* For a peer whose connections have ended: drops what has not arrived whole. */
void gf_tcp_unexpected_keep_whole(struct gf_tcp_peer *peer);
/* Copies its bytes, which have arrived, to the receive, and removes the entry. */
void gf_tcp_unexpected_deliver(struct gf_tcp_peer *peer, uint32_t index, struct gf_req *req);
void gf_tcp_credit_give(struct gf_tcp_peer *peer, uint32_t blocks);

/* link_tcp_peer.c. */
void gf_tcp_peer_init(struct gf_tcp_peer *peer);
/* Closes all connections; its requests are the caller's to end. */
void gf_tcp_peer_close(struct gf_tcp_peer *peer);
/* A connection has ended, with an errno or 0. Nothing is written any more; what has arrived is
 * still read. One that its other end gives up before its first word is forgotten instead. */
void gf_tcp_stream_ended(struct gf_tcp_stream *stream, int error);
/* The peer broke a rule of the protocol, or bytes were damaged: its requests end at once, and the
 * link has failed. */
__attribute__((format(printf, 2, 3))) void gf_tcp_violated(struct gf_tcp_stream *stream,
                                                           const char *format, ...);
/* Reports peers whose connections ended long enough ago. True: a request ended. */
bool gf_tcp_gone_report(struct gf_tcp_link *link, uint64_t now_ns);
/* The status and fault of a post to a peer that has ended. */
gf_status gf_tcp_peer_refuse(struct gf_tcp_peer *peer);
/* " (10.0.0.1:4000)", or "" where it is no IP address; both texts have room for `bytes`. */
void gf_tcp_ends_text(const struct gf_tcp_stream *stream, char *own_out, char *other_out,
                      size_t bytes);

/* link_tcp_evidence.c. gf_link_driver.edge_is_broken */
bool gf_tcp_edge_is_broken(struct gf_link *link, uint32_t peer, struct gf_fault *fault_out);

#endif
