/* All there is. Nothing in the library refers to this table, or every program would link everything: gradientflow.h
 * does, in the program's own object. */
#include "lib/modules/modules.h"

const struct gf_modules gf_modules_all = {
    .name = "gf_modules_all",
    .drivers = {
#if GF_WITH_UCX
        .link = &gf_link_ucx,
#endif
        .rendezvous = &gf_rendezvous_tcp,
        .gpu = &gf_gpu_host,
        .clock = &gf_clock_monotonic,
    },
    .ops = &gf_element_ops_host,
    .coll = {
        [GF_ALGORITHM_RING] = &gf_coll_ring,
        [GF_ALGORITHM_HALVING] = &gf_coll_halving,
        [GF_ALGORITHM_DOUBLING] = &gf_coll_doubling,
        [GF_ALGORITHM_TREE] = &gf_coll_tree,
        [GF_ALGORITHM_SERVER] = &gf_coll_server,
        [GF_ALGORITHM_DIRECT] = &gf_coll_direct,
        [GF_ALGORITHM_HIERARCHY] = &gf_coll_hierarchy,
        [GF_ALGORITHM_ALLTOALL] = &gf_coll_alltoall,
    },
    .authentication = &gf_module_authentication,
    .device = &gf_module_device,
    .sparse = &gf_module_sparse,
    .quantize = &gf_module_quantize,
    .optimizer = &gf_module_optimizer,
    .elastic = &gf_module_elastic,
    .observe = &gf_module_observe,
};
