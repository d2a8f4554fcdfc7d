/* How two processes of a job meet over sockets: one handshake, for connections of the control channel
 * (channel_*.c) and of the link (data*.c). Who accepts speaks first, with a nonce that is new for
 * each connection, so that a hello that was heard before fits no other:
 *
 *     who accepts                                  who dials
 *     NONCE   a new one                         ->
 *                                               <- HELLO   who it is, a nonce, the proof
 *     ANSWER  come in; with a MAC               ->
 *       or REFUSAL  why not                     ->
 *
 * The proof is a keyed hash of all that was said before it. Its key is that of the job; of a data
 * connection it is made from that and from the acceptor's secret. MACs have keys from all of NONCE
 * and HELLO, so that the ANSWER proves who accepts. Without a key there is no proof and no MAC: then
 * the kernel says whose process the other end is, or the job is insecure.
 *
 * Who dials (meet_way.c): a way has a few tries.
 *
 *     a try    FREE -> CONNECTING -> NONCE -> ANSWER -> the connection is the way's; the other
 *                                                       tries end
 *
 * One that says nothing for a while stays open, and the next begins beside it; the oldest gives way
 * where all are open. Whatever comes that is no handshake ends that try alone. So silence proves
 * nothing, and a stranger who says a nonce and then nothing is as one who is silent.
 *
 * Who accepts (meet_door.c): a connection that has not proven who it is has a pending slot and one
 * hello's room. Slots are shared among source addresses: where none is free, the oldest connection
 * of the address that has most gives way. None is closed because time has passed. What is about them
 * is in an epoll of its own, served after all others and for a bounded number of events a poll. So
 * strangers cost no more than that, however many they are. */
#ifndef GF_TCP_MEET_H
#define GF_TCP_MEET_H

#include "drivers/tcp/frame.h"
#include "drivers/tcp/socket.h"

#define MEET_RETRY_FIRST_NS UINT64_C(20000000)
#define MEET_RETRY_MAX_NS UINT64_C(200000000)
/* a try that says nothing; doubled each time */
#define MEET_BOUND_FIRST_NS UINT64_C(200000000)
#define MEET_BOUND_MAX_NS UINT64_C(1600000000)
/* who has proven nothing and is refused hears why: so many in MEET_REASONS_NS */
#define MEET_REASONS_MAX 16u
#define MEET_REASONS_NS UINT64_C(100000000)
/* system events about connections that are nobody's yet: each has two, and so 16 are looked at */
#define MEET_STRANGERS_A_POLL 32u
#define MEET_ROUNDS_A_POLL 64u /* events of all others, where none is anything for the caller */
#define MEET_PENDING_SPARE 64u /* slots beside one for each process that may come */
#define MEET_FILES_SPARE 128u  /* descriptors that strangers leave to the process */
#define MEET_TRIES_MAX 4u
#define MEET_TRIES_BOUND 2u /* of a way, before it is tried without its device */

/* What two ends say to each other before either is believed, in a row. */
#define MEET_NONCE_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_NONCE_BYTES)
#define MEET_HELLO_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_HELLO_BYTES)
#define MEET_TALK_BYTES (MEET_NONCE_BYTES + MEET_HELLO_BYTES)
#define MEET_TALK_PROVEN_BYTES (MEET_TALK_BYTES - GF_AUTH_PROOF_BYTES)
#define MEET_ANSWER_BYTES_MAX (GF_FRAME_HEADER_BYTES + GF_AUTH_MAC_BYTES)
#define MEET_REFUSAL_BYTES (GF_FRAME_HEADER_BYTES + GF_FRAME_REFUSAL_BYTES)

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
    unsigned char said[MEET_TALK_BYTES];
};

/* What all ways and doors of a channel, or of a link, share. */
struct meet {
    const char *what; /* "control channel": for texts */
    uint64_t job_id;
    uint32_t from; /* what headers call the sender: a rank, or GF_RANK_NONE */
    uint64_t keepalive_ns;
    struct gf_log log;
    char address_text[GF_TEXT_MAX]; /* where the door is: for texts */
    struct gf_auth_source source;
    int epoll_fd;     /* of all */
    int strangers_fd; /* of listeners and pending connections, which epoll_fd watches */
    struct gf_fault fault;
    char text[240]; /* of because() */
    /* the door */
    uint32_t hello_kind;
    struct pending *pending;
    struct source *sources;
    uint32_t pending_count;
    uint32_t fd_most;       /* a descriptor of this number or a higher one: few are left */
    uint64_t rest_until_ns; /* none was left for a stranger: nobody is let in before; 0: not so */
    int lacks;              /* what accepting lacked, an errno; 0: nothing, for a second */
    uint64_t lacked_ns;
    uint64_t accepted;
    uint32_t strangers; /* connections rejected or dropped, for the log */
    uint32_t reasons;   /* of those that were told why, since .. */
    uint64_t reasons_since_ns;
};

/* What an epoll event is about: the index of a connection, or one of these. */
#define MEET_ABOUT_PENDING (1u << 31)   /* | slot; this bit: of strangers_fd */
#define MEET_ABOUT_LISTENER (3u << 30)  /* | descriptor */
#define MEET_ABOUT_STRANGERS (1u << 30) /* strangers_fd itself */
#define MEET_ABOUT_TRY (1u << 29)       /* | way * MEET_TRIES_MAX | slot */

/* ---- meet_talk.c ---- */

/* Sets all but what is the caller's to say; opens both epolls. An error is in meet->fault. */
gf_status gf_meet_open(struct meet *meet);
void gf_meet_close(struct meet *meet);
__attribute__((format(printf, 3, 4))) gf_status gf_meet_because(struct meet *meet, gf_status status,
                                                                const char *format, ...);
/* One poll: which event is next. False: none is, or enough were. The kernel's list of ready
 * descriptors goes round, so nobody starves; strangers are served when nobody else has anything. */
struct meet_turn {
    uint32_t rounds, strangers; /* so far */
    bool at_strangers;
};
bool gf_meet_next(const struct meet *meet, struct meet_turn *turn, uint32_t *about_out);
gf_status gf_meet_epoll_set(struct meet *meet, int operation, int fd, uint32_t about,
                            uint32_t events);
/* How many descriptors strangers leave to the process. */
void gf_meet_descriptors_look(struct meet *meet);

/* The words. said[MEET_TALK_BYTES]: what both ends have said lies in a row, NONCE then HELLO, and the
 * proof is the end of it, over all that comes before. */
void gf_talk_put_nonce(struct meet *meet, unsigned char *said);
struct gf_frame_header gf_talk_header_of(const unsigned char *said); /* the hello's */
struct gf_frame_hello gf_talk_hello_of(const unsigned char *said);
const unsigned char *gf_talk_nonce_of(const unsigned char *said);
bool gf_talk_is_proven(const struct gf_auth *auth, const unsigned char *said);
void gf_talk_macs_of(const struct gf_auth *auth, const unsigned char *said,
                     struct gf_auth_mac *to_dialler_out, struct gf_auth_mac *to_acceptor_out);
/* A frame without payload, with its MAC if authenticated; its size. */
size_t gf_talk_put_frame(const struct meet *meet, uint32_t kind, bool authenticated,
                         struct gf_auth_mac *MAC, unsigned char *out);
void gf_talk_put_refusal(const struct meet *meet, gf_status code, const char *reason,
                         unsigned char *out);
gf_status gf_talk_get_refusal(const unsigned char *payload, char reason_out[GF_FRAME_REASON_BYTES]);

/* ---- meet_way.c ---- */

typedef enum try_state {
    MEET_TRY_FREE = 0,
    MEET_TRY_CONNECTING,
    MEET_TRY_NONCE, /* .. is awaited */
    MEET_TRY_ANSWER /* .. is awaited, the hello is said */
} try_state;

struct
try {
    try_state state;
    int fd; /* -1: none */
    uint64_t began_ns;
    uint32_t in_bytes;
    unsigned char said[MEET_TALK_BYTES];
    unsigned char in[MEET_REFUSAL_BYTES];
};

/* What a poll of a way, or an event at one of its tries, has come to. */
typedef enum way_news {
    MEET_WAY_NOTHING = 0,
    MEET_WAY_IN,       /* `fd` is a connection that the acceptor takes; the caller's */
    MEET_WAY_REFUSED,  /* what listens there says `text`, and why by `code` */
    MEET_WAY_STRANGER, /* what listens there is not whom we look for: `text` */
    MEET_WAY_ENDED     /* a try ended by `error`, an errno: `text` */
} way_news;

struct way {
    bool on;
    uint32_t number;  /* of MEET_ABOUT_TRY */
    uint32_t kind;    /* GF_FRAME_HELLO or GF_FRAME_DATA_HELLO */
    uint32_t to_rank; /* GF_RANK_NONE: whoever listens there */
    uint32_t words[4];
    struct gf_place to;
    struct gf_place from;
    uint32_t device; /* to which it is bound, beside `from`; 0: to none (data_device.c) */
    char name[GF_SOCKET_NAME_BYTES]; /* in place of both; empty: none */
    struct gf_auth auth;
    unsigned char nonce[GF_AUTH_NONCE_BYTES]; /* the same in all tries, which shows that they are */
    uint64_t began_ns;
    uint64_t next_ns; /* the next try begins */
    uint64_t retry_ns;
    uint64_t bound_ns;
    uint32_t tried;
    struct try tries[MEET_TRIES_MAX];
    /* of the last news */
    int error;
    int kernel_error; /* .. of the last try that the kernel ended; 0: of none yet */
    gf_status code;
    char text[GF_FRAME_REASON_BYTES];
    /* MEET_WAY_IN */
    int fd;
    struct gf_auth_mac mac_in;
    struct gf_auth_mac mac_out;
};

void gf_way_init(struct way *way, uint32_t number);
/* What is set beside `on`, `nonce` and what follows it stays. */
void gf_way_start(struct meet *meet, struct way *way, uint64_t now_ns);
way_news gf_way_turn(struct meet *meet, struct way *way, uint64_t now_ns);
way_news gf_way_take(struct meet *meet, struct way *way, uint32_t slot, uint64_t now_ns);
bool gf_way_has_tries(const struct way *way);
/* All tries end; an acceptor that may take one hears that this process lives. */
void gf_way_end(const struct meet *meet, struct way *way);
void gf_way_forked(const struct way *way);

/* ---- meet_door.c ---- */

/* pending[count] and sources[count] are the caller's. */
void gf_door_init(struct meet *meet, struct pending *pending, struct source *sources,
                  uint32_t count);
gf_status gf_door_listen(struct meet *meet, int fd);
/* For an event about a listener or a pending connection: one whose hello is here; or its header, of
 * another protocol, of which less may be here. NULL: none is. It is the caller's to keep, to refuse
 * or to drop. */
struct pending *gf_door_take(struct meet *meet, uint32_t about, uint64_t now_ns);
int gf_door_keep(struct meet *meet, struct pending *pending);
void gf_door_discard(struct meet *meet, struct pending *pending);
/* .. and the log says so */
void gf_door_drop(struct meet *meet, struct pending *pending, gf_log_level level, const char *what);
/* Its other end hears what meet->text says, where it is believed to have the job's key, or not many
 * were told so lately. */
void gf_door_refuse(struct meet *meet, struct pending *pending, bool believed, gf_status code);
/* .. without a word in the log */
void gf_door_turn_away(struct meet *meet, struct pending *pending, gf_status code,
                       const char *reason);
/* A connection has come that began at that time: from here on nothing is lacking. */
void gf_door_served(struct meet *meet, uint64_t at_ns);
/* Where nobody was let in for lack of descriptors, time has passed. */
void gf_door_turn(struct meet *meet, uint64_t now_ns);
void gf_door_close(struct meet *meet);
void gf_door_forked(const struct meet *meet);

#endif
