/* What every poll moves beside its own business: link, control channel, life signs. */
#ifndef GF_PROGRESS_H
#define GF_PROGRESS_H

#include "gradientflow.h"

struct gf_polled {
    uint32_t members_skip; /* polls until the control channel is looked at again */
    uint64_t members_ns;   /* when it was last */
    uint64_t link_ns;      /* the link */
    uint64_t step_ns;      /* the step */
    uint64_t still_ns;     /* this rank's longest time without a poll while all others may have waited for it */
};

/* Once a poll, though not all of it at each one while only flags are awaited. Negative: the context has failed. */
gf_status gf_progress(gf_context *gf, uint64_t now_ns);

#endif
