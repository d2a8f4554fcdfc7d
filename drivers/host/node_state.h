/* What the files of the node share; tests of it include this too.
 *     node.c          open, close, reset, drop; forked children
 *     node_memory.c   the region: limits of this host, memfd, pages; mapping a peer's
 *     node_socket.c   which ranks are of this node: offers, asking for a region, waking
 *     node_message.c  messages
 *
 * Memory of a rank, mapped by its peers; all numbers but the region's size follow from ranks_max
 * and requests_max, so they are equal on all ranks (the offer has them, and connect() compares):
 *
 *     exchange region | page | head | a pair: meet, bell | a pair: ring | entries | cells
 *
 * A peer has a *slot* in this rank's memory, which this rank gives it when it asks for the region.
 * There the peer announces its messages: a word in the ring names an entry of *its own* table, and
 * the bell is set when the ring has a new word. The entry has the tag, the size, and the offset of
 * the bytes in the sender's memory. The ring is never full: it has as many words as a sender has
 * entries, and an entry is announced once until it is free again.
 *
 * Everything in a peer's memory may be damaged, or may change between two reads: it is read once,
 * checked, and then used. What a peer has announced before it ends can still be received, because
 * its memory stays mapped. */
#ifndef GF_NODE_STATE_H
#define GF_NODE_STATE_H

#include "drivers/base/carried.h"
#include "drivers/base/forked.h"
#include "drivers/host/fence.h"
#include "drivers/node.h"

#define NODE_RANKS_MAX 256u /* of one node; more of them use the network */
#define NODE_NONCE_BYTES 16u
#define NODE_NAME_BYTES GF_CARRIED_NAME_BYTES /* of a socket */

/* How many sends may have ended for their caller before the receiver takes them; their bytes lie in
 * the entry or in a cell. Further sends end only when they are taken, even small ones, so that
 * messages without a receive do not delay others. */
#define NODE_DETACHED_MAX 64u
#define NODE_INLINE_BYTES 32u
/* Not a power of two, so that cells do not share cache sets. */
#define NODE_CELL_BYTES ((size_t)8192 + 64)
#define NODE_CELLS 64u
#define NODE_STREAM_CELLS 4u /* a message that leaves in cells has so many at once, at most */
#define NODE_COPY_BYTES ((size_t)256 << 10) /* about so much is copied in one progress() */

#define NODE_LINE_BYTES 64u

enum node_entry_state {
    NODE_ENTRY_ANNOUNCED,
    NODE_ENTRY_MATCHED, /* cells are wanted */
    NODE_ENTRY_TAKEN    /* the receiver is done with it */
};

#define NODE_WHERE_CELLS UINT64_MAX

/* Two lines: the sender writes the first, the receiver the other. */
struct node_entry {
    uint64_t tag;
    uint64_t size_bytes;
    uint64_t where;   /* from the begin of the sender's memory, or NODE_WHERE_CELLS */
    uint32_t revoked; /* the sender has given it up: what was read of it means nothing */
    uint32_t awaited; /* the sender waits for its end, and may sleep */
    union {
        unsigned char bytes[NODE_INLINE_BYTES];
        struct {
            uint64_t filled_bytes; /* of the message, so far */
            /* byte n lies in cells[n / NODE_CELL_BYTES % NODE_STREAM_CELLS] */
            uint32_t cells[NODE_STREAM_CELLS];
        } stream;
    };
    uint32_t state;
    uint32_t unused;
    uint64_t taken_bytes;
    unsigned char rest[NODE_LINE_BYTES - 16];
};
_Static_assert(sizeof(struct node_entry) == 2 * NODE_LINE_BYTES, "two lines");

struct node_head {
    uint64_t canary; /* only the offer has it, too */
    unsigned char rest[NODE_LINE_BYTES - 8];
    uint32_t sleeps; /* 1: a peer that stores something for this rank wakes it */
    unsigned char last[NODE_LINE_BYTES - 4];
};

/* What a peer reports about its mapping of this memory. */
enum node_mapped {
    NODE_MAPPED_NOT = 0,
    NODE_MAPPED,     /* it may write here */
    NODE_MAPPED_DONE /* .. and does so no more in this generation */
};

/* The state of a slot. Each word is written by one side only. */
struct node_meet {
    uint32_t mapped;  /* by the peer: enum node_mapped */
    uint32_t refused; /* by the owner: it will not have this peer */
};

/* The layout of a rank's memory: offsets from its begin. */
struct node_plan {
    uint32_t slots;
    uint32_t entries;
    uint32_t ring_words; /* a power of two */
    size_t head_at;
    size_t meet_at;
    size_t bell_at;
    size_t ring_at;
    size_t entry_at;
    size_t cell_at;
    size_t bytes; /* of all, in whole pages */
};

/* A datagram of the socket: a question or an answer. */
enum node_datagram_kind { NODE_DATAGRAM_PULL = 1, NODE_DATAGRAM_GIVE, NODE_DATAGRAM_REFUSE };
enum node_datagram_of { NODE_DATAGRAM_MEMORY = 1, NODE_DATAGRAM_DEVICE };
struct node_datagram {
    uint32_t kind;
    uint32_t of;
    uint32_t from;
    uint32_t generation;
    uint32_t slot; /* GIVE: the peer's slot in the memory that is passed along */
    unsigned char nonce[NODE_NONCE_BYTES];  /* of whom it is for */
    unsigned char answer[NODE_NONCE_BYTES]; /* PULL: of whom it is from */
};

struct node_offer {
    uint32_t magic;
    uint32_t version;
    uint32_t rank;
    uint32_t generation;
    uint64_t node;
    uint64_t canary;
    uint64_t region_bytes;
    uint64_t memory_bytes;
    uint32_t slots;
    uint32_t entries;
    char name[NODE_NAME_BYTES];
    unsigned char nonce[NODE_NONCE_BYTES];
};
_Static_assert(sizeof(struct node_offer) == GF_NODE_OFFER_BYTES, "no padding");

enum node_peer_state {
    NODE_PEER_UNKNOWN,
    NODE_PEER_PULLS,  /* its memory was asked for */
    NODE_PEER_MAPPED, /* .. and it has not mapped ours yet */
    NODE_PEER_UP,
    NODE_PEER_REFUSED
};

struct node_peer {
    unsigned char *region; /* NULL: it is not up, or has none; of this rank its own */
    size_t region_bytes;
    uint8_t state;
    bool answered; /* it has been given our memory, or a refusal */
    bool decided;  /* connect() has answered */
    uint16_t pair; /* + 1; 0: none */
};

struct node_list {
    struct gf_node_req *first;
    struct gf_node_req *last;
};

/* A peer of this node. Its number is its slot in this rank's memory. */
struct node_pair {
    uint32_t peer;
    unsigned char *memory; /* the peer's; NULL: not mapped */
    size_t memory_bytes;
    struct node_plan plan; /* of the peer's memory */
    uint32_t slot;         /* this rank's there */
    uint32_t pushed;       /* words put into the ring there */
    uint32_t popped;       /* .. and taken from the one here */
    char name[NODE_NAME_BYTES];
    unsigned char nonce[NODE_NONCE_BYTES];
    struct node_list posted; /* receives without a message */
    uint16_t *next;          /* [entries] of messages without a receive: a list, by entry + 1 .. */
    uint16_t first;          /* 0: there is none */
    uint16_t last;
};
#define NODE_NEXT_END UINT16_MAX /* .. of which the last has this; 0: it is not in the list */
#define NODE_ENTRIES_MAX (UINT16_MAX - 2u)

/* What a rank keeps of an entry of its own table. */
struct node_own {
    uint16_t cell_count;
    uint16_t cells[NODE_STREAM_CELLS];
};

struct gf_node {
    struct gf_link *link;
    struct gf_log log;
    struct gf_forked forked;
    uint32_t rank;
    uint32_t world;
    uint32_t ranks_max;
    uint32_t generation;
    uint32_t requests_max;
    size_t region_bytes;
    bool huge_pages;
    bool shares;       /* it is to, and there may be ranks to share with */
    bool shared;       /* the memory of now is */
    bool alone_logged; /* why it is not, once */
    bool armed;
    bool quiesced; /* nothing more is written into memory of peers */
    bool dropped;  /* who had this memory is forgotten: it is not kept */

    int memory_fd;         /* of the memfd, for peers that come; -1 */
    int socket_fd;         /* -1 */
    unsigned char *memory; /* NULL: none */
    size_t memory_bytes;
    unsigned char *room; /* for the memory of peers; NULL: none */
    size_t room_bytes;
    unsigned char *room_first; /* of slot 0; the others follow, memory_bytes each */
    struct node_plan plan;
    uint64_t canary;
    uint64_t host;  /* a hash of kernel, namespaces and user; 0: not known */
    uint64_t alone; /* .. and what no other rank has */
    uint32_t overflow_user;
    uint32_t slept; /* sleeps that no peer has ended */
    char name[NODE_NAME_BYTES];
    unsigned char nonce[NODE_NONCE_BYTES];

    uint32_t pulls; /* whose memory was asked for; GF_RANK_NONE */
    uint64_t asked_ns;
    struct node_offer pulled; /* its offer */
    uint32_t unanswered;      /* peers that were refused and may still ask */

    /* Memory of a device. */
    struct {
        int given;        /* to peers that ask; -1 */
        uint32_t pulls;   /* whose was asked for; GF_RANK_NONE */
        gf_status answer; /* of that one; GF_AGAIN */
        int come;         /* its descriptor; -1 */
        uint64_t asked_ns;
    } device;

    uint32_t pair_count;
    uint32_t up_count;   /* of them */
    uint32_t undecided;  /* peers */
    size_t copied_bytes; /* in this progress() */
    uint32_t requests_under_way;
    struct node_list sends;   /* whole ones that are awaited */
    struct node_list streams; /* in cells */
    struct node_list pulling; /* receives that are matched */
    uint32_t free_entries;
    uint32_t free_cells;
    uint32_t detached_count; /* entries that are neither free nor of a request */
    uint32_t detached_next;  /* of them, to be checked */

    struct node_peer *peers; /* [ranks_max] */
    struct node_pair *pairs; /* [plan.slots] */
    struct node_own *own;    /* [plan.entries] */
    uint16_t *entry_stack;   /* [plan.entries], free_entries of them */
    uint16_t *detached;      /* [plan.entries] */
    uint16_t cell_stack[NODE_CELLS];
};

static inline struct node_pair *node_pair_of(const struct gf_node *node, uint32_t peer)
{
    uint16_t pair = node->peers[peer].pair;
    return (pair == 0) ? NULL : &node->pairs[pair - 1];
}

static inline struct node_head *node_head_of(unsigned char *memory, const struct node_plan *plan)
{
    return (struct node_head *)(void *)(memory + plan->head_at);
}
static inline struct node_meet *node_meet_of(unsigned char *memory, const struct node_plan *plan,
                                             uint32_t slot)
{
    return (struct node_meet *)(void *)(memory + plan->meet_at) + slot;
}
static inline unsigned char *node_bell_of(unsigned char *memory, const struct node_plan *plan,
                                          uint32_t slot)
{
    return memory + plan->bell_at + slot;
}
static inline uint32_t *node_ring_of(unsigned char *memory, const struct node_plan *plan,
                                     uint32_t slot)
{
    return (uint32_t *)(void *)(memory + plan->ring_at) + (size_t)slot * plan->ring_words;
}
static inline struct node_entry *node_entry_of(unsigned char *memory, const struct node_plan *plan,
                                               uint32_t entry)
{
    return (struct node_entry *)(void *)(memory + plan->entry_at) + entry;
}
static inline size_t node_cell_at(const struct node_plan *plan, uint32_t cell)
{
    return plan->cell_at + cell * NODE_CELL_BYTES;
}

static inline size_t node_round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* node.c */
struct node_plan gf_node_plan_of(size_t region_bytes, uint32_t slots, uint32_t entries);
/* Logs it and sets the link's fault. */
__attribute__((format(printf, 5, 6))) gf_status gf_node_fault(struct gf_node *node, gf_status code,
                                                              uint32_t peer, const char *call,
                                                              const char *format, ...);
/* A pair for a peer that has none; NULL: there are too many. */
struct node_pair *gf_node_pair_take(struct gf_node *node, uint32_t peer);

/* node_memory.c. Takes memory, or keeps the memory that is there, which is zeroed then.
 * node->shared says whether peers can map it; if sharing was tried and failed, *why_out has the
 * reason. */
gf_status gf_node_memory_take(struct gf_node *node, const char **why_out);
void gf_node_memory_give(struct gf_node *node);
/* NULL is valid. Its address range in the room stays reserved. */
void gf_node_memory_unmap(const struct gf_node *node, unsigned char *memory, size_t bytes);
unsigned char *gf_node_fd_map(int fd, size_t bytes); /* NULL: errno has why */
/* Reserves address space for the memory of as many peers as may be on this node, a range for each
 * slot, so that no limit can refuse it later. False: there is none. trim: only so many slots need
 * one. */
bool gf_node_room_take(struct gf_node *node);
void gf_node_room_trim(struct gf_node *node, uint32_t slots);
void gf_node_room_give(struct gf_node *node); /* with all that is mapped there */
/* Maps the memory of the peer with this slot. The caller closes fd. NULL: *why_out has the
 * reason. */
unsigned char *gf_node_memory_map(const struct gf_node *node, uint32_t slot,
                                  const struct node_offer *offer, int fd, const char **why_out);

/* node_socket.c. Sets host, alone and overflow_user. */
void gf_node_host_id_set(struct gf_node *node);
/* Does this host let ranks pass their memory to others and map that of others? Tries it with this
 * rank's own memory; false: *why_out has the reason. */
bool gf_node_passes_memory(const struct gf_node *node, const char **why_out);
bool gf_node_socket_open(struct gf_node *node, const char **why_out);
void gf_node_socket_close(struct gf_node *node);
/* Can no process write into this rank's memory any more? Waits a few milliseconds for processes
 * that are just ending; afterwards the socket can only be closed. */
bool gf_node_memory_is_free(const struct gf_node *node);
void gf_node_device_forget(struct gf_node *node);
void gf_node_serve(struct gf_node *node); /* some of the messages that have arrived */
void gf_node_wake(struct gf_node *node, const struct node_pair *pair);
void gf_node_woken(struct gf_node *node);

/* node_message.c */
void gf_node_messages_begin(struct gf_node *node);
void gf_node_messages_end(struct gf_node *node); /* all requests end */

#endif
