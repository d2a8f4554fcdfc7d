/* Training goes on with the ranks that are left: gf-train --elastic. */
#ifndef GF_TRAIN_ELASTIC_H
#define GF_TRAIN_ELASTIC_H

#include "train_loop.h"

/* After a call has failed with `status`: GF_OK once the survivors are a new world and train->step is the step that they go
 * on with; else what the run ends with. */
gf_status train_shrink(struct train *train, gf_status status);
/* Tests and sums up, once more with whoever is left if somebody dies on the way. */
gf_status train_finish(struct train *train);

#endif
