/* What the three files of hierarchy have in common: hierarchy.c (the table of stages, and the
 * stages that are a collective), hierarchy_block.c (NARROW and WIDEN) and hierarchy_overlap.c
 * (BETWEEN, where it does the work of SCATTER and GATHER, too). */
#ifndef GF_HIERARCHY_PARTS_H
#define GF_HIERARCHY_PARTS_H

#include "ops/node/hierarchy.h"

/* This rank's block; empty where it owns none. */
static inline void gf_hierarchy_block(const struct gf_coll *coll, uint64_t *first_out,
                                      uint64_t *count_out)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    gf_coll_block_of(coll->plan.elem_count, own->block_elems, own->nodes->local_index, first_out,
                     count_out);
}

/* Does the wire take another type than that of data, or other memory? With one node nothing leaves
 * the node, so the answer is no. */
static inline bool gf_hierarchy_casts(const struct gf_hierarchy *own)
{
    return (own->packed != 0) && (own->nodes->node_count > 1);
}
static inline bool gf_hierarchy_crosses(const struct gf_hierarchy *own)
{
    return (own->host.data != 0) && (own->nodes->node_count > 1);
}

/* The size of an element on the wire, where a copy of data may have another type. */
static inline size_t gf_hierarchy_wire_bytes(const struct gf_coll *coll)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    return gf_hierarchy_casts(own) ? gf_type_bytes(own->wire) : gf_coll_elem_bytes(coll);
}

/* A ring between nodes goes over sub-blocks of a block, one a node; anything else over the block as
 * one. */
static inline uint32_t gf_hierarchy_subs(const struct gf_hierarchy *own)
{
    return (own->between.kind == &gf_coll_ring) ? own->between.size : 1;
}

/* Progress of `part`, which is coll's node or between. */
gf_status gf_hierarchy_part_progress(struct gf_coll *coll, struct gf_coll *part, uint64_t now_ns);

/* hierarchy_block.c. Some of this rank's block, to the wire's type (narrow) or back. */
gf_status gf_hierarchy_cast(struct gf_coll *coll, bool narrow, uint64_t at, uint64_t count);
/* NARROW and WIDEN. A poll takes a slice of them on the host. */
gf_status gf_hierarchy_block_start(struct gf_coll *coll, uint64_t now_ns);
gf_status gf_hierarchy_block_progress(struct gf_coll *coll, uint64_t now_ns);

/* hierarchy_overlap.c. BETWEEN with what SCATTER has left to do, and with GATHER's work. */
gf_status gf_hierarchy_overlapped_start(struct gf_coll *coll);
gf_status gf_hierarchy_overlapped_progress(struct gf_coll *coll, uint64_t now_ns);

#endif
