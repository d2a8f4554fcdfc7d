/* The one reference from the library to the real drivers. A program that defines gf_drivers_builtin itself, or a build
 * with UCX=0, is linked without UCX. */
#include "drivers.h"

const struct gf_drivers gf_drivers_builtin = {
#if GF_WITH_UCX
    .link = &gf_link_ucx,
#endif
    .rendezvous = &gf_rendezvous_tcp,
    .gpu = &gf_gpu_host,
    .clock = &gf_clock_monotonic,
};
