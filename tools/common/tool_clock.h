/* Time since some moment; never goes back. */
#ifndef TOOL_CLOCK_H
#define TOOL_CLOCK_H

#include "drivers/base/clock.h"

static inline uint64_t tool_clock_ns(void)
{
    return gf_clock_monotonic.now_ns(&gf_clock_monotonic);
}

#endif
