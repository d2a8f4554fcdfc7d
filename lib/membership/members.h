/* Who is in the world: join, life signs, fault attribution, abort, leaving. Runs on frames of a
 * rendezvous driver; it decides, it never waits. One state machine for rank 0 (the coordinator) and
 * the others. */
#ifndef GF_MEMBERS_H
#define GF_MEMBERS_H

#include "drivers/rendezvous.h"

/* What must be the same on every rank; compared at join by the coordinator, a difference is an
 * error on all ranks that names the field, both ranks and both values. */
struct gf_offer {
    uint32_t version; /* GF_VERSION */
    uint32_t world;
    uint64_t config_hash;  /* of the fields that must agree: gf_config_hash() */
    uint64_t tensors_hash; /* names, counts, flags, types, order */
    uint32_t tensor_count;
    uint32_t epoch; /* where it is put: the setup's */
    /* these are a link's */
    uint32_t network; /* a gf_network */
    uint32_t fabric;  /* a gf_fabric (drivers/link.h) */
    uint64_t node;
    uint64_t elem_count; /* of all tensors */
    char summary[640];   /* the same fields as text, to show a difference: gf_config_summary() */
};

struct gf_members; /* state in the caller's memory */

/* What a rank's link has open beside the node's memory. */
typedef enum gf_network { GF_NETWORK_NONE = 0, GF_NETWORK_LINK, GF_NETWORK_FABRIC } gf_network;

/* For whom a rank waits in one operation, and for what. A place in the order of its messages is one
 * number, which all ranks count alike; ranks may be GF_RANK_NONE. */
struct gf_wait {
    uint64_t order;    /* the operation's number, the same on all ranks */
    uint64_t posted;   /* its messages before this place are sent */
    uint64_t lacked;   /* the message that has not come, */
    uint32_t from;     /* from this rank */
    uint32_t to;       /* who has not taken what was sent */
    uint32_t memory;   /* whose sign in shared memory is awaited */
    uint64_t still_ns; /* for so long nothing of the operation has moved */
};
#define GF_WAITS_MAX 16u
/* While connections are made: whom this rank has not reached for `grace`, a bit each, and what its
 * link says of one of them. */
struct gf_unreached {
    bool any;
    gf_status
        code; /* GF_ERR_LINK; GF_ERR_SYSTEM: this rank lacks something; GF_OK: nothing is said */
    uint32_t peer;
    int64_t foreign_code; /* errno, or 0 */
    char text[240];
    unsigned char ranks[GF_WORLD_MAX / 8];
};
struct gf_waits {
    /* operations begun in this epoch: those below it that have no row have ended */
    uint64_t taken;
    uint64_t still_ns; /* for so long none has ended, */
    uint64_t quiet_ns; /* and nothing has come from anybody */
    uint64_t age_ns;   /* all this is as of so long ago: it failed then; 0: of now */
    /* packets of this size do not come to that rank, though smaller ones did; 0: none is known */
    uint32_t large_bytes, large_to;
    uint32_t count;
    struct gf_wait rows[GF_WAITS_MAX];
    struct gf_unreached unreached;
};

#define GF_WAIT_PARTS 8u /* survivors wait join_timeout / 8 for each other */

struct gf_members_setup {
    uint32_t rank;     /* a joiner: its member id */
    uint32_t world;    /* at the start of the job */
    uint32_t id_count; /* member ids are below it */
    uint32_t epoch;
    uint64_t join_timeout_ns;
    /* it comes into a running job: gf_view_change() is next; its id was never used */
    bool joins, is_new;
    /* For how long a rank that is asked may compute before it answers; grace_ns at least. Of one
     * that has not been heard of for silent_ns no answer is awaited. */
    uint64_t answer_ns, silent_ns;
    /* for how long nothing moves on a connection that is broken; for whom this rank waits, asked at
     * an inquiry. NULL: for nobody */
    uint64_t grace_ns;
    void (*waits)(void *waits_of, struct gf_waits *waits_out);
    /* operations that this rank has begun in the epoch, waits().taken alone: asked at each word
     * about where it is, when there is little stack left. NULL: none */
    uint64_t (*begun)(void *waits_of);
    /* for texts; NULL, or an answer that is NULL or empty: it has no name */
    const char *(*tensor_name)(void *waits_of, uint32_t tensor);
    void *waits_of;
    uint64_t patience_ns; /* for so long without moving gf_members_heartbeat() asks for patience */
    const uint64_t *away_ns; /* what the clock that this is polled with leaves out; NULL: nothing */
    const char *address;     /* for texts */
    struct gf_offer offer;
    size_t endpoint_bytes_max; /* of the link driver */
    struct gf_log log;
};

/* Where this rank is; sent when asked, so that the laggard can be named. Kept up to date by
 * lib/. */
struct gf_position {
    uint64_t step;
    uint64_t sequence;  /* operations begun since the epoch: who has the lowest is behind */
    uint32_t operation; /* gf_operation */
    uint32_t buffer;
    /* first tensor of the buffer, or the first one not declared ready; GF_TENSOR_NONE */
    uint32_t tensor;
    uint32_t waits_for;   /* rank, or GF_RANK_NONE (computing) */
    uint64_t unpolled_ns; /* the longest time between two polls of late */
};

/* How far a member is: what a change has to bring together. */
struct gf_members_progress {
    uint64_t steps;    /* whole */
    uint64_t requests; /* posted */
    uint32_t applied;  /* 1: the last whole step has changed the weights as far as it ever will */
    /* 1: its weights are half those of another rank, or none; anybody's are better */
    uint32_t partial;
};

/* The next epoch, as proposed. */
struct gf_members_plan {
    uint32_t epoch;
    /* rank 0 coordinates; the others follow by member_id. world 0: this rank has left */
    uint32_t rank, world;
    uint32_t lead;                       /* new rank: the lowest whose state is the common one */
    bool lags;                           /* some rank needs the lead's state */
    bool left_out;                       /* this one does: an epoch was in use without it */
    struct gf_members_progress progress; /* the common one */
};

/* Why this rank leaves its epoch. */
struct gf_members_reason {
    struct gf_members_progress own;
    /* nothing has failed: all come, between two steps, because some wait to come in or leave */
    bool planned;
    bool leaves;        /* this rank will not be of the next epoch */
    uint32_t culprit;   /* of the failure, or GF_RANK_NONE */
    uint64_t silent_ns; /* how long those are waited for that are connected and say nothing */
    /* and those that have no connection here; also for the join of the new epoch */
    uint64_t away_ns;
};

size_t gf_members_state_bytes(uint32_t id_count, size_t endpoint_bytes_max);
/* rendezvous is open and stays the caller's. endpoint[endpoint_bytes] of this rank is copied. */
struct gf_members *gf_members_open(const struct gf_members_setup *setup, void *state,
                                   struct gf_rendezvous *rendezvous, const void *endpoint,
                                   size_t endpoint_bytes, uint64_t now_ns);
/* Drives the control channel; bounded work. GF_AGAIN while joining; GF_OK once all are there and as
 * long as nobody has failed; an error, which sticks, with gf_members_error() filled: */
gf_status gf_members_poll(struct gf_members *members, uint64_t now_ns);
bool gf_members_joined(const struct gf_members *members); /* GF_OK was the answer, and is still */
/* code, peer, text (and operation, step, tensor where a rank reported them); valid after an
 * error. */
const struct gf_error *gf_members_error(const struct gf_members *members);
/* .. and no next epoch would be better */
bool gf_members_is_final(const struct gf_members *members);
/* After the join: what rank `rank` told about its link. */
const void *gf_members_endpoint(const struct gf_members *members, uint32_t rank, size_t *bytes_out);

/* While joining, true: ranks are on several nodes, or all on one, and this rank's link must open
 * that gf_network in place of what it has. gf_members_link_renewed() follows, with its new
 * endpoint[endpoint_bytes]. */
bool gf_members_link_due(const struct gf_members *members, uint32_t *network_out);
void gf_members_link_renewed(struct gf_members *members, const void *endpoint,
                             size_t endpoint_bytes);

struct gf_position *gf_members_position(struct gf_members *members); /* own; written by the owner */
/* This rank's deadline has passed (or its link failed): ask everybody where they are and decide who
 * is the culprit. Call it again until it gives anything but GF_AGAIN; ends within five times
 * answer_ns. All ranks that ask end with the same error; ranks that do not ask are told and
 * fail at their next poll. GF_OK: *error_out has code, peer and text. */
gf_status gf_members_attribute(struct gf_members *members, uint64_t now_ns,
                               const struct gf_error *seen, struct gf_error *error_out);
/* Tell the others that this rank gives up, and why (abort, a wrong call, a failed device). At once,
 * best effort. */
void gf_members_tell(struct gf_members *members, const struct gf_error *error);
/* This rank posts a public request: all ranks must post the same ones. Within about a second of
 * polling, at an inquiry or when ranks leave, whoever does otherwise is named with both calls
 * (GF_ERR_MISMATCH on all ranks). */
void gf_members_call(struct gf_members *members, gf_operation operation, gf_type type,
                     uint32_t root, uint64_t elem_count);
/* "Computing": for silent_ns no deadline is to pass of an operation that this rank has not begun,
 * as long as this rank has not stood in one place for longer than setup.patience_ns. The
 * coordinator is told at most every 100 ms, and tells all. */
void gf_members_heartbeat(struct gf_members *members, uint64_t now_ns);
/* For how much longer a rank, this or another one, asks for patience, and from which operation on
 * (struct gf_wait, order); 0: none does. */
uint64_t gf_members_patience(const struct gf_members *members, uint64_t now_ns, uint64_t *from_out);
/* Leaving in good order: GF_AGAIN until every rank that lives has said so too; connections that end
 * after that are no failure. */
gf_status gf_members_leave(struct gf_members *members, uint64_t now_ns);

/* They have not all left in time and this rank will not wait longer: if it coordinates, it asks
 * them where they are and says for whom it has waited, as nobody else could find out afterwards.
 * GF_AGAIN: while they may still answer. */
gf_status gf_members_leave_late(struct gf_members *members);

/* How many processes wait to come in; the coordinator knows, the others have 0. */
uint32_t gf_members_waiting(const struct gf_members *members);
/* [world] the member id of each rank: what links and rendezvous know it by. */
const uint32_t *gf_members_ids(const struct gf_members *members);
/* Back; GF_RANK_NONE: it is not of this epoch. */
uint32_t gf_members_rank(const struct gf_members *members, uint32_t id);

#endif
