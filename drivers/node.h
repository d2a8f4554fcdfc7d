/* The memory and the messages of a node: what ranks of one machine share without a network. It is
 * no driver. The link of a process (link.c) holds one, and gives the network driver what does not
 * go through it; network drivers know nothing of it.
 *
 *     the region  a sealed memfd for each rank. A peer asks for it over a unix
 *                 socket without a name in a file system, maps it and closes the descriptor: no
 *                 file and no process id are left after kill -9
 *     messages    announced in the receiver's memory, read from the sender's; link.h's contract
 *     a node      one kernel, one network namespace, one user (of one user namespace)
 *
 * The exchange region comes first in that memory; what messages need follows it (gf_node_bytes()).
 * Faults, the region, its size and the node itself are in the struct gf_link that the node was
 * opened for, and its messages are counted there.
 * Only reset waits, up to 4 ms for processes that are just ending. Only open, connect and reset map
 * memory, and nothing allocates otherwise.
 * Ranks count as in link.h: those of the generation. */
#ifndef GF_NODE_H
#define GF_NODE_H

#include "drivers/link.h"

/* A rank's part for its node in its endpoint address. */
#define GF_NODE_OFFER_BYTES 80u

struct gf_node;

/* Lies in the link's request (link.c); the contents are the node's. */
struct gf_node_req {
    struct gf_node_req *next; /* of a list of the node's */
    struct gf_node_req *previous;
    uint64_t tag;
    unsigned char *data;
    size_t size_bytes;
    size_t done_bytes; /* copied so far */
    size_t where; /* of a receive that is matched: the message lies there in its sender's memory */
    uint32_t peer;
    uint32_t entry;   /* of the sender's table; of a receive: once it is matched */
    gf_status answer; /* GF_AGAIN until it has ended */
    uint32_t state;   /* the node's */
};

/* Bytes of state, and of memory after the exchange region. */
size_t gf_node_state_bytes(const struct gf_link_setup *setup);
size_t gf_node_bytes(const struct gf_link_setup *setup);

/* Opens in state[gf_node_state_bytes()], 64-byte aligned. Sets region, region_bytes, private_bytes
 * and node of the link, which outlives the node. Where this host refuses sharing (no memfd, no
 * socket, no /proc) the region is memory of this process alone and `node` equals that of no other
 * rank; one log line says why. Likewise, and without one, where setup->private_memory says so.
 * GF_ERR_SYSTEM, with link->fault: there is no memory for the region. */
gf_status gf_node_open(const struct gf_link_setup *setup, void *state, struct gf_link *link,
                       struct gf_node **node_out);
void gf_node_close(struct gf_node *node); /* NULL is valid */
/* As gf_link_driver.drop: all requests end, peers are unmapped, the region stays. */
void gf_node_drop(struct gf_node *node);
/* As gf_link_driver.quiesce. */
void gf_node_quiesce(struct gf_node *node);
/* As gf_link_driver.reset; offer_put() and connect() follow. may_keep: nobody else may write into
 * the region than ranks of this node. */
gf_status gf_node_reset(struct gf_node *node, uint32_t generation, uint32_t rank, uint32_t world,
                        bool may_keep);

/* This rank's part of its endpoint address. */
void gf_node_offer_put(const struct gf_node *node, unsigned char offer_out[GF_NODE_OFFER_BYTES]);
/* Maps a peer by its offer, as often as it gives GF_AGAIN; for all peers in turn, since each end
 * waits until the other has mapped it too. Both ends come to the same answer: GF_OK: map(peer) is
 * not NULL, and messages go through here; GF_AGAIN: under way; GF_ERR_PEER: the peer is of another
 * node, or one of the two refused (one log line): the network's; GF_ERR_DATA, GF_ERR_MISMATCH: the
 * offer is malformed or of another rank or generation, as link->fault says. */
gf_status gf_node_connect(struct gf_node *node, uint32_t peer, const unsigned char *offer,
                          size_t offer_bytes, uint64_t now_ns);

/* A descriptor of device memory is passed as that of the region is. From here on it is the
 * node's, for any peer that asks; -1: none, and none is asked for any more. */
void gf_node_device_offer(struct gf_node *node, int descriptor);
/* That of a peer which is mapped, the caller's to close. GF_AGAIN: asked for, to be called again,
 * while progress() is called by both; one peer at a time. GF_ERR_PEER: it gives none. */
gf_status gf_node_device_pull(struct gf_node *node, uint32_t peer, uint64_t now_ns,
                              int *descriptor_out);

/* Is the peer mapped? Then its messages go through here. */
bool gf_node_has(const struct gf_node *node, uint32_t peer);
/* NULL: not mapped, or without a region. This rank's own region, too. */
void *gf_node_map(const struct gf_node *node, uint32_t peer);
void gf_node_flag_store(struct gf_node *node, uint32_t peer, size_t offset_bytes, uint64_t value);

/* As in link.h, of peers that are mapped. A send can be cancelled at any time. */
gf_status gf_node_send_post(struct gf_node *node, uint32_t to, uint64_t tag, const void *data,
                            size_t size_bytes, struct gf_node_req *req);
gf_status gf_node_recv_post(struct gf_node *node, uint32_t from, uint64_t tag, void *data,
                            size_t size_bytes, struct gf_node_req *req);
gf_status gf_node_test(struct gf_node *node, struct gf_node_req *req);
void gf_node_cancel(struct gf_node *node, struct gf_node_req *req);
bool gf_node_progress(struct gf_node *node);

/* A descriptor that becomes readable when a peer has something for a rank that has armed; -1:
 * nothing is shared. It is another one after each reset. */
int gf_node_wake_fd(const struct gf_node *node);
/* Is it safe to sleep on it? Else progress() first. */
bool gf_node_arm(struct gf_node *node);

/* "pages of 2048 KiB .." for the mapping at base, as the kernel gave them; returns text_out. */
char *gf_node_pages_text(const void *base, char *text_out, size_t text_bytes);
/* The limit of this host that so many bytes would exceed, shared (a file) or not, or ""; for use
 * before memory is taken. Returns text_out. */
char *gf_node_limits_text(size_t bytes, bool shared, char *text_out, size_t text_bytes);

#endif
