/* A log of all generations over all ranks of a simulated job, kept by looking at each process after
 * each of its turns, and the rules that it must keep whatever the library believes:
 *
 *     one list      two generations of one number have the same members, unless all that began one
 *                   of them are dead
 *     its own       a process is a member of the generation that it is in
 *     growing       the generations of a process grow
 *     not anew      a new generation has a member of the newest one before, unless all that began
 *                   that are dead, or have ended in order: the one that took it on may die before
 *                   it begins it */
#ifndef GENERATION_LOG_H
#define GENERATION_LOG_H

#include <stdbool.h>
#include <stdint.h>

#define GENERATION_LOG_IDS 64u
#define GENERATION_LOG_MAX 2048u

/* What a process knows after a turn: its generation, 0 if it is of none, and the ids of its
 * members, a bit each. */
struct generation_seen {
    uint32_t number;
    uint64_t members;
};

struct generation_log {
    uint32_t count;
    struct generation_begun {
        uint32_t id, life; /* the process: how often one of this id was started before it */
        struct generation_seen seen;
    } all[GENERATION_LOG_MAX];
    uint32_t life[GENERATION_LOG_IDS];
    struct generation_seen last[GENERATION_LOG_IDS]; /* of the process that has the id now */
    uint64_t dead;   /* processes that have died and were not started again, a bit each, */
    uint64_t gone;   /* .. and those that have left, closed or given up */
    char error[200]; /* the first rule that was broken */
};

void generation_log_open(struct generation_log *log);
void generation_log_died(struct generation_log *log, uint32_t id);
void generation_log_gone(struct generation_log *log, uint32_t id);
void generation_log_started(struct generation_log *log, uint32_t id);
/* After each turn of a process. False: a rule is broken, log->error says which. */
bool generation_log_note(struct generation_log *log, uint32_t id,
                         const struct generation_seen *seen);
/* The newest one that began. */
struct generation_seen generation_log_newest(const struct generation_log *log);

#endif
