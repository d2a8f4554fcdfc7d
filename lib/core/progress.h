/* What every poll moves beside its own business: link, control channel, life signs. */
#ifndef GF_PROGRESS_H
#define GF_PROGRESS_H

#include "gradientflow.h"

/* Once a poll, though not all of it at each one while only flags are awaited. Negative: the context has failed. */
gf_status gf_progress(gf_context *gf, uint64_t now_ns);

#endif
