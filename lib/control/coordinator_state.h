/* What the files of the coordinator share: each of them but patience.c has a section of
 * declarations below. `said` is the last frame of a member that changes its state (READY, FAULT,
 * BYE); a pending frame is one that a member is to get. */
#ifndef GF_COORDINATOR_STATE_H
#define GF_COORDINATOR_STATE_H

#include "lib/control/coordinator.h"
#include "lib/control/frames.h"

#define CONTROL_NONE UINT32_MAX
#define CONTROL_NUMBER_MAX (UINT32_MAX / 2) /* of a generation or a list: nobody counts so far */

/* Times of the rules; README.md, "Times". */
#define CONTROL_ALIVE_NS \
    UINT64_C(1000000000) /* a waiting member hears of its coordinator so often */
#define CONTROL_BROKEN_NS UINT64_C(2000000000)
/* A member that polls has dialled again by then: its tries are 1.6 s apart at most. One that
 * computes dials once it polls: it is awaited for exchange.timeout. */
#define CONTROL_RESET_NS UINT64_C(2000000000)
#define CONTROL_SILENCE_NS UINT64_C(4000000000) /* exchange.timeout, but not less */
#define CONTROL_NAP_NS UINT64_C(250000000)      /* of a gap between two polls at most this counts */
/* Events that never end hold up deadlines no longer: each connection was heard again and again. */
#define CONTROL_BEHIND_NS UINT64_C(2000000000)
/* A time that a process says it was given: 36 years, so that no sum of some passes the end of a
 * clock. */
#define CONTROL_TIME_NS_MAX (UINT64_MAX / 16)
#define CONTROL_EVENTS_MAX 1024u /* taken in one poll */

/* The first word on a request with this number. */
struct control_seen_call {
    uint64_t number; /* 0: none */
    uint32_t rank;
    struct control_call call;
};
#define CONTROL_CALLS_SEEN 64u

/* What the generation under way knows of an id. control_row_state_of() says it, and the coordinator
 * keeps the facts that it follows from. Those from WORKS to CUT live, and may still do something.
 *
 *     NONE -> WORKS                  its process is on the list of the generation that begins
 *     NONE -> WORKS .. CLOSED, DIED  a generation is taken over: as its process has said
 *     WORKS -> FAILED                FAULT was heard
 *     WORKS, FAILED -> READY         READY was heard;
 *     WORKS, FAILED -> LEAVES        .. of one that goes
 *     LEAVES -> READY                it alone has whole weights: it stays for a generation
 *     LEAVES -> CLOSED               a list is made: it may go
 *     WORKS .. LOST -> CLOSED        BYE was heard: who gives up may say it, too
 *     NONE -> CLOSED                 .. before a takeover, or of the host that was left out
 *     WORKS .. LEAVES -> OUT         a finding: nothing is heard of it; or its endpoint is late
 *     OUT -> what it was before      nobody else has whole weights: it is READY, or its list stands
 *     WORKS .. OUT -> CUT            a finding: it would do the same harm again; or all others have
 *                                    closed, and it says nothing
 *     WORKS .. OUT -> DIED           its process has ended, or another one has its id
 *     OUT, CUT -> LOST               the same, where a finding has named it already; of OUT where
 *                                    it counts as ended after a reset
 *     DIED -> LOST                   a finding names it
 *     DIED, LOST -> WORKS .. OUT     it counted as ended after a reset, and dials again
 *     any -> NONE, WORKS             another generation begins, without it or with it: who has
 *                                    closed and hosts the coordinator stays CLOSED */
typedef enum control_row_state {
    CONTROL_ROW_NONE,   /* it is of no generation. Its process may wait (`waits`), or was left out
                         * and is not READY yet, or has ended, or has not come yet */
    CONTROL_ROW_WORKS,  /* it trains */
    CONTROL_ROW_FAILED, /* it has seen a failure */
    CONTROL_ROW_READY,  /* its operations are ended: it is of the next list */
    CONTROL_ROW_LEAVES, /* .. and it goes as that is made */
    CONTROL_ROW_OUT,    /* the next list is without it, and its process may come in again */
    CONTROL_ROW_CUT,    /* the next list is without it, and its process ends: if it is `banned`
                         * it never comes in again */
    CONTROL_ROW_CLOSED, /* its member has gone in good order; the host of the coordinator waits for
                         * the others, also of generations that begin without it */
    CONTROL_ROW_DIED,   /* its member has ended otherwise, and no finding has named it; another
                         * process may have the id, and wait */
    CONTROL_ROW_LOST,   /* .. and a finding has */
} control_row_state;

/* What is known of the process that has an id. A process that has ended takes no part any more.
 *
 *     LIVES -> RESET           its kernel has reset its connection
 *     RESET -> PRESUMED        it has not dialled again in time
 *     RESET, PRESUMED -> LIVES it dials again
 *     LIVES -> ENDED           a kernel or its launcher said so, or it did itself (gives_up, or BYE
 *                              before the first generation: then it is still connected)
 *     any -> LIVES             another process has the id */
typedef enum control_process_state {
    CONTROL_PROCESS_LIVES,
    CONTROL_PROCESS_RESET,    /* it dials again, or has ended */
    CONTROL_PROCESS_PRESUMED, /* it counts as ended, until it dials again */
    CONTROL_PROCESS_ENDED,
} control_process_state;

/* A row for each member id: the process that has it, and what the generation under way knows it
 * as. Both, since a process that was started again may be here while the one before it is still
 * counted as a member that has died. */
struct control_row {
    /* the process that has this id now */
    uint32_t connection; /* CONTROL_NONE: none */
    uint64_t process;    /* 0: nobody has offered yet */
    control_process_state process_state;
    char how[56];      /* how it has ended, in its channel's words */
    bool waits;        /* it fits, and is no member: it is of the next list */
    uint64_t broke_ns; /* when its connection broke, where there is none; */
    uint64_t quiet_ns; /* .. nothing had come of it for so long by then, as kernels count */
    struct control_offer offer;
    uint64_t refused; /* the process that was refused last, which is logged once */
    uint64_t banned;  /* the process that was cut and shall not come in again; 0: none */

    /* the generation under way */
    bool member;             /* this id is on its list, */
    uint64_t member_process; /* as this process. Before a takeover: the process of this id that was
                              * of the latest generation; the rest is what it has said, */
    struct control_standing stood; /* .. and this is where it stood, */
    uint64_t failed; /* and after how many steps it said FAULT here, and one more; 0: it did not */
    uint32_t rank;
    control_said said;
    bool comes_in; /* it came with this generation, from outside */
    bool leaves;
    bool planned;                        /* READY was said without a failure */
    bool closes;                         /* BYE was heard, and report.step is when */
    bool gives_up;                       /* it has ended because it said so */
    bool cut;                            /* the next list is without it: its process ends */
    bool out;                            /* so is this, and its process may come in again */
    struct gf_control_progress progress; /* of READY */

    /* the list of the generation to come */
    uint32_t listed; /* its number; 0: it is of none */
    uint32_t next_rank;
    uint64_t asked_ns; /* since when its endpoint is awaited, of this list and those before it */
    uint32_t endpoint_for; /* the list for which its endpoint is here, as far as it is */
    uint32_t endpoint_total;
    uint32_t endpoint_have;
    uint32_t total; /* bytes of its endpoint in the generation under way */

    /* words */
    uint32_t pending; /* bits 1 << control_frame */
    bool has_heard;   /* .. the last finding */
    uint32_t go_rank; /* GO: the next piece */
    uint32_t go_at;
    uint64_t heard_ns;        /* its last word; */
    uint64_t came_ns;         /* .. it came after that, as kernels count */
    uint64_t heard_report_ns; /* its last report in this generation; 0: none */
    uint64_t calls_same;      /* its requests up to this one are known to be those of the others */
    uint64_t back_ns;         /* its last offer */
    uint64_t patience_ns;     /* it has asked to be awaited until then */
    uint32_t answered;        /* the last question that it has answered */
    bool replied;             /* .. since the last round of an inquiry began, */
    uint32_t slow_replies;    /* and in so many rounds it had not */
    struct control_report report;
    uint32_t edges; /* broken ones, while they are counted */
};

/* An inquiry. Broken edges may be asked for again in ASKED and in OVER: rounds.c.
 *
 *     ASKED  -> ROUNDS  all have answered, or are late, and nobody was found
 *     ROUNDS -> OVER    no round is left
 *     any    -> ended   there is a finding: of ROUNDS by the end of a process alone */
typedef enum control_inquiry_phase {
    CONTROL_INQUIRY_ASKED,  /* answers to the first question are awaited */
    CONTROL_INQUIRY_ROUNDS, /* all are asked again and again */
    CONTROL_INQUIRY_OVER,   /* all rounds are counted: somebody is found, or nobody */
} control_inquiry_phase;

struct gf_coordinator {
    struct gf_coordinator_setup setup;
    struct control_terms terms;
    struct gf_channel *channel;
    gf_coordinator_state state;
    uint64_t polled_ns; /* the clock that it was given last, */
    uint64_t now_ns;    /* and its own, which leaves out time in which it was not polled */
    uint64_t away_ns;   /* what its host has left out of the first */
    uint64_t kernel_ns; /* so this is what kernels count, */
    uint64_t before_ns; /* and this is that of the poll before */
    uint64_t done_ns;   /* the last time that a poll left no events */
    uint64_t since_ns;  /* of the state */
    uint64_t left_ns;   /* when the generation under way ceased to run */
    uint64_t alive_ns;  /* WAITING was posted to everybody last, as kernels count */
    uint32_t number;    /* of the generation under way; 0: none yet */
    uint32_t world;     /* of it */
    uint64_t list_hash; /* of its list */
    bool has_listed;    /* a list has been made */
    bool listing;       /* a list is out: the generation `next` of next_world ranks is to come */
    uint32_t next;
    uint32_t next_world;
    uint32_t used;          /* the highest number given, by whatever coordinator */
    struct control_go go;   /* of the generation under way */
    uint32_t waiting;       /* as it was told last */
    uint32_t inquiry;       /* number of the last question; */
    uint32_t inquiry_first; /* .. of the first one of the last inquiry */
    control_inquiry_phase inquiry_phase;
    uint32_t rounds_left;  /* of this inquiry */
    uint64_t round_ns;     /* when all were asked again last, in a round or for edges */
    uint32_t edges_known;  /* how many broken edges were known last, */
    uint64_t edges_ns;     /* and since when no more have come */
    uint64_t inquiry_ns;   /* when it began */
    struct gf_error seen;  /* what its first asker saw, */
    uint32_t seen_by;      /* a rank */
    uint32_t seen_in;      /* .. of this generation, before a takeover */
    uint64_t nobody_step;  /* + 1: in that step an inquiry found nobody; 0: in none */
    struct gf_error error; /* the last finding */
    struct gf_error last;  /* .. also once a generation has begun after it */
    char refused[GF_CHANNEL_REFUSED_BYTES]; /* channel->refused_text as it was told last */
    bool is_final;                          /* the finding ends the job, */
    bool is_well;                           /* in good order */
    struct control_closed closed;           /* of the generation under way */
    struct control_patience patience;
    struct control_seen_call calls[1 + CONTROL_CALLS_MARKS][CONTROL_CALLS_SEEN];
    uint32_t network;         /* a gf_network, of the list */
    uint32_t side;            /* of endpoints[]: the generation under way */
    uint32_t *connection_ids; /* [channel->connections_max], CONTROL_NONE: nobody has offered */
    uint32_t *rank_ids;       /* [id_count] by rank of the generation under way */
    uint32_t *next_ids;       /* [id_count] by rank of the list */
    /* [2][id_count][endpoint_bytes_max], by id: of the generation under way, which may still be
     * told to a slow member, and of the list */
    unsigned char *endpoints;
    unsigned char scratch[GF_CHANNEL_PAYLOAD_MAX];
    struct control_row rows[]; /* [id_count] */
};

/* ---- coordinator.c ---- */
/* A generation is under way, or was. Before that GATHER is the first join; and of a coordinator
 * that was begun anew the wait for the generation that it may take over. */
static inline bool control_has_begun(const struct gf_coordinator *c)
{
    return c->number != 0;
}
static inline bool control_has_ended(const struct control_row *row)
{
    return row->process_state >= CONTROL_PROCESS_PRESUMED;
}
/* The process that the generation knows is the one that has the id. */
static inline bool control_is_member(const struct control_row *row)
{
    return row->member && (row->process == row->member_process);
}
/* It counts as ended after a reset, and may dial again. */
static inline bool control_is_presumed(const struct control_row *row)
{
    return control_is_member(row) && (row->process_state == CONTROL_PROCESS_PRESUMED);
}
static inline control_row_state control_row_state_of(const struct control_row *row)
{
    static const control_row_state lives[] = {[CONTROL_SAID_NOTHING] = CONTROL_ROW_WORKS,
                                              [CONTROL_SAID_FAULT] = CONTROL_ROW_FAILED,
                                              [CONTROL_SAID_READY] = CONTROL_ROW_READY};
    if (row->said == CONTROL_SAID_BYE) return CONTROL_ROW_CLOSED;
    if (!row->member) return CONTROL_ROW_NONE;
    if (!control_is_member(row) || control_has_ended(row))
        return (row->cut || (control_is_presumed(row) && row->out)) ? CONTROL_ROW_LOST
                                                                    : CONTROL_ROW_DIED;
    if (row->cut) return CONTROL_ROW_CUT;
    if (row->out) return CONTROL_ROW_OUT;
    return row->leaves ? CONTROL_ROW_LEAVES : lives[row->said];
}
/* What the row says of a generation is of the process that has the id. */
static inline bool control_is_same(const struct gf_coordinator *c, const struct control_row *row)
{
    return control_has_begun(c) ? control_is_member(row) : (row->process == row->member_process);
}
/* The process that has the id is the one that has closed. */
static inline bool control_has_closed(const struct control_row *row)
{
    return (row->said == CONTROL_SAID_BYE) && (!row->member || control_is_member(row));
}
/* A member that lives, and has not closed. */
static inline bool control_is_active(const struct control_row *row)
{
    control_row_state state = control_row_state_of(row);
    return (state >= CONTROL_ROW_WORKS) && (state <= CONTROL_ROW_CUT);
}
/* .. and is not cut, so that it may be awaited. */
static inline bool control_is_awaited(const struct control_row *row)
{
    return control_is_active(row) && (control_row_state_of(row) != CONTROL_ROW_CUT);
}
/* It may be in a step. */
static inline bool control_is_at_work(const struct control_row *row)
{
    control_row_state state = control_row_state_of(row);
    return (state == CONTROL_ROW_WORKS) || (state == CONTROL_ROW_FAILED);
}
/* It may still do something in its generation. */
static inline bool control_is_here(const struct control_row *row)
{
    return control_is_member(row) && !control_has_ended(row) && (row->connection != CONTROL_NONE);
}
/* Of the list that is out. */
static inline bool control_is_listed(const struct gf_coordinator *c, const struct control_row *row)
{
    return c->listing && (row->listed == c->next);
}
/* .. and its endpoint for it is whole. */
static inline bool control_endpoint_is_here(const struct gf_coordinator *c,
                                            const struct control_row *row)
{
    return (row->endpoint_for == c->next) && (row->connection != CONTROL_NONE) &&
           (row->endpoint_have == row->endpoint_total);
}
static inline bool control_may_be_cut(const struct gf_coordinator *c, uint32_t id)
{
    return id != c->setup.host_id;
}
/* Endpoint of an id: of the generation under way, or of the list that is out. */
static inline unsigned char *control_endpoint(const struct gf_coordinator *c, bool of_list,
                                              uint32_t id)
{
    size_t side = of_list ? 1 - c->side : c->side;
    return c->endpoints + (side * c->setup.id_count + id) * c->setup.endpoint_bytes_max;
}
uint32_t gf_coordinator_joiner_count(
    const struct gf_coordinator *c); /* processes that wait to come in */
void gf_coordinator_enter(struct gf_coordinator *c, gf_coordinator_state state);
/* What a process that is no member is shown. */
void gf_coordinator_status_fill(const struct gf_coordinator *c, struct control_status *shown_out);

/* ---- finding.c ---- */
/* An error with this code and peer, in the furthest step that a member has reported. */
struct gf_error gf_coordinator_error(const struct gf_coordinator *c, gf_status code, uint32_t peer);
/* The finding: all members hear it; then the job goes on without those that are cut, or ends. */
void gf_coordinator_decide(struct gf_coordinator *c, const struct gf_error *error, bool is_final);
/* The job ends, for this reason. */
void gf_coordinator_end_job(struct gf_coordinator *c, gf_status code, uint32_t rank,
                            const char *text);
/* Where each member that lives has closed in good order. True: the job has ended. */
bool gf_coordinator_end_if_closed(struct gf_coordinator *c);
/* The coordinator goes with its host, so nobody goes on without it. True: the job has ended. */
bool gf_coordinator_end_if_host_is_late(struct gf_coordinator *c);

/* ---- deaths.c ---- */
/* A word of this process has come, or it is as if one had. */
void gf_coordinator_hear(const struct gf_coordinator *c, struct control_row *row);
/* The connection of this process has ended. The process may live on. */
void gf_coordinator_lost(struct gf_coordinator *c, struct control_row *row);
/* Whose connection was reset, and who has not dialled again in time, counts as ended. */
void gf_coordinator_resets_check(struct gf_coordinator *c);
/* Where a process of the generation has ended nothing needs to be asked. True: one has. */
bool gf_coordinator_deaths_check(struct gf_coordinator *c);
/* Where somebody has closed, and nobody else says anything, those are not waited for. */
void gf_coordinator_silent_leave(struct gf_coordinator *c);

/* ---- list.c ---- */
void gf_coordinator_gather_poll(struct gf_coordinator *c);
/* The list of all that may be on it, unless the job ends, or others must be awaited. */
void gf_coordinator_list_make(struct gf_coordinator *c);

/* ---- generation.c ---- */
/* All endpoints of the list are here. */
void gf_coordinator_generation_begin(struct gf_coordinator *c);

/* ---- first_join.c ---- */
/* All ranks are here, and nobody has been of a generation before. */
bool gf_coordinator_first_is_whole(const struct gf_coordinator *c);
/* The deadline has passed: the job ends, and the missing ranks are named. */
void gf_coordinator_end_first_join(struct gf_coordinator *c);
/* Where a process has ended before the first generation. True: the job has ended. */
bool gf_coordinator_end_if_first_died(struct gf_coordinator *c);

/* ---- takeover.c ---- */
/* Before a takeover: somebody who is here was of a generation, so the job runs. */
bool gf_coordinator_job_may_run(const struct gf_coordinator *c);
/* True: the generation of somebody who is here is whole, and has been taken over. */
bool gf_coordinator_takeover_try(struct gf_coordinator *c);
/* Where a generation could not be taken over before the deadline. True: the job has ended. */
bool gf_coordinator_end_takeover(struct gf_coordinator *c);
/* Somebody is READY after a failure that the others may not have heard of. */
void gf_coordinator_failure_check(struct gf_coordinator *c);
/* A process of another generation than the one under way hears that it was left out. */
void gf_coordinator_left_out_tell(struct control_row *row);

/* ---- coordinator_offer.c ---- */
void gf_coordinator_offer_take(struct gf_coordinator *c, uint32_t connection, struct gf_get *get);
/* A process that is of no generation here: it waits, if it was given what the others were. */
void gf_coordinator_waits_take(struct gf_coordinator *c, struct control_row *row);

/* ---- coordinator_take.c ---- */
/* Takes what the channel has; *more_out: there is more than one poll takes. An error: the channel
 * as a whole has failed. */
gf_status gf_coordinator_events(struct gf_coordinator *c, bool *more_out);
/* The others hear that the rank of this row has closed. */
void gf_coordinator_closed_tell(struct gf_coordinator *c, const struct control_row *row);
/* The member of this row has closed after so many steps: it says so itself, or its offer does. */
void gf_coordinator_bye_hear(struct gf_coordinator *c, struct control_row *row, uint64_t step);

/* ---- coordinator_send.c ---- */
void gf_coordinator_post(struct control_row *row, control_frame frame);
void gf_coordinator_post_members(struct gf_coordinator *c, control_frame frame);
/* Sends what is pending, as far as there is room. */
void gf_coordinator_flush(struct gf_coordinator *c);
bool gf_coordinator_has_pending(const struct gf_coordinator *c);

/* ---- offer.c ---- */
/* The first difference of what must be equal, as text; false: there is none. */
bool gf_coordinator_offer_difference(const struct control_offer *first,
                                     const struct control_offer *second, char *text_out,
                                     size_t bytes);

/* ---- calls.c ---- */
/* Compares the requests that a member has just reported with those of the others. */
void gf_coordinator_calls_compare(struct gf_coordinator *c, struct control_row *row);

/* ---- location.c ---- */
/* " (started as rank 2)" where the rank in this generation is another one, else "" */
#define CONTROL_STARTED_BYTES 40u
const char *gf_coordinator_started(const struct control_row *row,
                                   char text_out[CONTROL_STARTED_BYTES]);
/* "member 3 (rank 2)" of a member, "member 3" of a process that has no rank. Returns text_out. */
#define CONTROL_NAME_BYTES 40u
const char *gf_coordinator_name(const struct control_row *row, char text_out[CONTROL_NAME_BYTES]);
/* "step 7, operation allreduce, buffer 3, tensor 12 "conv1.weight"" */
#define CONTROL_LOCATION_BYTES 128u
void gf_coordinator_location(const struct control_report *report,
                             char text_out[CONTROL_LOCATION_BYTES]);
/* Fills in how the rank of this row was lost (fate: "died"), where it was then, and the text. */
void gf_coordinator_loss_describe(const struct gf_coordinator *c, const struct control_row *row,
                                  const char *fate, struct gf_error *error_out);

/* ---- edges.c ---- */
/* Ranks that lack something themselves (descriptors); they are cut. *is_final_out: the job ends. */
bool gf_coordinator_shortage_find(struct gf_coordinator *c, struct gf_error *error_out,
                                  bool *is_final_out);
/* Ranks that cover all broken edges; they are cut. *is_final_out: the job ends. */
bool gf_coordinator_edges_find(struct gf_coordinator *c, struct gf_error *error_out,
                               bool *is_final_out);
/* How many broken edges are known. *even_out: there is one whose two ends have the same number of
 * broken edges, so that either end may be the culprit. */
uint32_t gf_coordinator_edges_known(struct gf_coordinator *c, bool *even_out);

/* ---- rounds.c ---- */
void gf_coordinator_rounds_begin(
    struct gf_coordinator *c); /* with the first question of an inquiry */
/* No culprit has been found. True: another round of questions goes on; false: the phase is OVER. */
bool gf_coordinator_rounds_go_on(struct gf_coordinator *c);
/* True: a broken edge may be either end's, and more may be known in a moment. */
bool gf_coordinator_edges_pending(struct gf_coordinator *c);
/* Who replied too slowly in nearly all rounds; NULL: nobody did, or so many ranks did that the
 * network is slow. */
struct control_row *gf_coordinator_slow_find(struct gf_coordinator *c);

/* ---- inquiry.c ---- */
/* It would do the same harm again: its process ends, and does not come in again. */
static inline void control_cut(struct control_row *row)
{
    row->cut = true;
    row->banned = row->process;
}
bool gf_coordinator_is_silent(const struct gf_coordinator *c, const struct control_row *row);
void gf_coordinator_inquire(struct gf_coordinator *c, uint32_t by, const struct gf_error *seen);
void gf_coordinator_inquiry_poll(struct gf_coordinator *c);

#endif
