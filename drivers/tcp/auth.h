/* Authentication with the job's key: a proof when a connection begins, and a MAC on each frame
 * after that. Frames are authenticated, not encrypted: an attacker on the wire can read everything,
 * and can change nothing unnoticed.
 *
 * Every rank holds the same key, so a process that has the key may claim to be any rank. The key
 * should be random: with a recorded proof an attacker can test guesses offline. */
#ifndef GF_TCP_AUTH_H
#define GF_TCP_AUTH_H

#include <string.h>

#include "drivers/base/fault.h"

#define GF_AUTH_NONCE_BYTES 32u
#define GF_AUTH_PROOF_BYTES 32u
#define GF_AUTH_MAC_BYTES 16u
#define GF_AUTH_FILE_BYTES_MIN 32u
#define GF_AUTH_FILE_BYTES_MAX 4096u

struct gf_auth {
    bool on; /* false: no key_file, nothing below is used */
    unsigned char key[32];
};

/* One direction of one connection. */
struct gf_auth_mac {
    unsigned char key[32];
    uint64_t count; /* frames so far: a repeated or reordered frame does not fit */
};

static inline void gf_auth_forget(void *secret, size_t bytes)
{
    explicit_bzero(secret, bytes);
}

/* The seed of nonces and secrets. It is drawn once, at open, by getrandom(), whose failure is an
 * error with a name. libsodium's own generator ends the process if it fails, so it is not used
 * later. */
struct gf_auth_source {
    unsigned char seed[32];
    uint64_t count; /* so many were made of it: no two are alike */
};

/* Call this first. GF_ERR_SYSTEM: the host gives no random numbers. Sets up libsodium, too. */
gf_status gf_auth_source_begin(struct gf_auth_source *source_out, struct gf_fault *fault_out);
/* Sets up libsodium, which draws a few bytes the first time. Neither this nor any call below
 * allocates or starts a thread. The call that opens a key does this itself. */
gf_status gf_auth_begin(struct gf_fault *fault_out);
/* Reads the key; GF_ERR_CONFIG names the file and what is wrong with it. */
gf_status gf_auth_open(struct gf_auth *auth_out, const char *path, struct gf_fault *fault_out);
/* For a job without key_file: the only secret is at the begin of `said`. */
gf_status gf_auth_open_keyless(struct gf_auth *auth_out, struct gf_fault *fault_out);
/* A key that takes the job's key, where there is one, and this secret of GF_AUTH_NONCE_BYTES. */
gf_status gf_auth_derive(const struct gf_auth *job, const unsigned char *secret,
                         struct gf_auth *auth_out, struct gf_fault *fault_out);
/* The next one: BLAKE2b(seed; its number). [GF_AUTH_NONCE_BYTES] */
void gf_auth_nonce(struct gf_auth_source *source, unsigned char *nonce_out);
/* The proof of the dialler. said[bytes]: all that both sides have sent so far, so that a proof fits
 * one connection only. */
void gf_auth_prove(const struct gf_auth *auth, const void *transcript, size_t bytes,
                   unsigned char *proof_out);
bool gf_auth_proof_fits(const struct gf_auth *auth, const void *transcript, size_t bytes,
                        const unsigned char *found);
/* The keys of both directions, new for each conversation. */
void gf_auth_macs(const struct gf_auth *auth, const void *transcript, size_t bytes,
                  struct gf_auth_mac *to_dialler_out, struct gf_auth_mac *to_acceptor_out);
/* The MAC of the next frame, head[head_bytes] and body[body_bytes] in a row; both calls count
 * it. */
void gf_auth_mac_put(struct gf_auth_mac *mac, const void *head, size_t head_bytes, const void *body,
                     size_t body_bytes, unsigned char *mac_out);
bool gf_auth_mac_fits(struct gf_auth_mac *mac, const void *frame, size_t bytes,
                      const unsigned char *found);

#endif
