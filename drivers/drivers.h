/* The drivers of one context. gf_config.drivers hands them in (tests, gf-plan); NULL takes gf_drivers_builtin. */
#ifndef GF_DRIVERS_H
#define GF_DRIVERS_H

#include "clock.h"
#include "gpu.h"
#include "link.h"
#include "rendezvous.h"

#define GF_GPU_OTHERS_MAX 2

/* Members that are NULL are taken from gf_drivers_builtin. */
struct gf_drivers {
    const struct gf_link_driver *link;
    void *link_arg;
    const struct gf_rendezvous_driver *rendezvous;
    void *rendezvous_arg;
    const struct gf_gpu_driver *gpu;
    void *gpu_arg;
    const struct gf_clock *clock;
    /* Of gf_drivers_builtin alone: what device.driver may name beside .gpu, which is the one where it names none. */
    struct {
        const struct gf_gpu_driver *driver;
        const struct gf_gpu_kernels *kernels;
    } gpu_others[GF_GPU_OTHERS_MAX];
};

/* The real ones, the only reference to them in the library. A program that defines this symbol itself is not linked
 * against UCX. */
extern const struct gf_drivers gf_drivers_builtin;

#endif
