/* The command lines of all ranks must say the same: ranks that do not compute the same run never end well. */
#ifndef GF_TRAIN_SAME_H
#define GF_TRAIN_SAME_H

#include "tools/train/train_loop.h"

#define TRAIN_SAME_ERROR_BYTES 160u

/* Called by all ranks after the join. Empty error_out: they agree. Else all get the same text, which names the first
 * option that differs. */
gf_status train_same(struct train *train, char error_out[static TRAIN_SAME_ERROR_BYTES]);

/* Of all values that are compared: who comes back has them too. */
uint64_t train_same_hash(const struct train *train);

#endif
