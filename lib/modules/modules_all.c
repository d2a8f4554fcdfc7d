/* All there is. Nothing in the library refers to this table, or every program would link everything: gradientflow.h
 * does, in the program's own object. */
#include "lib/modules/modules.h"

#if !GF_WITH_UCX
extern const struct gf_link_driver gf_link_ucx __attribute__((weak)); /* NULL, both */
extern const struct gf_hardware_module gf_module_hardware __attribute__((weak));
#endif

const struct gf_modules gf_modules_all = {
    GF_MODULES_DRIVERS,
    .name = "gf_modules_all",
    .ops = &gf_element_ops_host,
    .coll = {
        GF_MODULES_COLL,
        [GF_ALGORITHM_SERVER] = &gf_coll_server,
        [GF_ALGORITHM_DIRECT] = &gf_coll_direct,
        [GF_ALGORITHM_HIERARCHY] = &gf_coll_hierarchy,
        [GF_ALGORITHM_ALLTOALL] = &gf_coll_alltoall,
    },
    .hardware = &gf_module_hardware,
    .device = &gf_module_device,
    .sparse = &gf_module_sparse,
    .quantize = &gf_module_quantize,
    .optimizer = &gf_module_optimizer,
};
