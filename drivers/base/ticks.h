/* A clock for those who ask so often that a reading is dear: it takes a fifth of an allreduce of 8
 * bytes in a node. For half a millisecond or two after each reading the CPU's counter of ticks says
 * how much later it is; its rate comes from the readings themselves, so a counter that jumps is off
 * for no longer. Without a steady counter each answer is a reading. Of one thread at a time. */
#ifndef GF_TICKS_H
#define GF_TICKS_H

#include "drivers/base/clock.h"

struct gf_ticks {
    const struct gf_clock *clock;
    bool steady;
    uint64_t tick, ns;           /* of the last reading */
    uint64_t rate_tick, rate_ns; /* of the one that the rate counts from */
    uint64_t rate;               /* ns a tick, times 2^32; 0: not known */
    uint64_t returned_ns;
};
void gf_ticks_begin(struct gf_ticks *ticks, const struct gf_clock *clock);
uint64_t gf_ticks_now(struct gf_ticks *ticks); /* never goes back */

#endif
