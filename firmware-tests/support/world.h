/* Whole contexts in one thread: the real library on every rank over the simulated network, in
 * virtual time. Memory is handed out to the byte between guards; what each rank logs is kept. */
#ifndef WORLD_H
#define WORLD_H

#include "gradientflow.h"
#include "firmware-tests/support/real_links.h"
#include "lib/control/coordinator.h"

#define WORLD_LOG_BYTES 32768u

struct world;

/* A device whose memory the CPU cannot touch: what an appliance does on a stream of its own. */
struct world_device {
    /* given to gf_queue_follow() before a step, to gf_tensor_ready() in it */
    gf_queue_handle stream;
    /* host memory, written instead of the gradient */
    void *(*gradient)(struct world *w, uint32_t rank, uint32_t tensor);
    /* to it, queued on the stream */
    void (*store)(struct world *w, uint32_t rank, uint32_t tensor, const void *gradient);
};

/* Zeroes: one rank, no delay, the configuration's defaults. config's job, drivers and log are
 * filled in. */
struct world_setup {
    uint32_t world;
    struct gf_config config;
    const struct gf_tensor *tensors;
    uint32_t tensor_count;
    struct gf_sim_setup sim; /* world is filled in */
    /* the coordinator is a process of its own, and not in that of rank 0: rank 0 may die, too */
    bool separate;
    /* late_gpu, or NULL: the host. What was queued is done before a gradient is written */
    const struct gf_gpu_driver *gpu;
    /* ranks see the machine's clock and look without a pause: a real device takes time of its
     * own */
    bool real_time;
    /* with a gpu whose memory is no host's; NULL: gradients are written where they lie */
    const struct world_device *device;
    /* Called for each rank before it is measured: to give ranks different things. */
    void (*vary)(uint32_t rank, struct gf_config *config, const struct gf_tensor **tensors,
                 uint32_t *tensor_count);
};

/* A context's clock: the simulator's, and while one rank blocks, what makes the others go on. */
struct world_clock {
    struct gf_clock clock;
    struct world *w;
};

struct world_rank {
    gf_context *gf; /* NULL: not open, or closed */
    struct gf_config config;
    struct gf_drivers drivers;
    struct world_clock clock;
    const struct gf_tensor *tensors;
    uint32_t tensor_count;
    struct gf_footprint footprint;
    unsigned char *memory; /* between guards */
    gf_status status;      /* of the run under way */
    uint32_t next;         /* of the run under way: how far this rank is; 0 at its start */
    uint64_t backoff_ns;
    uint64_t naps[4]; /* wake-ups asked for and still to come */
    uint32_t nap_count;
    char log[WORLD_LOG_BYTES]; /* errors and warnings, a line each; once full it begins anew */
    size_t log_bytes;
    bool tells; /* it has failed, and is polled until it answers that */
};

/* A coordinator that is a process of its own: gf_sim_coordinator() is its number. */
struct world_coordinator {
    struct gf_coordinator *machine; /* NULL: it has not begun, or has ended */
    void *state, *channel_state;
    struct gf_channel *channel;
    gf_status status; /* of the last poll: GF_AGAIN, and then how the job has ended */
    uint64_t nap_ns;
    uint32_t starts; /* of it so far */
};

/* One turn of one rank. GF_AGAIN: it wants another, soon. */
typedef gf_status (*world_progress)(struct world *w, uint32_t rank, void *arg);

struct world {
    struct gf_sim *sim;
    struct real_links *links; /* NULL: the simulator's */
    uint32_t world;
    const struct world_device *device;
    uint64_t limit_ns; /* a run that takes longer has hung */
    /* 0, or the machine's clock when the world began: the ranks' clock is since then */
    uint64_t real_ns;
    struct world_rank *ranks; /* [world], and what a coordinator logs */
    struct world_coordinator coordinator;
    world_progress pump; /* while a call blocks: turns of the other ranks; NULL: none */
    void *pump_arg;
    uint32_t blocked;
    bool is_pumping;
    /* the clock goes on by the first with each look, as real ones do; by the second so far */
    uint64_t creep_ns, crept_ns;
};

/* A network of another latency for each message, and a link whose receives cannot be cancelled. */
extern const struct gf_sim_setup world_network;
/* Memory, and gf_open() on every rank; each rank's status says how that went. */
void world_create(struct world *w, const struct world_setup *setup);
/* The same, and all of them must join. */
void world_open(struct world *w, const struct world_setup *setup);
/* gf_open_poll() on every rank until it has answered. */
void world_join(struct world *w);
/* A rank that was killed is started anew: gf_open() with what it was given before and
 * config.rendezvous.rejoin. */
void world_restart(struct world *w, uint32_t rank);
/* The coordinator of its own ends by a signal; another one begins in its place. */
void world_coordinator_kill(struct world *w);
void world_coordinator_start(struct world *w);
/* Its path to these ranks, a bit each, is cut; or stands again. */
void world_coordinator_cut(struct world *w, uint64_t ranks, bool cut);
struct gf_coordinator_status world_coordinator_status(const struct world *w);
/* Closes every context that is open, all at once, and looks at what must hold then: the guards, and
 * that no message is under way. Ranks that are stopped die first. */
void world_close(struct world *w);
/* A world that is open (or only created) until the end of its block; WORLD: it is opened by
 * somebody else, at once. */
#define WORLD(w) struct world w __attribute__((cleanup(world_close)))
#define WORLD_OPEN(w, setup)                              \
    struct world w __attribute__((cleanup(world_close))); \
    world_open(&w, setup)
#define WORLD_CREATE(w, setup)                            \
    struct world w __attribute__((cleanup(world_close))); \
    world_create(&w, setup)

/* Turns of every rank that runs until each has answered anything but GF_AGAIN; the answers are in
 * ranks[].status. The last word of a rank that died or is stopped is GF_AGAIN. */
void world_run(struct world *w, world_progress turn, void *arg);
void world_expect(const struct world *w, gf_status status); /* on every rank */
/* From here on a call may block: whenever it looks at the clock, every rank but this one takes its
 * turns and time goes on. world_unblock() ends that; the others may not be done yet. */
void world_block(struct world *w, uint32_t rank, world_progress turn, void *arg);
void world_unblock(struct world *w);

typedef enum world_order {
    WORLD_FORWARD = 0,
    WORLD_BACKWARD,
    WORLD_RANDOM,
    WORLD_ROTATED,
    WORLD_ORDER_COUNT
} world_order;
/* The tensor that `rank` declares at this place. WORLD_RANDOM is the same on all ranks,
 * WORLD_ROTATED on none. */
uint32_t world_order_at(world_order order, uint32_t rank, uint32_t place, uint32_t tensor_count);

struct world_step {
    world_order order;
    /* Writes gradient[elem_count] of the tensor's type. NULL: world_fill(). */
    void (*fill)(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg);
    bool (*skips)(uint32_t rank, uint32_t tensor); /* NULL: none */
    const uint64_t *samples;                       /* by rank; NULL: not said */
    void *arg;                                     /* for fill */
    uint64_t pause_ns;                             /* between two tensors: what a layer computes */
};
/* gf_step_begin(), every tensor in its order, gf_step_poll() until it is whole. */
void world_step_run(struct world *w, const struct world_step *step);
/* The same: all ranks end it well, with the same bits. */
void world_step_ok(struct world *w, const struct world_step *step);
/* All that a late device was given is done: what an appliance's stream would have waited for. */
void world_drain(struct world *w, uint32_t rank);
/* The same for one turn of one rank; arg is the struct world_step. */
gf_status world_step_progress(struct world *w, uint32_t rank, void *arg);
/* The same, and once `act` on a rank that has declared so many tensors. */
struct world_interrupt {
    uint32_t rank, after_tensors;
    void (*act)(struct world *w, uint32_t rank);
    bool done;
    struct world_step step;
};
gf_status world_interrupted_progress(struct world *w, uint32_t rank, void *interrupt);
/* Opens the world, and a step of all ranks into what `act` does; how long that took. A rank that it
 * closes is done. */
uint64_t world_interrupted_run(struct world *w, const struct world_setup *setup, uint32_t rank,
                               uint32_t after_tensors, void (*act)(struct world *w, uint32_t rank));
/* gf_regroup_begin() in a rank's first turn, then gf_regroup_poll(); arg is not used. */
gf_status world_regroup_progress(struct world *w, uint32_t rank, void *arg);

/* The algorithms of a world of one kind, in the order of gf_algorithm: those that exchange messages
 * alone, and, if asked, those that want all ranks in one node. Hierarchy is neither: it wants
 * several nodes of several ranks. A new algorithm is among them by itself. Returns how many. */
uint32_t world_algorithms(bool and_in_memory, gf_algorithm algorithms_out[GF_ALGORITHM_COUNT]);
/* Of these, that one wants all ranks in one node. */
bool world_algorithm_in_memory(gf_algorithm algorithm);

/* The value that world_fill() writes: a small whole number, exact in each type, as are sums of a
 * few dozen. */
float world_value(uint32_t rank, uint32_t tensor, uint64_t elem);
void world_fill(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg);
/* Any finite value of small magnitude, for tests of rounding; arg is not used. */
void world_fill_noise(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg);
/* One value throughout: arg is a const float *. */
void world_fill_one(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg);
/* As world_fill(), but one element of one tensor is `value` on one rank, or on all if rank is
 * GF_RANK_NONE, and `others`, unless that is 0, on the other ranks. */
struct world_spoil {
    uint32_t rank, tensor;
    uint64_t elem;
    float value, others;
};
/* arg is a const struct world_spoil *. */
void world_fill_spoilt(struct world *w, uint32_t rank, uint32_t tensor, void *gradient, void *arg);

void world_put(gf_type type, void *data, uint64_t elem, float value);
float world_get(gf_type type, const void *data, uint64_t elem);
const void *world_gradient(struct world *w, uint32_t rank, uint32_t tensor);
/* All gradients of all ranks are the same, bit by bit. */
void world_expect_equal(struct world *w);
/* The sum over ranks of what world_fill() wrote; and that each gradient is that times factor, in
 * one rounding, the same on all ranks. */
float world_sum(uint32_t world, uint32_t tensor, uint64_t elem);
void world_expect_sums(struct world *w, float factor);
/* FNV-1a over the gradients of a rank. */
uint64_t world_hash(struct world *w, uint32_t rank);

/* Does this rank's log hold the text? */
bool world_logged(const struct world *w, uint32_t rank, const char *text);
void world_log_clear(struct world *w);
/* Fails the test unless the log holds it; shows the log. */
void world_expect_log(const struct world *w, uint32_t rank, const char *text);

/* What holds for a rank that has failed: the record is whole, the log has it, and calls answer with
 * its code. */
void world_expect_failed(struct world *w, uint32_t rank, gf_status code);

/* The member id of a rank of the generation that this context is of, or was; of all of them, a bit
 * each, 0: of none. Over real links nobody knows them. */
uint32_t world_member(const gf_context *gf, uint32_t rank);
uint64_t world_members(const gf_context *gf);
struct gf_stats world_stats(const struct world *w, uint32_t rank);

#endif
