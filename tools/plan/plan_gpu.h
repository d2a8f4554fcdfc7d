/* Devices for gf-plan: every element op takes the time that its bytes take, and touches none of
 * them. plan_gpu_host: the rank's thread computes, in memory that the node shares. plan_gpu_device:
 * a GPU beside it, with memory of its own, one place for kernels, also those between devices, which
 * would leave room for others, and one each for copies to the host, from there and from peers; what
 * is queued there ends when these have done it, and meanwhile the rank's thread moves the network.
 * Flags between devices are the CPU's (results/plan.md: what that adds). */
#ifndef PLAN_GPU_H
#define PLAN_GPU_H

#include "drivers/gpu.h"
#include "drivers/sim/sim.h"

/* Element ops on whatever of the pool is next. */
typedef enum plan_kind {
    PLAN_CAST,
    PLAN_CHECK,
    PLAN_ZERO,
    PLAN_SCORE,
    PLAN_SCORE_SUM,
    PLAN_ACCUMULATE,
    PLAN_KINDS
} plan_kind;
/* a launch of the host's way through the pool: below */
#define PLAN_LAUNCH_ELEMS (UINT64_C(4) << 20)

typedef enum plan_engine {
    PLAN_KERNELS,
    PLAN_COPIES_OUT,
    PLAN_COPIES_IN,
    PLAN_COPIES_PEER, /* from peers' memory */
    PLAN_ENGINES
} plan_engine;
#define PLAN_EVENTS_MAX (GF_TENSORS_MAX + 32u) /* and what is under way */

/* Of one rank; gf_drivers.gpu_arg. */
struct plan_device {
    struct gf_sim *sim;
    uint32_t rank;
    double bytes_per_ns; /* read and written; 0: element ops take no time */
    /* of those that reach into other ranks' memory, by their bytes there; 0: infinite */
    double peer_bytes_per_ns;
    double pair_bytes_per_ns; /* by those to one of them; 0: as the former */
    uint64_t op_ns;           /* of each launch beside its bytes */
    uint64_t poll_ns;         /* until the CPU sees that work has ended */
    /* The host's way through the pool has an element op a slice, a device's a launch for many: one
     * of a plan_kind that follows without a pause belongs to a launch of so many elements. 0: each
     * is one. */
    uint64_t launch_elems;
    uint64_t busy_until_ns, launch_left[PLAN_KINDS];
    bool is_gpu; /* plan_gpu_device, with */
    /* it takes no time: opening blocks until it is done, and no time goes by meanwhile */
    bool at_once;
    /* each way between its memory and the host's, and of what the host adds; 0: infinite */
    double host_bytes_per_ns;
    unsigned char *arena;
    uint64_t arena_bytes;
    gf_mem host; /* memory of the host that copies go to and come from */
    uint64_t host_bytes;
    /* the appliance's first */
    uint64_t engine_free_ns[PLAN_ENGINES], stream_free_ns[GF_STREAM_COUNT + 1];
    uint64_t event_ns[PLAN_EVENTS_MAX];
    /* also does what the element ops say, on the host: for runs held against those without */
    bool has_data;
    bool moved; /* the library asked whether work has ended: it may go on at once */
    uint64_t score_count;
};

struct plan_device *plan_device_of(const struct gf_gpu *gpu);
/* as of plan_ops */
uint64_t plan_peer_copy_ns(const struct plan_device *device, uint64_t size_bytes);
gf_status plan_copy(struct gf_queue *queue, gf_mem dst, gf_mem src, uint64_t size_bytes);
gf_status plan_zero(struct gf_queue *queue, gf_mem dst, uint64_t size_bytes);
void plan_device_work(const struct gf_queue *queue, plan_engine engine, uint64_t work_ns);
/* of both, and on stream 0 of a GPU's what its host does */
extern const struct gf_element_ops plan_ops;
extern const struct gf_gpu_driver plan_gpu_host, plan_gpu_device;

#endif
