/* Who may connect to UCX's tcp transport. UCX answers whoever connects, and a connection may write anywhere in the
 * process: so a connection reaches UCX only after it has proven that it is of this job and epoch.
 *
 * A program that is linked statically with UCX and with -Wl,--wrap=listen,--wrap=accept,--wrap=connect takes UCX's
 * calls of these three through this file. Each worker has a secret of its own, which travels with its endpoint
 * address over the control channel. Who connects sends, before UCX's first byte,
 *
 *     "GFUCXv1\n", BLAKE2b(key of the job; label, secret of the listener, where it connects to, where it comes from)
 *
 * and accept() hands UCX only connections that began so. The kernel wakes the listener when those bytes are here
 * (TCP_DEFER_ACCEPT), so nobody waits for a stranger's. Without a key_file the secret alone protects: against who is
 * not on the path of the control channel. What follows the proof is neither authenticated nor encrypted. */
#ifndef GF_CONNECTION_PROOF_H
#define GF_CONNECTION_PROOF_H

#include "drivers/link.h"
#include "drivers/tcp/rendezvous_auth.h"

/* UCX listens once a network device. */
#define GF_PROOF_LISTENERS_MAX 8u

/* An IP address and port as compared and hashed; unused bytes are zero. */
struct gf_proof_place {
    uint16_t family; /* AF_INET or AF_INET6; 0: none */
    uint16_t port;   /* in network order, as the address is */
    unsigned char ip[16];
};

/* What a rank tells its peers: where its worker listens, and the secret that they need there. */
struct gf_proof_offer {
    unsigned char secret[GF_AUTH_NONCE_BYTES];
    uint32_t listener_count; /* 0: this process does not check who connects */
    struct gf_proof_place listeners[GF_PROOF_LISTENERS_MAX];
};
_Static_assert(sizeof(struct gf_proof_offer) == 36 + GF_PROOF_LISTENERS_MAX * 20, "no padding: it travels as it is");

/* Of one link; on a list of the process while its worker lives, for the calls above name a descriptor and no link. */
struct gf_proofs {
    struct gf_proofs *next;
    struct gf_log log;
    struct gf_auth auth;
    bool keyed; /* auth is of a key_file */
    bool ended; /* the worker is on its way out: nobody comes in */
    int fds[GF_PROOF_LISTENERS_MAX];
    uint32_t refused; /* connections, for the log */
    struct gf_proof_offer own;
    uint32_t peer_count;
    struct gf_proof_offer *peers; /* [peer_count], all zero: not known */
};

/* Reads setup's key_file, if one is named. Without setup's authentication nothing is proven, and no listener
 * offered. peers[peer_count] is the caller's memory, zeroed. Once a link. */
gf_status gf_proofs_open(struct gf_proofs *proofs, const struct gf_link_setup *setup, const struct gf_log *log,
                         struct gf_proof_offer *peers, uint32_t peer_count, struct gf_fault *fault_out);
void gf_proofs_close(struct gf_proofs *proofs);

/* Around the creation of a worker: what this thread listens on in between is the worker's. A new secret each time. */
void gf_proofs_begin(struct gf_proofs *proofs);
void gf_proofs_begun(struct gf_proofs *proofs);
/* Around its end; both may be called without a worker. Peers are forgotten. */
void gf_proofs_end(struct gf_proofs *proofs);
void gf_proofs_ended(struct gf_proofs *proofs);

/* From here on a connect() to where `peer` listens sends the proof first. */
void gf_proofs_peer(struct gf_proofs *proofs, uint32_t peer, const struct gf_proof_offer *offer);

/* The calls of a static link. */
int __wrap_listen(int fd, int backlog);
struct sockaddr;
int __wrap_accept(int fd, struct sockaddr *address, unsigned *bytes);
int __wrap_connect(int fd, const struct sockaddr *address, unsigned bytes);

#endif
