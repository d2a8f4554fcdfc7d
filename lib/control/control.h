/* The control plane as the rest of lib/ sees it: this process as a member of its job and, where
 * it hosts it, the coordinator. This part opens their channels and polls both. A member learns a
 * generation from it: its number, and the endpoint of each rank's link. */
#ifndef GF_CONTROL_H
#define GF_CONTROL_H

#include "drivers/channel.h"
#include "drivers/link.h"

/* What must be the same on every rank; compared by the coordinator, a difference is an error on all
 * ranks that names the field, both ranks and both values. */
struct gf_offer {
    uint32_t version;      /* GF_VERSION */
    uint64_t config_hash;  /* of the fields that must agree: gf_config_hash() */
    uint64_t tensors_hash; /* names, counts, flags, types, order */
    uint32_t tensor_count;
    /* these are a link's */
    uint32_t network; /* a gf_network */
    uint32_t fabric;  /* a gf_fabric (drivers/link.h) */
    uint64_t node;
    uint64_t elem_count; /* of all tensors */
    char summary[640];   /* the same fields as text, to show a difference: gf_config_summary() */
};

/* How far a member is: what a regroup has to bring together. */
struct gf_control_progress {
    uint64_t steps;    /* whole */
    uint64_t requests; /* posted */
    uint32_t applied;  /* changes of the weights since: the update, each broadcast of them */
    /* 1: its weights are half those of another rank, or none; anybody's are better */
    uint32_t partial;
};

/* What this process is a member of, or is to be. */
struct gf_generation {
    uint32_t number; /* 0: of none yet */
    uint32_t rank;
    uint32_t world;
    uint32_t network;                    /* a gf_network */
    uint32_t lead;                       /* the lowest rank that has the common state */
    bool lags;                           /* some rank needs it */
    bool comes_in;                       /* this one does, whatever it was before */
    struct gf_control_progress progress; /* the common one */
};

/* Where this rank is; the owner keeps it up to date. */
struct gf_position {
    uint64_t step;      /* steps that have ended */
    uint64_t sequence;  /* operations begun in the generation: who has the lowest is behind */
    uint32_t operation; /* gf_operation */
    uint32_t buffer;    /* the one under way */
    /* first tensor of the buffer under way, or GF_TENSOR_NONE */
    uint32_t tensor;
    uint32_t waits_for; /* rank, or GF_RANK_NONE (computing) */
};

struct gf_control_setup {
    uint32_t id;       /* this process's number for the whole job: its rank in the configuration */
    uint32_t world;    /* ranks of the first generation */
    uint32_t id_count; /* ids are below it: job.world_max */
    /* whose process hosts the coordinator; GF_RANK_NONE: it has a process of its own */
    uint32_t host_id;
    bool hosts;       /* this process does, and listens */
    bool rejoins;     /* it was started again, and the process before it has ended */
    uint64_t process; /* random: tells it from others of this id */
    bool elastic;
    uint64_t join_timeout_ns, exchange_timeout_ns;
    const struct gf_channel_driver *driver;
    struct gf_channel_setup channel; /* as a member opens it; keepalive_ns goes into the offer */
    size_t endpoint_bytes_max;
    /* Asked when this rank fails, and at an inquiry: is the edge to that rank broken? */
    bool (*edge_is_broken)(void *edges_of, uint32_t rank, struct gf_fault *fault_out);
    const char *(*tensor_name)(void *edges_of, uint32_t tensor); /* NULL: they have none */
    /* operations that this rank has begun, as its own have numbers; NULL: 0 */
    uint64_t (*begun)(void *edges_of);
    void *edges_of;
    struct gf_offer offer;
};

/* Where this process stands. */
typedef enum gf_control_state {
    GF_CONTROL_AWAITS, /* a generation; gf_control_list_due() */
    GF_CONTROL_WORKS,  /* it is of gf_control_generation() */
    GF_CONTROL_FAILED, /* likewise, and it has failed; or gf_control_is_found() */
    GF_CONTROL_LEAVES, /* gf_control_bye(): the others are awaited */
    GF_CONTROL_LEFT,   /* in good order */
    GF_CONTROL_ENDED   /* for good: gf_control_error() */
} gf_control_state;

struct gf_control;

size_t gf_control_state_bytes(const struct gf_control_setup *setup);
/* Opens in state[gf_control_state_bytes()], which is aligned to 64. On failure nothing is left open
 * and *fault_out says why. */
gf_status gf_control_open(const struct gf_control_setup *setup, void *state, uint64_t now_ns,
                          struct gf_control **control_out, struct gf_fault *fault_out);
gf_control_state gf_control_current_state(
    const struct gf_control *control); /* as of the last poll */
/* Bounded work, never blocks. now_ns leaves out time in which this rank did not run, away_ns in
 * all; other hosts count it. `position` is what is told of this rank. */
gf_control_state gf_control_poll(struct gf_control *control, uint64_t now_ns, uint64_t away_ns,
                                 const struct gf_position *position);

/* AWAITS, true: this is the generation to come. The link is opened for it, and its endpoint is
 * handed in; it may be that another list comes after it. */
bool gf_control_list_due(const struct gf_control *control, struct gf_generation *generation_out);
void gf_control_endpoint_set(struct gf_control *control, const void *endpoint,
                             size_t endpoint_bytes);
/* WORKS, and what follows: */
const struct gf_generation *gf_control_generation(const struct gf_control *control);
const void *gf_control_endpoint(const struct gf_control *control, uint32_t rank, size_t *bytes_out);
uint32_t gf_control_joiners(const struct gf_control *control); /* processes that wait to come in */
/* Who has closed after the fewest steps; no later step can end. False: nobody. */
bool gf_control_closed(const struct gf_control *control, uint32_t *rank_out, uint64_t *step_out);
/* This rank has failed, after so many whole steps. `ends`: it cannot go on, whatever is decided. */
void gf_control_fault(struct gf_control *control, const struct gf_error *seen, uint64_t steps,
                      bool ends);
/* The coordinator has said whose fault it is, or this process has ended: gf_control_error(). */
bool gf_control_is_found(const struct gf_control *control);
const struct gf_error *gf_control_error(const struct gf_control *control);
bool gf_control_is_lost(const struct gf_control *control);  /* .. as the coordinator is lost */
bool gf_control_is_final(const struct gf_control *control); /* .. and there is no generation more */
/* Its operations have ended: FAILED and found, or WORKS where `planned`. */
void gf_control_ready(struct gf_control *control, const struct gf_control_progress *own,
                      bool planned, bool leaves);
void gf_control_bye(struct gf_control *control, uint64_t steps);
/* LEAVES: a rank that has not closed and is awaited, and in words where it is; "" and GF_RANK_NONE:
 * none is known. */
const char *gf_control_waits_for(const struct gf_control *control, uint32_t *rank_out);
/* "Computing": it asks to be awaited for so long from now on. */
void gf_control_heartbeat(struct gf_control *control, uint64_t now_ns, uint64_t patience_ns);
/* For how much longer a rank of the generation asks for patience, and from which operation on
 * (setup.begun); 0: none does. */
uint64_t gf_control_patience(const struct gf_control *control, uint64_t now_ns, uint64_t *from_out);
/* This rank posts a public request: all ranks must post the same ones. */
void gf_control_call(struct gf_control *control, gf_operation operation, gf_type type,
                     uint32_t root, uint64_t elem_count);

bool gf_control_hosts(const struct gf_control *control); /* the coordinator lives as long as it */
/* All words have left; where it hosts the coordinator, that has nothing more to say. */
bool gf_control_flushed(const struct gf_control *control);
/* Descriptors to sleep on; returns how many, up to GF_CONTROL_FDS. */
#define GF_CONTROL_FDS 2u
uint32_t gf_control_wake_fds(const struct gf_control *control, int fds_out[GF_CONTROL_FDS]);
uint64_t gf_control_sent_bytes(const struct gf_control *control);
void gf_control_close(struct gf_control *control);

#endif
