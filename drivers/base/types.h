/* Status codes, types of elements, names of operations and algorithms, the error record and the
 * log: what every public header speaks of. A program includes gradientflow.h. */
#ifndef GF_TYPES_H
#define GF_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GF_RANK_NONE UINT32_MAX   /* "no rank": an error that has no peer */
#define GF_TENSOR_NONE UINT32_MAX /* "no tensor" */
#define GF_WORLD_MAX 8192u        /* ranks; the tag has 13 bits for a rank */
#define GF_TENSORS_MAX 16384u     /* tensors; a tag has 14 bits for a fused buffer */
#define GF_TEXT_MAX 128           /* bytes of a text in a configuration, with its end */

/* Negative is an error, zero is done, positive is "not yet". */
typedef enum gf_status {
    GF_OK = 0,           /* done */
    GF_FULL = 2,         /* no room now, nothing was taken; not an error */
    GF_AGAIN = 1,        /* under way, call again; not an error */
    GF_ERR_PARAM = -1,   /* an argument breaks the rule at its declaration */
    GF_ERR_STATE = -2,   /* right call, wrong moment */
    GF_ERR_ARENA = -3,   /* an arena is smaller than its footprint */
    GF_ERR_DEVICE = -4,  /* the GPU refused; its own code is in the error record */
    GF_ERR_LINK = -5,    /* the network refused; likewise */
    GF_ERR_TIMEOUT = -6, /* a peer was silent past the deadline */
    GF_ERR_PEER = -7,    /* a peer died, left or failed; the record says which and how */
    /* ranks were given different things (world, version, configuration, tensors, calls) */
    GF_ERR_MISMATCH = -8,
    GF_ERR_SYSTEM = -9,   /* the operating system refused; errno is in the record */
    GF_ERR_NUMERIC = -10, /* values are not finite and the loss scale is at its floor */
    GF_ERR_ABORTED = -11, /* gf_abort() was called */
    GF_ERR_CONFIG = -13,  /* a configuration file or value is refused */
    /* a saved state is corrupt, short, foreign or newer; or a checksum did not match */
    GF_ERR_DATA = -14
} gf_status;

/* "GF_ERR_TIMEOUT" and the like; never NULL. */
const char *gf_status_name(gf_status status);

typedef struct gf_context gf_context; /* lies at the start of the control region */
typedef uint64_t gf_mem;              /* host or device address; only ops and drivers follow it */
/* Host: 0. CUDA: a CUstream of the primary context that captures nothing; 0 is its legacy default
 * stream, 2 that of the calling thread, which is the default of programs compiled with
 * --default-stream per-thread. */
typedef uint64_t gf_queue_handle;
/* Host: 0. CUDA: a CUevent of the primary context. */
typedef uint64_t gf_event_handle;

/* Types of elements. */
typedef enum gf_type { GF_TYPE_F32 = 0, GF_TYPE_F16 = 1, GF_TYPE_BF16 = 2, GF_TYPE_COUNT } gf_type;
size_t gf_type_size_bytes(gf_type type); /* of one element */

/* What an error or a trace record is about: an operation (one collective under way), or another
 * call: join, update .. */
typedef enum gf_operation {
    GF_OPERATION_NONE = 0,
    GF_OPERATION_JOIN, /* gf_open() until everybody is there */
    GF_OPERATION_STEP, /* the exchange of one fused buffer inside a step */
    GF_OPERATION_VOTE, /* the small agreement at the end of a step */
    GF_OPERATION_ALLREDUCE,
    GF_OPERATION_BROADCAST,
    GF_OPERATION_REDUCE_SCATTER,
    GF_OPERATION_ALLGATHER,
    GF_OPERATION_BARRIER,
    GF_OPERATION_UPDATE,
    GF_OPERATION_STATE,   /* gf_state_save(), gf_state_load() */
    GF_OPERATION_REGROUP, /* the way into the next generation */
    GF_OPERATION_CLOSE,
    GF_OPERATION_WAIT, /* blocked in gf_step_wait(); only in traces */
    GF_OPERATION_COUNT
} gf_operation;
const char *gf_operation_name(gf_operation operation); /* "join" and the like; never NULL */

/* How a collective moves its data. */
typedef enum gf_algorithm {
    /* by size, world and nodes, within the limits that the configuration has */
    GF_ALGORITHM_AUTO = 0,
    GF_ALGORITHM_RING, /* reduce-scatter and allgather around a ring, sliced and pipelined */
    /* recursive halving, then doubling: the ring's bytes in 2 log2(n) messages; deterministic */
    GF_ALGORITHM_HALVING,
    GF_ALGORITHM_DOUBLING,  /* whole vectors, log2(n) rounds: a few KiB and below; deterministic */
    GF_ALGORITHM_TREE,      /* reduction tree to rank 0, then broadcast (FireCaffe) */
    GF_ALGORITHM_SERVER,    /* parameter server at rank 0 (FireCaffe's baseline) */
    GF_ALGORITHM_DIRECT,    /* through memory that ranks of one node share; deterministic */
    GF_ALGORITHM_HIERARCHY, /* direct inside nodes, ring or halving between them */
    GF_ALGORITHM_COUNT
} gf_algorithm;
/* as the configuration file has it; never NULL */
const char *gf_algorithm_name(gf_algorithm algorithm);

/* What the sum over ranks is divided by. 0: as the configuration file says, without one a sum. */
typedef enum gf_average {
    /* nothing: the appliance divided its loss by the global batch, so the sum is the mean */
    GF_AVERAGE_SUM = 1,
    GF_AVERAGE_RANKS,  /* the world size */
    GF_AVERAGE_SAMPLES /* the samples of all ranks in this step, said with gf_step_samples() */
} gf_average;

/* Where the coordinator runs: it decides who is in the job, and all ranks dial
 * rendezvous.address to reach it. */
typedef enum gf_coordinator_place {
    /* in rank 0's process: nothing is started beside the ranks, and the job ends with rank 0 */
    GF_COORDINATOR_AT_RANK0 = 0,
    GF_COORDINATOR_SEPARATE /* in a process of its own: gf-run starts one, or gf-coordinator is */
} gf_coordinator_place;

/* What carries messages between nodes (ranks of one node share memory). */
typedef enum gf_link_choice {
    /* ucx where on each rank the file names transports or devices of a fabric, or an InfiniBand
     * port is active and the program has UCX's part for it (make UCX_IB=1, UCX_DYNAMIC=1); else
     * tcp, and the log says why (GF_LOG_INFO). With a key_file also link.trusted_fabric, as nobody
     * proves it there */
    GF_LINK_AUTO = 0,
    GF_LINK_TCP, /* sockets */
    GF_LINK_UCX  /* InfiniBand, RoCE */
} gf_link_choice;

typedef enum gf_idle {
    /* look for some microseconds, then yield after each poll, then sleep until woken */
    GF_IDLE_AUTO = 0,
    GF_IDLE_SPIN,
    GF_IDLE_YIELD,
    GF_IDLE_SLEEP /* sleep on the link's wake-up at once */
} gf_idle;

/* Whose momentum a sparse step uses (lib/sparse/README.md). */
typedef enum gf_sparse_momentum {
    GF_SPARSE_MOMENTUM_REDUCED = 0, /* raw history; momentum after the reduction, on sent chunks */
    /* Nesterov's before accumulation; chunks are chosen by their gradients */
    GF_SPARSE_MOMENTUM_LOCAL
} gf_sparse_momentum;

typedef enum gf_optimizer {
    GF_OPTIMIZER_NONE = 0, /* the appliance updates its weights itself */
    GF_OPTIMIZER_SGD,      /* momentum SGD with weight decay */
    GF_OPTIMIZER_LARS,     /* the same with a trust ratio per tensor */
    GF_OPTIMIZER_ADAMW     /* Adam with decoupled weight decay; dense steps only */
} gf_optimizer;

/* ---- errors and logs ---- */

struct gf_error {
    gf_status code;
    uint32_t rank; /* who reports */
    uint32_t peer; /* the culprit; GF_RANK_NONE if there is none */
    gf_operation operation;
    uint64_t step;
    uint32_t tensor;       /* GF_TENSOR_NONE, or the first tensor of the buffer under way */
    int64_t foreign_code;  /* errno, ucs_status_t or CUresult; 0 if none */
    char foreign_call[40]; /* the foreign call that failed; empty if none */
    char text[256];        /* one line for a person, no newline */
};

typedef enum gf_log_level { GF_LOG_ERROR = 0, GF_LOG_WARN, GF_LOG_INFO, GF_LOG_DEBUG } gf_log_level;
/* Called on the caller's thread from inside a library call. What UCX's own thread says waits for
 * the next call that polls UCX, of whichever context. text is one line, valid during the call. It
 * must not call the library. */
typedef void (*gf_log_fn)(void *user, gf_log_level level, const char *text);
/* Such a log: errors and warnings on stderr, more with GF_DEBUG=info or debug. user: a name before
 * each, or NULL. A text that is NULL says nothing. */
void gf_log_stderr(void *user, gf_log_level level, const char *text);

#ifdef __cplusplus
}
#endif
#endif
