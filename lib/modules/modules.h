/* What a program links: the core, and the modules that its table names. gf_modules_all has all of them and is what
 * gf_open() and gf_measure() of gradientflow.h take; a program compiled with -DGF_MODULES=gf_modules_core, or with the
 * name of a table of its own, links no more than that one names. `make size` tells what each module costs.
 *
 * The core reaches a module through its entry here and nowhere else. A configuration that asks for a module whose entry
 * is NULL is refused by gf_measure() and gf_open() (GF_ERR_CONFIG), with the entry's name. Public calls of a module
 * (gf_update(), gf_shrink(), gf_state_save(), gf_trace_read(), ..) link it when the program calls them; the state
 * module consists of nothing else and has no entry. */
#ifndef GF_MODULES_H
#define GF_MODULES_H

#include "drivers/drivers.h"
#include "gradientflow.h"

struct gf_element_ops;
struct gf_coll_kind;
struct gf_hardware_module;
struct gf_device_module;
struct gf_sparse_module;
struct gf_step_module;
struct gf_optimizer_module;

/* Constant and valid as long as the contexts that were opened with it. */
struct gf_modules {
    const char *name; /* for logs and errors */
    struct gf_drivers drivers; /* none NULL but gpu: then gradients lie on the device of `device` alone */
    const struct gf_element_ops *ops; /* host: gf_element_ops_host chooses what the CPU runs, the others are one set */
    const struct gf_coll_kind *coll[GF_ALGORITHM_COUNT]; /* the core wants ring, halving, doubling and tree */
    const struct gf_hardware_module *hardware;   /* link.devices = auto; says what a transport lacks */
    const struct gf_device_module *device;       /* device.driver "cuda", and its kernels */
    const struct gf_sparse_module *sparse;       /* sparse.enabled */
    const struct gf_step_module *quantize;       /* exchange.quantize; also wants the algorithm alltoall */
    const struct gf_optimizer_module *optimizer; /* optimizer.kind */
};

extern const struct gf_modules gf_modules_all;
/* One set of element ops (AVX2 on x86-64, NEON on 64-bit ARM), dense allreduce over UCX and TCP with ring, halving,
 * doubling and tree. */
extern const struct gf_modules gf_modules_core;

extern const struct gf_element_ops gf_element_ops_host, gf_element_ops_scalar, gf_element_ops_avx2,
    gf_element_ops_avx512, gf_element_ops_neon;
extern const struct gf_coll_kind gf_coll_ring, gf_coll_halving, gf_coll_doubling, gf_coll_tree, gf_coll_server,
    gf_coll_alltoall, gf_coll_direct, gf_coll_hierarchy;
extern const struct gf_hardware_module gf_module_hardware;
extern const struct gf_device_module gf_module_device;
extern const struct gf_sparse_module gf_module_sparse;
extern const struct gf_step_module gf_module_quantize;
extern const struct gf_optimizer_module gf_module_optimizer;

/* The core's entries, for a table of one's own:
 *     const struct gf_modules mine = {GF_MODULES_CORE, .name = "mine", .sparse = &gf_module_sparse}; */
#if defined(__x86_64__)
#define GF_MODULES_ELEMENT_OPS &gf_element_ops_avx2
#elif defined(__aarch64__)
#define GF_MODULES_ELEMENT_OPS &gf_element_ops_neon
#else
#define GF_MODULES_ELEMENT_OPS &gf_element_ops_scalar
#endif
#define GF_MODULES_DRIVERS \
    .drivers = {.link = &gf_link_ucx, .rendezvous = &gf_rendezvous_tcp, .gpu = &gf_gpu_host, \
                .clock = &gf_clock_monotonic}
#define GF_MODULES_COLL \
    [GF_ALGORITHM_RING] = &gf_coll_ring, [GF_ALGORITHM_HALVING] = &gf_coll_halving, \
    [GF_ALGORITHM_DOUBLING] = &gf_coll_doubling, [GF_ALGORITHM_TREE] = &gf_coll_tree
#define GF_MODULES_CORE .ops = GF_MODULES_ELEMENT_OPS, GF_MODULES_DRIVERS, .coll = {GF_MODULES_COLL}

#endif
