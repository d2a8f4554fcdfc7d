/* What rendezvous_*.c share: the state of one rank.
 *
 * One handshake, for connections of the control channel and of a link. Who accepts speaks first,
 * with a nonce that is new for each connection, so that a hello that was heard before fits no
 * other:
 *
 *     who accepts                                  who dials
 *     NONCE   a new one                         ->
 *                                               <- HELLO   who it is, a nonce, the proof
 *     ANSWER  come in; with a MAC               ->
 *       or REFUSAL  why not                     ->
 *       or ELSEWHERE  who coordinates is there  ->
 *
 * The proof is a keyed hash of all that was said before it. Its key is that of the job; of a data
 * connection it is made from that and from the acceptor's secret (rendezvous_data.c). MACs have keys
 * from all of NONCE and HELLO, so that the ANSWER proves who accepts. Without a key there is no
 * proof and no MAC: then the kernel says whose process the other end is, or the job is insecure.
 *
 * Who dials (rendezvous_way.c): a way to a rank has a few tries.
 *
 *     a try    FREE -> CONNECTING -> NONCE -> ANSWER -> the connection is the way's; the other
 *                                                       tries end
 *
 * One that says nothing for a while stays open, and the next begins beside it; the last ones give
 * way to later ones. Whatever comes that is no handshake ends that try alone. So silence proves
 * nothing, and costs nothing either.
 *
 * Who accepts (rendezvous_tcp_accept.c): a connection that has not proven who it is has a pending
 * slot and one hello's room.
 *
 *     a slot   free -> NONCE sent -> [held] -> the rank's connection, or the link's
 *
 * Slots are shared among source addresses: where none is free, the oldest connection of the address
 * that has most gives way. None is closed because time has passed. What is about them is in an epoll
 * of its own, served after the ranks' connections and for a bounded number of events a poll. So
 * strangers cost no more than that, however many they are.
 *
 * The coordinator, rank 0 at first, has a connection for each other rank; every other rank has one,
 * to the coordinator:
 *
 *     NONE -> UP -> DOWN
 *
 * Another rank may coordinate later (rendezvous_tcp_reform.c): each has listened for that since its
 * first connection stood. A hello that comes before a rank is the coordinator is held until it is,
 * so that strangers do not fill the kernel's queue in front of the ranks. Who comes back, though, is
 * sent on as soon as this rank's own connection to the coordinator stands: what listens at the
 * job's address may be any member. It asks there as well as at the job's address, until either lets
 * it in.
 *
 * A job of one user of one host (a loopback address, neither a key nor `insecure`) does this at
 * abstract unix sockets instead of ports: the kernel says at both ends whose the other is. Ranks that
 * differ in key or `insecure` would not meet there, so a rank that finds nobody also knocks where the
 * others would be (GF_HELLO_ASIDE). It is never let in; what it hears is told at the deadline. */
#ifndef GF_RENDEZVOUS_TCP_STATE_H
#define GF_RENDEZVOUS_TCP_STATE_H

#include "drivers/forked.h"
#include "drivers/tcp/rendezvous_frame.h"
#include "drivers/tcp/rendezvous_socket.h"

#define TCP_RETRY_FIRST_NS UINT64_C(20000000)
#define TCP_RETRY_MAX_NS UINT64_C(200000000)
/* a try that says nothing; doubled each time */
#define TCP_BOUND_FIRST_NS UINT64_C(200000000)
#define TCP_BOUND_MAX_NS UINT64_C(3200000000)
/* in a view change: no try has got as far as the other host's kernel */
#define TCP_UNREACHED_NS UINT64_C(2000000000)
/* .. or it has, and nothing was said there: what polls says NONCE at once */
#define TCP_UNHEARD_NS UINT64_C(1000000000)
/* who proved nothing and says nothing keeps a rank so long */
#define TCP_SILENT_NS UINT64_C(1000000000)
/* nobody was met: from here on the other place is asked, too */
#define TCP_ASIDE_NS UINT64_C(500000000)
/* between two tries to listen at the job's address */
#define TCP_JOB_RETRY_NS UINT64_C(500000000)
/* who has proven nothing and is refused hears why: so many in TCP_REASONS_NS */
#define TCP_REASONS_MAX 16u
#define TCP_REASONS_NS UINT64_C(100000000)
/* system events about connections that are nobody's yet: each has two, and so 16 are looked at */
#define TCP_STRANGERS_A_POLL 32
#define TCP_PENDING_SPARE 64u /* slots beside one for each rank */
#define TCP_FILES_SPARE 128u  /* descriptors that strangers leave to the process */
#define TCP_FILES_LEAST \
    13u /* what a rank that does not coordinate opens, the program's three too */
/* frames that the kernel had no room for yet */
#define TCP_OUT_BYTES (4u * (GF_FRAME_BYTES_MAX + GF_AUTH_MAC_BYTES))

/* What two ends say to each other before either is believed, in a row. */
#define TCP_NONCE_FRAME_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_NONCE_BYTES)
#define TCP_HELLO_FRAME_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES)
#define TCP_TALK_BYTES (TCP_NONCE_FRAME_BYTES + TCP_HELLO_FRAME_BYTES)
#define TCP_TALK_PROVEN_BYTES (TCP_TALK_BYTES - GF_AUTH_PROOF_BYTES)

typedef enum conn_state {
    TCP_CONN_NONE = 0, /* that rank was not here yet */
    TCP_CONN_UP,
    TCP_CONN_DOWN
} conn_state;

struct conn {
    int fd;
    conn_state state;
    /* errno; sending failed: nothing is sent any more, what has arrived is still read */
    int broken;
    bool rejoins;          /* it said that it was of the job before */
    gf_rendezvous_end end; /* what its end says of the other process, if it comes now */
    bool waits_to_send;    /* epoll is asked for room in the kernel */
    /* rank 0: neither a key nor the kernel says that it is one of this user's processes */
    bool unproven;
    bool heard;        /* a frame has come */
    uint64_t since_ns; /* rank 0: it connected */
    uint32_t in_bytes;
    uint32_t out_bytes;
    bool authenticated; /* every frame from here on ends with a MAC */
    struct gf_auth_mac mac_in;
    struct gf_auth_mac mac_out;
    unsigned char nonce[GF_AUTH_NONCE_BYTES]; /* of its hello: its way's other tries have it too */
    unsigned char in[GF_FRAME_BYTES_MAX + GF_AUTH_MAC_BYTES];
    unsigned char out[TCP_OUT_BYTES];
};

/* ---- who dials ---- */

typedef enum try_state {
    TCP_TRY_FREE = 0,
    TCP_TRY_CONNECTING,
    TCP_TRY_NONCE, /* .. is awaited */
    TCP_TRY_ANSWER /* .. is awaited, the hello is said */
} try_state;

struct
try {
    try_state state;
    int fd; /* -1: none */
    uint64_t began_ns;
    uint32_t in_bytes;
    unsigned char said[TCP_TALK_BYTES];
    unsigned char in[GF_FRAME_HEADER_BYTES + GF_FRAME_REFUSAL_BYTES];
};

/* What a poll of a way, or an event at one of its tries, has come to. */
typedef enum way_news {
    TCP_WAY_NOTHING = 0,
    TCP_WAY_IN,      /* `fd` is a connection that the acceptor takes; the caller's. It is closed */
    TCP_WAY_REFUSED, /* what listens there says `text`, and why by `code` */
    TCP_WAY_ELSEWHERE, /* .. it does not coordinate, who does is reached at the address `text` */
    TCP_WAY_STRANGER,  /* what listens there is not whom we look for: `text` */
    TCP_WAY_ENDED      /* a try ended by `error`, an errno: `text` */
} way_news;

#define TCP_TRIES_MAX 4u
struct way {
    bool on;
    uint32_t kind;    /* GF_FRAME_HELLO or GF_FRAME_DATA_HELLO */
    uint32_t to_rank; /* GF_RANK_NONE: whoever listens there */
    uint32_t words[4];
    struct gf_place to;
    struct gf_place from;
    uint32_t device; /* to which it is bound, beside `from`; 0: to none (rendezvous_device.c) */
    char name[GF_SOCKET_NAME_BYTES]; /* in place of both; empty: none */
    struct gf_auth auth;
    unsigned char nonce[GF_AUTH_NONCE_BYTES]; /* the same in all tries, which shows that they are */
    bool reached;                             /* a connection has stood */
    bool heard;                               /* NONCE has come: what listens there polls */
    uint64_t began_ns;
    uint64_t reached_ns;
    uint64_t next_ns; /* the next try begins */
    uint64_t retry_ns;
    uint64_t bound_ns;
    uint32_t tried;
    struct try tries[TCP_TRIES_MAX];
    /* of the last news */
    int error;
    int kernel_error; /* .. of the last try that the kernel ended; 0: of none yet */
    gf_status code;
    char text[GF_FRAME_REASON_BYTES];
    /* TCP_WAY_IN */
    int fd;
    uint32_t from_rank;
    struct gf_auth_mac mac_in;
    struct gf_auth_mac mac_out;
};

/* ---- who accepts ---- */

/* Where pending connections are from. */
struct source {
    struct gf_place place; /* without a port; of a unix socket none */
    uint32_t held;         /* slots; 0: this one is free */
};

struct pending {
    int fd;            /* -1: free */
    uint32_t in_bytes; /* of the hello */
    uint32_t source;
    uint64_t number; /* of all that were accepted */
    uint64_t since_ns;
    bool by_name; /* it came over a unix socket, and is of this user */
    bool held;    /* its hello is good, and this rank is not the coordinator yet */
    unsigned char said[TCP_TALK_BYTES];
};

/* ---- data connections ---- */

#define TCP_DIALS_MAX 32u
struct tcp_data {
    bool on;
    uint32_t epoch;
    struct gf_auth auth;  /* of whoever dials this rank */
    uint32_t device_told; /* rendezvous_device.c has warned of this or less; 0: of nothing */
    uint64_t lacked_ns;   /* base.lacks was set last */
    const struct gf_data_taker *taker;
    struct way dials[TCP_DIALS_MAX];
};

struct tcp {
    struct gf_rendezvous base;
    struct gf_forked forked;
    struct gf_rendezvous_setup setup; /* its texts were the caller's during open() */
    struct gf_auth auth;
    struct gf_auth_source source;
    bool by_name;                                    /* the job meets at abstract unix sockets */
    uint32_t coordinator;                            /* rank that coordinates */
    char coordinator_text[GF_CONTROL_ADDRESS_BYTES]; /* where this rank met it */
    /* on its way back into the job: which rank is the coordinator is seen from its answer */
    bool rejoins;
    char sent_on[GF_CONTROL_ADDRESS_BYTES]; /* .. where a member said that it is; or empty */
    /* it is not the first one: who refuses a connection is gone, deadlines are lib/'s */
    bool reformed;
    bool listens;                            /* listen_fd is looked at */
    char own_text[GF_CONTROL_ADDRESS_BYTES]; /* where this rank listens; empty: nowhere */
    char address_text[GF_TEXT_MAX];
    char text[240]; /* of the event handed out last */

    int epoll_fd;     /* -1: a world of one opens nothing */
    int strangers_fd; /* the epoll of listeners and pending connections, which epoll_fd watches */
    int listen_fd;    /* rank 0; others: once they have been connected */
    int data_fd;      /* a port for data connections alone, where listen_fd has a name */
    int device_fds[GF_DATA_PLACES_MAX]; /* the same port at other addresses */
    struct pending *pending;
    struct source *sources;
    uint32_t pending_count;
    uint32_t fd_most;       /* a descriptor of this number or a higher one: few are left */
    uint64_t rest_until_ns; /* none was left for a stranger: nobody is let in before; 0: not so */
    uint64_t accepted;
    uint32_t strangers; /* connections rejected or dropped, for the log */
    uint32_t reasons;   /* of those that were told why, since .. */
    uint64_t reasons_since_ns;

    struct gf_place bind_to;
    /* where listen_fd of a rank other than 0 may be; 0: anywhere */
    unsigned port_first, port_last;
    struct gf_place job_address; /* the job's address, where rank 0 listens at first */
    int job_fd;                  /* after rank 0 others listen there too, one of each host */
    uint64_t job_retry_ns;
    uint64_t opened_ns;
    struct way way; /* to the coordinator */
    /* in the first join to a rank 0 of the other kind; of a rank that rejoins to sent_on */
    struct way aside;
    char other_job[GF_SOCKET_NAME_BYTES];   /* the id of another job at this address; or empty */
    bool others_looked_for;                 /* once, as long as that one may be there */
    char aside_text[GF_FRAME_REASON_BYTES]; /* what that one said; or empty */
    char not_now[GF_FRAME_REASON_BYTES];    /* what it was refused with last, for now; or empty */

    struct tcp_data data;

    uint32_t conn_count;
    struct conn conns[]; /* [world], or none; pending[] and sources[] follow */
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
/* Anybody can say a hello that fits. */
static inline bool tcp_is_open(const struct tcp *tcp)
{
    return !tcp->auth.on && !tcp->by_name;
}

/* What an epoll event is about: the index of a connection, or one of these. */
#define TCP_ABOUT_PENDING (1u << 31)   /* | slot; this bit: of strangers_fd */
#define TCP_ABOUT_LISTENER (3u << 30)  /* | descriptor */
#define TCP_ABOUT_STRANGERS (1u << 30) /* strangers_fd itself */
#define TCP_ABOUT_TRY (1u << 29)       /* | way * TCP_TRIES_MAX | slot; way 0: to the coordinator */
#define TCP_WAY_ASIDE (1u + TCP_DIALS_MAX) /* that way; the dials are those between */

/* Is there something for the caller of poll()? */
typedef enum tcp_told {
    TCP_TOLD_NOTHING = 0,
    TCP_TOLD_EVENT /* in *event_out */
} tcp_told;

gf_status gf_tcp_epoll_set(struct tcp *tcp, int operation, int fd, uint32_t about, uint32_t events);
/* the connection has ended */
tcp_told gf_tcp_ended(struct tcp *tcp, struct conn *conn, gf_rendezvous_end end,
                      struct gf_rendezvous_event *event_out);

/* rendezvous_tcp_conn.c: one connection. because: gives status, and tcp->text why. */
__attribute__((format(printf, 3, 4))) gf_status gf_tcp_because(struct tcp *tcp, gf_status status,
                                                               const char *format, ...);
/* the channel, for what tcp->text says of rank 0 */
gf_status gf_tcp_failed(struct tcp *tcp, gf_status status);
bool gf_tcp_conn_frame_put(struct tcp *tcp, struct conn *conn, uint32_t kind, const void *payload,
                           uint32_t bytes);
void gf_tcp_conn_flush(struct tcp *tcp, struct conn *conn);
/* GF_OK: a whole frame is in conn->in and *header_out; GF_AGAIN: not yet; GF_ERR_PEER: the end,
 * tcp->text says how. */
gf_status gf_tcp_conn_read(struct tcp *tcp, struct conn *conn, struct gf_frame_header *header_out);
void gf_tcp_conn_close(struct conn *conn);
void gf_tcp_conn_init(struct conn *conn, conn_state state);
/* fd: of rank `rank`, from here on; false: it is closed */
bool gf_tcp_conn_up(struct tcp *tcp, uint32_t rank, int fd, const struct gf_auth_mac *mac_in,
                    const struct gf_auth_mac *mac_out);

/* rendezvous_talk.c: the words of the handshake. said[TCP_TALK_BYTES] */
void gf_talk_nonce_put(struct tcp *tcp, unsigned char *said);
void gf_talk_hello_put(const struct tcp *tcp, const struct way *way, unsigned char *said);
struct gf_frame_header gf_talk_header(const unsigned char *said); /* the hello's */
struct gf_frame_hello gf_talk_hello(const unsigned char *said);
const unsigned char *gf_talk_nonce(const unsigned char *said);
bool gf_talk_proof_fits(const struct gf_auth *auth, const unsigned char *said);
void gf_talk_macs(const struct gf_auth *auth, const unsigned char *said,
                  struct gf_auth_mac *to_dialler_out, struct gf_auth_mac *to_acceptor_out);
#define TCP_ANSWER_BYTES_MAX (GF_FRAME_HEADER_BYTES + GF_AUTH_MAC_BYTES)
/* A frame without payload, with its MAC if authenticated; its size. */
size_t gf_talk_frame_put(const struct tcp *tcp, uint32_t kind, bool authenticated,
                         struct gf_auth_mac *MAC, unsigned char *out);
#define TCP_REFUSAL_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_REFUSAL_BYTES)
void gf_talk_refusal_put(const struct tcp *tcp, gf_status code, const char *reason,
                         unsigned char *out);
#define TCP_ELSEWHERE_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_ELSEWHERE_BYTES)
void gf_talk_elsewhere_put(const struct tcp *tcp, const char *address, unsigned char *out);
void gf_talk_elsewhere_get(const unsigned char *payload,
                           char address_out[GF_CONTROL_ADDRESS_BYTES]);
/* payload: of a refusal. Gives its code. */
gf_status gf_talk_refusal_get(const unsigned char *payload, char reason_out[GF_FRAME_REASON_BYTES]);

/* rendezvous_way.c: who dials. begin: what is set beside `on`, `nonce` and what follows it stays. */
void gf_way_begin(struct tcp *tcp, struct way *way, uint64_t now_ns);
way_news gf_way_poll(struct tcp *tcp, struct way *way, uint64_t now_ns);
way_news gf_way_event(struct tcp *tcp, struct way *way, uint32_t slot, uint64_t now_ns);
/* All tries end; an acceptor that may take one hears that this rank lives. */
void gf_way_close(const struct tcp *tcp, struct way *way);

/* rendezvous_tcp_connect.c: the way to the coordinator. */
/* text: IP:port, or where the job meets by name @name */
bool gf_tcp_address_fits(const struct tcp *tcp, const char *text);
void gf_tcp_connect_to(struct tcp *tcp, uint32_t rank, const char *text, uint64_t now_ns);
/* At each poll, and for an event at a try. */
tcp_told gf_tcp_connect_poll(struct tcp *tcp, uint64_t now_ns,
                             struct gf_rendezvous_event *event_out);
tcp_told gf_tcp_connect_event(struct tcp *tcp, uint32_t slot, uint64_t now_ns,
                              struct gf_rendezvous_event *event_out);
tcp_told gf_tcp_aside_event(struct tcp *tcp, uint32_t slot, uint64_t now_ns,
                            struct gf_rendezvous_event *event_out);
/* after all events of a poll: the first join's, in base.fault */
void gf_tcp_connect_deadline(struct tcp *tcp, uint64_t now_ns);
/* a refusal is in conn->in of a connection that stood */
void gf_tcp_connect_taken_back(struct tcp *tcp, struct conn *conn, uint64_t now_ns);

/* rendezvous_tcp.c: no descriptor is left for a stranger; nobody is let in for a while. */
void gf_tcp_strangers_rest(struct tcp *tcp, uint64_t now_ns);

/* rendezvous_tcp_accept.c */
tcp_told gf_tcp_accept(struct tcp *tcp, int listen_fd, uint64_t now_ns,
                       struct gf_rendezvous_event *event_out);
tcp_told gf_tcp_hello_take(struct tcp *tcp, struct pending *pending,
                           struct gf_rendezvous_event *event_out);
/* Who does not coordinate, of a hello that is whole: it is held, or hears where that one is. */
void gf_tcp_hello_hold(struct tcp *tcp, struct pending *pending);
tcp_told gf_tcp_pending_read(struct tcp *tcp, uint32_t slot, struct gf_rendezvous_event *event_out);
/* It is nobody's: closed; keep: whose it is has it now. */
void gf_tcp_pending_drop(struct tcp *tcp, struct pending *pending);
int gf_tcp_pending_keep(struct tcp *tcp, struct pending *pending);
void gf_tcp_stranger_drop(struct tcp *tcp, struct pending *pending, gf_log_level level,
                          const char *what);
/* its other end hears why, and it is closed */
void gf_tcp_pending_refuse(struct tcp *tcp, struct pending *pending, gf_status code,
                           const char *reason);
bool gf_tcp_reject(struct gf_rendezvous *rendezvous, uint32_t rank, const char *reason);
void gf_tcp_joined(struct gf_rendezvous *rendezvous);

/* rendezvous_tcp_reform.c: where a rank listens, and how another coordinates. */
void gf_tcp_job_text(const struct tcp *tcp, char text_out[GF_TEXT_MAX]); /* for connect_to() */
void gf_tcp_job_name(const struct tcp *tcp, char name_out[GF_SOCKET_NAME_BYTES]);
/* The id of another job at the same address, where there is one: its ranks meet at another name. */
void gf_tcp_other_job(const struct tcp *tcp, char job_out[GF_SOCKET_NAME_BYTES]);
gf_status gf_tcp_listen_job(struct tcp *tcp, struct gf_fault *fault_out); /* rank 0, at open */
void gf_tcp_listen(struct tcp *tcp); /* once a connection to the coordinator stands */
/* The port of this rank, where data connections are taken; it listens there from here on. */
gf_status gf_tcp_listen_data(struct tcp *tcp, struct gf_place *place_out,
                             struct gf_fault *fault_out);
/* This rank's connection to the coordinator stands: who came to it and was held hears where. */
void gf_tcp_held_send_on(struct tcp *tcp);
/* At each poll of the coordinator; an event is of a hello that came before it was that. */
tcp_told gf_tcp_held_poll(struct tcp *tcp, uint64_t now_ns, struct gf_rendezvous_event *event_out);
void gf_tcp_rejoin_begin(struct tcp *tcp, uint64_t now_ns);
gf_status gf_tcp_reform(struct tcp *tcp, uint64_t now_ns, uint32_t coordinator,
                        const char *address);

/* rendezvous_data.c: data connections. meet: of a pending one whose hello is whole. */
void gf_tcp_data_meet(struct tcp *tcp, struct pending *pending);
/* This process could not take a connection. */
void gf_tcp_lacks(struct tcp *tcp, int error, uint64_t now_ns);
void gf_tcp_data_event(struct tcp *tcp, uint32_t dial, uint32_t slot, uint64_t now_ns);
void gf_tcp_data_poll(struct tcp *tcp, uint64_t now_ns);
gf_status gf_tcp_data_begin(struct gf_rendezvous *rendezvous, uint32_t epoch,
                            const struct gf_data_taker *taker, unsigned char *secret_out,
                            struct gf_place *place_out);
gf_status gf_tcp_data_dial(struct gf_rendezvous *rendezvous, uint64_t now_ns, uint32_t peer,
                           uint32_t stream, const unsigned char *secret, const struct gf_place *to,
                           const struct gf_place *from);
const char *gf_tcp_data_text(struct gf_rendezvous *rendezvous, uint32_t peer);
int gf_tcp_data_error(struct gf_rendezvous *rendezvous, uint32_t peer);
void gf_tcp_data_end(struct gf_rendezvous *rendezvous);

/* ---- rendezvous_device.c ---- */

/* To which device its tries are to be bound; 0: to none. */
uint32_t gf_tcp_device_dials(const struct way *way);
/* .. and the one that is about to begin */
uint32_t gf_tcp_device_of_try(const struct way *way);
/* The connection stands. */
void gf_tcp_device_dialled(struct tcp *tcp, const struct way *way);
void gf_tcp_device_accepted(struct tcp *tcp, int fd, uint32_t from);

#endif
