/* Ranks of a node (drivers/node.h), all in this thread or some of them in children: each has
 * its own memory and socket, and maps the others' as another process would. */
#ifndef NODE_RANKS_H
#define NODE_RANKS_H

#include <sys/types.h>
#include <unistd.h>

#include "drivers/host/node_state.h"

#define NODE_RANKS 8u
#define NODE_REQS 64u

struct node_rank {
    uint32_t rank;
    struct gf_link_setup setup;
    struct gf_link link;
    struct gf_node *node; /* NULL: not open */
    void *state;
    unsigned char offer[GF_NODE_OFFER_BYTES];
    struct gf_node_req reqs[NODE_REQS];
    char log[4096]; /* all lines so far */
};

/* Ranks of a world that have not opened. */
void node_ranks_begin(struct node_rank *ranks, uint32_t world, size_t region_bytes,
                      uint32_t requests_max);
gf_status node_rank_open(struct node_rank *one);
void node_rank_close(struct node_rank *one);
/* Opens all, and connects all to all in turns. */
void node_ranks_open(struct node_rank *ranks, uint32_t world, size_t region_bytes,
                     uint32_t requests_max);
/* One call for each pair, until none gives GF_AGAIN; false: that took too long. */
bool node_ranks_connect(struct node_rank *ranks, uint32_t world);
void node_ranks_close(struct node_rank *ranks, uint32_t world);

/* Progress of all until the request has ended. */
gf_status node_ranks_end(struct node_rank *ranks, uint32_t world, uint32_t rank, uint32_t req);
uint64_t node_now_ns(void);

/* Request number `req` of a rank, which is posted; a moment of all of them; what became of it. */
void node_send(struct node_rank *ranks, uint32_t from, uint32_t to, uint64_t tag, const void *at,
               size_t bytes, uint32_t req);
void node_recv(struct node_rank *ranks, uint32_t to, uint32_t from, uint64_t tag, void *at,
               size_t bytes, uint32_t req);
void node_progress(struct node_rank *ranks, uint32_t world);
gf_status node_test(struct node_rank *ranks, uint32_t rank, uint32_t req);
/* Bytes that follow from a seed, and whether they are these. */
void node_fill(unsigned char *to, size_t bytes, uint32_t seed);
bool node_filled(const unsigned char *from, size_t bytes, uint32_t seed);

/* In a child: what it found is its exit code, or 1000 and the signal that ended it. */
#define NODE_CHILD(child) \
    fflush(NULL);         \
    child = fork();       \
    if (child == 0)
int node_child_ended(pid_t child);
/* Opens this one of two processes, which tell each other their offers, and connects it; blocks. */
gf_status node_meet(struct node_rank *one, int pipes[2][2]);
void node_pipes_close(int pipes[2][2]);

#endif
