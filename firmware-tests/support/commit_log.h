/* A log of all commits over all ranks of a simulated job, kept by looking at each process after
 * each of its turns, and the rules that it must keep whatever the library believes. They are those
 * of firmware-tests/sim/membership.pml:
 *
 *     one list        two epochs with the same number have the same members, unless all that began
 *                     one of them are dead
 *     quorum          an epoch was accepted by a quorum of the one before: more than half of its
 *                     members, exactly half
 *                     with the lowest member id, or everybody: all other processes are dead or of
 *                         no epoch
 *     growing         the epochs of a process grow
 *     incarnation     a process that was started anew is of no epoch, and accepts nothing, before a
 *                     commit holds it */
#ifndef COMMIT_LOG_H
#define COMMIT_LOG_H

#include <stdbool.h>
#include <stdint.h>

#define COMMIT_LOG_IDS 64u
#define COMMIT_LOG_MAX 2048u

struct gf_members;

/* What a process knows after a turn. */
struct commit_seen {
    uint32_t epoch;   /* the last committed one; 0: of no epoch */
    uint64_t members; /* its member ids, a bit each */
    /* members of the proposal for the next one, accepted in the promised view; 0: none */
    uint64_t accepted;
};

struct commit {
    /* the process: its member id, and how often that was started before it */
    uint32_t id, life;
    uint32_t epoch;
    uint64_t members;
    bool accepted; /* no commit: it has accepted this list for this number */
};

struct commit_log {
    uint32_t id_count;
    uint32_t count;
    struct commit all[COMMIT_LOG_MAX];
    uint32_t life[COMMIT_LOG_IDS];
    struct commit_seen last[COMMIT_LOG_IDS]; /* of the process that has the id now */
    /* processes that have ended and were not started again, a bit each */
    uint64_t dead;
    char error[200]; /* the first rule that was broken */
};

void commit_log_open(struct commit_log *log, uint32_t id_count);
/* A process of this id has ended; another one was started. So it is for one that was left out and
 * waits to come in again: it has the rights of a new one, and this may be only where others have
 * begun an epoch without it. */
void commit_log_died(struct commit_log *log, uint32_t id);
void commit_log_started(struct commit_log *log, uint32_t id);
/* After each turn of a process. False: a rule is broken, log->error says which. */
bool commit_log_note(struct commit_log *log, uint32_t id, const struct commit_seen *seen);
/* The same, as its library has it. */
bool commit_log_look(struct commit_log *log, uint32_t id, const struct gf_members *members);
/* Are these more than half of the members, or exactly half with the lowest id? */
bool commit_log_is_quorum(uint64_t members, uint64_t some);
/* The first commit of the newest epoch; there is one. */
const struct commit *commit_log_newest(const struct commit_log *log);

#endif
