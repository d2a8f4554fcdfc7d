/* What channel_*.c share: one end of the control channel.
 *
 *     channel_tcp.c    the driver table: opening, polling, closing
 *     channel_conn.c   one connection: bytes to send, one frame being received, how it ends
 *     channel_take.c   the coordinator's end: which connections are accepted
 *     channel_dial.c   a member's end: it dials the coordinator
 *     channel_address.c  where the job meets: addresses, names, the listener
 *
 *     a connection   FREE -> UP -> FREE            the other end has ended it: ENDED
 *                             \-> LEAVING -> FREE  this end has: what was sent leaves first
 *
 * The last frame of a connection that is closed on purpose is LEFT. That of a connection which
 * broke is GIVEN_UP, so that the other end does not take the process for dead. A close without
 * either proves that the process has ended, because its kernel closed it; so does a port that
 * refuses, once a coordinator was met there.
 *
 * A job of one user of one host (a loopback address, neither a key nor `insecure`) uses an abstract
 * unix socket instead of a port: the kernel tells both ends which user the other is. Processes that
 * differ in key or `insecure` would not meet there, so a member that finds no coordinator also
 * dials the address of the other kind (GF_HELLO_PROBE). That dial is never accepted; the answer to
 * it is in the texts of ENDED. */
#ifndef GF_CHANNEL_STATE_H
#define GF_CHANNEL_STATE_H

#include "drivers/base/forked.h"
#include "drivers/tcp/handshake.h"

/* an unanswered dial ends */
#define CHANNEL_DIAL_NS UINT64_C(5000000000)
/* no coordinator was met: from here on the other address is dialled, too */
#define CHANNEL_PROBE_NS UINT64_C(500000000)
/* .. and other jobs at this address are looked for */
#define CHANNEL_OTHERS_NS UINT64_C(3000000000)
/* a connection that this end has closed waits so long for the other end */
#define CHANNEL_LEAVE_NS UINT64_C(1000000000)
/* .. where something is still to be sent */
#define CHANNEL_LEAVE_UNSENT_NS UINT64_C(60000000000)
#define CHANNEL_LAST_WORDS_MS 1000u

#define CONN_NONE UINT32_MAX
#define CONN_IN_BYTES (GF_FRAME_BYTES_MAX + GF_AUTH_MAC_BYTES)
/* one frame for which the kernel had no room, and LEFT or GIVEN_UP after it */
#define CONN_OUT_BYTES (CONN_IN_BYTES + HANDSHAKE_ANSWER_BYTES_MAX)
#define CONN_BUFFER_BYTES ((CONN_IN_BYTES + CONN_OUT_BYTES + 63u) & ~63u)

typedef enum conn_state { CONN_FREE = 0, CONN_UP, CONN_LEAVING } conn_state;

struct conn {
    int fd; /* -1: none */
    conn_state state;
    /* errno; sending failed: nothing is sent any more, what has arrived is still read */
    int broken;
    bool waits_to_send; /* epoll is asked for room in the kernel */
    bool is_shut;       /* LEAVING: all was sent */
    bool authenticated; /* every frame from here on ends with a MAC */
    bool has_spoken;    /* a frame has arrived */
    uint64_t number;    /* of all connections */
    uint32_t in_bytes;
    uint32_t out_bytes;
    uint32_t next; /* among the free, or those that leave; CONN_NONE: the last */
    uint64_t since_ns;
    struct gf_auth_mac mac_in;
    struct gf_auth_mac mac_out;
    /* of its hello; the other attempts of its dial have it too */
    unsigned char nonce[GF_AUTH_NONCE_BYTES];
};

struct channel {
    struct gf_channel base;
    struct gf_channel_setup setup; /* its texts were the caller's during open() */
    struct gf_forked forked;
    struct handshake handshake;
    struct gf_auth auth;
    bool by_name; /* the job meets at an abstract unix socket */
    struct gf_addr address, bind_to;
    int listen_fd;
    uint64_t now_ns; /* of the last poll */
    char text[320];  /* of the event handed out last */

    /* a member's end */
    bool met;                /* a coordinator, at least once */
    uint64_t unmet_ns;       /* it is looked for since then; 0: it is not */
    struct dial dial, probe; /* to the coordinator; to where one of the other kind would be */
    char probe_text[GF_FRAME_REASON_BYTES]; /* the answer to the probe; or empty */
    char other_job[GF_SOCKET_NAME_BYTES];   /* the id of another job at this address; or empty */
    bool others_looked_for;

    uint32_t conn_count;
    uint32_t unsent;    /* connections with bytes for which the kernel had no room */
    uint32_t refused;   /* handshake.refused, as it is in base.refused_count */
    uint64_t connected; /* connections so far */
    uint32_t free_first, leaving_first;
    unsigned char *buffers; /* [conn_count][CONN_BUFFER_BYTES] */
    struct conn conns[];    /* [conn_count]; then pending[], sources[] and buffers */
};

static inline uint32_t conn_index(const struct channel *channel, const struct conn *conn)
{
    return (uint32_t)(conn - channel->conns);
}
static inline unsigned char *conn_in(const struct channel *channel, const struct conn *conn)
{
    return channel->buffers + (size_t)conn_index(channel, conn) * CONN_BUFFER_BYTES;
}

/* Whether the caller of poll() gets an event. */
typedef enum outcome { OUTCOME_NOTHING = 0, OUTCOME_EVENT /* in *event_out */ } outcome;

/* channel_conn.c. A connection that is free, for fd, which has proven itself, and is closed where
 * there is none: NULL, and handshake.fault or .text has why. */
struct conn *gf_conn_up(struct channel *channel, int fd, const struct gf_auth_mac *mac_in,
                        const struct gf_auth_mac *mac_out);
void gf_conns_init(struct channel *channel);
bool gf_conn_put(struct channel *channel, struct conn *conn, uint32_t kind, const void *payload,
                 uint32_t bytes);
outcome gf_conn_take(struct channel *channel, struct conn *conn,
                     struct gf_channel_event *event_out);
/* word: GF_FRAME_LEFT or GF_FRAME_GIVEN_UP */
void gf_conn_leave(struct channel *channel, struct conn *conn, uint32_t word);
void gf_conns_leaving_progress(struct channel *channel);
void gf_conn_close(struct channel *channel, struct conn *conn);
/* Waits, a second at most, until the kernels of the other ends have what was sent last. */
void gf_conns_last_words(struct channel *channel);

/* channel_take.c: of a hello that is whole, or of another protocol. */
outcome gf_channel_hello_take(struct channel *channel, struct pending *pending,
                              struct gf_channel_event *event_out);
void gf_channel_refused_count(struct channel *channel);

/* channel_dial.c */
void gf_channel_dial(struct gf_channel *channel, uint64_t now_ns);
outcome gf_channel_dial_progress(struct channel *channel, struct gf_channel_event *event_out);
outcome gf_channel_attempt_take(struct channel *channel, uint32_t about,
                                struct gf_channel_event *event_out);
void gf_channel_dial_close(struct channel *channel);

/* channel_address.c. GF_ERR_CONFIG, or what the key's file lacks, is in *fault_out. */
gf_status gf_channel_address_set(struct channel *channel, struct gf_fault *fault_out);
gf_status gf_channel_listen(struct channel *channel, struct gf_fault *fault_out);
void gf_channel_name(const struct channel *channel, char name_out[GF_SOCKET_NAME_BYTES]);
/* The id of another job at the same address, where there is one: it meets at another name. */
void gf_channel_other_job(const struct channel *channel, char job_out[GF_SOCKET_NAME_BYTES]);

#endif
