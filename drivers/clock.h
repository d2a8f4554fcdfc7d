/* Time is an argument of all that is polled, so that tests and the simulator own it. Only what a driver waits for
 * in one call, with no simulated twin, reads the clock itself. */
#ifndef GF_CLOCK_H
#define GF_CLOCK_H

#include <stdint.h>

struct gf_clock {
    uint64_t (*now_ns)(const struct gf_clock *clock); /* never goes back; its zero means nothing */
};

extern const struct gf_clock gf_clock_monotonic; /* CLOCK_MONOTONIC */

#endif
