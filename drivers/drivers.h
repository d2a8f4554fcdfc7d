/* The drivers of one context. gf_config.drivers hands them in (tests, gf-plan); NULL takes those of struct gf_modules. */
#ifndef GF_DRIVERS_H
#define GF_DRIVERS_H

#include "clock.h"
#include "gpu.h"
#include "link.h"
#include "rendezvous.h"

/* In gf_config.drivers, members that are NULL are taken from struct gf_modules. */
struct gf_drivers {
    const struct gf_link_driver *link;
    void *link_arg;
    const struct gf_rendezvous_driver *rendezvous;
    void *rendezvous_arg;
    const struct gf_gpu_driver *gpu;
    void *gpu_arg;
    const struct gf_clock *clock;
};

#endif
