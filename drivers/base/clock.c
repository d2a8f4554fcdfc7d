/* The system's clock. */
#include "drivers/base/clock.h"

#include <time.h>

static uint64_t monotonic_now_ns(const struct gf_clock *clock)
{
    struct timespec now;
    (void)clock;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const struct gf_clock gf_clock_monotonic = {.now_ns = monotonic_now_ns, .is_real = true};
