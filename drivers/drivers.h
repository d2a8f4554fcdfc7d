/* The drivers of one context: those of gf_config.drivers (tests, gf-plan), and where that or a
 * member of it is NULL, those of gf_drivers_default. */
#ifndef GF_DRIVERS_H
#define GF_DRIVERS_H

#include "channel.h"
#include "clock.h" /* by name alone: installed headers lie in one folder */
#include "gpu.h"
#include "link.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gf_drivers {
    /* Between nodes: sockets, or a network of the program's own; gf_link_front has the node's
     * memory before it. A link that maps memory itself (a simulated one) is the whole. */
    const struct gf_link_driver *link;
    void *link_arg;
    /* Takes its place where link.driver says so; NULL: none. Of a handed-in table with a link of
     * its own: its own. */
    const struct gf_link_driver *fabric;
    const struct gf_channel_driver *channel; /* of lib/control/ */
    void *channel_arg;
    /* Of gf_config.drivers: where gradients lie. Of gf_drivers_default: what device.driver may name
     * beside "host", which is always there; NULL: nothing. */
    const struct gf_gpu_driver *gpu;
    const struct gf_gpu_kernels *gpu_kernels; /* its own; NULL: it has none, or brings them */
    void *gpu_arg;
    const struct gf_clock *clock;
};

/* Sockets, and as far as they are in this build UCX for fabrics and CUDA. */
extern const struct gf_drivers gf_drivers_all;
/* Sockets alone: neither UCX nor CUDA is linked. */
extern const struct gf_drivers gf_drivers_tcp;

/* &gf_drivers_all, unless the program defines it: then only the drivers that the program's table
 * names are linked.
 *     static const struct gf_drivers mine = {.link = &my_link, .channel = &gf_channel_tcp,
 *                                            .clock = &gf_clock_monotonic};
 *     const struct gf_drivers *const gf_drivers_default = &mine; */
extern const struct gf_drivers *const gf_drivers_default;

#ifdef __cplusplus
}
#endif
#endif
