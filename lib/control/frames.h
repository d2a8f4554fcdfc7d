/* The frames between a member and the coordinator, and their bytes. Each is written and read by one
 * walk.
 *
 *     frame      way      carries
 *     OFFER      m -> c   which process this is, where it stands, what must be equal on all ranks
 *     LIST       c -> m   number, rank, world and network of the generation to come
 *     ENDPOINT   m -> c   the endpoint of its link for that list, in pieces
 *     GO         c -> m   the generation has begun: the endpoints of all ranks, in pieces; who has the
 *                         common state, and what it is
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
 *
 * A frame of a member carries the number of the generation that it speaks of, so that a word of a
 * generation that has ended is told apart from one of the generation under way. */
#ifndef GF_CONTROL_FRAMES_H
#define GF_CONTROL_FRAMES_H

#include "drivers/bytes.h"
#include "drivers/channel.h"
#include "lib/membership/members.h"

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
    uint32_t generation; /* the last one that this process was a member of; 0: none */
    uint32_t rank;       /* its rank in it, */
    uint32_t world;      /* the world of it, */
    uint64_t list;       /* and the hash of its list: gf_control_list_hash() */
    uint32_t said;       /* a control_said */
    uint32_t listed;     /* the number of the last list that it was told, begun or not */
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
    uint64_t list;
    uint32_t lead; /* the lowest rank that has the common state */
    bool lags;     /* some rank needs it */
    struct gf_members_progress progress;
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
};

struct control_report {
    uint32_t inquiry;  /* that it answers; 0: STATUS */
    uint64_t step;     /* steps that have ended */
    uint64_t sequence; /* operations begun since the generation began */
    uint32_t operation;
    uint32_t tensor;
    uint32_t waits_for;   /* a rank; GF_RANK_NONE: for nobody, it computes */
    uint64_t patience_ns; /* it asks to be awaited for so long from now: gf_heartbeat() */
    uint64_t calls;       /* requests posted in this generation, */
    uint64_t calls_hash;  /* and a hash over them */
    struct control_edges edges;
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
    struct gf_members_progress progress;
};

/* Who has closed while others of its generation may go on. */
struct control_closed {
    uint32_t rank; /* GF_RANK_NONE: nobody */
    uint64_t step; /* steps that it had ended */
};

struct control_refusal {
    uint32_t code;  /* a gf_status, negative */
    bool may_retry; /* the id is taken, and may become free */
    char text[240];
};

void gf_control_offer_walk(struct gf_walk *walk, struct control_offer *offer);
void gf_control_list_walk(struct gf_walk *walk, struct control_list *list);
void gf_control_go_walk(struct gf_walk *walk, struct control_go *go);
void gf_control_piece_walk(struct gf_walk *walk, struct control_piece *piece);
void gf_control_report_walk(struct gf_walk *walk, struct control_report *report);
void gf_control_fault_walk(struct gf_walk *walk, struct control_fault *fault);
void gf_control_finding_walk(struct gf_walk *walk, struct control_finding *finding);
void gf_control_ready_walk(struct gf_walk *walk, struct control_ready *ready);
void gf_control_closed_walk(struct gf_walk *walk, struct control_closed *closed);
void gf_control_refusal_walk(struct gf_walk *walk, struct control_refusal *refusal);

/* One more member of a list, in the order of ranks; begin with CONTROL_LIST_START. */
#define CONTROL_LIST_START UINT64_C(0xcbf29ce484222325)
uint64_t gf_control_list_hash(uint64_t hash, uint32_t id, uint64_t process);

#endif
