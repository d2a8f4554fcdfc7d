/* struct gf_config: all that an appliance may choose. A program includes gradientflow.h. */
#ifndef GF_CONFIGURATION_H
#define GF_CONFIGURATION_H

#include "schedule.h"
#include "types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct gf_drivers; /* drivers.h; NULL: those that the program links */

/* Memory of the appliance that is part of a run's state, as weights and moments of its own
 * optimizer: gf_state_save() and gf_state_load() hold it, gf_broadcast_weights() sends it, and a
 * rank that lags, rejoins or is new gets it with the rest when a generation begins, so that it is
 * the same on all ranks. The library looks at it, and writes it, inside of those calls alone, and
 * from gf_regroup_begin() (where this rank comes in: from gf_open()) until the generation has
 * begun. What the optimizer writes is what the last applied step left: it is written between
 * gf_step_wait() and gf_update() or gf_updated(), and from the first byte to that call no other
 * call of the library is made; gf_broadcast_weights(), gf_state_save() and gf_regroup_due()'s
 * gf_regroup_begin() are refused (GF_ERR_STATE) while a step is whole and not applied. What no step
 * makes equal, as the running means of a batch normalisation, which forward writes on each rank
 * from its own samples, may be written at any time but then: after a generation's begin it is that
 * of one rank, and a step that is dropped on the way has left its trace in it. */
#define GF_STATE_EXTRA_MAX 65536u
struct gf_state_extra {
    /* must be there, of any length; ranks and saved states compare it. Two regions may have one */
    const char *name;
    /* host memory on any address; NULL where bytes is 0. Regions may overlap (tied weights) */
    void *data;
    uint64_t bytes; /* any number, 0 too; the same on all ranks */
};
#define GF_PATH_MAX_BYTES 256
/* Zeroes are defaults everywhere. gf_config_load() (config/config.h) fills it from a file, or fill
 * it by hand. The key table (gradientflow.cfg.5) states each field's file key, unit, range and
 * default. Strings are NUL-terminated. */
#define GF_ORDINAL(number) ((number) + 1u)
/* "host:port" to numeric_out[GF_TEXT_MAX]. GF_AGAIN: the name is not known yet, after asking for
 * patience_ns; GF_ERR_CONFIG: it will not do. Then why is in why_out[256]. */
typedef gf_status (*gf_resolve_fn)(const char *address, uint64_t patience_ns, char *numeric_out,
                                   char *why_out);
struct gf_config {
    uint32_t size_bytes; /* sizeof(struct gf_config), or 0: not compared */
    struct {
        uint32_t world;     /* ranks; 0: from the environment */
        uint32_t world_max; /* what it may grow to: member ids are below it; 0: world */
        /* below world (a new one's: world_max), where the environment does not say */
        uint32_t rank;
        /* frames of another job are refused; 0: from the environment, else 0 */
        uint64_t id;
        bool ignore_environment; /* take rank, world, id and address from here alone */
        /* ranks may die and the others go on: none reads device memory that dies with one */
        bool elastic;
    } job;
    struct {
        /* where the coordinator listens: numeric IP:port, or host:port where resolve is set.
         * Torchrun's variables go before the default; empty: 127.0.0.1:7117 */
        char address[GF_TEXT_MAX];
        /* numeric IP this rank listens on or connects from; empty: any route to the address */
        char bind[GF_TEXT_MAX];
        /* "first-last": where a rank listens for the connections of sockets between nodes; empty:
         * 26000-31999 */
        char ports[16];
        /* for the coordinator, then for the others; and of each generation that is to begin; 0: 1
         * min */
        uint64_t join_timeout_ns;
        uint64_t keepalive_ns; /* TCP keepalive period, rounded up to whole seconds; 0: 5 s */
        char key_file[GF_PATH_MAX_BYTES]; /* empty: no authentication */
        bool insecure;                    /* listen beyond loopback without a key */
        /* whoever started this rank has reaped the process that had it before: see gf_rejoined() */
        bool rejoin;
        gf_coordinator_place coordinator; /* the same on all ranks */
    } rendezvous;
    struct {
        /* what carries messages between nodes; for the whole job, see gf_link_choice */
        gf_link_choice driver;
        /* UCX's names, comma-separated, for ucx alone; empty: rc, ud and dc */
        char transports[GF_TEXT_MAX];
        /* "eth0,eth1": these, streams are spread over them; "a;b": by local rank; empty:
         * the one on the way to rendezvous.address, or for ucx any */
        char devices[GF_TEXT_MAX];
        /* tcp: connections of a pair of ranks, at least one for each of its devices; 0: 1 */
        uint32_t streams;
        bool checksum;   /* tcp: a CRC32C of every payload: against damage, no MAC */
        uint32_t window; /* messages under way at once in a collective; 0: 8 */
        gf_idle idle;
        /* with a key_file: ucx is allowed, over which nobody proves the key */
        bool trusted_fabric;
        bool private_memory; /* ranks of a node share no memory: the network is for all */
        bool huge_pages;     /* ask for huge pages for the exchange region */
    } link;
    struct {
        char driver[16];                 /* "cuda"; empty: host */
        char library[GF_PATH_MAX_BYTES]; /* empty: libcuda.so.1 */
        /* GF_ORDINAL(n); 0: the local rank, modulo the GPUs that it sees */
        uint32_t ordinal;
        bool shared; /* several ranks on one GPU are meant: no warning */
        /* of a GPU, which kernels between devices take at most: blocks of 1,024 threads, each with
         * the registers of a multiprocessor (NCCL: channels); 0: 20 */
        uint32_t multiprocessors;
        /* a rank's block of so much comes over by a copy engine, a smaller one by a kernel; 0: 256
         * KiB */
        uint64_t engine_bytes;
    } device;
    struct {
        gf_type wire;
        gf_algorithm algorithm;
        /* a fused buffer is closed once it holds so much of wire type; 0: 4 MiB, on a GPU 32 */
        uint64_t fuse_bytes;
        /* a larger one is cut; never below fuse_bytes or world * slice_bytes; 0: 16 MiB */
        uint64_t cut_bytes;
        uint32_t slice_bytes;    /* 0: 256 KiB, on a GPU 512 */
        uint32_t buffers_active; /* fused buffers on the wire at once; 0: 4 */
        /* results do not depend on fusion; refuses algorithms that cannot */
        bool deterministic;
        gf_average average;
        float pre_scale; /* power of two applied before the wire, its inverse after; 0: 1 */
        /* an operation without progress ends with GF_ERR_TIMEOUT; 0: 30 s */
        uint64_t timeout_ns;
        /* for so long at one position gf_heartbeat() keeps the others waiting; 0: 5 min */
        uint64_t patience_ns;
        uint64_t doubling_max_bytes; /* algorithm auto: up to here doubling; 0: 8 KiB */
        uint64_t halving_max_bytes;  /* and up to here halving, beyond it ring; 0: 512 KiB */
        uint64_t user_bytes;         /* of the exchange region, for gf_exchange_take() */
    } exchange;
    struct {
        gf_optimizer kind;
        float momentum; /* [0, 1) */
        float weight_decay;
        bool nesterov;
        float lars_eta;     /* 0: 0.001 */
        float lars_epsilon; /* 0: 1e-9 */
        float adam_beta1;   /* adamw; 0: 0.9 */
        float adam_beta2;   /* 0: 0.999 */
        float adam_epsilon; /* 0: 1e-8 */
        float clip_norm;    /* all gradients together are scaled down to it; 0: never */
        /* GF_TYPE_F32: no half pool; else a copy of the weights in this type */
        gf_type half_weights;
    } optimizer;
    struct gf_schedule rate; /* what gf_rate() says */
    struct {
        bool enabled;
        uint32_t chunk_elems;  /* 0: 32768 */
        float keep_share;      /* (0, 1]; 0: 0.15 */
        uint64_t warmup_steps; /* dense steps first */
        uint64_t ramp_steps;   /* steps from all chunks to keep_share */
        gf_sparse_momentum momentum;
    } sparse;
    struct {
        /* else the scale is 1 for ever and a non-finite step is skipped all the same */
        bool enabled;
        float initial;            /* power of two; 0: 65536 */
        uint32_t growth_interval; /* good steps before it grows; 0: 2000 */
        float factor;             /* power of two; 0: 2 */
        uint32_t hysteresis;      /* bad steps in a row before it falls; 0: 1 */
        float floor;              /* a bad step at the floor is GF_ERR_NUMERIC; 0: 1 */
    } loss_scale;
    uint32_t trace_records; /* 0: 1024 */
    gf_log_fn log;          /* NULL: silent */
    void *log_user;
    const struct gf_drivers *drivers;
    /* [state_extra_count]. gf_open() copies the table and its names; what data points to stays the
     * caller's, in place until gf_close() */
    const struct gf_state_extra *state_extra;
    uint32_t state_extra_count;
    /* NULL: tensors lie in the pools as they are given, with gaps that align them. [tensor_count],
     * a permutation that gf_measure() and gf_open() read: the tensor that lies first, second ..,
     * without a gap between two, so that a trainer takes its one flat buffer from the library: it
     * begins at gf_gradient(gf, pool_order[0]). The same on all ranks. Tensors fuse where they are
     * neighbours both in time and in the pool, as in the reverse order. All tensors have one type,
     * and sparse.enabled is refused. */
    const uint32_t *pool_order;
    /* Names to numbers, for rendezvous.address and GF_ADDRESS; gf_config_load() and its kind set
     * it, and where nobody does names are refused: resolvers allocate. gf_open() calls it, before
     * it takes anything. */
    gf_resolve_fn resolve;
};

/* Fills in the defaults and checks every range: what gf_open() works with. *config and
 * *effective_out may be the same. GF_ERR_CONFIG with one line in error_out[256]: field, value, what
 * is allowed. */
gf_status gf_config_effective(const struct gf_config *config, struct gf_config *effective_out,
                              char *error_out);
/* What a program needs of a configuration that somebody else wrote: GF_OK, or GF_ERR_CONFIG with
 * one line in error_out[256] that names the key. */
#define GF_NEED_OPTIMIZER 0x1u     /* gf_weight(), gf_update(): optimizer.kind is not none */
#define GF_NEED_OWN_OPTIMIZER 0x2u /* the program applies steps itself: optimizer.kind is none */
#define GF_NEED_HALF_WEIGHTS 0x4u  /* gf_weight_half(): optimizer.half_weights is fp16 or bf16 */
#define GF_NEED_NO_LOSS_SCALE 0x8u /* the program never asks gf_loss_scale() */
#define GF_NEED_RATE 0x10u         /* gf_rate(): rate.base is set */
#define GF_NEED_DENSE 0x20u /* its optimizer is not linear in the gradient: no sparse steps */
gf_status gf_config_need(const struct gf_config *config, uint32_t needs, char *error_out);
/* Of the effective values that must agree on all ranks: not job, rendezvous, device, trace_records,
 * log, drivers, resolve, exchange.timeout_ns and patience_ns, nor of link devices, idle,
 * trusted_fabric and huge_pages. 0: config is NULL. */
uint64_t gf_config_hash(const struct gf_config *config);
/* The same values as "wire=fp32 algorithm=ring ..", for errors that show a difference; returns
 * text_out. An empty text where config is NULL, nothing where text_out is NULL. */
char *gf_config_summary(const struct gf_config *config, char *text_out, size_t text_bytes);

#ifdef __cplusplus
}
#endif
#endif
