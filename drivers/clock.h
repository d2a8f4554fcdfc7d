/* Time is an argument everywhere below lib/, so that tests and the simulator own it. */
#ifndef GF_CLOCK_H
#define GF_CLOCK_H

#include <stdint.h>

struct gf_clock {
    uint64_t (*now_ns)(const struct gf_clock *clock); /* never goes back; its zero means nothing */
};

extern const struct gf_clock gf_clock_monotonic; /* CLOCK_MONOTONIC */

#endif
