#include "lib/elastic/elastic.h"

#include "lib/modules/modules.h"

const struct gf_elastic_module gf_module_elastic = {
    .rejoin = gf_rejoin_begin,
    .turn = gf_change_progress,
    .members = &gf_members_elastic,
};
