/* The table of algorithms. */
#include "ops/coll.h"

const struct gf_coll_kind *const gf_coll_kinds[GF_ALGORITHM_COUNT] = {
    [GF_ALGORITHM_RING] = &gf_coll_ring,           [GF_ALGORITHM_HALVING] = &gf_coll_halving,
    [GF_ALGORITHM_DOUBLING] = &gf_coll_doubling,   [GF_ALGORITHM_TREE] = &gf_coll_tree,
    [GF_ALGORITHM_SERVER] = &gf_coll_server,       [GF_ALGORITHM_DIRECT] = &gf_coll_direct,
    [GF_ALGORITHM_HIERARCHY] = &gf_coll_hierarchy,
};
