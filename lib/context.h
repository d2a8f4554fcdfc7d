/* The context. Each folder declares its part in its own header, and this struct embeds all parts.
 * Every function of lib/ can reach all of it, and many write into another folder's part (the vote
 * writes into the step and the regroup). No program sees the struct; some tests do. layout.h says
 * which memory it is made of. */
#ifndef GF_CONTEXT_H
#define GF_CONTEXT_H

#include <stdatomic.h>

#include "drivers/drivers.h"
#include "drivers/base/forked.h"
#include "drivers/base/ticks.h"
#include "lib/core/buffer.h"
#include "lib/core/error.h"
#include "lib/core/finite.h"
#include "lib/core/nodes.h"
#include "lib/core/op.h"
#include "lib/core/open.h"
#include "lib/core/pool.h"
#include "lib/core/progress.h"
#include "lib/core/request.h"
#include "lib/core/step.h"
#include "lib/core/wait.h"
#include "lib/core/warm.h"
#include "lib/core/weights.h"
#include "lib/device/ipc.h"
#include "lib/core/regroup.h"
#include "lib/core/observed.h"
#include "lib/optimizer/update.h"
#include "lib/sparse/sparse.h"

#define GF_CONTEXT_MAGIC UINT64_C(0x4746636f6e746578)

struct gf_context {
    uint64_t magic;
    _Atomic uint32_t aborted; /* set by gf_abort() from anywhere */
    gf_phase phase;
    uint32_t forks;          /* gf_forks when it was opened */
    struct gf_config config; /* effective */
    struct gf_log log;
    struct gf_error error;
    uint32_t rank, world, generation;

    struct gf_drivers drivers;
    struct gf_ticks ticks; /* of drivers.clock */
    struct gf_link *link;
    struct gf_control *control;
    struct gf_position position; /* this rank's, as control tells it */
    struct gf_gpu *gpu;
    struct gf_queue queue; /* of element ops on the pools, in order */
    /* of what is packed into dense buffers, after the appliance's tensors */
    struct gf_queue pack_queue;
    /* copies to host memory and back. On the host all queues are one */
    struct gf_queue out_queue, in_queue;
    const struct gf_element_ops *ops;
    struct gf_queue coll_queue; /* collectives work on host memory, at once */
    const struct gf_element_ops *coll_ops;
    /* the pools lie in device memory: element ops are asynchronous */
    bool on_device;
    struct {
        gf_mem base;   /* the arena; 0 on the host */
        gf_mem canary; /* a word of it that others read in order to know it (ipc.c) */
        uint64_t bytes;
        /* in the exchange region: the only host memory that a norm is read through, because the
         * pack buffer may hold a request that is under way */
        gf_mem squares;
        float *uuids; /* [world * GF_UUID_WORDS] of all ranks' devices (uuid.c) */
    } device;
    struct gf_ipc ipc; /* where all ranks reach each other's device memory */
    struct {
        /* of the exchange region that addresses point into, registered with a device */
        char *base;
        size_t bytes;
        struct gf_exchange_parts at;
        /* by this context; else by UCX: cuda_copy, in a context that was current */
        bool registered;
        gf_mem user; /* exchange.user_bytes */
        uint64_t user_used;
    } region;

    struct gf_pool_tensor *tensors;
    uint32_t tensor_count;
    uint64_t tensors_hash;
    struct gf_pool_sizes pool;
    gf_mem gradient;
    /* the pack buffer, where element ops reach it: pack_host itself on the host */
    gf_mem pack;
    /* the same in host memory; 0 where every buffer travels in place. Of exchange.wire; where pack
     * lies on a device, with room for fp32 */
    gf_mem pack_host;

    struct gf_opening opening;
    struct gf_warm warm;
    struct gf_nodes nodes;
    gf_algorithm algorithm; /* what is asked for, known when the warm-up ends (choose.h) */
    /* ranks that direct's flags are laid out for in this generation; the memory has room for
     * world_max */
    uint32_t flag_ranks;
    struct gf_wait_state wait_state;
    struct gf_polled polled;
    struct gf_failing failing;

    struct gf_op_table under_way;
    struct gf_requests requests;
    struct gf_buffers buffers;
    struct gf_finite finite;
    struct gf_step step;
    char *extra_stage;       /* of config.state_extra (extra.h) */
    uint64_t *vote;          /* in the exchange region: [GF_VOTE_WORDS], then the chunk norms */
    uint64_t together_ns;    /* the last vote, or the warm-up, ended */
    uint64_t samples_before; /* of all ranks in the last step that had any */
    /* the last whole step was skipped: nothing of any history was applied */
    bool skipped_last;

    struct gf_loss_scale loss_scale;
    struct gf_optimizer_pools optimizer;
    struct gf_sparse sparse;
    struct gf_change change;
    struct gf_given given;
    struct gf_observed observed;
};

#endif
