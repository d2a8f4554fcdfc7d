/* What members*.c share. The frames of the control channel, by the state of a rank:
 *
 *     rank r: OFFER, ENDPOINTS..            JOINING    rank 0 compares each offer with its own
 *     rank 0: LINK   r: ENDPOINTS       where links are to change first: members_link.c
 *     rank 0: ENDPOINTS of all.., GO        -> MEMBER
 *     rank r: STATUS                    where it is, now and then: what is known of a rank that
 *                                       dies
 *     rank r: FAULT   0: ASK   r: POSITION   0: ERROR         -> FAILED, the same text on all ranks
 *     rank r: GIVES_UP                  0: ERROR              -> FAILED
 *     rank r: STATUS, which asks for patience, or STATUS, BYE   0: NEWS to all others
 *     rank r: BYE     0: ALL_GONE                             -> GONE, connections may end
 *     DO_VIEW_CHANGE, PREPARE, ACCEPT, COMMIT                 -> JOINING, in the next epoch
 *                                                             (lib/elastic/view.c)
 *     comes in: JOIN   coordinator: COMMIT                     the same (lib/elastic/recovering.c)
 *
 * The control channel knows ranks by their *member ids*, which never change; everything else here
 * counts ranks of the epoch under way. A frame's kind carries the epoch, so that one of an older
 * epoch is told apart from one of this.
 *
 * No frame is queued here: what a peer is owed is a bit, and the frame is written when the driver
 * has room for it. */
#ifndef GF_MEMBERS_STATE_H
#define GF_MEMBERS_STATE_H

#include "drivers/bytes.h"
#include "drivers/link.h"
#include "lib/elastic/view.h"
#include "lib/membership/members.h"

/* In the order in which they are sent where several are owed. */
typedef enum members_frame {
    MEMBERS_OFFER = 1,
    MEMBERS_ENDPOINTS,
    MEMBERS_GO,
    MEMBERS_STATUS,
    MEMBERS_ASK,
    MEMBERS_FAULT,
    MEMBERS_POSITION,
    MEMBERS_GIVES_UP,
    MEMBERS_ERROR,
    MEMBERS_BYE,
    MEMBERS_ALL_GONE,
    MEMBERS_LINK,
    MEMBERS_NEWS,           /* who has closed its context; for how long patience is asked for */
    MEMBERS_DO_VIEW_CHANGE, /* these and the rest belong to no epoch: lib/elastic/view_frames.c */
    MEMBERS_START_VIEW,
    MEMBERS_PREPARE,
    MEMBERS_ACCEPT,
    MEMBERS_COMMIT,
    MEMBERS_JOIN,
    MEMBERS_FRAME_COUNT
} members_frame;
#define MEMBERS_KIND_BITS 8
#define MEMBERS_EPOCH_MASK ((1u << 23) - 1u)

/* The last two: it is over. */
typedef enum members_state {
    MEMBERS_JOINING,
    MEMBERS_MEMBER,
    MEMBERS_GONE,
    MEMBERS_FAILED
} members_state;

#define MEMBERS_EVENTS_MAX 256u /* looked at in one poll */
#define MEMBERS_FRAMES_MAX 4u   /* sent to one peer in one poll */
/* a failed join waits so long for those who should hear of it */
#define MEMBERS_GRACE_NS UINT64_C(1000000000)
/* at most this often, where something has changed */
#define MEMBERS_STATUS_NS UINT64_C(100000000)
/* so often where nothing has changed, also while ranks join: of a network that loses packets the
 * kernel knows by the words that come, of a connection without any by a probe, which it sends twice */
#define MEMBERS_ALIVE_NS UINT64_C(250000000)

/* A public request, and all before it in this epoch. */
#define MEMBERS_CALLS 128u /* of our own, to be compared with what others say: they may be behind */
struct members_call {
    uint64_t hash;
    uint64_t elem_count;
    uint32_t what; /* gf_operation, gf_type << 8 */
    uint32_t root;
};

/* It belongs to no epoch, and is looked at in any. */
static inline bool members_is_of_a_view(uint32_t kind)
{
    return (kind >= MEMBERS_DO_VIEW_CHANGE) && (kind < MEMBERS_FRAME_COUNT);
}
static inline uint32_t members_kind(const struct gf_rendezvous_event *event)
{
    return event->frame_kind & ((1u << MEMBERS_KIND_BITS) - 1u);
}

/* Where a rank said it was. Times are spans, so that no two clocks are compared. */
struct members_told {
    struct gf_position position;
    uint64_t unmoved_ns; /* since step, sequence or operation changed */
    /* gf_heartbeat(): for so long from now no deadline is to pass of an operation with this number
     * or a higher one; this rank has begun those below it */
    uint64_t patience_ns, patience_from;
    uint64_t calls; /* requests posted in this epoch; the last one */
    struct members_call call;
};

/* Of those that have closed their contexts the one that had begun the fewest operations: whoever
 * begins one more waits for it in vain. */
struct members_closed {
    uint32_t rank; /* GF_RANK_NONE: nobody has */
    uint64_t step, sequence;
};

/* What is known of a member id's process. */
typedef enum member_state {
    MEMBER_EXPECTED = 0, /* it may come, or is here and has said nothing yet */
    MEMBER_OFFERED,      /* the coordinator has its offer */
    MEMBER_JOINED,       /* its endpoint is whole: of this epoch, once all are */
    MEMBER_REPORTED,     /* its DO_VIEW_CHANGE is here, for view `view` */
    MEMBER_ACCEPTED,     /* the proposal of this view */
    /* it was here and contacted another coordinator, fell silent, or was refused */
    MEMBER_DISCONNECTED,
    MEMBER_DEAD,       /* its kernel said so, or who named the ended */
    MEMBER_RECOVERING, /* a process of no epoch has this id, and is connected: it rejoins */
    MEMBER_WAITS       /* .. and was given the same things as this rank */
} member_state;

/* Whom the next epoch is to be without, as ranks of the one that has failed. */
#define MEMBERS_CUT_MAX 64u
struct members_cut {
    bool told;       /* the coordinator has found that out; else whom the error names */
    bool is_final;   /* no next epoch would be better */
    bool was_silent; /* the one that is cut: it comes in again if it lives */
    uint32_t count;
    uint16_t ranks[MEMBERS_CUT_MAX];
};

/* A row for each member id. */
struct member {
    member_state state;
    bool connected;
    bool excluded;    /* by fault attribution: it is of no quorum */
    bool lost;        /* its connection has ended, `end` says how, and none has come since */
    bool passed_over; /* it was silent as coordinator: others are tried first, its answers count */
    bool sought;      /* by this rank, in this round */
    bool leaves;      /* BYE, or its report, said so */
    bool is_new;      /* its JOIN said so, and which process it is: */
    gf_rendezvous_end end;
    uint32_t incarnation;
    /* the process to which a commit gave the id, and this rank saw that; 0: none */
    uint32_t given;
    uint32_t epoch_rank; /* GF_RANK_NONE: it is not of this epoch; gf_members_rank() */
    uint32_t owed;       /* bits 1 << members_frame */
    uint32_t view;       /* of its report, or which its JOIN answers */
    bool answered;       /* its report answers START_VIEW of that view */
    struct gf_members_progress progress;
    char address[GF_CONTROL_ADDRESS_BYTES];
    struct member_said {        /* in this epoch */
        uint32_t endpoint_rank; /* next piece of the endpoint table to send to it */
        uint32_t endpoint_at;
        uint32_t endpoint_bytes; /* its own endpoint: size, and how much of it is here */
        uint32_t endpoint_have;
        uint64_t node; /* of its offer */
        uint32_t network, fabric;
        uint32_t answered;   /* the last inquiry it answered */
        uint64_t heard_ns;   /* its last word about where it is; 0: none yet */
        uint64_t calls_same; /* up to this one its requests were ours */
        struct members_told told;
        struct gf_waits waits; /* of its answer */
        uint64_t answer_ns;    /* after it was asked, it was here, whoever did not poll meanwhile */
    } said;
};

struct gf_members {
    struct gf_members_setup setup;
    uint32_t member_id;
    uint32_t id_count;
    uint32_t first_world;
    /* of this process: tells it from others that had or claim its member id; not 0 */
    uint32_t incarnation;
    struct members_view view;
    bool was_member; /* an epoch with this process was in use */
    struct gf_rendezvous *rendezvous;
    members_state state;
    bool link_due;
    uint32_t link_network; /* a gf_network */
    /* coordinator: all are there, the word is owed to everybody or out */
    bool go;
    bool leaving;
    struct members_closed closed;
    uint64_t beat_ns; /* this rank's gf_heartbeat() was called last; 0: not in this epoch */
    uint64_t
        spent_ns; /* moved_ns of the place in which it was told that heartbeats count no more */
    /* until when some rank, this one too, asks for patience, and from which operation on */
    uint64_t patient_ns, patient_from;
    uint64_t patient_told_ns; /* coordinator: what the others know */
    uint64_t now_ns;
    uint64_t opened_ns;
    uint64_t connected_ns; /* to the coordinator; the coordinator: opened_ns */
    bool owes;             /* a frame, to some member */
    uint32_t flush_first;  /* whose turn it is */

    struct gf_position position;
    struct gf_position moved; /* as it was when it last changed */
    uint64_t moved_ns;
    uint64_t status_ns; /* sent last */
    struct gf_position status_position;

    uint64_t call_count;
    /* number n, from 1, at n modulo their count; at 0 none */
    struct members_call calls[MEMBERS_CALLS];

    uint32_t inquiry;       /* number of the last one; coordinator: asked, others: heard of */
    bool inquiring;         /* coordinator */
    bool leave_asks;        /* asked by gf_members_leave_late() */
    uint64_t inquiry_ns;    /* others: when they heard of it */
    uint64_t inquiry_at_ns; /* the same by a clock that goes on where this rank does not poll */
    bool asked;             /* this rank called gf_members_attribute() */
    uint64_t asked_ns;
    uint32_t seen_by; /* who asked first, and what it saw */
    struct gf_error seen;

    uint64_t join_fails_ns; /* error is set and is told at this time; 0: there is none */
    struct gf_error error;
    /* how a process that proved nothing did not fit; told if nobody better comes */
    struct gf_error claim;
    struct gf_error tell; /* what the others hear of it: GIVES_UP and ERROR */
    struct members_cut cut;
    /* coordinator: the step in which ranks waited for each other without a cause; + 1, 0: none */
    uint64_t circle_step;
    /* [id_count][endpoint_bytes_max], each begins with the control address */
    unsigned char *endpoints;
    uint32_t *id_of; /* [world] of each rank; back: gf_members_rank() */
    unsigned char scratch[GF_FRAME_PAYLOAD_MAX];
    struct member table[]; /* [id_count] */
};

static inline uint32_t members_id(const struct gf_members *members, uint32_t rank)
{
    return members->id_of[rank];
}
static inline void members_rank_set(struct gf_members *members, uint32_t id, uint32_t rank)
{
    members->table[id].epoch_rank = rank;
    if (rank != GF_RANK_NONE) members->id_of[rank] = id;
}
struct member *gf_members_at(const struct gf_members *members, uint32_t rank);
#define gf_members_of(members, rank) ((const struct member *)gf_members_at(members, rank))
bool gf_members_here(const struct gf_members *members, uint32_t rank); /* gf_member_is_here() */
/* [endpoint_bytes_max]: its control address, and behind it what its link told. */
static inline unsigned char *members_endpoint_at(const struct gf_members *members, uint32_t rank)
{
    return members->endpoints + rank * members->setup.endpoint_bytes_max;
}
/* Of no epoch: it has lost what the process before it had promised. */
static inline bool gf_member_is_recovering(const struct member *member)
{
    return member->state >= MEMBER_RECOVERING;
}
/* This process is RECOVERING: of no epoch yet. */
static inline bool gf_view_joins(const struct gf_members *members)
{
    return (members->setup.joins || members->view.rejoins) && (members->view.epoch.epoch == 0);
}
/* The connection is that of the epoch's member. */
static inline bool gf_member_is_here(const struct member *member)
{
    return member->connected && !gf_member_is_recovering(member);
}

/* It has failed, or all have left. */
static inline bool members_over(const struct gf_members *members)
{
    return members->state >= MEMBERS_GONE;
}
static inline bool members_coordinates(const struct gf_members *members)
{
    return members->setup.rank == 0;
}

/* ---- members.c ---- */
/* Where this rank could be reached if it had to coordinate, in front of its endpoint address. */
void gf_members_own_address(struct gf_members *members);
/* Everything that the control channel and frames change at open and at each new epoch. */
void gf_members_epoch_begin(struct gf_members *members, const void *endpoint, size_t endpoint_bytes,
                            uint64_t now_ns);
/* At each poll: the clock, and since when this rank has not moved. */
void gf_members_touch(struct gf_members *members, uint64_t now_ns);
/* Takes and sends what there is, whatever this rank is doing. */
void gf_members_pump(struct gf_members *members);

/* ---- members_news.c ---- */
/* Coordinator: this rank has closed its context, there. */
void gf_members_closed_note(struct gf_members *members, uint32_t rank,
                            const struct gf_position *at);
/* Coordinator: has a rank begun an operation that one which has closed its context never will? */
void gf_members_closed_look(struct gf_members *members);
/* This rank waits for one that has closed, and the coordinator does not know it yet. */
bool gf_members_closed_is_due(const struct gf_members *members);
/* Somebody asks that no deadline passes for so long from now, of operations from `from` on. */
void gf_members_patience_take(struct gf_members *members, uint64_t patience_ns, uint64_t from);
/* .. this rank does; 0: it does not. */
void gf_members_patience_spent(struct gf_members *members);
uint64_t gf_members_patience_own(const struct gf_members *members, uint64_t *from_out);
void gf_members_news_walk(struct gf_walk *walk, struct gf_members *members);

/* ---- members_events.c ---- */
/* Takes what the control channel has; an error: it has failed, as a whole. */
gf_status gf_members_events(struct gf_members *members);
/* What the end of its connection says of a rank: "died" where its kernel said so. */
const char *gf_members_fate(gf_rendezvous_end end);

/* ---- members_frames.c ---- */
void gf_members_owe(struct gf_members *members, uint32_t rank, members_frame frame);
void gf_members_owe_id(struct gf_members *members, uint32_t id, members_frame frame);
/* each other rank that is here */
void gf_members_owe_all(struct gf_members *members, members_frame frame);
/* Is one of these frames (bits) owed to anybody? */
bool gf_members_owes(const struct gf_members *members, uint32_t frames);
#define MEMBERS_VIEW_FRAMES (~0u << MEMBERS_DO_VIEW_CHANGE)
/* Sends what is owed, as far as the driver has room. */
void gf_members_flush(struct gf_members *members);
void gf_members_offer_put(struct gf_put *put, struct gf_members *members);
bool gf_members_offer_get(struct gf_get *get, struct gf_offer *offer_out);
void gf_members_error_get(struct gf_get *get, struct gf_error *error_out);
/* False: malformed. Nothing of a sender that tells none. */
bool gf_members_cut_get(const struct gf_members *members, struct gf_get *get,
                        struct members_cut *cut_out);
/* False: malformed. */
bool gf_members_waits_get(const struct gf_members *members, struct gf_get *get,
                          struct gf_waits *waits_out);
void gf_members_told_get(struct gf_get *get, struct members_told *told_out);
/* False: malformed. */
bool gf_members_endpoints_take(struct gf_members *members, uint32_t from, struct gf_get *get);

/* ---- members_fail.c ---- */
/* The end of the job on this rank; the coordinator owes everybody `told`. The first one sticks. */
void gf_members_fail(struct gf_members *members, const struct gf_error *error,
                     const struct gf_error *told);
/* The same for what this rank found out by itself, of a rank that was in `at`; NULL: where this one
 * is. A rank that does not coordinate tells the coordinator, too. */
__attribute__((format(printf, 5, 6))) void gf_members_fail_in(struct gf_members *members,
                                                              gf_status code, uint32_t peer,
                                                              const struct gf_position *at,
                                                              const char *format, ...);
#define gf_members_failf(members, code, peer, ...) \
    gf_members_fail_in(members, code, peer, NULL, __VA_ARGS__)
/* Of the join: a coordinator waits a moment for those who should hear of it. */
#define gf_members_join_failf(members, code, peer, ...) \
    gf_members_fail_in(members, code, peer, &gf_members_join_place, __VA_ARGS__)
extern const struct gf_position gf_members_join_place;
/* How the others see that rank `from` gave up for this reason. */
struct gf_error gf_members_gave_up(uint32_t from, const struct gf_error *error);

/* ---- members_join.c ---- */
void gf_members_join_time(struct gf_members *members);
void gf_members_join_offer(struct gf_members *members, uint32_t from, struct gf_get *get);
void gf_members_join_endpoints(struct gf_members *members, uint32_t from, struct gf_get *get);
/* hands out all endpoints, if all are here */
void gf_members_join_full(struct gf_members *members);
void gf_members_join_go(struct gf_members *members);
void gf_members_join_refused(struct gf_members *members, const struct gf_rendezvous_event *event);
void gf_members_endpoint_again(struct gf_members *members); /* to the coordinator */
/* Coordinator: is error->peer a process that proved nothing, in the first join? Then it is rejected
 * and hears why, another may come in as that rank, and the deadline tells of it if nobody better
 * came. */
bool gf_members_rejected(struct gf_members *members, const struct gf_error *error);

/* ---- members_link.c ---- */
/* False: asked for others. */
bool gf_members_links_fit(struct gf_members *members);
bool gf_members_link_take(struct gf_members *members, struct gf_get *get);

/* ---- members_offer.c ---- */
/* The first difference between this rank's offer and another's, as text; false where there is
 * none. */
bool gf_members_offer_difference(const struct gf_members *members, const struct gf_offer *theirs,
                                 uint32_t rank, char *text_out, size_t bytes);
/* An offer of a process whose number is none's in this epoch: it hears what differs, and nobody
 * else does. */
void gf_members_offer_refuse(struct gf_members *members, uint32_t id, struct gf_get *get);

/* ---- members_culprit.c ---- */
void gf_members_inquiry_begin(struct gf_members *members, uint32_t asker,
                              const struct gf_error *seen);
void gf_members_inquiry_time(struct gf_members *members);
/* The last inquiry is of now. */
void gf_members_inquiry_note(struct gf_members *members);
/* For how long it has been under way, polled or not. */
uint64_t gf_members_inquiry_age(const struct gf_members *members);
/* It is here and has not answered the last inquiry. */
bool gf_members_is_silent(const struct gf_members *members, uint32_t rank);
/* So does a rank that was not heard of for longer than any that polls. */
bool gf_members_is_unheard(const struct gf_members *members, uint32_t rank);
/* What this rank would tell of itself, in its own row. */
struct members_told *gf_members_told_own(struct gf_members *members);
struct gf_waits *gf_members_waits_own(struct gf_members *members);
/* "step 7, operation allreduce, buffer 3, tensor 12" */
struct members_place {
    char text[128];
};
struct members_place gf_members_place(const struct gf_members *members,
                                      const struct gf_position *position);

/* ---- members_edges.c ---- */
typedef enum members_cause {
    MEMBERS_NO_CAUSE, /* nobody says for whom it waits */
    MEMBERS_EDGE,     /* messages of `from` do not reach `to` */
    MEMBERS_LAG,      /* a rank that others wait for computes */
    MEMBERS_SILENT,   /* .. or does not answer */
    MEMBERS_APART,    /* `from` and `to` have no connection, and both answer */
    MEMBERS_LACKS,    /* a rank cannot make its connections, and says why */
    MEMBERS_NOBODY    /* they wait for each other, and nothing is known to be lost */
} members_cause;
struct members_finding {
    members_cause cause;
    uint32_t culprit;       /* all but NOBODY and NO_CAUSE */
    uint32_t from, to;      /* EDGE, APART: one of those that the culprit is of */
    uint32_t edges;         /* EDGE, APART: broken ones of all ranks */
    uint64_t quiet_ns;      /* EDGE: nothing has come for so long */
    struct members_cut cut; /* EDGE, APART: ranks without which none is left */
};
/* It has closed its context: it does nothing more of what others wait for. */
bool gf_members_has_left(const struct gf_members *members, uint32_t rank);
/* It waits for a rank that has not answered to take what it sent: so its port may be at that message, and
 * keep what others lack. */
bool gf_members_may_send(const struct gf_members *members, uint32_t rank);
/* What they show of connections that could not be made: APART, LACKS, LAG of a rank that did not
 * poll meanwhile, or NO_CAUSE. */
struct members_finding gf_members_find_apart(const struct gf_members *members);
/* What the answers to the last inquiry show. */
struct members_finding gf_members_find(const struct gf_members *members);

/* ---- members_calls.c ---- */
/* Do this rank's calls differ from those of `rank`? Then the text says where. */
bool gf_members_calls_differ(struct gf_members *members, uint32_t rank, char *text_out,
                             size_t bytes);
/* fails where they differ */
void gf_members_calls_compare(struct gf_members *members, uint32_t rank);

#endif
