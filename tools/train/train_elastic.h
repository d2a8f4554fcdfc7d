/* Training goes on with the ranks that are left, and with those that come back: gf-train
 * --elastic. */
#ifndef GF_TRAIN_ELASTIC_H
#define GF_TRAIN_ELASTIC_H

#include "tools/train/train_loop.h"

/* After a call has failed with `status`: GF_OK once the survivors are a new world and train->step
 * is the step that they go on with; else what the run ends with. */
gf_status train_shrink(struct train *train, gf_status status);
/* SIGUSR1 makes this rank leave: the others go on without it. */
void train_leave_on_signal(void);
/* Between steps: lets in whoever waits, and out whoever leaves (gf_left() is true then); nothing
 * where nobody does. As train_shrink(). */
gf_status train_admit(struct train *train);
/* In place of train_begin() and train_resume(): this process has just come back into a job under
 * way. */
gf_status train_joiner(struct train *train);
/* Tests and sums up, once more with whoever is left if somebody dies on the way. */
gf_status train_finish(struct train *train);

#endif
