/* What the three files of hierarchy have in common: hierarchy.c (phases), hierarchy_block.c (a
 * block is cast, or copied from a device and back) and hierarchy_overlap.c (the phases at once). */
#ifndef GF_HIERARCHY_PARTS_H
#define GF_HIERARCHY_PARTS_H

#include "ops/node/hierarchy.h"

enum hierarchy_phase { PHASE_SCATTER, PHASE_NARROW, PHASE_BETWEEN, PHASE_WIDEN, PHASE_GATHER };

/* This rank's block; empty where it owns none. */
static inline void gf_hierarchy_block(const struct gf_coll *coll, uint64_t *first_out,
                                      uint64_t *count_out)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    gf_coll_block_of(coll->plan.elem_count, own->block_elems, own->nodes->local_index, first_out,
                     count_out);
}

/* Does the wire have another type than data, or other memory? Where there is one node, nothing
 * leaves it. */
static inline bool gf_hierarchy_casts(const struct gf_hierarchy *own)
{
    return (own->packed != 0) && (own->nodes->node_count > 1);
}
static inline bool gf_hierarchy_crosses(const struct gf_hierarchy *own)
{
    return (own->host.data != 0) && (own->nodes->node_count > 1);
}

/* What the wire carries: elements of this size, of a copy of data where there is one. */
static inline size_t gf_hierarchy_wire_bytes(const struct gf_coll *coll)
{
    const struct gf_hierarchy *own = coll->own.hierarchy;
    return gf_hierarchy_casts(own) ? gf_type_size_bytes(own->wire) : gf_coll_elem_bytes(coll);
}

/* A ring between nodes goes over sub-blocks of a block, one a node; anything else over the block as
 * one. */
static inline uint32_t gf_hierarchy_subs(const struct gf_hierarchy *own)
{
    return (own->inner.kind == &gf_coll_ring) ? own->inner.size : 1;
}

/* A turn of the part under way. */
gf_status gf_hierarchy_inner_progress(struct gf_coll *coll, uint64_t now_ns);

/* hierarchy_block.c. Some of this rank's block, to the wire's type (narrow) or back. */
gf_status gf_hierarchy_cast(struct gf_coll *coll, bool narrow, uint64_t at, uint64_t count);
/* A turn of NARROW or WIDEN: on the host, a slice. GF_OK: the block is done. */
gf_status gf_hierarchy_block_progress(struct gf_coll *coll, uint64_t now_ns);

/* hierarchy_overlap.c. A turn of SCATTER's work, BETWEEN and GATHER's at once. */
gf_status gf_hierarchy_overlapped_progress(struct gf_coll *coll, uint64_t now_ns);

#endif
