/* A device for gf-plan: every element op takes the time that its bytes take, and touches none of them. */
#ifndef PLAN_GPU_H
#define PLAN_GPU_H

#include "drivers/gpu.h"
#include "drivers/sim/sim.h"

/* Ops on whatever of the pool is next. */
typedef enum plan_kind {
    PLAN_CAST, PLAN_CHECK, PLAN_ZERO, PLAN_SCORE, PLAN_SCORE_SUM, PLAN_ACCUMULATE, PLAN_KINDS
} plan_kind;
#define PLAN_LAUNCH_ELEMS (UINT64_C(4) << 20) /* SCRATCH_ELEMS of lib/core/layout.c: chunks of a batch */

/* Of one rank; gf_drivers.gpu_arg. */
struct plan_device {
    struct gf_sim *sim;
    uint32_t rank;
    double bytes_per_ns;  /* read and written; 0: ops take no time */
    double peer_bytes_per_ns; /* of ops that reach into other ranks' memory, by their bytes there; 0: infinite */
    double pair_bytes_per_ns; /* by those to one of them; 0: as the former */
    uint64_t op_ns;       /* of each launch beside its bytes */
    /* The host's way through the pool has an op a slice, a device's a launch for many: an op of a plan_kind that
     * follows without a pause belongs to a launch of so many elements. 0: each is one. */
    uint64_t launch_elems;
    uint64_t busy_until_ns, launch_left[PLAN_KINDS];
    bool has_data;        /* also does what the ops say, on the host: to hold runs without data against runs with it */
    bool moved;           /* the library asked whether work has ended: it may go on at once */
    uint64_t score_count;
};

extern const struct gf_gpu_driver plan_gpu;

#endif
