/* The next epoch by a view change: what view*.c, quorum.c and recovering.c share with the members'
 * state machine.
 *
 * An epoch is one committed membership, valid until the next commit. A view is one attempt to agree
 * on the next epoch; views of an epoch are numbered from 1. View 1 is led by the epoch's rank 0,
 * each next one by the next member id in its list. */
#ifndef GF_VIEW_H
#define GF_VIEW_H

#include "drivers/bytes.h"
#include "lib/membership/members.h"

#define VIEW_MAX (1u << 30)
#define VIEW_TAKES_MAX 64u /* processes taken in by one commit */
#define VIEW_REASON_BYTES 160u

/* Member ids of one epoch. */
struct members_list {
    uint32_t epoch; /* 0: none */
    uint32_t first; /* its rank 0; the others follow in the order of their ids */
    unsigned char bits[GF_WORLD_MAX / 8];
    /* those of them that its commit took in: other processes of these ids are out */
    uint32_t taken_count;
    uint16_t taken[VIEW_TAKES_MAX];
    uint32_t incarnation[VIEW_TAKES_MAX]; /* which processes they are */
};
_Static_assert(GF_WORLD_MAX <= UINT16_MAX, "a member id fits");

struct view_proposal {
    struct members_list list;
    uint32_t lead; /* rank whose state is the common one */
    bool lags;     /* some rank needs it */
    struct gf_members_progress progress;
};

typedef enum view_state {
    VIEW_NONE = 0, /* the epoch is in use */
    /* on the way to the coordinator; then its proposal, then its commit are awaited */
    VIEW_SEEK,
    VIEW_COLLECT,   /* coordinates: DO_VIEW_CHANGE come in */
    VIEW_PROPOSED,  /* coordinates: ACCEPT come in */
    VIEW_COMMITTED, /* gf_view_epoch_join() is next */
    VIEW_LEFT,      /* likewise, without this rank, as it wished */
    VIEW_FAILED
} view_state;

/* What this rank knows of processes that are of no epoch, all as of one moment (lib/DESIGN.md). */
struct view_noted {
    bool told;                               /* somebody names who has ended, or may do so */
    unsigned char ended[GF_WORLD_MAX / 8];   /* no process of these ids ran */
    unsigned char waiting[GF_WORLD_MAX / 8]; /* the processes of these ids waited here */
};

struct members_view {
    view_state state;
    uint32_t view; /* highest promised one; nothing below it is acknowledged */
    /* member id around which the connections stand; GF_RANK_NONE: it is looked for */
    uint32_t coordinator;
    /* the one that this rank looks for before it leads again; GF_RANK_NONE: any */
    uint32_t sought;
    /* of `accepted`, the proposal with the highest view that this rank knows of; 0: none */
    uint32_t accepted_view;
    /* the view of its coordinator's last START_VIEW; with that of the epoch for a process that
     * waits */
    uint32_t asked_view;
    uint32_t asked_epoch;
    struct members_list gone_on; /* one that has begun without this rank, as it wished or not */
    bool rejoins;                /* so it comes as a process of no epoch; `epoch` is whom it asks */
    bool is_cut;                 /* this rank is to go, and answers until the others have decided */
    uint32_t rounds;             /* of asking all that may live, in this change */
    uint32_t here_count;         /* members, where this rank led last */
    uint64_t since_ns;           /* of the state; SEEK: or the coordinator's last word */
    uint64_t said_ns;            /* START_VIEW, last */
    struct gf_members_reason reason; /* of the change under way, or of the last one */
    struct members_list epoch;       /* the last committed one; its number is 0 before the first */
    struct view_proposal current;    /* how that began, for those that have not heard of it */
    struct view_proposal accepted;
    struct view_noted noted; /* as it was last */
    struct view_noted led;   /* as it was before START_VIEW of the view that this rank leads */
    unsigned char used[GF_WORLD_MAX / 8]; /* member ids of all commits: never given again */
    gf_status refusal; /* what COMMIT says instead, where this attempt has failed */
};

struct gf_members;

/* ---- what epoch.c calls ---- */

/* Bit i of bits[id_count]: no process of member id i runs; the whole list, as of one moment. It
 * replaces the list before, and may be said again at each poll. bits NULL: nobody will say it, so
 * too few members are too few at once. */
void gf_view_ended(struct gf_members *members, const unsigned char *bits, uint32_t id_count);
/* Begins to look for the members that go on; where setup.joins is set and no epoch has had this
 * process, for a job that takes it in. */
void gf_view_change(struct gf_members *members, uint64_t now_ns,
                    const struct gf_members_reason *reason);
/* GF_AGAIN; GF_OK: *plan_out is agreed upon, gf_view_epoch_join() is next unless plan_out->world is
 * 0; GF_ERR_QUORUM: this rank cannot go on, GF_ERR_SYSTEM and others: it cannot even look;
 * gf_members_error() says why. */
gf_status gf_view_poll(struct gf_members *members, uint64_t now_ns,
                       struct gf_members_plan *plan_out);
/* An epoch is in use without this process, which waits to come in again. */
bool gf_view_is_left_out(const struct gf_members *members);
/* The change has an end: too few came to this rank, where it led; `why` follows. */
bool gf_view_was_led(const struct gf_members *members);
void gf_view_too_few(struct gf_members *members, const char *why);
/* Each process of the epoch before that is not of the agreed one is named as ended; false where
 * epochs lie between. */
bool gf_view_left_ended(const struct gf_members *members);
/* Joins the agreed epoch; gf_members_poll() goes on as after gf_members_open(). */
void gf_view_epoch_join(struct gf_members *members, const void *endpoint, size_t endpoint_bytes,
                        uint64_t now_ns);

/* The state after an event is one of the set `then`, or this rank fails; no test accepts that text. */
#define VIEW_BROKEN "the view change is broken"
void gf_view_hold(struct gf_members *members, uint32_t event, view_state before, uint32_t then);

/* ---- quorum.c ---- */
/* Member ids as bits[GF_WORLD_MAX / 8]. */
bool gf_view_has(const unsigned char *bits, uint32_t id);
void gf_view_add(unsigned char *bits, uint32_t id);
void gf_view_remove(unsigned char *bits, uint32_t id);
/* The incarnation of the process of this id that its commit took in; 0: none. */
uint32_t gf_view_list_took(const struct members_list *list, uint32_t id);
uint32_t gf_view_list_count(const struct members_list *list, uint32_t id_count);
/* The list's next id, cyclically. */
uint32_t gf_view_list_next(const struct members_list *list, uint32_t id, uint32_t id_count);
/* The rank of a member in it. */
uint32_t gf_view_list_rank(const struct members_list *list, uint32_t id);
void gf_view_list_walk(struct gf_walk *walk, struct members_list *list, uint32_t id_count);
/* Is this process of the newer epoch that has this list? */
bool gf_view_list_is_mine(const struct gf_members *members, const struct members_list *list);
/* More than half of the epoch's members are on `here`, or half of them with the lowest id. */
bool gf_view_is_majority(const struct gf_members *members, const unsigned char *here);
/* May those on `here`, members, decide, with those that have ended or wait and have answered? */
bool gf_view_quorum(const struct gf_members *members, const unsigned char *here);
/* The same if all that wait answer. */
bool gf_view_may_be_quorum(const struct gf_members *members, const unsigned char *here);
/* Could they in a view that began now, and not in this one? */
bool gf_view_is_outdated(const struct gf_members *members, const unsigned char *here);
/* The connection of this id's process has begun, or ended: it is not the one that waited here. */
void gf_view_waiting_drop(struct gf_members *members, uint32_t id);

/* ---- view_frames.c: to members->scratch, and back ---- */
uint32_t gf_view_frame_put(struct gf_members *members, uint32_t kind);
struct view_report {
    uint32_t view, accepted_view;
    bool asked; /* it answers START_VIEW of this view */
    bool planned, leaves;
    struct gf_members_progress progress;
};
/* The epoch's list follows a report, then the accepted proposal. */
void gf_view_report_walk(struct gf_walk *walk, struct view_report *report, uint32_t id_count);
void gf_view_proposal_walk(struct gf_walk *walk, struct view_proposal *proposal, uint32_t id_count);
void gf_view_commit_put(struct gf_put *put, const struct gf_members *members,
                        struct view_proposal *proposal, const char *reason);

/* ---- view_begin.c ---- */
void gf_view_epoch_take(struct gf_members *members); /* view.current is the last committed one */
/* .. and the next epoch, and this rank is of it */
void gf_view_committed(struct gf_members *members);
/* The end of a rank without which the others are to go on. */
void gf_view_fail_cut(struct gf_members *members);
/* The epoch of this list has begun without this rank, or this rank has left. */
void gf_view_excluded(struct gf_members *members, const struct members_list *list);
/* The members of view.gone_on go on without this process: it drops what it was, and waits to come
 * in. */
void gf_view_rejoin(struct gf_members *members);
void gf_view_epoch_begun(struct gf_members *members); /* members->setup.epoch is in use */

/* ---- view_lead.c ---- */
/* what waits in it counts from now */
void gf_view_enter(struct gf_members *members, view_state state);
uint32_t gf_view_coordinator(const struct gf_members *members, uint32_t number);
/* Connections stand around member `id` from here on. GF_OK, GF_AGAIN: they will; else why not. */
gf_status gf_view_turn(struct gf_members *members, uint32_t id);
/* Promises the next view whose coordinator may answer (view.sought: only that one); comes to this
 * rank at the latest. */
void gf_view_next(struct gf_members *members);
/* Is it on this rank's host? */
bool gf_view_is_near(const struct gf_members *members, uint32_t id);
/* Is a rank of this one's host silent, or the culprit? Then this one may be, too. */
bool gf_view_host_is_silent(const struct gf_members *members, uint32_t id);
/* This rank leads view `number`: what is known by now of those that have ended or wait counts in it,
 * and whoever is here is asked to answer. */
void gf_view_lead(struct gf_members *members, uint32_t number);
void gf_view_lead_again(struct gf_members *members); /* a higher one */
/* Whoever has come is asked, or hears once more that it was: this rank collects. */
void gf_view_ask(struct gf_members *members);
/* one that it leads, and in which somebody is already */
void gf_view_lead_higher(struct gf_members *members);

/* ---- view.c ---- */
/* The end of it without an epoch. */
__attribute__((format(printf, 3, 4))) void gf_view_fail(struct gf_members *members, gf_status code,
                                                        const char *format, ...);
/* A connection has begun, or ended, as its row says by now; frames too. True: it was a frame of a
 * view, and is done with. */
bool gf_view_event(struct gf_members *members, const struct gf_rendezvous_event *event,
                   struct gf_get *get);
/* false: malformed */
bool gf_view_frame(struct gf_members *members, uint32_t id, uint32_t kind, struct gf_get *get);

/* What view.c's table does, with the member that an event is of (or this one) and the frame that
 * came. */
typedef void gf_view_action(struct gf_members *members, uint32_t id, struct gf_get *get);
/* How long a word of the coordinator is awaited; UINT64_MAX: until the caller's deadline. */
uint64_t gf_view_awaited_ns(const struct gf_members *members);
/* view_take.c: the way to the coordinator, */
gf_view_action gf_view_begin, gf_view_report, gf_view_lost, gf_view_late;
/* frames */
gf_view_action gf_view_note, gf_view_answer, gf_view_promise, gf_view_accept, gf_view_accepted;
gf_view_action gf_view_be_out, gf_view_begin_epoch;
gf_view_action gf_view_collect, gf_view_commit; /* view_agree.c */
gf_view_action gf_view_join, gf_view_warn;      /* recovering.c */
/* Does the process with this list's incarnation of the id wait here? */
bool gf_view_waits_for(const struct gf_members *members, const struct members_list *list,
                       uint32_t id);
/* those that wait for the epoch's own commit hear of it */
void gf_view_admit(struct gf_members *members);
/* Everybody who waits is told that nobody will come for it. */
void gf_view_turn_away(struct gf_members *members, const char *reason);

#endif
