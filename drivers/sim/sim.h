/* A world without hardware: any number of ranks in one thread, a network with delay, bandwidth and
 * faults, and virtual time, all from one seed. For tests and gf-plan; may allocate, is not part of
 * libgradientflow.a. The same seed and the same calls give the same run. */
#ifndef GF_SIM_H
#define GF_SIM_H

#include "drivers/drivers.h"

typedef enum gf_sim_fault_kind {
    GF_SIM_FAULT_NONE = 0,
    GF_SIM_FAULT_FULL,      /* post gives GF_FULL once */
    GF_SIM_FAULT_ERROR,     /* post gives GF_ERR_LINK */
    GF_SIM_FAULT_DROP,      /* the message never arrives; the send ends well */
    GF_SIM_FAULT_DUPLICATE, /* arrives twice */
    GF_SIM_FAULT_DELAY,     /* arrives delay_ns later: reordering */
    GF_SIM_FAULT_SHORT,     /* arrives with another size */
    /* the posting rank is dead from here on: its posts and polls give GF_ERR_ABORTED, its control
     * connection ends after detect_ns, its messages under way are lost */
    GF_SIM_FAULT_KILL,
    /* the posting rank does not run for delay_ns: gf_sim_runs() is false, nothing ends */
    GF_SIM_FAULT_STOP
} gf_sim_fault_kind;

/* The fault affects the at-th post (send or receive, from 1, counted over `rank` or over all with
 * GF_RANK_NONE). */
struct gf_sim_fault {
    gf_sim_fault_kind kind;
    uint32_t rank;
    uint64_t at;
    uint64_t delay_ns;
};

struct gf_sim_setup {
    uint32_t world;
    /* ranks of a node see each other's region through map(); 0 or 1: none do */
    uint32_t ranks_per_node;
    uint32_t node_ranks[8]; /* set: how many ranks each node has, in order of ranks, instead */
    /* pairs of ranks that do not see each other's region; a rank twice: none */
    uint32_t blind[2][2];
    uint64_t seed;
    uint64_t latency_ns; /* a message's time beside its bytes */
    /* plus uniformly 0..jitter, per message: those of different tags overtake each other */
    uint64_t jitter_ns;
    double bytes_per_ns;      /* of each rank's port, in and out apart; 0: infinite */
    double node_bytes_per_ns; /* between ranks of a node; 0: infinite */
    uint64_t node_latency_ns;
    uint64_t message_ns; /* sender's port busy for each message beside its bytes */
    uint64_t detect_ns;  /* from death to the news on the control connection */
    bool node_port;      /* ranks of a node share network ports: its cards, not one a rank */
    /* with node_port: so many, each for as many neighbouring ranks; 0: one */
    uint32_t node_cards;
    bool rails;               /* the leaf switch of a card is that of its index, else its node's */
    uint32_t leaf_nodes;      /* nodes of a leaf switch; 0: all */
    double leaf_bytes_per_ns; /* between a leaf and the tier above it, each way; 0: infinite */
    /* a flag is seen a node's latency after its writer's work has ended; else at once, as in
     * memory, whatever work the writer does in virtual time */
    bool late_flags;
    /* fused buffers travel as sizes and times: their bytes are neither read nor written, and
     * regions cost no memory until touched (gf-plan). Vote and requests, by their tags
     * (GF_TAG_BUFFER_OTHER), carry what they hold */
    bool no_data;
    /* a receive whose message has begun to arrive cannot be cancelled, as with UCX; if the sender
     * dies then, only reset() or close() ends it */
    bool bind_receives;
    /* these ranks' messages may lie in device memory, a bit each; UINT64_MAX: all ranks' */
    uint64_t device_ranks;
    /* How a card moves bytes to device memory, or from there; NULL: as all others. */
    void (*device_copy)(bool to_device, void *dst, const void *src, size_t size_bytes);
    struct gf_sim_fault faults[8];
    uint32_t fault_count;
    double drop_rate, duplicate_rate; /* at random, per message */
};

struct gf_sim;

struct gf_sim *gf_sim_create(const struct gf_sim_setup *setup); /* NULL: no memory */
void gf_sim_destroy(struct gf_sim *sim);                        /* after all contexts were closed */
/* For config.drivers of this rank's context; valid until destroy. gpu stays NULL (host). */
const struct gf_drivers *gf_sim_drivers(struct gf_sim *sim, uint32_t rank);
/* The number of one process more, which is no rank: a coordinator's. Its drivers have a channel
 * alone, and nothing wakes it before that is open. It is woken, killed, stopped, cut off and
 * restarted like a rank. */
uint32_t gf_sim_coordinator(const struct gf_sim *sim);

uint64_t gf_sim_now_ns(const struct gf_sim *sim);
/* Advances virtual time to the next event (an arrival, an end of a stop, a due wake-up), which
 * happens. False: there is none, and nothing will ever happen by itself; only gf_sim_wake_at() or
 * gf_sim_advance_to() continues the run. */
bool gf_sim_advance(struct gf_sim *sim);
void gf_sim_advance_to(struct gf_sim *sim, uint64_t now_ns);
/* Wakes the rank at this time (the end of a computation, a deadline). */
void gf_sim_wake_at(struct gf_sim *sim, uint32_t rank, uint64_t at_ns);
/* The next running rank for which something has happened since it was last returned, the longest
 * waiting first: only such contexts need a poll. GF_RANK_NONE: there is none. At first all are
 * woken. */
uint32_t gf_sim_woken_next(struct gf_sim *sim);
bool gf_sim_runs(const struct gf_sim *sim, uint32_t rank); /* neither dead nor stopped */
bool gf_sim_is_dead(const struct gf_sim *sim, uint32_t rank);
/* The rank's thread works for so long, from now or from the end of the work before. What it sends
 * leaves no earlier than that end, and it is not woken before. */
void gf_sim_work(struct gf_sim *sim, uint32_t rank, uint64_t work_ns);
/* when that ends; now, where it does not work */
uint64_t gf_sim_free_ns(const struct gf_sim *sim, uint32_t rank);
/* Does the address lie in the region of another rank of its node? */
bool gf_sim_is_peers(const struct gf_sim *sim, uint32_t rank, gf_mem address);

/* Faults by hand. */
void gf_sim_kill(struct gf_sim *sim, uint32_t rank);
void gf_sim_stop(struct gf_sim *sim, uint32_t rank, bool stopped);
/* messages are held, not lost */
void gf_sim_partition(struct gf_sim *sim, uint32_t a, uint32_t b, bool cut);
/* Both kernels give up the control connection now and lose what it holds, whether or not it is cut.
 * Where a cut lasts, each does so by itself after the channel's keepalive. */
void gf_sim_give_up(struct gf_sim *sim, uint32_t a, uint32_t b);
/* The at-th post of this rank from now on gives GF_ERR_LINK. */
void gf_sim_fail_post(struct gf_sim *sim, uint32_t rank, uint64_t at);
/* From now on this share of the messages from `from` to `to` is lost, each time that one is sent;
 * it is retransmitted as by TCP (sim_evidence.c). The sends end with GF_OK, and control connections
 * stay open. */
void gf_sim_lose(struct gf_sim *sim, uint32_t from, uint32_t to, double rate);
/* From now on the rank's own port takes so many times as long, in and out. 1: as before, and free
 * at once. */
void gf_sim_slow(struct gf_sim *sim, uint32_t rank, double times);
/* A dead rank lives again, as a new process that has opened nothing; the old one's context must be
 * closed. */
void gf_sim_restart(struct gf_sim *sim, uint32_t rank);

struct gf_sim_counts {
    uint64_t requests_posted, requests_ended; /* at the end as many as were posted */
    uint64_t messages_sent, bytes_sent;
    bool fault_met;
};
/* as of now, and later; valid until destroy */
const struct gf_sim_counts *gf_sim_counts(const struct gf_sim *sim);

#endif
