/* The core alone. A build without UCX (UCX=0) has no link: config.drivers must hand one in. */
#include "lib/modules/modules.h"

const struct gf_modules gf_modules_core = {
    .name = "gf_modules_core",
    .drivers = {
#if GF_WITH_UCX
        .link = &gf_link_ucx,
#endif
        .rendezvous = &gf_rendezvous_tcp,
        .gpu = &gf_gpu_host,
        .clock = &gf_clock_monotonic,
    },
    .ops = GF_MODULES_ELEMENT_OPS,
    .coll = {
        [GF_ALGORITHM_RING] = &gf_coll_ring,
        [GF_ALGORITHM_HALVING] = &gf_coll_halving,
        [GF_ALGORITHM_DOUBLING] = &gf_coll_doubling,
        [GF_ALGORITHM_TREE] = &gf_coll_tree,
    },
};
