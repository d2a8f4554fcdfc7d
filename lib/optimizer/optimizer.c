#include "lib/optimizer/optimizer.h"

#include "lib/modules/modules.h"
#include "lib/optimizer/kinds.h"

const struct gf_optimizer_module gf_module_optimizer = {
    .half_refresh = gf_half_refresh,
    .lars_add = gf_lars_add,
    .lars_end = gf_lars_end,
    .range = gf_update_range,
    .chunks = gf_update_chunks,
};
