/* The handshake of two processes of a job, for connections of the control channel (channel_*.c)
 * and of the link (data*.c). The acceptor speaks first, with a nonce that is new for each
 * connection, so that a hello that was overheard fits no other connection:
 *
 *     acceptor                                     dialler
 *     NONCE   a new one                         ->
 *                                               <- HELLO   who it is, a nonce, the proof
 *     ANSWER  accepted; with a MAC              ->
 *       or REFUSAL  why not                     ->
 *
 * All messages before the proof are the transcript; the proof is a keyed hash of it. Its key is
 * the job's key; for a data connection the key is derived from that and from the acceptor's
 * secret. The keys of MACs are derived from all of NONCE and HELLO, so that the ANSWER proves the
 * acceptor. Without a key there is no proof and no MAC: then the kernel tells which user the other
 * end is, or the job is insecure.
 *
 * The dialler (handshake_dial.c): a dial makes up to HANDSHAKE_ATTEMPTS_MAX connection attempts.
 *
 *     an attempt   FREE -> CONNECTING -> NONCE -> ANSWER -> the dial has its connection; the other
 *                                                           attempts end
 *
 * An unanswered attempt stays open, and after a while the next one begins. Where all are open, the
 * oldest is replaced, unless its answer has come and was not read yet. Bytes that are no handshake
 * end their own attempt only. So silence proves nothing, and a stranger that sends a nonce and then
 * nothing counts as silent.
 *
 * The acceptor (handshake_accept.c): a connection that has proven nothing yet has a pending slot
 * with room for one hello. Slots are shared among source addresses: where none is free, the
 * oldest connection of the address that has most is dropped. None is closed because time has
 * passed. Their events have an epoll of their own, which is served after all others, a bounded
 * number of events a poll, so that any number of strangers costs no more than that. */
#ifndef GF_TCP_HANDSHAKE_H
#define GF_TCP_HANDSHAKE_H

#include "drivers/tcp/frame.h"
#include "drivers/tcp/socket.h"

#define HANDSHAKE_RETRY_FIRST_NS UINT64_C(20000000)
#define HANDSHAKE_RETRY_MAX_NS UINT64_C(200000000)
/* for an attempt without an answer; doubled each time */
#define HANDSHAKE_BOUND_FIRST_NS UINT64_C(200000000)
#define HANDSHAKE_BOUND_MAX_NS UINT64_C(1600000000)
/* so many unproven processes are sent the reason of their refusal in HANDSHAKE_REASONS_NS */
#define HANDSHAKE_REASONS_MAX 16u
#define HANDSHAKE_REASONS_NS UINT64_C(100000000)
/* system events of pending connections: each has two, so 16 connections are served */
#define HANDSHAKE_STRANGERS_A_POLL 32u
#define HANDSHAKE_EVENTS_A_POLL \
    64u /* events of all others, where none is anything for the caller */
#define HANDSHAKE_PENDING_SPARE 64u /* slots beside one for each process of the job */
#define HANDSHAKE_FILES_SPARE 128u  /* descriptors that strangers leave to the process */
#define HANDSHAKE_ATTEMPTS_MAX 4u
#define HANDSHAKE_ATTEMPTS_BOUND 2u /* of a dial, before it is tried without its device */

/* The transcript: what the two ends send before either is believed, one message after the other. */
#define HANDSHAKE_NONCE_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_NONCE_BYTES)
#define HANDSHAKE_HELLO_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES)
#define HANDSHAKE_TRANSCRIPT_BYTES (HANDSHAKE_NONCE_BYTES + HANDSHAKE_HELLO_BYTES)
#define HANDSHAKE_PROVEN_BYTES (HANDSHAKE_TRANSCRIPT_BYTES - GF_AUTH_PROOF_BYTES)
#define HANDSHAKE_ANSWER_BYTES_MAX (GF_FRAME_HEADER_BYTES + GF_AUTH_MAC_BYTES)
#define HANDSHAKE_REFUSAL_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_REFUSAL_BYTES)

/* Where pending connections are from. */
struct source {
    struct gf_addr addr; /* without a port; of a unix socket none */
    uint32_t held;       /* slots; 0: this one is free */
};

struct pending {
    int fd;            /* -1: free */
    uint32_t in_bytes; /* of the hello */
    uint32_t source;
    uint64_t number; /* of all that were accepted */
    uint64_t since_ns;
    bool by_name; /* it came over a unix socket, and is of this user */
    unsigned char transcript[HANDSHAKE_TRANSCRIPT_BYTES];
};

/* What all dials and the accepting end of a channel, or of a link, share. */
struct handshake {
    const char *what; /* "control channel": for texts */
    uint64_t job_id;
    uint32_t from; /* what headers call the sender: a rank, or GF_RANK_NONE */
    uint64_t keepalive_ns;
    struct gf_log log;
    char address_text[GF_TEXT_MAX]; /* where it listens: for texts */
    struct gf_auth_source source;
    int epoll_fd;     /* of all */
    int strangers_fd; /* of listeners and pending connections, which epoll_fd watches */
    struct gf_fault fault;
    char text[240]; /* of because() */
    /* the accepting end */
    uint32_t hello_kind;
    struct pending *pending;
    struct source *sources;
    uint32_t pending_count;
    uint32_t fd_most;       /* a descriptor of this number or a higher one: few are left */
    uint64_t rest_until_ns; /* for lack of descriptors none is accepted before; 0: not so */
    int lacks;              /* what accepting lacked, an errno; 0: nothing, for a second */
    uint64_t lacked_ns;
    uint64_t accepted;
    uint32_t strangers; /* connections rejected or dropped, for the log */
    uint32_t refused;   /* by gf_accept_refuse() */
    uint32_t reasons;   /* refusals with a reason, since .. */
    uint64_t reasons_since_ns;
};

/* What an epoll event is about: the index of a connection, or one of these. */
#define HANDSHAKE_ABOUT_PENDING (1u << 31)   /* | slot; this bit: of strangers_fd */
#define HANDSHAKE_ABOUT_LISTENER (3u << 30)  /* | descriptor */
#define HANDSHAKE_ABOUT_STRANGERS (1u << 30) /* strangers_fd itself */
#define HANDSHAKE_ABOUT_ATTEMPT (1u << 29)   /* | dial * HANDSHAKE_ATTEMPTS_MAX | slot */

/* ---- handshake.c ---- */

/* Sets what the caller has not set, and opens both epolls. An error is in handshake->fault. */
gf_status gf_handshake_open(struct handshake *handshake);
void gf_handshake_close(struct handshake *handshake);
__attribute__((format(printf, 3, 4))) gf_status gf_handshake_because(struct handshake *handshake,
                                                                     gf_status status,
                                                                     const char *format, ...);
/* The next event of a poll. False: there is none, or the poll had enough. The kernel rotates its
 * list of ready descriptors, and each is asked for by itself, so none starves; strangers are served
 * when no other has an event. */
struct handshake_poll {
    uint32_t events, strangers; /* that this poll has served so far */
    bool at_strangers;
};
bool gf_handshake_next(const struct handshake *handshake, struct handshake_poll *spent,
                       uint32_t *about_out);
gf_status gf_handshake_epoll_set(struct handshake *handshake, int operation, int fd, uint32_t about,
                                 uint32_t events);
/* How many descriptors strangers leave to the process. */
void gf_handshake_fd_limit_set(struct handshake *handshake);

/* The messages. transcript[HANDSHAKE_TRANSCRIPT_BYTES] holds NONCE and then HELLO. The proof is the
 * end of HELLO, and covers all before it. */
void gf_transcript_put_nonce(struct handshake *handshake, unsigned char *transcript);
struct gf_frame_header gf_transcript_header_of(const unsigned char *transcript); /* the hello's */
struct gf_frame_hello gf_transcript_hello_of(const unsigned char *transcript);
const unsigned char *gf_transcript_nonce_of(const unsigned char *transcript);
bool gf_transcript_is_proven(const struct gf_auth *auth, const unsigned char *transcript);
void gf_transcript_macs_of(const struct gf_auth *auth, const unsigned char *transcript,
                           struct gf_auth_mac *to_dialler_out, struct gf_auth_mac *to_acceptor_out);
/* A frame without payload, with its MAC if authenticated; its size. */
size_t gf_handshake_put_frame(const struct handshake *handshake, uint32_t kind, bool authenticated,
                              struct gf_auth_mac *mac, unsigned char *out);
void gf_handshake_put_refusal(const struct handshake *handshake, gf_status code, const char *reason,
                              unsigned char *out);
gf_status gf_handshake_get_refusal(const unsigned char *payload,
                                   char reason_out[GF_FRAME_REASON_BYTES]);

/* ---- handshake_dial.c ---- */

typedef enum attempt_state {
    HANDSHAKE_ATTEMPT_FREE = 0,
    HANDSHAKE_ATTEMPT_CONNECTING,
    HANDSHAKE_ATTEMPT_NONCE, /* .. is awaited */
    HANDSHAKE_ATTEMPT_ANSWER /* .. is awaited, the hello was sent */
} attempt_state;

struct attempt {
    attempt_state state;
    int fd; /* -1: none */
    uint64_t began_ns;
    uint32_t in_bytes;
    unsigned char transcript[HANDSHAKE_TRANSCRIPT_BYTES];
    unsigned char in[HANDSHAKE_REFUSAL_BYTES];
};

/* What a poll of a dial, or an event at one of its attempts, has led to. */
typedef enum dial_event {
    DIAL_NOTHING = 0,
    DIAL_CONNECTED, /* `fd` is a connection that the acceptor takes; the caller's */
    DIAL_REFUSED,   /* the acceptor refused: `code` and `text` */
    DIAL_STRANGER,  /* what listens there is no acceptor of this job: `text` */
    DIAL_ENDED      /* an attempt ended by `error`, an errno: `text` */
} dial_event;

struct dial {
    bool on;
    uint32_t number;  /* of HANDSHAKE_ABOUT_ATTEMPT */
    uint32_t kind;    /* GF_FRAME_HELLO or GF_FRAME_DATA_HELLO */
    uint32_t to_rank; /* GF_RANK_NONE: not checked */
    uint32_t words[4];
    struct gf_addr to;
    struct gf_addr from;
    uint32_t device; /* to which it is bound, beside `from`; 0: to none (data_device.c) */
    char name[GF_SOCKET_NAME_BYTES]; /* instead of both; empty: none */
    struct gf_auth auth;
    unsigned char nonce[GF_AUTH_NONCE_BYTES]; /* the same in all attempts of a dial */
    uint64_t began_ns;
    uint64_t next_ns; /* the next attempt begins */
    uint64_t retry_ns;
    uint64_t bound_ns;
    uint32_t tried;
    struct attempt attempts[HANDSHAKE_ATTEMPTS_MAX];
    /* of the last news */
    int error;
    int kernel_error; /* .. of the last attempt that the kernel ended; 0: of none yet */
    gf_status code;
    bool refused_by_own; /* DIAL_REFUSED: the refusal names the same job */
    char text[GF_FRAME_REASON_BYTES];
    /* DIAL_CONNECTED */
    int fd;
    struct gf_auth_mac mac_in;
    struct gf_auth_mac mac_out;
};

void gf_dial_init(struct dial *dial, uint32_t number);
/* What is set beside `on`, `nonce` and what follows it stays. */
void gf_dial_start(struct handshake *handshake, struct dial *dial, uint64_t now_ns);
dial_event gf_dial_poll(struct handshake *handshake, struct dial *dial, uint64_t now_ns);
dial_event gf_dial_take(struct handshake *handshake, struct dial *dial, uint32_t slot,
                        uint64_t now_ns);
bool gf_dial_has_attempts(const struct dial *dial);
/* Does one of them await its answer? The acceptor may have accepted it by now. */
bool gf_dial_has_said_hello(const struct dial *dial);
/* Ends all attempts; an acceptor that may have accepted one is told that this process lives. */
void gf_dial_end(const struct handshake *handshake, struct dial *dial);
void gf_dial_forked(const struct dial *dial);

/* ---- handshake_accept.c ---- */

/* pending[count] and sources[count] are the caller's. */
void gf_accept_init(struct handshake *handshake, struct pending *pending, struct source *sources,
                    uint32_t count);
gf_status gf_accept_listen(struct handshake *handshake, int fd);
/* Serves an event about a listener or a pending connection. Returns a connection whose hello has
 * arrived, or at least the header of a hello of another protocol, for the caller to keep, refuse or
 * drop; NULL: there is none. */
struct pending *gf_accept_take(struct handshake *handshake, uint32_t about, uint64_t now_ns);
int gf_accept_keep(struct handshake *handshake, struct pending *pending);
void gf_accept_discard(struct handshake *handshake, struct pending *pending);
/* .. with a line in the log */
void gf_accept_drop(struct handshake *handshake, struct pending *pending, gf_log_level level,
                    const char *what);
/* Sends handshake->text as the reason if the other end is believed to have the job's key, or if few
 * reasons were sent lately. */
void gf_accept_refuse(struct handshake *handshake, struct pending *pending, bool believed,
                      gf_status code);
/* .. without a line in the log */
void gf_accept_reject(struct handshake *handshake, struct pending *pending, gf_status code,
                      const char *reason);
/* A connection that began at that time was accepted: nothing is lacking any more. */
void gf_accept_served(struct handshake *handshake, uint64_t at_ns);
/* Accepts again if none was accepted for lack of descriptors and enough time has passed. */
void gf_accept_poll(struct handshake *handshake, uint64_t now_ns);
void gf_accept_close(struct handshake *handshake);
void gf_accept_forked(const struct handshake *handshake);

#endif
