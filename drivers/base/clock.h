/* Everything that is polled takes the time as an argument, so that tests and the simulator
 * control it. Only a driver that waits inside one call, and has no simulated twin, reads the
 * clock itself. */
#ifndef GF_CLOCK_H
#define GF_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gf_clock {
    uint64_t (*now_ns)(const struct gf_clock *clock); /* never goes back; its zero means nothing */
    bool is_real; /* the CPU's counter of ticks runs beside it */
};

extern const struct gf_clock gf_clock_monotonic; /* CLOCK_MONOTONIC */

#ifdef __cplusplus
}
#endif
#endif
