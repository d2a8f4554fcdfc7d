/* What the files of the socket link share; tests of it include this too. The protocol is described
 * in link_tcp.c.
 *     link_tcp.c         the driver table: posting, testing, progress, sleeping, opening, closing
 *     link_tcp_frame.c   headers
 *     link_tcp_send.c    what goes out: words to the peer, beginnings of messages, and their rest
 *     link_tcp_recv.c    what comes in, and receives
 *     link_tcp_late.c    messages that came before their receive
 *     link_tcp_peer.c    connections: how they come, and how they end
 *     link_tcp_evidence.c is the way to a peer broken?
 *     link_tcp_address.c endpoint addresses; who is dialled where
 *     link_tcp_reach.c   why a peer has not been reached, in words */
#ifndef GF_LINK_TCP_STATE_H
#define GF_LINK_TCP_STATE_H

#include <sys/uio.h>

#include "drivers/devices.h"
#include "drivers/forked.h"
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
    (64u << 10) /* so much of a larger one leaves before its receive is known to be posted */
#define TCP_IN_BYTES 8192u            /* what is read together with a header */
#define TCP_OUT_BYTES 8192u           /* headers, and payloads that are copied behind theirs */
#define TCP_COPY_BYTES_MAX 4096u      /* of such a payload */
#define TCP_SCRATCH_BYTES (64u << 10) /* where what nobody wants is read to */
#define TCP_BATCH_FRAMES_MAX 16u      /* that leave by one call of the kernel .. */
#define TCP_BATCH_BYTES (512u << 10)  /* .. and no more once there are so many bytes: peers.md */
#define TCP_OUT_PARTS_MAX (2 * TCP_BATCH_FRAMES_MAX + 1)
#define TCP_SHARE_BYTES (64u << 10)    /* by which a stream may be ahead of another .. */
#define TCP_SHARE_BYTES_MIN (8u << 10) /* .. at the end of a message */
#define TCP_TURN_BYTES (1u << 20)      /* that one call writes, or reads, on one stream */
#define TCP_PARTS_MAX 16               /* of memory, in one call of the kernel */
#define TCP_GONE_NS \
    UINT64_C(1000000000)       /* a connection that ended is told so much later: link_tcp_peer.c */
#define TCP_PACKET_BYTES 1200u /* passes any network, with its headers */
#define TCP_PACKET_BYTES_MAX 9000u /* of Ethernet's largest frames */
#define TCP_NONE UINT32_MAX

struct gf_tcp_link;
struct gf_tcp_peer;

typedef enum gf_tcp_phase {
    TCP_SEND_QUEUED,  /* in peer.queued: nothing of it has left */
    TCP_SEND_WAITING, /* in peer.waiting: it was begun or announced, the rest waits for READY */
    TCP_SEND_SENDING, /* in peer.sending: it may leave */
    TCP_SEND_LEAVING, /* in no list: its last bytes are in a stream's hands */
    TCP_RECV_POSTED,  /* in peer.receives, as all that follow: nothing of it is here */
    TCP_RECV_BEGUN,   /* its memory is being written */
    TCP_RECV_BOUND,   /* in no list: its message is a late one that is still arriving */
    TCP_RECV_REVOKED  /* in no list: cancelled, and UNREADY has still to leave */
} gf_tcp_phase;

struct gf_req {
    struct gf_req_head head;
    struct gf_tcp_link *link;
    struct gf_req *older, *newer;   /* in link.oldest, until it has ended */
    struct gf_req *next, *previous; /* in a list of its peer */
    struct gf_req *tell_next;       /* in peer.tells */
    unsigned char *data;
    uint64_t tag;
    uint32_t peer;
    uint32_t size;
    uint32_t
        number; /* of the receive: told to the peer (receives), or told by it (sends); 0: none */
    uint32_t given; /* bytes of it that frames were made for (sends), or announced (receives) */
    uint32_t done;  /* .. that are the kernel's, or here */
    gf_tcp_phase phase;
    bool is_send;
    bool began;      /* BEGIN or WANT was made for it (sends), or came (receives) */
    bool telling;    /* it is in peer.tells */
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
struct gf_tcp_late {
    struct gf_req *req; /* posted meanwhile: TCP_RECV_BOUND */
    uint64_t tag;
    uint32_t size;
    uint32_t bytes; /* of it that came by credit */
    uint32_t block; /* the first of a chain, TCP_NONE: it was announced alone */
    uint32_t next;  /* in peer.late_first, or among the free; TCP_NONE: the last */
    bool here;      /* those bytes have arrived */
};

typedef enum gf_tcp_target { TCP_TO_NOBODY, TCP_TO_REQUEST, TCP_TO_LATE } gf_tcp_target;

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
    struct gf_addr there;    /* its other end: a socket that has failed no longer knows it */
    uint64_t more_bytes;     /* of large messages that it took, in this generation */
    uint64_t written;        /* bytes that the kernel took */
    uint64_t large_at;       /* .. before it took more at once than ever before, and */
    uint32_t largest;        /* .. how many that were; above a packet's size it is left at that */
    uint32_t posted_turn;    /* link.turn in which a post wrote here */
    bool listed;             /* it is in link.ready */
    bool readable, writable; /* as far as is known: the kernel has not said otherwise since */
    bool hung_up;            /* the other end will send no more: it is read to its end */

    /* Out: a batch of frames, whose headers lie in out[]. */
    struct iovec parts[TCP_OUT_PARTS_MAX];
    uint32_t part_at, part_count; /* those from part_at on are still to leave */
    struct gf_tcp_sent sent[TCP_BATCH_FRAMES_MAX];
    uint32_t sent_at, sent_count;
    uint32_t out_end;
    uint32_t batch_bytes, batch_done; /* of it, with all payloads; that the kernel has */

    /* In: in[in_at..in_end) was read and not looked at yet. */
    uint32_t in_at, in_end;
    bool in_payload;
    gf_tcp_target target;
    struct gf_tcp_head head; /* of the frame under way */
    uint32_t left;           /* of its payload */
    uint32_t checksum;       /* .. of what has come of it */
    struct gf_req *receives;
    uint32_t late;            /* TCP_TO_LATE: the entry, and .. */
    uint32_t block, block_at; /* .. where in its chain the next byte goes */

    unsigned char out[TCP_OUT_BYTES];
    unsigned char in[TCP_IN_BYTES];
};

struct gf_tcp_peer {
    struct gf_tcp_link *link;
    uint32_t id;
    uint32_t open_count;  /* streams that were adopted */
    uint64_t met_ns;      /* since then it is to be reached by connections; 0: it is not */
    bool greeted;         /* its HELLO came */
    bool greets;          /* ours is to leave */
    bool ended, notified; /* a connection ended; its requests have failed */
    uint64_t ended_ns;
    int ended_error;     /* errno, or 0: closed there, or bytes that broke a rule */
    uint32_t addr_count; /* since met_ns: where it is dialled */
    struct gf_addr addrs[TCP_ADDRS_MAX];
    struct gf_tcp_stream *streams;

    struct gf_tcp_list queued, waiting, sending;
    uint32_t credit_blocks;   /* that it gave */
    uint32_t taken, returned; /* of them, since the connection stands, modulo 2^32 */
    struct gf_tcp_early *early;
    uint32_t early_count;

    struct gf_tcp_list receives;
    struct gf_req *tells, *tells_last; /* by tell_next: READY or UNREADY is to leave */
    uint32_t number;                   /* the last that a receive got */
    uint32_t used;                     /* blocks of our credit that it has taken, and .. */
    uint32_t given, given_sent;        /* that we gave back, and have said so; modulo 2^32 */
    struct gf_tcp_late *late;
    uint32_t late_first, late_last, late_free;
    uint32_t *chain; /* of blocks: the next one */
    uint32_t block_free;
    unsigned char *blocks;

    char text[200]; /* how it ended */
};

struct gf_tcp_link {
    struct gf_link link;
    struct gf_link_setup setup; /* streams and credit_bytes with what 0 stands for */
    struct gf_forked forked;
    bool is_open; /* false: it was dropped, or a reset failed and has said why */
    int epoll_fd; /* of all streams */
    /* link_tcp_address.c: connections come from here, and what peers must know to come */
    struct gf_data *data;
    struct gf_data_taker taker;
    bool data_due;             /* it is to be polled, */
    uint64_t data_ns;          /* and was last */
    char devices[GF_TEXT_MAX]; /* what of setup.devices is this rank's */
    bool descriptors_fit;      /* all peers that are to be reached by connections can have them */
    uint32_t addr_count;
    struct gf_addr addrs[TCP_ADDRS_MAX]; /* where this rank is dialled; from there it dials */
    struct gf_device_at addr_devices[TCP_ADDRS_MAX];
    unsigned char secret[GF_DATA_SECRET_BYTES];
    uint32_t unasked; /* reads without asking epoll first, since it was asked */
    uint32_t turn;    /* of progress() */
    uint32_t streams_open;
    uint32_t gone_count;  /* peers that have ended, and were not told */
    uint64_t gone_ns;     /* TCP_GONE_NS, or a test's */
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
 * so no frame goes back on which credit rides, and what has none is announced behind all that has:
 * a ring of four at 1 Gbit/s had 0.89 of the link. A receive of more tells READY when it is posted,
 * so both ends go by the credit that the receiver gave. */
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

/* link_tcp_address.c. Connections of this generation are taken from here on, or none. */
gf_status gf_tcp_network_take(struct gf_tcp_link *link);
void gf_tcp_network_give(struct gf_tcp_link *link);
/* What comes to the listener, and is dialled. */
gf_status gf_tcp_data_poll(struct gf_tcp_link *link, uint64_t now_ns);
gf_status gf_tcp_endpoint(struct gf_link *link, void *endpoint_out, size_t *size_bytes_out);
gf_status gf_tcp_connect(struct gf_link *link, uint32_t peer, const void *endpoint,
                         size_t size_bytes);

/* link_tcp_reach.c. A connection to it is still to come. True: what was tried has failed, and that
 * is said. */
bool gf_tcp_reach_failed(const struct gf_tcp_peer *peer, struct gf_fault *fault_out);

/* link_tcp.c. Its answer; it is in no list of its peer any more. */
void gf_tcp_req_end(struct gf_req *req, gf_status answer);
/* The stream is served at the next progress(). */
void gf_tcp_stream_list(struct gf_tcp_stream *stream);
/* The fault and the log line of a request that met a message of another size. */
void gf_tcp_mismatch(struct gf_req *req, uint32_t got_bytes);

/* link_tcp_send.c. True: something moved. Writes nothing once the peer has ended. */
bool gf_tcp_stream_write(struct gf_tcp_stream *stream);
/* Would it write something? */
bool gf_tcp_stream_has_work(const struct gf_tcp_stream *stream);
void gf_tcp_send_begin(struct gf_tcp_peer *peer, struct gf_req *req);
/* The peer's words. False: it has said more of them than it may. */
bool gf_tcp_ready_heard(struct gf_tcp_peer *peer, uint64_t tag, uint32_t number);
void gf_tcp_unready_heard(struct gf_tcp_peer *peer, uint64_t tag, uint32_t number);
bool gf_tcp_returned_heard(struct gf_tcp_peer *peer, uint32_t returned);

/* link_tcp_recv.c. True: something moved. */
bool gf_tcp_stream_read(struct gf_tcp_stream *stream);
void gf_tcp_recv_begin(struct gf_tcp_peer *peer, struct gf_req *req);
void gf_tcp_recv_cancel(struct gf_tcp_peer *peer, struct gf_req *req);
/* The receive gets a number, unless it has one, and READY leaves. */
void gf_tcp_recv_tell(struct gf_tcp_peer *peer, struct gf_req *req);

/* link_tcp_late.c. */
void gf_tcp_late_init(struct gf_tcp_peer *peer);
/* The oldest with this tag that no receive has yet; TCP_NONE: there is none. */
uint32_t gf_tcp_late_find(const struct gf_tcp_peer *peer, uint64_t tag);
/* A new one, with blocks for head->bytes of a BEGIN; TCP_NONE: the peer has announced more than it
 * may. */
uint32_t gf_tcp_late_add(struct gf_tcp_peer *peer, const struct gf_tcp_head *head);
/* Takes it off, and gives its credit back. */
void gf_tcp_late_drop(struct gf_tcp_peer *peer, uint32_t late);
/* Its connections have ended: what has not come whole will not come. */
void gf_tcp_late_keep_whole(struct gf_tcp_peer *peer);
/* Its bytes are here and have a receive: they go there, and the entry ends. */
void gf_tcp_late_deliver(struct gf_tcp_peer *peer, uint32_t late, struct gf_req *req);
void gf_tcp_credit_give(struct gf_tcp_peer *peer, uint32_t blocks);

/* link_tcp_peer.c. */
void gf_tcp_peer_init(struct gf_tcp_peer *peer);
/* All connections are closed; its requests are the caller's to end. */
void gf_tcp_peer_close(struct gf_tcp_peer *peer);
/* A connection ended, with errno or 0: nothing is written any more, what has arrived is still
 * read. */
void gf_tcp_stream_ended(struct gf_tcp_stream *stream, int error);
/* The peer broke a rule, or bytes were damaged: it ends at once, and the link has failed. */
__attribute__((format(printf, 2, 3))) void gf_tcp_violated(struct gf_tcp_stream *stream,
                                                           const char *format, ...);
/* Tells those that ended long enough ago. True: a request ended. */
bool gf_tcp_gone_tell(struct gf_tcp_link *link, uint64_t now_ns);
gf_status gf_tcp_peer_refuse(
    struct gf_tcp_peer *peer); /* what a post to one that has ended gives */
/* " (10.0.0.1:4000)", or nothing where it is no address of IP; both texts have `bytes`. */
void gf_tcp_ends_text(const struct gf_tcp_stream *stream, char *own_out, char *other_out,
                      size_t bytes);

/* link_tcp_evidence.c. gf_link_driver.edge_is_broken */
bool gf_tcp_edge_is_broken(struct gf_link *link, uint32_t peer, struct gf_fault *fault_out);

#endif
