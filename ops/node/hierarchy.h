/* Hierarchy: its state, and what it needs in addition to struct gf_coll. */
#ifndef GF_HIERARCHY_H
#define GF_HIERARCHY_H

#include "ops/coll/flow.h"
#include "ops/node/direct.h"

/* Which ranks share memory, as hierarchy needs it, in ranks of the world. All ranks of the group
 * agree on the nodes, on their order, and on the order of ranks in them. An operation of
 * hierarchy takes two numbers in direct's order, so at most GF_DIRECT_OPS_MAX / 2 operations are
 * under way. */
struct gf_coll_nodes {
    const uint32_t *local; /* [local_size] ranks of this rank's node, this one too */
    uint32_t local_size, local_index;
    /* [node_count] rank local_index of each node; where local_index < owners */
    const uint32_t *across;
    uint32_t node_count, node_index;
    uint32_t owners; /* ranks of the smallest node */
    uint32_t ports;  /* of a node: 1, or a network device for each owner */
    /* data up to here may be summed over nodes by halving, more by ring */
    uint64_t halving_max_bytes;
};

/* Whose memory each rank reaches, and the lists of nodes that follow for this rank. Ranks exchange
 * the table before the first operation. */
#define GF_REACH_WORDS 4u
struct gf_reach_table {
    /* [world][GF_REACH_WORDS]: the lowest rank that it reaches, how many it reaches, a hash of
     * which ranks these are, and a hash of its network device */
    float *reach;
    uint32_t *local, *across; /* [world] each: struct gf_coll_nodes */
};
struct gf_nodes_meeting {
    struct gf_link *link;
    uint32_t world, rank;
    struct gf_reach_table table;
};
#define GF_NODES_AUTO 2u   /* auto takes hierarchy on so many nodes or more */
#define GF_NODES_OWNERS 2u /* of at least so many ranks */
/* nodes.c. Fills in the row of this rank, and zeroes the others. */
void gf_nodes_meet(const struct gf_nodes_meeting *met);
/* From the table, summed over all ranks: which ranks make up which node, and whether hierarchy is
 * used. Where some rank does not share memory with its whole node, and hierarchy was asked for by
 * name, that is an error, with peer and error_out[256]. */
gf_status gf_nodes_form(const struct gf_nodes_meeting *met, bool by_name,
                        struct gf_coll_nodes *nodes_out, bool *used_out, uint32_t *peer_out,
                        char *error_out);

/* How far a rank is in its block: sub-blocks in the order of the ring, and elements of the next
 * one. */
struct gf_hierarchy_at {
    uint32_t sub;
    uint64_t elems;
};

/* What a rank does one after the other; hierarchy.c says what. */
typedef enum gf_hierarchy_stage {
    GF_HIERARCHY_SCATTER,
    GF_HIERARCHY_NARROW,
    GF_HIERARCHY_BETWEEN,
    GF_HIERARCHY_WIDEN,
    GF_HIERARCHY_GATHER
} gf_hierarchy_stage;

struct gf_hierarchy {
    /* the owner's */
    const struct gf_coll_nodes *nodes;
    struct gf_direct shared; /* of its parts in the node; order is that of the operation */
    /* NULL: gf_coll_direct; where data is a device's, gf_coll_direct_device */
    const struct gf_coll_kind *in_node;
    gf_type wire; /* between nodes, where `packed` is not 0: */
    /* [elem_count] of it, the block of this rank is used; 0: data travels as it is */
    gf_mem packed;
    /* Some nodes add on devices and others on hosts, perhaps in different types. So that messages
     * have one size, all nodes cut blocks as for type `cut`, and slices have slice_bytes. */
    bool mixed;
    gf_type cut; /* where nodes are mixed */
    /* Of a device that the link does not read: the block is copied to the host and back. */
    struct {
        /* [elem_count] of the wire's type in registered host memory; 0: the link takes it there */
        gf_mem data;
        struct gf_queue *out, *in; /* of the device, for the copies */
        /* and what BETWEEN takes there instead of the operation's own */
        struct gf_queue *queue;
        const struct gf_element_ops *ops;
        struct gf_check *check;
        gf_mem staging;
    } host;

    /* hierarchy's own */
    gf_hierarchy_stage stage;
    struct gf_coll node; /* the collective in the node: of SCATTER, then of GATHER */
    struct gf_direct direct;
    struct gf_coll between; /* of BETWEEN */
    struct gf_flow flow;
    uint64_t block_elems; /* of all blocks but the last ones */
    /* SCATTER has ended after its first barrier: BETWEEN does the rest of it, and GATHER's work */
    bool overlaps;
    struct gf_hierarchy_at summed, gathered; /* there: of this rank's block */
    uint64_t cast_elems;                     /* of this rank's block, in NARROW and WIDEN */
    bool queued;                             /* there: the device has all of it */
    uint32_t heard_from; /* the rank of the node that GATHER waits for; GF_RANK_NONE */
    uint64_t heard;      /* its last sign */
    uint64_t beats;      /* messages posted and ended as of the last sign of this rank */
    uint64_t beat_ns;    /* when it gave that one */
};

/* Does the stage under way move data through memory that ranks share, and not by messages? */
static inline bool gf_hierarchy_in_memory(const struct gf_hierarchy *own)
{
    bool in_node = (own->stage == GF_HIERARCHY_SCATTER) || (own->stage == GF_HIERARCHY_GATHER);
    return in_node && own->node.kind->in_memory;
}

#endif
