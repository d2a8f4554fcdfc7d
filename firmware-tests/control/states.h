/* A job of the shipped coordinator and members (lib/control/), in which what comes next is chosen:
 * a frame or an end is delivered, a second passes, a process dies, is started, stopped, cut off,
 * leaves or closes, an edge breaks, the coordinator crashes and is begun anew. The job is saved and
 * restored whole, so that all choices of a state can be tried. One clock for all; who is stopped is
 * not polled. Nothing is random. */
#ifndef STATES_H
#define STATES_H

#include "lib/control/coordinator_state.h"
#include "lib/control/member.h"

#define STATES_IDS 4u
#define STATES_PROCS 7u /* processes, the dead ones included */
#define STATES_CONNS 12u
#define STATES_PIPE 8u /* frames of a direction that are under way */
#define STATES_FRAME_BYTES 1000u
#define STATES_NUMBERS 32u /* of generations and lists, in one schedule */

/* What may happen in one schedule, and how often. */
struct states_limits {
    uint8_t ids;      /* members of the first generation */
    uint8_t id_count; /* ids in all */
    bool hosted;      /* rank 0's process hosts the coordinator */
    bool fixed;       /* the job is not elastic: it ends with the first failure */
    uint8_t kills, starts, cuts, halves, stops, halts, crashes, asks, leaves, byes, edges, gives_up,
        lates;
};

typedef enum states_act {
    STATES_DELIVER = 0, /* of connection `of`, in direction `to`, the next frame, or its end */
    STATES_PASS,        /* a second */
    STATES_CONTINUE,    /* process `of`, which was stopped */
    STATES_WAKE,        /* the coordinator, which was */
    STATES_BEGIN,       /* a coordinator in the place of one that crashed */
    STATES_KILL,        /* process `of`; to = 1: with words unread */
    STATES_START,       /* one of id `of` */
    STATES_CUT,         /* the connection of process `of`; to = 1: it is reset */
    STATES_HALF,        /* likewise, and only the end `to` is told */
    STATES_STOP,
    STATES_HALT,  /* the coordinator is stopped, */
    STATES_CRASH, /* or crashes */
    STATES_ASK,   /* process `of` finds that its step does not end */
    STATES_LEAVE,
    STATES_BYE,
    STATES_EDGE, /* between ids `of` and `to` */
    STATES_GIVE_UP,
    STATES_ACTS
} states_act;

struct states_choice {
    uint8_t act, of, to;
};
#define STATES_CHOICES 96u
#define STATES_TEXT_BYTES 32u

struct states_proc {
    bool alive, stopped, excused, leaves, has_state, is_old, closed;
    bool rejoins;
    uint8_t id;
    uint32_t number; /* generation that it has begun */
    uint32_t vote_waiting;
    uint64_t steps, voted, state;
    uint64_t stuck_ns, stopped_ns;
    struct gf_channel channel;
};

struct states_pipe {
    uint8_t count, visible;
    bool ended, end_visible, lost;
    uint8_t end;
    uint32_t order; /* of what comes next of all pipes */
};
struct states_conn {
    bool used, told[2], closed[2];
    uint8_t proc;
    uint64_t half_ns;
    struct states_pipe to[2]; /* 0: to the coordinator */
};

/* All of it is saved, but for members, the coordinator and frames, which are beside it. */
struct states_world {
    struct states_limits limits; /* what is left */
    uint64_t now_ns;
    bool lives;   /* the coordinator */
    bool halted;  /* it is not polled */
    bool is_down; /* one has crashed, and none has taken over since */
    bool is_over; /* something has happened for which the job may end */
    uint8_t proc_count;
    uint8_t edges[STATES_IDS]; /* bits of ids: data does not pass */
    uint32_t order;
    uint32_t passes; /* since the last act */
    uint32_t asked;
    uint64_t dead_ns, halted_ns;
    const char *broken; /* the rule that does not hold, or NULL */
    struct gf_channel channel;
    struct gf_coordinator *coordinator;
    struct states_proc procs[STATES_PROCS];
    struct states_conn conns[STATES_CONNS];
    struct {
        uint64_t list, state;
    } begun[STATES_NUMBERS];
};
extern struct states_world *const states;

/* ---- states_world.c ---- */
extern bool states_logs; /* what happens is printed */
void states_open(const struct states_limits *limits);
/* [0] is the default: what is oldest is delivered; else time passes. Returns how many; 0: the job
 * has nothing more to do. */
uint32_t states_choices(struct states_choice choices_out[STATES_CHOICES]);
void states_step(const struct states_choice *choice);
void states_text(const struct states_choice *choice, char text_out[STATES_TEXT_BYTES]);
size_t states_saved_max(void);
size_t states_save(void *to);
void states_restore(const void *from);
/* Of what matters: times as spans, nothing that was used up. */
uint64_t states_hash(uint32_t left);
void *states_member(uint32_t proc);
bool states_is_far(void); /* beyond what the tables hold: the schedule is given up */

/* ---- states_member.c ---- */
size_t states_member_bytes(const struct gf_member *member, size_t *skip_at_out,
                           size_t *skip_bytes_out);
uint64_t states_member_hash(const struct gf_member *member, uint64_t now_ns);

/* ---- states_rules.c ---- */
gf_member_state states_state(uint32_t proc);
/* The program of a process, after each of its polls. */
void states_program(uint32_t proc);
void states_rule(bool holds, const char *text);
void states_rules_step(void); /* after each choice */
void states_rules_end(void);  /* nothing is left to do */
bool states_rules_want_steps(void);
void states_may_end(void); /* a crash, or something while the coordinator is away */
bool states_steady(void);  /* all members work in one generation, which runs */

/* ---- states_search.c ---- */
struct states_found {
    uint64_t transitions, states;
    const char *broken; /* the rule, or NULL */
    bool ended;         /* all was searched, and not only `transitions` of it */
    uint32_t deepest;
    uint64_t dropped; /* states that had no room any more: they may be gone into again */
};
#define STATES_ALL 255u
extern uint32_t states_seen_bits; /* so many states are remembered, a power of two, 8 bytes each */
/* All schedules with up to so many choices beside the default ones. */
struct states_found states_search(const struct states_limits *limits, uint32_t deviations,
                                  uint64_t transitions_max);
/* What is searched, the quick ones first. */
struct states_job {
    const char *name;
    struct states_limits limits;
    uint32_t deviations;
    bool is_quick; /* in make check, too */
};
/* Of its schedules those whose first choice of this kind is the part-th of each `count`. */
struct states_found states_search_part(const struct states_job *job, uint32_t part, uint32_t count);
#define STATES_ANY                                                                        \
    .kills = 3, .starts = 2, .cuts = 3, .halves = 3, .stops = 2, .crashes = 1, .asks = 2, \
    .halts = 1, .leaves = 2, .byes = 2, .edges = 2, .gives_up = 1, .lates = 3
extern const struct states_job states_jobs[];
extern const uint32_t states_jobs_count;
/* Random ones, each with limits of its own, from this seed on. */
struct states_found states_walk(uint64_t seed, uint64_t transitions_max);
void states_found_show(void); /* the schedule that was found last */
/* Goes along a schedule of texts, NULL at its end, then by default to its end. */
const char *states_replay(const struct states_limits *limits, const char *const *schedule);

#endif
