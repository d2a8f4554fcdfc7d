/* The shipped membership code searched: a whole job of up to four member ids in one mapping, in which
 * each step is a choice. What runs is lib/membership and the view change of lib/elastic, from the
 * objects of the library; what is ours is below them (a control channel, states_driver.c) and above
 * (what an appliance does: begin a change, poll, join, states_world.c). states_rules.c asserts after
 * each step, states_search.c chooses.
 *
 * A *process* is a member id with a life: of each id up to STATES_LIVES processes are started, and
 * several may live at once. Each has a clock of its own, which stands still until it is chosen to go
 * to its next deadline, so whoever is not chosen is a process that is stopped. */
#ifndef STATES_H
#define STATES_H

#include <stdbool.h>
#include <stdint.h>

#include "lib/membership/members_state.h"

#define STATES_IDS_MAX 4u
#define STATES_LIVES 3u
#define STATES_PROCS (STATES_IDS_MAX * STATES_LIVES) /* process = id * STATES_LIVES + life */
#define STATES_NOBODY 255u
#define STATES_ANYBODY 254u
#define STATES_CONNS 24u
#define STATES_PIPE 16u   /* frames under way in one direction */
#define STATES_FRAMES 96u /* in all */
#define STATES_FRAME_BYTES 768u
#define STATES_EPOCHS 9u /* numbers below it */
#define STATES_VIEWS 32u
#define STATES_MEMBERS_BYTES 32768u
#define STATES_WAIT_NS UINT64_C(2000000000)

/* ---- a world ---- */

/* How much may go wrong. */
struct states_limits {
    uint8_t ids;     /* of them the first `members` begin */
    uint8_t members; /* the others are new */
    bool listed;     /* somebody names who has ended, and starts an id again only then */
    bool spare;      /* new processes may claim an id that another new process has or had */
    uint8_t crashes, starts, cuts, changes, leaves, asks;
    uint8_t views, epochs; /* states beyond are not looked at further */
};

enum { STATES_TO_ACCEPTOR = 0, STATES_TO_DIALLER = 1 };

/* One direction of a connection: first in, first out. */
typedef enum states_end {
    STATES_OPEN = 0,
    STATES_ENDS_ALIVE, /* it is cut, or the other end has contacted another coordinator */
    STATES_ENDS_DEAD   /* the other end's kernel has closed it */
} states_end;
struct states_pipe {
    bool opened; /* the reader knows that the connection stands */
    bool closed; /* the reader reads no more: it has closed its end, or has seen this one's */
    uint8_t end; /* behind the frames */
    uint8_t count;
    uint8_t frames[STATES_PIPE];
};
struct states_conn {
    bool used, rejoins;
    uint8_t dialler, acceptor; /* processes */
    struct states_pipe pipe[2];
};

struct states_frame {
    bool used;
    uint16_t size_bytes;
    uint32_t kind;
    unsigned char payload[STATES_FRAME_BYTES];
};

typedef enum states_state {
    STATES_NONE = 0, /* no process, or none any more */
    STATES_JOINS,
    STATES_MEMBER,
    STATES_ASKS, /* its deadline has passed: whose fault is it? */
    STATES_CHANGES,
    STATES_ENDS /* within a step: it has left, or cannot go on */
} states_state;

struct states_proc {
    struct gf_rendezvous base; /* the driver's; it comes first */
    uint8_t coordinator;       /* id that it has contacted, perhaps its own */
    uint8_t dials;             /* process, STATES_ANYBODY, STATES_NOBODY */
    bool rejoins;
    states_state state;
    bool was_started, is_new, leaves;
    /* Its change has failed, and it neither leaves nor was cut off by the others; one that was cut goes
     * for its answer once more where its connection is lost, and not a third time: of three faults it
     * is not counted. */
    bool gave_up;
    bool partial;    /* its weights are none, or half those of another */
    bool was_silent; /* the change under way, or its last one, began as it was cut for silence */
    uint8_t told;    /* ids that it was told have ended, a bit each */
    uint64_t now_ns;
    uint64_t steps; /* of the state that it has in common with the others of its epoch */
    uint32_t incarnation;
    struct gf_members *members;
    /* what the rules keep */
    uint32_t begun[STATES_EPOCHS];   /* digest of the list with that number; 0: none */
    uint32_t reached[STATES_EPOCHS]; /* how far it was as it left that one */
    struct members_list last;        /* of its epoch */
    uint16_t knows;       /* new processes that an epoch which it has begun took in, a bit each */
    uint32_t epoch, view; /* as they were last */
    struct states_noted {
        uint16_t lived, outside; /* processes; of no epoch */
    } noted, led;                /* as the list was read last, and for the view that it leads */
};

struct states_world {
    struct states_limits limits;
    uint8_t crashes, starts, cuts, changes, leaves, asks; /* used of the limits */
    bool hasty;         /* a clock has gone on while something else could come first */
    bool all_left;      /* who led a change ended it, as all that had come leave */
    bool lossy;         /* a link was cut, a rank asked, or two processes of an id were there */
    uint16_t planned;   /* epochs that are to end, as their members know, a bit each */
    uint16_t decided;   /* numbers of epochs, a bit each */
    const char *broken; /* the first rule that does not hold */
    struct states_said {
        uint16_t promises, accepts, joins; /* processes, a bit each */
    } said[STATES_EPOCHS][STATES_VIEWS];
    struct states_proc procs[STATES_PROCS];
    struct states_conn conns[STATES_CONNS];
    struct states_frame frames[STATES_FRAMES];
    unsigned char members[STATES_PROCS][STATES_MEMBERS_BYTES] __attribute__((aligned(16)));
};
extern struct states_world *const states; /* at a fixed address */

static inline uint32_t states_id(uint32_t proc)
{
    return proc / STATES_LIVES;
}
static inline bool states_lives(uint32_t proc)
{
    return states->procs[proc].state != STATES_NONE;
}
/* Processes of this id that live, a bit each. */
static inline uint32_t states_of_id(uint32_t id)
{
    return ((1u << STATES_LIVES) - 1u) << (id * STATES_LIVES);
}

/* ---- states_driver.c: the control channel ---- */

void states_driver_open(uint32_t proc, bool rejoins);
/* The process is gone: its kernel closes what it had. */
void states_driver_died(uint32_t proc);
/* May this process be let in there? */
bool states_may_connect(uint32_t from, uint32_t to);
void states_connect(uint32_t from, uint32_t to);
bool states_may_refuse(uint32_t from);
void states_refuse(uint32_t from);
/* The next event of a direction; lost: its frames are, and the end is next. */
bool states_may_deliver(const struct states_conn *conn, uint32_t direction, bool lost);
void states_deliver(struct states_conn *conn, uint32_t direction, bool lost);
/* Ids to which the process has a connection, as far as it knows, a bit each. */
uint32_t states_connected(uint32_t proc);
bool states_may_cut(const struct states_conn *conn);
void states_cut(struct states_conn *conn);
/* There is an event that the process has not taken. */
bool states_has_event(void);

/* ---- states_world.c ---- */

typedef enum states_kind {
    STATES_DELIVER, /* a: connection, b: direction */
    STATES_LOSE,    /* likewise: its frames are lost, the end is seen */
    STATES_CONNECT, /* process a to b */
    STATES_REFUSE,  /* process a's dial: nobody is there */
    STATES_TELL,    /* process a: id b has ended */
    STATES_CHANGE,  /* process a begins a change as planned */
    STATES_TICK,    /* process a's clock */
    STATES_LEAVE,   /* process a begins a change, and leaves */
    STATES_ASK,     /* process a: whose fault it is that it waits */
    STATES_CRASH,   /* process a */
    STATES_START,   /* process a */
    STATES_CUT,     /* connection a */
    STATES_KINDS
} states_kind;
struct states_choice {
    uint8_t kind, a, b;
    bool is_fault; /* the default schedule never takes it */
};
#define STATES_CHOICES 256u

/* A job that has joined. */
void states_open(const struct states_limits *limits);
/* What may come next, in the order of the default schedule. */
uint32_t states_choices(struct states_choice *choices_out);
void states_step(const struct states_choice *choice);
uint64_t states_hash(void);
/* Beyond the limits of views or epochs. */
bool states_is_far(void);
/* As many bytes as it gives. */
size_t states_save(void *to);
void states_restore(const void *from);
#define STATES_SAVED_MAX (sizeof(struct states_world) + 64u)
#define STATES_TEXT_BYTES 24u
void states_text(const struct states_choice *choice, char text_out[STATES_TEXT_BYTES]);

/* ---- states_search.c ---- */

struct states_found {
    uint64_t transitions, states;
    const char *broken; /* the rule, or NULL */
    bool ended;         /* all was searched, and not only `transitions` of it */
    uint32_t deepest;
};
/* Jobs of 3 and 4 ids for searches by deviations. */
extern const struct states_limits states_jobs[];
extern const uint32_t states_jobs_count;
/* All schedules with up to `deviations` from the default one; STATES_ALL: all that there are. */
#define STATES_ALL 255u
struct states_found states_search(const struct states_limits *limits, uint32_t deviations,
                                  uint64_t transitions_max);
/* Random ones, each with limits of its own, from this seed on. */
struct states_found states_walk(uint64_t seed, uint64_t transitions_max);
/* Each schedule of three deaths, starts, departures and planned changes, of 3 ids four, one after the
 * other: no clock goes on in it, as all that live hear of them. The last one may also be a link that is
 * cut or a rank that asks. The rule that does not hold, or NULL. */
const char *states_prompt(const struct states_limits *limits);
/* Prints the schedule that was found last, as short as it can be made. */
void states_found_show(void);
/* Goes along a schedule, and then to its end by the default one. The rule that does not hold, or the
 * first step that cannot be taken: such a schedule no longer shows what it was kept for. */
const char *states_replay(const struct states_limits *limits, const char *const *schedule);

/* ---- states_rules.c ---- */

/* After each turn of a process; `before` is how its view stood. */
struct states_before {
    view_state state;
    uint32_t epoch, view;
    uint8_t dials;
    uint8_t waits; /* ids of which a process waits here, a bit each */
    uint8_t known; /* .. of which an address is known */
};
/* The process reads the list of the ended. */
void states_rules_noted(uint32_t proc);
void states_rules_poll(uint32_t proc, const struct states_before *before);
/* What it was told of the next epoch, which it joins now. */
void states_rules_plan(uint32_t proc, const struct gf_members_plan *plan);
/* It begins a change because something has failed, or ends. */
void states_rules_failed(uint32_t proc);
/* It leaves its epoch, if it is of one, and is as far as this. */
void states_rules_change(uint32_t proc, const struct gf_members_progress *own);
void states_rules_step(void);
/* The default schedule has nothing left to do. */
void states_rules_end(void);

#endif
