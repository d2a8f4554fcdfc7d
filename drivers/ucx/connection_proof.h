/* Who may connect to UCX's tcp transport, and who listens there. UCX answers whoever connects, and
 * a connection may write anywhere in the process, from either end: so UCX sees a connection only
 * after both ends have proven that they are of this job and epoch.
 *
 * A program that is linked statically with UCX and with -Wl,--wrap for each of GF_PROOF_CALLS takes
 * UCX's calls of these through ucx_calls.c to connection_proof.c (listening) and connection.c
 * (connections). Each worker has a secret of its own, which travels with its endpoint address over
 * the control channel. In front of UCX's first byte go
 *
 *     caller:    "GFUCXv2\n", its rank, nonce c, BLAKE2b(key of the job; 0, place, c)
 *     listener:  nonce l, BLAKE2b(key; 1, place, c, l)
 *     caller:    BLAKE2b(key; 2, place, c, l)
 *
 * where place is the listener's secret, rank, where it is connected to, and where from. Replays: a
 * hello names one listener's secret (new each epoch) and one pair of ports; who repeats it gets an
 * answer with a new nonce l, which the third proof and every key must have in it, and an answer of
 * another time does not have this caller's c. accept() hands UCX only connections that began with a
 * hello (TCP_DEFER_ACCEPT: nobody waits for a stranger's); its recv() begins after the third proof,
 * and nothing that UCX sends leaves the caller before the second. Without a key_file the secret
 * alone protects: against who is not on the path of the control channel. What follows the proofs is
 * authenticated and encrypted with link.encryption alone (connection_record.c).
 *
 * UCX 1.13 may abort a process whose peer goes away while UCX is still setting up. So UCX hears of
 * no such end: a connection that cannot be made is one that is silent, what is sent on one that has
 * ended is gone, and gf_proofs_progress() tells the link. */
#ifndef GF_CONNECTION_PROOF_H
#define GF_CONNECTION_PROOF_H

#include "drivers/address.h"
#include "drivers/link.h"
#include "drivers/tcp/rendezvous_auth.h"

#include <sys/epoll.h>
#include <sys/types.h>

/* UCX listens once a network device. */
#define GF_PROOF_LISTENERS_MAX 8u
#define GF_PROOF_CALLS "listen, accept, connect, send, sendmsg, recv, epoll_ctl, epoll_wait, close"
/* What is read before UCX asks for it, at most: data that fits into the least segment
 * (TCP_MSS_DEFAULT). */
#define GF_PROOF_AHEAD_BYTES 536u
/* Calls of epoll_wait() in a row in which epoll is not asked: others are to be read at some time,
 * too. */
#define GF_PROOF_UNASKED_MAX 32u
/* Of each pair of ranks: UCX connects once a network device and lane, at times from both ends. */
#define GF_PROOF_CONNS_A_PEER 4u

/* What a rank tells its peers: where its worker listens, and the secret that they need there. */
struct gf_proof_offer {
    unsigned char secret[GF_AUTH_NONCE_BYTES];
    uint32_t listener_count; /* 0: this process does not check who connects */
    struct gf_place listeners[GF_PROOF_LISTENERS_MAX];
};
_Static_assert(sizeof(struct gf_proof_offer) == 36 + GF_PROOF_LISTENERS_MAX * 20,
               "no padding: it travels as it is");

typedef enum gf_conn_state {
    GF_CONN_FREE = 0,
    GF_CONN_CONNECTS,       /* the kernel's connect() is under way */
    GF_CONN_AWAITS_ANSWER,  /* caller: the listener's proof */
    GF_CONN_AWAITS_CONFIRM, /* listener: the caller's second one */
    GF_CONN_OPEN,           /* UCX's */
    GF_CONN_ENDED           /* and UCX does not know */
} gf_conn_state;

struct gf_record; /* connection_record.h */

struct gf_conn {
    struct gf_conn *next; /* of its list in by_fd */
    struct gf_proofs *of;
    int fd;
    gf_conn_state state;
    uint32_t peer; /* the other end's rank; as it says, until its proof is here */
    bool calls;    /* this end called */
    bool used;     /* UCX has had bytes of it */
    bool told;
    int error;       /* ENDED: errno, or 0: closed by its other end */
    const char *why; /* or why this end ended it */
    uint64_t ended_ns;
    void *watched;       /* with this UCX hears that there is something to read .. */
    int set;             /* .. from this set of epoll's; 0: it does not want to */
    uint32_t sent_bytes; /* by the last send, if it was small and nothing was read since; or 0 */
    struct gf_place listener, caller;
    unsigned char secret[GF_AUTH_NONCE_BYTES];     /* the listener's */
    unsigned char nonces[2 * GF_AUTH_NONCE_BYTES]; /* the caller's, the listener's */
    unsigned char in[2 * GF_AUTH_NONCE_BYTES];     /* of what is awaited */
    uint32_t in_bytes;
    unsigned char held[256]; /* caller: what UCX sent before the answer was here */
    uint32_t held_bytes;
    struct gf_record *record; /* NULL: not encrypted */
};

/* Of one link; on a list of the process while its worker lives, for the calls above name a
 * descriptor and no link. */
struct gf_proofs {
    struct gf_proofs *next;
    struct gf_log log;
    struct gf_auth auth;
    bool keyed; /* auth is of a key_file */
    bool ended; /* the worker is on its way out: nobody comes in */
    int fds[GF_PROOF_LISTENERS_MAX];
    uint32_t refused; /* connections, for the log */
    uint32_t rank;
    struct gf_proof_offer own;
    uint32_t peer_count;
    struct gf_proof_offer *peers; /* [peer_count], all zero: not known */
    uint32_t conn_count;
    struct gf_conn *conns;     /* [conn_count] */
    struct gf_conn **by_fd;    /* [conn_count] lists, by descriptor */
    struct gf_record *records; /* [conn_count] with encryption, or NULL */
    struct gf_conn **from;     /* [peer_count] by which each peer's last bytes came, or NULL */
    uint32_t awaits;  /* the peer whose bytes are read without asking epoll; GF_RANK_NONE: ask */
    uint32_t unasked; /* how often, since epoll was asked */
    /* whose bytes [ahead_at, ahead_end) below UCX has not read yet; NULL: there are none */
    struct gf_conn *ahead;
    uint32_t ahead_at, ahead_end;
    unsigned char ahead_bytes[GF_PROOF_AHEAD_BYTES];
    bool busy; /* gf_proofs_progress() may have connections to move, or to tell the end of */
    /* there are some that have ended and that UCX knows: it is not to read them any more */
    bool silent;
};

/* Bytes of the caller's memory for a world, 64-byte aligned and zeroed. */
size_t gf_proofs_bytes(const struct gf_link_setup *setup);
/* Once a link: reads setup's key_file, if one is named. memory[gf_proofs_bytes()]. */
gf_status gf_proofs_open(struct gf_proofs *proofs, const struct gf_link_setup *setup, void *memory,
                         struct gf_fault *fault_out);
void gf_proofs_close(struct gf_proofs *proofs);

/* Around the creation of a worker: what this thread listens on in between is the worker's. A new
 * secret each time. */
void gf_proofs_begin(struct gf_proofs *proofs);
/* This process was forked while its parent had a link: UCX's thread is not in it, and nobody would
 * be taken in. */
bool gf_proofs_orphaned(void);
void gf_proofs_begun(struct gf_proofs *proofs);
/* Around its end; both may be called without a worker. Peers are forgotten. */
void gf_proofs_end(struct gf_proofs *proofs);
void gf_proofs_ended(struct gf_proofs *proofs);

/* From here on a connect() to where `peer` listens sends the proof first. */
void gf_proofs_peer(struct gf_proofs *proofs, uint32_t peer, const struct gf_proof_offer *offer);

/* While this is true, nobody may sleep either: UCX hears of it from no descriptor. */
static inline bool gf_proofs_ahead(const struct gf_proofs *proofs)
{
    return (proofs->ahead != NULL) && (proofs->ahead->set > 0);
}
/* While this is true, gf_proofs_progress() is to be called, and nobody may sleep. */
static inline bool gf_proofs_busy(const struct gf_proofs *proofs)
{
    return proofs->busy;
}
/* Moves connections that wait for a proof. GF_ERR_LINK, with *fault_out: one of a peer's has
 * ended. */
gf_status gf_proofs_progress(struct gf_proofs *proofs, uint64_t now_ns, struct gf_fault *fault_out);

/* ---- between connection_proof.c and connection.c ---- */

void gf_proofs_lock(void);
void gf_proofs_unlock(void);
/* accept(): a hello that proves the key was read from fd, and the answer is sent. */
bool gf_conn_greet(struct gf_proofs *proofs, int fd);
/* All of GF_PROOF_CALLS come through here. Of a dynamic UCX either all do or none, and none is seen
 * to listen. */
bool gf_conn_calls_are_ours(void);
/* A free one for fd, or NULL; that of fd, or NULL. The lock is held. */
struct gf_conn *gf_conn_take(struct gf_proofs *proofs, int fd);
struct gf_conn *gf_conn_find(struct gf_proofs *proofs, int fd);
/* That of fd in any link, or NULL. */
struct gf_conn *gf_conn_of(int fd);
/* The same for a connection to where a peer listens, with its rank and secret. */
struct gf_conn *gf_conn_to(const struct gf_place *place, int fd, bool *known_out);
/* recv() of an open one, which this may end. */
ssize_t gf_conn_read(struct gf_conn *conn, void *data, size_t bytes, int flags);
/* Those of the worker that is gone are forgotten. */
void gf_conns_forget(struct gf_proofs *proofs);

/* Each of GF_PROOF_CALLS: UCX calls NAME, and is led to __wrap_NAME (ucx_calls.c), which hands on
 * to gf_conn_NAME; __real_NAME is the one of libc, or NULL where nothing is led. */
struct sockaddr;
struct msghdr;
#define GF_PROOF_CALLS_EACH(X)                                                                    \
    X(int, listen, (int fd, int backlog), (fd, backlog))                                          \
    X(int, accept, (int fd, struct sockaddr *address, unsigned *bytes), (fd, address, bytes))     \
    X(int, connect, (int fd, const struct sockaddr *address, unsigned bytes),                     \
      (fd, address, bytes))                                                                       \
    X(ssize_t, send, (int fd, const void *data, size_t bytes, int flags),                         \
      (fd, data, bytes, flags))                                                                   \
    X(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), (fd, message, flags))  \
    X(ssize_t, recv, (int fd, void *data, size_t bytes, int flags), (fd, data, bytes, flags))     \
    X(int, epoll_ctl, (int set, int op, int fd, struct epoll_event *event), (set, op, fd, event)) \
    X(int, epoll_wait, (int set, struct epoll_event *events, int count, int timeout),             \
      (set, events, count, timeout))                                                              \
    X(int, close, (int fd), (fd))
#define GF_LED_DECLARE(type, name, parameters, arguments) \
    type __wrap_##name parameters;                        \
    type __real_##name parameters __attribute__((weak));
#define GF_CONN_DECLARE(type, name, parameters, arguments) type gf_conn_##name parameters;
GF_PROOF_CALLS_EACH(GF_LED_DECLARE)
GF_PROOF_CALLS_EACH(GF_CONN_DECLARE)

#endif
