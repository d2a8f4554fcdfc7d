/* The drivers of one context: those of gf_config.drivers (tests, gf-plan), and where that or a
 * member of it is NULL, those of gf_drivers_default. */
#ifndef GF_DRIVERS_H
#define GF_DRIVERS_H

#include "clock.h"
#include "gpu.h"
#include "link.h"
#include "rendezvous.h"

struct gf_drivers {
    const struct gf_link_driver *link;
    void *link_arg;
    const struct gf_rendezvous_driver *rendezvous;
    void *rendezvous_arg;
    /* Of gf_config.drivers: where gradients lie. Of gf_drivers_default: what device.driver may name
     * beside "host", which is always there; NULL: nothing. */
    const struct gf_gpu_driver *gpu;
    const struct gf_gpu_kernels *gpu_kernels; /* its own; NULL: it has none, or brings them */
    void *gpu_arg;
    const struct gf_clock *clock;
};

/* UCX, the TCP control channel and CUDA, as far as they are in this build: without UCX there is no
 * link. */
extern const struct gf_drivers gf_drivers_all;

/* &gf_drivers_all, unless the program defines it: then only the drivers that the program's table
 * names are linked.
 *     static const struct gf_drivers mine = {.link = &my_link, .rendezvous = &gf_rendezvous_tcp,
 *                                            .clock = &gf_clock_monotonic};
 *     const struct gf_drivers *const gf_drivers_default = &mine; */
extern const struct gf_drivers *const gf_drivers_default;

#endif
