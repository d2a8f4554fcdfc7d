/* Makes and proves the connections of the socket link: it listens, dials, and hands over each
 * connection that is proven. It has one port for as long as the link is open, and one secret for
 * each generation.
 *
 * The key of proofs and MACs is a hash of the job's key, where there is one, and the acceptor's
 * secret, which only members of its generation learn, in its endpoint address. So a process that
 * has only the key, or was a member of an earlier generation, cannot prove itself; and each proof
 * covers kind, job, ranks, generation and stream. Nothing follows the ANSWER: from there on the
 * descriptor is the link's.
 *
 * Either end may dial. While a hello of the lower rank awaits its answer, that rank refuses the
 * other's dial; before and after that it takes it. Whoever takes a dial gives its own up. So one
 * connection stays of two that come through, and a dial that does not keeps no other out. */
#ifndef GF_DATA_H
#define GF_DATA_H

#include "drivers/link.h"

#define GF_DATA_SECRET_BYTES 32u
#define GF_DATA_STREAMS_MAX 16u

struct gf_data_taker {
    void *user;
    /* A proven connection with rank `peer`, dialled by either end. fd is the taker's; nothing was
     * sent on it yet. Called inside poll(). */
    void (*connected)(void *user, uint32_t peer, uint32_t stream, int fd);
    /* Is that stream of that peer connected already? Then another connection is refused. */
    bool (*has)(void *user, uint32_t peer, uint32_t stream);
};

struct gf_data;

/* setup: the link's. address NULL or empty: it never has a network, and of the others only has()
 * and those that close are called. */
size_t gf_data_state_bytes(const struct gf_link_setup *setup);
void gf_data_init(struct gf_data *data, const struct gf_link_setup *setup);
/* From here on connections of this generation are accepted, at *addr_out and at that port of
 * setup.data_addrs, if the dialler proves the new secret_out[GF_DATA_SECRET_BYTES]; those of the
 * generation before are refused. taker is the caller's until end(). An error, in fault():
 * this host has no port to listen at, or none was found that is free at all those addresses. */
gf_status gf_data_begin(struct gf_data *data, uint32_t generation, uint32_t rank, uint32_t world,
                        const struct gf_data_taker *taker, unsigned char *secret_out,
                        struct gf_addr *addr_out);
const struct gf_fault *gf_data_fault(const struct gf_data *data);
/* Dials `peer` at `to`, from the address `from` (family 0: any), again and again until connected()
 * or end(). GF_FULL: too many dials are under way, and none was begun. Does nothing for a dial
 * that is under way. */
gf_status gf_data_dial(struct gf_data *data, uint64_t now_ns, uint32_t peer, uint32_t stream,
                       const unsigned char *secret, const struct gf_addr *to,
                       const struct gf_addr *from);
/* Bounded work; an error is in fault(). */
gf_status gf_data_poll(struct gf_data *data, uint64_t now_ns);
/* Readable when poll() may have something to do; -1: no network is open. */
int gf_data_wake_fd(const struct gf_data *data);
/* Why the dial to `peer` has not succeeded yet; empty: there is none, or nothing went wrong. */
const char *gf_data_text(const struct gf_data *data, uint32_t peer);
/* Has the kernel of that host accepted a connection of this dial, whose process has not answered
 * yet? */
bool gf_data_reaches(const struct gf_data *data, uint32_t peer);
/* The last error of that dial, an errno; 0: none yet. */
int gf_data_error(const struct gf_data *data, uint32_t peer);
/* Why this process could not take a connection, as errno; 0: for a second it could, or another
 * generation has begun since. */
int gf_data_lacks(const struct gf_data *data);
/* Descriptors: how many this process needs in addition to these connections, and how many it may
 * have; 0: not known. */
#define GF_DATA_FILES_LEAST 13u
uint32_t gf_data_files_max(void);
void gf_data_end(struct gf_data *data); /* of the generation; the port stays */
void gf_data_close(struct gf_data *data);
void gf_data_forked(const struct gf_data *data);

#endif
