/* What every poll moves in addition to its own work: the link, the control channel, signs of
 * life. */
#ifndef GF_PROGRESS_H
#define GF_PROGRESS_H

#include "gradientflow.h"

struct gf_polled {
    uint64_t at_ns; /* the last poll */
    /* between polls, beyond what counts: this rank was stopped, suspended, or computed */
    uint64_t away_ns;
    uint32_t control_skip; /* polls until control is looked at again */
    uint64_t control_ns;   /* when it was last */
    uint64_t link_ns;      /* the link */
    /* gf_heartbeat(): in what step and operation it was called last, since when it is there, and
     * whether its patience is at an end */
    uint64_t position, position_ns;
    bool position_spent;
    uint64_t step_ns; /* the step */
    /* this rank's longest time without a poll while all others may have waited for it */
    uint64_t still_ns;
};

/* Each poll begins here and reads the time. Of the gap since the poll before, at most GF_GAP_NS
 * counts against other ranks, or a quarter of exchange.timeout where that is less. Deadlines of
 * this rank are extended by the rest, because its process, machine or clock stood still. */
#define GF_GAP_NS UINT64_C(250000000)
uint64_t gf_poll_begin(gf_context *gf);
uint64_t gf_gap_most_ns(const gf_context *gf); /* how much of a gap counts */

/* Once a poll, though not all of it at each one while only flags are awaited. Negative: the context
 * has failed. */
gf_status gf_progress(gf_context *gf, uint64_t now_ns);

#endif
