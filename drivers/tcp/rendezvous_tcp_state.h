/* What rendezvous_tcp*.c share: the state of one rank.
 *
 * Rank 0 listens and has a connection slot for each other rank; every other rank has one slot, for
 * rank 0:
 *
 *     rank r   WAIT -> CONNECTING -> HELLO -> UP -> DOWN      WAIT again for as long as nobody
 *              answers
 *     rank 0   (a pending slot reads the hello, and the proof) -> UP -> DOWN
 *
 * Another rank may coordinate later (rendezvous_tcp_reform.c): each has listened for that since its
 * first connection stood. A hello that comes before a rank is the coordinator is held until it is,
 * so that strangers do not fill the kernel's queue in front of the ranks.
 *
 * A connection that has not said who it is gets one of a few pending slots, a buffer of one hello
 * and a deadline; the oldest of the address that holds most gives way. What is about them is in an
 * epoll of its own, served after the ranks' connections and for a bounded number of events a poll.
 * So strangers cost no more than that, however many they are. */
#ifndef GF_RENDEZVOUS_TCP_STATE_H
#define GF_RENDEZVOUS_TCP_STATE_H

#include "drivers/forked.h"
#include "drivers/tcp/rendezvous_frame.h"
#include "drivers/tcp/rendezvous_socket.h"

#define TCP_PENDING_MAX 16u
#define TCP_PENDING_NS UINT64_C(5000000000)
/* for so long a challenged connection does not give way */
#define TCP_CHALLENGED_NS UINT64_C(100000000)
#define TCP_RETRY_FIRST_NS UINT64_C(20000000)
#define TCP_RETRY_MAX_NS UINT64_C(200000000)
#define TCP_REJOIN_NS UINT64_C(2000000000) /* an answer to who comes back takes no longer */
/* who proved nothing and says nothing keeps a rank so long */
#define TCP_SILENT_NS UINT64_C(1000000000)
/* between two tries to listen at the job's address */
#define TCP_JOB_RETRY_NS UINT64_C(500000000)
#define TCP_HELLO_FRAME_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES)
#define TCP_HELLO_PROVEN_BYTES (TCP_HELLO_FRAME_BYTES - GF_AUTH_HELLO_BYTES)
/* who has proven nothing and is refused hears why: so many in TCP_REASONS_NS */
#define TCP_REASONS_MAX 16u
#define TCP_REASONS_NS UINT64_C(100000000)
#define TCP_STRANGERS_A_POLL 16 /* system events about connections that are nobody's yet */
/* frames that the kernel had no room for yet */
#define TCP_OUT_BYTES (4u * (GF_FRAME_BYTES_MAX + GF_AUTH_MAC_BYTES))

typedef enum conn_state {
    TCP_CONN_NONE = 0, /* rank 0: that rank was not here yet */
    TCP_CONN_WAIT,
    TCP_CONN_CONNECTING,
    TCP_CONN_HELLO,
    TCP_CONN_UP,
    TCP_CONN_DOWN
} conn_state;

/* What two ends have said to each other before either was believed: hello, challenge, and the
 * header of the proof. Each proof is over all that precedes it, so that no byte of it can be
 * changed or come from another connection. */
#define TCP_TALK_CHALLENGE_BYTES \
    (TCP_HELLO_FRAME_BYTES + GF_FRAME_HEADER_BYTES + GF_AUTH_NONCE_BYTES)
#define TCP_TALK_PROVEN_BYTES (TCP_TALK_CHALLENGE_BYTES + GF_FRAME_HEADER_BYTES)
#define TCP_TALK_BYTES (TCP_TALK_PROVEN_BYTES + GF_AUTH_PROOF_BYTES) /* with the proof itself */

struct conn {
    int fd;
    conn_state state;
    /* errno; sending failed: nothing is sent any more, what has arrived is still read */
    int broken;
    bool rejoins; /* it said that it was of the job before */
    /* its end, if it comes now, does not mean that the other process has ended */
    bool lives;
    bool waits_to_send; /* epoll is asked for room in the kernel */
    /* rank 0: neither a key nor the kernel says that it is one of this user's processes */
    bool unproven;
    bool heard;        /* a frame has come */
    uint64_t since_ns; /* rank 0: it connected */
    uint32_t in_bytes;
    uint32_t out_bytes;
    bool authenticated; /* every frame from here on ends with a MAC */
    struct gf_auth_mac mac_in;
    struct gf_auth_mac mac_out;
    unsigned char in[GF_FRAME_BYTES_MAX + GF_AUTH_MAC_BYTES];
    unsigned char out[TCP_OUT_BYTES];
};

struct pending {
    int fd;            /* -1: free */
    uint32_t in_bytes; /* of the frame under way */
    uint64_t since_ns;
    bool challenged;      /* its hello was good, its proof is awaited */
    bool held;            /* its hello is whole, and this rank is not the coordinator yet */
    bool data;            /* its hello is of a data connection */
    struct gf_place from; /* its address without a port, for the limits */
    unsigned char said[TCP_TALK_BYTES];
};

/* One data connection that this rank dials (rendezvous_data.c). */
#define TCP_DIALS_MAX 32u
/* a try without an answer; doubled each time */
#define TCP_DIAL_BOUND_FIRST_NS UINT64_C(1000000000)
#define TCP_DIAL_BOUND_MAX_NS UINT64_C(8000000000)
typedef enum dial_state {
    TCP_DIAL_FREE = 0,
    TCP_DIAL_WAIT,       /* the next try begins at at_ns */
    TCP_DIAL_CONNECTING, /* the try ends at at_ns, as below */
    TCP_DIAL_HELLO,      /* the acceptor's challenge is awaited */
    TCP_DIAL_PROOF       /* its answer */
} dial_state;

struct dial {
    dial_state state;
    int fd; /* -1: none */
    uint32_t peer;
    uint32_t stream;
    struct gf_place to;
    struct gf_place from;
    struct gf_auth auth;
    uint64_t at_ns;
    uint64_t bound_ns;
    uint64_t retry_ns;
    uint32_t in_bytes;
    char text[96]; /* why the last try came to nothing */
    unsigned char said[TCP_TALK_BYTES];
    unsigned char in[GF_FRAME_HEADER_BYTES + GF_FRAME_ANSWER_BYTES];
};

struct tcp_data {
    bool on;
    uint32_t epoch;
    struct gf_auth auth; /* of whoever dials this rank */
    const struct gf_data_taker *taker;
    struct dial dials[TCP_DIALS_MAX];
};

struct tcp {
    struct gf_rendezvous base;
    struct gf_forked forked;
    struct gf_rendezvous_setup setup; /* its texts were the caller's during open() */
    struct gf_auth auth;
    unsigned char said[TCP_TALK_BYTES]; /* the other ranks, with rank 0 */
    uint32_t coordinator;               /* rank that coordinates */
    /* on its way back into the job: which rank is the coordinator is seen from its answer */
    bool rejoins;
    /* it is not the first one: who refuses a connection is gone, deadlines are lib/'s */
    bool reformed;
    bool refused;                            /* an ENDED about the coordinator is to be told */
    bool listens;                            /* listen_fd is looked at */
    char own_text[GF_CONTROL_ADDRESS_BYTES]; /* where this rank listens; empty: nowhere */
    char address_text[GF_TEXT_MAX];
    char text[240]; /* of the event handed out last */

    int epoll_fd;     /* -1: a world of one opens nothing */
    int strangers_fd; /* the epoll of listeners and pending connections, which epoll_fd watches */
    bool same_user;   /* who has no key to prove is on this host and of this user */
    int listen_fd;    /* rank 0; others: once they have been connected */
    struct pending pending[TCP_PENDING_MAX];
    uint32_t strangers; /* connections rejected or dropped, for the log */
    uint32_t reasons;   /* of those that were told why, since .. */
    uint64_t reasons_since_ns;

    struct gf_place to; /* the other ranks */
    struct gf_place bind_to;
    /* where listen_fd of a rank other than 0 may be; 0: anywhere */
    unsigned port_first, port_last;
    struct gf_place job_address; /* the job's address, where rank 0 listens at first */
    int job_fd;                  /* a later coordinator listens there too, once it can */
    uint64_t job_retry_ns;
    uint64_t began_ns; /* of the try under way */
    uint64_t opened_ns;
    uint64_t retry_at_ns;
    uint64_t retry_ns;
    uint32_t tries;
    int tried_errno; /* why the last try came to nothing; EBUSY: rank 0 said `not_now` */
    char not_now[GF_FRAME_REASON_BYTES];

    struct tcp_data data;

    uint32_t conn_count;
    struct conn conns[]; /* [world], or none */
};

static inline bool tcp_is_coordinator(const struct tcp *tcp)
{
    return tcp->setup.rank == tcp->coordinator;
}
/* Connections lie by rank. */
static inline uint32_t tcp_rank_of(const struct tcp *tcp, const struct conn *conn)
{
    return (uint32_t)(conn - tcp->conns);
}
struct conn *gf_tcp_way(struct tcp *tcp); /* to the coordinator */

/* What an epoll event is about. */
#define TCP_ABOUT_LISTEN UINT32_MAX
#define TCP_ABOUT_JOB (UINT32_MAX - 1u)
/* | slot; this bit: of strangers_fd. Else the index of a connection */
#define TCP_ABOUT_PENDING (1u << 31)
#define TCP_ABOUT_STRANGERS (1u << 30) /* strangers_fd itself */
#define TCP_ABOUT_DIAL (1u << 29)      /* | slot */

gf_status gf_tcp_epoll_set(struct tcp *tcp, int operation, int fd, uint32_t about, uint32_t events);

/* rendezvous_tcp_conn.c: one connection. because: gives status, and tcp->text why. */
__attribute__((format(printf, 3, 4))) gf_status gf_tcp_because(struct tcp *tcp, gf_status status,
                                                               const char *format, ...);
/* the channel, for what tcp->text says of rank 0 */
gf_status gf_tcp_failed(struct tcp *tcp, gf_status status);
bool gf_tcp_conn_frame_put(struct tcp *tcp, struct conn *conn, uint32_t kind, const void *payload,
                           uint32_t bytes);
/* [GF_FRAME_ANSWER_BYTES] */
void gf_tcp_answer_put(unsigned char *payload_out, gf_status code, const char *reason);
bool gf_tcp_conn_answer(struct tcp *tcp, struct conn *conn, gf_status code, const char *reason);
void gf_tcp_conn_flush(struct tcp *tcp, struct conn *conn);
/* GF_OK: a whole frame is in conn->in and *header_out; GF_AGAIN: not yet; GF_ERR_PEER: the end,
 * tcp->text says how. */
gf_status gf_tcp_conn_read(struct tcp *tcp, struct conn *conn, struct gf_frame_header *header_out);
void gf_tcp_conn_close(struct conn *conn);
void gf_tcp_conn_init(struct conn *conn, conn_state state);

/* rendezvous_tcp_connect.c: the way to the coordinator. answer_read: GF_OK: come in; GF_AGAIN: not
 * yet, or to be tried again; else tcp->text has why. */
void gf_tcp_connect_wait(struct tcp *tcp, uint64_t now_ns);
void gf_tcp_connect_again(struct tcp *tcp, uint64_t now_ns, int error);
void gf_tcp_connect_begin(struct tcp *tcp, uint64_t now_ns);
void gf_tcp_connect_end(struct tcp *tcp, uint64_t now_ns);
void gf_tcp_hello_put(struct tcp *tcp); /* to tcp->said */
gf_status gf_tcp_answer_read(struct tcp *tcp, uint64_t now_ns);
void gf_tcp_answer_take_back(struct tcp *tcp, uint64_t now_ns); /* a later one is in conn->in */
gf_status gf_tcp_connect_deadline(struct tcp *tcp, uint64_t now_ns); /* GF_AGAIN before it */

/* rendezvous_tcp_accept.c: rank 0 and those who rejoin. */
/* GF_OK from these: *event_out says who came in, or who of this job was refused. */
gf_status gf_tcp_accept(struct tcp *tcp, int listen_fd, uint64_t now_ns,
                        struct gf_rendezvous_event *event_out);
gf_status gf_tcp_hello_meet(struct tcp *tcp, struct pending *pending,
                            struct gf_rendezvous_event *event_out);
void gf_tcp_pending_drop(struct pending *pending);
struct gf_frame_hello gf_tcp_hello_get(const unsigned char *frame);
gf_status gf_tcp_pending_read(struct tcp *tcp, uint32_t slot,
                              struct gf_rendezvous_event *event_out);
void gf_tcp_pending_expire(struct tcp *tcp, uint64_t now_ns);

bool gf_tcp_reject(struct gf_rendezvous *rendezvous, uint32_t rank, const char *reason);
void gf_tcp_joined(struct gf_rendezvous *rendezvous);

struct gf_place gf_tcp_job_address(const struct tcp *tcp); /* of this host, for the job's address */

/* rendezvous_tcp_reform.c: another rank coordinates. */
/* fd: a connection that stands, from our own address */
void gf_tcp_listen(struct tcp *tcp, int fd);
/* The same from an address of our own that is known already. */
gf_status gf_tcp_listen_at(struct tcp *tcp, const struct gf_place *own, struct gf_fault *fault_out);
/* At each poll; GF_OK: *event_out is of a hello that came before this rank was the coordinator. */
gf_status gf_tcp_held_poll(struct tcp *tcp, uint64_t now_ns, struct gf_rendezvous_event *event_out);
bool gf_tcp_hold(const struct tcp *tcp, const struct pending *pending); /* this hello until then */
void gf_tcp_rejoin_begin(struct tcp *tcp, uint64_t now_ns);
/* Its answer has come from rank `coordinator`: the connection is where it belongs; false: there is
 * no such rank. */
bool gf_tcp_rejoin_end(struct tcp *tcp, uint32_t coordinator);
gf_status gf_tcp_reform(struct tcp *tcp, uint64_t now_ns, uint32_t coordinator,
                        const char *address);

/* rendezvous_tcp_auth.c: the words between hello and answer, where the job has a key. */
/* Rank 0, for a hello that is whole. send: false: the connection has no room for it. */
bool gf_tcp_challenge_send(struct tcp *tcp, struct pending *pending);
bool gf_tcp_hello_fits(const struct tcp *tcp, const struct pending *pending);
/* Rank 0, for a proof that is whole. */
bool gf_tcp_proof_fits(const struct tcp *tcp, const struct pending *pending);
/* What rank 0 says after its challenge is authenticated: the keys of a challenged connection. */
void gf_tcp_pending_macs(const struct tcp *tcp, const struct pending *pending,
                         struct gf_auth_mac *to_rank_out, struct gf_auth_mac *to_coordinator_out);
/* The other ranks: for the hello in tcp->said, and for a challenge that is whole in conn->in. */
void gf_tcp_hello_prove(struct tcp *tcp);
gf_status gf_tcp_challenge_take(struct tcp *tcp, struct conn *conn);
/* The same for who dials a data connection: said[TCP_TALK_BYTES] and the challenge's frame. */
void gf_tcp_talk_hello_prove(const struct gf_auth *auth, unsigned char *said);
bool gf_tcp_talk_challenge_take(const struct tcp *tcp, const struct gf_auth *auth,
                                const unsigned char *in, unsigned char *said);

/* rendezvous_data.c: data connections. meet, proven: of a pending one whose hello, whose proof is
 * whole; it may be dropped. */
void gf_tcp_data_meet(struct tcp *tcp, struct pending *pending);
void gf_tcp_data_proven(struct tcp *tcp, struct pending *pending);
void gf_tcp_data_event(struct tcp *tcp, uint32_t slot, uint64_t now_ns);
void gf_tcp_data_poll(struct tcp *tcp, uint64_t now_ns);
gf_status gf_tcp_data_begin(struct gf_rendezvous *rendezvous, uint32_t epoch,
                            const struct gf_data_taker *taker, unsigned char *secret_out,
                            struct gf_place *place_out);
gf_status gf_tcp_data_dial(struct gf_rendezvous *rendezvous, uint64_t now_ns, uint32_t peer,
                           uint32_t stream, const unsigned char *secret, const struct gf_place *to,
                           const struct gf_place *from);
const char *gf_tcp_data_text(struct gf_rendezvous *rendezvous, uint32_t peer);
void gf_tcp_data_end(struct gf_rendezvous *rendezvous);

/* rendezvous_tcp_accept.c. Drops a pending connection, and says so. */
void gf_tcp_stranger_drop(struct tcp *tcp, struct pending *pending, gf_log_level level,
                          const char *what);

#endif
