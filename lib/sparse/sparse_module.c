#include "lib/sparse/sparse_module.h"

#include "lib/modules/modules.h"

const struct gf_sparse_module gf_module_sparse = {
    .step = &gf_sparse_step,
    .open = gf_sparse_lists_open,
    .update = gf_sparse_update,
};
