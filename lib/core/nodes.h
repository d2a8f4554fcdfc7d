/* Which ranks share memory. `hierarchy` needs to know that, and `auto` does where it may choose
 * hierarchy. */
#ifndef GF_NODES_H
#define GF_NODES_H

#include "ops/node/hierarchy.h"

struct gf_nodes {
    struct gf_reach_table table; /* NULL where they are of no use */
    struct gf_coll_nodes of;
    /* nodes are whole, and hierarchy is what sums; known when the warm-up ends */
    bool used;
};

/* Does this configuration need to know which ranks share memory? */
bool gf_nodes_wanted(const struct gf_config *config);
/* True if auto chose hierarchy although the links of all ranks read device memory. That pays only
 * where some node sums from device to device. */
bool gf_nodes_need_peers(const gf_context *gf);
/* Fills in this rank's row of the table. */
void gf_nodes_reach_find(gf_context *gf);
/* After the rows of all ranks were summed: finds which ranks make up which node. A rank that does
 * not share memory with its whole node is an error that names it, if hierarchy was asked for by
 * name; auto does without hierarchy. */
gf_status gf_nodes_commit(gf_context *gf);

#endif
