/* A device for gf-plan: every element op takes the time that its bytes take, and touches none of them. */
#ifndef PLAN_GPU_H
#define PLAN_GPU_H

#include "drivers/gpu.h"
#include "drivers/sim/sim.h"

/* Of one rank; gf_drivers.gpu_arg. */
struct plan_device {
    struct gf_sim *sim;
    uint32_t rank;
    double bytes_per_ns;  /* read and written; 0: ops take no time */
    double peer_bytes_per_ns; /* of ops that reach into other ranks' memory, by their bytes there; 0: infinite */
    uint64_t op_ns;       /* of each op beside its bytes */
    bool has_data;        /* also does what the ops say, on the host: to hold runs without data against runs with it */
    bool moved;           /* the library asked whether work has ended: it may go on at once */
    uint64_t score_count;
};

extern const struct gf_gpu_driver plan_gpu;

#endif
