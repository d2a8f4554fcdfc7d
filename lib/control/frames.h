/* The frames between a member and the coordinator, and their bytes. Each is written and read by one
 * walk.
 *
 *     frame      way      carries
 *     OFFER      m -> c   which process this is, where it stands, what must be equal on all ranks
 *     LIST       c -> m   number, rank, world and network of the generation to come
 *     ENDPOINT   m -> c   the endpoint of its link for that list, in pieces
 *     GO         c -> m   the generation has begun: the endpoints of all ranks, in pieces; which
 *                         rank has the common state, and what it is
 *     REFUSED    c -> m   why this process does not come in
 *     STATUS     m -> c   where it is; says "alive", too
 *     WAITING    c -> m   how many wait to come in; says "alive", too
 *     FAULT      m -> c   what failed, and which edges are broken
 *     ASK        c -> m   an inquiry,
 *     POSITION   m -> c   and its answer: STATUS and the broken edges as of one moment
 *     ERROR      c -> m   the finding, and whether this member may go on
 *     READY      m -> c   its operations have ended: how far it is
 *     BYE        m -> c   it closes in good order, after so many steps
 *     ALL_GONE   c -> m   all have, or this one may leave
 *     CLOSED     c -> m   which member said BYE after the fewest steps: no later step can end
 *     PATIENCE   c -> m   for how long some member asks to be awaited
 *     STATUS_QUERY   any -> c   gf-coordinator --status: who is in the job? Whoever asks has proved
 *                               that it has the key, and is no member
 *     STATUS_ANSWER  c -> any   the answer to it
 *
 * A frame of a member carries the number of the generation that it speaks of, so that a word of a
 * generation that has ended is told apart from one of the generation under way. */
#ifndef GF_CONTROL_FRAMES_H
#define GF_CONTROL_FRAMES_H

#include "drivers/base/bytes.h"
#include "drivers/channel.h"
#include "lib/control/control.h"

typedef enum control_frame {
    CONTROL_OFFER = 1,
    CONTROL_LIST,
    CONTROL_ENDPOINT,
    CONTROL_GO,
    CONTROL_REFUSED,
    CONTROL_STATUS,
    CONTROL_WAITING,
    CONTROL_FAULT,
    CONTROL_ASK,
    CONTROL_POSITION,
    CONTROL_ERROR,
    CONTROL_READY,
    CONTROL_BYE,
    CONTROL_ALL_GONE,
    CONTROL_CLOSED,
    CONTROL_PATIENCE,
    CONTROL_STATUS_QUERY,
    CONTROL_STATUS_ANSWER,
    CONTROL_FRAME_COUNT
} control_frame;

/* What a member has said last in its generation. */
typedef enum control_said {
    CONTROL_SAID_NOTHING = 0, /* it works */
    CONTROL_SAID_FAULT,       /* it has failed, and READY or its end follows */
    CONTROL_SAID_READY,
    CONTROL_SAID_BYE,
    CONTROL_SAID_COUNT
} control_said;

/* Where a process stands: what a coordinator that was begun anew learns a generation from. */
struct control_standing {
    uint32_t generation;  /* the last one that this process was a member of; 0: none */
    uint32_t rank;        /* its rank in it, */
    uint32_t world;       /* the world of it, */
    uint64_t list_hash;   /* and the hash of its list: gf_frame_list_hash() */
    uint32_t said;        /* a control_said */
    uint64_t closed_step; /* where that is BYE: after so many steps */
    uint32_t listed;      /* the number of the last list that it was told, begun or not */
};

/* What a coordinator that is a process of its own cannot know: equal on all ranks. */
struct control_terms {
    bool elastic;
    uint64_t join_timeout_ns;
    uint64_t keepalive_ns;
    uint64_t exchange_timeout_ns;
};

struct control_offer {
    uint32_t id;
    uint32_t id_count;    /* job.world_max */
    uint32_t first_world; /* job.world */
    bool rejoins; /* GF_REJOIN: whoever started it has reaped the process that had this id before */
    uint64_t process; /* 64 random bits: tells it from others of this id */
    struct control_standing standing;
    struct control_terms terms;
    struct gf_offer values;
};

struct control_list {
    uint32_t number; /* of the generation to come */
    uint32_t rank;
    uint32_t world;
    uint32_t network; /* a gf_network */
    bool comes_in;    /* this process is given the common state, whatever it was before */
};

/* In front of the pieces of GO. */
struct control_go {
    uint32_t number;
    uint64_t list_hash;
    uint32_t lead; /* the lowest rank that has the common state */
    bool lags;     /* some rank needs it */
    struct gf_control_progress progress;
};

/* Some bytes of the endpoint of a rank; several follow each other in a frame. */
struct control_piece {
    uint32_t rank;
    uint32_t total; /* bytes of the whole endpoint */
    uint32_t at;    /* offset of this piece */
    uint32_t bytes;
};
#define CONTROL_PIECE_BYTES 16u

#define CONTROL_EDGES_MAX 32u
struct control_edges {
    uint32_t count;
    uint16_t peers[CONTROL_EDGES_MAX]; /* ranks whose edge to the sender is broken */
    /* What the link says of the worst one: both ends, address, device. GF_ERR_LINK; GF_ERR_SYSTEM:
     * the sender lacks something, whatever the other end says, and counts without a peer, too.
     * GF_OK: nothing is said. */
    gf_status code;
    uint32_t peer;
    int64_t foreign_code; /* errno, or 0 */
    char foreign_call[40];
    char text[240];
};

/* A request that a rank has posted, and a hash over all up to it. */
struct control_call {
    uint64_t hash;
    uint64_t elem_count;
    uint32_t what; /* gf_operation, gf_type << 8 */
    uint32_t root; /* of a broadcast; of an allreduce its gf_reduction */
};
#define CONTROL_CALLS_LAST 8u
#define CONTROL_CALLS_MARKS 3u
/* The last requests, and of those before them the last whose number is a multiple of 64, of 1024
 * and of 16384. So two ranks say the same number now and then, however fast they post. */
struct control_calls {
    uint64_t count;                               /* posted in this generation */
    struct control_call last[CONTROL_CALLS_LAST]; /* of number n: [n % CONTROL_CALLS_LAST] */
    struct control_call marks[CONTROL_CALLS_MARKS];
};

struct control_report {
    uint32_t inquiry;  /* that it answers; 0: STATUS */
    uint64_t step;     /* steps that have ended */
    uint64_t sequence; /* operations begun since the generation began */
    uint32_t operation;
    uint32_t tensor;
    uint32_t buffer;
    uint32_t waits_for; /* a rank; GF_RANK_NONE: for nobody, it computes */
    uint64_t free_ns;   /* for so long it has waited for nobody; 0: it waits */
    /* these the member writes as it sends it */
    uint64_t unmoved_ns;    /* since step, sequence or operation changed */
    uint64_t patience_ns;   /* it asks to be awaited for so long from now: gf_heartbeat() */
    uint64_t patience_from; /* .. in operations with this number or a higher one */
    char tensor_name[32];
    struct control_calls calls;
    struct control_edges edges;
};

/* For how long somebody asks to be awaited, and from which operation on. */
struct control_patience {
    uint64_t until_ns;
    uint64_t from;
    uint64_t announced_ns; /* of until_ns this was told to the others */
};

struct control_fault {
    bool ends; /* the sender cannot go on, whatever is decided */
    struct gf_error error;
    struct control_edges edges;
};

struct control_finding {
    bool may_go_on; /* the receiver may begin a regroup */
    struct gf_error error;
};

struct control_ready {
    bool planned; /* nothing has failed: it heard that ranks wait or leave */
    bool leaves;
    struct gf_control_progress progress;
};

/* Who has closed while others of its generation may go on. */
struct control_closed {
    uint32_t rank; /* GF_RANK_NONE: nobody */
    uint64_t step; /* steps that it had ended */
};

/* How many processes wait to come in or wish to leave; whoever has closed hears for whom it waits;
 * and before the first generation, which is generation 0, all hear who was refused. */
struct control_waiting {
    uint32_t number; /* of the generation */
    uint32_t count;
    uint32_t awaited; /* a rank that has not closed; GF_RANK_NONE: none */
    uint32_t awaited_count;
    char location[128];                     /* where that one is */
    char refused[GF_CHANNEL_REFUSED_BYTES]; /* why the last one was; empty: nobody was */
};

/* What gf_coordinator_status() gives, and which ids are here: members of the generation and
 * processes that wait, a bit each. */
struct control_status {
    uint32_t state; /* gf_coordinator_state */
    uint32_t generation;
    uint32_t world;
    uint32_t here;
    uint32_t waiting;
    uint32_t id_count;
    struct gf_error error;  /* code GF_OK: none */
    uint32_t refused_count; /* processes that were refused; and why the last was */
    char refused_text[GF_CHANNEL_REFUSED_BYTES];
    unsigned char present[GF_WORLD_MAX / 8];
};

struct control_refusal {
    uint32_t code;  /* a gf_status, negative */
    bool may_retry; /* the id is taken, and may become free */
    uint32_t peer;  /* whose fault it is that the join has failed; GF_RANK_NONE */
    char text[240];
};

void gf_frame_offer_walk(struct gf_walk *walk, struct control_offer *offer);
void gf_frame_list_walk(struct gf_walk *walk, struct control_list *list);
void gf_frame_go_walk(struct gf_walk *walk, struct control_go *go);
void gf_frame_piece_walk(struct gf_walk *walk, struct control_piece *piece);
void gf_frame_report_walk(struct gf_walk *walk, struct control_report *report);
void gf_frame_fault_walk(struct gf_walk *walk, struct control_fault *fault);
void gf_frame_finding_walk(struct gf_walk *walk, struct control_finding *finding);
void gf_frame_ready_walk(struct gf_walk *walk, struct control_ready *ready);
void gf_frame_closed_walk(struct gf_walk *walk, struct control_closed *closed);
void gf_frame_refusal_walk(struct gf_walk *walk, struct control_refusal *refusal);
void gf_frame_waiting_walk(struct gf_walk *walk, struct control_waiting *waiting);
void gf_frame_status_walk(struct gf_walk *walk, struct control_status *shown);

/* ---- calls.c ---- */
#define CONTROL_CALLS_START UINT64_C(0xcbf29ce484222325)
/* One more request of this rank. */
void gf_calls_add(struct control_calls *calls, gf_operation operation, gf_type type, uint32_t root,
                  uint64_t elem_count);
/* Of the calls that a report tells, i-th of CONTROL_CALLS_TOLD: its number, or 0: there is none. */
#define CONTROL_CALLS_TOLD (CONTROL_CALLS_LAST + CONTROL_CALLS_MARKS)
uint64_t gf_calls_number(const struct control_calls *calls, uint32_t i);

/* ---- patience.c ---- */
/* Somebody asks for more. True: the others shall hear of it. */
bool gf_patience_take(struct control_patience *patience, uint64_t now_ns, uint64_t timeout_ns,
                      uint64_t patience_ns, uint64_t from);
uint64_t gf_patience_left(const struct control_patience *patience, uint64_t now_ns);

/* One more member of a list, in the order of ranks; begin with CONTROL_LIST_START. */
#define CONTROL_LIST_START UINT64_C(0xcbf29ce484222325)
uint64_t gf_frame_list_hash(uint64_t hash, uint32_t id, uint64_t process);

#endif
