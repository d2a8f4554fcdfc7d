/* The core alone. A build without UCX (UCX=0) has no link: config.drivers must hand one in. */
#include "lib/modules/modules.h"

#if !GF_WITH_UCX
extern const struct gf_link_driver gf_link_ucx __attribute__((weak)); /* NULL */
#endif

const struct gf_modules gf_modules_core = {GF_MODULES_CORE, .name = "gf_modules_core"};
