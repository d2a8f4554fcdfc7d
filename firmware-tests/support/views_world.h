/* Members alone over the simulator: view changes without links and steps, in virtual time. What
 * they do is kept as lines in the words of firmware-tests/sim/membership.pml, and held against the
 * log of commits. */
#ifndef VIEWS_WORLD_H
#define VIEWS_WORLD_H

#include "drivers/sim/sim.h"
#include "firmware-tests/support/commit_log.h"
#include "lib/membership/members_state.h"

#define VIEWS_RANKS_MAX 512u
#define VIEWS_LINES_MAX 256u
#define SECOND UINT64_C(1000000000)
#define VIEWS_WAIT_NS UINT64_C(7500000000) /* an eighth of join_timeout's default */

typedef enum views_state { VIEWS_JOINS = 0, VIEWS_MEMBER, VIEWS_CHANGES, VIEWS_ENDED } views_state;

struct views_rank {
    views_state state;
    gf_status end;
    struct gf_members *members;
    struct gf_rendezvous *rendezvous;
    void *rendezvous_memory;
    uint32_t epoch, view, accepted_view; /* as of its last turn */
    bool proposed, told, left_out;
    bool left_ended; /* gf_view_left_ended() as its next epoch was agreed */
};

struct views_world {
    uint32_t size;
    struct gf_sim *sim;
    bool told;       /* ranks hear which processes have ended, as under gf-run */
    bool once;       /* .. as their first change begins, and not again: by gf_regroup_begin() */
    uint64_t leaves; /* these ask to be left out, a bit each */
    /* .. and that all others have; then the log's error is no failure of the test */
    bool lies;
    bool is_hosted;                 /* addresses name the host of a rank */
    uint32_t host[VIEWS_RANKS_MAX]; /* of each rank */
    struct views_rank ranks[VIEWS_RANKS_MAX];
    struct commit_log log; /* of up to COMMIT_LOG_IDS ranks */
    /* Each frame that was sent. */
    uint32_t frames[MEMBERS_FRAME_COUNT];
    /* what happens behind it; NULL: nothing */
    void (*on_send)(uint32_t from, uint32_t to, uint32_t kind);
    struct views_when { /* views_when()'s; then is NULL once it has happened */
        uint32_t from, to;
        members_frame kind;
        void (*then)(void);
    } when;
    uint32_t line_count;
    char lines[VIEWS_LINES_MAX][80];
};

extern struct views_world views; /* one at a time: it is large */

void views_open(uint32_t size, bool told); /* all have joined */
/* .. on these hosts [size]; NULL: nobody knows of hosts */
void views_open_on(uint32_t size, bool told, const uint32_t *hosts);
void views_close(void);
/* Turns of all that run until `done` says so; a test that takes longer than limit_ns of virtual
 * time fails. */
void views_until(bool (*done)(void), uint64_t limit_ns);
void views_for(uint64_t span_ns);
/* then(), behind the next frame of this kind between these. */
void views_when(uint32_t from, uint32_t to, members_frame kind, void (*then)(void));
void views_sender_crashes(void); /* one of them */
/* all that run are members of one epoch that all of its members run in, have ended, or were left out
 * and wait to come in again */
bool views_done(void);
/* all that run are members of an epoch in use */
bool views_run(void);
/* These ranks, a bit each, ask for the next epoch, whoever has failed. */
void views_change(uint64_t ranks);
/* Frames between these ranks and all others are held, or go on. */
void views_cut(uint64_t ranks, bool cut);
void views_stop(uint32_t rank, bool stopped);
/* All that run have failed, and `culprit` is who did it. */
void views_fail(uint32_t culprit);
void views_crash(uint32_t rank);
void views_start(uint32_t rank);       /* a new incarnation of a dead rank, which asks to come in */
uint32_t views_epoch(uint32_t rank);   /* commits since the first epoch */
uint64_t views_members(uint32_t rank); /* of that epoch, a bit each; up to 64 ranks */
/* These lines came, in this order, whatever came between; NULL ends the list. Else the test fails
 * and shows all. */
void views_expect(const char *const *lines);
#define EXPECT(...) views_expect((const char *const[]){__VA_ARGS__, NULL})
void views_expect_out(uint32_t rank); /* it has ended: too few are left */
bool views_left_out(uint32_t rank); /* the others have gone on without it, and it knows and waits */

#endif
