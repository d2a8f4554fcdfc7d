/* The coordinator of gf-run's job, in a child process of its own. */
#ifndef RUN_COORDINATOR_H
#define RUN_COORDINATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/coordinator/coordinator_serve.h"

/* Starts it; returns once it listens. False, and said: it cannot. gf-run starts the ranks from
 * `first` on, rank_max at most. */
bool run_coordinator_begin(const struct coordinator_job *job, uint32_t first, uint32_t rank_max);
/* Starts it again where it has ended, while ranks live. */
void run_coordinator_look(void);
/* In how many ms another look is due; `most` where none is. */
int run_coordinator_wait(int most);
/* How many members are connected to it now; 0 where it does not say so within a second. */
uint32_t run_coordinator_members(void);
/* A rank has ended for good, so that the job can't begin anew under this gf-run: once it has ended
 * well, a rank that was started again too late hears that. */
void run_coordinator_job_is_last(void);
bool run_coordinator_job_has_ended(void); /* .. so that nobody is started again */
/* No rank of this node lives any more, and those of others may: it ends with the job. */
void run_coordinator_finish(void);
bool run_coordinator_is_needed(void); /* .. which has not ended */
void run_coordinator_end(void);

#endif
