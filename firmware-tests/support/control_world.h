/* A job of a coordinator and up to eight processes in one thread, over a channel in memory: what
 * lib/control/ does under an adversary that chooses deliveries, deaths, cuts, restarts and clocks.
 * Above it stands what a program does: steps, for which every member of a generation must vote. */
#ifndef CONTROL_WORLD_H
#define CONTROL_WORLD_H

#include "lib/control/coordinator.h"
#include "lib/control/member.h"

#define CONTROL_IDS_MAX 6u
#define CONTROL_PROCS 16u /* processes, the dead ones included */
#define CONTROL_CONNS 38u /* as many as a coordinator of six ids takes */
#define CONTROL_PIPE 64u
#define CONTROL_ENDPOINT_MAX 12000u
#define CONTROL_MS UINT64_C(1000000)

struct control_frame_kept {
    uint32_t kind, size_bytes;
    unsigned char payload[GF_CHANNEL_PAYLOAD_MAX];
};

/* One direction of a connection: first in, first out, then its end. */
struct control_pipe {
    uint32_t count;
    struct control_frame_kept frames[CONTROL_PIPE];
    bool ended;
    bool lost; /* half-open: nothing comes through, and this end is told later */
    gf_channel_end end;
};

struct control_conn {
    bool used;
    uint64_t half_ns; /* since when it is half-open */
    bool told[2];     /* CONNECTED was told: 0 to the coordinator, 1 to the member */
    bool closed[2];   /* that end reads no more */
    uint32_t proc;
    struct control_pipe to[2];
};

struct control_proc {
    bool alive;
    bool stopped;
    bool rejoins;
    bool hangs;     /* its steps do not end */
    bool computes;  /* .. and it is behind, and waits for nobody */
    bool is_old;    /* of a job that was begun anew without it */
    bool excused;   /* something was done to it for which it may end */
    bool leaves;    /* it wishes to leave at the next regroup */
    bool unapplied; /* its update of the last step is still to come */
    void (*edges)(void *proc, struct control_edges *edges_out); /* or NULL */
    const void *said;                                           /* of a test's own edges() */
    uint32_t id;
    uint64_t process;
    uint64_t now_ns;
    uint64_t stuck_ns; /* since when no step has ended */
    struct gf_channel channel;
    struct gf_member *member;
    /* the program */
    uint32_t number; /* generation that it has begun */
    uint64_t steps;  /* whole */
    uint64_t voted;  /* in this generation it has voted for steps up to this one */
    uint32_t vote_waiting;
    uint64_t state; /* stands for the weights */
    bool has_state;
    uint64_t ended_steps; /* READY was said with so many */
};

struct control_world {
    uint32_t ids;      /* members of the first generation */
    uint32_t id_count; /* .. and in all */
    uint64_t random;
    uint64_t now_ns; /* the coordinator's clock */
    bool coordinator_lives;
    uint32_t coordinators; /* begun so far */
    struct gf_channel channel;
    struct gf_coordinator *coordinator;
    struct gf_coordinator_setup setup;
    uint32_t proc_count;
    bool is_stopped;                    /* the coordinator is not polled, its clock goes on */
    uint8_t cut_edges[CONTROL_IDS_MAX]; /* of each id, bits of ids: data does not pass */
    uint64_t tensors_hash;              /* of the processes that are started from here on */
    struct gf_offer offer;   /* .. node, fabric and network; where node is 0 it is the id */
    uint32_t endpoint_bytes; /* of each; at least 8 */
    bool is_fixed;           /* the job is not elastic */
    uint32_t room;           /* frames that a connection takes; 0: many */
    char *said;              /* [said_bytes]: the coordinator's lines; or NULL */
    size_t said_bytes;
    struct control_proc procs[CONTROL_PROCS];
    struct control_conn conns[CONTROL_CONNS];
    const char *broken; /* the first rule that did not hold; NULL: none */
    /* of each number: what its first member saw */
    struct control_begun {
        uint64_t list;
        uint64_t steps;
        uint64_t state;
    } begun[512];
};

void control_world_open(struct control_world *world, uint32_t ids, uint64_t seed);
/* The coordinator runs in the process of that id. */
void control_world_open_hosted(struct control_world *world, uint32_t ids, uint64_t seed,
                               uint32_t host_id);
/* Ids below id_count may come in. */
void control_world_open_growing(struct control_world *world, uint32_t ids, uint64_t seed,
                                uint32_t id_count, uint32_t host_id);
/* Each process has an endpoint of so many bytes, which take several frames. */
void control_world_open_large(struct control_world *world, uint32_t ids, uint32_t endpoint_bytes);
void control_world_open_fixed(struct control_world *world, uint32_t ids, uint64_t seed,
                              bool is_fixed);
void control_world_close(struct control_world *world);
/* A member's end of a channel, of a process that is no member. */
struct gf_channel *control_world_stranger(struct control_world *world);
uint32_t control_world_start(struct control_world *world, uint32_t id, bool rejoins);
void control_world_kill(struct control_world *world, uint32_t proc);
/* .. with words unread: its kernel resets its connection */
void control_world_kill_unread(struct control_world *world, uint32_t proc);
void control_world_cut(struct control_world *world, uint32_t proc); /* its connection */
/* Its kernel gives the connection up, and resets it where it hears of it. */
void control_world_reset(struct control_world *world, uint32_t proc);
/* Only one end sees that it breaks: 0 the coordinator's, 1 the member's. */
void control_world_cut_half(struct control_world *world, uint32_t proc, uint32_t end);
void control_world_halves_end(struct control_world *world); /* the other ends are told */
void control_world_edge(struct control_world *world, uint32_t a, uint32_t b, bool broken);
void control_world_coordinator_end(struct control_world *world);
void control_world_coordinator_begin(struct control_world *world);
/* One poll, and what the program does then. */
void control_world_turn(struct control_world *world, uint32_t proc);
void control_world_coordinate(struct control_world *world);
/* Everybody in turn, until nothing changes any more or for so long. */
void control_world_quiet(struct control_world *world, uint64_t for_ns);
uint32_t control_world_draw(struct control_world *world, uint32_t below);
/* The process of this id that lives; CONTROL_PROCS: none. */
uint32_t control_world_of(const struct control_world *world, uint32_t id);
gf_member_state control_world_state(const struct control_world *world, uint32_t proc);

#endif
