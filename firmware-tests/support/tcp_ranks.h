/* Ranks of one process, each with a socket link, joined by socket pairs or loopback connections: no
 * address is dialled. A test begins with tcp_begin(), changes what it wants of the variables below,
 * and opens its ranks; or it does so for each of eight setups:
 *
 *     EACH_SETUP(index)
 *     {
 *         tcp_ranks_open(2);
 *         ..
 *         tcp_ranks_close();
 *     }
 */
#ifndef TCP_RANKS_H
#define TCP_RANKS_H

#include "drivers/tcp/link_tcp_state.h"

#define TCP_RANKS 3
#define TCP_REQS 64
#define TCP_MESSAGE_MAX (3u << 20)

/* A rank: its link, and as many requests as it may have. */
struct tcp_rank {
    struct gf_link_setup setup;
    struct gf_link *link; /* NULL: not open, or a test closed it */
    void *state;
    struct gf_req *reqs; /* [TCP_REQS] */
    char log[2048];      /* all lines so far */
};
extern struct tcp_rank tcp_ranks[TCP_RANKS];
extern uint32_t tcp_world;

/* Read when a rank opens or a pair is made. */
extern struct gf_link_setup tcp_setup; /* of all ranks, but their number */
extern bool tcp_loopback;              /* TCP; false: socket pairs */
extern int tcp_buffer_bytes;           /* SO_SNDBUF and SO_RCVBUF; 0: the kernel's choice */

/* Memory of messages, by rank. */
extern unsigned char tcp_out[TCP_RANKS][8][TCP_MESSAGE_MAX];
extern unsigned char tcp_in[TCP_RANKS][8][TCP_MESSAGE_MAX];
static const size_t tcp_sizes[] = {0, 1, 8, 4096, 32768, 32769, 300000, TCP_MESSAGE_MAX};

void tcp_begin(void); /* socket pairs, one stream, no checksums */
/* Socket pairs and TCP, one stream and two, without and with checksums. False: there is no such
 * setup. */
bool tcp_setup_take(int index);
#define EACH_SETUP(index) for (int index = 0; tcp_setup_take(index); index++)

void tcp_pair(int fds_out[2]);     /* the two ends of a new connection */
void tcp_rank_open(uint32_t rank); /* of tcp_world, without connections */
void tcp_ranks_connect(void);
void tcp_ranks_open(uint32_t count); /* and connects all to all */
void tcp_ranks_close(void);

gf_status tcp_send(uint32_t from, uint32_t to, uint32_t req, uint64_t tag, const void *data,
                   size_t bytes);
gf_status tcp_recv(uint32_t at, uint32_t from, uint32_t req, uint64_t tag, void *data,
                   size_t bytes);
gf_status tcp_answer(uint32_t at, uint32_t req);
/* Progress of all ranks until the request has ended, or for a minute; its answer. */
gf_status tcp_end(uint32_t at, uint32_t req);
void tcp_progress(int count); /* of all ranks, so many times */

/* Bytes that depend on the seed and their offset. */
void tcp_fill(unsigned char *data, size_t bytes, uint64_t seed);
bool tcp_filled(const unsigned char *data, size_t bytes, uint64_t seed);

uint64_t tcp_now_ns(void);

#endif
