/* A group of ranks in one thread, all in the same collective, over the simulated network. What is
 * asked of memory is handed out to the byte, between guards. */
#ifndef COLL_GROUP_H
#define COLL_GROUP_H

#include "ops/node/hierarchy.h"
#include "firmware-tests/support/world.h"

#define COLL_TIMEOUT_NS 1000000000u

#define COLL_NODE_RANKS 16u /* of one node, at most */

/* One collective. Zero: the whole world is the group, the first rank the root, values are
 * summed. */
struct coll_case {
    const struct gf_coll_kind *kind;
    gf_collective collective;
    uint32_t size;
    uint64_t elem_count;
    gf_type type;
    uint32_t slice_bytes;
    uint32_t window;
    uint32_t root;
    const uint32_t *ranks; /* of a world twice the size */
    /* of direct: these ranks' data, a bit each, lies outside of the exchange region */
    uint32_t staged;
    uint32_t small_bytes;       /* of direct: data up to here takes one barrier */
    uint32_t node_ranks[8];     /* of hierarchy: ranks of each node */
    uint64_t halving_max_bytes; /* of hierarchy */
    size_t reduce_elem_bytes;   /* set: elements are that large, reduced by coll_group_xor() */
};

/* Each collective that there is. */
#define COLL_PAIRS 9u /* as the compiler says where a row is added */
extern const struct coll_pair {
    const struct gf_coll_kind *kind;
    gf_collective collective;
} coll_pairs[COLL_PAIRS];

struct coll_node {
    struct gf_coll coll;
    union {
        struct gf_flow flow;
        struct gf_direct direct;
        struct gf_hierarchy hierarchy;
        uint64_t words[sizeof(struct gf_hierarchy) / sizeof(uint64_t)];
    } own; /* coll.own */
    struct gf_coll_nodes nodes;
    uint32_t local[COLL_NODE_RANKS], across[8];
    struct gf_link *link;
    struct gf_check check;
    void *link_state;
    unsigned char *memory[2]; /* data and staging, each between guards */
    void *taken[2];           /* where they do not lie in the exchange region */
    size_t memory_bytes[2];
    void *requests;
    gf_status status;       /* GF_AGAIN until it has ended */
    uint64_t reduced_elems; /* by coll_group_xor() */
};

struct coll_group {
    struct coll_case c;
    struct gf_sim *sim;
    struct real_links *links; /* NULL: the simulator's */
    uint32_t rank_count;
    uint32_t *node_of_rank;
    struct coll_node *nodes; /* [c.size] */
    size_t elem_bytes;
    size_t region_bytes; /* of direct */
    bool is_exact;       /* as filled */
    /* a drain that does not end by itself is ended by the link's reset() */
    bool may_reset;
};

/* Opens links and memory; data is zero. sim may be NULL: no delay at all; its world is filled
 * in. */
void coll_group_open(struct coll_group *group, const struct coll_case *c,
                     const struct gf_sim_setup *sim);
void coll_group_start(struct coll_group *group, uint32_t index, uint64_t step);
/* Polls and lets time pass until all nodes that were started have ended. Nothing may be under way
 * then. */
void coll_group_run(struct coll_group *group);
/* Every rank starts `step`, and that. */
void coll_group_go(struct coll_group *group, uint64_t step);
void coll_group_expect(const struct coll_group *group, gf_status status); /* of every rank */
/* One poll, and more while something moves. */
void coll_group_poll(struct coll_group *group, uint32_t index);
void coll_group_close(struct coll_group *group); /* looks at the guards */
/* One that is open until the end of its block. */
#define COLL_GROUP_OPEN(group, c, sim)                                  \
    struct coll_group group __attribute__((cleanup(coll_group_close))); \
    coll_group_open(&group, c, sim)

void *coll_group_data(const struct coll_group *group, uint32_t index);
size_t coll_group_data_bytes(const struct coll_group *group);
/* Values of a rank: with `exact` small whole numbers, whose sums are exact in every type; else
 * anything. */
void coll_group_fill(struct coll_group *group, bool exact);
/* Every rank that ended well holds, bit by bit, what the kind promises: the values that
 * coll_group_fill() gave, added in the kind's order. */
void coll_group_check(const struct coll_group *group);
/* All of the above, where all must end well. */
void coll_group_run_once(const struct coll_case *c, const struct gf_sim_setup *sim, bool exact);
/* The sum of c, alone and inside a longer vector, which the ranks `staged` have outside of the
 * exchange region: do all ranks hold the same bits of it? */
bool coll_group_same_inside(const struct coll_case *c, const struct gf_sim_setup *sim,
                            uint32_t staged);
/* The elements that ranks found to be not finite: how many, and which is the first. Exact data; it
 * is run. */
void coll_group_bad(struct coll_group *group, uint64_t *count_out, uint64_t *first_out);

#endif
